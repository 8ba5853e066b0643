"""Masking: how many, where, what is seen there; and that it depends on seed, epoch, row and position alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from electra.config import ObjectiveConfig
from electra.data.loader import Batch
from electra.data.tokenizer import SpecialIds
from electra.objectives.corruption import choose_positions, corrupt, noise, uniforms

SPECIAL = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)
VOCAB = 50


def make_batch(ids, rows=None, epochs=None, attention_mask=None):
    ids = torch.as_tensor(ids)
    rows = torch.arange(len(ids)) if rows is None else torch.as_tensor(rows)
    epochs = torch.zeros(len(ids), dtype=torch.long) if epochs is None else torch.as_tensor(epochs)
    return Batch(input_ids=ids, attention_mask=attention_mask, token_type_ids=None, row_ids=rows, epochs=epochs)


def random_ids(num_rows, length, seed=0):
    ids = np.random.default_rng(seed).integers(5, VOCAB, (num_rows, length))
    ids[:, 0], ids[:, -1] = SPECIAL.cls, SPECIAL.sep
    return ids


def run(batch, **changes):
    config = ObjectiveConfig(**changes)
    return corrupt(batch, config, vocab_size=VOCAB, special=SPECIAL, seed=1)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=1, max_size=5),
    st.floats(0.01, 0.99),
    st.integers(0, 2**32),
)
def test_each_row_gets_its_rounded_share_and_no_position_twice(rows, fraction, seed):
    candidates = np.array(rows)
    keys = np.random.default_rng(seed).integers(0, 2**64, candidates.shape, dtype=np.uint64)
    positions = choose_positions(candidates, keys, fraction)
    assert len(set(positions)) == len(positions)
    assert list(positions) == sorted(positions)
    assert candidates.reshape(-1)[positions].all()
    for row, count in enumerate(candidates.sum(axis=1)):
        expected = min(count, max(1, int(np.floor(fraction * count + 0.5))))
        assert ((positions // 12) == row).sum() == expected


def test_126_real_tokens_of_128_give_19_masked():
    corrupted = run(make_batch(random_ids(4, 128)))
    assert corrupted.counts.num_masked == 4 * 19  # 0.15 x 126 = 18.9
    assert corrupted.counts.num_scored == 4 * 126


def test_specials_and_padding_are_never_chosen_or_scored():
    ids = random_ids(64, 32)
    ids[:, 10] = SPECIAL.sep  # a document ends inside the row
    ids[:, 11] = SPECIAL.mask
    ids[:, 20:] = SPECIAL.pad
    real = np.ones_like(ids, dtype=bool)
    real[:, 20:] = False
    corrupted = run(make_batch(ids, attention_mask=torch.from_numpy(real)), mask_fraction=0.9)
    special = np.isin(ids, [0, 2, 3, 4])
    assert not special.reshape(-1)[corrupted.positions.numpy()].any()
    assert not corrupted.scored.numpy()[special].any()
    assert corrupted.scored.numpy()[~special].all()
    untouched = np.ones(ids.size, dtype=bool)
    untouched[corrupted.positions.numpy()] = False
    assert (corrupted.masked_ids.numpy().reshape(-1)[untouched] == ids.reshape(-1)[untouched]).all()


def test_unknown_word_pieces_are_ordinary_text():
    ids = random_ids(2, 16)
    ids[:, 1:-1] = SPECIAL.unk
    assert run(make_batch(ids)).counts.num_scored == 2 * 14


def test_masking_does_not_depend_on_batch_layout_and_differs_between_epochs():
    ids = random_ids(8, 64)
    whole = run(make_batch(ids))
    back = run(make_batch(ids[::-1].copy(), rows=np.arange(8)[::-1].copy()))
    for row in range(8):
        alone = run(make_batch(ids[row : row + 1], rows=[row]))
        assert torch.equal(whole.masked_ids[row], alone.masked_ids[0])
        assert torch.equal(whole.masked_ids[row], back.masked_ids[7 - row])
        assert torch.equal(whole.uniforms[whole.positions // 64 == row], alone.uniforms)
    later = run(make_batch(ids, epochs=np.ones(8, dtype=np.int64)))
    assert not torch.equal(whole.masked_ids, later.masked_ids)


@pytest.mark.parametrize(("mask", "random"), [(0.85, 0.0), (0.8, 0.1), (1.0, 0.0)])
def test_protocol_shares(mask, random):
    ids = random_ids(400, 128)
    corrupted = run(make_batch(ids), mask_share=mask, random_share=random)
    seen = corrupted.masked_ids.reshape(-1)[corrupted.positions]
    n = corrupted.counts.num_masked
    is_mask, kept = seen == SPECIAL.mask, seen == corrupted.labels
    replaced = ~is_mask & ~kept
    # A random token is the original in 1 of 45 cases. Five standard deviations of a binomial.
    for share, expected in ((is_mask, mask), (kept, 1 - mask - random + random / 45), (replaced, random * 44 / 45)):
        deviation = (expected * (1 - expected) / n) ** 0.5
        assert abs(share.float().mean().item() - expected) <= 5 * deviation
    if random:
        assert set(seen[replaced].tolist()) == set(range(5, VOCAB))  # no special is ever put in


def test_every_position_is_chosen_equally_often():
    corrupted = run(make_batch(random_ids(4000, 32)))
    counts = np.bincount(corrupted.positions.numpy() % 32, minlength=32)[1:-1]
    expected = corrupted.counts.num_masked / 30
    assert ((counts - expected) ** 2 / expected).sum() < 60  # chi-square, 29 degrees of freedom: p < 0.001 above 58


def test_noise_is_uniform_and_streams_are_unrelated():
    rows, positions = np.arange(500)[:, None], np.arange(100)[None, :]
    zero = np.zeros((1, 1), dtype=np.int64)
    draws = [uniforms(noise(3, stream, zero, rows, positions)).reshape(-1) for stream in range(4)]
    for draw in draws:
        assert draw.min() >= 0.0
        assert draw.max() < 1.0
        histogram = np.histogram(draw, bins=50, range=(0, 1))[0]
        assert ((histogram - 1000) ** 2 / 1000).sum() < 100  # 49 degrees of freedom
        assert abs(np.corrcoef(draw[:-1], draw[1:])[0, 1]) < 0.03
    for a in range(4):
        for b in range(a):
            assert abs(np.corrcoef(draws[a], draws[b])[0, 1]) < 0.03


def test_the_numbers_themselves_are_fixed():
    """A change here changes every run: it must be meant."""
    bits = noise(42, 0, np.array([0, 1]), np.array([7, 7]), np.array([3, 3]))
    assert [hex(value) for value in bits] == ["0x1675aad9b649d246", "0xc464e91882c41a8e"]


def test_columns_name_the_same_places_as_positions():
    ids = random_ids(6, 32)
    ids[2, 5:20] = SPECIAL.sep  # a row with fewer real tokens has fewer masked ones
    corrupted = run(make_batch(ids))
    width = corrupted.columns.shape[1]
    rows = corrupted.filled // width
    assert torch.equal(rows * 32 + corrupted.columns.flatten()[corrupted.filled], corrupted.positions)
