"""Heads that start out looking at a neighbour do so, in both networks of a pair that shares its embeddings."""

import dataclasses

import pytest
import torch

from conftest import small_model
from electra.config import GeneratorConfig
from electra.model.attention import rotate
from electra.model.pair import Pair


@pytest.mark.parametrize("width", [1.0, 0.5])
def test_attention_peaks_at_the_offsets(width):
    torch.manual_seed(0)
    model = small_model("modern", dropout=0.0)
    encoder = dataclasses.replace(
        model.discriminator,
        vocab_size=600,
        embedding_size=128,
        hidden_size=128,
        num_heads=4,
        neighbour_heads=4,
        max_length=32,
    )
    pair = Pair(dataclasses.replace(model, discriminator=encoder, generator=GeneratorConfig(width=width)))
    ids = torch.randint(0, 600, (64, 24))
    for network in (pair.generator, pair.discriminator):
        config = network.config
        x = network.embed(ids)
        attention = network.blocks[0].attention
        qkv = attention.qkv(x).view(64, 24, 3, config.num_heads, config.head_size)
        tables = network._global_rotary.tables(24, ids.device)
        query, key = (rotate(qkv[:, :, part].transpose(1, 2), tables) for part in (0, 1))
        scores = torch.einsum("bhis,bhjs->hij", query, key)
        for head in range(config.neighbour_heads):
            offset = (head // 2 + 1) * (-1 if head % 2 == 0 else 1)
            # The fastest frequency repeats after 6.28 positions: within three to each side the peak is the only one.
            around = torch.stack([scores[head, i, i - 3 : i + 4] for i in range(3, 21)]).mean(0)
            assert int(around.argmax()) - 3 == offset, (config.hidden_size, head)
