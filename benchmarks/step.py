"""Tokens a second and peak memory of the whole training step of ELECTRA-Small: ours beside every rival, in one run.

Each side runs in a process of its own, taken in turn, so that peak memory is its own and a drift of the machine meets all;
ratios are taken round by round and their median is shown. Model FLOP utilisation is the useful work of the step (as
`electra flops` counts it, the same for every side) over the matrix products that torch reaches here, measured in each round.

    make benchmark                                     # installs the rivals in .rivals/ first
    make benchmark ARGS="--batch-size 128 --rounds 3"
    python benchmarks/step.py --device cuda --batch-size 128
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
from sides import LENGTH, SIDES, VOCABULARY

UNIT = "transformers sdpa"
Round = dict[str, dict[str, float]]
"""Side (or other measurement) -> its figures in one round."""


def seconds_of(work: Callable[[], None], times: int, device: torch.device) -> float:
    """Median over `times` calls."""
    found = []
    for _ in range(times):
        if device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def measure(side: str, options: argparse.Namespace) -> dict[str, float]:
    """In a child: tokens a second (median over steps), seconds until the steady state, peak memory in MiB."""
    make, precision = SIDES[side]
    device = torch.device(options.device)
    began = time.perf_counter()
    step = make(options.batch_size, getattr(torch, precision), device)
    for _ in range(2):
        step()
    first = time.perf_counter() - began
    seconds = seconds_of(step, options.steps, device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated() / 2**20
    return {"tokens_per_second": options.batch_size * LENGTH / seconds, "first_seconds": first, "peak_mib": peak}


def matrix_rate(options: argparse.Namespace) -> dict[str, float]:
    """In a child: floating-point operations a second of torch.mm at shapes of the step (4,096 tokens) and of a large square."""
    device, rates = torch.device(options.device), {}
    for precision in ("float32", "bfloat16"):
        if precision == "bfloat16" and not has_bfloat16(device):
            continue
        found = []
        for m, k, n in ((4096, 256, 1024), (4096, 1024, 256), (2048, 2048, 2048)):
            a, b = (torch.randn(s, device=device, dtype=getattr(torch, precision)) for s in ((m, k), (k, n)))
            torch.mm(a, b)
            found.append(2.0 * m * k * n / seconds_of(lambda a=a, b=b: torch.mm(a, b), 15, device))
        rates[precision] = statistics.median(found)
    return rates


def has_bfloat16(device: torch.device) -> bool:
    from electra.model.native import has_bfloat16_units

    return device.type == "cuda" or has_bfloat16_units()


GROUPS = {
    "gemm": "matrix products", "attention": "attention", "norm": "norms", "gelu": "GELU", "geglu": "GELU",
    "dropout": "dropout", "vocabulary": "vocabulary softmax",
}  # fmt: skip


def profile(options: argparse.Namespace) -> dict[str, float]:
    """In a child, CPU and float32: share of our step's time by what it goes to."""
    from electra.model import attention, kernels, native
    from electra.objectives.replaced_token import ReplacedToken
    from electra.train import optimizer

    spent: collections.Counter[str] = collections.Counter()

    def timed(function: Callable[..., Any], group: str | None) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            result = function(*arguments, **named)
            spent[group or GROUPS[str(arguments[0]).split("_")[0]]] += time.perf_counter() - began
            return result

        return wrapper

    kernels.call = attention.call = timed(native.call, None)
    optimizer.PairOptimizer.step = timed(optimizer.PairOptimizer.step, "optimizer")
    optimizer.clip_gradients = timed(optimizer.clip_gradients, "clipping")
    ReplacedToken.corrupt = timed(ReplacedToken.corrupt, "masking on the host")
    step = SIDES["ours"][0](options.batch_size, torch.float32, torch.device("cpu"))
    step()
    step()
    spent.clear()
    began = time.perf_counter()
    for _ in range(options.steps):
        step()
    total = time.perf_counter() - began
    shares = {group: seconds / total for group, seconds in spent.most_common()}
    return shares | {"the rest (autograd, embeddings, losses, Python)": 1.0 - sum(shares.values())}


def child(what: str, options: argparse.Namespace) -> dict[str, float]:
    words = [sys.executable, __file__, "--child", what]
    for name in ("batch_size", "steps", "threads", "device"):
        words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1]}  # type: ignore[dict-item]
    return json.loads(done.stdout.strip().splitlines()[-1])


def describe_machine(options: argparse.Namespace) -> dict[str, Any]:
    import transformers

    from electra.studies.speedrun import machine

    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    units = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f" {flag}" in flags]
    return {
        "machine": machine(), "units": units, "threads": options.threads, "torch": torch.__version__,
        "transformers": transformers.__version__, "date": time.strftime("%Y-%m-%d"),
        "batch": options.batch_size, "length": LENGTH, "device": options.device,
    }  # fmt: skip


def useful_operations() -> float:
    """Floating-point operations of training for each input token."""
    import dataclasses

    from electra.model import flops
    from electra.presets import small

    config = small()
    encoder = dataclasses.replace(config.model.discriminator, vocab_size=VOCABULARY)
    model = dataclasses.replace(config.model, discriminator=encoder)
    cost = flops.count(model, LENGTH, config.objective.mask_fraction)
    return sum(cost.of(name).training_flops for name in ("generator", "discriminator"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5, help="processes of each side, in turn")
    parser.add_argument("--steps", type=int, default=5, help="timed steps in each process")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), help="default: all that this machine has units for")
    parser.add_argument("--json", type=Path, help="file for the raw figures")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    if options.child:
        works = {"matrix rate": matrix_rate, "profile": profile}
        work = works.get(options.child) or (lambda options: measure(options.child, options))
        print(json.dumps(work(options)))
        return

    default = [
        s for s in SIDES if "compiled" not in s and ("bf16" not in s or has_bfloat16(torch.device(options.device)))
    ]
    sides = list(dict.fromkeys(["ours", UNIT, *(options.sides or default)]))
    rounds: list[Round] = []
    for number in range(options.rounds):
        found = {what: child(what, options) for what in ("matrix rate", *sides)}
        rounds.append(found)
        print(f"round {number + 1} of {options.rounds} done", file=sys.stderr)
    shares = child("profile", options) if options.device == "cpu" else {}
    description = describe_machine(options)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({**description, "rounds": rounds, "profile": shares}, indent=1) + "\n")
    print(report(description, rounds, sides, shares))


def report(
    description: dict[str, Any], rounds: list[dict[str, dict[str, float]]], sides: list[str], shares: dict[str, float]
) -> str:
    def median(of: Callable[[dict[str, dict[str, float]]], float], side: str) -> float | None:
        usable = [r for r in rounds if "error" not in r[side] and "error" not in r[UNIT]]
        return statistics.median(map(of, usable)) if usable else None

    operations = useful_operations()
    precisions = {name for r in rounds for name in r["matrix rate"]}
    rates = {name: statistics.median(r["matrix rate"][name] for r in rounds) for name in precisions}
    lines = [
        f"ELECTRA-Small, batch {description['batch']} x {LENGTH}, {description['machine']}, {description['threads']} threads, "
        f"units: {' '.join(description['units']) or description['device']}, torch {description['torch']}",
        f"{operations / 1e6:.1f} million useful operations a token; matrix products here: "
        + ", ".join(f"{name} {rate / 1e9:.0f} GFLOP/s" for name, rate in rates.items()),
        "",
        f"{'side':<28}{'tokens/s':>10}{'ratio':>8}{'  (rounds)':<22}{'MFU':>6}{'peak MiB':>10}",
    ]
    for side in sides:
        speed = median(lambda r, s=side: r[s]["tokens_per_second"], side)
        if speed is None:
            lines.append(f"{side:<28} did not run: {rounds[0][side].get('error', 'the unit did not run')}")
            continue
        ratios = [
            r[side]["tokens_per_second"] / r[UNIT]["tokens_per_second"]
            for r in rounds if "error" not in r[side] and "error" not in r[UNIT]
        ]  # fmt: skip
        precision = SIDES[side][1]
        rate = rates.get(precision, rates["float32"])
        spread, ratio = f"  ({min(ratios):.2f} to {max(ratios):.2f})", statistics.median(ratios)
        peak = max(r[side].get("peak_mib", 0.0) for r in rounds)
        lines.append(
            f"{side:<28}{speed:>10,.0f}{ratio:>8.2f}{spread:<22}{speed * operations / rate:>6.0%}{peak:>10,.0f}"
        )
    if shares and "error" not in shares:
        lines += [
            "",
            "where our step's time goes: " + ", ".join(f"{name} {share:.0%}" for name, share in shares.items()),
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
