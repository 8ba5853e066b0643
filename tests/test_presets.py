"""The presets against the paper's table 6, the published parameter counts and the reference's published operations."""

import dataclasses

import pytest
import torch

from electra.config_files import from_dict, to_dict
from electra.model import flops
from electra.model.pair import Pair
from electra.presets import PRESETS

# layers, hidden, FFN, heads, embedding, generator width, masked, learning rate, batch, steps
TABLE_6 = {
    "small": (12, 256, 1024, 4, 128, 1 / 4, 0.15, 5e-4, 128, 1_000_000),
    "base": (12, 768, 3072, 12, 768, 1 / 3, 0.15, 2e-4, 256, 766_000),
    "large": (24, 1024, 4096, 16, 1024, 1 / 4, 0.25, 2e-4, 2048, 400_000),
}


@pytest.mark.parametrize("name", TABLE_6)
def test_table_6(name):
    preset = PRESETS[name]()
    encoder = preset.model.discriminator
    found = (
        encoder.num_layers, encoder.hidden_size, encoder.intermediate_size, encoder.num_heads, encoder.embedding_size,
        preset.model.generator.width, preset.objective.mask_fraction, preset.optimizer.peak_learning_rate,
        preset.train.batch_size, preset.train.num_steps,
    )  # fmt: skip
    assert found == pytest.approx(TABLE_6[name])
    optimizer = preset.optimizer
    shared = (optimizer.epsilon, optimizer.beta1, optimizer.beta2, optimizer.weight_decay, optimizer.warmup_steps)
    assert shared == (1e-6, 0.9, 0.999, 0.01, 10_000)
    assert (encoder.hidden_dropout, encoder.attention_dropout, encoder.blocks) == (0.1, 0.1, "classic")
    assert (preset.objective.discriminator_weight, preset.objective.discriminator_start) == (50.0, 0.0)
    assert (preset.model.unigram_bias, preset.model.embedding_start, encoder.neighbour_heads) == (False, "random", 0)


@pytest.mark.parametrize(("name", "millions"), [("small", 14), ("base", 110), ("large", 335)])
def test_published_parameter_counts(name, millions):
    count = flops.count(PRESETS[name]().model, 128)
    assert count.discriminator.parameters / 1e6 == pytest.approx(millions, rel=0.035)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_builds_and_survives_a_file(name):
    preset = PRESETS[name]()
    assert from_dict(type(preset), to_dict(preset)) == preset
    encoder = dataclasses.replace(preset.model.discriminator, vocab_size=1000)
    with torch.device("meta"):
        Pair(dataclasses.replace(preset.model, discriminator=encoder))


@pytest.mark.parametrize(
    ("name", "steps", "batch", "length", "published"),
    [
        ("small", 1_000_000, 128, 128, 1.294e18),
        ("base", 766_000, 256, 512, 6.425e19),
        ("large", 400_000, 2048, 512, 7.118e20),
    ],
)
def test_the_references_formula_gives_its_published_totals(name, steps, batch, length, published):
    total = flops.reference_total(PRESETS[name]().model, length, batch, steps)
    assert total == pytest.approx(published, rel=1e-3)
