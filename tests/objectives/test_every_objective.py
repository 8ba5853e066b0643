"""What holds for every objective of the registry: gradients, learning by heart, its count of operations, its checks."""

import dataclasses

import pytest
import torch
from hand_made import SPECIAL, objective, real_batch, real_pair
from torch.utils.flop_counter import FlopCounterMode

from electra.config import EncoderConfig, GeneratorConfig, ModelConfig, ObjectiveConfig, PretrainConfig
from electra.errors import UserError
from electra.model import flops, native
from electra.objectives import OBJECTIVES, check_settings, make_pair, parts_of
from electra.objectives.base import Counts

every_objective = pytest.mark.parametrize("name", sorted(OBJECTIVES))
both_blocks = pytest.mark.parametrize("blocks", ["classic", "modern"])


@every_objective
@both_blocks
def test_micro_batches_give_the_gradient_of_the_whole_batch(name, blocks):
    batch, gradients = real_batch(), []
    for size in (4, 1):
        pair = real_pair(blocks, name)
        parts = [objective(name).corrupt(part) for part in batch.split(size)]
        counts = Counts(sum(part.counts.num_masked for part in parts), sum(part.counts.num_scored for part in parts))
        for part in parts:
            objective(name).step(pair, part, counts).loss.backward()
        gradients.append({n: p.grad for n, p in pair.named_parameters()})
    assert gradients[0]
    for parameter, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][parameter], atol=5e-6, rtol=1e-4)


@every_objective
@both_blocks
def test_one_batch_can_be_learned_by_heart(name, blocks):
    learner = objective(name, discriminator_weight=1.0, two_stage_freeze=False)
    pair = real_pair(blocks, name)
    corrupted = learner.corrupt(real_batch())
    optimizer = torch.optim.AdamW(pair.parameters(), lr=2e-2)
    losses = []
    for _ in range(120):
        output = learner.step(pair, corrupted, corrupted.counts)
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
        losses.append({n: value.item() / count for n, (value, count) in output.sums.items() if n.endswith("_loss")})
    learned = losses[-1].keys() - ({"generator_loss"} if name == "adversarial" else set())  # logged, but no goal there
    assert learned
    for loss in learned:
        assert losses[-1][loss] < 0.5, loss
    assert max(losses[0].values()) > 2.0


@every_objective
@both_blocks
def test_every_network_that_is_made_gets_a_gradient(name, blocks):
    pair = real_pair(blocks, name, tying="none")
    corrupted = objective(name).corrupt(real_batch())
    objective(name).step(pair, corrupted, corrupted.counts).loss.backward()
    frozen = {n for n, trained in objective(name).networks(1.0).items() if not trained}
    assert frozen == ({"generator"} if name == "two-stage" else set())
    for module_name, module in pair.named_children():
        gradients = [p.grad for p in module.parameters()]
        if module_name.partition("_")[0] in frozen:
            assert gradients == [None] * len(gradients)
        else:
            assert None not in gradients
            assert any(gradient.any() for gradient in gradients)


@both_blocks
@pytest.mark.parametrize("name", sorted(name for name in OBJECTIVES if OBJECTIVES[name].parts.generator))
def test_the_main_networks_loss_never_reaches_the_generator(name, blocks):
    pair = real_pair(blocks, name, tying="none")
    corrupted = objective(name).corrupt(real_batch())
    objective(name, generator_weight=0.0).step(pair, corrupted, corrupted.counts).loss.backward()
    for parameter_name, parameter in pair.named_parameters():
        if parameter_name.startswith("generator"):
            assert parameter.grad is None or not parameter.grad.any(), parameter_name
    assert pair.discriminator.embeddings.tokens.weight.grad.any()


@every_objective
def test_padding_and_special_tokens_are_neither_changed_nor_scored(name):
    batch = real_batch()
    batch.input_ids[:, 10:] = SPECIAL.pad
    batch.input_ids[:, 9] = SPECIAL.sep
    padded = dataclasses.replace(batch, attention_mask=batch.input_ids != SPECIAL.pad)
    pair, corrupted = real_pair("classic", name), objective(name).corrupt(padded)
    seen = []
    pair.discriminator.register_forward_pre_hook(lambda module, arguments: seen.append(arguments[0].clone()))
    losses = []
    for _ in range(2):
        losses.append(objective(name).step(pair, corrupted, corrupted.counts).loss.item())
        with torch.no_grad():  # nothing may depend on what the network would say of padding
            pair.discriminator.embeddings.tokens.weight[SPECIAL.pad] += 1.0
    special = batch.input_ids <= SPECIAL.mask
    assert torch.equal(seen[0][special], batch.input_ids[special])
    assert not corrupted.scored[special].any()
    assert losses[0] == pytest.approx(
        losses[1], rel=0.2
    )  # the pad's row of the output matrix moves the softmax a little
    assert corrupted.counts.num_scored == 4 * 8


@every_objective
@both_blocks
def test_operations_are_those_that_torch_counts(name, blocks, monkeypatch):
    monkeypatch.setattr(native, "library", lambda: None)
    encoder = EncoderConfig(
        blocks=blocks, vocab_size=500, embedding_size=32, hidden_size=64, num_layers=3, num_heads=4,
        intermediate_size=128, max_length=64, hidden_dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    equal = GeneratorConfig(width=1.0)
    model = ModelConfig(
        discriminator=encoder, generator=equal if name == "two-stage" else GeneratorConfig(width=0.5, depth=1 / 3)
    )
    config = ObjectiveConfig(name=name, mask_fraction=0.2)
    pair, learner = make_pair(model, config), objective(name, mask_fraction=0.2)
    corrupted = learner.corrupt(real_batch(length=64))
    with FlopCounterMode(display=False) as counter:
        learner.step(pair, corrupted, corrupted.counts).loss.backward()
    counted = flops.count(model, 64, 0.2, parts=parts_of(config))
    per_token = counted.of_step(learner.networks(1.0))
    assert per_token * 4 * 64 == pytest.approx(counter.get_total_flops(), rel=0.02)
    assert counted.parameters == sum(parameter.numel() for parameter in pair.parameters())


def test_unknown_objective_names_the_nearest():
    with pytest.raises(UserError, match=r"'electro'.*'electra'"):
        objective("electro")


@every_objective
def test_a_setting_without_use_is_refused(name):
    model = ModelConfig(generator=GeneratorConfig(width=1.0), tying="none")
    check_settings(PretrainConfig(model=model, objective=ObjectiveConfig(name=name)))
    other = {"generator": "unigram", "disallow_correct": True, "two_stage_freeze": False}
    for setting in OBJECTIVES[name].unused:
        objective_config = ObjectiveConfig(name=name, **{setting: other.get(setting, 0.3)})
        with pytest.raises(UserError, match=rf"objective\.{setting} is .*{name}.* has no use for it.*leave it at"):
            check_settings(PretrainConfig(model=model, objective=objective_config))


def test_a_pair_holds_what_the_objective_needs_and_no_more():
    names = {name: {n for n, _ in real_pair("classic", name).named_children()} for name in OBJECTIVES}
    assert names["electra"] == names["electra-15"] == {
        "discriminator", "generator", "generator_head", "discriminator_head",
    }  # fmt: skip
    assert names["bert"] == {"discriminator", "vocabulary_head"}
    assert names["replace-mlm"] == {"discriminator", "generator", "generator_head", "vocabulary_head"}
    assert names["all-tokens-mlm"] == names["replace-mlm"] | {"copy_head"}
    assert names["two-stage"] == names["electra"]
    assert names["adversarial"] == names["electra"] | {"baseline_head"}
    unigram = real_pair("classic", "electra-15", generator="unigram")
    assert {n for n, _ in unigram.named_children()} == {"discriminator", "discriminator_head", "frequencies"}
