"""Two-stage training (paper, section 3.3): the generator alone first, then a discriminator that starts from its weights.

Stage 1 is masked language modelling by the generator. At the switch the main network takes the generator's weights; its head,
and what the optimizer knows of it, are as new. Stage 2 is replaced-token detection with the generator as it is (the paper's), or
trained on, which is the switch from BERT to ELECTRA.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import ClassVar

import torch

from electra.config import ObjectiveConfig, PretrainConfig
from electra.data.loader import Batch
from electra.errors import UserError
from electra.model.pair import Pair, Parts
from electra.objectives.base import Corrupted, Counts, StepOutput, Switch
from electra.objectives.mlm import generate
from electra.objectives.replaced_token import generator_only, joint, judge_all


def _check_networks(config: PretrainConfig) -> None:
    if config.model.generator_encoder() != config.model.discriminator:
        raise UserError(
            "objective.name is 'two-stage': the main network starts from the generator's weights, so both must be of one size; "
            "set model.generator.width and model.generator.depth to 1"
        )
    if config.objective.two_stage_freeze and config.model.tying != "none":
        raise UserError(
            f"model.tying is {config.model.tying!r}: a generator that is frozen after the switch cannot share weights that "
            f"train; set it to none, or objective.two_stage_freeze to false"
        )
    if config.init_from is not None:
        raise UserError(
            f"init_from is {config.init_from}: two-stage would replace the main network's weights at the switch; choose "
            f"objective.name electra, or leave init_from out"
        )


def _check_budget(config: PretrainConfig) -> None:
    """Where the number of steps is known beforehand, one of them must be after the switch."""
    train, at = config.train, config.objective.two_stage_switch
    tokens = train.num_tokens and math.ceil(train.num_tokens / (train.batch_size * config.data.length))
    num_steps = min((steps for steps in (train.num_steps, tokens) if steps), default=None)
    if num_steps is not None and math.ceil(at * num_steps) >= num_steps:
        raise UserError(
            f"objective.two_stage_switch is {at}: of {num_steps} steps none would be left for the second stage; lower it, or "
            f"raise the budget"
        )


@dataclasses.dataclass(frozen=True)
class TwoStage:
    """`two-stage` in the registry."""

    config: ObjectiveConfig
    corrupt: Callable[[Batch], Corrupted]
    parts: ClassVar[Parts] = Parts()
    unused: ClassVar[tuple[str, ...]] = ("generator", "discriminator_start")
    checks: ClassVar[tuple[Callable[[PretrainConfig], None], ...]] = (_check_networks, _check_budget)

    @property
    def switches(self) -> tuple[Switch, ...]:
        return (Switch(self.config.two_stage_switch, start_from_generator),)

    def networks(self, progress: float) -> Mapping[str, bool]:
        if progress < self.config.two_stage_switch:
            return {"generator": True}
        return {"generator": not self.config.two_stage_freeze, "discriminator": True}

    def step(self, pair: Pair, corrupted: Corrupted, global_counts: Counts, progress: float = 1.0) -> StepOutput:
        running = self.networks(progress)
        with torch.set_grad_enabled(torch.is_grad_enabled() and running["generator"]):
            generator = generate(self.config, pair, corrupted, global_counts)
        stage = 2 if "discriminator" in running else 1
        generator.sums["stage"] = (torch.full((), stage, device=generator.samples.device), 1)
        if stage == 1:
            return generator_only(generator)
        weight = self.config.discriminator_weight / global_counts.num_scored
        return joint(generator, judge_all(pair, corrupted, generator.samples), weight)


def start_from_generator(pair: Pair) -> None:
    """Give the main network the generator's weights, in place; its head stays as it was made."""
    pair.discriminator.load_state_dict(pair.generator.state_dict())
