"""A run's newest checkpoint as Hugging Face directories."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from electra.config import PretrainConfig
from electra.config_files import load_config
from electra.data.shards import TokenStore
from electra.files import write_directory
from electra.model.hf import export_discriminator, export_generator, export_main
from electra.model.pair import Pair
from electra.train.checkpoint import load_run
from electra.train.run import initial_pair


def export(run_dir: Path, out: Path) -> list[Path]:
    """Write a run's networks for plain `transformers`, each whole or not at all; returns their directories.

    `out/discriminator`, or `out/main` where the objective's main network predicts tokens; and `out/generator`, if it has one.
    """
    pair, _ = load_run(run_dir)
    tokenizer, written = run_dir / "tokenizer", []
    for name, write in _writers(pair).items():
        write_directory(out / name, functools.partial(write, pair, tokenizer_dir=tokenizer))
        written.append(out / name)
    return written


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
