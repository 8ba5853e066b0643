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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

import electra
from electra.config import PretrainConfig
from electra.config_files import to_dict
from electra.data.prepare import prepare
from electra.data.shards import TokenStore
from electra.errors import UserError
from electra.evaluate.curve import Ruler, curve
from electra.evaluate.significance import welch
from electra.files import write_file
from electra.presets import PRESETS
from electra.train.checkpoint import newest_checkpoint
from electra.train.loop import pretrain

FIGURES = {
    "generator_loss": ("generator loss, held out", -1),
    "discriminator_auc": ("discriminator AUC, held out", 1),
    "swapped_word_auc": ("swapped word, AUC", 1),
    "minimal_pairs": ("minimal pairs, accuracy", 1),
}
"""Score -> its label, and 1 where more is better, -1 where less is."""
SURE = 0.05
"""A record needs a p-value below this."""
HELDOUT_SHARE = 0.05
_NOT_A_SETTING = {
    "run_dir", "data.store", "data.heldout", "model.discriminator.vocab_size", "train.num_steps", "train.num_tokens",
    "train.num_flops", "train.num_minutes", "train.seed", "train.save_every", "train.save_minutes",
    "train.keep_checkpoints", "train.log_every", "train.eval_every", "train.eval_batches", "train.tensorboard",
}  # fmt: skip
"""What a speedrun sets itself, what is recorded apart, and what changes no weight."""


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
    preset: str = "tiny",
) -> dict[str, Any]:
    """Pre-train `config` for `minutes` with each of `seeds` seeds, score `points` checkpoints of each, log the outcome.

    Writes `<out>/curve.json` and `curve.png`, appends to `<log>.jsonl` and rewrites `<log>.md`, where the settings that differ
    from `preset` are named. Returns the logged record. Stopped in between, the same call goes on. Raises UserError for
    settings or data that do not fit, before any training.
    """
    if minutes <= 0 or seeds < 1 or points < 1 or (limit is not None and limit < 1):
        raise UserError(f"minutes is {minutes}, seeds {seeds}, points {points}, limit {limit}: each must be above 0")
    if (out / "record.json").is_file():
        raise UserError(f"{out}: holds a finished speedrun; choose another --out")
    if config.data.store is None:
        raise UserError("no token store to train on: give --store and --heldout, or --data with text files")
    earlier, store, ruler = read_log(log), TokenStore.open(config.data.store), Ruler.open(heldout, pairs, limit)
    ruler.check(store)
    curves = []
    for seed in range(config.train.seed, config.train.seed + seeds):
        run_dir = out / f"seed-{seed}"
        pretrain(by_the_clock(config, run_dir, seed=seed, minutes=minutes, points=points))
        curves.append(curve(run_dir, ruler, say=print))
        _drop_old_checkpoints(run_dir)
    write_file(out / "curve.json", json.dumps(curves, indent=1))
    draw({"": curves}, out / "curve.png")
    last = [points_of_seed[-1] for points_of_seed in curves]
    record = {
        "date": datetime.date.today().isoformat(),
        "minutes": minutes,
        "preset": preset,
        "changes": changes(PRESETS[preset](), config),
        "configuration": fingerprint(config),
        "note": note,
        "machine": machine(),
        "threads": torch.get_num_threads(),
        "versions": {
            "electra": electra.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "commit": commit(),
        "data": {"store": store.fingerprint, **ruler.identity},
        "seeds": list(range(config.train.seed, config.train.seed + seeds)),
        "tokens": [point["tokens"] for point in last],
        "scores": {
            name: [point[name] for point in last]
            for name in FIGURES
            if all(point.get(name) is not None for point in last)
        },
    }
    for line in compare(record, earlier):
        print(line)
    write_file(log.with_suffix(".jsonl"), "".join(json.dumps(entry) + "\n" for entry in [*earlier, record]))
    write_file(log.with_suffix(".md"), table([*earlier, record]))
    write_file(out / "record.json", json.dumps(record, indent=1))
    return record


def by_the_clock(config: PretrainConfig, run_dir: Path, *, seed: int, minutes: float, points: int) -> PretrainConfig:
    """The run of one seed: `minutes` are its only budget, and about `points` checkpoints stay to be scored afterwards."""
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
    return dataclasses.replace(config, run_dir=run_dir, train=train)


def stores_of_text(files: Sequence[str], out: Path) -> tuple[Path, Path]:
    """Token stores `<out>/store`, and `<out>/store-heldout` of a twentieth of the documents, made unless they are there."""
    store, heldout = out / "store", out / "store-heldout"
    if not (store.is_dir() and heldout.is_dir()):
        prepare(files, store, heldout_share=HELDOUT_SHARE, overwrite=True)
    elif (before := TokenStore.open(store).manifest["source"]["inputs"]) != list(files):
        raise UserError(f"{store} was made of {' '.join(before)}: choose another --out for other text")
    return store, heldout


def compare(record: dict[str, Any], earlier: list[dict[str, Any]]) -> list[str]:
    """For each score a line: how it stands to the best speedrun of as many minutes on such a machine, and how sure that is.

    Only figures that were measured on the same data are compared. The p-value is of Welch's test over the seeds, where both
    sides have at least two; a record is better with p < `SURE`.
    """
    lines = []
    for name, (label, sign) in FIGURES.items():
        values = record["scores"].get(name)
        if values is None:
            continue
        against = [
            other["scores"][name] for other in earlier if name in other["scores"] and _alike(record, other, name)
        ]
        found = f"{label}: {with_spread(values)}"
        if not against:
            lines.append(f"{found}; the first of {record['minutes']:g} minutes on this machine and data")
            continue
        best = max(against, key=lambda other: sign * statistics.fmean(other))
        difference = statistics.fmean(values) - statistics.fmean(best)
        probability = welch(values, best)
        ahead, sure = sign * difference > 0, probability is not None and probability < SURE
        verdict = "a record" if ahead and sure else "ahead, but no record" if ahead else "no record"
        how_sure = "one seed proves nothing" if probability is None else f"p = {probability:.2g}"
        lines.append(f"{found}; {verdict}: {difference:+.3f} to the best so far, {with_spread(best)} ({how_sure})")
    return lines


def _alike(record: dict[str, Any], other: dict[str, Any], score: str) -> bool:
    """Whether two speedruns' figures for a score may be compared."""
    measured_on = "pairs" if score == "minimal_pairs" else "heldout"
    return record["data"][measured_on] == other["data"][measured_on] and all(
        record[name] == other[name] for name in ("minutes", "machine", "threads")
    )


def table(records: list[dict[str, Any]]) -> str:
    """The log as Markdown."""
    labels = " | ".join(label for label, _ in FIGURES.values())
    lines = [
        "# Speedruns",
        "",
        "Made by `electra speedrun` from the `.jsonl` beside it, which has each seed's figures. Mean ± deviation over seeds. "
        "Only lines of the same machine, minutes and data (in the `.jsonl`) can be compared.",
        "",
        f"| date | machine | minutes | settings | seeds | tokens | {labels} | versions | commit | note |",
        "|" + "---|" * (9 + len(FIGURES)),
    ]
    for record in records:
        settings = "; ".join([f"{record['preset']} `{record['configuration']}`", *record["changes"]])
        cells = [
            record["date"],
            f"{record['machine']}, {record['threads']} threads",
            f"{record['minutes']:g}",
            settings,
            f"{len(record['tokens'])}",
            f"{statistics.fmean(record['tokens']) / 1e6:.1f}M",
            *(with_spread(record["scores"][name]) if name in record["scores"] else "" for name in FIGURES),
            ", ".join(f"{name} {version}" for name, version in record["versions"].items()),
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
        axes.set_ylabel(label)
        axes.set_title("higher is better" if sign > 0 else "lower is better", fontsize=9)
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


def with_spread(values: list[float]) -> str:
    return f"{statistics.fmean(values):.3f}" + (f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "")


def fingerprint(config: PretrainConfig) -> str:
    """Eight letters for all the settings that a speedrun leaves open."""
    return hashlib.sha256(json.dumps(_settings(config), sort_keys=True).encode()).hexdigest()[:8]


def changes(base: PretrainConfig, config: PretrainConfig) -> list[str]:
    """The settings in which two configurations differ, as `name=value` of the second."""
    before = _settings(base)
    return [f"{name}={value}" for name, value in _settings(config).items() if value != before[name]]


def _settings(config: PretrainConfig) -> dict[str, Any]:
    def flat(values: dict[str, Any], where: str = "") -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in values.items():
            found |= flat(value, f"{where}{name}.") if isinstance(value, dict) else {f"{where}{name}": value}
        return found

    return {name: value for name, value in flat(to_dict(config)).items() if name not in _NOT_A_SETTING}


def commit() -> str | None:
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
