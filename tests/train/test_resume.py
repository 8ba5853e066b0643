"""An interrupted run, gone on with, equals the uninterrupted one bit for bit."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from conftest import small_model
from electra.config_files import save_config
from electra.data.packing import make_rows
from electra.data.shards import TokenStore
from electra.train.checkpoint import newest_checkpoint
from electra.train.loop import pretrain
from electra.train.metrics import read_metrics

TIMED = ("seconds", "tokens_per_second", "data_wait_share")


def final_weights(run_dir: Path) -> dict[str, torch.Tensor]:
    checkpoint = newest_checkpoint(run_dir)
    assert checkpoint is not None
    return load_file(checkpoint / "pair.safetensors")


def losses(run_dir: Path) -> list[dict]:
    return [{k: v for k, v in line.items() if k not in TIMED} for line in read_metrics(run_dir / "metrics.jsonl")]


def assert_same_run(one: Path, other: Path) -> None:
    a, b = final_weights(one), final_weights(other)
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name
    assert losses(one) == losses(other)


def interrupt_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Press Ctrl-C during the step after `steps`."""
    from electra.train import session

    original, taken = session.Session.after_step, []

    def after_step(self, *arguments):
        taken.append(1)
        if len(taken) == steps:
            os.kill(os.getpid(), signal.SIGINT)
        original(self, *arguments)

    monkeypatch.setattr(session.Session, "after_step", after_step)


@pytest.mark.parametrize(("blocks", "optimizer"), [("classic", "adamw"), ("modern", "muon")])
def test_ctrl_c_then_the_same_command(run_config, tmp_path, monkeypatch, blocks, optimizer):
    config = dataclasses.replace(
        run_config, model=small_model(blocks), optimizer=dataclasses.replace(run_config.optimizer, name=optimizer)
    )
    whole = dataclasses.replace(config, run_dir=tmp_path / "whole")
    pretrain(whole, quiet=True)
    with monkeypatch.context() as patch:
        interrupt_after(patch, 7)  # between two checkpoints and between two log lines
        with pytest.raises(KeyboardInterrupt):
            pretrain(config, quiet=True)
    assert newest_checkpoint(config.run_dir).name == "step-7"
    pretrain(config, quiet=True)
    assert_same_run(whole.run_dir, config.run_dir)


def test_across_an_epoch(run_config, store, tmp_path, monkeypatch):
    """Rows so long that the store holds a few dozen: the run passes through several epochs, and is cut inside the second."""
    config = dataclasses.replace(run_config, data=dataclasses.replace(run_config.data, length=64))
    num_rows = len(make_rows(TokenStore.open(store), 64, "dense", 7))
    steps = 2 * num_rows // 8 + 5
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, num_steps=steps, save_every=0))
    whole = dataclasses.replace(config, run_dir=tmp_path / "whole")
    pretrain(whole, quiet=True)
    with monkeypatch.context() as patch:
        interrupt_after(patch, num_rows // 8 + 2)
        with pytest.raises(KeyboardInterrupt):
            pretrain(config, quiet=True)
    pretrain(config, quiet=True)
    assert_same_run(whole.run_dir, config.run_dir)


def test_after_kill_9(run_config, tmp_path):
    train = dataclasses.replace(run_config.train, num_steps=150, save_every=15, keep_checkpoints=1)
    config = dataclasses.replace(run_config, train=train)
    save_config(config, tmp_path / "config.json")
    program = (
        "import sys, torch; torch.set_num_threads(1); from pathlib import Path; from electra.train.loop import pretrain; "
        "from electra.config import PretrainConfig; from electra.config_files import load_config; "
        "pretrain(load_config(PretrainConfig, Path(sys.argv[1])), quiet=True)"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "config.json")])
    deadline = time.monotonic() + 120
    while newest_checkpoint(config.run_dir) is None and time.monotonic() < deadline:
        assert process.poll() is None, "ended before it could be killed"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    checkpoint = newest_checkpoint(config.run_dir)
    assert checkpoint is not None
    assert checkpoint.name != "step-150"
    pretrain(config, quiet=True)
    whole = dataclasses.replace(config, run_dir=tmp_path / "whole")
    pretrain(whole, quiet=True)
    assert_same_run(whole.run_dir, config.run_dir)


def test_a_finished_run_is_left_as_it_is(run_config):
    pretrain(run_config, quiet=True)
    before = final_weights(run_config.run_dir)
    pretrain(run_config, quiet=True)
    after = final_weights(run_config.run_dir)
    assert all(torch.equal(before[name], after[name]) for name in before)
