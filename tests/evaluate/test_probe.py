"""Frozen features against plain `transformers`, the questions made of text, and what is said of a run that goes wrong."""

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from conftest import small_model
from electra.cli import main
from electra.config import OptimizerConfig, PretrainConfig
from electra.data.shards import TokenStore
from electra.data.tokenizer import SpecialIds, load_tokenizer
from electra.errors import UserError
from electra.evaluate.probe import features, probe, remarks
from electra.evaluate.probe_data import Question, from_text, questions
from electra.evaluate.suites import evaluate
from electra.evaluate.words import Pieces
from electra.model.hf import load_encoder
from electra.presets import small
from electra.train.loop import pretrain


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """Reviews whose label one word decides."""
    path = tmp_path_factory.mktemp("labelled") / "reviews.csv"
    draw = np.random.Generator(np.random.Philox(0))
    words = {"good": ["lovely", "fine", "great"], "bad": ["awful", "poor", "weak"]}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["review", "second", "mood"])
        for index in range(120):
            mood = ["good", "bad"][index % 2]
            writer.writerow([f"the film was {words[mood][draw.integers(3)]}, well", "a story", mood])
    return path


def question_of(rows, answers, types=None):
    fitted = np.arange(len(rows)) % 2 == 0
    return Question("q", rows, types, np.array(answers), fitted)


def test_features_are_the_hidden_states_of_transformers(exported):
    loaded = load_encoder(exported / "discriminator")
    tokenizer = AutoTokenizer.from_pretrained(exported / "discriminator")
    texts = ["a lovely film", "the story was awful, well", "it", "a poor weak story"]
    encoded = tokenizer(texts)["input_ids"]
    found = features(loaded.encoder, question_of(encoded, [0, 0, 1, 1]), tokenizer.pad_token_id, torch.device("cpu"))
    model = AutoModel.from_pretrained(exported / "discriminator").eval()
    assert len(found) == 2 * (loaded.config.num_layers + 1)
    for row, ids in enumerate(encoded):
        with torch.no_grad():
            states = model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
        for layer, state in enumerate(states):
            if (
                state.shape[-1] == loaded.config.hidden_size
            ):  # of a classic one, transformers' first is not projected yet
                assert found[f"layer {layer}, first"][row] == pytest.approx(state[0, 0].numpy(), abs=1e-5)
                assert found[f"layer {layer}, mean"][row] == pytest.approx(state[0].mean(dim=0).numpy(), abs=1e-5)


def test_an_easy_question_is_answered_and_a_random_one_is_not(exported):
    loaded = load_encoder(exported / "discriminator")
    draw = np.random.Generator(np.random.Philox(1))
    answers = draw.integers(2, size=200)
    easy = question_of([[2, 6 + int(answer), 8, 9, 3] for answer in answers], answers)
    noise = question_of([[2, *draw.integers(6, 60, 6).tolist(), 3] for _ in answers], answers)
    accuracies = probe(loaded.encoder, [easy], 0, torch.device("cpu"))["q"]
    assert accuracies["layer 0, mean"] == 1.0
    assert accuracies["layer 0, first"] == pytest.approx(easy.chance)  # [CLS] is the same everywhere
    assert max(probe(loaded.encoder, [noise], 0, torch.device("cpu"))["q"].values()) < 0.7


def test_questions_of_a_text(store):
    opened = TokenStore.open(store)
    pieces = Pieces.of(load_tokenizer(opened.tokenizer_dir))
    found = from_text(opened, pieces, 200, np.random.Generator(np.random.Philox(0)))
    [order] = [question for question in found if question.name == "word-order"]
    assert len(order.rows) == 200
    assert order.fitted.sum() == 100
    assert 0.35 < order.answers.mean() < 0.65
    text = " ".join(map(str, opened.tokens[opened.tokens != opened.special.sep].tolist()))
    for row, swapped in zip(order.rows, order.answers, strict=True):
        assert (row[0], row[-1]) == (opened.special.cls, opened.special.sep)
        assert (" ".join(map(str, row[1:-1])) in text) == (not swapped)


def test_word_content_asks_for_one_of_the_middling_words():
    """A text of made-up ids: 4 commonest words, and 40 others of which a passage holds a few."""
    draw = np.random.Generator(np.random.Philox(2))
    tokens = np.where(draw.random(40_000) < 0.97, draw.integers(5, 9, 40_000), draw.integers(9, 49, 40_000))
    special = {"special_ids": dataclasses.asdict(SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4))}
    made_up = TokenStore(Path("made-up"), special, tokens, np.array([0]), np.array([0]))
    pieces = Pieces(np.zeros(49, dtype=bool), np.arange(49) > 4)
    _, content = from_text(made_up, pieces, 400, np.random.Generator(np.random.Philox(0)))
    assert content.name == "word-content"
    counts = np.bincount(content.answers)
    assert len(counts) == 20
    assert 10 < counts.min() <= counts.max() <= 20  # about as many of each word
    words_of = {}
    for row, answer in zip(content.rows, content.answers.tolist(), strict=True):
        words_of.setdefault(answer, set(range(9, 49))).intersection_update(row)
    assert [len(words) for words in words_of.values()] == [1] * 20  # the word that is in all passages of an answer
    asked = set().union(*words_of.values())
    assert all(len(asked & set(row)) == 1 for row in content.rows)


def test_a_labelled_file_and_a_model(exported, labelled, tmp_path, capsys):
    words = ["evaluate", str(exported), "--suite", "probe", "--data", str(labelled), "--text-column", "review"]
    words += ["--label-column", "mood", "--json", str(tmp_path / "r.json"), "--png", str(tmp_path / "r.png")]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "as given" in shown
    assert "guessing" in shown
    result = json.loads((tmp_path / "r.json").read_text())
    [point] = result["scores"]["points"]
    assert point["accuracies"]["reviews"]["layer 0, mean"] > 0.9
    assert result["scores"]["scored_texts"] == {"reviews": 60}
    assert result["settings"]["label_column"] == "mood"
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    again = evaluate(exported, "probe", labelled, text_column="review", label_column="mood", quiet=True)
    assert again["scores"] == result["scores"]


def test_pairs_have_segments_where_the_encoder_knows_them(exported, labelled):
    tokenizer = load_tokenizer(exported / "tokenizer")
    columns = {"text_column": "review", "text_pair_column": "second", "label_column": "mood"}
    [question], _ = questions(labelled, tokenizer, **columns)
    [plain], _ = questions(labelled, tokenizer, has_types=False, **columns)
    assert plain.types is None
    assert plain.rows == question.rows
    for ids, types in zip(question.rows, question.types, strict=True):
        assert ids.count(tokenizer.sep_token_id) == 2
        assert types == [0] * (ids.index(tokenizer.sep_token_id) + 1) + [1] * sum(types)


def test_mistakes_are_named(exported, labelled, tmp_path):
    tokenizer = load_tokenizer(exported / "tokenizer")
    with pytest.raises(UserError, match="has no column 'text'; it has 'review', 'second', 'mood'"):
        questions(labelled, tokenizer)
    with pytest.raises(UserError, match="2 texts are too few"):
        questions(labelled, tokenizer, text_column="review", label_column="mood", limit=2)
    with pytest.raises(UserError, match="no such file"):
        questions(tmp_path / "missing.csv", tokenizer)
    with pytest.raises(UserError, match="limit is 0: it must be at least 1"):
        evaluate(exported, "probe", labelled, limit=0)


def test_every_checkpoint_of_a_run(store, tmp_path, capsys):
    config = PretrainConfig(
        run_dir=tmp_path / "run",
        data=dataclasses.replace(small().data, store=store, length=16),
        model=small_model("modern"),
        optimizer=OptimizerConfig(warmup_steps=2),
        train=dataclasses.replace(small().train, num_steps=6, batch_size=8, save_every=3, keep_checkpoints=9),
    )
    pretrain(config, quiet=True)
    result = evaluate(config.run_dir, "probe", store, limit=100, quiet=True)
    points = result["scores"]["points"]
    assert [point["step"] for point in points] == [0, 3, 6]
    assert points[0]["accuracies"] != points[2]["accuracies"]
    assert [path.split("/")[-2] for path in result["model_sha256"]] == ["step-3", "step-6"]
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.yaml").write_text((config.run_dir / "config.yaml").read_text())
    (tmp_path / "new" / "tokenizer").symlink_to(config.run_dir / "tokenizer")
    with pytest.raises(UserError, match="no whole checkpoint yet"):
        evaluate(tmp_path / "new", "probe", store, quiet=True)


def test_what_is_said_of_a_run():
    question = Question("q", [[1]] * 2000, None, np.arange(2000) % 2, np.arange(2000) < 1000)
    identity = dataclasses.replace(question, beats_random=False)

    def points(*values):
        return [{"step": 100 * i, "accuracies": {"q": {"layer 0, mean": v}}} for i, v in enumerate(values)]

    assert remarks(points(0.5, 0.6, 0.7), [question]) == []
    assert remarks(points(0.7), [question]) == []
    assert remarks(points(0.5, 0.7, 0.52), [question]) == ["q: fell from 0.700 at step 100 to 0.520 at step 200"]
    assert remarks(points(0.5, 0.7, 0.69), [question]) == []  # chance explains it
    [said] = remarks(points(0.5, 0.51), [question])
    assert said == "q: 0.510 at step 100 is no better than the 0.500 of random weights"
    assert remarks(points(0.8, 0.7, 0.71), [identity]) == []
    assert remarks(points(0.8, 0.51), [identity]) == ["q: 0.510 at step 100 is no better than the 0.500 of guessing"]


def test_features_that_are_not_numbers_are_named(exported):
    encoder = load_encoder(exported / "discriminator").encoder
    with torch.no_grad():
        encoder.blocks[0].attention.out.weight.fill_(float("nan"))
    question = question_of([[2, 6, 3], [2, 7, 3]] * 4, [0, 1, 1, 0] * 2)
    with pytest.raises(UserError, match="training diverged"):
        probe(encoder, [question], 0, torch.device("cpu"))
