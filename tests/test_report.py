"""The report page: self-contained, complete, and made from whatever a run has left so far."""

import json
import math
import re
import xml.etree.ElementTree as ET
from base64 import b64decode

import pytest

from electra.config import PretrainConfig
from electra.config_files import save_config
from electra.errors import UserError
from electra.studies import report

TRAIN = [
    {
        "kind": "train",
        "step": step,
        "tokens": step * 1000,
        "seconds": step * 0.5,
        "tokens_per_second": 2000.0,
        "learning_rate": 1e-3,
        "generator_loss": 8.0 - step / 100,
        "generator_accuracy": 0.1,
        "discriminator_loss": 0.4,
        "discriminator_auc": 0.6,
        "replaced_share": 0.13,
    }
    for step in range(10, 210, 10)
]
HELDOUT = [
    {
        "kind": "heldout",
        "step": 200,
        "tokens": 200_000,
        "generator_loss": 6.5,
        "generator_accuracy": 0.2,
        "discriminator_auc": 0.7,
    }
]
RESULTS = {
    "heldout": {
        "generator_accuracy": 0.2,
        "most_frequent_share": 0.05,
        "discriminator_auc": 0.7,
        "swapped_word_auc": 0.65,
        "swapped_word_found": 0.2,
        "swapped_word_chance": 0.03,
    },
    "downstream": {
        "task": "Reviews",
        "test_examples": 1066,
        "majority": 0.5,
        "seeds": 3,
        "runs": [
            {"start": "pretrained", "train_examples": 500, "accuracies": [0.70, 0.72, 0.71]},
            {"start": "random", "train_examples": 500, "accuracies": [0.60, 0.60, 0.60]},
            {"start": "pretrained", "train_examples": 7464, "accuracies": [0.8, 0.8, 0.8]},
        ],
    },
    "sentence": [
        {"text": "chef", "original": "chef", "replaced": False, "probability": 0.1},
        {"text": "<ate>", "original": "cooked", "replaced": True, "probability": 0.9},
    ],
}


@pytest.fixture
def run_dir(tmp_path):
    save_config(PretrainConfig(), tmp_path / "config.yaml")
    write(tmp_path, TRAIN + HELDOUT)
    return tmp_path


NUM_PANELS = sum(
    panel.metric != "mlm_loss" for panel in report.PANELS
)  # of a run of electra, which predicts no tokens there


def write(run_dir, records):
    (run_dir / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def pictures(page):
    return [b64decode(data) for data in re.findall(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", page)]


def test_page_is_self_contained_and_has_all_curves(run_dir):
    page = report.write_report(run_dir).read_text(encoding="utf-8")
    assert len(pictures(page)) == NUM_PANELS
    for picture in pictures(page):
        assert ET.fromstring(picture).tag.endswith("svg")
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", page)
    assert "200,000" in page
    assert "optimizer.peak_learning_rate" in page
    assert "not finished" in page  # no discriminator/ yet


def test_results_of_the_quick_start_are_shown(run_dir):
    (run_dir / "results.json").write_text(json.dumps(RESULTS))
    page = report.write_report(run_dir).read_text(encoding="utf-8")
    assert "71.0 ± 1.0" in page
    assert "+11.0 points" in page
    assert "not run" in page
    assert "&lt;ate&gt;" in page  # text is data, never markup
    assert "was: cooked" in page
    assert "0.650" in page


def test_a_running_run_has_a_report(run_dir):
    with (run_dir / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')
    assert report.write_report(run_dir).is_file()
    write(run_dir, TRAIN[:1])
    assert report.write_report(run_dir).is_file()


def test_metrics_that_are_not_defined_are_left_out(run_dir):
    write(run_dir, [{**record, "discriminator_auc": None, "replaced_share": None} for record in TRAIN])
    page = report.write_report(run_dir).read_text(encoding="utf-8")
    assert len(pictures(page)) == NUM_PANELS - 1


def test_long_runs_are_thinned():
    records = [{"tokens": i, "generator_loss": float(i)} for i in range(10_000)]
    tokens, values = report.curve(records, report.PANELS[0])
    assert len(values) == report.MAX_POINTS
    assert math.isclose(values.mean(), 4999.5)
    assert (tokens[1:] > tokens[:-1]).all()


def test_guessing_loss_is_the_entropy_of_the_replaced_share():
    level = report.guessing_loss([{"replaced_share": 0.5}])
    assert level is not None
    assert math.isclose(level[0], math.log(2))
    assert report.guessing_loss([{}]) is None


@pytest.mark.parametrize(
    ("name", "message"), [("config.yaml", "no config.yaml"), ("metrics.jsonl", "logged nothing yet")]
)
def test_what_is_no_run_is_refused_in_one_line(run_dir, name, message):
    (run_dir / name).unlink()
    with pytest.raises(UserError, match=message) as error:
        report.write_report(run_dir)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("value", "text"), [(999, "999"), (8_312_000, "8.3 million"), (2.5e9, "2.5 billion")])
def test_counts_in_words(value, text):
    assert report.count(value) == text


@pytest.mark.parametrize(("seconds", "text"), [(42, "42 s"), (300, "5.0 min"), (7200, "2.0 h")])
def test_durations_in_words(seconds, text):
    assert report.duration(seconds) == text
