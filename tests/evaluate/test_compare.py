"""Results side by side: columns from files and directories, p-values, the average over GLUE; the suite of all its tasks."""

import json

import pytest
from test_glue import write_official

from electra import cli
from electra.config_finetune import TuningConfig
from electra.errors import UserError
from electra.evaluate.compare import AVERAGE, as_markdown, as_text, compare
from electra.evaluate.glue_suite import glue_suite
from electra.evaluate.results import describe
from electra.evaluate.scores import over_seeds
from electra.evaluate.tasks import TASKS


def result(path, task, metric, values, model="run", failed=0, extra=None):
    """A result.json as `finetune` writes it, of the keys that matter here."""
    runs = [{"seed": seed, "failed": False, "degenerate": False, metric: value} for seed, value in enumerate(values)]
    runs += [{"seed": 9, "failed": True, "degenerate": False}] * failed
    content = {
        "task": task, "main_metric": metric, "model": f"{model}/discriminator", "config": {"random_weights": False},
        metric: over_seeds(values), "runs": runs, "failed_runs": failed, "degenerate_runs": 0, **(extra or {}),
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def test_spread_and_significance(tmp_path):
    first = result(tmp_path / "a.json", "RTE", "accuracy", [0.1, 0.2, 0.3], model="old")
    second = result(tmp_path / "b.json", "RTE", "accuracy", [0.2, 0.3, 0.4], model="new", failed=1)
    alone = result(tmp_path / "c.json", "RTE", "accuracy", [0.5], model="one")
    found = compare([first, second, alone])
    assert [column.name for column in found.columns] == ["old", "new", "one"]
    # t = 0.1 / sqrt(0.01/3 + 0.01/3) = 1.2247 with 4 degrees of freedom
    assert found.p_values["RTE accuracy"] == [None, pytest.approx(0.2879, abs=1e-4), None]
    same = result(tmp_path / "d.json", "RTE", "accuracy", [0.6, 0.6], model="constant")
    other = result(tmp_path / "e.json", "RTE", "accuracy", [0.4, 0.4], model="constant, too")
    assert compare([same, other]).p_values["RTE accuracy"] == [None, None]  # nothing varies: nothing to test with
    table = as_markdown(found).splitlines()
    assert table[0] == "| | old | new | one |"
    assert table[2] == "| RTE accuracy | 0.2000 ± 0.1000 (3) | 0.3000 ± 0.1000 (3), p = 0.288 | 0.5000 |"
    assert "new: 1 of 4 runs of RTE failed" in table
    assert "0.3000 ± 0.1000 (3), p = 0.288" in as_text(found).splitlines()[1]


def test_the_average_is_the_papers(tmp_path):
    """Of Matthews, Spearman and accuracies; WNLI does not count, nor do other metrics; what one side lacks is left out."""
    for model, shift in (("a", 0.0), ("b", 0.2)):
        out = tmp_path / model
        result(out / "CoLA" / "result.json", "CoLA", "matthews", [0.1 + shift, 0.3 + shift, 0.2 + shift], model)
        extra = {"f1": over_seeds([0.9])}
        runs = [{"seed": 0, "failed": False, "degenerate": False, "accuracy": 0.6 + shift, "f1": 0.9}]
        result(out / "MRPC" / "result.json", "MRPC", "accuracy", [0.6 + shift], model, extra={**extra, "runs": runs})
        result(out / "STS-B" / "result.json", "STS-B", "spearman", [0.4 + shift], model)
        result(out / "WNLI" / "result.json", "WNLI", "accuracy", [0.5], model)
    result(tmp_path / "a" / "RTE" / "result.json", "RTE", "accuracy", [0.99], "a")
    found = compare([tmp_path / "a", tmp_path / "b"])
    assert found.rows["RTE accuracy"][1] is None
    assert found.rows["MRPC f1"][0].values == (0.9,)
    a, b = found.rows[AVERAGE]
    assert a.median == pytest.approx((0.2 + 0.6 + 0.4) / 3)
    assert b.median == pytest.approx((0.2 + 0.6 + 0.4) / 3 + 0.2)
    # With as many seeds everywhere the average has one value a seed.
    for name in ("x", "y"):
        result(tmp_path / name / "RTE" / "result.json", "RTE", "accuracy", [0.5, 0.7], name)
        result(tmp_path / name / "QNLI" / "result.json", "QNLI", "accuracy", [0.6, 0.7], name)
    by_seed = compare([tmp_path / "x", tmp_path / "y"]).rows[AVERAGE][0]
    assert by_seed.values == pytest.approx((0.55, 0.7))
    [note] = [note for note in found.notes if note.startswith(AVERAGE)]
    assert note.endswith("of CoLA, MRPC, STS-B; without MNLI, QNLI, QQP, RTE, SST-2")


def test_suites_without_labels_and_columns_of_one_name(tmp_path):
    scores = {"overall": 0.61, "fields": {"syntax": 0.6}, "pairs": 1000}
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps({"suite": "minimal-pairs", "model": "run", "scores": scores}))
    found = compare([tmp_path / "a.json", tmp_path / "b.json"])
    assert [column.name for column in found.columns] == [f"run ({tmp_path / name})" for name in ("a.json", "b.json")]
    assert found.rows["minimal-pairs fields syntax"][0].values == (0.6,)
    assert AVERAGE not in found.rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file or directory"),
        ("no json", "not JSON; name a result.json"),
        ("[]", "not a result"),
    ],
)
def test_what_is_no_result(content, message, tmp_path, capsys):
    path = tmp_path / "a.json"
    if content is not None:
        path.write_text(content)
    assert cli.main(["compare", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_two_results_of_one_score_in_a_directory(tmp_path):
    result(tmp_path / "x" / "result.json", "RTE", "accuracy", [0.1])
    result(tmp_path / "y" / "result.json", "RTE", "accuracy", [0.2])
    with pytest.raises(UserError, match="holds several results of RTE accuracy; name them one by one"):
        compare([tmp_path])


def test_all_tasks_that_are_there(exported, tmp_path, capsys):
    for name in ("cola", "rte", "wnli", "qnli"):
        write_official(tmp_path / "glue", TASKS[name])
    (tmp_path / "glue" / "QNLI" / "train.tsv").unlink()
    tuning = TuningConfig(out=tmp_path / "out", num_epochs=1, max_length=32, seeds=2)
    found = glue_suite(
        exported / "discriminator", str(tmp_path / "glue"), tuning, quiet=True, json_file=tmp_path / "all.json"
    )
    assert (tmp_path / "all.json").read_text() == (tmp_path / "out" / "glue.json").read_text()
    assert list(found["tasks"]) == ["CoLA", "RTE", "WNLI"]
    assert found["left_out"] == ["SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI"]
    assert json.loads((tmp_path / "out" / "glue.json").read_text()) == found
    assert "| CoLA matthews |" in (tmp_path / "out" / "glue.md").read_text()
    said = capsys.readouterr().out
    assert "not there with training and dev files: SST-2, MRPC" in said
    # The directory and the JSON are the same to `electra compare`; a second call takes what is there.
    assert cli.main(["compare", str(tmp_path / "out"), str(tmp_path / "out" / "glue.json"), "--markdown"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("| RTE accuracy |"))
    cells = [cell.strip().split(",")[0] for cell in row.split("|")[2:4]]
    assert cells[0] == cells[1]
    words = ["--num-epochs", "1", "--seeds", "2", "--suite", "glue"]
    places = [str(exported / "discriminator"), "--data", str(tmp_path / "glue"), "--out", str(tmp_path / "flags")]
    assert cli.main(["evaluate", *places, *words, "--limit", "8", "--max-length", "32"]) == 0
    by_flags = json.loads((tmp_path / "flags" / "glue.json").read_text())["tasks"]["RTE"]
    assert (by_flags["train_examples"], by_flags["accuracy"]["runs"]) == (8, 2)
    again = glue_suite(exported / "discriminator", str(tmp_path / "glue"), tuning, quiet=True)
    assert again["tasks"] == found["tasks"]
    with pytest.raises(UserError, match="has no folder of a GLUE task"):
        glue_suite(exported / "discriminator", str(tmp_path), tuning, quiet=True)


def test_a_result_in_a_few_lines():
    runs = [
        {"seed": 0, "failed": False, "degenerate": False, "accuracy": 0.5},
        {"seed": 1, "failed": False, "degenerate": True, "accuracy": 0.7},
        {"seed": 2, "failed": True, "degenerate": False},
    ]
    result = {
        "task": "RTE", "main_metric": "accuracy", "train_examples": 2490, "dev_examples": 277, "runs": runs,
        "accuracy": over_seeds([0.5, 0.7]), "majority_share": 0.5271, "failed_runs": 1, "degenerate_runs": 1,
        "cut_texts": {"train": 1579, "dev": 0}, "config": {"max_length": 128},
        "hyper_parameters": {"num_epochs": {"value": 10.0, "from": "paper, table 7"}},
    }  # fmt: skip
    assert [" ".join(line.split()) for line in describe(result)] == [
        "RTE: 2,490 training and 277 dev examples",
        "median mean and deviation over seeds",
        "accuracy 0.6000 0.6000 ± 0.1414 (2)",
        "(always one class) 0.5271",
        "1 of 3 runs failed (the loss was not a number) and are not counted",
        "1 of 3 runs say the same of every text (degenerate)",
        "texts longer than 128 tokens, which were cut: 1,579 train",
        "num_epochs 10 (paper, table 7)",
    ]
