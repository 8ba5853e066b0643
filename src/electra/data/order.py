"""In which order rows are read: a pure function of the seed, endless, without a stored permutation.

Position p of the order is row `shuffle(p mod n)` of epoch `p div n`. Each epoch is a permutation of its own, made by a Feistel
network over the next power of four with cycle-walking (values outside the range are sent through again), so it needs no
memory however large the corpus. So the whole state of reading is one number, and it does not depend on how many ranks read.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 6
_GOLDEN = 0x9E3779B97F4A7C15
_ROUND_KEYS = [np.uint64((index + 1) * _GOLDEN % 2**64) for index in range(_ROUNDS)]


def row_at(positions: NDArray[np.int64], num_rows: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of the endless order -> (epochs, row ids), each of the shape of `positions`."""
    epochs, within = np.divmod(positions, num_rows)
    half_bits = max(1, ((num_rows - 1).bit_length() + 1) // 2)
    keys = _mix(_mix(epochs.astype(np.uint64) + np.uint64(1)) + np.uint64(seed * _GOLDEN % 2**64))
    values = _feistel(within.astype(np.uint64), keys, half_bits)
    outside = values >= num_rows
    while outside.any():  # each pass leaves at most three quarters of them, a half on average
        values[outside] = _feistel(values[outside], keys[outside], half_bits)
        outside = values >= num_rows
    return epochs, values.astype(np.int64)


def rank_slice(batch_size: int, rank: int, world_size: int) -> slice:
    """The part of a global batch that one rank reads: contiguous, sizes differing by at most one row."""
    return slice(batch_size * rank // world_size, batch_size * (rank + 1) // world_size)


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _feistel(values: NDArray[np.uint64], keys: NDArray[np.uint64], half_bits: int) -> NDArray[np.uint64]:
    """A keyed bijection of numbers of 2 x half_bits bits."""
    bits, low = np.uint64(half_bits), np.uint64(2**half_bits - 1)
    left, right = values >> bits, values & low
    for round_key in _ROUND_KEYS:
        left, right = right, left ^ (_mix(right + keys + round_key) & low)
    return (left << bits) | right
