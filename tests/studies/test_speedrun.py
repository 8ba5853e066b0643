"""The speedrun: a real one of a second, and the rules of its log."""

import dataclasses
import json

import pytest

from conftest import small_model
from electra.errors import UserError
from electra.studies.speedrun import compare, read_log, speedrun, table


def record(values, minutes=30.0, machine="m", name="minimal_pairs"):
    return {
        "date": "2026-12-01", "minutes": minutes, "preset": "tiny", "note": "", "machine": machine, "commit": "abc",
        "configuration": "12345678", "tokens": [1e6] * len(values), "scores": {name: values},
    }  # fmt: skip


def test_a_speedrun_logs_draws_and_says_how_it_stands(run_config, store, tmp_path, capsys):
    config = dataclasses.replace(run_config, model=small_model("modern"))
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"sentence_good": "the king ate the pie .", "sentence_bad": "king the ate the pie ."}))
    options = {"heldout": store, "pairs": pairs, "minutes": 0.005, "points": 1, "preset": "small", "note": "a | b"}
    made = speedrun(config, tmp_path / "one", tmp_path / "log.md", seeds=2, **options)
    assert set(made["scores"]) == {"generator_loss", "discriminator_auc", "swapped_word_auc", "minimal_pairs"}
    assert all(len(values) == 2 for values in made["scores"].values())
    curves = json.loads((tmp_path / "one" / "curve.json").read_text())
    assert [len(points) >= 1 for points in curves] == [True, True]
    assert (tmp_path / "one" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "the first of 0.005 minutes on this machine" in capsys.readouterr().out
    with pytest.raises(UserError, match="holds a finished speedrun"):
        speedrun(config, tmp_path / "one", tmp_path / "log.md", seeds=2, **options)
    speedrun(config, tmp_path / "two", tmp_path / "log.md", seeds=2, **options)
    assert "p = " in capsys.readouterr().out
    assert len(read_log(tmp_path / "log.md")) == 2
    rows = [line for line in (tmp_path / "log.md").read_text().splitlines() if line.startswith("| 2")]
    assert len(rows) == 2
    assert all(row.replace("\\|", "").count("|") == 13 for row in rows)


def test_only_like_runs_are_compared_and_the_sign_counts():
    earlier = [record([0.6, 0.62]), record([0.9, 0.9], minutes=5.0), record([0.9, 0.9], machine="other")]
    (line,) = compare(record([0.7, 0.72]), earlier)
    assert "0.710 ± 0.014; a record, the best so far is 0.610 ± 0.014 (p = 0.019)" in line
    (line,) = compare(record([0.5]), earlier)
    assert "no record" in line
    assert "one seed proves nothing" in line
    (line,) = compare(record([4.0], name="generator_loss"), [record([4.5], name="generator_loss")])
    assert "; a record," in line  # less is better


def test_table_and_log(tmp_path):
    assert "| 0.700 ± 0.014 |" in table([record([0.69, 0.71])])
    (tmp_path / "log.jsonl").write_text("nonsense")
    with pytest.raises(UserError, match="not a log of speedruns"):
        read_log(tmp_path / "log.md")
