"""Replaced-token detection on a batch of ten tokens, worked out by hand: `electra` and `electra-15`."""

import math

import pytest
import torch
from hand_made import MASKED_TEXT, REPLACED_TEXT, HandMadePair, hand_made, objective

from electra.objectives.replaced_token import put_samples


def test_ten_tokens_by_hand():
    pair, corrupted = HandMadePair(), hand_made()
    output = objective().step(pair, corrupted, corrupted.counts)
    # The generator saw [MASK]s, the discriminator the samples: 6 (right), 11 (wrong), 9 (right).
    assert pair.generator.seen.tolist() == [MASKED_TEXT]
    assert pair.discriminator.seen.tolist() == [REPLACED_TEXT]
    # MLM: -log p is 50 at the wrong one and 0 at the right ones.
    generator_sum, masked = output.sums["generator_loss"]
    assert (generator_sum.item(), masked) == (pytest.approx(50.0), 3)
    # Real tokens are at 1..6; only position 4 is replaced. A right sample counts as original.
    bce = sum(math.log1p(math.exp(x / 10)) for x in (1, 2, 3, 5, 6)) + math.log1p(math.exp(-0.4))
    discriminator_sum, scored = output.sums["discriminator_loss"]
    assert (discriminator_sum.item(), scored) == (pytest.approx(bce, rel=1e-6), 6)
    assert output.loss.item() == pytest.approx(50.0 / 3 + 50.0 * bce / 6, rel=1e-6)
    assert output.sums["replaced_share"][0].item() == 1
    assert output.sums["generator_accuracy"][0].item() == 2
    assert output.histograms["discriminator"].sum(1).tolist() == [5, 1]


def test_electra_15_scores_the_masked_positions_alone():
    pair, corrupted = HandMadePair(), hand_made()
    output = objective("electra-15").step(pair, corrupted, corrupted.counts)
    assert pair.discriminator.seen.tolist() == [REPLACED_TEXT]
    bce = math.log1p(math.exp(0.2)) + math.log1p(math.exp(-0.4)) + math.log1p(math.exp(0.5))
    discriminator_sum, scored = output.sums["discriminator_loss"]
    assert (discriminator_sum.item(), scored) == (pytest.approx(bce, rel=1e-6), 3)
    assert output.loss.item() == pytest.approx(50.0 / 3 + 50.0 * bce / 3, rel=1e-6)
    assert [output.sums["replaced_share"][0].item(), output.sums["replaced_share"][1]] == [1, 3]
    assert output.histograms["discriminator"].sum(1).tolist() == [2, 1]


def test_weights_of_the_losses():
    pair, corrupted = HandMadePair(), hand_made()
    loss = objective(generator_weight=2.0, discriminator_weight=0.0).step(pair, corrupted, corrupted.counts).loss
    assert loss.item() == pytest.approx(100.0 / 3)


def test_a_sample_equal_to_the_original_is_original():
    corrupted = hand_made()
    replaced_ids, is_replaced = put_samples(corrupted, torch.tensor([6, 8, 9]))
    assert torch.equal(replaced_ids, corrupted.input_ids)
    assert not is_replaced.any()
