"""The last block at chosen positions only: same numbers, same gradients as computing every position."""

import dataclasses

import pytest
import torch

from conftest import small_model
from electra.model.encoder import Encoder


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("blocks", "window"), [("classic", 128), ("modern", 128), ("modern", 4)])
def test_equals_all_positions(blocks, window, padded):
    torch.manual_seed(0)
    config = dataclasses.replace(small_model(blocks, dropout=0.0).discriminator, vocab_size=30, local_attention=window)
    encoder = Encoder(config)
    for parameter in encoder.parameters():  # blocks that start as the identity would hide a fault
        torch.nn.init.normal_(parameter, std=0.3)
    ids = torch.randint(0, 30, (3, 12))
    mask = torch.ones(3, 12, dtype=torch.bool)
    mask[1, 9:] = False
    columns = torch.tensor([[1, 4, 7], [8, 0, 0], [2, 3, 11]])
    arguments = (ids, mask if padded else None)
    everywhere = torch.stack([row[at] for row, at in zip(encoder(*arguments), columns, strict=True)])
    there = encoder(*arguments, at_BK=columns)
    torch.testing.assert_close(there, everywhere, atol=1e-5, rtol=1e-4)
    weights = torch.randn(there.shape)
    gradients = [
        torch.autograd.grad((x * weights).sum(), list(encoder.parameters()), allow_unused=True)
        for x in (there, everywhere)
    ]
    for one, other in zip(*gradients, strict=True):
        if one is not None:
            torch.testing.assert_close(one, other, atol=2e-4, rtol=1e-3)
