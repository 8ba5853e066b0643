"""A label for each word: column files and lists, windows, span F1 beside seqeval, fine-tuning and what it writes."""

import dataclasses
import itertools
import json
import random

import numpy as np
import pytest
from seqeval.metrics import classification_report, precision_score
from seqeval.metrics.sequence_labeling import get_entities
from transformers import AutoTokenizer, pipeline

from conftest import sentences
from electra import cli
from electra.config_finetune import TaggingConfig
from electra.data.tokenizer import train_tokenizer
from electra.errors import UserError
from electra.evaluate.conll import Sentence, as_conll, read_sentences
from electra.evaluate.spans import Counts, are_spans, spans
from electra.evaluate.split_files import train_and_dev
from electra.evaluate.tagging import encode_sentences, finetune_tagging, tag_scores
from electra.evaluate.windows import most_context, windows_by_size, windows_by_step

# ----------------------------------------------------------------------------------------------------------------- spans


def test_spans_of_the_usual_schemes():
    assert spans(["B-PER", "I-PER", "O", "B-LOC"]) == [("PER", 0, 2), ("LOC", 3, 4)]
    assert spans(["B-X", "B-X", "I-X"]) == [("X", 0, 1), ("X", 1, 3)]  # IOB2: neighbours
    assert spans(["I-X", "I-X", "B-X", "I-Y"]) == [("X", 0, 2), ("X", 2, 3), ("Y", 3, 4)]  # IOB1
    assert spans(["B-X", "I-X", "E-X", "S-X"]) == [("X", 0, 3), ("X", 3, 4)]  # IOBES
    assert spans(["B-X", "I-X", "L-X", "U-X", "O"]) == [("X", 0, 3), ("X", 3, 4)]  # BILOU
    assert spans(["O", "O"]) == []


def test_spans_and_scores_are_those_of_seqeval():
    draw = random.Random(0)
    labels = ["O", *(f"{position}-{kind}" for position in "BIES" for kind in ("A", "B-C"))]
    gold = [[draw.choice(labels) for _ in range(draw.randrange(1, 9))] for _ in range(500)]
    said = [[label if draw.random() < 0.7 else draw.choice(labels) for label in sentence] for sentence in gold]
    for sentence in said:
        assert spans(sentence) == [(kind, start, end + 1) for kind, start, end in get_entities(sentence)]
    counts = Counts(gold, said)
    report = classification_report(gold, said, output_dict=True)
    assert counts.scores()["f1"] == pytest.approx(report["micro avg"]["f1-score"])
    assert counts.scores()["precision"] == pytest.approx(precision_score(gold, said))
    for kind in ("A", "B-C"):
        found = counts.by_kind()[kind]
        theirs = report[kind]
        assert found == pytest.approx(
            {"f1": theirs["f1-score"], **{name: theirs[name] for name in ("precision", "recall", "support")}}
        )


def test_parts_of_speech_mark_no_spans():
    assert not are_spans(["NN", "VB", "O"])
    assert not are_spans(["O"])
    assert are_spans(["O", "B-NP", "I-NP"])
    assert tag_scores([["NN", "VB"]], [["NN", "NN"]]) == {"accuracy": 0.5}


# ----------------------------------------------------------------------------------------------------------------- files


def test_column_files_and_back(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(
        "\ufeff-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\r\n\n\n \nPeter\u2028x NNP B-PER", encoding="utf-8"
    )
    found = read_sentences(path)
    assert [sentence.words for sentence in found] == [["EU", "rejects"], ["Peter\u2028x"]]
    assert [sentence.labels for sentence in found] == [["B-ORG", "O"], ["B-PER"]]
    assert (
        as_conll(found, [["O", "O"], ["B-PER"]]) == "EU NNP B-ORG O\nrejects VBZ O O\n\nPeter\u2028x NNP B-PER B-PER\n"
    )
    assert read_sentences(path, label_column="1")[0].labels == ["NNP", "VBZ"]
    tabbed = tmp_path / "b.tsv"
    tabbed.write_text("New York\tB-LOC\n", encoding="utf-8")
    assert read_sentences(tabbed) == [Sentence(["New York"], ["B-LOC"], ["New York\tB-LOC"])]


def test_lists(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        json.dumps({"tokens": ["a", "b"], "labels": ["O", "B-X"]}) + "\n" + json.dumps({"tokens": [], "labels": []})
    )
    assert read_sentences(path) == [Sentence(["a", "b"], ["O", "B-X"], ["a\tO", "b\tB-X"])]
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"words": [["a", "b"]], "tags": [[0, 3]]}), path)
    assert read_sentences(path, token_column="words", label_column="tags")[0].labels == ["0", "3"]


@pytest.mark.parametrize(
    ("name", "content", "changes", "message"),
    [
        ("a.txt", "a O\nb\n", {}, "line 2 has 1 columns, the first one has 2"),
        ("a.txt", "a O\n", {"label_column": "4"}, r"line 1 has no column 4 \(label_column\); it has 2"),
        ("a.txt", "a\n", {}, "cannot be both words and labels"),
        ("a.txt", "a O\n", {"label_column": "tag"}, "label_column is 'tag': columns of a CoNLL file are numbers"),
        ("a.txt", "\n\n", {}, "holds no sentences"),
        ("a.jsonl", '{"tokens": ["a"]}', {}, "line 1 has no column 'labels'; it has 'tokens'; name yours with --label"),
        ("a.jsonl", '{"tokens": ["a"], "labels": []}', {}, "line 1 has 1 tokens and 0 labels"),
        ("a.jsonl", '{"tokens": ["a"], "labels": [null]}', {}, "column 'labels': entry 1 is not a label"),
        ("a.jsonl", '{"tokens": "a", "labels": []}', {}, "column 'tokens' is not a list"),
        ("a.jsonl", '{"tokens": ', {}, "line 1 is not JSON"),
    ],
)  # fmt: skip
def test_files_that_do_not_fit(tmp_path, name, content, changes, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        read_sentences(tmp_path / name, **changes)


def test_files_that_are_no_text_or_not_there(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a O\n\xff O\n")
    with pytest.raises(UserError, match="line 2 is not UTF-8"):
        read_sentences(tmp_path / "a.txt")
    with pytest.raises(UserError, match="no such file"):
        read_sentences(tmp_path / "b.txt")


def test_the_files_of_a_folder(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        train_and_dev(tmp_path / "x", None, None)
    with pytest.raises(UserError, match="no file has 'train' in its name"):
        train_and_dev(tmp_path, None, None)
    for name in ("eng.train", "eng.testa", "eng.testb"):
        (tmp_path / name).touch()
    assert train_and_dev(tmp_path, None, None) == (tmp_path / "eng.train", tmp_path / "eng.testa")
    (tmp_path / "train-v1.json").touch()
    with pytest.raises(UserError, match="choose one with --train-file"):
        train_and_dev(tmp_path, None, None)
    assert train_and_dev(None, tmp_path / "a", None) == (tmp_path / "a", None)


# --------------------------------------------------------------------------------------------------------------- windows


def test_windows_by_step_leave_nothing_out():
    assert windows_by_step(10, 4, 3) == [(0, 4), (3, 7), (6, 10)]
    assert windows_by_step(9, 4, 8) == [(0, 4), (4, 8), (8, 9)]
    assert windows_by_step(3, 4, 1) == [(0, 3)]


def test_most_context_is_the_reference_s():
    """The example of the reference: `bought` belongs to the window "and bought a gallon of"."""
    windows = [(0, 5), (3, 8), (6, 11)]
    # the man went to the | to the store and bought | and bought a gallon of
    assert most_context(windows, 11).tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2]


def test_windows_by_size_overlap_and_cover_everything():
    draw = random.Random(0)
    for _ in range(200):
        room = draw.randrange(3, 20)
        sizes = [draw.randrange(1, room + 1) for _ in range(draw.randrange(1, 60))]
        windows = windows_by_size(sizes, room)
        assert windows[0][0] == 0
        assert windows[-1][1] == len(sizes)
        for (start, end), (following, last) in itertools.pairwise(windows):
            assert start < following <= end < last
            assert sum(sizes[following:end]) <= room // 2
        assert all(sum(sizes[start:end]) <= room for start, end in windows)
    assert windows_by_size([1] * 10, 4) == [(0, 4), (2, 6), (4, 8), (6, 10)]


def test_every_word_is_answered_for_once_at_its_first_piece():
    tokenizer = train_tokenizer(["the chef cooked the meal and ate it"] * 5, 60)
    words = ["the", "cooked", "\u200b\x07", "chefmealchefmealchefmealchefmeal", "", "meal", *["ate"] * 30, "it"]
    found = encode_sentences([words, ["the"]], tokenizer, 12)
    assert len(found.texts) > 3
    assert all(len(row) <= 12 for row in found.texts.ids)
    assert sorted(np.concatenate(found.words).tolist()) == list(range(len(words) + 1))
    firsts = {}
    for row, numbers, at in zip(found.texts.ids, found.words, found.first_pieces, strict=True):
        assert row[0] == tokenizer.cls_token_id
        assert row[-1] == tokenizer.sep_token_id
        firsts |= {number: row[place] for number, place in zip(numbers, at, strict=True)}
    for number, word in enumerate([*words, "the"]):
        ids = tokenizer(word, add_special_tokens=False)["input_ids"] or [tokenizer.unk_token_id]
        assert firsts[number] == ids[0]


# ----------------------------------------------------------------------------------------------------------- fine-tuning

LABELS = {
    "chef": "B-PERSON",
    "cook": "B-PERSON",
    "meal": "B-FOOD",
    "soup": "B-FOOD",
    "ate": "I-PERSON",
    "sold": "I-FOOD",
}


def write_task(path, count, seed):
    """A label is a matter of its word, whatever spans that makes; one sentence is longer than a window."""
    lines = [*sentences(count, seed), " ".join(sentences(12, seed))]
    blocks = ["\n".join(f"{word} X {LABELS.get(word, 'O')}" for word in line.split()) for line in lines]
    path.write_text("\n\n".join(blocks) + "\n")


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    path = tmp_path_factory.mktemp("tagging")
    write_task(path / "train.txt", 80, 0)
    write_task(path / "dev.txt", 30, 1)
    return path


def settings(task, out, **changes):
    base = TaggingConfig(
        data=task, out=out, num_epochs=8, batch_size=4, max_length=32, peak_learning_rate=1e-2, layer_decay=1.0
    )
    return dataclasses.replace(base, **changes)


def test_learns_writes_and_is_loaded_by_a_pipeline(exported, task, tmp_path):
    config = settings(task, tmp_path / "out", seeds=2)
    result = finetune_tagging(exported / "discriminator", config, quiet=True)
    assert result["f1"]["median"] > 0.85
    assert result["f1"]["runs"] == 2
    assert result["labels"] == ["O", "B-FOOD", "B-PERSON", "I-FOOD", "I-PERSON"]
    assert set(result["files"]) == {str(task / "train.txt"), str(task / "dev.txt")}
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == result
    # The file has as many lines as the dev file, each with one label more, and its score is the best run's.
    dev = read_sentences(task / "dev.txt")
    written = read_sentences(tmp_path / "out" / "predictions.conll")
    assert [sentence.words for sentence in written] == [sentence.words for sentence in dev]
    predicted = [sentence.labels for sentence in written]
    gold = [sentence.labels for sentence in read_sentences(tmp_path / "out" / "predictions.conll", label_column="2")]
    assert gold == [sentence.labels for sentence in dev]
    assert tag_scores(gold, predicted)["f1"] == pytest.approx(max(run["f1"] for run in result["runs"]))
    # What transformers makes of the written model is the same, sentence by sentence.
    tag = pipeline("token-classification", str(tmp_path / "out" / "model"), device=-1)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out" / "model")
    for sentence in written[:5]:
        encoded = tokenizer(" ".join(sentence.words))
        pieces = {entry["index"]: entry["entity"] for entry in tag(" ".join(sentence.words), ignore_labels=[])}
        first = {}
        for place, word in enumerate(encoded.word_ids()):
            if word is not None:
                first.setdefault(word, place)
        assert [pieces[place] for place in first.values()] == sentence.labels
    assert finetune_tagging(exported / "discriminator", config, quiet=True) == result  # answered from what is there


def test_the_command_and_parts_of_speech(exported, tmp_path, capsys):
    draw = random.Random(0)
    rows = [{"words": ["the", draw.choice(["chef", "king"]), "ate"], "pos": ["DT", "NN", "VB"]} for _ in range(20)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = [
        "finetune",
        str(exported / "discriminator"),
        "--task",
        "tagging",
        "--train-file",
        str(tmp_path / "a.jsonl"),
    ]
    words += ["--token-column", "words", "--label-column", "pos", "--out", str(tmp_path / "out"), "--max-length", "32"]
    assert cli.main([*words, "--dev-file", str(tmp_path / "a.jsonl")]) == 0
    assert "accuracy" in capsys.readouterr().out
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert (result["task"], result["main_metric"]) == ("a", "accuracy")
    assert "f1" not in result
    assert cli.main(["finetune", "model", "--task", "ner"]) == 2
    assert "give --data DIR or --train-file FILE" in capsys.readouterr().err


def test_labels_of_another_column_are_refused(exported, task, tmp_path):
    with pytest.raises(UserError, match="most of its labels, such as 'X', are not in"):
        finetune_tagging(
            exported / "discriminator", settings(task, tmp_path / "out", dev_file=_only_x(tmp_path)), quiet=True
        )
    with pytest.raises(UserError, match="has the single label 'X'"):
        finetune_tagging(exported / "discriminator", settings(task, tmp_path / "out", label_column="1"), quiet=True)


def _only_x(path):
    (path / "x.txt").write_text("the B-FOOD X\nchef O X\n")
    return path / "x.txt"
