"""Sums on the device between two log lines; then one line to `metrics.jsonl`, the terminal and, if asked, TensorBoard."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text
from torch import Tensor

from electra.errors import UserError
from electra.objectives.base import StepOutput
from electra.objectives.ranking import auc_from_histogram, precision_recall_from_histogram
from electra.train import distributed


class Totals:
    """Adds up what the steps report. Nothing is read back from the device until `means` is called."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}
        self.histograms: dict[str, Tensor] = {}

    def add(self, output: StepOutput) -> None:
        for name, (value, count) in output.sums.items():
            self._add(name, value, count)
        for name, histogram in output.histograms.items():
            held = self.histograms.get(name)
            self.histograms[name] = histogram.double() if held is None else held.add_(histogram)

    def add_scalar(self, name: str, value: Tensor) -> None:
        """Add one value of a quantity whose mean over steps is wanted."""
        self._add(name, value, 1)

    def _add(self, name: str, value: Tensor, count: int) -> None:
        held = self.sums.get(name)
        self.sums[name] = value.detach().double() if held is None else held.add_(value.detach())
        self.counts[name] = self.counts.get(name, 0) + count

    def means(self, over_ranks: bool = True) -> dict[str, float]:
        """The metrics since the last reset: quotients of sums, and the rankings that the histograms give."""
        names = sorted(self.sums)
        sums = [float(self.sums[name]) for name in names]
        summed = sums + [float(self.counts[name]) for name in names]
        if over_ranks:
            summed = distributed.sum_over_ranks(summed)
        values = {name: summed[i] / max(1.0, summed[len(names) + i]) for i, name in enumerate(names)}
        for name, histogram in self.histograms.items():
            total = histogram.clone()
            if over_ranks:
                distributed.sum_tensors([total])
            precision, recall = precision_recall_from_histogram(total)
            values |= {
                f"{name}_auc": auc_from_histogram(total),
                f"{name}_precision": precision,
                f"{name}_recall": recall,
            }
        return values

    def not_finite(self) -> str | None:
        """The first sum since the last reset that is infinite or not a number; None when all are well."""
        return next((name for name, value in self.sums.items() if not math.isfinite(float(value))), None)

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self.sums, "counts": self.counts, "histograms": self.histograms}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Go on from saved sums, on the device that the next steps report from."""
        self.sums = {name: value.to(device) for name, value in state["sums"].items()}
        self.histograms = {name: value.to(device) for name, value in state["histograms"].items()}
        self.counts = dict(state["counts"])


class MetricsLog:
    """Writes `metrics.jsonl` (one object a line, `kind` is train or heldout) and, if asked, TensorBoard events."""

    def __init__(self, run_dir: Path, resume_step: int, tensorboard: bool) -> None:
        self.path = run_dir / "metrics.jsonl"
        # A killed run may have logged beyond its last checkpoint; those steps are about to be repeated.
        kept = [line for line in self._read_lines() if line["step"] <= resume_step]
        text = "".join(json.dumps(line) + "\n" for line in kept)
        self.path.write_text(text, encoding="utf-8")
        self.file = self.path.open("a", encoding="utf-8")
        self.writer = None
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise UserError(
                    "train.tensorboard is set but TensorBoard is not installed: pip install 'electra-pretraining[tensorboard]'"
                ) from None
            self.writer = SummaryWriter(str(run_dir / "tensorboard"), purge_step=resume_step + 1)

    def _read_lines(self) -> list[dict[str, Any]]:
        return read_metrics(self.path) if self.path.exists() else []

    def write(self, kind: str, step: int, values: dict[str, float]) -> None:
        # NaN is no JSON; a metric that is not defined (an AUC with one class) is null.
        shown = {k: (v if not isinstance(v, float) or math.isfinite(v) else None) for k, v in values.items()}
        self.file.write(json.dumps({"kind": kind, "step": step, **shown}) + "\n")
        self.file.flush()
        if self.writer is not None:
            for name, value in values.items():
                self.writer.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        self.file.close()
        if self.writer is not None:
            self.writer.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a `metrics.jsonl`; a last line cut by a kill is left out."""
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
    return lines


class _Left(ProgressColumn):
    """Time left as the budgets see it, whichever of them ends the run."""

    def render(self, task: Task) -> Text:
        seconds = task.fields.get("seconds_left")
        if seconds is None:
            return Text("--:-- left")
        return Text(f"{format_duration(seconds)} left")


class ProgressDisplay:
    """A live bar on a terminal, a plain line now and then anywhere else (a file, CI)."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(file=sys.stderr, quiet=quiet, highlight=False)
        self.progress: Progress | None = None
        self.task: Any = None
        if self.console.is_terminal and not quiet:
            self.progress = Progress(
                TextColumn("step {task.fields[step]:,}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                _Left(),
                TextColumn("{task.fields[line]}"),
                console=self.console,
            )
            self.task = self.progress.add_task("", total=1.0, step=0, line="", seconds_left=None)

    def start(self) -> None:
        if self.progress is not None:
            self.progress.start()

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, markup=False)

    def advance(self, progress: float, step: int, seconds_left: float | None) -> None:
        if self.progress is not None:
            self.progress.update(self.task, completed=progress, step=step, seconds_left=seconds_left)

    def show(self, progress: float, step: int, seconds_left: float | None, values: dict[str, float]) -> None:
        line = describe(values)
        if self.progress is not None:
            self.progress.update(self.task, completed=progress, step=step, seconds_left=seconds_left, line=line)
        else:
            left = "" if seconds_left is None else f"{format_duration(seconds_left)} left, "
            self.say(f"step {step:,} ({progress:.0%}, {left}{line})")

    def close(self) -> None:
        if self.progress is not None:
            self.progress.stop()


def describe(values: dict[str, float]) -> str:
    """The figures worth watching, in one line."""
    parts = []
    for name, form in (
        ("tokens_per_second", "{:,.0f} tokens/s"),
        ("generator_loss", "generator loss {:.3f}"),
        ("generator_accuracy", "accuracy {:.1%}"),
        ("discriminator_loss", "discriminator loss {:.4f}"),
        ("discriminator_auc", "AUC {:.3f}"),
        ("mlm_loss", "MLM loss {:.3f}"),
        ("mlm_accuracy", "MLM accuracy {:.1%}"),
        ("reward", "reward {:.3f}"),
        ("stage", "stage {:.0f}"),
        ("replaced_share", "replaced {:.1%}"),
        ("learning_rate", "rate {:.2e}"),
        ("gradient_norm", "gradient {:.2f}"),
    ):
        value = values.get(name)
        if value is not None and math.isfinite(value):
            parts.append(form.format(value))
    return ", ".join(parts)


def format_duration(seconds: float) -> str:
    """97 -> 1:37, 3725 -> 1:02:05."""
    whole = max(0, round(seconds))
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
