"""Results of fine-tuning on disk: one JSON that says what was done with what, found again when the same call comes twice."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

import electra
from electra.config_files import to_dict
from electra.config_finetune import TuningConfig
from electra.errors import UserError
from electra.evaluate.scores import over_seeds
from electra.evaluate.training import Outcome, Start
from electra.files import sha256, write_file

RESULT = "result.json"


def identity(
    model: str | Path,
    start: Start,
    config: TuningConfig,
    files: Sequence[Path] = (),
    digests: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """What makes two calls the same: the model and its weights, the settings, the data `files` (or their `digests` by name)."""
    weights = start.loaded.path / "model.safetensors"
    return {
        "model": str(model),
        "model_sha256": sha256(weights) if weights.is_file() else None,
        "config": to_dict(config),
        "files": {str(path): sha256(path) for path in files} | dict(digests or {}),
    }


def provenance() -> dict[str, Any]:
    """The command and the versions."""
    versions = {"electra": electra.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
    return {"command": shlex.join(sys.argv), "versions": versions}


def summary(outcome: Outcome, scores: Sequence[str]) -> dict[str, Any]:
    """`runs`, how many of them failed or came out degenerate, and median, mean and spread of each score over the others.

    A degenerate run (it says the same of everything) has scores and counts in them; a failed one has none.
    """
    return {
        "runs": outcome.runs,
        "failed_runs": sum(run["failed"] for run in outcome.runs),
        "degenerate_runs": sum(run["degenerate"] for run in outcome.runs),
    } | {name: over_seeds([run[name] for run in outcome.good]) for name in scores if name in outcome.good[0]}


def earlier_result(out: Path, identity: dict[str, Any], ours: Sequence[str] = ("model",)) -> dict[str, Any] | None:
    """The result that `out` holds, if it is of the same call; else makes the directory and returns None.

    Raises UserError when `out` holds another result, or anything but the files `ours` of a call that was stopped.
    """
    if (out / RESULT).is_file():
        try:
            result = json.loads((out / RESULT).read_text(encoding="utf-8"))
        except ValueError:
            result = {}
        if all(result.get(name) == value for name, value in identity.items()):
            return result
        raise UserError(f"{out}: holds the result of another fine-tuning; choose another --out, or remove it")
    others = [path.name for path in out.iterdir() if path.name not in ours] if out.is_dir() else []
    if any(not name.startswith(".") for name in others):
        raise UserError(f"{out}: is not empty; choose another --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out}: cannot be made ({error.strerror}); choose another --out") from None
    return None


def describe(result: dict[str, Any]) -> list[str]:
    """A result in a few lines: the scores with their spread, what failed, and which hyper-parameters were whose choice."""
    scores = {name: value for name, value in result.items() if isinstance(value, dict) and "median" in value}
    lines = [f"{result['task']}: {result['train_examples']:,} training and {result['dev_examples']:,} dev examples"]
    if any(found["runs"] > 1 for found in scores.values()):
        lines.append(f"  {'':<24}{'median':>8}    mean and deviation over seeds")
    for name, found in scores.items():
        deviation = found["standard_deviation"]
        spread = f"    {found['mean']:.4f} ± {deviation:.4f} ({found['runs']})" if deviation is not None else ""
        lines.append(f"  {name.replace('_', ' '):<24}{found['median']:8.4f}{spread}")
    if "majority_share" in result:
        lines.append(f"  {'(always one class)':<24}{result['majority_share']:8.4f}")
    total = len(result["runs"])
    if result["failed_runs"]:
        lines.append(
            f"  {result['failed_runs']} of {total} runs failed (the loss was not a number) and are not counted"
        )
    if result["degenerate_runs"]:
        lines.append(f"  {result['degenerate_runs']} of {total} runs say the same of every text (degenerate)")
    cut = [f"{count:,} {what}" for what, count in result.get("cut_texts", {}).items() if count]
    if cut:
        lines.append(f"  texts longer than {result['config']['max_length']} tokens, which were cut: {', '.join(cut)}")
    used = [f"{name} {one['value']:g} ({one['from']})" for name, one in result["hyper_parameters"].items()]
    return [*lines, f"  {', '.join(used)}"]


def write_result(out: Path, result: dict[str, Any]) -> None:
    """As `out`/result.json."""
    write_file(out / RESULT, json.dumps(result, indent=2))
