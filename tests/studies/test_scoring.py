"""Scores of a run of a study: what networks that predict tokens say of minimal pairs, and tasks."""

import dataclasses

import pytest
import torch

from conftest import small_model
from electra.config import ObjectiveConfig
from electra.data.tokenizer import load_tokenizer
from electra.evaluate.minimal_pairs import MinimalPair
from electra.evaluate.sentence_scores import naturalness
from electra.objectives import make_pair
from electra.studies.scoring import Measures, OwnTokens, score_run, zero_shot
from electra.train.loop import pretrain


def pair_of(objective, exported):
    model = small_model("modern", dropout=0.0)
    size = len(load_tokenizer(exported / "tokenizer"))
    model = dataclasses.replace(model, discriminator=dataclasses.replace(model.discriminator, vocab_size=size))
    torch.manual_seed(0)
    return make_pair(model, ObjectiveConfig(name=objective)).eval()


@pytest.mark.parametrize("objective", ["replace-mlm", "all-tokens-mlm"])
def test_own_tokens_sums_the_log_probability_of_the_tokens_in_front(objective, exported):
    """Against the definition, a sum over the whole distribution: with a copy head D + (1 - D) softmax."""
    pair, tokenizer = pair_of(objective, exported), load_tokenizer(exported / "tokenizer")
    sentence = "the good film was a lovely story"
    ids = torch.tensor([tokenizer(sentence)["input_ids"]])
    with torch.inference_mode():
        hidden = pair.discriminator(ids)
        own = pair.vocabulary_head.logits(hidden).softmax(-1).gather(-1, ids[..., None]).squeeze(-1)
        if objective == "all-tokens-mlm":
            copied = pair.copy_head(hidden).view(ids.shape).sigmoid()
            own = copied + (1.0 - copied) * own
    expected = own[0, 1:-1].double().log().sum().item()
    assert naturalness(OwnTokens(pair), tokenizer, [sentence])[0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("objective", ["electra", "bert", "replace-mlm", "all-tokens-mlm"])
def test_each_objective_has_its_way_of_scoring_pairs(objective, exported):
    pairs = [MinimalPair("the good film", "good weak bad poor story", "words", "words")] * 2
    assert zero_shot(pair_of(objective, exported), exported / "tokenizer", pairs) in (0.0, 1.0)


def test_scores_of_a_run_are_kept_and_along_it_only_where_asked(run_config, store, tmp_path):
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"sentence_good": "the king ate the pie .", "sentence_bad": "king the ate the pie ."}')
    task = tmp_path / "task.csv"
    task.write_text("text,label\n" + "".join(f"the chef cooked the {x} .,{x}\n" for x in ("soup", "pie")) * 4)
    config = dataclasses.replace(
        run_config,
        model=small_model("modern"),
        data=dataclasses.replace(run_config.data, heldout=store),
        train=dataclasses.replace(run_config.train, keep_checkpoints=5),
    )
    run_dir = pretrain(config, quiet=True)
    tags = tmp_path / "tags.conll"
    tags.write_text("the B-NP\nchef I-NP\ncooked B-VP\n\n" * 8)
    measures = Measures(pairs=pairs, tasks=(f"{task}:{task}", f"{tags}:{tags}"), finetune_seeds=2)
    measures.check()
    last = score_run(run_dir, measures)
    assert {line["step"] for line in last} == {12}
    assert {"minimal_pairs", "task accuracy", "tags f1", "task_average", "generator_loss"} <= {
        line["metric"] for line in last
    }
    assert not list(run_dir.glob("finetuned/*/model"))
    assert score_run(run_dir, measures) == last
    flops = last[0]["flops"]
    along = score_run(run_dir, measures, from_flops=0.5 * flops)
    assert [line["step"] for line in along if line["metric"] == "minimal_pairs"] == [10, 12]  # saved at 5, 10 and 12
    assert [line["step"] for line in along if line["metric"] == "task accuracy"] == [12]
