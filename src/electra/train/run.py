"""A run directory: checked and opened before any work, described by its `config.yaml`, and read back."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
from typing import Any

import torch

from electra.config import PretrainConfig, TrainConfig
from electra.config_files import load_config, save_config, to_dict
from electra.data.packing import Rows, make_rows
from electra.data.shards import TokenStore
from electra.errors import UserError
from electra.model import flops
from electra.model.native import has_bfloat16_units
from electra.model.pair import Pair
from electra.objectives import check_settings, make_objective, make_pair, parts_of
from electra.train import distributed
from electra.train.checkpoint import TrainState, newest_checkpoint
from electra.train.continued import rate_warnings, trained_start
from electra.train.randomness import INITIALISATION, seed_torch
from electra.train.start import check_start, start_from_corpus

# What may differ between two sessions of one run: it changes neither the weights nor what they are compared with.
_FREE = {
    "train.save_every", "train.save_minutes", "train.keep_checkpoints", "train.log_every", "train.eval_every",
    "train.eval_batches", "train.num_threads", "train.tensorboard", "train.device", "train.compile",
    "data.heldout", "data.store", "run_dir",
}  # fmt: skip

ACCELERATOR_BYTES = 8 * 2**30  # for activations; enough rows to fill any GPU, and a card of 16 GiB holds them
CPU_MICRO_BATCH_TOKENS = 4096  # keeps a layer of Small near the cache; benchmarks/step.py runs with it


@dataclasses.dataclass(frozen=True)
class Run:
    """A run whose settings fit its data: the configuration has no open ends left."""

    config: PretrainConfig
    store: TokenStore
    heldout: TokenStore | None
    device: torch.device
    precision: torch.dtype
    micro_batch_size: int
    """Rows of this rank that go through the networks at once."""
    notes: list[str]
    """What is to be said once, before the first step."""

    @functools.cached_property
    def heldout_rows(self) -> Rows:
        """The held-out store as rows; made once, for all evaluations of the session."""
        assert self.heldout is not None
        return make_rows(self.heldout, self.config.data.length, self.config.data.layout, self.config.train.seed)


def open_run(config: PretrainConfig) -> Run:
    """Check everything that can be checked before work starts, then make (or re-open) the run directory.

    Raises UserError for a missing or unfit store, a missing budget, or a directory that holds another run.
    """
    check_settings(config)
    if config.data.store is None:
        raise UserError("data.store is not set: name a token store made by `electra prepare` (--data.store STORE)")
    store = TokenStore.open(config.data.store)
    heldout = TokenStore.open(config.data.heldout) if config.data.heldout is not None else None
    if heldout is not None and heldout.tokenizer_hash != store.tokenizer_hash:
        raise UserError(
            f"data.heldout is {config.data.heldout}: another tokenizer made it than {config.data.store}; "
            f"prepare it with --vocab {store.tokenizer_dir}"
        )
    config, notes = _with_trained_shapes(config, store)
    config = _with_vocabulary(config, store)
    if all(getattr(config.train, f"num_{unit}") is None for unit in ("steps", "tokens", "flops", "minutes")):
        raise UserError(
            "no budget is set: give --train.num-steps, --train.num-tokens, --train.num-flops or --train.num-minutes"
        )
    _check_budget(config, store)
    if config.train.batch_size < distributed.world_size():
        raise UserError(
            f"train.batch_size is {config.train.batch_size}: with {distributed.world_size()} processes it must be "
            f"at least {distributed.world_size()}"
        )
    device = choose_device(config.train.device)
    if config.train.compile and device.type == "cpu":
        raise UserError(
            "train.compile is for accelerators: the CPU has kernels of its own, which are faster; leave it out"
        )
    if distributed.rank() == 0:
        _claim(config, store)
    distributed.barrier()
    if config.train.num_threads:
        torch.set_num_threads(config.train.num_threads)
    precision, micro_batch_size = _precision(config.train, device), _micro_batch_size(config, device)
    return Run(config, store, heldout, device, precision, micro_batch_size, notes)


def flops_of_step(config: PretrainConfig, store: TokenStore) -> float:
    """Floating-point operations of a step of the run that trains all the networks of its objective."""
    objective = make_objective(
        config.objective, vocab_size=store.vocab_size, special=store.special, seed=config.train.seed
    )
    cost = flops.count(
        config.model,
        config.data.length,
        config.objective.mask_fraction,
        store.vocab_size,
        parts=parts_of(config.objective),
    )
    return cost.of_step(objective.networks(1.0)) * config.train.batch_size * config.data.length


def _check_budget(config: PretrainConfig, store: TokenStore) -> None:
    """Raises UserError for a budget that does not pay for one step. (In minutes nobody can know that beforehand.)"""
    needed = {"tokens": config.train.batch_size * config.data.length, "flops": flops_of_step(config, store)}
    for unit, of_step in needed.items():
        budget = getattr(config.train, f"num_{unit}")
        if budget is not None and budget < of_step:
            raise UserError(
                f"train.num_{unit} is {budget:.3g}: one step of {config.objective.name} takes {of_step:.3g}; raise it, or "
                f"lower train.batch_size ({config.train.batch_size}) or data.length ({config.data.length})"
            )


def _with_trained_shapes(config: PretrainConfig, store: TokenStore) -> tuple[PretrainConfig, list[str]]:
    """With `init_from`, the shapes of that model's networks, and what is to be said of it; as it is without.

    A run that has begun has them in its own config.yaml: the model need not be there any more.
    """
    if config.init_from is None:
        return config, []
    begun = config.run_dir / "config.yaml"
    if begun.is_file() and newest_checkpoint(config.run_dir) is not None:
        saved = load_config(PretrainConfig, begun)
        if (saved.init_from, saved.init_generator_from) == (config.init_from, config.init_generator_from):
            return dataclasses.replace(config, model=saved.model), []
    start = trained_start(config, store)
    config = dataclasses.replace(config, model=start.pair.config)
    rates = f"peak rate {config.optimizer.peak_learning_rate:g}"
    if config.optimizer.name == "muon":
        rates += f", {config.optimizer.muon_learning_rate:g} for matrices (Muon)"
    notes = [*start.notes, rates, *rate_warnings(config)]
    if config.data.heldout is None:
        notes.append("no --data.heldout is given: there will be no scores before and after")
    return config, notes


def _with_vocabulary(config: PretrainConfig, store: TokenStore) -> PretrainConfig:
    encoder = config.model.discriminator
    if encoder.vocab_size is not None and encoder.vocab_size < store.vocab_size:
        raise UserError(
            f"model.discriminator.vocab_size is {encoder.vocab_size}: the store's tokenizer has {store.vocab_size} "
            f"word pieces; leave the setting out to take the store's"
        )
    encoder = dataclasses.replace(encoder, vocab_size=encoder.vocab_size or store.vocab_size)
    check_start(encoder.vocab_size or 0, config.model.embedding_start)
    return dataclasses.replace(config, model=dataclasses.replace(config.model, discriminator=encoder))


def _claim(config: PretrainConfig, store: TokenStore) -> None:
    """Make the run directory with its configuration and tokenizer, or make sure that it is this run's."""
    directory = config.run_dir
    path = directory / "config.yaml"
    if path.is_file():
        saved = load_config(PretrainConfig, path)
        for name, old, new in _differences(to_dict(saved), to_dict(config)):
            raise UserError(
                f"{directory} holds a run of another configuration: {name} is {old!r} there and {new!r} here; "
                f"choose another --run-dir, or repeat its settings to go on with it"
            )
        return
    if directory.is_dir() and any(directory.iterdir()):
        raise UserError(f"{directory} is not empty and holds no run: choose another --run-dir")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        shutil.copytree(store.tokenizer_dir, directory / "tokenizer", dirs_exist_ok=True)
        partial = directory / ".config.yaml"
        save_config(config, partial)
        partial.rename(path)
    except OSError as error:
        raise UserError(f"{directory}: cannot be written ({error.strerror}); choose another --run-dir") from error


def _differences(old: dict[str, Any], new: dict[str, Any], where: str = "") -> list[tuple[str, Any, Any]]:
    found = []
    for name, value in new.items():
        full = f"{where}{name}"
        if isinstance(value, dict):
            found += _differences(old[name], value, f"{full}.")
        elif full not in _FREE and old[name] != value:
            found.append((full, old[name], value))
    return found


def choose_device(name: str) -> torch.device:
    """`auto` is the first accelerator, or the CPU. With torchrun each process takes the one of its local rank."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "cuda":
            device = torch.device("cuda", device.index or int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(device)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"train.device is {name!r}: it cannot be used here ({reason}); try cpu or auto") from None
    return device


def _precision(config: TrainConfig, device: torch.device) -> torch.dtype:
    if config.precision == "auto":
        # Emulated bfloat16 is many times slower than float32, so it needs units of its own.
        has_units = (
            torch.cuda.is_bf16_supported(including_emulation=False) if device.type == "cuda" else has_bfloat16_units()
        )
        return torch.bfloat16 if has_units else torch.float32
    return torch.bfloat16 if config.precision == "bfloat16" else torch.float32


def _micro_batch_size(config: PretrainConfig, device: torch.device) -> int:
    """On the CPU as many rows as keep the activations of a layer near the cache; on an accelerator as many as its memory
    takes, by a rough count of what a step keeps for its backward pass."""
    if config.train.micro_batch_size is not None:
        return config.train.micro_batch_size
    if device.type == "cpu":
        return max(1, CPU_MICRO_BATCH_TOKENS // config.data.length)
    main = config.model.discriminator
    kept_per_token = 40 * main.num_layers * main.hidden_size + 12 * config.objective.mask_fraction * (
        main.vocab_size or 0
    )
    return max(1, min(config.train.batch_size, int(ACCELERATOR_BYTES / kept_per_token / config.data.length)))


def build_pair(run: Run) -> Pair:
    """The two networks, with their initial weights unless a checkpoint is about to replace them."""
    resumes = newest_checkpoint(run.config.run_dir) is not None
    pair = initial_pair(run.config, None if resumes else run.store).to(run.device)
    if run.config.train.compile:
        for encoder in pair.encoders:
            for block in encoder.blocks:
                block.compile()
    return pair


def initial_pair(config: PretrainConfig, store: TokenStore | None) -> Pair:
    """The two networks before the first step; the weights depend on the seed, and on the store where the model asks for it."""
    seed_torch(config.train.seed, INITIALISATION)
    if config.init_from is not None and store is not None:
        pair = trained_start(config, store).pair
    else:
        pair = make_pair(config.model, config.objective)
    if store is not None:
        start_from_corpus(pair, store, config.train.seed)
    return pair


@dataclasses.dataclass(frozen=True)
class Budget:
    """How much of a run is done, whichever of its budgets is nearest to its end."""

    config: TrainConfig

    def progress(self, state: TrainState) -> float:
        """From 0 to 1."""
        used = (
            (state.step, self.config.num_steps),
            (state.tokens, self.config.num_tokens),
            (state.flops, self.config.num_flops),
            (state.seconds / 60.0, self.config.num_minutes),
        )
        return min(1.0, max(spent / budget for spent, budget in used if budget is not None))
