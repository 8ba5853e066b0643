"""Fine-tuning from Hugging Face directories of both kinds; scores of a run on held-out text."""

import csv
import dataclasses
import json
import random

import numpy as np
import pytest
from transformers import pipeline

from electra.config_finetune import FinetuneConfig
from electra.errors import UserError
from electra.evaluate import training
from electra.evaluate.detect import detect
from electra.evaluate.finetune import finetune
from electra.evaluate.heldout import corrupted_sentence, heldout_scores
from electra.evaluate.labelled import Example, read_examples
from electra.evaluate.labels import label_names
from electra.train.loop import pretrain

GOOD, BAD = ["good", "great", "lovely", "fine"], ["bad", "awful", "poor", "weak"]


def write_task(path, count, seed):
    draw = random.Random(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for _ in range(count):
            label = draw.choice(["pos", "neg"])
            filler = draw.choices(["the", "a film", "it was, well", "story"], k=draw.randrange(1, 5))
            writer.writerow([" ".join([*filler, draw.choice(GOOD if label == "pos" else BAD)]), label])


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    path = tmp_path_factory.mktemp("task")
    write_task(path / "train.csv", 200, 0)
    write_task(path / "dev.csv", 60, 1)
    return path


def settings(task, out, **changes):
    base = FinetuneConfig(
        task_file=task / "train.csv", dev_file=task / "dev.csv", out=out, num_epochs=6, batch_size=16, max_length=32,
        peak_learning_rate=1e-2, layer_decay=1.0,
    )  # fmt: skip
    return dataclasses.replace(base, **changes)


def test_learns_writes_and_is_loaded_by_a_pipeline(exported, task, tmp_path):
    result = finetune(exported / "discriminator", settings(task, tmp_path / "out", seeds=2), quiet=True)
    assert result["accuracy"]["median"] > 0.9
    assert result["accuracy"]["runs"] == len(result["runs"]) == 2
    assert result["failed_runs"] == 0
    assert result["labels"] == ["neg", "pos"]
    stored = json.loads((tmp_path / "out" / "result.json").read_text())
    assert stored == result
    with (tmp_path / "out" / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    best = max(run["accuracy"] for run in result["runs"])
    assert np.mean([row["label"] == row["predicted"] for row in rows]) == pytest.approx(best)
    classify = pipeline("text-classification", str(tmp_path / "out" / "model"), device=-1)
    for row in rows[:10]:
        found = classify(row["text"])
        found = found[0] if isinstance(found, list) else found
        assert found["label"] == row["predicted"]
        assert found["score"] == pytest.approx(float(row[f"probability {row['predicted']}"]), abs=1e-4)
    # The same call again is answered from what is there; another one is refused.
    assert finetune(exported / "discriminator", settings(task, tmp_path / "out", seeds=2), quiet=True) == result
    with pytest.raises(UserError, match="another fine-tuning"):
        finetune(exported / "discriminator", settings(task, tmp_path / "out", seeds=1), quiet=True)


def test_few_examples_random_weights_and_a_failed_run(exported, task, tmp_path, monkeypatch):
    result = finetune(
        exported / "discriminator",
        settings(task, tmp_path / "a", max_train_examples=20, random_weights=True, num_epochs=1),
        quiet=True,
    )
    assert result["train_examples"] == 20
    original = training.train
    monkeypatch.setattr(
        training, "train", lambda *arguments: original(*arguments) and arguments[6] != 1
    )  # the run of seed 1 does not end in numbers
    result = finetune(exported / "discriminator", settings(task, tmp_path / "b", seeds=3, num_epochs=1), quiet=True)
    assert result["failed_runs"] == 1
    assert [run["failed"] for run in result["runs"]] == [False, True, False]
    assert result["accuracy"]["runs"] == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_epochs": float("inf")}, "num_epochs is inf: it must be above 0, and finite"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0"),
        ({"seed": -1}, "seed is -1: it must be at least 0"),
        ({"max_train_examples": 0}, "max_train_examples is 0: it must be at least 1"),
    ],
)
def test_settings_that_cannot_be(change, message, tmp_path):
    with pytest.raises(UserError, match=message):
        FinetuneConfig(task_file=tmp_path, **change)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,class\nx,1\n", r"no column 'label'; it has 'text', 'class'"),
        ("a.csv", "text,label\n", "holds no examples"),
        ("a.csv", "text,label\nx,\n", "has no label"),
        ("a.csv", "text,label\nx,a,b\n", "has 3 columns"),
        ("a.csv", "text,label\nx,NaN\n", "has no label"),
        ("a.csv", "text,text,label\nx,y,1\n", "two columns are named 'text'"),
        ("a.jsonl", '{"text": ["x"], "label": 1}\n', "line 1, column 'text' holds a list"),
        ("a.tsv", 'text\tlabel\n"quoted\t1\n', None),
        ("a.jsonl", '{"text": "x", "label": 1}\nnonsense\n', "line 2 is not JSON"),
        ("a.txt", "x", "has no columns"),
    ],
)
def test_reading_labelled_files(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    if message is None:
        (example,) = read_examples(tmp_path / name, text_column="text", text_pair_column=None, label_column="label")
        assert (example.text, example.label) == ('"quoted', "1")
        return
    with pytest.raises(UserError, match=message):
        read_examples(tmp_path / name, text_column="text", text_pair_column=None, label_column="label")


def test_labels(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"text": "x", "label": label}) + "\n" for label in (10, 9, 2.0))
    )
    examples = read_examples(tmp_path / "a.jsonl", text_column="text", text_pair_column=None, label_column="label")
    assert label_names(examples, tmp_path / "a.jsonl") == ("2", "9", "10")
    with pytest.raises(UserError, match="every example has the label '10'"):
        label_names(examples[:1], tmp_path / "a.jsonl")
    numbers = [Example("x", None, str(index / 7)) for index in range(30)]
    with pytest.raises(UserError, match="30 different labels in 30 examples"):
        label_names(numbers, tmp_path / "a.jsonl")


def test_a_loss_that_is_no_number_is_a_failed_run(exported, task, tmp_path):
    with pytest.raises(UserError, match="the run failed: the loss was not a number; lower peak_learning_rate"):
        finetune(
            exported / "discriminator",
            settings(task, tmp_path / "o", peak_learning_rate=1e30, num_epochs=1),
            quiet=True,
        )
    assert not (tmp_path / "o" / "model").exists()


def test_a_label_that_training_has_not(exported, task, tmp_path):
    (tmp_path / "dev.csv").write_text("text,label\nfine,pos\nso so,neutral\n")
    with pytest.raises(UserError, match="example 2 has the label 'neutral'"):
        finetune(exported / "discriminator", settings(task, tmp_path / "o", dev_file=tmp_path / "dev.csv"), quiet=True)
    assert not (tmp_path / "o").exists()


def test_a_run_is_scored_on_held_out_text(run_config, store):
    pretrain(run_config, quiet=True)
    scores = heldout_scores(run_config.run_dir, store)
    assert 0.0 <= scores["generator_accuracy"] <= 1.0
    assert 0.2 < scores["swapped_word_auc"] < 0.8  # twelve steps teach next to nothing; a few dozen words are few
    assert 0.0 < scores["most_frequent_share"] < 1.0
    tokens = corrupted_sentence(run_config.run_dir, store)["tokens"]
    assert any(token["replaced"] for token in tokens)
    assert all((token["text"] != token["original"]) == token["replaced"] for token in tokens)
    (verdicts,) = detect(run_config.run_dir, ["the chef ate the soup ."])
    assert len(verdicts) >= 6
