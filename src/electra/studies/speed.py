"""How fast this machine trains a configuration: a run of a few seconds, thrown away."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import torch

from electra.config import PretrainConfig
from electra.train.loop import pretrain
from electra.train.metrics import read_metrics

SECONDS = 2.0


def operations_per_second(config: PretrainConfig, threads: int) -> float:
    """Of training with so many threads. What a run takes from the corpus before its first step is left out, as it takes none of
    the budget."""
    model = dataclasses.replace(config.model, embedding_start="random", unigram_bias=False)
    data = dataclasses.replace(config.data, heldout=None)
    train = dataclasses.replace(
        config.train, num_steps=None, num_tokens=None, num_flops=None, num_minutes=SECONDS / 60, num_threads=threads,
        save_every=0, save_minutes=0.0, log_every=1, tensorboard=False,
    )  # fmt: skip
    before = torch.get_num_threads()
    try:
        with tempfile.TemporaryDirectory() as directory:
            short = dataclasses.replace(config, run_dir=Path(directory) / "run", model=model, data=data, train=train)
            lines = read_metrics(pretrain(short, quiet=True) / "metrics.jsonl")
    finally:
        torch.set_num_threads(before)
    first, last = lines[0], lines[-1]
    if first is last:  # one step took all the time
        return last["flops"] / last["seconds"]
    return (last["flops"] - first["flops"]) / (last["seconds"] - first["seconds"])  # the first step is slower
