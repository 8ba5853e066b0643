"""Packing loses and doubles nothing, the order is a permutation, and the loader is a pure function of its position."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from electra.data.loader import BatchLoader, Position
from electra.data.order import rank_slice, row_at
from electra.data.packing import make_rows
from electra.data.shards import TokenStore
from electra.data.tokenizer import SpecialIds

SPECIAL = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)


def make_store(documents):
    """documents: lists of line lengths. Tokens are numbered, so that each is told from the others."""
    tokens, document_starts, line_starts, number = [], [], [], 5
    for lines in documents:
        document_starts.append(len(tokens))
        for length in lines:
            line_starts.append(len(tokens))
            tokens += range(number, number + length)
            number += length
        tokens.append(SPECIAL.sep)
    manifest = {"special_ids": dataclasses.asdict(SPECIAL), "vocab_size": number}
    arrays = (np.array(tokens), np.array(document_starts), np.array(line_starts))
    return TokenStore(Path("fake"), manifest, *arrays)


documents = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=6), min_size=1, max_size=8)


@settings(deadline=None, max_examples=80)
@given(documents, st.integers(8, 30))
def test_dense_rows_hold_every_token_once(documents, length):
    store = make_store(documents)
    rows = make_rows(store, length, "dense", 0)
    ids, mask, types = rows.gather(np.arange(len(rows)))
    assert ids.shape == (len(rows), length)
    assert types is None
    assert (ids[:, 0] == SPECIAL.cls).all()
    real = np.ones_like(ids, dtype=bool) if mask is None else mask
    assert real[:-1].all()  # padding only in the last row
    assert (ids[~real] == SPECIAL.pad).all()
    last = real.sum(1) - 1
    assert (ids[np.arange(len(ids)), last] == SPECIAL.sep).all()
    text = ids[real]
    assert text[text > 4].tolist() == store.tokens[store.tokens > 4].tolist()


@settings(deadline=None, max_examples=80)
@given(documents, st.integers(8, 30), st.integers(0, 100))
def test_two_segment_rows_hold_every_token_once(documents, length, seed):
    store = make_store(documents)
    rows = make_rows(store, length, "two-segment", seed)
    ids, mask, types = rows.gather(np.arange(len(rows)))
    text = ids[mask]
    assert text[text > 4].tolist() == store.tokens[store.tokens > 4].tolist()
    for row, real, kind in zip(ids, mask, types, strict=True):
        end = int(real.sum())
        assert real[:end].all()
        assert row[0] == SPECIAL.cls
        assert row[end - 1] == SPECIAL.sep
        separators = np.flatnonzero(row[:end] == SPECIAL.sep)
        assert len(separators) in (1, 2)
        expected = np.zeros(length, dtype=int)
        if len(separators) == 2:
            expected[separators[0] + 1 : end] = 1
        assert kind.tolist() == expected.tolist()
    starts, splits, ends = rows.spans.T
    assert np.isin(splits[splits < ends], store.line_starts).all()  # segments part at line boundaries
    inner = [((store.line_starts > start) & (store.line_starts < end)).any() for start, _, end in rows.spans]
    assert not (splits < ends)[~np.array(inner)].any()
    assert (starts < splits).all()


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 3000), st.integers(0, 2**40), st.integers(0, 5))
def test_each_epoch_is_a_permutation(num_rows, seed, epoch):
    positions = np.arange(epoch * num_rows, (epoch + 1) * num_rows)
    epochs, row_ids = row_at(positions, num_rows, seed)
    assert (epochs == epoch).all()
    assert sorted(row_ids) == list(range(num_rows))
    assert row_at(positions[::-1], num_rows, seed)[1].tolist() == row_ids[::-1].tolist()


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {tuple(row_at(np.arange(100) + 100 * epoch, 100, seed)[1]) for epoch in range(3) for seed in range(3)}
    assert len(orders) == 9
    # No relation between where a row stands and what it is.
    rank = row_at(np.arange(5000), 5000, 1)[1]
    assert abs(np.corrcoef(np.arange(5000), rank)[0, 1]) < 0.06


@given(st.integers(1, 300), st.integers(1, 16))
def test_ranks_share_the_batch_out(batch_size, world_size):
    parts = [np.arange(batch_size)[rank_slice(batch_size, rank, world_size)] for rank in range(world_size)]
    assert np.concatenate(parts).tolist() == list(range(batch_size))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def take(loader, count):
    with loader:
        return [next(loader) for _ in range(count)]


def test_the_loader_goes_on_from_any_position_and_ranks_partition_it():
    rows = make_rows(make_store([[30, 20], [50], [7, 9, 40]]), 12, "dense", 0)
    whole = take(BatchLoader(rows, batch_size=5, seed=3), 12)  # several epochs
    assert max(int(batch.epochs.max()) for batch in whole) >= 2
    later = take(BatchLoader(rows, batch_size=5, seed=3, position=Position(20)), 8)
    for one, other in zip(whole[4:], later, strict=True):
        assert torch.equal(one.input_ids, other.input_ids)
        assert torch.equal(one.row_ids, other.row_ids)
    parts = [take(BatchLoader(rows, batch_size=5, seed=3, rank=rank, world_size=2), 3) for rank in range(2)]
    for step in range(3):
        together = torch.cat([parts[rank][step].input_ids for rank in range(2)])
        assert torch.equal(together, whole[step].input_ids)
    loader = BatchLoader(rows, batch_size=5, seed=3)
    with loader:
        next(loader)
        assert loader.position == Position(5)


def test_a_fault_in_the_background_surfaces():
    class Broken:
        def __len__(self):
            return 10

        def gather(self, row_ids):
            raise OSError("the disk is gone")

    with BatchLoader(Broken(), batch_size=2, seed=0) as loader, pytest.raises(OSError, match="the disk is gone"):
        next(loader)


def test_splitting_a_batch_keeps_its_rows():
    rows = make_rows(make_store([[60]]), 12, "two-segment", 0)
    (batch,) = take(BatchLoader(rows, batch_size=5, seed=0), 1)
    parts = batch.split(2)
    assert [len(part) for part in parts] == [2, 2, 1]
    assert torch.equal(torch.cat([part.token_type_ids for part in parts]), batch.token_type_ids)
