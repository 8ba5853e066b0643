"""Fine-tuning, whatever the task: layer rates, batches of like length, several seeds, failed runs, the best one kept.

A task brings encoded texts, a network of an encoder and a head, a loss and a score (`Task`); nothing here knows of labels.
Shapes: B batch, L length.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from electra.config_finetune import TuningConfig
from electra.data.tokenizer import load_tokenizer
from electra.errors import UserError
from electra.evaluate.batching import batches_by_length, batches_per_epoch, pad, shuffled_batches, tokens_at_once
from electra.evaluate.used_rows import only_used_rows
from electra.model.encoder import Encoder
from electra.model.hf import LoadedEncoder, load_encoder
from electra.model.native import keep_memory
from electra.train.optimizer import clip_gradients
from electra.train.randomness import seed_torch
from electra.train.run import CPU_MICRO_BATCH_TOKENS, choose_device

_CHECKED_EVERY = 100  # steps: a run whose loss is no number ends soon, and an accelerator is hardly ever waited for


class Inputs(NamedTuple):
    """What a network reads."""

    ids_BL: Tensor
    mask_BL: Tensor | None
    """True at tokens; None without padding."""
    types_BL: Tensor | None
    """Segments; None where there is only one."""


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Texts as word-piece ids, special tokens included."""

    ids: list[list[int]]
    types: list[list[int]] | None
    """Segment of each token; None for single texts and for encoders without segments."""
    num_cut: int = 0
    """How many of the texts were longer than the network may read, and were cut."""

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: NDArray[np.int64]) -> Encoded:
        """Only these rows."""
        types = None if self.types is None else [self.types[row] for row in rows]
        return Encoded([self.ids[row] for row in rows], types)

    def inputs(self, rows: NDArray[np.int64], pad_id: int, device: torch.device) -> Inputs:
        """These rows, filled up to the longest of them."""
        ids, mask = pad([self.ids[row] for row in rows], pad_id)
        types = None if self.types is None else pad([self.types[row] for row in rows], 0)[0].to(device)
        return Inputs(ids.to(device), None if mask is None else mask.to(device), types)


class TaskNetwork(nn.Module):
    """An encoder and a task's head; a task's own network says in its `forward` how the two are used."""

    def __init__(self, encoder: Encoder, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head


class Scored(NamedTuple):
    """What a network is worth on the dev data."""

    scores: dict[str, float]
    main: float
    """The score by which the best seed is chosen; higher is better."""
    degenerate: bool
    """It says the same of everything: a failed run, though its loss is a number."""
    predictions: Any
    """Whatever the task wants back of the best seed."""


class Task(Protocol):
    """What the core needs of a task."""

    def new_network(self, encoder: Encoder) -> TaskNetwork:
        """The encoder with a fresh head, drawn from torch's generator, which is seeded."""
        ...

    def loss(self, network: Any, rows: NDArray[np.int64], inputs: Inputs) -> Tensor:
        """Of these rows of the training data, summed over them (the core divides by the size of the batch)."""
        ...

    def score(self, network: Any) -> Scored | None:
        """Of a network in evaluation mode on the device; None without dev data."""
        ...


class Start(NamedTuple):
    """A pre-trained model, ready to be fine-tuned."""

    loaded: LoadedEncoder
    tokenizer: Any
    device: torch.device

    @property
    def has_types(self) -> bool:
        """Does the encoder tell segments apart?"""
        return self.loaded.config.blocks == "classic" and self.loaded.config.type_vocab_size > 1


class Outcome(NamedTuple):
    """What the runs of all seeds gave."""

    runs: list[dict[str, Any]]
    """`seed`, `failed` (the loss was not a number), `degenerate`, `train_seconds` and the scores of each."""
    network: Any
    """Of the best seed, on the CPU, in evaluation mode."""
    predictions: Any
    """Of the best seed; None without dev data."""

    @property
    def good(self) -> list[dict[str, Any]]:
        """The runs that ended in numbers."""
        return [run for run in self.runs if not run["failed"]]


def load_start(model: str | Path, config: TuningConfig) -> Start:
    """Encoder, tokenizer and device. Raises UserError for a model without tokenizer, and for texts longer than it can take."""
    device = choose_device(config.device)
    loaded = load_encoder(model)
    if loaded.tokenizer_dir is None:
        raise UserError(
            f"{loaded.path}: has no tokenizer; copy tokenizer.json (or vocab.txt) of the pre-training there"
        )
    if loaded.config.blocks == "classic" and config.max_length > loaded.config.max_length:
        raise UserError(
            f"max_length is {config.max_length}: the model's position table ends at {loaded.config.max_length}; "
            "set it to that or less"
        )
    return Start(loaded, load_tokenizer(loaded.tokenizer_dir), device)


def train_seeds(task: Task, data: Encoded, start: Start, config: TuningConfig, *, quiet: bool = False) -> Outcome:
    """Fine-tune once for each seed and score each run; `config` has no open ends (recipe.py).

    A run whose loss stops being a number is counted as failed and does not stop the others. Raises UserError if all fail.
    """
    num_rows = min(len(data), config.max_train_examples or len(data))
    runs: list[dict[str, Any]] = []
    best: tuple[float, dict[str, Tensor], Any] | None = None
    network = None
    with _progress(quiet, config.seeds * num_steps(num_rows, config)) as progress:
        for seed in range(config.seed, config.seed + config.seeds):
            seed_torch(seed)
            encoder = start.loaded.encoder
            encoder = Encoder(start.loaded.config) if config.random_weights else copy.deepcopy(encoder)
            network = task.new_network(encoder).to(start.device)
            rows = np.arange(len(data))
            if num_rows < len(data):
                rows = np.sort(np.random.Generator(np.random.Philox(seed)).permutation(len(data))[:num_rows])
            began = time.perf_counter()
            finite = train(task, network, data, rows, start, config, seed, lambda: _advance(progress))
            run: dict[str, Any] = {"seed": seed, "failed": not finite, "degenerate": False}
            run["train_seconds"] = time.perf_counter() - began
            scored = task.score(network.eval()) if finite else None
            if scored is not None:
                run |= {"degenerate": scored.degenerate, **scored.scores}
            runs.append(run)
            main, predictions = (scored.main, scored.predictions) if scored is not None else (0.0, None)
            if finite and (best is None or main > best[0]):
                best = (main, copy.deepcopy(network.state_dict()), predictions)
    if best is None or network is None:
        failed = "the run" if config.seeds == 1 else f"each of {config.seeds} runs"
        raise UserError(f"{failed} failed: the loss was not a number; lower peak_learning_rate")
    network.load_state_dict(best[1])
    return Outcome(runs, network.cpu().eval(), best[2])


def train(
    task: Task,
    network: TaskNetwork,
    data: Encoded,
    rows: NDArray[np.int64],
    start: Start,
    config: TuningConfig,
    seed: int,
    advance: Callable[[], None] = lambda: None,
) -> bool:
    """Train on these rows of the data. Returns whether the loss stayed a number."""
    part, pad_id = data.take(rows), start.tokenizer.pad_token_id
    if config.weight_decay:
        return _train(task, network, part, rows, pad_id, start.device, config, seed, advance)
    with only_used_rows(network.encoder, part.ids, pad_id) as (ids, pad_id):
        part = Encoded(ids, part.types)
        return _train(task, network, part, rows, pad_id, start.device, config, seed, advance)


def num_steps(num_rows: int, config: TuningConfig) -> int:
    """Updates in a run."""
    assert config.num_epochs is not None, "recipe.filled_in comes first"
    return math.ceil(batches_per_epoch(num_rows, config.batch_size) * config.num_epochs)


def _train(
    task: Task,
    network: TaskNetwork,
    data: Encoded,
    numbers: NDArray[np.int64],
    pad_id: int,
    device: torch.device,
    config: TuningConfig,
    seed: int,
    advance: Callable[[], None],
) -> bool:
    """`numbers`: which rows of the task's training data those of `data` are."""
    if device.type == "cpu":
        keep_memory()
    network.train()
    optimizer = _optimizer(network, config)
    parameters = list(network.parameters())
    total = num_steps(len(data), config)
    warmup_steps = max(1, round(config.warmup_fraction * total))
    batches = shuffled_batches(np.array([len(ids) for ids in data.ids]), config.batch_size, seed)
    tokens = CPU_MICRO_BATCH_TOKENS if device.type == "cpu" else sys.maxsize
    losses: list[Tensor] = []
    for step in range(total):
        factor = min(1.0, (step + 1) / warmup_steps) * (1.0 - step / total)
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        batch = next(batches)
        optimizer.zero_grad()
        # Long texts in parts, whose gradients add up to the batch's.
        for part in batches_by_length([data.ids[row] for row in batch], tokens):
            rows = batch[part]
            loss = task.loss(network, numbers[rows], data.inputs(rows, pad_id, device)) / len(batch)
            loss.backward()
            losses.append(loss.detach())
        clip_gradients(parameters, 1.0)
        optimizer.step()
        advance()
        if (step + 1) % _CHECKED_EVERY == 0 or step + 1 == total:
            if not torch.isfinite(torch.stack(losses)).all():
                return False
            losses.clear()
    return True


def _optimizer(network: TaskNetwork, config: TuningConfig) -> torch.optim.AdamW:
    """AdamW as in the paper; each group of parameters has its `peak` rate."""
    assert config.peak_learning_rate is not None, "recipe.filled_in comes first"
    assert config.layer_decay is not None, "recipe.filled_in comes first"
    groups = [
        *layer_rates(network.encoder, config.peak_learning_rate, config.layer_decay),
        (list(network.head.parameters()), config.peak_learning_rate),
    ]
    split = [
        {"params": chosen, "lr": rate, "peak": rate, "weight_decay": decay}
        for parameters, rate in groups
        for decay, chosen in (
            (config.weight_decay, [p for p in parameters if p.ndim >= 2]),
            (0.0, [p for p in parameters if p.ndim < 2]),
        )
        if chosen
    ]
    return torch.optim.AdamW(split, eps=1e-6, fused=True)


def layer_rates(encoder: Encoder, peak: float, decay: float) -> list[tuple[list[nn.Parameter], float]]:
    """(parameters, learning rate) for the encoder, input side first; the head's rate is `peak`.

    The exponents are the reference's (model/optimization.py): with n layers, n + 2 for the embeddings and n + 1 - i for
    layer i from 0, so that the topmost layer already has 2. What `modern` adds after its last layer gets 1.
    """
    count = len(encoder.blocks)
    groups = [
        ([p for module in (encoder.embeddings, encoder.embeddings_project, encoder.embeddings_norm) if module
          for p in module.parameters()], peak * decay ** (count + 2)),
        *((list(block.parameters()), peak * decay ** (count + 1 - index)) for index, block in enumerate(encoder.blocks)),
    ]  # fmt: skip
    if encoder.final_norm is not None:
        groups.append((list(encoder.final_norm.parameters()), peak * decay))
    return groups


def scoring_batches(data: Encoded, start: Start) -> Iterator[tuple[NDArray[np.int64], Inputs]]:
    """(row numbers, inputs) of all rows, those of like length together; for scoring, under `torch.inference_mode()`."""
    for batch in batches_by_length(data.ids, tokens_at_once(start.device)):
        rows = np.array(batch)
        yield rows, data.inputs(rows, start.tokenizer.pad_token_id, start.device)


def _progress(quiet: bool, total: int) -> Progress:
    """A bar on the standard error, where that is a terminal."""
    console = Console(file=sys.stderr)
    progress = Progress(
        TextColumn("fine-tuning"), BarColumn(), MofNCompleteColumn(), TextColumn("steps{task.fields[rate]}"),
        TimeRemainingColumn(), console=console, disable=quiet or not console.is_terminal, transient=True,
    )  # fmt: skip
    progress.add_task("", total=total, rate="")
    return progress


def _advance(progress: Progress) -> None:
    task = progress.tasks[0]
    progress.update(task.id, advance=1, rate=f", {task.speed:.1f} a second" if task.speed else "")
