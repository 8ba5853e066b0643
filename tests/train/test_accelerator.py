"""What runs on accelerators: the same numbers where there is one; that blocks can be compiled whole is checked anywhere."""

import dataclasses

import pytest
import torch

from conftest import small_model
from electra.config import PretrainConfig
from electra.config_files import load_config, save_config
from electra.errors import UserError
from electra.model import native
from electra.model.encoder import Encoder, Seen
from electra.presets import PRESETS
from electra.train.loop import pretrain
from electra.train.metrics import read_metrics
from electra.train.run import _micro_batch_size

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


@pytest.mark.parametrize(
    ("preset", "batch_size", "expected"),
    [("small", 128, 128), ("small", 4096, 377), ("base", 256, 39), ("large", 2048, 15)],
)
def test_what_an_accelerator_takes_at_once_fits_into_its_memory(preset, batch_size, expected):
    """8 GiB by 40 bytes for each layer and unit, and 12 for each score of the vocabulary, of a token."""
    config = PRESETS[preset]()
    encoder = dataclasses.replace(config.model.discriminator, vocab_size=30_522)
    config = dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, discriminator=encoder),
        train=dataclasses.replace(config.train, batch_size=batch_size),
    )
    assert _micro_batch_size(config, torch.device("meta")) == expected


@needs_cuda
def test_a_run_goes_on_between_two_log_lines(run_config):
    train = dataclasses.replace(run_config.train, device="cuda", num_steps=5, log_every=4, save_every=0)
    pretrain(dataclasses.replace(run_config, train=train), quiet=True)
    longer = dataclasses.replace(run_config, train=dataclasses.replace(train, num_steps=7))
    written = run_config.run_dir / "config.yaml"  # the budget is part of a run's identity
    save_config(dataclasses.replace(longer, model=load_config(PretrainConfig, written).model), written)
    pretrain(load_config(PretrainConfig, written), quiet=True)
    assert read_metrics(run_config.run_dir / "metrics.jsonl")[-1]["step"] == 7


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
