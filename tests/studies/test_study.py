"""A study end to end: real runs in processes of their own, one that fails, a stop in between; and what is refused before work."""

import csv
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from conftest import small_model
from electra.cli import main
from electra.config_files import save_config
from electra.data.prepare import prepare
from electra.errors import UserError
from electra.objectives import check_settings
from electra.presets import tiny
from electra.studies.candidates import STUDIES, find_study
from electra.studies.scoring import Measures
from electra.studies.study import study

BUDGET = "3e7"  # four steps


@pytest.fixture
def settings(run_config, tmp_path):
    """The smallest network as a file of settings, and the words of a study with it."""
    config = dataclasses.replace(run_config, model=small_model("modern", dropout=0.0))
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, store=None))
    save_config(config, tmp_path / "settings.yaml")
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"sentence_good": "the king ate the pie .", "sentence_bad": "king the ate the pie ."}))
    return ["--config", str(tmp_path / "settings.yaml"), "--pairs", str(pairs), "--heldout"]


@pytest.mark.slow
def test_runs_scores_tables_and_a_failure_that_stops_nobody(settings, store, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["study", "weight-sharing", "--data", str(store), "--out", str(out), *settings, str(store)]
    words += ["--budget-flops", BUDGET, "--seeds", "1"]
    assert main([*words, "--plan"]) == 0
    said = capsys.readouterr().out
    assert "3 candidates x 1 seeds, 3 runs to do of 3e+07 FLOPs each, 9e+07 in all; pre-training takes about" in said
    blocked = out / "runs" / "all-seed7"
    blocked.mkdir(parents=True)
    (blocked / "somebody-elses-file").write_text("")

    assert main(words) == 2
    outputs = capsys.readouterr()
    assert "1 of 3 runs failed, the first: all-seed7:" in outputs.err
    assert "is not empty and holds no run" in outputs.err
    assert (out / "runs" / "none-seed7" / "discriminator" / "config.json").is_file()
    assert "<code>all-seed7</code>" in (out / "report.html").read_text()

    (blocked / "somebody-elses-file").unlink()
    finished = (out / "runs" / "none-seed7" / "metrics.jsonl").stat().st_mtime_ns
    assert main(words) == 0
    outputs = capsys.readouterr()
    assert "2 of 3 runs are there already" in outputs.out
    assert (out / "runs" / "none-seed7" / "metrics.jsonl").stat().st_mtime_ns == finished
    rows = list(csv.DictReader((out / "results.csv").open()))
    assert {row["candidate"] for row in rows} == {"none", "embeddings", "all"}
    assert {row["metric"] for row in rows} >= {"minimal_pairs", "generator_loss", "discriminator_auc"}
    for row in rows:  # equal compute, but for the last step
        assert 3e7 <= float(row["flops"]) < 3.8e7
    tests = list(csv.DictReader((out / "tests.csv").open()))
    assert [(t["first"], t["second"]) for t in tests if t["metric"] == "minimal_pairs"] == [
        ("none", "embeddings"), ("none", "all"), ("embeddings", "all"),
    ]  # fmt: skip
    for kind, start in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        assert (out / "plots" / f"minimal-pairs.{kind}").read_bytes().startswith(start)
    page = (out / "report.html").read_text()
    for expected in ("83.6", "84.4", "electra pretrain --config", "torch", "model.tying=none", store.name):
        assert expected in page

    assert main([*words[:-4], "--budget-flops", "4e7"]) == 2
    assert "holds a study of 3e+07 FLOPs a run" in capsys.readouterr().err
    assert main(["study", "efficiency", *words[2:]]) == 2
    assert "holds a study with other study" in capsys.readouterr().err


@pytest.mark.slow
def test_control_c_saves_the_run_and_the_same_command_goes_on(settings, store, tmp_path):
    words = [
        sys.executable,
        "-m",
        "electra.cli",
        "study",
        "weight-sharing",
        "--data",
        str(store),
        *settings,
        str(store),
    ]
    words += ["--out", str(tmp_path / "out"), "--budget-flops", "1e12", "--seeds", "1"]
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    metrics = tmp_path / "out" / "runs" / "none-seed7" / "metrics.jsonl"
    for _ in range(1200):
        if metrics.is_file() and metrics.stat().st_size:
            break
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=120)
    assert running.returncode == 130, said
    assert list((metrics.parent / "checkpoints").glob("step-*/complete.json"))
    log = metrics.parent.with_name("none-seed7.log").read_text()
    assert "stopped and saved at step" in log
    assert not (tmp_path / "out" / "runs" / "embeddings-seed7").exists()
    assert str(metrics.parent) not in os.popen("ps -eo args").read()


def refused(match, *, base, measures=None, **options):
    with pytest.raises(UserError, match=match):
        study("weight-sharing", base, base.run_dir, measures=measures or Measures(), **options)
    assert not base.run_dir.exists()


def test_what_does_not_fit_is_refused_before_any_work(run_config, store, corpus_file, tmp_path):
    scored = dataclasses.replace(run_config, data=dataclasses.replace(run_config.data, heldout=store))
    refused("either --budget-flops or --minutes", base=scored)
    refused("seeds is 0", base=scored, budget_flops=1e9, seeds=0)
    refused("must be above 0", base=scored, minutes=-1.0)
    refused("nothing to score with", base=run_config, budget_flops=1e9)
    refused("one step of none takes", base=scored, budget_flops=10.0)
    refused("no such file", base=scored, budget_flops=1e9, measures=Measures(pairs=tmp_path / "missing"))
    refused("say where its files are", base=scored, budget_flops=1e9, measures=Measures(tasks=("CoLA",)))
    refused("no such", base=scored, budget_flops=1e9, measures=Measures(tasks=("a.csv:b.csv",)))
    prepare([corpus_file], tmp_path / "other", vocab_size=90, quiet=True)
    other = dataclasses.replace(run_config, data=dataclasses.replace(run_config.data, heldout=tmp_path / "other"))
    refused("another tokenizer made it", base=other, budget_flops=1e9)
    with pytest.raises(UserError, match="did you mean 'efficiency'"):
        find_study("eficiency")


@pytest.mark.parametrize("name", STUDIES)
def test_candidates_differ_in_what_is_studied_only(name, run_config):
    """Every candidate of every study is a configuration of its own, at the same data, optimizer and budget."""
    config = dataclasses.replace(run_config, model=small_model("modern"))
    candidates = STUDIES[name].candidates(config)
    assert len({candidate.name for candidate in candidates}) == len(candidates)
    assert len({(candidate.config.model, candidate.config.objective) for candidate in candidates}) == len(candidates)
    for candidate in candidates:
        assert (candidate.config.data, candidate.config.optimizer) == (config.data, config.optimizer)
        assert candidate.config.train == config.train
        assert 0.0 <= candidate.starts_at < 1.0
    assert STUDIES[name].reference in ("", *(candidate.name for candidate in candidates))


@pytest.mark.parametrize("name", STUDIES)
def test_every_candidate_of_the_default_preset_is_accepted(name):
    """`tiny` has settings of its own that not every objective can use."""
    for candidate in STUDIES[name].candidates(tiny()):
        check_settings(candidate.config)
