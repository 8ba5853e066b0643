"""Sampling by inversion: the right distribution, no impossible token, whole range of the random number."""

import numpy as np
import pytest
import torch

from electra.objectives.mlm import sample_tokens


@pytest.mark.parametrize("vocab_size", [7, 128, 129, 1000])
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_frequencies_are_the_softmax(vocab_size, temperature):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(vocab_size, generator=generator) * 2
    draws = 200_000
    uniforms = torch.rand(draws, generator=generator)
    samples = torch.cat([sample_tokens(logits.expand(2000, -1), part, temperature) for part in uniforms.split(2000)])
    expected = torch.softmax(logits / temperature, 0).double() * draws
    observed = torch.bincount(samples, minlength=vocab_size).double()
    often = expected > 5
    chi_square = ((observed - expected) ** 2 / expected)[often].sum().item()
    freedom = int(often.sum()) - 1
    assert chi_square < freedom + 5 * (2 * freedom) ** 0.5 + 5


def test_equals_the_plain_cumulative_sum():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(500, 300, generator=generator)
    uniforms = torch.rand(500, generator=generator)
    ends = torch.softmax(logits.double(), -1).cumsum(-1)
    plain = torch.searchsorted(ends, uniforms.double()[:, None], right=True).squeeze(1)
    assert (sample_tokens(logits, uniforms) == plain).float().mean() > 0.995  # rounding moves a boundary now and then


@pytest.mark.parametrize("uniform", [0.0, 0.5, float(np.float32(1.0) - np.float32(2.0**-24))])
def test_never_draws_an_impossible_token(uniform):
    logits = torch.full((4, 400), -torch.inf)
    logits[0, 0] = logits[1, 399] = logits[2, 130] = 0.0
    logits[3, [5, 200, 398]] = torch.tensor([0.0, 1.0, 2.0])
    samples = sample_tokens(logits, torch.full((4,), uniform)).tolist()
    assert samples[:3] == [0, 399, 130]
    assert samples[3] in (5, 200, 398)


def test_samples_rather_than_takes_the_most_likely():
    logits = torch.tensor([[0.0, 0.5]]).expand(1000, -1)
    samples = sample_tokens(logits, torch.linspace(0, 0.999, 1000))
    assert 0.3 < (samples == 0).float().mean() < 0.45  # 1 / (1 + e^0.5) = 0.378
