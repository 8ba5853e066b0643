"""What runs on accelerators: the same numbers where there is one; that blocks can be compiled whole is checked anywhere."""

import dataclasses

import pytest
import torch

from conftest import small_model
from electra.errors import UserError
from electra.model import native
from electra.model.encoder import Encoder, Seen
from electra.train.loop import pretrain
from electra.train.metrics import read_metrics

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize("blocks", ["classic", "modern"])
@pytest.mark.parametrize("padded", [False, True])
def test_a_block_is_one_graph(blocks, padded, monkeypatch):
    """Captured without a break, on the operations that accelerators use."""
    monkeypatch.setattr(native, "library", lambda: None)
    torch.manual_seed(0)
    encoder = Encoder(dataclasses.replace(small_model(blocks, dropout=0.0).discriminator, vocab_size=50))
    block = encoder.blocks[0]
    x = torch.randn(3, 10, 16, requires_grad=True)
    mask = torch.arange(10)[None, :] < torch.tensor([[10], [4], [7]]) if padded else None
    rotary = encoder._global_rotary.tables(10, x.device) if blocks == "modern" else None
    seen = Seen(mask, rotary)
    expected = block(x, seen)
    torch._dynamo.reset()
    found = torch.compile(block, backend="eager", fullgraph=True)(x, seen)
    torch.testing.assert_close(found, expected)


def test_compiling_is_refused_on_the_cpu(run_config):
    config = dataclasses.replace(run_config, train=dataclasses.replace(run_config.train, compile=True, device="cpu"))
    with pytest.raises(UserError, match="is for accelerators"):
        pretrain(config, quiet=True)


@needs_cuda
@pytest.mark.parametrize("blocks", ["classic", "modern"])
@pytest.mark.parametrize("options", [{}, {"precision": "bfloat16"}, {"compile": True}])
def test_the_curve_is_the_one_of_the_cpu(run_config, blocks, options):
    curves = {}
    for device in ("cpu", "cuda"):
        train = dataclasses.replace(run_config.train, num_steps=20, log_every=10, device=device, precision="float32")
        if device == "cuda":
            train = dataclasses.replace(train, **options)
        config = dataclasses.replace(
            run_config, run_dir=run_config.run_dir / device, model=small_model(blocks, dropout=0.0), train=train
        )
        pretrain(config, quiet=True)
        curves[device] = [line["generator_loss"] for line in read_metrics(config.run_dir / "metrics.jsonl")]
    assert curves["cuda"] == pytest.approx(curves["cpu"], rel=0.02)
