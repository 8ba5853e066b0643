"""The speedrun: what a fixed time on this machine buys, as a curve, and as a line in a log of records.

A run is the preset by the clock; its checkpoints are scored afterwards, so scoring takes nothing from the time. The log is
`<log>.jsonl`, one object a speedrun with each seed's figures; the table `<log>.md` is made from it anew each time.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import os
import platform
import shutil
import statistics
import subprocess
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from scipy.stats import ttest_ind

import electra
from electra.config import PretrainConfig
from electra.config_files import to_dict
from electra.errors import UserError
from electra.evaluate.curve import curve
from electra.files import write_file
from electra.train.checkpoint import newest_checkpoint
from electra.train.loop import pretrain

FIGURES = {
    "generator_loss": ("generator loss, held out", -1),
    "discriminator_auc": ("discriminator AUC, held out", 1),
    "swapped_word_auc": ("swapped word, AUC", 1),
    "minimal_pairs": ("minimal pairs, accuracy", 1),
}
"""Score -> its label, and 1 where more is better, -1 where less is."""


def speedrun(
    config: PretrainConfig,
    out: Path,
    log: Path,
    *,
    heldout: Path,
    pairs: Path | None = None,
    limit: int | None = 200,
    minutes: float = 30.0,
    seeds: int = 1,
    points: int = 10,
    note: str = "",
    preset: str = "",
) -> dict[str, Any]:
    """Pre-train `config` for `minutes` with each of `seeds` seeds, score `points` checkpoints of each, log the outcome.

    Writes `<out>/curve.json` and `curve.png`, appends to `<log>.jsonl` and rewrites `<log>.md`. Returns the logged record.
    Stopped in between, the same call goes on. Raises UserError for settings that do not fit.
    """
    if minutes <= 0 or seeds < 1 or points < 1:
        raise UserError(f"minutes is {minutes}, seeds {seeds}, points {points}: each must be above 0")
    if (out / "record.json").is_file():
        raise UserError(f"{out}: holds a finished speedrun; choose another --out")
    earlier = read_log(log)
    curves = []
    for seed in range(config.train.seed, config.train.seed + seeds):
        run_dir = out / f"seed-{seed}"
        train = dataclasses.replace(
            config.train,
            seed=seed,
            num_steps=None,
            num_tokens=None,
            num_flops=None,
            num_minutes=minutes,
            save_every=0,
            save_minutes=minutes / points,
            keep_checkpoints=10 * points,
            eval_every=0,
        )
        pretrain(dataclasses.replace(config, run_dir=run_dir, train=train))
        curves.append(curve(run_dir, heldout, pairs, limit=limit, say=print))
        _drop_old_checkpoints(run_dir)
    write_file(out / "curve.json", json.dumps(curves, indent=1))
    draw({"": curves}, out / "curve.png")
    record = {
        "date": datetime.date.today().isoformat(),
        "minutes": minutes,
        "preset": preset,
        "note": note,
        "machine": machine(),
        "versions": {"electra": electra.__version__, "torch": torch.__version__},
        "commit": _commit(),
        "configuration": _hash_of_settings(config),
        "tokens": [points[-1]["tokens"] for points in curves],
        "scores": {
            name: [points[-1][name] for points in curves] for name in FIGURES if curves[0][-1].get(name) is not None
        },
    }
    for line in compare(record, earlier):
        print(line)
    write_file(log.with_suffix(".jsonl"), "".join(json.dumps(entry) + "\n" for entry in [*earlier, record]))
    write_file(log.with_suffix(".md"), table([*earlier, record]))
    write_file(out / "record.json", json.dumps(record, indent=1))
    return record


def compare(record: dict[str, Any], earlier: list[dict[str, Any]]) -> list[str]:
    """For each score a line: how it stands to the best speedrun of as many minutes on such a machine, and how sure that is.

    The p-value is of Welch's test over the seeds, where both sides have at least two.
    """
    rivals = [
        other for other in earlier if other["minutes"] == record["minutes"] and other["machine"] == record["machine"]
    ]
    lines = []
    for name, (label, sign) in FIGURES.items():
        values = record["scores"].get(name)
        against = [other["scores"][name] for other in rivals if name in other["scores"]]
        if values is None:
            continue
        found = f"{label}: {_with_spread(values)}"
        if not against:
            lines.append(f"{found}; the first of {record['minutes']:g} minutes on this machine")
            continue
        best = max(against, key=lambda other: sign * statistics.fmean(other))
        gain = sign * (statistics.fmean(values) - statistics.fmean(best))
        sure = "one seed proves nothing"
        if len(values) > 1 and len(best) > 1:
            sure = f"p = {float(ttest_ind(values, best, equal_var=False).pvalue):.2g}"
        verdict = "a record" if gain > 0 else "no record"
        lines.append(f"{found}; {verdict}, the best so far is {_with_spread(best)} ({sure})")
    return lines


def table(records: list[dict[str, Any]]) -> str:
    """The log as Markdown."""
    labels = " | ".join(label for label, _ in FIGURES.values())
    lines = [
        "# Speedruns",
        "",
        "Made by `electra speedrun` from the `.jsonl` beside it, which has each seed's figures. Mean ± deviation over seeds.",
        "",
        f"| date | machine | minutes | settings | seeds | tokens | {labels} | commit | note |",
        "|" + "---|" * (8 + len(FIGURES)),
    ]
    for record in records:
        cells = [
            record["date"],
            record["machine"],
            f"{record['minutes']:g}",
            f"{record['preset']} {record['configuration']}".strip(),
            f"{len(record['tokens'])}",
            f"{statistics.fmean(record['tokens']) / 1e6:.1f}M",
            *(_with_spread(record["scores"][name]) if name in record["scores"] else "" for name in FIGURES),
            record["commit"] or "",
            " ".join(record["note"].split()),
        ]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def draw(sides: dict[str, list[list[dict[str, Any]]]], path: Path) -> None:
    """Each score against minutes of training: for each side (its name, curves of its seeds) the mean and every seed's points."""
    names = [name for name in FIGURES if any(name in point for side in sides.values() for run in side for point in run)]
    figure = Figure(figsize=(4.6 * len(names), 3.6), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        for index, (side, runs) in enumerate(sides.items()):
            colour = f"C{index}"
            for run in runs:
                axes.plot(
                    [point["minutes"] for point in run],
                    [point[name] for point in run],
                    ".-", color=colour, alpha=0.9 if len(runs) == 1 else 0.3, label=None if len(runs) > 1 else side,
                )  # fmt: skip
            if len(runs) > 1:
                shared = [list(points) for points in zip(*runs, strict=False)]
                axes.plot(
                    [statistics.fmean(point["minutes"] for point in points) for points in shared],
                    [statistics.fmean(point[name] for point in points) for points in shared],
                    color=colour, linewidth=2, label=f"{side} (mean of {len(runs)})".strip(),
                )  # fmt: skip
        label, sign = FIGURES[name]
        axes.set_xlabel("minutes of training")
        axes.set_title(f"{label} ({'higher' if sign > 0 else 'lower'} is better)", fontsize=10)
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
        if any(sides):
            axes.legend(frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def machine() -> str:
    """The processor and its number of cores, or the accelerator: what makes two times comparable."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}"


def read_log(log: Path) -> list[dict[str, Any]]:
    """The records so far. Raises UserError for a file that is no such log."""
    path = log.with_suffix(".jsonl")
    if not path.is_file():
        return []
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except ValueError:
        raise UserError(f"{path}: not a log of speedruns; name another --log") from None


def _with_spread(values: list[float]) -> str:
    return f"{statistics.fmean(values):.3f}" + (f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "")


def _hash_of_settings(config: PretrainConfig) -> str:
    """Of all that decides the outcome; directories, seed and budget are not in it."""
    settings = to_dict(config)
    del settings["run_dir"], settings["train"], settings["data"]["store"], settings["data"]["heldout"]
    settings["batch_size"] = config.train.batch_size
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def _commit() -> str | None:
    """The commit of the source tree that this runs from, with + when it has changes; None for an installed package."""
    here = Path(__file__).parent
    try:
        shown = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty=+"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return shown.stdout.strip()


def _drop_old_checkpoints(run_dir: Path) -> None:
    """All but the newest: their scores are in curve.json."""
    newest = newest_checkpoint(run_dir)
    for directory in (run_dir / "checkpoints").glob("step-*"):
        if directory != newest:
            shutil.rmtree(directory, ignore_errors=True)
