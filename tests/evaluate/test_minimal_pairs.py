"""Minimal pairs: the score by hand, ties, means over paradigms, every form of file, every mistake, and the curve of a run."""

import dataclasses
import gzip
import json
import math
import tarfile

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from conftest import OBJECTS, SUBJECTS, VERBS, sentences, small_model
from electra.cli import main
from electra.config import OptimizerConfig, PretrainConfig
from electra.data.prepare import prepare
from electra.data.shards import TokenStore
from electra.errors import UserError
from electra.evaluate.curve import Ruler, curve
from electra.evaluate.minimal_pairs import MinimalPair, read_pairs, score_pairs
from electra.evaluate.sentence_scores import Discriminator, naturalness
from electra.evaluate.suites import evaluate
from electra.model.pair import Pair
from electra.presets import small
from electra.train.checkpoint import load_run
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
        {"sentence_good": GOOD, "sentence_bad": BAD, "UID": "order", "linguistics_term": "syntax", "field": "a/b"},
        {
            "sentence_good": "the king ate .",
            "sentence_bad": "king the ate .",
            "UID": "order",
            "linguistics_term": "syntax",
            "field": "a/b",
        },
        {"sentence_good": GOOD, "sentence_bad": GOOD, "UID": "same", "linguistics_term": "none"},
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


class Oracle(torch.nn.Module):
    """A network whose logit says replaced at the ids it is told, wherever they stand."""

    def __init__(self, bad_ids):
        super().__init__()
        self.bad_ids = torch.tensor(bad_ids)

    def forward(self, ids):
        return torch.isin(ids, self.bad_ids).float() * 4.0 - 2.0


def test_score_is_the_sum_over_inner_tokens(run):
    pair, _ = load_run(run)
    tokenizer = AutoTokenizer.from_pretrained(run / "tokenizer")
    ids = tokenizer(GOOD, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = pair.discriminator_head(pair.discriminator(ids))[0, 1:-1].double()
    expected = sum(math.log(1.0 - torch.sigmoid(x).item()) for x in logits)
    network = Discriminator(pair.discriminator, pair.discriminator_head)
    alone = naturalness(network, tokenizer, [GOOD])
    among_others = naturalness(network, tokenizer, [GOOD, GOOD + " " + GOOD, "the king ."])
    assert alone[0] == pytest.approx(expected, rel=1e-5)
    assert among_others[0] == pytest.approx(expected, rel=1e-5)


def test_accuracy_ties_and_means(run):
    tokenizer = AutoTokenizer.from_pretrained(run / "tokenizer")
    marked, one, two = [word for word in (*SUBJECTS, *OBJECTS, *VERBS) if len(tokenizer.tokenize(word)) == 1][:3]
    oracle = Oracle([tokenizer.convert_tokens_to_ids(marked)])
    pairs = [
        MinimalPair(f"the {one}", f"the {marked}", "a", "x"),
        MinimalPair(f"the {marked}", f"the {one}", "a", "x"),
        MinimalPair(f"the {one}", f"the {two}", "a", "x"),  # a tie
        MinimalPair(f"the {two}", f"{marked} {two}", "b", "x", "f"),
        MinimalPair(f"{marked} the", f"{one} the", "c", "y", "g"),
    ]
    scores = score_pairs(oracle, tokenizer, pairs)
    assert scores.paradigms == {"a": 0.5, "b": 1.0, "c": 0.0}
    assert scores.phenomena == {"x": 0.75, "y": 0.0}
    assert scores.fields == {"f": 1.0, "g": 0.0}
    assert scores.overall == pytest.approx(0.5)
    assert (scores.num_pairs, scores.num_ties) == (5, 1)


def test_files_directories_and_archives_give_the_same(pairs_file, tmp_path):
    pairs, digest = read_pairs(pairs_file)
    assert [pair.paradigm for pair in pairs] == ["order", "order", "same"]
    assert pairs[0] == MinimalPair(GOOD, BAD, "order", "syntax", "a_b")
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
        ('{"sentence_good": " ", "sentence_bad": "a"}\n', "line 1: has no text 'sentence_good'"),
        ("\n", "holds no minimal pairs"),
    ],
)
def test_mistakes_are_named(tmp_path, text, complaint):
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(UserError, match=complaint):
        read_pairs(tmp_path / "x.jsonl")
    with pytest.raises(UserError, match="no such file"):
        read_pairs(tmp_path / "missing")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UserError, match=r"holds no \.jsonl file"):
        read_pairs(tmp_path / "nothing")


@pytest.mark.parametrize("ending", ["tar", "tar.gz", "tar.xz"])
def test_damaged_archives_are_named(tmp_path, ending):
    content = tmp_path / "pairs.jsonl"
    lines = (
        json.dumps({"sentence_good": f"{line} {i}", "sentence_bad": "b"}) for i, line in enumerate(sentences(3000))
    )
    content.write_text("\n".join(lines))
    mode = "w:" + ending.partition(".")[2]
    with tarfile.open(tmp_path / f"whole.{ending}", mode) as archive:
        archive.add(content, "pairs.jsonl")
    whole = (tmp_path / f"whole.{ending}").read_bytes()
    assert len(read_pairs(tmp_path / f"whole.{ending}")[0]) == 3000
    (tmp_path / f"cut.{ending}").write_bytes(whole[: len(whole) // 2])
    (tmp_path / f"none.{ending}").write_bytes(b"no archive")
    content.write_bytes(b'{"sentence_good": "caf\xe9"}')
    with tarfile.open(tmp_path / f"latin.{ending}", mode) as archive:
        archive.add(content, "pairs.jsonl")
    for name in ("cut", "none", "latin"):
        with pytest.raises(UserError, match=f"{name}.{ending}: damaged"):
            read_pairs(tmp_path / f"{name}.{ending}")


def test_the_hash_of_the_pairs_does_not_depend_on_the_order_of_files(tmp_path):
    for name, good in (("a", GOOD), ("b", "the king ate .")):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"sentence_good": good, "sentence_bad": BAD}))
    with tarfile.open(tmp_path / "pairs.tar", "w") as archive:
        for name in ("b", "a"):
            archive.add(tmp_path / f"{name}.jsonl", f"{name}.jsonl")
    (pairs, digest), (same_pairs, same) = read_pairs(tmp_path), read_pairs(tmp_path / "pairs.tar")
    assert [pair.paradigm for pair in pairs] == ["a", "b"]
    assert [pair.paradigm for pair in same_pairs] == ["b", "a"]
    assert digest == same
    assert digest != read_pairs(tmp_path / "a.jsonl")[1]


def test_another_scorer_is_another_function(run):
    pairs = [MinimalPair("a b c", "a", "p", "q"), MinimalPair("a", "a b", "r", "q")]
    scores = score_pairs(
        torch.nn.Identity(),
        None,
        pairs,
        scorer=lambda network, tokenizer, texts, progress: np.array([*map(len, texts)]),
    )
    assert scores.paradigms == {"p": 1.0, "r": 0.0}


def test_a_sentence_that_the_position_table_does_not_hold_is_named(run):
    tokenizer = AutoTokenizer.from_pretrained(run / "tokenizer")
    model = small_model("classic")
    encoder = dataclasses.replace(model.discriminator, vocab_size=len(tokenizer))
    pair = Pair(dataclasses.replace(model, discriminator=encoder))
    network = Discriminator(pair.discriminator, pair.discriminator_head)
    with pytest.raises(UserError, match=r"that starts 'the the the .*' has 82 tokens, the model takes 64"):
        naturalness(network, tokenizer, [GOOD, "the " * 80])


def test_the_suites_from_python_and_from_the_command_line(run, store, pairs_file, tmp_path, capsys):
    result = evaluate(run, "minimal-pairs", pairs_file, quiet=True)
    assert set(result["versions"]) == {"electra", "torch", "transformers"}
    assert result["data_sha256"] == read_pairs(pairs_file)[1]
    assert list(result["scores"]["fields"]) == ["a_b"]
    assert 0.0 <= result["scores"]["overall"] <= 1.0
    assert result["scores"]["paradigms"]["same"] == 0.5
    words = [
        "evaluate",
        str(run),
        "--suite",
        "minimal-pairs",
        "--data",
        str(pairs_file),
        "--json",
        str(tmp_path / "r.json"),
    ]
    assert main(words) == 0
    assert "overall" in capsys.readouterr().out
    assert json.loads((tmp_path / "r.json").read_text())["scores"] == result["scores"]
    assert main(["evaluate", str(run), "--suite", "pretraining", "--data", str(store)]) == 0
    assert "generator loss" in capsys.readouterr().out


def test_the_curve_of_a_run(run, store, pairs_file):
    said = []
    ruler = Ruler.open(store, pairs_file)
    points = curve(run, ruler, say=said.append)
    assert [point["step"] for point in points] == [4, 8, 12]
    assert [point["minutes"] for point in points] == sorted(point["minutes"] for point in points)
    assert all(0.0 <= point["minimal_pairs"] <= 1.0 and point["generator_loss"] > 0.0 for point in points)
    assert len(said) == 3
    again = curve(run, ruler, say=said.append)
    assert (again, len(said)) == (points, 3)  # nothing was scored anew
    assert "minimal_pairs" not in curve(run, Ruler.open(store))[0]


def test_what_is_measured_does_not_depend_on_how_it_was_trained(run, store):
    """Other masks, rows and seeds in the settings would make other figures of the same weights."""
    pair, config = load_run(run)
    ruler = Ruler.open(store)
    other = dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, length=32),
        objective=dataclasses.replace(config.objective, mask_fraction=0.4, mask_share=0.5, discriminator_start=0.5),
        train=dataclasses.replace(config.train, seed=config.train.seed + 1),
    )
    assert ruler.measure(pair, other) == ruler.measure(pair, config)


def test_a_ruler_that_does_not_fit_is_refused(store, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(sentences(60)))
    prepare([text], tmp_path / "other", vocab_size=90, quiet=True)
    with pytest.raises(UserError, match="another tokenizer made it"):
        Ruler.open(tmp_path / "other").check(TokenStore.open(store))
    text.write_text("the chef ate .")
    prepare([text], tmp_path / "little", vocab=store / "tokenizer", quiet=True)
    with pytest.raises(UserError, match="too little text"):
        Ruler.open(tmp_path / "little")


def test_head_and_encoder_keep_their_mode(run):
    pair, _ = load_run(run)
    pair.train()
    pair.discriminator_head.eval()
    network = Discriminator(pair.discriminator, pair.discriminator_head)
    naturalness(network, AutoTokenizer.from_pretrained(run / "tokenizer"), [GOOD])
    assert pair.discriminator.training
    assert not pair.discriminator_head.training
