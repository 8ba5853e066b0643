"""Batches of rows of like length."""

import itertools

import numpy as np
import pytest
import torch

from electra.evaluate.batching import batches_by_length, batches_per_epoch, pad, shuffled_batches


def epochs(lengths, batch_size, seed, count):
    per_epoch = batches_per_epoch(len(lengths), batch_size)
    batches = list(itertools.islice(shuffled_batches(lengths, batch_size, seed), count * per_epoch))
    return [batches[at : at + per_epoch] for at in range(0, len(batches), per_epoch)]


@pytest.mark.parametrize(("num_rows", "batch_size"), [(1, 4), (8, 4), (1003, 4), (5, 1)])
def test_every_epoch_shows_each_row_once_in_another_order(num_rows, batch_size):
    lengths = np.random.default_rng(0).integers(1, 100, num_rows)
    first, second = epochs(lengths, batch_size, 3, 2)
    for epoch in (first, second):
        assert sorted(np.concatenate(epoch)) == list(range(num_rows))
        assert all(len(batch) <= batch_size for batch in epoch)
    if num_rows > 100:
        assert np.concatenate(first).tolist() != np.concatenate(second).tolist()
    again = epochs(lengths, batch_size, 3, 1)[0]
    assert [batch.tolist() for batch in first] == [batch.tolist() for batch in again]


def test_batches_are_of_like_length_and_in_random_order():
    lengths = np.random.default_rng(0).integers(1, 100, 4000)
    batches = epochs(lengths, 16, 0, 1)[0]
    padded = sum(len(batch) * lengths[batch].max() for batch in batches)
    assert padded < 1.05 * lengths.sum()
    means = np.array([lengths[batch].mean() for batch in batches])
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.2
    # Neither batches nor rows keep the order of the data: neighbours of it are as far apart as any two.
    place = np.empty(4000)
    place[np.concatenate(batches)] = np.arange(4000)
    assert np.abs(np.diff(place)).mean() == pytest.approx(4000 / 3, rel=0.1)


def test_a_batch_holds_no_more_tokens_than_it_may():
    rows = [[0] * length for length in (5, 1, 30, 4, 5, 2, 12)]
    batches = list(batches_by_length(rows, 12))
    assert sorted(itertools.chain(*batches)) == list(range(7))
    assert all(len(batch) == 1 or len(batch) * max(len(rows[at]) for at in batch) <= 12 for batch in batches)
    assert [len(rows[batch[0]]) for batch in batches] == sorted(len(rows[batch[0]]) for batch in batches)


def test_padding():
    ids, mask = pad([[1, 2, 3], [], [4]], 9)
    assert ids.tolist() == [[1, 2, 3], [9, 9, 9], [4, 9, 9]]
    assert mask.tolist() == [[True, True, True], [False, False, False], [True, False, False]]
    ids, mask = pad([[1, 2], [3, 4]], 9)
    assert ids.dtype == torch.int64
    assert ids.tolist() == [[1, 2], [3, 4]]
    assert mask is None
