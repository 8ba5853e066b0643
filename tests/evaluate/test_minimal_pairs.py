"""Minimal pairs: the score by hand, ties, means over paradigms, every form of file, every mistake, and the curve of a run."""

import dataclasses
import gzip
import json
import math
import tarfile

import pytest
import torch
from transformers import AutoTokenizer

from conftest import OBJECTS, SUBJECTS, VERBS, small_model
from electra.cli import main
from electra.config import OptimizerConfig, PretrainConfig
from electra.errors import UserError
from electra.evaluate.curve import curve
from electra.evaluate.minimal_pairs import MinimalPair, naturalness, read_pairs, score_pairs
from electra.evaluate.suites import evaluate
from electra.model.heads import ReplacedTokenHead
from electra.presets import small
from electra.train.export import load_run
from electra.train.loop import pretrain

GOOD, BAD = "the chef cooked the soup .", "the the cooked chef soup ."


@pytest.fixture(scope="module")
def run(store, tmp_path_factory):
    """A run of 12 steps with three checkpoints."""
    config = PretrainConfig(
        run_dir=tmp_path_factory.mktemp("pairs") / "run",
        data=dataclasses.replace(small().data, store=store, length=16),
        model=small_model("modern"),
        optimizer=OptimizerConfig(warmup_steps=2),
        train=dataclasses.replace(small().train, num_steps=12, batch_size=8, save_every=4, keep_checkpoints=9),
    )
    pretrain(config, quiet=True)
    return config.run_dir


@pytest.fixture
def pairs_file(tmp_path):
    path = tmp_path / "pairs.jsonl"
    records = [
        {"sentence_good": GOOD, "sentence_bad": BAD, "UID": "order", "linguistics_term": "syntax"},
        {
            "sentence_good": "the king ate .",
            "sentence_bad": "king the ate .",
            "UID": "order",
            "linguistics_term": "syntax",
        },
        {"sentence_good": GOOD, "sentence_bad": GOOD, "UID": "same", "linguistics_term": "none"},
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


class Oracle(torch.nn.Module):
    """A network whose logit says replaced at the ids it is told, wherever they stand."""

    def __init__(self, bad_ids):
        super().__init__()
        self.bad_ids, self.config = torch.tensor(bad_ids), type("Config", (), {"blocks": "modern"})

    def forward(self, ids, mask):
        return torch.isin(ids, self.bad_ids).float() * 4.0 - 2.0


def test_score_is_the_sum_over_inner_tokens(run):
    pair, _ = load_run(run)
    tokenizer = AutoTokenizer.from_pretrained(run / "tokenizer")
    ids = tokenizer(GOOD, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = pair.discriminator_head(pair.discriminator(ids))[0, 1:-1].double()
    expected = sum(math.log(1.0 - torch.sigmoid(x).item()) for x in logits)
    alone = naturalness(pair.discriminator, pair.discriminator_head, tokenizer, [GOOD])
    padded = naturalness(
        pair.discriminator, pair.discriminator_head, tokenizer, [GOOD, GOOD + " " + GOOD, "the king ."]
    )
    assert alone[0] == pytest.approx(expected, rel=1e-5)
    assert padded[0] == pytest.approx(expected, rel=1e-5)


def test_accuracy_ties_and_means(run):
    tokenizer = AutoTokenizer.from_pretrained(run / "tokenizer")
    marked, one, two = [word for word in (*SUBJECTS, *OBJECTS, *VERBS) if len(tokenizer.tokenize(word)) == 1][:3]
    oracle = Oracle([tokenizer.convert_tokens_to_ids(marked)])
    pairs = [
        MinimalPair(f"the {one}", f"the {marked}", "a", "x"),
        MinimalPair(f"the {marked}", f"the {one}", "a", "x"),
        MinimalPair(f"the {one}", f"the {two}", "a", "x"),  # a tie
        MinimalPair(f"the {two}", f"{marked} {two}", "b", "x"),
        MinimalPair(f"{marked} the", f"{one} the", "c", "y"),
    ]
    scores = score_pairs(oracle, torch.nn.Identity(), tokenizer, pairs)
    assert scores.paradigms == {"a": 0.5, "b": 1.0, "c": 0.0}
    assert scores.phenomena == {"x": 0.75, "y": 0.0}
    assert scores.overall == pytest.approx(0.5)
    assert scores.num_pairs == 5


def test_files_directories_and_archives_give_the_same(pairs_file, tmp_path):
    pairs, digest = read_pairs(pairs_file)
    assert [pair.paradigm for pair in pairs] == ["order", "order", "same"]
    assert pairs[0] == MinimalPair(GOOD, BAD, "order", "syntax")
    folder = tmp_path / "folder" / "inner"
    folder.mkdir(parents=True)
    with gzip.open(folder / "pairs.jsonl.gz", "wt") as file:
        file.write(pairs_file.read_text())
    with tarfile.open(tmp_path / "pairs.tar.xz", "w:xz") as archive:
        archive.add(pairs_file, "blimp/pairs.jsonl")
    for path in (tmp_path / "folder", tmp_path / "pairs.tar.xz"):
        assert read_pairs(path) == (pairs, digest)
    assert len(read_pairs(pairs_file, limit=1)[0]) == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{oops\n", "line 1: not JSON"),
        ('\n{"sentence_good": "a"}\n', "line 2: has no text 'sentence_bad'"),
        ("[1]\n", "has no text 'sentence_good'"),
        ("\n", "holds no minimal pairs"),
    ],
)
def test_mistakes_are_named(tmp_path, text, complaint):
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(UserError, match=complaint):
        read_pairs(tmp_path / "x.jsonl")
    (tmp_path / "broken.tar").write_bytes(b"no archive")
    with pytest.raises(UserError, match="damaged"):
        read_pairs(tmp_path / "broken.tar")
    with pytest.raises(UserError, match="no such file"):
        read_pairs(tmp_path / "missing")


def test_the_suites_from_python_and_from_the_command_line(run, store, pairs_file, tmp_path, capsys):
    result = evaluate(run, "minimal-pairs", pairs_file, quiet=True)
    assert 0.0 <= result["scores"]["overall"] <= 1.0
    assert result["scores"]["paradigms"]["same"] == 0.5
    words = [
        "evaluate",
        str(run),
        "--suite",
        "minimal-pairs",
        "--data",
        str(pairs_file),
        "--out",
        str(tmp_path / "r.json"),
    ]
    assert main(words) == 0
    assert "overall" in capsys.readouterr().out
    assert json.loads((tmp_path / "r.json").read_text())["scores"] == result["scores"]
    assert main(["evaluate", str(run), "--suite", "pretraining", "--data", str(store)]) == 0
    assert "generator loss" in capsys.readouterr().out


def test_the_curve_of_a_run(run, store, pairs_file):
    said = []
    points = curve(run, store, pairs_file, say=said.append)
    assert [point["step"] for point in points] == [4, 8, 12]
    assert [point["minutes"] for point in points] == sorted(point["minutes"] for point in points)
    assert all(0.0 <= point["minimal_pairs"] <= 1.0 and point["generator_loss"] > 0.0 for point in points)
    assert len(said) == 3
    again = curve(run, store, pairs_file, say=said.append)
    assert (again, len(said)) == (points, 3)  # nothing was scored anew
    assert "minimal_pairs" not in curve(run, store)[0]


def test_head_and_encoder_keep_their_mode(run):
    pair, _ = load_run(run)
    pair.train()
    naturalness(pair.discriminator, pair.discriminator_head, AutoTokenizer.from_pretrained(run / "tokenizer"), [GOOD])
    assert pair.discriminator.training
    assert isinstance(pair.discriminator_head, ReplacedTokenHead)
    assert pair.discriminator_head.training
