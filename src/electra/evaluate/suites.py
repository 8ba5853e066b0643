"""Suites of scores that need no labels, each with a record of how it was made."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

import electra
from electra.data.shards import TokenStore
from electra.errors import UserError
from electra.evaluate.detect import Detector
from electra.evaluate.heldout import heldout_scores
from electra.evaluate.minimal_pairs import Discriminator, read_pairs, score_pairs
from electra.files import write_file

Suite = Literal["minimal-pairs", "pretraining"]


def evaluate(
    model: str | Path,
    suite: Suite,
    data: Path,
    *,
    limit: int | None = None,
    out: Path | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Run a suite; returns its `scores` with `model`, `data`, `data_sha256`, `command` and `versions`, and writes them to `out`.

    `minimal-pairs` takes a run directory or a Hugging Face discriminator, and pairs as `read_pairs` does. `pretraining` takes
    a run directory and a token store. Raises UserError for anything that does not fit.
    """
    if suite == "minimal-pairs":
        scores, digest = _minimal_pairs(model, data, limit, quiet)
    else:
        scores = heldout_scores(Path(model), data)
        digest = TokenStore.open(data).fingerprint
    result = {
        "suite": suite,
        "scores": scores,
        "model": str(model),
        "data": str(data),
        "data_sha256": digest,
        "limit": limit,
        "command": shlex.join(sys.argv),
        "versions": {
            "electra": electra.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
    if out is not None:
        write_file(out, json.dumps(result, indent=2))
    return result


class _Rate(ProgressColumn):
    """Items a second."""

    def render(self, task: Task) -> Text:
        rate = task.finished_speed or task.speed
        return Text(f"{rate:,.0f}/s" if rate else "")


def _minimal_pairs(model: str | Path, data: Path, limit: int | None, quiet: bool) -> tuple[dict[str, Any], str]:
    if limit is not None and limit < 1:
        raise UserError(f"limit is {limit}: it must be at least 1")
    detector = Detector(model)
    pairs, digest = read_pairs(data, limit)
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("sentences"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn(),
        console=console, disable=quiet or not console.is_terminal,
    )  # fmt: skip
    with progress:
        task = progress.add_task("", total=2 * len(pairs))
        scored = score_pairs(
            Discriminator(detector.encoder, detector.head),
            detector.tokenizer,
            pairs,
            progress=lambda count: progress.advance(task, count),
        )
    return dataclasses.asdict(scored), digest
