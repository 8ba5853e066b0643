"""What an objective is: it corrupts a batch on the host, then turns a pair of networks and that batch into a loss.

Shapes: B batch, L length, K masked positions of the whole batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from electra.config import ObjectiveConfig, PretrainConfig
from electra.data.loader import Batch
from electra.model.pair import Pair, Parts


@dataclasses.dataclass(frozen=True)
class Counts:
    """How many predictions a step makes, over all micro-batches and ranks; known before the networks run."""

    num_masked: int
    num_scored: int

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.num_masked + other.num_masked, self.num_scored + other.num_scored)


@dataclasses.dataclass(frozen=True)
class Corrupted:
    """A batch with its masked positions chosen. Everything random in a step is already in here, dropout aside."""

    input_ids: Tensor
    """[B, L] int64, the original text."""
    masked_ids: Tensor
    """[B, L] int64, what the generator sees."""
    attention_mask: Tensor | None
    """[B, L] bool, True at real tokens and specials; None when there is no padding."""
    token_type_ids: Tensor | None
    """[B, L] int64, or None for one segment."""
    scored: Tensor
    """[B, L] bool, True at real tokens: neither special nor padding."""
    positions: Tensor
    """[K] int64, the chosen positions as ascending indices into the flattened batch."""
    columns: Tensor
    """[B, M] int64, each row's chosen positions, M being the most that a row has; shorter ones are filled up with 0."""
    filled: Tensor
    """[K] int64, indices of the true positions in the flattened `columns`, in the order of `positions`."""
    labels: Tensor
    """[K] int64, the original tokens at `positions`."""
    uniforms: Tensor
    """[K] float32 in [0, 1): the number that decides which replacement is sampled."""
    counts: Counts
    """Of this micro-batch on this rank."""

    def to(self, device: torch.device) -> Corrupted:
        """The same on another device, copied without waiting (to a GPU, out of pinned memory)."""

        def move(tensor: Tensor) -> Tensor:
            return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)

        moved: dict[str, Any] = {
            field.name: move(value) if isinstance(value, Tensor) else value
            for field in dataclasses.fields(self)
            for value in [getattr(self, field.name)]
        }
        return Corrupted(**moved)


@dataclasses.dataclass(frozen=True)
class StepOutput:
    """What one micro-batch gives. Sums and histograms add up over micro-batches, steps and ranks."""

    loss: Tensor
    """Scalar to be differentiated: this micro-batch's part of the step's loss, already divided by the global counts."""
    sums: dict[str, tuple[Tensor, int]]
    """Metric name -> (sum on the device, number of terms); their quotient is the metric."""
    histograms: dict[str, Tensor]
    """Name -> [2, bins] counts of logits, row 0 for negatives and row 1 for positives."""


@dataclasses.dataclass(frozen=True)
class Switch:
    """A change of the networks between two steps."""

    at: float
    """Share of the budget from which it is due."""
    change: Callable[[Pair], None]
    """In place."""


class Objective(Protocol):
    """A training objective. It owns no loop and no networks."""

    @property
    def switches(self) -> tuple[Switch, ...]:
        """The changes of stage in their order; most objectives have none."""
        ...

    def corrupt(self, batch: Batch) -> Corrupted:
        """Choose the positions and what the generator sees. A pure function of the batch's rows and epochs and the seed."""
        ...

    def networks(self, progress: float) -> Mapping[str, bool]:
        """Which networks a step at this share of the budget runs, and whether it trains them, for the count of operations."""
        ...

    def step(self, pair: Pair, corrupted: Corrupted, global_counts: Counts, progress: float = 1.0) -> StepOutput:
        """Run the networks. Works under `torch.no_grad` too, for held-out scores. `progress` is the share of the budget used."""
        ...


def carry_out_switches(objective: Objective, pair: Pair, num_done: int, progress: float) -> int:
    """Change the networks as is due at this share of the budget; returns how many of the switches are done then."""
    for switch in objective.switches[num_done:]:
        if progress >= switch.at:
            switch.change(pair)
            num_done += 1
    return num_done


class ObjectiveClass(Protocol):
    """What the registry holds: makes an objective, and knows beforehand what it needs."""

    parts: Parts
    """The networks and heads that it runs, its generator being a network."""
    unused: tuple[str, ...]
    """Settings in `ObjectiveConfig` that would change nothing, refused where they are not at their defaults."""
    checks: tuple[Callable[[PretrainConfig], None], ...]
    """Raise UserError for settings that do not fit each other."""

    def __call__(self, config: ObjectiveConfig, corrupt: Callable[[Batch], Corrupted]) -> Objective: ...
