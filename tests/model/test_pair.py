"""Tying: what is shared is one tensor, and stays one through saving, loading and resizing. Padding changes nothing."""

import dataclasses

import pytest
import torch
from safetensors.torch import load_file, save_file

from conftest import small_model
from electra.config import GeneratorConfig, ModelConfig
from electra.errors import UserError
from electra.model.pair import Pair, load_pair_state, pair_state_dict, resize_vocabulary


def make_pair(blocks, tying="embeddings"):
    model = small_model(blocks)
    encoder = dataclasses.replace(model.discriminator, vocab_size=30)
    width = GeneratorConfig(width=1.0) if tying == "all" else model.generator
    return Pair(ModelConfig(discriminator=encoder, generator=width, tying=tying))


def shared(pair):
    ours = {id(p) for p in pair.discriminator.parameters()}
    return {name for name, p in pair.generator.named_parameters() if id(p) in ours}


def test_what_each_tying_shares():
    assert shared(make_pair("classic", "none")) == set()
    tables = {"embeddings.tokens.weight", "embeddings.positions.weight", "embeddings.types.weight"}
    assert tables <= shared(make_pair("classic"))
    assert all(name.startswith("embeddings.") for name in shared(make_pair("classic")))
    assert shared(make_pair("modern")) == {"embeddings.tokens.weight"}
    for blocks in ("classic", "modern"):
        pair = make_pair(blocks, "all")
        assert shared(pair) == {name for name, _ in pair.generator.named_parameters()}


@pytest.mark.parametrize("tying", ["none", "embeddings", "all"])
@pytest.mark.parametrize("blocks", ["classic", "modern"])
def test_ties_survive_saving_loading_and_resizing(blocks, tying, tmp_path):
    pair, other = make_pair(blocks, tying), make_pair(blocks, tying)
    before = shared(other)
    save_file(pair_state_dict(pair), tmp_path / "pair.safetensors")
    load_pair_state(other, load_file(tmp_path / "pair.safetensors"))
    assert all(torch.equal(a, b) for a, b in zip(pair.state_dict().values(), other.state_dict().values(), strict=True))
    assert shared(other) == before
    resize_vocabulary(other, 40)
    assert shared(other) == before
    assert other.generator_head.decoder_weight is other.generator.embeddings.tokens.weight
    assert other.generator_head.decoder_weight.shape[0] == len(other.generator_head.bias) == 40
    with torch.no_grad():
        other.discriminator.embeddings.tokens.weight[7] += 1.0
    same = torch.equal(other.generator.embeddings.tokens.weight[7], other.discriminator.embeddings.tokens.weight[7])
    assert same == (tying != "none")


def test_weights_of_another_shape_are_refused():
    with pytest.raises(UserError, match="do not fit"):
        load_pair_state(make_pair("classic"), pair_state_dict(make_pair("modern")))


@pytest.mark.parametrize("blocks", ["classic", "modern"])
def test_padding_does_not_change_real_tokens(blocks):
    pair = make_pair(blocks).eval()
    ids = torch.randint(5, 30, (2, 9))
    padded = torch.cat([ids, torch.zeros(2, 5, dtype=torch.long)], dim=1)
    mask = torch.arange(14) < 9
    with torch.no_grad():
        alone = pair.discriminator(ids)
        beside = pair.discriminator(padded, mask.expand(2, -1))[:, :9]
    torch.testing.assert_close(alone, beside, atol=1e-5, rtol=1e-4)
