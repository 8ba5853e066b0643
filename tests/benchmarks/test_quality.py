"""Quality per minute: the rival is what it says, both sides are measured alike, and what is finished is not run again."""

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

from conftest import small_model
from electra.data.loader import BatchLoader
from electra.data.packing import make_rows
from electra.data.shards import TokenStore
from electra.presets import PRESETS, tiny

PATH = Path(__file__).parent.parent.parent / "benchmarks" / "quality.py"


@pytest.fixture(scope="module")
def quality():
    spec = importlib.util.spec_from_file_location("benchmark_quality", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def config(store):
    """`tiny` with networks of a few thousand weights."""
    preset = tiny()
    return dataclasses.replace(
        preset,
        data=dataclasses.replace(preset.data, store=store, length=16),
        model=dataclasses.replace(preset.model, discriminator=small_model("modern").discriminator),
        train=dataclasses.replace(preset.train, num_threads=1),
    )


def rows(store, count):
    with BatchLoader(make_rows(store, 16, "dense", 0), batch_size=count, seed=0) as loader:
        return next(loader).input_ids


def test_the_rival_learns_with_shared_tables_and_is_scored_by_its_own_numbers(quality, config, tmp_path):
    store = TokenStore.open(config.data.store)
    rival = quality.Rival(config, store, 3e-3, seed=0)
    assert [type(net).__name__ for net in (rival.generator, rival.discriminator)] == [
        "ModernBertForMaskedLM",
        "ModernBertForTokenClassification",
    ]
    table = rival.generator.get_input_embeddings().weight
    assert rival.discriminator.get_input_embeddings().weight is table
    assert rival.generator.get_output_embeddings().weight is table
    assert sum(p is table for p in rival.parameters) == 1

    ids = rows(store, 8)
    losses = []
    for step in range(60):
        losses.append(rival.step(ids, step / 60))
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])

    for net in (rival.generator, rival.discriminator):
        net.eval()
    rival.save(tmp_path)
    scored = quality.Scored(tmp_path)
    with torch.no_grad():
        theirs = rival.discriminator(input_ids=ids).logits.squeeze(-1)
        ours = scored.discriminator_head(scored.discriminator(ids))
        assert torch.allclose(theirs, ours, atol=1e-4)
        theirs = rival.generator(input_ids=ids).logits
        ours = scored.generator_head.logits(scored.generator(ids))
        assert torch.allclose(theirs, ours, atol=1e-4)


def test_a_bad_generator_does_not_win_the_sweep(quality, config, store, tmp_path, monkeypatch):
    """Its replacements are easy to find, so its discriminator has the lower loss (seen with `tiny` after 1.5 minutes)."""
    scores = {5e-4: (8.06, 0.329), 2e-3: (6.79, 0.417), 1e-3: (7.28, 0.366)}

    def known(config, ruler, out, *, rate, minutes, **others):
        generator, discriminator = scores[rate]
        return [{"minutes": minutes, "generator_loss": generator, "discriminator_loss": discriminator}]

    monkeypatch.setattr(quality, "run_rival", known)
    assert [one["rate"] for one in quality.sweep(config, store, list(scores), 1.5, tmp_path)] == [2e-3, 1e-3, 5e-4]


def test_sides_one_after_the_other_and_nothing_twice(quality, config, store, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(PRESETS, "tiny", lambda: config)
    words = f"quality --store {store} --heldout {store} --minutes 0.01 --points 2 --threads 1 --out {tmp_path / 'q'}"

    def run(*more):
        monkeypatch.setattr(sys, "argv", [*words.split(), *more])
        quality.main()
        return json.loads((tmp_path / "q" / "quality.json").read_text()), capsys.readouterr().out

    rates = ["--rival-rates", "0.001", "0.004", "--sweep-minutes", "0.004"]
    result, out = run("--side", "transformers", *rates)
    assert list(result["sides"]) == ["transformers"]
    assert out.count("transformers: rate 0.00") == 2
    tried = result["sweep"]["best_first"]
    assert {one["rate"] for one in tried} == {0.001, 0.004}
    assert (tried[0]["rate"], tried[0]["generator_loss"] <= tried[1]["generator_loss"]) == (result["rival_rate"], True)
    assert [len(curve) in (1, 2) for curve in result["sides"]["transformers"]] == [True]

    result, out = run("--side", "ours")
    assert set(result["sides"]) == {"ours", "transformers"}
    assert [line.split()[0] for line in out.splitlines()[-3:-1]] == ["ours", "transformers"]
    assert (tmp_path / "q" / "quality.png").read_bytes().startswith(b"\x89PNG")
    keys = [{name for name in side[0][-1] if name != "flops"} for side in result["sides"].values()]
    assert keys[0] == keys[1]

    other = tmp_path / "q" / "quality.json"
    ours = quality.run_ours
    theirs = {**result, "sides": {"transformers": result["sides"]["transformers"]}}

    def while_the_other_side_finishes(*arguments):
        other.write_text(json.dumps(theirs))
        return ours(*arguments)

    other.unlink()
    monkeypatch.setattr(quality, "run_ours", while_the_other_side_finishes)
    assert run("--side", "ours")[0]["sides"] == result["sides"]

    again, out = run(*rates)
    assert again["sides"] == result["sides"]
    assert " steps" not in out  # which a run says as it goes
    with pytest.raises(SystemExit, match="other minutes, seeds or data"):
        run("--side", "ours", "--seeds", "2")
