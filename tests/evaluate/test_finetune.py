"""Fine-tuning and detection from Hugging Face directories of both kinds, and from a run."""

import csv
import dataclasses
import json
import random

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, pipeline

from conftest import small_model
from electra.cli import main
from electra.config import EncoderConfig, FinetuneConfig
from electra.data.tokenizer import train_tokenizer
from electra.errors import UserError
from electra.evaluate import detect as detect_module
from electra.evaluate import finetune as finetune_module
from electra.evaluate.detect import Detector, _windows, as_json, detect, render, word_probabilities
from electra.evaluate.finetune import finetune, layer_rates
from electra.evaluate.heldout import corrupted_sentence, heldout_scores
from electra.evaluate.tasks import label_names, read_examples
from electra.model.encoder import Encoder
from electra.model.hf import export_discriminator, export_generator
from electra.model.pair import Pair
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


@pytest.fixture(scope="module", params=["classic", "modern"])
def model(request, tmp_path_factory):
    """A directory with discriminator/ and generator/ of random weights."""
    path = tmp_path_factory.mktemp(request.param)
    texts = [" ".join([*GOOD, *BAD, "the a film it was, well story"])] * 3
    train_tokenizer(texts, 120).save_pretrained(path / "tokenizer")
    torch.manual_seed(0)
    config = small_model(request.param)
    size = len(AutoTokenizer.from_pretrained(path / "tokenizer"))
    encoder = dataclasses.replace(config.discriminator, vocab_size=size)
    pair = Pair(dataclasses.replace(config, discriminator=encoder))
    export_discriminator(pair, path / "discriminator", path / "tokenizer")
    export_generator(pair, path / "generator", path / "tokenizer")
    return path


def settings(task, out, **changes):
    base = FinetuneConfig(
        task_file=task / "train.csv", dev_file=task / "dev.csv", out=out, num_epochs=6, batch_size=16, max_length=32,
        peak_learning_rate=1e-2, layer_decay=1.0,
    )  # fmt: skip
    return dataclasses.replace(base, **changes)


def test_learns_writes_and_is_loaded_by_a_pipeline(model, task, tmp_path):
    result = finetune(model / "discriminator", settings(task, tmp_path / "out", seeds=2), quiet=True)
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
    assert finetune(model / "discriminator", settings(task, tmp_path / "out", seeds=2), quiet=True) == result
    with pytest.raises(UserError, match="another fine-tuning"):
        finetune(model / "discriminator", settings(task, tmp_path / "out", seeds=1), quiet=True)


def test_few_examples_random_weights_and_a_failed_run(model, task, tmp_path, monkeypatch):
    result = finetune(
        model / "discriminator",
        settings(task, tmp_path / "a", max_train_examples=20, random_weights=True, num_epochs=1),
        quiet=True,
    )
    assert result["train_examples"] == 20
    original = finetune_module._train
    monkeypatch.setattr(
        finetune_module, "_train", lambda *arguments: original(*arguments) and arguments[3] != 1
    )  # the run of seed 1 does not end in numbers
    result = finetune(model / "discriminator", settings(task, tmp_path / "b", seeds=3, num_epochs=1), quiet=True)
    assert result["failed_runs"] == 1
    assert [run["failed"] for run in result["runs"]] == [False, True, False]
    assert result["accuracy"]["runs"] == 2


def test_rates_fall_towards_the_input_as_in_the_reference():
    encoder = Encoder(
        EncoderConfig(vocab_size=10, hidden_size=8, embedding_size=8, num_heads=1, num_layers=3, intermediate_size=8)
    )
    rates = [rate for _, rate in layer_rates(encoder, 1.0, 0.5)]
    # embeddings n + 2 = 5; layers 0, 1, 2: 4, 3, 2
    assert rates == [0.5**5, 0.5**4, 0.5**3, 0.5**2]
    grouped = {id(p) for parameters, _ in layer_rates(encoder, 1.0, 0.5) for p in parameters}
    assert grouped == {id(p) for p in encoder.parameters()}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,class\nx,1\n", r"no column 'label'; it has 'text', 'class'"),
        ("a.csv", "text,label\n", "holds no examples"),
        ("a.csv", "text,label\nx,\n", "has no label"),
        ("a.csv", "text,label\nx,a,b\n", "has 3 columns"),
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
    assert label_names(examples, tmp_path / "a.jsonl") == ["2", "9", "10"]
    with pytest.raises(UserError, match="every example has the label '10'"):
        label_names(examples[:1], tmp_path / "a.jsonl")


def test_a_label_that_training_has_not(model, task, tmp_path):
    (tmp_path / "dev.csv").write_text("text,label\nfine,pos\nso so,neutral\n")
    with pytest.raises(UserError, match="example 2 has the label 'neutral'"):
        finetune(model / "discriminator", settings(task, tmp_path / "o", dev_file=tmp_path / "dev.csv"), quiet=True)


def test_detection(model):
    text = "The film was, well, a lovely story"
    (verdicts,) = detect(model / "discriminator", [text])
    assert next(text[v.start : v.end].lower() for v in verdicts if v.token != "[UNK]") == "the"
    assert all(0.0 < v.probability < 1.0 for v in verdicts)
    assert len(word_probabilities(verdicts)) == 9  # seven words and two commas
    assert as_json(text, verdicts)["tokens"][0]["probability"] == verdicts[0].probability
    assert render(text, verdicts).plain.replace(" ", "").startswith("The")
    together = Detector(model / "discriminator")([text, "a story", text])
    assert [v.probability for v in together[2]] == pytest.approx([v.probability for v in verdicts], abs=1e-6)
    with pytest.raises(UserError):
        detect(model / "generator", [text])
    (many,) = detect(model / "discriminator", ["the film " * 60], max_length=20)
    assert len(many) == 120


def test_a_file_is_judged_line_by_line(model, tmp_path, capsys, monkeypatch):
    lines = ["the film was good", "", "a story " * 90, "well"]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(detect_module, "_LINES_AT_ONCE", 2)
    assert main(["detect", str(model / "discriminator"), "--file", str(tmp_path / "lines.txt")]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["text"] for record in records] == lines
    for line, record in zip(lines, records, strict=True):
        alone = as_json(line, detect(model / "discriminator", [line])[0])["tokens"]
        assert [token["token"] for token in record["tokens"]] == [token["token"] for token in alone]
        found = [token["probability"] for token in record["tokens"]]
        assert found == pytest.approx([token["probability"] for token in alone], abs=1e-5)
    assert main(["detect", str(model / "discriminator")]) == 2
    assert "either a TEXT in quotes or --file" in capsys.readouterr().err
    assert main(["detect", str(model / "discriminator"), "--file", str(tmp_path / "none.txt")]) == 2
    assert "none.txt: no such file" in capsys.readouterr().err


@pytest.mark.parametrize(("count", "size"), [(0, 10), (5, 10), (10, 10), (11, 10), (37, 10), (100, 18), (101, 3)])
def test_windows_count_every_token_once(count, size):
    seen = []
    for start, keep in _windows(count, size):
        assert 0 <= keep.start <= keep.stop <= size
        seen += range(start + keep.start, start + keep.stop)
    assert seen == list(range(count))


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
