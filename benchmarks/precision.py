"""bfloat16 beside float32: does the loss curve of one seed in bfloat16 lie where other seeds of float32 lie?

Trains a preset in float32 with several seeds and in bfloat16 with the same ones, and compares the generator's and the
discriminator's training losses, averaged over the log lines of each tenth of the run. "Within the spread": no further from the
float32 mean than twice the standard deviation over float32 seeds. Where the processor has no bfloat16 units the products are
emulated with the same rounding, so the numbers are those of the units and only the time is not.

    python benchmarks/precision.py store --steps 600 --out precision
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from electra.presets import PRESETS
from electra.studies.speedrun import machine
from electra.train.loop import pretrain
from electra.train.metrics import read_metrics

LOSSES = ("generator_loss", "discriminator_loss")
PARTS = 10


def curves(run_dir: Path, steps: int) -> dict[str, list[float | None]]:
    """Mean loss in each tenth of the run; None where a network did not run yet."""
    lines = [line for line in read_metrics(run_dir / "metrics.jsonl") if line["kind"] == "train"]
    result: dict[str, list[float | None]] = {}
    for name in LOSSES:
        parts: list[list[float]] = [[] for _ in range(PARTS)]
        for line in lines:
            if line.get(name) is not None:
                parts[min(PARTS - 1, (line["step"] - 1) * PARTS // steps)].append(line[name])
        result[name] = [float(np.mean(part)) if part else None for part in parts]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--preset", choices=list(PRESETS), default="tiny")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="directory for runs, precision.json and precision.png")
    options = parser.parse_args()
    preset = PRESETS[options.preset]()
    found: dict[str, list[dict[str, list[float | None]]]] = {"float32": [], "bfloat16": []}
    for seed in range(options.seeds):
        for precision, runs in found.items():
            train = dataclasses.replace(
                preset.train, num_minutes=None, num_steps=options.steps, log_every=10, save_every=0, save_minutes=10.0,
                seed=seed, precision=precision, num_threads=options.threads,
            )  # fmt: skip
            run_dir = options.out / f"{precision}-{seed}"
            config = dataclasses.replace(
                preset, run_dir=run_dir, data=dataclasses.replace(preset.data, store=options.store), train=train
            )
            runs.append(curves(pretrain(config, quiet=True), options.steps))
            print(f"{precision}, seed {seed}: {runs[-1]}", flush=True)
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    summary = {}
    for axes, name in zip(figure.subplots(1, 2), LOSSES, strict=True):
        shown = [i for i in range(PARTS) if all(run[name][i] is not None for runs in found.values() for run in runs)]
        values = {p: np.array([[run[name][i] for i in shown] for run in runs], float) for p, runs in found.items()}
        mean, deviation = values["float32"].mean(0), values["float32"].std(0, ddof=1)
        steps = [(i + 0.5) * options.steps / PARTS for i in shown]
        axes.fill_between(steps, mean - 2 * deviation, mean + 2 * deviation, alpha=0.25, label="float32, mean ± 2 SD")
        for index, run in enumerate(values["bfloat16"]):
            axes.plot(steps, run, lw=1, color="tab:red", label="bfloat16, each seed" if index == 0 else None)
        axes.set(xlabel="step", ylabel=f"{name.replace('_', ' ')} (nats)")
        axes.legend(frameon=False)
        apart = (values["bfloat16"].mean(0) - mean) / deviation
        summary[name] = {"share_within": float((abs(apart) <= 2.0).mean()), "mean_in_deviations": float(apart.mean())}
    figure.suptitle(f"{options.preset}, {options.seeds} seeds in each precision")
    figure.savefig(options.out / "precision.png", dpi=150)
    result = {
        "machine": machine(),
        "preset": options.preset,
        "steps": options.steps,
        "summary": summary,
        "curves": found,
    }
    (options.out / "precision.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
