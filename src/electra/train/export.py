"""A run's newest checkpoint as Hugging Face directories, each with a model card; as ONNX and on the hub, where asked."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from electra import __version__
from electra.config import EncoderConfig, PretrainConfig
from electra.config_files import load_config
from electra.data.shards import TokenStore
from electra.errors import UserError
from electra.files import write_directory
from electra.model.card import Card, write_card
from electra.model.hf import export_discriminator, export_generator, export_main
from electra.model.hf_files import has_network, model_directory
from electra.model.hub import check_push, is_hub_name, push
from electra.model.pair import Pair
from electra.train.checkpoint import load_run, whole_checkpoints
from electra.train.metrics import read_metrics
from electra.train.run import initial_pair


def export(run_dir: Path, out: Path) -> list[Path]:
    """Write a run's networks for plain `transformers`, each whole or not at all; returns their directories.

    `out/discriminator`, or `out/main` where the objective's main network predicts tokens; and `out/generator`, if it has one.
    """
    pair, config = load_run(run_dir)
    tokenizer, written = run_dir / "tokenizer", []
    for name, write in _writers(pair).items():
        card = _card(run_dir, config, name)
        encoder = (pair.generator if name == "generator" else pair.discriminator).config

        def write_all(target: Path, write: Any = write, encoder: EncoderConfig = encoder, card: Card = card) -> None:
            write(pair, target, tokenizer_dir=tokenizer)
            write_card(target, encoder, card)

        write_directory(out / name, write_all)
        written.append(out / name)
    return written


def exported(run_dir: Path) -> list[Path]:
    """The networks that a finished run (or an export) holds, the one that people keep first; empty while it is not finished."""
    return [run_dir / name for name in ("discriminator", "main", "generator") if has_network(run_dir, name)]


def export_model(
    model: Path, out: Path, *, onnx: bool = False, push_to_hub: str | None = None, private: bool = False
) -> list[Path]:
    """Export a run (as `export` does), or copy a Hugging Face directory; with ONNX beside the weights, and to the hub.

    A run's networks are pushed as NAME-discriminator and NAME-generator, a single one as NAME. Raises UserError, when `out`
    holds something, when there is no token for the hub, or for what the parts raise.
    """
    if push_to_hub is not None:
        check_push(push_to_hub)
    if (model / "config.yaml").is_file():
        written = export(model, out)
    else:
        source = model_directory(model, "discriminator")
        if out.is_dir() and any(out.iterdir()):
            raise UserError(f"{out} is not empty: choose another directory")

        def copy(target: Path) -> None:
            shutil.copytree(source, target, dirs_exist_ok=True)

        write_directory(out, copy)
        written = [out]
    if onnx:
        from electra.model.onnx import export_onnx

        for directory in written:
            export_onnx(directory)
    if push_to_hub is not None:
        for directory in written:
            push(directory, push_to_hub if directory == out else f"{push_to_hub}-{directory.name}", private=private)
    return written


def _card(run_dir: Path, config: PretrainConfig, role: str) -> Card:
    """What a run's own files say about its training."""
    state = whole_checkpoints(run_dir)[-1][1]
    objective, train, optimizer = config.objective, config.train, config.optimizer
    training = {
        "objective": f"`{objective.name}`, {objective.mask_fraction:.0%} of the tokens chosen",
        "data": _data(config),
        "rows": f"{train.batch_size} of {config.data.length} tokens a step",
        "compute": f"{state.step:,} steps, {state.tokens:,} tokens, {state.flops:.3g} floating-point operations, "
        f"{state.seconds / 60.0:,.1f} minutes",
        "optimizer": f"{optimizer.name}, peak rate {optimizer.peak_learning_rate:g}",
        "seed": str(train.seed),
    }
    if config.init_from is not None:
        training["went on from"] = Path(config.init_from).name if Path(config.init_from).exists() else config.init_from
    metrics = run_dir / "metrics.jsonl"
    heldout = [line for line in read_metrics(metrics) if line["kind"] == "heldout"] if metrics.is_file() else []
    passed_over = ("kind", "step", "tokens", "flops", "seconds")
    last = heldout[-1] if heldout else {}
    return Card(
        role=role,
        version=__version__,
        training=training,
        scores={name: value for name, value in last.items() if name not in passed_over and value is not None},
        base_model=config.init_from if config.init_from is not None and is_hub_name(config.init_from) else None,
    )


def _data(config: PretrainConfig) -> str:
    """The store by its own name (not by its place on this machine), with its size where it is still there."""
    assert config.data.store is not None
    name = config.data.store.name
    try:
        store = TokenStore.open(config.data.store)
    except UserError:
        return name
    return f"{name}: {store.manifest['documents']:,} documents, {len(store.tokens):,} tokens"


def _writers(pair: Pair) -> dict[str, Callable[..., None]]:
    """Directory -> what writes it, the network that people keep first."""
    main = (
        {"discriminator": export_discriminator} if pair.parts.main_head == "replaced-token" else {"main": export_main}
    )
    return main | ({"generator": export_generator} if pair.parts.generator else {})


def export_start(run_dir: Path, out: Path) -> None:
    """Write a run's main network as it was before the first step: what its start alone is worth."""
    config = load_config(PretrainConfig, run_dir / "config.yaml")
    assert config.data.store is not None
    pair = initial_pair(config, TokenStore.open(config.data.store))
    write = next(iter(_writers(pair).values()))
    write_directory(out, functools.partial(write, pair, tokenizer_dir=run_dir / "tokenizer"))
