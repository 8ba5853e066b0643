"""The only place that seeds torch. What dropout and initialisation draw is derived from the seed and the step, never saved."""

from __future__ import annotations

import torch

INITIALISATION, DROPOUT = range(2)

_MASK = 2**64 - 1


def derive_seed(*parts: int) -> int:
    """A 63-bit seed that depends on every part and on their order."""
    state = 0x9E3779B97F4A7C15
    for part in parts:
        state = (state ^ (part & _MASK)) * 0xBF58476D1CE4E5B9 & _MASK
        state ^= state >> 29
        state = state * 0x94D049BB133111EB & _MASK
        state ^= state >> 32
    return state >> 1


def seed_torch(*parts: int) -> None:
    """Seed torch's default generators (host and accelerator) from the parts; done before each micro-batch."""
    torch.manual_seed(derive_seed(*parts))
