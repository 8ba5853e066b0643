"""The speedrun: a real one of a second, and the rules of its log."""

import dataclasses
import json

import pytest

from conftest import sentences, small_model
from electra.cli import main
from electra.config_files import save_config
from electra.data.prepare import prepare
from electra.errors import UserError
from electra.presets import tiny
from electra.studies.speedrun import changes, compare, fingerprint, read_log, speedrun, stores_of_text, table


def record(values, minutes=30.0, machine="m", name="minimal_pairs", data="d"):
    return {
        "date": "2026-12-01", "minutes": minutes, "preset": "tiny", "note": "", "machine": machine, "commit": "abc",
        "configuration": "12345678", "tokens": [1e6] * len(values), "scores": {name: values}, "threads": 2,
        "changes": ["train.batch_size=8"], "versions": {"torch": "2"}, "data": {"heldout": data, "pairs": data},
    }  # fmt: skip


def test_a_speedrun_logs_draws_and_says_how_it_stands(run_config, store, tmp_path, capsys):
    config = dataclasses.replace(run_config, model=small_model("modern"))
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"sentence_good": "the king ate the pie .", "sentence_bad": "king the ate the pie ."}))
    options = {"heldout": store, "pairs": pairs, "minutes": 0.005, "points": 1, "preset": "tiny", "note": "a | b"}
    made = speedrun(config, tmp_path / "one", tmp_path / "log.md", seeds=2, **options)
    assert set(made["scores"]) == {"generator_loss", "discriminator_auc", "swapped_word_auc", "minimal_pairs"}
    assert all(len(values) == 2 for values in made["scores"].values())
    curves = json.loads((tmp_path / "one" / "curve.json").read_text())
    assert [len(points) >= 1 for points in curves] == [True, True]
    assert (tmp_path / "one" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert made["seeds"] == [7, 8]
    assert "objective.mask_fraction=0.15" in made["changes"]
    assert not [change for change in made["changes"] if change.startswith(("train.num_", "train.seed", "data.store"))]
    assert "the first of 0.005 minutes on this machine and data" in capsys.readouterr().out
    with pytest.raises(UserError, match="holds a finished speedrun"):
        speedrun(config, tmp_path / "one", tmp_path / "log.md", seeds=2, **options)
    speedrun(config, tmp_path / "two", tmp_path / "log.md", seeds=2, **options)
    assert "p = " in capsys.readouterr().out
    assert len(read_log(tmp_path / "log.md")) == 2
    rows = [line for line in (tmp_path / "log.md").read_text().splitlines() if line.startswith("| 2")]
    assert len(rows) == 2
    assert all(row.replace("\\|", "").count("|") == 14 for row in rows)


def test_data_that_does_not_fit_is_refused_before_training(run_config, store, corpus_file, tmp_path):
    prepare([corpus_file], tmp_path / "other", vocab_size=90, quiet=True)
    with pytest.raises(UserError, match="another tokenizer made it"):
        speedrun(run_config, tmp_path / "out", tmp_path / "log.md", heldout=tmp_path / "other")
    with pytest.raises(UserError, match="no such file"):
        speedrun(run_config, tmp_path / "out", tmp_path / "log.md", heldout=store, pairs=tmp_path / "missing")
    with pytest.raises(UserError, match="seeds 0"):
        speedrun(run_config, tmp_path / "out", tmp_path / "log.md", heldout=store, seeds=0)
    assert not (tmp_path / "out").exists()


def test_from_text_on_the_command_line(run_config, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = sentences(2000)
    documents = ["\n".join([f"story {i}", *lines[10 * i : 10 * i + 10]]) for i in range(200)]
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n\n".join(documents))
    settings = dataclasses.replace(run_config, model=small_model("modern"))
    settings = dataclasses.replace(settings, data=dataclasses.replace(settings.data, store=None))
    save_config(settings, tmp_path / "settings.yaml")
    words = ["speedrun", "--data", str(corpus), "--minutes", "0.005", "--config", "settings.yaml", "--out", "run"]
    assert main(words) == 0
    assert "log:   run/speedrun.md" in capsys.readouterr().out
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "speedrun.md").write_text(table([]))
    stores = ["--store", "run/store", "--heldout", "run/store-heldout"]
    assert main(["speedrun", *stores, *words[3:-1], "again"]) == 0
    assert "log:   benchmarks/speedrun.md" in capsys.readouterr().out
    assert len(read_log(tmp_path / "benchmarks" / "speedrun.md")) == 1
    for wrong in ([], ["--store", "run/store"], [*stores, "--data", "x"]):
        assert main(["speedrun", *wrong, "--out", "third"]) == 2
        assert "give either --store" in capsys.readouterr().err
    with pytest.raises(UserError, match="choose another --out for other text"):
        stores_of_text(["another.txt"], tmp_path / "run")


def test_settings_that_differ_and_their_fingerprint():
    base = tiny()
    other = dataclasses.replace(base, objective=dataclasses.replace(base.objective, mask_fraction=0.3))
    assert changes(base, other) == ["objective.mask_fraction=0.3"]
    assert fingerprint(other) != fingerprint(base)
    moved = dataclasses.replace(base, train=dataclasses.replace(base.train, seed=9, num_minutes=3.0, save_every=7))
    assert (changes(base, moved), fingerprint(moved)) == ([], fingerprint(base))


def test_only_like_runs_are_compared_and_the_sign_counts():
    earlier = [
        record([0.6, 0.62]),
        record([0.5, 0.52]),
        record([0.9, 0.9], minutes=5.0),
        record([0.9, 0.9], machine="other"),
        record([0.9, 0.9], data="other"),
    ]
    (line,) = compare(record([0.7, 0.72]), earlier)
    assert "0.710 ± 0.014; a record: +0.100 to the best so far, 0.610 ± 0.014 (p = 0.019)" in line
    (line,) = compare(record([0.61, 0.63]), earlier)
    assert "; ahead, but no record: +0.010" in line
    (line,) = compare(record([0.7]), earlier)
    assert "; ahead, but no record: +0.090 to the best so far, 0.610 ± 0.014 (one seed proves nothing)" in line
    (line,) = compare(record([0.5, 0.52]), earlier)
    assert "; no record: -0.100" in line
    (line,) = compare(
        record([4.0, 4.01], name="generator_loss"), [record([4.5, 4.51], name="generator_loss")]
    )  # less is better
    assert "; a record: -0.500" in line


def test_table_and_log(tmp_path):
    assert "| 0.700 ± 0.014 |" in table([record([0.69, 0.71])])
    (tmp_path / "log.jsonl").write_text("nonsense")
    with pytest.raises(UserError, match="not a log of speedruns"):
        read_log(tmp_path / "log.md")
