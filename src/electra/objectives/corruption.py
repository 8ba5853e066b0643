"""Which positions are masked, what the generator sees there, and how a replacement is sampled.

Every random number is a hash of (seed, stream, epoch, row, position). So it does not depend on how rows are batched, on the
number of ranks or on what ran before, and a resumed run draws the same ones without any saved state.

Shapes: B batch, L length, K masked positions of the whole batch, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import torch
from numpy.typing import NDArray

from electra.config import ObjectiveConfig
from electra.data.loader import Batch
from electra.data.tokenizer import SpecialIds
from electra.objectives.base import Corrupted, Counts

# One stream for each use, so that no two uses share a number.
CHOICE, PROTOCOL, RANDOM_TOKEN, SAMPLING = range(4)

_GOLDEN = 0x9E3779B97F4A7C15


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection of 64-bit words in which every input bit moves every output bit (the finaliser of SplitMix64)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _row_keys(seed: int, stream: int, epochs_B: NDArray, rows_B: NDArray) -> NDArray[np.uint64]:
    key = _mix(np.array([(seed * _GOLDEN + stream + 1) % 2**64], dtype=np.uint64))
    key = _mix(key + epochs_B.astype(np.uint64) * np.uint64(_GOLDEN))
    return _mix(key + rows_B.astype(np.uint64) * np.uint64(_GOLDEN))


def noise(seed: int, stream: int, epochs: NDArray, rows: NDArray, positions: NDArray) -> NDArray[np.uint64]:
    """64 random bits for each (epoch, row, position); the three arrays are broadcast together after hashing the rows."""
    return _mix(
        _row_keys(seed, stream, epochs, rows) + (positions.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)
    )


def uniforms(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Bits -> float64 in [0, 1), 53 bits fine."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def choose_positions(
    candidates_BL: NDArray[np.bool_], keys_BL: NDArray[np.uint64], mask_fraction: float
) -> NDArray[np.int64]:
    """Flat indices, ascending, of `mask_fraction` of each row's candidates: rounded half up, at least one, none twice."""
    num_candidates_B = candidates_BL.sum(axis=1)
    num_masked_B = np.floor(mask_fraction * num_candidates_B + 0.5).astype(np.int64)
    num_masked_B = np.minimum(np.maximum(num_masked_B, 1), num_candidates_B)
    # Halving the keys leaves the top value free for what must not be chosen.
    order_BL = np.argsort(np.where(candidates_BL, keys_BL >> np.uint64(1), np.uint64(2**64 - 1)), axis=1, kind="stable")
    taken_BL = np.arange(order_BL.shape[1])[None, :] < num_masked_B[:, None]
    chosen_BL = np.zeros_like(candidates_BL)
    np.put_along_axis(chosen_BL, order_BL, taken_BL, axis=1)
    return np.flatnonzero(chosen_BL)


def _by_row(positions_K: NDArray[np.int64], num_rows: int, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ascending flat positions -> (their columns row by row, filled up with 0; where in that the true ones are)."""
    row_K, column_K = np.divmod(positions_K, length)
    counts_B = np.bincount(row_K, minlength=num_rows)
    rank_K = np.arange(len(row_K)) - (np.cumsum(counts_B) - counts_B)[row_K]
    columns_BM = np.zeros((num_rows, max(1, int(counts_B.max()))), dtype=np.int64)
    columns_BM[row_K, rank_K] = column_K
    return columns_BM, row_K * columns_BM.shape[1] + rank_K


@functools.cache
def _ordinary_tokens(vocab_size: int, special: SpecialIds) -> NDArray[np.int64]:
    return np.setdiff1d(np.arange(vocab_size), dataclasses.astuple(special))


def corrupt(batch: Batch, config: ObjectiveConfig, *, vocab_size: int, special: SpecialIds, seed: int) -> Corrupted:
    """Mask a batch (paper, section 2; the shares of [MASK], random and kept tokens are the configuration's)."""
    ids_BL = batch.input_ids.numpy()
    rows_B, epochs_B = batch.row_ids.numpy(), batch.epochs.numpy()
    scored_BL = ~np.isin(ids_BL, [special.pad, special.cls, special.sep, special.mask])
    if batch.attention_mask is not None:
        scored_BL &= batch.attention_mask.numpy()
    length = ids_BL.shape[1]

    keys_BL = noise(seed, CHOICE, epochs_B[:, None], rows_B[:, None], np.arange(length)[None, :])
    positions_K = choose_positions(scored_BL, keys_BL, config.mask_fraction)
    at = (epochs_B[positions_K // length], rows_B[positions_K // length], positions_K % length)

    protocol_K = uniforms(noise(seed, PROTOCOL, *at))
    ordinary = _ordinary_tokens(vocab_size, special)
    random_K = ordinary[(uniforms(noise(seed, RANDOM_TOKEN, *at)) * len(ordinary)).astype(np.int64)]
    labels_K = ids_BL.reshape(-1)[positions_K]
    seen_K = np.where(
        protocol_K < config.mask_share,
        special.mask,
        np.where(protocol_K < config.mask_share + config.random_share, random_K, labels_K),
    )
    masked_BL = ids_BL.copy()
    masked_BL.reshape(-1)[positions_K] = seen_K

    columns_BM, filled_K = _by_row(positions_K, *ids_BL.shape)

    # 24 bits, so that the float32 is exact and below 1.
    sampling_K = (noise(seed, SAMPLING, *at) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    return Corrupted(
        input_ids=batch.input_ids,
        masked_ids=torch.from_numpy(masked_BL),
        attention_mask=batch.attention_mask,
        token_type_ids=batch.token_type_ids,
        scored=torch.from_numpy(scored_BL),
        positions=torch.from_numpy(positions_K),
        columns=torch.from_numpy(columns_BM),
        filled=torch.from_numpy(filled_K),
        labels=torch.from_numpy(labels_K),
        uniforms=torch.from_numpy(sampling_K),
        counts=Counts(num_masked=len(positions_K), num_scored=int(scored_BL.sum())),
    )
