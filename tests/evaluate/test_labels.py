"""Classes, numbers and sets of labels: targets, losses beside transformers', files of one's own, what a pipeline says."""

import csv
import dataclasses
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from electra.config_finetune import FinetuneConfig
from electra.errors import UserError
from electra.evaluate.finetune import Labelled, SequenceTask, encode, finetune, predict
from electra.evaluate.labelled import Example, read_examples
from electra.evaluate.labels import Classes, LabelSets, Numbers, labels_of_file
from electra.evaluate.scores import scores
from electra.evaluate.training import load_start
from electra.model.hf import save_sequence_classifier

WORDS = {"good": 4.0, "fine": 3.0, "weak": 1.5, "awful": -1.0}


def read(path, column="label", kind="classification"):
    return read_examples(path, text_column="text", text_pair_column=None, label_column=column, kind=kind)


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.csv", "text,label\nx,b|a\ny,\nz, b \n", ("label",)),
        ("a.jsonl", '{"text": "x", "label": ["a", "b"]}\n{"text": "y", "label": []}\n{"text": "z", "label": "b"}\n', ("label",)),
        ("a.tsv", "text\ta\tb\nx\t1\ttrue\ny\t0\t\nz\tno\t1.0\n", ("a", "b")),
    ],
)  # fmt: skip
def test_sets_of_labels_in_one_column_or_several(tmp_path, name, content, columns):
    (tmp_path / name).write_text(content)
    examples = read(tmp_path / name, columns, "multi-label")
    labels = labels_of_file("multi-label", examples, tmp_path / name, columns)
    assert labels.names == ("a", "b")
    assert labels.targets(examples, name).tolist() == [[1, 1], [0, 0], [0, 1]]
    assert labels.texts(np.array([[0.9, 0.6], [0.1, 0.2], [0.5, 0.6]])) == ["a|b", "", "b"]


@pytest.mark.parametrize(
    ("kind", "content", "columns", "message"),
    [
        ("regression", "text,label\nx,1\ny,two\n", ("label",), "example 2 has the label 'two'; a regression needs numbers"),
        ("regression", "text,label\nx,1\ny,inf\n", ("label",), "example 2 has the label 'inf'; a regression needs numbers"),
        ("regression", "text,label\nx,1\ny,1.0\n", ("label",), "every example has the label 1; there is nothing to predict"),
        ("multi-label", "text,label\nx,\ny,\n", ("label",), "no example has a label"),
        ("multi-label", "text,a,b\nx,1,maybe\n", ("a", "b"), "line 2 has 'maybe' in label column 'b'"),
        ("multi-label", "text,a,b\nx,1,0\n", ("a", "c"), "no column 'c'"),
    ],
)  # fmt: skip
def test_labels_that_cannot_be(tmp_path, kind, content, columns, message):
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        labels_of_file(kind, read(path, columns, kind), path, columns)


def test_many_numbers_as_classes_are_taken_for_a_regression(tmp_path):
    examples = [Example("x", None, str(index / 7)) for index in range(30)]
    with pytest.raises(UserError, match="if they are numbers to predict, use --kind regression"):
        labels_of_file("classification", examples, tmp_path / "a.csv", ("label",))


LABELS = {
    "classification": Classes(("no", "maybe", "yes"), ("no", "maybe", "yes")),
    "regression": Numbers("score", 0.0, 1.0),
    "multi-label": LabelSets(("a", "b", "c")),
}
GOLD = {
    "classification": ["no", "yes", "maybe", "yes"],
    "regression": ["0.5", "0.25", "1", "0"],
    "multi-label": ["a|b", "", "c", "b"],
}


TEXTS = ["a good film", "it was, well, weak", "story", "the the the awful"]


def task_of(kind, exported, tmp_path):
    """Four texts to train on, which are the dev data, too."""
    labels = LABELS[kind]
    config = FinetuneConfig(task_file=tmp_path / "train.csv", max_length=32)
    start = load_start(exported / "discriminator", config)
    examples = [Example(text, None, label) for text, label in zip(TEXTS, GOLD[kind], strict=True)]
    train = Labelled(encode(examples, start, 32), labels.targets(examples, "train.csv"))
    return SequenceTask(
        start=start,
        config=config,
        labels=labels,
        metrics=labels.metrics,
        main=labels.main,
        train=train,
        dev={"": train},
    )


@pytest.mark.parametrize("kind", LABELS)
def test_the_loss_is_that_of_transformers(kind, exported, tmp_path):
    """Of the exported network, with the labels as its Hugging Face class takes them; their mean is our sum over the rows."""
    task = task_of(kind, exported, tmp_path)
    start, labels, train = task.start, task.labels, task.train
    network = task.new_network(start.loaded.encoder).eval()
    rows = np.arange(4)
    ours = task.loss(network, rows, train.texts.inputs(rows, 0, torch.device("cpu"))) / 4
    save_sequence_classifier(
        network.encoder, network.head, labels.names, tmp_path / "model", start.loaded.tokenizer_dir, labels.problem_type
    )
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    batch = AutoTokenizer.from_pretrained(tmp_path / "model")(TEXTS, padding=True, return_tensors="pt")
    theirs = model(**batch, labels=torch.from_numpy(train.targets))
    torch.testing.assert_close(ours, theirs.loss, atol=1e-5, rtol=1e-5)
    outputs = predict(network, train.texts, start, labels)
    expected = labels.outputs(theirs.logits).detach().numpy()
    np.testing.assert_allclose(outputs, expected, atol=1e-5)


def write_own(path, kind, count, seed):
    draw = random.Random(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for _ in range(count):
            chosen = draw.sample(list(WORDS), k=1 if kind == "regression" else draw.randrange(3))
            label = WORDS[chosen[0]] if kind == "regression" else "|".join(chosen)
            writer.writerow([" ".join(["the film", *chosen]), label])


@pytest.mark.parametrize(
    ("kind", "main"),
    [("regression", "pearson"), ("multi-label", "micro_f1")],
)
def test_files_of_ones_own(kind, main, exported, tmp_path):
    write_own(tmp_path / "train.csv", kind, 60, 0)
    write_own(tmp_path / "dev.csv", kind, 20, 1)
    config = FinetuneConfig(
        task_file=tmp_path / "train.csv", dev_file=tmp_path / "dev.csv", kind=kind, out=tmp_path / "out", batch_size=8,
        num_epochs=2, max_length=32, peak_learning_rate=1e-2, layer_decay=1.0,
    )  # fmt: skip
    result = finetune(exported / "discriminator", config, quiet=True)
    assert result["main_metric"] == main
    assert result[main]["runs"] == 1
    with (tmp_path / "out" / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    classify = pipeline("text-classification", str(tmp_path / "out" / "model"), device=-1, top_k=None)
    for row in rows[:8]:
        found = {one["label"]: one["score"] for one in classify([row["text"]])[0]}
        if kind == "regression":
            # In the labels' own units, beyond 0 to 1, from plain transformers too.
            assert found == {"label": pytest.approx(float(row["value label"]), abs=1e-3)}
        else:
            assert found == {w: pytest.approx(float(row[f"probability {w}"]), abs=1e-4) for w in WORDS}
            assert row["predicted"] == "|".join(w for w in sorted(WORDS) if found[w] > 0.5)


@pytest.mark.parametrize("kind", LABELS)
def test_a_network_that_says_the_same_of_everything_is_degenerate(kind, exported, tmp_path):
    task = task_of(kind, exported, tmp_path)
    network = task.new_network(task.start.loaded.encoder).eval()
    assert not task.labels.is_constant(task.train.targets)
    torch.nn.init.zeros_(network.head.classifier.weight)
    scored = task.score(network)
    assert scored.degenerate
    assert scored.scores[task.main] == scored.main
    # Where all have the same label, saying it of everything is right.
    same = dataclasses.replace(task.train, targets=task.train.targets[[0, 0, 0, 0]])
    assert not dataclasses.replace(task, dev={"": same}).score(network).degenerate


def test_scores_worked_out_by_hand():
    gold, predicted = np.array([1, 1, 0, 0]), np.array([1, 0, 0, 0])
    assert scores(("accuracy", "f1", "matthews"), gold, predicted) == pytest.approx(
        {"accuracy": 0.75, "f1": 2 / 3, "matthews": (1 * 2 - 0 * 1) / (1 * 2 * 2 * 3) ** 0.5}
    )
    gold, predicted = np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])
    assert scores(("pearson", "spearman", "rmse"), gold, predicted) == pytest.approx(
        {"pearson": 0.5, "spearman": 0.5, "rmse": (2 / 3) ** 0.5}
    )
    assert scores(("pearson",), gold, np.ones(3)) == {"pearson": 0.0}  # not defined: nothing was found out
    gold, predicted = np.array([[1, 1], [0, 1], [0, 0]]), np.array([[1, 0], [0, 1], [0, 0]])
    assert scores(("micro_f1", "macro_f1", "exact_match"), gold, predicted) == pytest.approx(
        {"micro_f1": 0.8, "macro_f1": (1 + 2 / 3) / 2, "exact_match": 2 / 3}
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "give either --task-file FILE or --task NAME with --data DIR"),
        ({"task": "RTE", "data": "glue", "task_file": Path("a.csv")}, "give either --task-file FILE or --task NAME"),
        ({"task": "RTE"}, "--task NAME and --data DIR belong together"),
        ({"task_file": Path("a.csv"), "predict_test": True}, "predict_test is for the tasks of the table"),
        ({"task_file": Path("a.csv"), "label_columns": ("a", "b")}, "label_columns are several, for kind multi-label"),
    ],
)
def test_settings_that_do_not_go_together(settings, message):
    with pytest.raises(UserError, match=message):
        FinetuneConfig(**settings)


def test_a_data_set_as_a_file_of_ones_own(tmp_path, monkeypatch):
    """hf:NAME:SPLIT, here of a directory; class numbers become their names."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    lines = [json.dumps({"text": f"text {index}", "label": ["neg", "pos"][index % 2]}) for index in range(4)]
    (tmp_path / "set" / "train.jsonl").write_text("\n".join(lines))
    examples = read(Path(f"hf:{tmp_path}/set:train"))
    assert [example.label for example in examples] == ["neg", "pos", "neg", "pos"]
    with pytest.raises(UserError, match="its split 'test' could not be loaded"):
        read(Path(f"hf:{tmp_path}/set:test"))
