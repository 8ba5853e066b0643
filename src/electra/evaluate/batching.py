"""Rows of like length together, so that little is padded: in batches for scoring, and in random ones for training.

Shapes: B batch, L length, N rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

TOKENS_AT_ONCE = 2048
"""Padded tokens that go through a network together on the CPU: activations of a layer of Small stay near the cache."""
TOKENS_AT_ONCE_ACCELERATOR = 65_536
_POOL = 32  # batches that are sorted by length together: nearly no padding, still nearly a random order


def tokens_at_once(device: torch.device) -> int:
    """How many padded tokens to score together on a device."""
    return TOKENS_AT_ONCE if device.type == "cpu" else TOKENS_AT_ONCE_ACCELERATOR


def batches_by_length(rows: Sequence[Sequence[int]], max_tokens: int) -> Iterator[list[int]]:
    """Indices of rows of like length, short ones first, in batches of at most `max_tokens` padded tokens (but at least one
    row)."""
    batch: list[int] = []
    for index in sorted(range(len(rows)), key=lambda index: len(rows[index])):
        if batch and (len(batch) + 1) * len(rows[index]) > max_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def batches_per_epoch(num_rows: int, batch_size: int) -> int:
    """How many batches of `shuffled_batches` show each row once: all of them full but the last."""
    return -(-num_rows // batch_size)


def shuffled_batches(lengths: NDArray[np.int64], batch_size: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Endless batches of row numbers; every epoch shows each row once, in an order of its own that `seed` decides.

    Rows are drawn at random, 32 batches of them are sorted by length together and cut into batches, and the order of the
    batches is drawn at random again. So the rows of a batch are of like length, and otherwise as random as they were.
    """
    epoch = 0
    while True:
        draw = np.random.Generator(np.random.Philox(key=[seed, epoch]))
        order = draw.permutation(len(lengths))
        batches = []
        for start in range(0, len(order), _POOL * batch_size):
            pool = order[start : start + _POOL * batch_size]
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            batches += [pool[at : at + batch_size] for at in range(0, len(pool), batch_size)]
        for index in draw.permutation(len(batches)):
            yield batches[index]
        epoch += 1


def pad(rows: Sequence[Sequence[int]], value: int) -> tuple[Tensor, Tensor | None]:
    """Rows filled up to the longest with `value`: int64 [B, L], and the mask bool [B, L] that is true at what was there, or
    None where nothing had to be filled (networks have a fast path for that)."""
    lengths_B = torch.tensor([len(row) for row in rows])
    longest, total = int(lengths_B.max()), int(lengths_B.sum())
    flat = torch.from_numpy(np.fromiter(chain.from_iterable(rows), np.int64, total))
    if total == len(rows) * longest:
        return flat.view(len(rows), longest), None
    mask_BL = torch.arange(longest) < lengths_B[:, None]
    ids_BL = torch.full((len(rows), longest), value)
    ids_BL[mask_BL] = flat
    return ids_BL, mask_BL
