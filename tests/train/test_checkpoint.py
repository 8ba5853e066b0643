"""Torn checkpoints, full disks, and directories that belong to another run."""

import dataclasses
import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from electra import files
from electra.config import PretrainConfig
from electra.config_files import load_config
from electra.data.prepare import prepare
from electra.errors import UserError
from electra.train.checkpoint import newest_checkpoint
from electra.train.loop import pretrain
from electra.train.metrics import Totals


def with_train(config: PretrainConfig, **changes) -> PretrainConfig:
    return dataclasses.replace(config, train=dataclasses.replace(config.train, **changes))


def changed(config: PretrainConfig, changes: dict) -> PretrainConfig:
    parts = {part: dataclasses.replace(getattr(config, part), **fields) for part, fields in changes.items()}
    return dataclasses.replace(config, **parts)


@pytest.mark.parametrize("harm", ["cut", "flip", "missing", "no list"])
def test_a_torn_checkpoint_is_passed_over(run_config, capsys, harm):
    pretrain(run_config, quiet=True)
    checkpoints = run_config.run_dir / "checkpoints"
    assert sorted(path.name for path in checkpoints.iterdir()) == ["step-10", "step-12"]  # keeps two
    weights = checkpoints / "step-12" / "pair.safetensors"
    if harm == "cut":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif harm == "flip":
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
    elif harm == "missing":
        weights.unlink()
    else:
        (checkpoints / "step-12" / "complete.json").unlink()
    newest = newest_checkpoint(run_config.run_dir)
    assert newest is not None
    assert newest.name == "step-10"
    pretrain(run_config)
    message = capsys.readouterr().err.replace("\n", " ")
    assert "step-12" in message
    assert "passed over" in message
    assert "going on from step 10" in message
    assert newest_checkpoint(run_config.run_dir).name == "step-12"


def test_a_full_disk_leaves_the_last_checkpoint(run_config, monkeypatch):
    original = files._sync
    pretrain(with_train(run_config, num_steps=12), quiet=True)
    longer = dataclasses.replace(run_config, run_dir=run_config.run_dir.with_name("full"))

    def full_at_step_10(path: Path) -> None:
        if "step-10" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        original(path)

    monkeypatch.setattr(files, "_sync", full_at_step_10)
    with pytest.raises(UserError, match=r"step-10: cannot be written .*No space left on device.*free some space"):
        pretrain(longer, quiet=True)
    assert newest_checkpoint(longer.run_dir).name == "step-5"
    assert not list((longer.run_dir / "checkpoints").glob(".*"))
    monkeypatch.setattr(files, "_sync", original)
    pretrain(longer, quiet=True)
    assert newest_checkpoint(longer.run_dir).name == "step-12"


def test_the_directory_of_another_configuration_is_refused(run_config):
    pretrain(run_config, quiet=True)
    other = dataclasses.replace(run_config, optimizer=dataclasses.replace(run_config.optimizer, beta1=0.8))
    with pytest.raises(UserError, match=r"another configuration: optimizer\.beta1 is 0\.9 there and 0\.8 here"):
        pretrain(other, quiet=True)
    pretrain(with_train(run_config, log_every=1), quiet=True)  # what does not change the weights may differ


def test_a_directory_with_other_things_is_refused(run_config):
    run_config.run_dir.mkdir()
    (run_config.run_dir / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="not empty"):
        pretrain(run_config, quiet=True)
    assert (run_config.run_dir / "thesis.txt").exists()


def test_another_store_is_refused(run_config, tmp_path):
    pretrain(run_config, quiet=True)
    text = tmp_path / "other.txt"
    text.write_text("a quite different text about ships and sails and the sea\n" * 50)
    prepare([text], tmp_path / "other", vocab=run_config.data.store / "tokenizer", quiet=True)
    other = dataclasses.replace(run_config, data=dataclasses.replace(run_config.data, store=tmp_path / "other"))
    with pytest.raises(UserError, match="began on another store"):
        pretrain(other, quiet=True)


def test_starting_from_the_written_configuration_repeats_the_run(run_config, tmp_path):
    pretrain(run_config, quiet=True)
    again = load_config(PretrainConfig, run_config.run_dir / "config.yaml")
    assert again.model.discriminator.vocab_size is not None
    again = dataclasses.replace(again, run_dir=tmp_path / "again")
    pretrain(again, quiet=True)
    for name in ("model.safetensors", "config.json"):
        one, two = (path / "discriminator" / name for path in (run_config.run_dir, again.run_dir))
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"store": None}}, "data.store is not set"),
        ({"data": {"store": Path("nowhere")}}, "nowhere"),
        ({"data": {"length": 100}}, "data.length is 100: the position table ends at 64"),
        ({"train": {"num_steps": None}}, "no budget is set"),
        ({"train": {"num_tokens": 20.0}}, "train.num_tokens is 20: one step of electra takes"),
        ({"train": {"num_flops": 1e3}}, "train.num_flops is 1e+03: one step of electra takes"),
        ({"train": {"device": "abacus"}}, "train.device is 'abacus'"),
        ({"objective": {"name": "elektra"}}, "did you mean 'electra'"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_any_work(run_config, changes, message):
    with pytest.raises(UserError, match=re.escape(message)):
        pretrain(changed(run_config, changes), quiet=True)
    assert not (run_config.run_dir / "checkpoints").exists()


def test_a_vocabulary_smaller_than_the_stores_is_refused(run_config):
    encoder = dataclasses.replace(run_config.model.discriminator, vocab_size=20)
    model = dataclasses.replace(run_config.model, discriminator=encoder)
    with pytest.raises(UserError, match="vocab_size is 20: the store's tokenizer has"):
        pretrain(dataclasses.replace(run_config, model=model), quiet=True)


def test_a_heldout_store_of_another_tokenizer_is_refused(run_config, corpus_file, tmp_path):
    prepare([corpus_file], tmp_path / "heldout", vocab_size=60, quiet=True)
    data = dataclasses.replace(run_config.data, heldout=tmp_path / "heldout")
    with pytest.raises(UserError, match=r"data\.heldout is .*another tokenizer"):
        pretrain(dataclasses.replace(run_config, data=data), quiet=True)


@pytest.mark.parametrize("save_every", [1, 0])
def test_a_run_that_diverges_says_so_and_saves_nothing_broken(run_config, save_every):
    """Saved on steps that are not logged: each checkpoint that is there must still be of use."""
    wild = dataclasses.replace(run_config.optimizer, peak_learning_rate=1e30, warmup_steps=0)
    train = dataclasses.replace(run_config.train, num_steps=30, log_every=1_000, save_every=save_every)
    with pytest.raises(UserError, match=r"is not finite at step .* lower optimizer\.peak_learning_rate"):
        pretrain(dataclasses.replace(run_config, optimizer=wild, train=train), quiet=True)
    for weights in run_config.run_dir.glob("checkpoints/step-*/pair.safetensors"):
        assert all(tensor.isfinite().all() for tensor in load_file(weights).values())


def test_two_processes_do_not_write_into_one_run(run_config):
    """A second start of the same command is refused while the first is at work, and leaves no trace in it."""
    pretrain(run_config, quiet=True)
    log = run_config.run_dir / "metrics.jsonl"
    before = log.read_bytes()
    command = [sys.executable, "-m", "electra.cli", "pretrain", "--run-dir", str(run_config.run_dir)]
    with files.exclusive(run_config.run_dir):
        second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 2
    assert f"{run_config.run_dir} is in use by another process (number {os.getpid()})" in second.stderr
    assert "Traceback" not in second.stderr
    assert log.read_bytes() == before
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0  # let go of


def test_saved_sums_go_on_where_the_steps_report_from():
    totals, resumed = Totals(), Totals()
    totals.add_scalar("gradient_norm", torch.tensor(2.0))
    resumed.load_state_dict(totals.state_dict(), torch.device("meta"))
    assert resumed.sums["gradient_norm"].device.type == "meta"
    assert resumed.counts == {"gradient_norm": 1}
