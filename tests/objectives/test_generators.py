"""Replacements without a network, and samples that are never the original."""

import dataclasses

import numpy as np
import pytest
import torch
from hand_made import VOCAB, HandMadePair, hand_made, objective, real_batch, real_pair

from conftest import small_model
from electra.config import ObjectiveConfig, PretrainConfig
from electra.data.shards import TokenStore
from electra.errors import UserError
from electra.model import flops
from electra.model.frequencies import TokenFrequencies
from electra.objectives import check_settings, make_pair, parts_of
from electra.train.start import start_from_corpus


def test_samples_follow_the_frequencies_with_and_without_the_original():
    frequencies = TokenFrequencies(4)
    frequencies.set(torch.tensor([0.0, 1.0, 2.0, 5.0]))
    uniforms = (torch.arange(8000) + 0.5) / 8000
    assert torch.bincount(frequencies.sample(uniforms), minlength=4).tolist() == [0, 1000, 2000, 5000]
    for never, expected in (
        (3, [0, 8000 / 3, 16000 / 3, 0]),
        (2, [0, 8000 / 6, 0, 40000 / 6]),
        (0, [0, 1000, 2000, 5000]),
    ):
        counts = torch.bincount(frequencies.sample(uniforms, torch.full((8000,), never)), minlength=4)
        assert counts.tolist() == pytest.approx(expected, abs=1.0)
    frequencies.resize(6)
    assert torch.bincount(frequencies.sample(uniforms), minlength=6).tolist() == [0, 1000, 2000, 5000, 0, 0]


@pytest.mark.parametrize("kind", ["uniform", "unigram"])
def test_the_distribution_is_the_stores(store, kind):
    opened = TokenStore.open(store)
    model = small_model("classic")
    size = opened.vocab_size + 3
    model = dataclasses.replace(model, discriminator=dataclasses.replace(model.discriminator, vocab_size=size))
    pair = make_pair(model, ObjectiveConfig(generator=kind))
    start_from_corpus(pair, opened, seed=0)
    probabilities = np.diff(pair.frequencies.cumulative.numpy(), prepend=0.0)
    counts = np.bincount(opened.tokens, minlength=size).astype(float)
    if kind == "uniform":
        counts = (np.arange(size) < opened.vocab_size).astype(float)
    counts[list(dataclasses.astuple(opened.special))] = 0.0
    np.testing.assert_allclose(probabilities, counts / counts.sum(), atol=1e-12)


@pytest.mark.parametrize("name", ["electra", "electra-15", "replace-mlm", "all-tokens-mlm"])
def test_a_generator_without_a_network_costs_nothing_and_is_no_part_of_the_loss(name):
    learner, pair = objective(name, generator="uniform"), real_pair("modern", name, generator="uniform")
    corrupted = learner.corrupt(real_batch())
    output = learner.step(pair, corrupted, corrupted.counts)
    output.loss.backward()
    assert pair.frequencies.cumulative.grad is None
    assert "generator_loss" not in output.sums
    assert learner.networks(0.0) == {"discriminator": True}
    config = ObjectiveConfig(name=name, generator="uniform")
    counted = flops.count(pair.config, 16, parts=parts_of(config))
    assert counted.generator == flops.NetworkCount(parameters=0, forward_flops=0.0, training_flops=0.0)
    assert counted.parameters == sum(p.numel() for p in pair.parameters() if p.requires_grad)


@pytest.mark.parametrize("kind", ["network", "unigram"])
def test_disallow_correct_never_samples_the_original(kind):
    settings = {"generator": kind, "disallow_correct": True}
    learner, pair = objective(**settings), real_pair("classic", generator=kind)
    corrupted = learner.corrupt(real_batch(num_rows=16))
    output = learner.step(pair, corrupted, corrupted.counts)
    assert output.sums["replaced_share"][0].item() == corrupted.counts.num_masked
    if kind == "network":  # the loss stays that of the whole distribution
        plain = objective().step(pair, corrupted, corrupted.counts)
        assert output.sums["generator_loss"][0].item() == pytest.approx(
            plain.sums["generator_loss"][0].item(), rel=1e-5
        )


def test_a_sure_generator_takes_its_second_choice():
    pair, corrupted = HandMadePair(), hand_made()
    objective(disallow_correct=True).step(pair, corrupted, corrupted.counts)
    seen = pair.discriminator.seen[0]
    assert seen[4] == 11  # wrong already
    assert seen[2] != 6
    assert seen[5] != 9
    assert int(seen.max()) < VOCAB


@pytest.mark.parametrize("setting", [{"temperature": 2.0}, {"discriminator_start": 0.2}, {"generator_weight": 3.0}])
def test_settings_of_a_network_are_refused_without_one(setting):
    with pytest.raises(UserError, match=r"electra with a unigram generator has no use for it; leave it at"):
        check_settings(PretrainConfig(objective=ObjectiveConfig(generator="unigram", **setting)))
