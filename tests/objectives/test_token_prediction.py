"""The MLM objectives on a batch of ten tokens, worked out by hand, and the copy mechanism's loss at its extremes."""

import math

import pytest
import torch
import torch.nn.functional as F
from hand_made import MASKED_TEXT, REPLACED_TEXT, VOCAB, TokenPair, hand_made, objective

from electra.model import native, target_losses
from electra.objectives.token_prediction import copy_losses

# The main network gives token 5 + position the logit 3: so position p's own token, 4 + p, has probability RARE.
TOTAL = math.exp(3) + VOCAB - 1
RARE = 1 / TOTAL


def test_bert_runs_the_main_network_alone():
    pair, corrupted = TokenPair(), hand_made()
    del pair.generator, pair.generator_head
    output = objective("bert").step(pair, corrupted, corrupted.counts)
    assert pair.discriminator.seen.tolist() == [MASKED_TEXT]
    assert output.sums["mlm_loss"] == (pytest.approx(-3 * math.log(RARE), rel=1e-6), 3)
    assert output.loss.item() == pytest.approx(-math.log(RARE), rel=1e-6)
    assert output.sums["mlm_accuracy"] == (0, 3)
    assert output.sums.keys() == {"mlm_loss", "mlm_accuracy"}


def test_replace_mlm_reads_samples_and_predicts_the_originals():
    pair, corrupted = TokenPair(), hand_made()
    output = objective("replace-mlm").step(pair, corrupted, corrupted.counts)
    assert pair.generator.seen.tolist() == [MASKED_TEXT]
    assert pair.discriminator.seen.tolist() == [REPLACED_TEXT]
    assert output.sums["mlm_loss"] == (pytest.approx(-3 * math.log(RARE), rel=1e-6), 3)
    assert output.loss.item() == pytest.approx(50.0 / 3 - math.log(RARE), rel=1e-6)


def test_all_tokens_mlm_mixes_copy_and_softmax_at_every_real_token():
    pair, corrupted = TokenPair(), hand_made()
    output = objective("all-tokens-mlm").step(pair, corrupted, corrupted.counts)
    assert pair.discriminator.seen.tolist() == [REPLACED_TEXT]
    copy = [1 / (1 + math.exp(-position / 10)) for position in range(10)]
    likely = {
        position: copy[position] + (1 - copy[position]) * RARE for position in (1, 2, 3, 5, 6)
    }  # the input itself
    likely[4] = (1 - copy[4]) * RARE  # replaced: to be predicted, not copied
    loss = -sum(math.log(probability) for probability in likely.values())
    assert output.sums["mlm_loss"] == (pytest.approx(loss, rel=1e-6), 6)
    assert output.loss.item() == pytest.approx(50.0 / 3 + loss / 6, rel=1e-6)
    assert output.sums["masked_loss"] == (pytest.approx(-sum(math.log(likely[at]) for at in (2, 4, 5)), rel=1e-6), 3)
    assert output.sums["copy_share"] == (pytest.approx(sum(copy[1:7]), rel=1e-6), 6)


def test_the_copy_loss_is_exact_and_finite_at_its_extremes():
    logits = torch.tensor([-200.0, -3.0, 0.0, 3.0, 200.0], requires_grad=True)
    softmax_losses = torch.tensor([0.0, 1e-4, 2.0, 30.0, 900.0], requires_grad=True)
    for is_input in (True, False):
        grid = [tensor.flatten() for tensor in torch.meshgrid(logits, softmax_losses, indexing="ij")]
        losses = copy_losses(*grid, torch.full((25,), is_input))
        gradients = torch.autograd.grad(losses.sum(), (logits, softmax_losses))
        assert all(bool(tensor.isfinite().all()) for tensor in (losses, *gradients))
        mild = losses.view(5, 5)[1:4, 1:4]
        D = grid[0].double().sigmoid()
        p = D * is_input + (1 - D) * (-grid[1].double()).exp()
        torch.testing.assert_close(mild.double(), -p.log().view(5, 5)[1:4, 1:4], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("compiled", [True, False])
def test_losses_in_parts_equal_cross_entropy(monkeypatch, compiled):
    if not compiled:
        monkeypatch.setattr(native, "library", lambda: None)
        monkeypatch.setattr(target_losses, "SCORES_BYTES", 4 * 7 * 3)  # three positions at a time
    torch.manual_seed(0)
    leaves = [tensor.requires_grad_() for tensor in (torch.randn(10, 5), torch.randn(7, 5), torch.randn(7))]
    targets = torch.randint(7, (10,))
    losses, likeliest = target_losses.target_losses(*leaves, targets)
    logits = F.linear(*leaves)
    expected = F.cross_entropy(logits, targets, reduction="none")
    torch.testing.assert_close(losses, expected)
    assert torch.equal(likeliest, logits.argmax(-1))
    given, wanted = (torch.autograd.grad((x.sin() * x).sum(), leaves) for x in (losses, expected))
    for one, other in zip(given, wanted, strict=True):
        torch.testing.assert_close(one, other)
