"""Weights that start from the corpus (frequencies, co-occurrence), and the discriminator that starts late."""

import dataclasses

import numpy as np
import pytest
import torch

from conftest import small_model
from electra.config import GeneratorConfig
from electra.data.shards import TokenStore
from electra.errors import UserError
from electra.model import flops
from electra.model.pair import Pair
from electra.train.loop import pretrain
from electra.train.metrics import read_metrics
from electra.train.start import check_start, cooccurrence_vectors, start_from_corpus


def test_tokens_that_occur_together_get_like_vectors():
    draw = np.random.default_rng(0)
    # Two topics, tokens 5..14 and 15..24, in turns of 256 tokens; token 3 everywhere.
    tokens = np.concatenate([draw.integers(5 + 10 * (turn % 2), 15 + 10 * (turn % 2), 256) for turn in range(60)])
    tokens[::20] = 3
    vectors = cooccurrence_vectors(tokens, 30, 8, special=[0, 1, 2, 3, 4], seed=0)
    assert np.abs(vectors[[0, 1, 2, 3, 4, 25, 29]]).max() < 1e-12
    unit = vectors[5:25] / np.linalg.norm(vectors[5:25], axis=1, keepdims=True)
    cosine = unit @ unit.T
    same = np.zeros((20, 20), dtype=bool)
    same[:10, :10] = same[10:, 10:] = True
    np.fill_diagonal(same, False)
    assert cosine[same].min() > 0.5
    assert cosine[~same & ~np.eye(20, dtype=bool)].max() < 0.0
    again = cooccurrence_vectors(tokens, 30, 8, special=[0, 1, 2, 3, 4], seed=0)
    assert (vectors == again).all()


def test_a_pair_starts_from_its_store(store):
    opened = TokenStore.open(store)
    model = small_model("modern")
    encoder = dataclasses.replace(model.discriminator, vocab_size=opened.vocab_size + 3, neighbour_heads=2)
    torch.manual_seed(0)
    pair = Pair(
        dataclasses.replace(
            model,
            discriminator=encoder,
            generator=GeneratorConfig(width=1.0),
            unigram_bias=True,
            embedding_start="cooccurrence",
        )
    )
    special_before = pair.generator.embeddings.tokens.weight[opened.special.mask].clone()
    start_from_corpus(pair, opened, seed=0)
    table = pair.generator.embeddings.tokens.weight
    assert table is pair.discriminator.embeddings.tokens.weight
    assert torch.equal(table[opened.special.mask], special_before)
    probability = pair.generator_head.bias.softmax(0)
    counts = np.bincount(opened.tokens, minlength=len(probability))
    counts[[opened.special.sep]] = 0
    commonest = int(counts.argmax())
    assert int(probability.argmax()) == commonest
    assert probability[commonest].item() == pytest.approx(counts[commonest] / counts.sum(), rel=0.05)


def test_a_vocabulary_too_large_for_the_table_of_pairs_is_refused():
    check_start(30_522, "random")
    with pytest.raises(UserError, match=r"embedding_start is 'cooccurrence'.*30,522.*random"):
        check_start(30_522, "cooccurrence")


def test_the_generator_trains_alone_until_the_discriminator_starts(run_config):
    config = dataclasses.replace(
        run_config,
        objective=dataclasses.replace(run_config.objective, discriminator_start=0.5),
        train=dataclasses.replace(run_config.train, num_steps=12, log_every=6),
    )
    pretrain(config, quiet=True)
    alone, joint = read_metrics(config.run_dir / "metrics.jsonl")
    assert "discriminator_loss" not in alone
    assert "discriminator_loss" in joint
    # The operations that were counted are those that were carried out.
    encoder = dataclasses.replace(config.model.discriminator, vocab_size=TokenStore.open(config.data.store).vocab_size)
    cost = flops.count(dataclasses.replace(config.model, discriminator=encoder), 16)
    tokens = 6 * 8 * 16
    assert alone["flops"] == pytest.approx(tokens * cost.generator.training_flops)
    assert joint["flops"] - alone["flops"] == pytest.approx(tokens * cost.training_flops)
