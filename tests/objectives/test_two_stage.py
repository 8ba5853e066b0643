"""The switch of two-stage training, and what each stage runs."""

import dataclasses

import pytest
import torch
from hand_made import MASKED_TEXT, REPLACED_TEXT, HandMadePair, hand_made, objective, real_batch, real_pair

from electra.config import GeneratorConfig, ModelConfig, ObjectiveConfig, PretrainConfig, TrainConfig
from electra.errors import UserError
from electra.objectives import check_settings
from electra.objectives.base import carry_out_switches


def test_stages_by_hand():
    corrupted, learner = hand_made(), objective("two-stage", two_stage_switch=0.3)
    pair = HandMadePair()
    output = learner.step(pair, corrupted, corrupted.counts, progress=0.29)
    assert pair.generator.seen.tolist() == [MASKED_TEXT]
    assert pair.discriminator.seen is None
    assert output.loss.item() == pytest.approx(50.0 / 3)
    assert output.sums["stage"] == (1, 1)
    output = learner.step(pair, corrupted, corrupted.counts, progress=0.3)
    assert pair.discriminator.seen.tolist() == [REPLACED_TEXT]
    assert output.sums["stage"] == (2, 1)
    electra = objective().step(pair, corrupted, corrupted.counts)
    assert output.loss.item() == pytest.approx(electra.loss.item())
    assert output.sums["discriminator_loss"][0].item() == electra.sums["discriminator_loss"][0].item()
    output.loss.backward()
    assert pair.generator.table.grad is None  # frozen
    objective("two-stage", two_stage_freeze=False).step(pair, corrupted, corrupted.counts).loss.backward()
    assert pair.generator.table.grad.any()


@pytest.mark.parametrize("blocks", ["classic", "modern"])
def test_the_main_network_starts_from_the_generator_once(blocks):
    pair, learner = real_pair(blocks, "two-stage", tying="none"), objective("two-stage", two_stage_switch=0.5)
    head = {name: p.clone() for name, p in pair.discriminator_head.named_parameters()}
    assert carry_out_switches(learner, pair, 0, 0.49) == 0
    assert not torch.equal(pair.discriminator.embeddings.tokens.weight, pair.generator.embeddings.tokens.weight)
    assert carry_out_switches(learner, pair, 0, 0.5) == 1
    for (name, ours), theirs in zip(pair.discriminator.named_parameters(), pair.generator.parameters(), strict=True):
        assert torch.equal(ours, theirs), name
        assert ours is not theirs
    assert all(torch.equal(p, head[name]) for name, p in pair.discriminator_head.named_parameters())
    with torch.no_grad():
        pair.discriminator.embeddings.tokens.weight += 1.0
    assert carry_out_switches(learner, pair, 1, 0.9) == 1
    assert not torch.equal(pair.discriminator.embeddings.tokens.weight, pair.generator.embeddings.tokens.weight)
    corrupted = learner.corrupt(real_batch())
    learner.step(pair, corrupted, corrupted.counts, progress=0.2).loss.backward()
    assert all(p.grad is None for p in pair.discriminator.parameters())


EQUAL = ModelConfig(generator=GeneratorConfig(width=1.0), tying="none")


@pytest.mark.parametrize(
    ("model", "objective_settings", "num_steps", "complaint"),
    [
        (ModelConfig(tying="none"), {}, 10, r"one size; set model\.generator\.width and model\.generator\.depth to 1"),
        (dataclasses.replace(EQUAL, tying="all"), {}, 10, r"model\.tying is 'all'.*frozen.*none.*two_stage_freeze"),
        (
            dataclasses.replace(EQUAL, tying="embeddings"),
            {},
            10,
            r"model\.tying is 'embeddings'.*frozen.*set it to none",
        ),
        (EQUAL, {"two_stage_switch": 0.95}, 10, r"two_stage_switch is 0\.95: of 10 steps none.*lower it"),
    ],
)
def test_settings_that_do_not_fit_are_refused(model, objective_settings, num_steps, complaint):
    config = PretrainConfig(
        model=model,
        objective=ObjectiveConfig(name="two-stage", **objective_settings),
        train=TrainConfig(num_steps=num_steps),
    )
    with pytest.raises(UserError, match=complaint):
        check_settings(config)
    good = dataclasses.replace(config, model=EQUAL, objective=ObjectiveConfig(name="two-stage", two_stage_switch=0.9))
    check_settings(good)


@pytest.mark.parametrize("switch", [0.0, 1.0, -0.5, 1.5])
def test_a_switch_outside_the_run_is_refused(switch):
    with pytest.raises(UserError, match=r"objective\.two_stage_switch is .*above 0 and below 1"):
        ObjectiveConfig(two_stage_switch=switch)
