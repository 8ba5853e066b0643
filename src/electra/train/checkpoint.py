"""Checkpoints that are either whole or not there: written to a temporary directory, synced, then renamed.

`checkpoints/step-N/` holds `pair.safetensors` (both networks, shared tensors once), `optimizer.pt`, `state.json`
(TrainState) and `complete.json` (size and SHA-256 of the others, written last).
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from electra.config import PretrainConfig
from electra.config_files import load_config
from electra.errors import UserError
from electra.files import sha256, write_directory
from electra.model.pair import Pair, load_pair_state, pair_state_dict
from electra.objectives import make_pair
from electra.train.metrics import Totals
from electra.train.optimizer import PairOptimizer

_COMPLETE = "complete.json"


@dataclasses.dataclass
class TrainState:
    """How far a run has come. With the weights and the optimizer it is all that a resumed run needs."""

    store_fingerprint: str = ""
    step: int = 0
    rows: int = 0
    """Rows consumed of the endless shuffled order, over all ranks."""
    tokens: int = 0
    """Input tokens, padding included."""
    flops: float = 0.0
    num_switches: int = 0
    """Changes of stage that are done."""
    seconds: float = 0.0
    """Spent training by the clock, over all sessions."""


def save_checkpoint(
    run_dir: Path, pair: Pair, optimizer: PairOptimizer, state: TrainState, totals: Totals, keep: int
) -> Path:
    """Write `checkpoints/step-N` and drop all but the newest `keep`. Raises UserError when the disk is full.

    Until the last rename nothing under its final name has changed, so the checkpoint before this one stays good.
    """
    directory = run_dir / "checkpoints" / f"step-{state.step}"

    def write(temporary: Path) -> None:
        from safetensors.torch import save_file

        save_file(pair_state_dict(pair), temporary / "pair.safetensors")
        torch.save({"optimizer": optimizer.state_dict(), "totals": totals.state_dict()}, temporary / "optimizer.pt")
        (temporary / "state.json").write_text(json.dumps(dataclasses.asdict(state), indent=2), encoding="utf-8")
        complete = {path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in temporary.iterdir()}
        (temporary / _COMPLETE).write_text(json.dumps(complete, indent=2), encoding="utf-8")

    write_directory(directory, write)
    for old in _by_step(run_dir)[keep:]:
        shutil.rmtree(old, ignore_errors=True)
    return directory


def load_newest_checkpoint(
    run_dir: Path, pair: Pair, optimizer: PairOptimizer, totals: Totals, warn: Callable[[str], None]
) -> TrainState | None:
    """Load the newest whole checkpoint into the given objects; None when there is none. Torn ones are warned about."""
    for directory in _by_step(run_dir):
        fault = _fault(directory)
        if fault:
            warn(f"{directory}: {fault}; passed over")
            continue
        from safetensors.torch import load_file

        load_pair_state(pair, load_file(directory / "pair.safetensors"))
        saved = torch.load(directory / "optimizer.pt", map_location="cpu", weights_only=True)
        optimizer.load_state_dict(saved["optimizer"])
        totals.load_state_dict(saved["totals"], next(pair.parameters()).device)
        return TrainState(**json.loads((directory / "state.json").read_text(encoding="utf-8")))
    return None


def newest_checkpoint(run_dir: Path) -> Path | None:
    """The newest whole checkpoint's directory, or None."""
    return next((directory for directory in _by_step(run_dir) if not _fault(directory)), None)


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
    from safetensors.torch import load_file

    pair = make_pair(config.model, config.objective)
    load_pair_state(pair, load_file(checkpoint / "pair.safetensors"))
    return pair.eval(), config


def whole_checkpoints(run_dir: Path) -> list[tuple[Path, TrainState]]:
    """Every whole checkpoint of a run with how far it had come, oldest first."""
    return [
        (directory, TrainState(**json.loads((directory / "state.json").read_text(encoding="utf-8"))))
        for directory in reversed(_by_step(run_dir))
        if not _fault(directory)
    ]


def _by_step(run_dir: Path) -> list[Path]:
    """Checkpoint directories, newest first."""

    def step(path: Path) -> int:
        number = path.name.removeprefix("step-")
        return int(number) if number.isdigit() else -1

    return sorted((p for p in (run_dir / "checkpoints").glob("step-*") if step(p) >= 0), key=step, reverse=True)


def _fault(directory: Path) -> str | None:
    """Why a checkpoint cannot be used, or None when it is whole."""
    try:
        complete: dict[str, Any] = json.loads((directory / _COMPLETE).read_text(encoding="utf-8"))
        for name, expected in complete.items():
            path = directory / name
            if not path.is_file():
                return f"torn checkpoint, {name} is missing"
            if path.stat().st_size != expected["bytes"] or sha256(path) != expected["sha256"]:
                return f"torn checkpoint, {name} is damaged"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"torn checkpoint, {_COMPLETE} is missing or damaged"
    return None
