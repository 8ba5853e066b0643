"""Calibration by hand and against scikit-learn, and the suite of pre-training on a run."""

import dataclasses
import json

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, f1_score, precision_score, recall_score

from conftest import sentences, small_model
from electra.cli import main
from electra.config import OptimizerConfig, PretrainConfig
from electra.data.prepare import prepare
from electra.evaluate.calibration import calibration, reliability
from electra.evaluate.curve import Ruler, curve, describe
from electra.evaluate.suites import evaluate
from electra.presets import small
from electra.train.loop import pretrain

PROBABILITIES = np.array([0.1, 0.8, 0.2, 0.6, 0.1, 0.4])
TRUTH = np.array([False, True, False, False, True, True])


def test_values_by_hand():
    bins = reliability(PROBABILITIES, TRUTH, num_bins=3)
    # in order: (0.1 no, 0.1 yes), (0.2 no, 0.4 yes), (0.6 no, 0.8 yes)
    assert [one["tokens"] for one in bins] == [2, 2, 2]
    assert [one["probability"] for one in bins] == pytest.approx([0.1, 0.3, 0.7])
    assert [one["replaced_share"] for one in bins] == [0.5, 0.5, 0.5]
    scores = calibration(PROBABILITIES, TRUTH, num_bins=3)
    assert scores["expected_calibration_error"] == pytest.approx((0.4 + 0.2 + 0.2) / 3)
    assert scores["brier_score"] == pytest.approx((0.01 + 0.04 + 0.04 + 0.36 + 0.81 + 0.36) / 6)
    assert scores["brier_of_base_rate"] == pytest.approx(0.25)
    assert (scores["precision_at_0.5"], scores["recall_at_0.5"]) == (0.5, pytest.approx(1 / 3))
    # Calling all replaced: precision 1/2, recall 1, F1 2/3; from 0.4 on: precision 2/3, recall 2/3, F1 2/3 too, but no better.
    assert scores["best_f1"] == pytest.approx(2 / 3)


def test_values_are_those_of_scikit_learn():
    draw = np.random.Generator(np.random.Philox(3))
    probabilities = draw.beta(0.5, 3.0, 4000)
    truth = draw.random(4000) < probabilities**1.3
    scores = calibration(probabilities, truth)
    assert scores["brier_score"] == pytest.approx(brier_score_loss(truth, probabilities))
    half = probabilities > 0.5
    for name, measure in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
        assert scores[f"{name}_at_0.5"] == pytest.approx(measure(truth, half))
    at_best = probabilities >= scores["threshold_of_best_f1"]
    assert scores["best_f1"] == pytest.approx(f1_score(truth, at_best))
    assert scores["precision_at_best_f1"] == pytest.approx(precision_score(truth, at_best))
    every = [f1_score(truth, probabilities >= threshold) for threshold in probabilities[::40]]
    assert scores["best_f1"] >= max(every)


def test_probabilities_that_are_true_are_calibrated_and_confident_ones_are_not():
    draw = np.random.Generator(np.random.Philox(4))
    probabilities = draw.beta(0.5, 3.0, 200_000)
    truth = draw.random(200_000) < probabilities
    honest = calibration(probabilities, truth)["expected_calibration_error"]
    logits = np.log(probabilities / (1 - probabilities))
    boastful = calibration(1 / (1 + np.exp(-2 * logits)), truth)["expected_calibration_error"]
    assert honest < 0.005 < 0.03 < boastful
    sizes = {one["tokens"] for one in reliability(probabilities, truth)}
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("truth", [False, True])
def test_one_class_alone_leaves_open_what_is_not_defined(truth):
    scores = calibration(np.array([0.1, 0.2]), np.array([truth, truth]))
    assert scores["precision_at_0.5"] is None
    assert scores["recall_at_0.5"] == (0.0 if truth else None)
    assert (scores["best_f1"] is None) == (not truth)
    assert len(reliability(np.array([0.1, 0.2]), np.array([truth, truth]))) == 2


def short_run(store, run_dir, objective, **settings):
    config = PretrainConfig(
        run_dir=run_dir,
        objective=dataclasses.replace(small().objective, name=objective, **settings),
        data=dataclasses.replace(small().data, store=store, length=16),
        model=small_model("modern"),
        optimizer=OptimizerConfig(warmup_steps=2),
        train=dataclasses.replace(small().train, num_steps=6, batch_size=8),
    )
    pretrain(config, quiet=True)
    return config.run_dir


@pytest.fixture(scope="module")
def run(store, tmp_path_factory):
    return short_run(store, tmp_path_factory.mktemp("calibration") / "run", "electra")


def test_the_suite_agrees_with_the_scores_of_training(run, store, tmp_path, capsys):
    words = ["evaluate", str(run), "--suite", "pretraining", "--data", str(store), "--limit", "128"]
    assert main([*words, "--json", str(tmp_path / "r.json"), "--png", str(tmp_path / "r.png")]) == 0
    shown = capsys.readouterr().out
    assert "expected calibration error" in shown
    assert "generator loss" in shown
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads((tmp_path / "r.json").read_text())
    scores, calibrated = result["scores"], result["scores"]["calibration"]
    # Two ways to the same figures: histograms of the training step's own outputs, and the probabilities themselves.
    for name in ("precision", "recall"):
        assert calibrated[f"{name}_at_0.5"] == pytest.approx(scores[f"discriminator_{name}"])
    assert calibrated["brier_of_base_rate"] == pytest.approx(scores["replaced_share"] * (1 - scores["replaced_share"]))
    tokens = sum(one["tokens"] for one in result["reliability"])
    assert 128 * 13 < tokens < 128 * 14  # [SEP] between documents is not scored
    replaced = sum(one["tokens"] * one["replaced_share"] for one in result["reliability"])
    assert replaced == pytest.approx(scores["replaced_share"] * tokens)
    assert (result["run_seed"], result["settings"]["seed"], result["settings"]["limit"]) == (42, 0, 128)
    assert len(result["data_sha256"]) == 64
    [weights] = result["model_sha256"]
    assert weights.endswith("checkpoints/step-6/pair.safetensors")
    assert evaluate(run, "pretraining", store, limit=128)["scores"] == scores


def test_replacements_may_come_from_frequencies(store, tmp_path):
    run_dir = short_run(store, tmp_path / "run", "electra", generator="unigram")
    scores = evaluate(run_dir, "pretraining", store, limit=128)["scores"]
    assert scores["calibration"]["recall_at_0.5"] == scores["discriminator_recall"]
    share = scores["replaced_share"]
    assert scores["calibration"]["brier_of_base_rate"] == pytest.approx(share * (1 - share))


def test_a_store_of_another_tokenizer_is_refused_in_one_line(run, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("\n".join(sentences(60)))
    prepare([tmp_path / "text.txt"], tmp_path / "other", vocab_size=90, quiet=True)
    for suite in ("pretraining", "probe"):
        assert main(["evaluate", str(run), "--suite", suite, "--data", str(tmp_path / "other")]) == 2
        complaint = capsys.readouterr().err
        assert "another tokenizer made it" in complaint
        assert complaint.count("\n") == 1


def test_a_discriminator_of_masked_positions_is_judged_there(store, tmp_path):
    run_dir = short_run(store, tmp_path / "run", "electra-15")
    result = evaluate(run_dir, "pretraining", store, limit=128)
    assert sum(one["tokens"] for one in result["reliability"]) == 128 * 2  # 15% of 14, rounded
    assert result["scores"]["calibration"]["recall_at_0.5"] == result["scores"]["discriminator_recall"]


def test_a_main_network_that_predicts_tokens_has_its_own_scores(store, tmp_path, capsys):
    run_dir = short_run(store, tmp_path / "run", "bert")
    result = evaluate(run_dir, "pretraining", store, limit=128)
    assert {"mlm_loss", "mlm_accuracy", "most_frequent_share"} <= set(result["scores"])
    assert "calibration" not in result["scores"]
    words = ["evaluate", str(run_dir), "--data", str(store), "--limit", "128", "--suite"]
    assert main([*words, "pretraining", "--png", str(tmp_path / "r.png")]) == 2
    assert "no discriminator, so there is no reliability curve" in capsys.readouterr().err
    (tmp_path / "pairs.jsonl").write_text('{"sentence_good": "the king ate .", "sentence_bad": "king the ate ."}')
    scored = evaluate(run_dir, "minimal-pairs", tmp_path / "pairs.jsonl", quiet=True)["scores"]
    assert scored["score"] == "pll"
    ruler = Ruler.open(store, tmp_path / "pairs.jsonl")
    [point] = curve(run_dir, ruler)
    assert point["minimal_pairs"] == scored["overall"]
    assert "MLM loss" in describe(point)
