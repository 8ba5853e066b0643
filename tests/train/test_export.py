"""What `electra export` writes beside the weights: model cards, copies, and that nothing is begun which cannot be ended."""

import dataclasses

import pytest
import yaml

from electra import cli
from electra.train.loop import pretrain
from electra.train.metrics import read_metrics


@pytest.fixture(scope="module")
def run(store, tmp_path_factory):
    from conftest import small_model
    from electra import presets
    from electra.config import OptimizerConfig, PretrainConfig

    config = PretrainConfig(
        run_dir=tmp_path_factory.mktemp("run") / "run",
        data=dataclasses.replace(presets.small().data, store=store, heldout=store, length=16),
        model=small_model("modern"),
        optimizer=OptimizerConfig(peak_learning_rate=3e-3, warmup_steps=2),
        train=dataclasses.replace(presets.small().train, num_steps=3, batch_size=4, eval_batches=1, seed=7),
    )
    return pretrain(config, quiet=True)


def front_matter(directory):
    text = (directory / "README.md").read_text(encoding="utf-8")
    _, head, body = text.split("---\n", 2)
    return yaml.safe_load(head), body


def test_every_export_has_a_card(run, tmp_path, capsys):
    assert cli.main(["export", str(run), str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "out" / name) for name in ("discriminator", "generator")]
    head, body = front_matter(tmp_path / "out" / "discriminator")
    assert (head["license"], head["library_name"], head["tags"]) == (
        "other",
        "transformers",
        ["electra", "discriminator"],
    )
    assert "AutoModelForTokenClassification.from_pretrained" in body
    assert "License: not chosen yet" in body
    # Objective, data by name alone, compute and scores are those of the run.
    last = read_metrics(run / "metrics.jsonl")
    flops = next(line["flops"] for line in reversed(last) if line["kind"] == "train")
    auc = next(line["discriminator_auc"] for line in reversed(last) if line["kind"] == "heldout")
    assert f"- compute: 3 steps, 192 tokens, {flops:.3g} floating-point operations" in body
    assert f"- discriminator auc: {auc:.4f}" in body
    assert "- data: store: 200 documents, " in body
    assert "`electra`, 15% of the tokens chosen" in body
    assert str(run.parent) not in body
    assert "- layers: 2 of width 16, 2 heads" in body
    head, body = front_matter(tmp_path / "out" / "generator")
    assert head["pipeline_tag"] == "fill-mask"
    assert "AutoModelForMaskedLM" in body
    assert "- layers: 2 of width 8, 1 heads" in body
    assert front_matter(run / "discriminator")[0] == front_matter(tmp_path / "out" / "discriminator")[0]


def test_a_hugging_face_directory_is_copied(run, tmp_path, capsys):
    assert cli.main(["export", str(run / "discriminator"), str(tmp_path / "copy")]) == 0
    assert {p.name for p in (tmp_path / "copy").iterdir()} == {p.name for p in (run / "discriminator").iterdir()}
    assert cli.main(["export", str(run / "discriminator"), str(tmp_path / "copy")]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_without_a_token_nothing_is_written(run, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.setattr("huggingface_hub.constants.HF_STORED_TOKENS_PATH", str(tmp_path / "none either"))
    assert cli.main(["export", str(run), str(tmp_path / "out"), "--push-to-hub", "me/mine"]) == 2
    assert "no token for the hub" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_each_network_is_pushed_under_its_own_name(run, tmp_path, monkeypatch):
    pushed = []
    monkeypatch.setattr("electra.train.export.check_push", lambda name: None)
    monkeypatch.setattr(
        "electra.train.export.push", lambda folder, name, private: pushed.append((folder.name, name, private))
    )
    assert cli.main(["export", str(run), str(tmp_path / "a"), "--push-to-hub", "me/mine"]) == 0
    assert cli.main(["export", str(run / "generator"), str(tmp_path / "b"), "--push-to-hub", "me/g", "--private"]) == 0
    assert pushed == [
        ("discriminator", "me/mine-discriminator", False),
        ("generator", "me/mine-generator", False),
        ("b", "me/g", True),
    ]
