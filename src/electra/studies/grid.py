"""A grid of pre-training runs, each in a process of its own: finished ones are passed over, interrupted ones go on, failed ones
are reported and do not stop the rest."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from electra.config import PretrainConfig
from electra.config_files import save_config
from electra.train.checkpoint import whole_checkpoints
from electra.train.run import Budget

_POLL_SECONDS = 0.5
_TAIL_BYTES = 8192


@dataclasses.dataclass(frozen=True)
class Failure:
    """A run that ended with an error, and its last words."""

    run_dir: Path
    reason: str


def threads_each(parallel: int) -> int:
    """The cores that this process may use, shared out to as many processes: two that each take all of them slow each other."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // parallel)


def is_finished(config: PretrainConfig) -> bool:
    """Whether the run's budget is used up and its networks are written."""
    checkpoints = whole_checkpoints(config.run_dir)
    networks = any((config.run_dir / name / "config.json").is_file() for name in ("discriminator", "main"))
    return bool(checkpoints) and networks and Budget(config.train).progress(checkpoints[-1][1]) >= 1.0


def run_grid(
    configs: Sequence[PretrainConfig],
    parallel: int,
    *,
    say: Callable[[str], None] = print,
    watch: Callable[[float], None] = lambda share: None,
) -> list[Failure]:
    """Pre-train each configuration in its run directory, `parallel` of them at a time, each with its share of the cores.

    `watch` is told the share of all the work that is done. Each run's output goes to `<run_dir>.log`. Ctrl-C (or SIGTERM) lets
    every run save a checkpoint, then raises KeyboardInterrupt; the same call goes on from there.
    """
    waiting = [config for config in configs if not is_finished(config)]
    done, failures = len(configs) - len(waiting), []
    if done:
        say(f"{done} of {len(configs)} runs are there already")
    running: dict[subprocess.Popen[bytes], PretrainConfig] = {}
    threads = threads_each(parallel)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while waiting or running:
            while waiting and len(running) < parallel:
                config = waiting.pop(0)
                running[_start(config, threads)] = config
            time.sleep(_POLL_SECONDS)
            for process in [process for process in running if process.poll() is not None]:
                config, done = running.pop(process), done + 1
                if process.returncode == 0:
                    say(f"{config.run_dir.name}: done ({done} of {len(configs)})")
                else:
                    failures.append(Failure(config.run_dir, _last_words(config.run_dir)))
                    say(f"{config.run_dir.name}: failed ({failures[-1].reason})")
            watch((done + sum(_progress(config) for config in running.values())) / len(configs))
    finally:
        # A group of their own keeps the terminal's Ctrl-C from the runs: they get it once, from here, and save.
        for process in running:
            process.send_signal(signal.SIGINT)
        for process in running:
            process.wait()
        signal.signal(signal.SIGTERM, before)
    return failures


def command_of(config: PretrainConfig) -> list[str]:
    """The command that makes a run of the grid, as it can be typed."""
    return ["electra", "pretrain", "--config", str(_settings(config.run_dir)), "--run-dir", str(config.run_dir)]


def _start(config: PretrainConfig, threads: int) -> subprocess.Popen[bytes]:
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, num_threads=threads))
    config.run_dir.parent.mkdir(parents=True, exist_ok=True)
    save_config(config, _settings(config.run_dir))
    with _log(config.run_dir).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "electra.cli", *command_of(config)[1:]],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        )  # fmt: skip


def _progress(config: PretrainConfig) -> float:
    """Share of a run's operations that its last log line tells of."""
    path = config.run_dir / "metrics.jsonl"
    if not path.is_file():
        return 0.0
    with path.open("rb") as file:  # asked for all the time: the end of the file is enough
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        tail = file.read().decode("utf-8", errors="replace").splitlines()
    for text in reversed(tail):
        with contextlib.suppress(ValueError, TypeError, KeyError):  # a line cut short
            return min(1.0, json.loads(text)["flops"] / (config.train.num_flops or math.inf))
    return 0.0


def _last_words(run_dir: Path) -> str:
    lines = [line for line in _log(run_dir).read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("electra: error: ").strip() if lines else "no message"


def _settings(run_dir: Path) -> Path:
    return run_dir.with_name(f"{run_dir.name}.yaml")


def _log(run_dir: Path) -> Path:
    return run_dir.with_name(f"{run_dir.name}.log")
