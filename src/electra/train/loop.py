"""The training loop: raw batches in, a trained pair out. It names no objective, data set or device."""

from __future__ import annotations

from pathlib import Path

import torch

from electra.config import PretrainConfig
from electra.data.loader import BatchLoader, Position
from electra.data.packing import make_rows
from electra.files import exclusive
from electra.model import flops
from electra.model.native import keep_memory
from electra.model.pair import Pair
from electra.objectives import make_objective
from electra.objectives.base import Corrupted, Counts, Objective, StepOutput, carry_out_switches
from electra.train import distributed
from electra.train.export import export
from electra.train.optimizer import PairOptimizer, clip_gradients, learning_rate_factor
from electra.train.randomness import DROPOUT, seed_torch
from electra.train.run import Run, build_pair, choose_device, open_run
from electra.train.session import Session


def pretrain(config: PretrainConfig, *, quiet: bool = False) -> Path:
    """Pre-train until a budget is used up, going on from the run directory's newest checkpoint if there is one.

    Returns the run directory; once the budget is used up it holds `discriminator/` and `generator/` in Hugging Face format.
    Ctrl-C (or SIGTERM) saves a checkpoint and raises KeyboardInterrupt. Raises UserError, before any work, for settings
    that do not fit each other or the data.
    """
    with distributed.process_group(choose_device(config.train.device)):
        run = open_run(config)
        with exclusive(config.run_dir, held=distributed.rank() == 0):
            _train(run, quiet or distributed.rank() > 0)
            if distributed.rank() == 0:
                export(config.run_dir, config.run_dir)
            distributed.barrier()
    return config.run_dir


def _train(run: Run, quiet: bool) -> None:
    config, seed = run.config, run.config.train.seed
    if run.device.type == "cpu":
        keep_memory()
    pair = build_pair(run)
    optimizer = PairOptimizer(pair, config.optimizer)
    special, vocab_size = run.store.special, run.store.vocab_size
    objective = make_objective(config.objective, vocab_size=vocab_size, special=special, seed=seed)
    rows = make_rows(run.store, config.data.length, config.data.layout, seed)
    tokens_per_step = config.train.batch_size * config.data.length
    cost = flops.count(config.model, config.data.length, config.objective.mask_fraction, parts=pair.parts)

    session = Session(run, pair, objective, optimizer, quiet)
    state = session.state
    rank, world_size = distributed.rank(), distributed.world_size()
    loader = BatchLoader(
        rows,
        batch_size=config.train.batch_size,
        seed=seed,
        position=Position(state.rows),
        rank=rank,
        world_size=world_size,
    )
    with session, loader:
        while session.progress < 1.0:
            progress = session.progress
            state.num_switches = carry_out_switches(objective, pair, state.num_switches, progress)
            parts = [objective.corrupt(part) for part in next(loader).split(run.micro_batch_size)]
            counts = _global_counts(parts)
            factor = learning_rate_factor(config.optimizer, state.step, progress)

            outputs = _accumulate_gradients(
                run, pair, objective, parts, counts, progress, (seed, DROPOUT, state.step, rank)
            )
            distributed.sum_tensors([p.grad for p in optimizer.parameters if p.grad is not None])
            gradient_norm = clip_gradients(optimizer.parameters, config.optimizer.clip_norm)
            optimizer.step(factor)
            optimizer.zero_grad()

            state.step += 1
            state.rows = loader.position.rows
            state.tokens += tokens_per_step
            state.flops += tokens_per_step * cost.of_step(objective.networks(progress))
            session.after_step(outputs, gradient_norm, config.optimizer.peak_learning_rate * factor, loader)


def _accumulate_gradients(
    run: Run,
    pair: Pair,
    objective: Objective,
    parts: list[Corrupted],
    counts: Counts,
    progress: float,
    seed: tuple[int, ...],
) -> list[StepOutput]:
    """Gradient of the whole batch's loss, a micro-batch at a time: each loss is already divided by the global counts."""
    outputs = []
    for index, part in enumerate(parts):
        seed_torch(*seed, index)
        with torch.autocast(run.device.type, run.precision, enabled=run.precision != torch.float32):
            output = objective.step(pair, part.to(run.device), counts, progress)
        output.loss.backward()
        outputs.append(output)
    return outputs


def _global_counts(parts: list[Corrupted]) -> Counts:
    """Predictions in this step over all micro-batches and ranks."""
    masked = sum(part.counts.num_masked for part in parts)
    scored = sum(part.counts.num_scored for part in parts)
    masked, scored = (round(total) for total in distributed.sum_over_ranks([masked, scored]))
    return Counts(num_masked=max(1, masked), num_scored=max(1, scored))
