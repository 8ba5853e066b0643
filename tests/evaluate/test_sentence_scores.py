"""Sentence scores, value for value against plain `transformers` loops, and what is refused."""

import shutil

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer, ElectraConfig, ElectraForMaskedLM, ElectraModel

from electra.cli import main
from electra.errors import UserError
from electra.evaluate.minimal_pairs import MinimalPair, score_pairs
from electra.evaluate.sentence_scores import SCORERS, Discriminator, MaskedLM, naturalness, pseudo_log_likelihood
from electra.evaluate.suites import evaluate
from electra.model.hf import load_discriminator, load_generator

SENTENCES = [
    "a lovely film, well told",
    "the story was awful",
    "storytelling goodness, weakish films!",  # words of many pieces
    "it was",
    "film",
    "a lovely film, well told",
    "A  lovely film , well told",  # the same pieces
    "a poor weak bad awful film it was, the great fine good lovely story, well, it was a fine film",
]


@pytest.fixture(scope="module")
def masked_lm(exported, tmp_path_factory):
    """A generator whose blocks all do something (fresh modern ones start as the identity), saved by transformers."""
    directory = tmp_path_factory.mktemp("masked-lm")
    model = AutoModelForMaskedLM.from_pretrained(exported / "generator")
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(directory)
    AutoTokenizer.from_pretrained(exported / "generator").save_pretrained(directory)
    return directory


def plain_score(directory, sentence, within_word):
    """The definition, a sentence and a mask at a time."""
    tokenizer, model = AutoTokenizer.from_pretrained(directory), AutoModelForMaskedLM.from_pretrained(directory).eval()
    encoded = tokenizer(sentence, return_tensors="pt")
    words = encoded.word_ids()
    total = 0.0
    for at, word in enumerate(words):
        if word is None:  # [CLS] or [SEP]
            continue
        ids = encoded["input_ids"].clone()
        hidden = [other for other in range(at, len(words)) if words[other] == word] if within_word else [at]
        ids[0, hidden] = tokenizer.mask_token_id
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, at]
        total += torch.log_softmax(logits.double(), dim=-1)[encoded["input_ids"][0, at]].item()
    return total


@pytest.mark.parametrize("score", ["pll", "pll-within-word"])
def test_pseudo_log_likelihood_is_that_of_a_plain_loop(masked_lm, score):
    tokenizer = AutoTokenizer.from_pretrained(masked_lm)
    assert len(tokenizer.tokenize("storytelling")) > 3
    found = SCORERS[score](MaskedLM(*load_generator(masked_lm)), tokenizer, SENTENCES, lambda count: None)
    expected = [plain_score(masked_lm, sentence, score == "pll-within-word") for sentence in SENTENCES]
    assert found == pytest.approx(expected, rel=1e-5)
    assert found[0] == found[5] == found[6]  # to the last bit: ties


def test_the_two_likelihoods_differ_at_words_of_several_pieces_only(masked_lm):
    network = MaskedLM(*load_generator(masked_lm))
    tokenizer = AutoTokenizer.from_pretrained(masked_lm)
    whole, split = "good film", "goodness film"
    assert len(tokenizer.tokenize(whole)) == 2 < len(tokenizer.tokenize(split))
    plain, within = (
        pseudo_log_likelihood(network, tokenizer, [whole, split], within_word=kind) for kind in (False, True)
    )
    assert plain[0] == within[0]
    assert plain[1] != within[1]


def test_batches_do_not_change_the_scores(masked_lm, monkeypatch):
    network = MaskedLM(*load_generator(masked_lm))
    tokenizer = AutoTokenizer.from_pretrained(masked_lm)
    seen = []
    whole = pseudo_log_likelihood(network, tokenizer, SENTENCES, seen.append, within_word=True)
    monkeypatch.setattr("electra.evaluate.sentence_scores.tokens_at_once", lambda device: 7)
    parts = []
    in_parts = pseudo_log_likelihood(network, tokenizer, SENTENCES, parts.append, within_word=True)
    assert in_parts == pytest.approx(whole, rel=1e-6)
    assert sum(seen) == sum(parts) == len(SENTENCES)
    assert len(parts) == len(set(map(str.lower, SENTENCES))) - 1  # one for each different sentence


def test_ties_count_half_and_networks_are_left_as_they_were(masked_lm):
    network = MaskedLM(*load_generator(masked_lm)).train()
    tokenizer = AutoTokenizer.from_pretrained(masked_lm)
    pairs = [MinimalPair("A film", "a  film", "same", "none"), MinimalPair("a film", "film a", "order", "none")]
    scores = score_pairs(network, tokenizer, pairs, scorer=pseudo_log_likelihood)
    assert scores.paradigms["same"] == 0.5
    assert scores.num_ties == 1
    assert network.training
    assert network.encoder.training
    [only] = pseudo_log_likelihood(network, tokenizer, ["\u200d"])  # nothing is left of it
    assert only == 0.0


def pairs_file(directory):
    path = directory / "pairs.jsonl"
    path.write_text('{"sentence_good": "a fine film", "sentence_bad": "fine a film", "field": "syntax"}\n')
    return path


def test_the_score_goes_by_the_model_and_can_be_named(exported, tmp_path, capsys):
    data = pairs_file(tmp_path)
    found = {
        (place, score): evaluate(exported / place, "minimal-pairs", data, score=score, quiet=True)["scores"]["score"]
        for place, score in [
            ("", "auto"),
            ("", "pll"),
            ("discriminator", "auto"),
            ("generator", "auto"),
            ("generator", "pll-within-word"),
        ]
    }
    assert list(found.values()) == ["discriminator", "pll", "discriminator", "pll", "pll-within-word"]
    words = ["evaluate", str(exported), "--suite", "minimal-pairs", "--data", str(data)]
    assert main([*words, "--score", "pll"]) == 0
    shown = capsys.readouterr().out.split()
    assert {"pll", "syntax", "overall"} <= set(shown)
    assert main([*words, "--score", "perplexity"]) == 2
    assert "choose one of auto, discriminator, pll" in capsys.readouterr().err


def test_a_main_network_with_a_vocabulary_head_is_scored_as_a_masked_lm(exported, tmp_path):
    """A run of a masked-LM objective has one in main/."""
    shutil.copytree(exported / "generator", tmp_path / "run" / "main")
    data = pairs_file(tmp_path)
    result = evaluate(tmp_path / "run", "minimal-pairs", data, quiet=True)
    assert result["scores"]["score"] == "pll"
    [weights] = result["model_sha256"]
    assert weights == str(tmp_path / "run" / "main" / "model.safetensors")
    assert result["scores"] == evaluate(exported / "generator", "minimal-pairs", data, quiet=True)["scores"]


def test_heads_that_are_not_there_are_refused(exported, tmp_path):
    data = pairs_file(tmp_path)
    with pytest.raises(UserError, match="no trained vocabulary head; give a generator"):
        evaluate(exported / "discriminator", "minimal-pairs", data, score="pll")
    with pytest.raises(UserError, match="without a replaced-token head; use --score pll"):
        evaluate(exported / "generator", "minimal-pairs", data, score="discriminator")
    config = ElectraConfig(
        vocab_size=130, embedding_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    ElectraModel(config).save_pretrained(tmp_path / "bare")
    AutoTokenizer.from_pretrained(exported / "generator").save_pretrained(tmp_path / "bare")
    for score, complaint in (("pll", "no trained vocabulary head"), ("discriminator", "not a discriminator")):
        with pytest.raises(UserError, match=complaint):
            evaluate(tmp_path / "bare", "minimal-pairs", data, score=score)
    ElectraForMaskedLM(config).save_pretrained(tmp_path / "alone")
    with pytest.raises(UserError, match="alone: has no tokenizer"):
        evaluate(tmp_path / "alone", "minimal-pairs", data)


def test_text_that_the_vocabulary_does_not_know_is_refused(exported):
    network = Discriminator(*load_discriminator(exported / "discriminator"))
    tokenizer = AutoTokenizer.from_pretrained(exported / "discriminator")
    with pytest.raises(UserError, match=r"does not know 100% of the words: it is of another language or script"):
        naturalness(network, tokenizer, ["Это хороший фильм", "これはいい映画です"])
    assert np.isfinite(naturalness(network, tokenizer, ["a lovely film, фильм"])).all()
