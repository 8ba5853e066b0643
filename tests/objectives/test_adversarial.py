"""The adversarial generator's gradient against one worked out by hand."""

import math

import pytest
import torch
from hand_made import MASKED_AT, REPLACED_TEXT, VOCAB, HandMadePair, hand_made, objective, real_batch, real_pair
from torch import nn


class FixedBaseline(nn.Module):
    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([0.5, -0.5, 1.0]))

    def forward(self, hidden):
        assert not hidden.requires_grad  # the baseline's loss stops here
        return self.logits


def adversarial_pair():
    pair = HandMadePair()
    pair.generator.table.data /= 50.0  # unsure: each sure token now has probability e / (e + 11)
    pair.baseline_head = FixedBaseline()
    return pair


def test_the_gradient_is_advantage_times_that_of_the_log_probability():
    pair, corrupted = adversarial_pair(), hand_made()
    # 0.5 of the way through the distribution is token 6 where nothing stands out below it; work out what is sampled.
    probabilities = pair.generator.table.detach()[MASKED_AT].softmax(-1)
    samples = (probabilities.cumsum(-1) <= 0.5).sum(-1)
    output = objective("adversarial", generator_weight=2.0).step(pair, corrupted, corrupted.counts)
    seen = pair.discriminator.seen[0]
    assert torch.equal(seen[MASKED_AT], samples)
    assert [a for i, a in enumerate(seen.tolist()) if i not in MASKED_AT] == [
        a for i, a in enumerate(REPLACED_TEXT) if i not in MASKED_AT
    ]
    replaced = samples != corrupted.labels
    assert replaced.any()
    # The reward is the discriminator's loss at the sample, its logits there being 0.2, 0.4, 0.5; elsewhere there is none.
    logits = torch.tensor([0.2, 0.4, 0.5])
    reward = torch.where(replaced, -logits.sigmoid().log(), -(1 - logits.sigmoid()).log())
    baseline = -torch.tensor([0.5, -0.5, 1.0]).sigmoid().log()
    assert output.sums["reward"] == (pytest.approx(reward.sum().item(), rel=1e-6), 3)
    assert output.sums["baseline"] == (pytest.approx(baseline.sum().item(), rel=1e-6), 3)
    chosen = probabilities.gather(1, samples[:, None]).squeeze(1)
    assert output.sums["entropy"] == (pytest.approx(-chosen.log().sum().item(), rel=1e-6), 3)
    assert output.sums["generator_accuracy"][1] == 3

    output.loss.backward()
    advantage = (reward - baseline) * 2.0 / 3
    expected = torch.zeros(10, VOCAB)
    expected[MASKED_AT] = advantage[:, None] * (probabilities - nn.functional.one_hot(samples, VOCAB))
    torch.testing.assert_close(pair.generator.table.grad, expected, atol=1e-6, rtol=1e-5)
    # Cross-entropy towards exp(-reward), the probability of the truth.
    slope = (torch.tensor([0.5, -0.5, 1.0]).sigmoid() - (-reward).exp()) / 3
    torch.testing.assert_close(pair.baseline_head.logits.grad, slope, atol=1e-6, rtol=1e-5)


def test_the_discriminators_loss_is_that_of_electra():
    corrupted, found = objective().corrupt(real_batch()), []
    pair = real_pair("modern", "adversarial")
    for name in ("electra", "adversarial"):
        output = objective(name).step(pair, corrupted, corrupted.counts)
        found.append([output.sums[key][0].item() for key in ("discriminator_loss", "replaced_share", "generator_loss")])
    assert found[0] == found[1]


def test_the_baseline_learns_the_mean_reward():
    pair, corrupted = adversarial_pair(), hand_made()
    optimizer = torch.optim.SGD(pair.baseline_head.parameters(), lr=6.0)
    for _ in range(30):
        output = objective("adversarial").step(pair, corrupted, corrupted.counts)
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
    assert output.sums["baseline"][0].item() == pytest.approx(output.sums["reward"][0].item(), rel=1e-2)
    assert math.isfinite(output.loss.item())
