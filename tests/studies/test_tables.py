"""Tables and charts of a study, from lines made by hand."""

import csv
import dataclasses
import statistics

import pytest
from scipy.stats import t as student_t

from conftest import small_model
from electra.studies.candidates import Candidate, Study
from electra.studies.grid import Failure
from electra.studies.plots import charts
from electra.studies.study_report import as_text, write_study_report
from electra.studies.tables import Outcome, as_csv, differences, verdict

SCORES = {"one": {"minimal_pairs": [0.6, 0.62], "mlm_loss": [4.0, 4.1]}, "two": {"minimal_pairs": [0.5, 0.53]}}


def outcome(run_config, chart, **changes):
    base = dataclasses.replace(run_config, model=small_model("modern"))
    lines = [
        {"candidate": of, "seed": seed, "step": step, "tokens": 100 * step, "flops": 1e9 * step + seed, "minutes": 0.1 * step,
         "metric": metric, "value": value - (0.05 if step == 1 else 0.0)}
        for of, metrics in SCORES.items()
        for metric, values in metrics.items()
        for seed, value in enumerate(values)
        for step in (1, 2)
    ]  # fmt: skip
    other = dataclasses.replace(base, objective=dataclasses.replace(base.objective, mask_fraction=0.3, name="bert"))
    values = {
        "study": Study(name="s", question="Which?", finding="That one.", candidates=lambda base: [], chart=chart,
                       x_label="width", reference="two"),
        "candidates": [
            Candidate(name="one", config=other, line="l", x=0.0, paper=85.0),
            Candidate(name="two", config=base, line="l", x=64.0, paper=82.2),
            Candidate(name="three", config=base, line="m", x=64.0, paper=80.0),
        ],
        "base": base, "budget_flops": 2e9, "lines": lines, "configs": {"one-seed0": other},
        "failures": [Failure(base.run_dir, "no <disk>")], "data": {"store": "f00d"},
    }  # fmt: skip
    return Outcome(**(values | changes))


def test_the_end_of_each_run_counts(run_config):
    made = outcome(run_config, "bars")
    assert made.final("minimal_pairs") == {"one": [0.6, 0.62], "two": [0.5, 0.53]}
    assert made.along("minimal_pairs")["two"][1] == [(1e9 + 1, pytest.approx(0.48)), (2e9 + 1, 0.53)]
    assert made.metrics == ["minimal_pairs", "mlm_loss"]
    rows = list(csv.DictReader(as_csv(made).splitlines()))
    assert len(rows) == 12
    assert rows[1] == {
        "study": "s", "candidate": "one", "seed": "0", "step": "2", "tokens": "200", "flops": "2000000000.0", "minutes": "0.2",
        "metric": "minimal_pairs", "value": "0.6",
    }  # fmt: skip


def test_only_what_means_the_same_is_tested(run_config):
    [test] = differences(outcome(run_config, "bars"))  # mlm_loss depends on the objective
    assert (test.metric, test.first, test.second) == ("minimal_pairs", "one", "two")
    assert test.difference == pytest.approx(0.61 - 0.515)
    # By hand: t = 0.095 / sqrt(0.0002/2 + 0.00045/2), degrees of freedom 0.000325^2 / (0.0001^2 + 0.000225^2)
    assert test.p == pytest.approx(2.0 * student_t.sf(5.26964, 1.74227), rel=1e-4)
    assert verdict(None) == "one seed proves nothing"
    assert verdict(0.0447) == "p = 0.045, a difference"
    assert verdict(0.2) == "p = 0.200, no sure difference"


def test_bars_are_differences_from_the_reference_beside_the_papers(run_config):
    figure = charts(outcome(run_config, "bars"))["minimal_pairs"]
    ours, paper = figure.axes
    assert [bar.get_width() for bar in ours.patches] == [0.0, pytest.approx(0.095)]  # the first candidate on top
    assert [label.get_text() for label in ours.get_yticklabels()] == ["two\n0.515 ± 0.021", "one\n0.610 ± 0.014"]
    assert [bar.get_width() for bar in paper.patches] == [0.0, pytest.approx(2.8)]
    assert "higher is better" in ours.get_xlabel()
    assert len(charts(outcome(run_config, "bars"))["mlm_loss"].axes) == 1  # a loss is not beside GLUE


def test_lines_put_the_unigram_generator_first(run_config):
    [axes] = charts(outcome(run_config, "lines"))["minimal_pairs"].axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["unigram", "64"]
    means = axes.containers[0].lines[0].get_ydata()
    assert means == pytest.approx([0.61, 0.515])
    assert axes.get_xlabel() == "width"


def test_curves_take_the_mean_at_equal_compute(run_config):
    [axes] = charts(outcome(run_config, "curves"))["minimal_pairs"].axes
    one = next(line for line in axes.get_lines() if line.get_label() == "one (2 seeds)")
    operations, values = one.get_data()
    # Each of the two runs is defined between its own checkpoints; the mean only where both are.
    assert (operations[0], operations[-1]) == (1e9 + 1, 2e9)
    assert statistics.fmean((values[0], values[-1])) == pytest.approx(0.61 - 0.025, abs=1e-6)


def test_the_page_says_what_is_missing_and_escapes_what_it_shows(run_config, tmp_path):
    path = write_study_report(outcome(run_config, "bars"), tmp_path)
    page = path.read_text(encoding="utf-8")
    assert "no &lt;disk&gt;" in page
    assert "0.610 ± 0.014" in page
    assert "objective.mask_fraction=0.3" in page
    assert "p = 0.045, a difference" in page
    assert page.count("data:image/svg+xml;base64,") == 2
    assert sorted(file.name for file in (tmp_path / "plots").iterdir()) == [
        "minimal-pairs.png", "minimal-pairs.svg", "mlm-loss.png", "mlm-loss.svg",
    ]  # fmt: skip
    table = as_text(outcome(run_config, "bars")).splitlines()
    assert table[0].split() == ["one", "two", "three"]
