"""Runs of every objective: interrupted and gone on with, exported, scored on held-out text, reported, fine-tuned."""

import dataclasses
import json

import pytest
import torch
from test_resume import assert_same_run, interrupt_after
from transformers import AutoModelForMaskedLM, AutoModelForTokenClassification, AutoTokenizer, ElectraForPreTraining

from conftest import fitting_model
from electra.config import ObjectiveConfig
from electra.config_finetune import FinetuneConfig
from electra.evaluate.finetune import finetune
from electra.objectives import OBJECTIVES
from electra.studies.report import write_report
from electra.train.checkpoint import load_run
from electra.train.export import export, export_start
from electra.train.loop import pretrain
from electra.train.metrics import read_metrics


def configure(run_config, name, blocks="modern", **train):
    return dataclasses.replace(
        run_config,
        model=fitting_model(name, blocks),
        objective=ObjectiveConfig(name=name),
        train=dataclasses.replace(run_config.train, **train),
    )


# Two-stage switches at half of 12 steps, between the sixth and the seventh.
@pytest.mark.parametrize(
    ("name", "steps"), [*((name, 7) for name in sorted(OBJECTIVES)), ("two-stage", 5), ("two-stage", 6)]
)
def test_resume_is_exact(run_config, tmp_path, monkeypatch, name, steps):
    config = configure(run_config, name)
    whole = dataclasses.replace(config, run_dir=tmp_path / "whole")
    pretrain(whole, quiet=True)
    with monkeypatch.context() as patch:
        interrupt_after(patch, steps)
        with pytest.raises(KeyboardInterrupt):
            pretrain(config, quiet=True)
    pretrain(config, quiet=True)
    assert_same_run(whole.run_dir, config.run_dir)


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
@pytest.mark.parametrize("blocks", ["classic", "modern"])
def test_what_people_keep(run_config, store, tmp_path, name, blocks):
    """One short run: its networks in plain transformers, held-out scores, report and fine-tuning."""
    config = configure(run_config, name, blocks, num_steps=4, eval_batches=2)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, heldout=store))
    pretrain(config, quiet=True)
    pair, _ = load_run(config.run_dir)
    ids = torch.tensor(
        [AutoTokenizer.from_pretrained(config.run_dir / "tokenizer")("the chef ate the soup .")["input_ids"]]
    )
    with torch.no_grad():
        hidden = pair.discriminator(ids)
        if pair.parts.main_head == "replaced-token":
            keep = config.run_dir / "discriminator"
            theirs = ElectraForPreTraining if blocks == "classic" else AutoModelForTokenClassification
            logits = theirs.from_pretrained(keep).eval()(ids).logits.view(1, -1)
            ours = pair.discriminator_head(hidden)
        else:
            keep = config.run_dir / "main"
            logits = AutoModelForMaskedLM.from_pretrained(keep).eval()(ids).logits
            ours = pair.vocabulary_head.logits(hidden)
        torch.testing.assert_close(ours, logits, atol=1e-5, rtol=1e-4)
        if pair.parts.generator:
            logits = AutoModelForMaskedLM.from_pretrained(config.run_dir / "generator").eval()(ids).logits
            ours = pair.generator_head.logits(pair.generator(ids))
            torch.testing.assert_close(ours, logits, atol=1e-5, rtol=1e-4)
    written = {path.name for path in export(config.run_dir, tmp_path / "out")}
    assert written == {path.name for path in (tmp_path / "out").iterdir()}
    assert (config.run_dir / "generator").exists() == pair.parts.generator
    export_start(config.run_dir, tmp_path / "start")
    assert (tmp_path / "start" / "config.json").is_file()

    trained, heldout = (
        next(line for line in reversed(read_metrics(config.run_dir / "metrics.jsonl")) if line["kind"] == kind)
        for kind in ("train", "heldout")
    )
    losses = {key for key in trained if key.endswith("_loss")}
    assert losses
    assert losses <= heldout.keys()
    assert "</html>" in write_report(config.run_dir).read_text()

    task = tmp_path / "task.jsonl"
    task.write_text("".join(json.dumps({"text": "the chef ate", "label": index % 2}) + "\n" for index in range(16)))
    settings = FinetuneConfig(
        task_file=task, dev_file=task, out=tmp_path / "finetuned", num_epochs=1, batch_size=8, max_length=8
    )
    assert finetune(config.run_dir, settings, quiet=True)
    assert (tmp_path / "finetuned" / "model" / "config.json").is_file()


def test_each_stage_is_logged_and_costs_its_own(run_config):
    config = configure(run_config, "two-stage", num_steps=4, log_every=1)
    pretrain(config, quiet=True)
    lines = read_metrics(config.run_dir / "metrics.jsonl")
    assert [line["stage"] for line in lines] == [1, 1, 2, 2]
    first, second, third, fourth = (line["flops"] for line in lines)
    assert second == pytest.approx(2 * first)
    assert fourth - third == pytest.approx(third - second)
    assert third - second > 1.2 * first  # the generator forward only, the main network forward and back
    generator, discriminator = (
        load_run(config.run_dir)[0].get_submodule(name) for name in ("generator", "discriminator")
    )
    assert not torch.equal(generator.embeddings.tokens.weight, discriminator.embeddings.tokens.weight)


def test_a_run_without_a_generator_network(run_config, store, tmp_path, monkeypatch):
    config = configure(run_config, "electra", "classic", num_steps=6, log_every=3)
    config = dataclasses.replace(
        config, objective=ObjectiveConfig(generator="unigram"), data=dataclasses.replace(config.data, heldout=store)
    )
    whole = dataclasses.replace(config, run_dir=tmp_path / "whole")
    pretrain(whole, quiet=True)
    with monkeypatch.context() as patch:
        interrupt_after(patch, 4)
        with pytest.raises(KeyboardInterrupt):
            pretrain(config, quiet=True)
    pretrain(config, quiet=True)
    assert_same_run(whole.run_dir, config.run_dir)
    assert sorted(path.name for path in export(config.run_dir, tmp_path / "out")) == ["discriminator"]
    heldout = read_metrics(config.run_dir / "metrics.jsonl")[-1]
    assert heldout["replaced_share"] > 0.05
