"""Replaced-token detection: the ELECTRA objective (paper, section 2), and its ablation ELECTRA 15% (section 3.4).

Input of the main network: the text with the generator's samples at the masked positions. Loss: the generator's MLM loss +
lambda x binary cross-entropy of original (0) against replaced (1); a sample that happens to be the original counts as
original. The discriminator's loss does not reach the generator, tied weights aside.

Shapes: B batch, L length, K masked positions, M most masked positions of a row, N scored positions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from electra.config import ObjectiveConfig, PretrainConfig
from electra.data.loader import Batch
from electra.model.pair import Pair, Parts
from electra.objectives.base import Corrupted, Counts, StepOutput, Switch
from electra.objectives.mlm import Proposals, generate
from electra.objectives.ranking import logit_histogram

TWO_STAGE_SETTINGS = ("two_stage_switch", "two_stage_freeze")


@dataclasses.dataclass(frozen=True)
class ReplacedToken:
    """`electra` in the registry: every real token is scored."""

    config: ObjectiveConfig
    corrupt: Callable[[Batch], Corrupted]
    parts: ClassVar[Parts] = Parts()
    unused: ClassVar[tuple[str, ...]] = TWO_STAGE_SETTINGS
    checks: ClassVar[tuple[Callable[[PretrainConfig], None], ...]] = ()
    switches: ClassVar[tuple[Switch, ...]] = ()

    def networks(self, progress: float) -> Mapping[str, bool]:
        return joint_networks(self.config, progress)

    def step(self, pair: Pair, corrupted: Corrupted, global_counts: Counts, progress: float = 1.0) -> StepOutput:
        generator = generate(self.config, pair, corrupted, global_counts)
        if "discriminator" not in self.networks(progress):
            return generator_only(generator)
        weight = self.config.discriminator_weight / global_counts.num_scored
        return joint(generator, judge_all(pair, corrupted, generator.samples), weight)


@dataclasses.dataclass(frozen=True)
class ReplacedTokenAtMasked:
    """`electra-15` in the registry: only the masked positions are scored, about 15% of the tokens."""

    config: ObjectiveConfig
    corrupt: Callable[[Batch], Corrupted]
    parts: ClassVar[Parts] = Parts(main_at="masked")
    unused: ClassVar[tuple[str, ...]] = TWO_STAGE_SETTINGS
    checks: ClassVar[tuple[Callable[[PretrainConfig], None], ...]] = ()
    switches: ClassVar[tuple[Switch, ...]] = ()

    def networks(self, progress: float) -> Mapping[str, bool]:
        return joint_networks(self.config, progress)

    def step(self, pair: Pair, corrupted: Corrupted, global_counts: Counts, progress: float = 1.0) -> StepOutput:
        generator = generate(self.config, pair, corrupted, global_counts)
        if "discriminator" not in self.networks(progress):
            return generator_only(generator)
        weight = self.config.discriminator_weight / global_counts.num_masked
        return joint(generator, judge_masked(pair, corrupted, generator.samples), weight)


# ---------------------------------------------------------------------------- pieces, also of the other objectives


def joint_networks(config: ObjectiveConfig, progress: float) -> Mapping[str, bool]:
    """The generator alone until `discriminator_start`, then both; whichever runs is trained."""
    generator = {"generator": True} if config.generator == "network" else {}
    return generator | ({} if progress < config.discriminator_start else {"discriminator": True})


def generator_only(generator: Proposals) -> StepOutput:
    """A step in which the main network does not run."""
    return StepOutput(loss=generator.loss, sums=generator.sums, histograms={})


@dataclasses.dataclass(frozen=True)
class Verdicts:
    """The discriminator's answers where it is scored; all of one shape, [B, L] or [K]."""

    logits: Tensor
    """float32; above 0 says replaced."""
    is_replaced: Tensor
    """bool, the truth."""
    scored: Tensor
    """bool"""
    num_scored: int

    def losses(self) -> Tensor:
        """Binary cross-entropy at each scored position, 0 elsewhere."""
        return F.binary_cross_entropy_with_logits(self.logits, self.is_replaced.float(), reduction="none") * self.scored


def judge_all(pair: Pair, corrupted: Corrupted, samples_K: Tensor) -> Verdicts:
    """The discriminator reads the samples and judges every real token."""
    replaced_ids, is_replaced_BL = put_samples(corrupted, samples_K)
    hidden_BLD = pair.discriminator(replaced_ids, corrupted.attention_mask, corrupted.token_type_ids)
    logits_BL = pair.discriminator_head(hidden_BLD).float()
    return Verdicts(logits_BL, is_replaced_BL, corrupted.scored, corrupted.counts.num_scored)


def judge_masked(pair: Pair, corrupted: Corrupted, samples_K: Tensor) -> Verdicts:
    """The discriminator reads the samples and judges those alone."""
    replaced_ids, _ = put_samples(corrupted, samples_K)
    hidden_BMD = pair.discriminator(
        replaced_ids, corrupted.attention_mask, corrupted.token_type_ids, at_BK=corrupted.columns
    )
    logits_K = pair.discriminator_head(hidden_BMD.flatten(0, 1)[corrupted.filled]).float()
    is_replaced_K = samples_K != corrupted.labels
    return Verdicts(logits_K, is_replaced_K, torch.ones_like(is_replaced_K), corrupted.counts.num_masked)


def joint(generator: Proposals, verdicts: Verdicts, weight: float) -> StepOutput:
    """Both losses and their metrics; `weight` is lambda divided by the step's scored positions."""
    loss_sum = verdicts.losses().sum()
    return StepOutput(
        loss=generator.loss + weight * loss_sum,
        sums=generator.sums
        | {
            "discriminator_loss": (loss_sum.detach(), verdicts.num_scored),
            "replaced_share": (verdicts.is_replaced.sum(), verdicts.num_scored),
        },
        histograms={"discriminator": logit_histogram(verdicts.logits.detach(), verdicts.is_replaced, verdicts.scored)},
    )


def put_samples(corrupted: Corrupted, samples_K: Tensor) -> tuple[Tensor, Tensor]:
    """The main network's input [B, L] int64 and its labels [B, L] bool, True where the token now differs from the text."""
    replaced_ids = corrupted.input_ids.clone()
    replaced_ids.view(-1)[corrupted.positions] = samples_K
    with torch.no_grad():
        return replaced_ids, replaced_ids != corrupted.input_ids
