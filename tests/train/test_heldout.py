"""Held-out scores during a run: the same rows each time, made once, and the training itself untouched by them."""

import dataclasses

import pytest

import electra.train.run as run_module
from electra.train.loop import pretrain
from electra.train.metrics import read_metrics


@pytest.mark.parametrize("layout", ["dense", "two-segment"])
def test_rows_are_made_once_and_training_does_not_notice(run_config, store, layout, monkeypatch):
    made = []
    make_rows = run_module.make_rows
    monkeypatch.setattr(run_module, "make_rows", lambda *arguments: made.append(arguments) or make_rows(*arguments))
    data = dataclasses.replace(run_config.data, layout=layout)
    plain = dataclasses.replace(run_config, data=data, run_dir=run_config.run_dir / "plain")
    scored = dataclasses.replace(
        plain,
        run_dir=run_config.run_dir / "scored",
        data=dataclasses.replace(data, heldout=store),
        train=dataclasses.replace(plain.train, eval_every=4, eval_batches=2),
    )
    curves = []
    for config in (plain, scored):
        pretrain(config, quiet=True)
        lines = read_metrics(config.run_dir / "metrics.jsonl")
        curves.append([line["generator_loss"] for line in lines if line["kind"] == "train"])
    assert [line["step"] for line in lines if line["kind"] == "heldout"] == [4, 8, 12]
    assert len(made) == 1
    assert curves[0] == curves[1]
