"""Tokens a second and peak memory of the whole training step of ELECTRA-Small: ours beside every rival, in one run.

Each side runs in a process of its own, taken in turn, so that peak memory is its own and a drift of the machine meets all;
ratios are taken round by round and their median is shown. Model FLOP utilisation (MFU) is the useful work of the step (as
`electra flops` counts it, the same for every side) over the matrix products that torch reaches in the same round.

    make benchmark                                     # installs the package and the rivals in .venv-benchmark/ first
    make benchmark ARGS="--batch-size 128 --rounds 3 --json step.json"
    make benchmark ARGS="--rounds 1 --compile --sides"  # torch.compile: does it pay back?
    python benchmarks/step.py --device cuda --batch-size 128
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
import breakdown
from sides import COMPILED, LENGTH, OURS, SIDES, UNIT, VOCABULARY

Figures = dict[str, Any]
Round = dict[str, Figures]
"""Side, or MATRICES -> its figures in one round; {"error": the last line of what it said} where it did not run."""

MATRICES, PROFILE = "matrix products", "profile"
SHAPES = ((4096, 256, 1024), (4096, 1024, 256), (2048, 2048, 2048))
"""Rows, inner and columns: up and down of a feed-forward layer over 32 rows of the discriminator, and a large square."""
WARM_UP = 2
PATIENCE = 120.0
"""Seconds after which a process stops timing, having timed at least once."""


def seconds_of(work: Callable[[], object], times: int, device: torch.device) -> float:
    """Median over `times` calls, fewer where they take longer than PATIENCE in all."""
    found: list[float] = []
    while len(found) < times and sum(found) < PATIENCE:
        synchronise(device)
        began = time.perf_counter()
        work()
        synchronise(device)
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


# ----------------------------------------------------------------------------------- in a process of its own, by --child


def measure(name: str, options: argparse.Namespace) -> Figures:
    """One side: tokens a second, seconds before the first timed step, peak memory in MiB."""
    side, device = SIDES[name], torch.device(options.device)
    began = time.perf_counter()
    step = side.make(options.batch_size, getattr(torch, side.precision), device)
    for _ in range(WARM_UP):
        step()
    synchronise(device)
    start = time.perf_counter() - began
    seconds = seconds_of(step, options.steps, device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated() / 2**20
    return {"tokens_per_second": options.batch_size * LENGTH / seconds, "start_seconds": start, "peak_mib": peak}


def matrix_rates(precisions: Iterable[str], device: torch.device) -> Figures:
    """Precision -> shape -> floating-point operations a second that torch.mm reaches (median over calls)."""
    rates: Figures = {}
    for precision in precisions:
        rates[precision] = {}
        for m, k, n in SHAPES:
            a, b = (torch.randn(shape, device=device).to(getattr(torch, precision)) for shape in ((m, k), (k, n)))
            torch.mm(a, b)
            seconds = seconds_of(lambda a=a, b=b: torch.mm(a, b), 15, device)
            rates[precision][f"{m}x{k}x{n}"] = 2.0 * m * k * n / seconds
    return rates


def work_of_child(options: argparse.Namespace) -> Figures:
    if options.child == MATRICES:
        return matrix_rates(sorted({SIDES[name].precision for name in options.sides}), torch.device(options.device))
    if options.child == PROFILE:
        side = SIDES[OURS]
        precision = getattr(torch, side.precision)
        return breakdown.shares(lambda: side.make(options.batch_size, precision, torch.device("cpu")), options.steps)
    return measure(options.child, options)


# ---------------------------------------------------------------------------------------------------------- the whole run


def in_a_process(what: str, options: argparse.Namespace) -> Figures:
    words = [sys.executable, __file__, "--child", what, "--sides", *options.sides]
    for name in ("batch_size", "steps", "threads", "device"):
        words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        return {"error": said[-1] if said else f"ended with {done.returncode} (out of memory?)"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def choose_sides(options: argparse.Namespace) -> list[str]:
    """All that this machine has units for, or those asked for; with ours and the unit of the ratios in any case."""
    from electra.model.native import has_bfloat16_units

    has_bfloat16 = options.device != "cpu" or has_bfloat16_units() or options.bfloat16
    usual = [name for name, side in SIDES.items() if name != COMPILED and (side.precision == "float32" or has_bfloat16)]
    chosen = usual if options.sides is None else options.sides
    return list(dict.fromkeys([OURS, UNIT, *chosen, *([COMPILED] if options.compile else [])]))


def describe(options: argparse.Namespace) -> dict[str, Any]:
    from electra.presets import small
    from electra.studies.speedrun import machine

    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    units = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
    packages = ("torch", "transformers", "electra-pytorch", "simpletransformers")
    return {
        "machine": machine(),
        "device": options.device,
        "units": {unit: f" {unit}" in flags for unit in units},
        "threads": options.threads,
        "versions": {name: version(name) for name in packages},
        "date": time.strftime("%Y-%m-%d"),
        "batch_size": options.batch_size,
        "length": LENGTH,
        "vocabulary": VOCABULARY,
        "steps": options.steps,
        "useful_operations_per_token": flops_of(small()).training_flops,
    }


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def flops_of(config: Any) -> Any:
    """Parameters and operations of a preset at the benchmark's vocabulary and length (`electra.model.flops.FlopCount`)."""
    from electra.model import flops

    encoder = dataclasses.replace(config.model.discriminator, vocab_size=VOCABULARY)
    model = dataclasses.replace(config.model, discriminator=encoder)
    return flops.count(model, LENGTH, config.objective.mask_fraction)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=16, help="rows of 128 tokens; the paper's is 128")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each side, in turn")
    parser.add_argument("--steps", type=int, default=3, help="timed steps in each process")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument(
        "--sides", nargs="*", choices=list(SIDES), help=f"beside {OURS!r} and {UNIT!r}; default: all that fit"
    )
    parser.add_argument("--compile", action="store_true", help=f"add {COMPILED!r}: minutes of compiling a round")
    parser.add_argument("--bfloat16", action="store_true", help="bfloat16 also where the processor has to emulate it")
    parser.add_argument("--json", type=Path, help="file for the raw figures")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    if options.child:
        print(json.dumps(work_of_child(options)))
        return
    options.sides = choose_sides(options)
    description, rounds = describe(options), []
    for number in range(options.rounds):
        found = {}
        for what in (MATRICES, *options.sides):
            found[what] = in_a_process(what, options)
            print(f"round {number + 1} of {options.rounds}, {what}: {found[what]}", file=sys.stderr)
        rounds.append(found)
    shares = in_a_process(PROFILE, options) if options.device == "cpu" else {}
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({**description, "rounds": rounds, PROFILE: shares}, indent=1) + "\n")
    print(report(description, rounds, shares))


# -------------------------------------------------------------------------------------------------------------- the table


def report(description: dict[str, Any], rounds: list[Round], shares: Figures) -> str:
    """The table, one line a side, with what MFU is measured against above it and the profile of our step below."""
    operations = description["useful_operations_per_token"]
    units = [unit for unit, here in description["units"].items() if here]
    lines = [
        f"ELECTRA-Small, {description['batch_size']} x {LENGTH} tokens a step; {description['machine']}, "
        f"{description['device']}, {description['threads']} threads, units {' '.join(units) or 'unknown'}; "
        + ", ".join(f"{name} {number}" for name, number in description["versions"].items() if number),
        f"useful work: {operations / 1e6:.1f} million floating-point operations a token; torch.mm here: "
        + ", ".join(f"{name} {rate / 1e9:.0f} GFLOP/s" for name, rate in median_rates(rounds).items()),
        "",
        f"{'side':<28}{'tokens/s':>10}{'ratio':>8}{'  (rounds)':<18}{'MFU':>6}{'peak MiB':>10}{'start s':>9}",
    ]
    for name in (name for name in rounds[0] if name != MATRICES):
        usable = [r for r in rounds if "error" not in r[name] and "error" not in r[UNIT]]
        if not usable:
            reason = next((r[side]["error"] for side in (name, UNIT) for r in rounds if "error" in r[side]), "")
            lines.append(f"{name:<28}  did not run: {reason}")
            continue
        speed = statistics.median(r[name]["tokens_per_second"] for r in usable)
        ratios = [r[name]["tokens_per_second"] / r[UNIT]["tokens_per_second"] for r in usable]
        precision = SIDES[name].precision
        used = statistics.median(
            r[name]["tokens_per_second"] * operations / rate_of(r[MATRICES][precision]) for r in usable
        )
        peak = max(r[name]["peak_mib"] for r in usable)
        start = statistics.median(r[name]["start_seconds"] for r in usable)
        spread = f"  ({min(ratios):.2f} to {max(ratios):.2f})"
        lines.append(
            f"{name:<28}{speed:>10,.0f}{statistics.median(ratios):>8.2f}{spread:<18}{used:>6.0%}{peak:>10,.0f}{start:>9.0f}"
        )
    if COMPILED in rounds[0] and all("error" not in r[side] for r in rounds for side in (COMPILED, UNIT)):
        lines += ["", pay_back(rounds)]
    if shares:
        parts = [f"{name} {share:.1%}" for name, share in shares.items() if name != "error"]
        lines += ["", "where our step's time goes: " + (", ".join(parts) or f"not known: {shares['error']}")]
    return "\n".join(lines)


def rate_of(by_shape: dict[str, float]) -> float:
    return statistics.median(by_shape.values())


def median_rates(rounds: list[Round]) -> dict[str, float]:
    """Precision -> operations a second: median over shapes, then over rounds."""
    return {
        precision: statistics.median(rate_of(r[MATRICES][precision]) for r in rounds)
        for precision in rounds[0][MATRICES]
    }


def pay_back(rounds: list[Round]) -> str:
    """From which length of run on torch.compile saves time."""
    faster = statistics.median(r[COMPILED]["tokens_per_second"] / r[UNIT]["tokens_per_second"] for r in rounds)
    longer = statistics.median(r[COMPILED]["start_seconds"] - r[UNIT]["start_seconds"] for r in rounds)
    found = f"torch.compile: {longer:.0f} s longer to start, then {faster:.2f} times the speed: "
    if faster <= 1.0:
        return found + "it never pays back"
    return found + f"it pays back in runs of more than {longer / (1.0 - 1.0 / faster) / 60.0:.0f} minutes"


if __name__ == "__main__":
    main()
