"""A run's newest checkpoint as two Hugging Face directories, and a run read back as a pair of networks."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file

from electra.config import PretrainConfig
from electra.config_files import load_config
from electra.data.shards import TokenStore
from electra.errors import UserError
from electra.files import write_directory
from electra.model.hf import export_discriminator, export_generator
from electra.model.pair import Pair, load_pair_state
from electra.train.checkpoint import newest_checkpoint
from electra.train.run import initial_pair


def load_run(run_dir: Path, checkpoint: Path | None = None) -> tuple[Pair, PretrainConfig]:
    """The pair of networks at a run's newest whole checkpoint (or at the one named), and the run's configuration.

    Raises UserError when the directory is no run or has no checkpoint yet.
    """
    if not (run_dir / "config.yaml").is_file():
        raise UserError(f"{run_dir}: not a run directory (it has no config.yaml); name one made by `electra pretrain`")
    config = load_config(PretrainConfig, run_dir / "config.yaml")
    checkpoint = checkpoint or newest_checkpoint(run_dir)
    if checkpoint is None:
        raise UserError(f"{run_dir}: has no whole checkpoint yet; let `electra pretrain` run until it saves one")
    pair = Pair(config.model)
    load_pair_state(pair, load_file(checkpoint / "pair.safetensors"))
    return pair.eval(), config


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
