"""A run's newest checkpoint as two Hugging Face directories."""

from __future__ import annotations

from pathlib import Path

from electra.config import PretrainConfig
from electra.config_files import load_config
from electra.data.shards import TokenStore
from electra.files import write_directory
from electra.model.hf import export_discriminator, export_generator
from electra.train.checkpoint import load_run
from electra.train.run import initial_pair


def export(run_dir: Path, out: Path) -> None:
    """Write `out/discriminator` and `out/generator`, which plain `transformers` loads; each appears whole or not at all."""
    pair, _ = load_run(run_dir)
    tokenizer = run_dir / "tokenizer"
    write_directory(out / "discriminator", lambda target: export_discriminator(pair, target, tokenizer))
    write_directory(out / "generator", lambda target: export_generator(pair, target, tokenizer))


def export_start(run_dir: Path, out: Path) -> None:
    """Write a run's discriminator as it was before the first step: what its start alone is worth."""
    config = load_config(PretrainConfig, run_dir / "config.yaml")
    assert config.data.store is not None
    pair = initial_pair(config, TokenStore.open(config.data.store))
    write_directory(out, lambda target: export_discriminator(pair, target, run_dir / "tokenizer"))
