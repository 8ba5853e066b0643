"""The objectives between BERT and ELECTRA (paper, section 3.4): a main network that predicts tokens.

bert            [MASK] in, the original token at the masked positions; there is no generator
replace-mlm     the generator's samples in, the original token at the masked positions
all-tokens-mlm  the generator's samples in, the original token at every real position, through a copy mechanism

A generator beside it trains on its own MLM loss; the main network's loss does not reach it, tied weights aside.

Shapes: B batch, L length, K masked positions, N positions of the whole batch, D hidden size.
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
from electra.model.target_losses import target_losses
from electra.objectives.base import Corrupted, Counts, StepOutput, Switch
from electra.objectives.mlm import generate, predict_masked
from electra.objectives.replaced_token import TWO_STAGE_SETTINGS, generator_only, joint_networks, put_samples


@dataclasses.dataclass(frozen=True)
class Bert:
    """`bert` in the registry: masked language modelling by the main network, and nothing beside it."""

    config: ObjectiveConfig
    corrupt: Callable[[Batch], Corrupted]
    parts: ClassVar[Parts] = Parts(generator=False, main_head="vocabulary", main_at="masked")
    unused: ClassVar[tuple[str, ...]] = (
        "generator", "generator_weight", "discriminator_weight", "temperature", "disallow_correct", "discriminator_start",
        *TWO_STAGE_SETTINGS,
    )  # fmt: skip
    checks: ClassVar[tuple[Callable[[PretrainConfig], None], ...]] = ()
    switches: ClassVar[tuple[Switch, ...]] = ()

    def networks(self, progress: float) -> Mapping[str, bool]:
        return {"discriminator": True}

    def step(self, pair: Pair, corrupted: Corrupted, global_counts: Counts, progress: float = 1.0) -> StepOutput:
        main = predict_masked(
            pair.discriminator, pair.vocabulary_head, corrupted.masked_ids, corrupted, 1.0 / global_counts.num_masked
        )
        return StepOutput(loss=main.loss, sums=main.sums("mlm", corrupted.counts.num_masked), histograms={})


@dataclasses.dataclass(frozen=True)
class ReplaceMlm:
    """`replace-mlm` in the registry: BERT without the mismatch of a [MASK] that fine-tuning never shows."""

    config: ObjectiveConfig
    corrupt: Callable[[Batch], Corrupted]
    parts: ClassVar[Parts] = Parts(main_head="vocabulary", main_at="masked")
    unused: ClassVar[tuple[str, ...]] = ("discriminator_weight", *TWO_STAGE_SETTINGS)
    checks: ClassVar[tuple[Callable[[PretrainConfig], None], ...]] = ()
    switches: ClassVar[tuple[Switch, ...]] = ()

    def networks(self, progress: float) -> Mapping[str, bool]:
        return joint_networks(self.config, progress)

    def step(self, pair: Pair, corrupted: Corrupted, global_counts: Counts, progress: float = 1.0) -> StepOutput:
        generator = generate(self.config, pair, corrupted, global_counts)
        if "discriminator" not in self.networks(progress):
            return generator_only(generator)
        replaced_ids, is_replaced = put_samples(corrupted, generator.samples)
        main = predict_masked(
            pair.discriminator, pair.vocabulary_head, replaced_ids, corrupted, 1.0 / global_counts.num_masked
        )
        num_masked = corrupted.counts.num_masked
        return StepOutput(
            loss=generator.loss + main.loss,
            sums=generator.sums
            | main.sums("mlm", num_masked)
            | {"replaced_share": (is_replaced.sum(), corrupted.counts.num_scored)},
            histograms={},
        )


@dataclasses.dataclass(frozen=True)
class AllTokensMlm:
    """`all-tokens-mlm` in the registry: every real token is predicted, p = D 1[the input] + (1 - D) softmax."""

    config: ObjectiveConfig
    corrupt: Callable[[Batch], Corrupted]
    parts: ClassVar[Parts] = Parts(main_head="copy")
    unused: ClassVar[tuple[str, ...]] = ("discriminator_weight", *TWO_STAGE_SETTINGS)
    checks: ClassVar[tuple[Callable[[PretrainConfig], None], ...]] = ()
    switches: ClassVar[tuple[Switch, ...]] = ()

    def networks(self, progress: float) -> Mapping[str, bool]:
        return joint_networks(self.config, progress)

    def step(self, pair: Pair, corrupted: Corrupted, global_counts: Counts, progress: float = 1.0) -> StepOutput:
        generator = generate(self.config, pair, corrupted, global_counts)
        if "discriminator" not in self.networks(progress):
            return generator_only(generator)
        replaced_ids, is_replaced = put_samples(corrupted, generator.samples)
        hidden_BLD = pair.discriminator(replaced_ids, corrupted.attention_mask, corrupted.token_type_ids)
        copy_logits_N = pair.copy_head(hidden_BLD).flatten()
        head = pair.vocabulary_head
        originals_N = corrupted.input_ids.flatten()
        softmax_losses_N, likeliest_N = target_losses(
            head(hidden_BLD.flatten(0, 1)), head.decoder_weight, head.bias, originals_N
        )
        losses_N = copy_losses(copy_logits_N, softmax_losses_N, ~is_replaced.flatten())
        scored_N = corrupted.scored.flatten()
        loss_sum = (losses_N * scored_N).sum()
        num_masked, num_scored = corrupted.counts.num_masked, corrupted.counts.num_scored
        with torch.no_grad():
            right_K = likeliest_N[corrupted.positions] == corrupted.labels
            sums = {
                "mlm_loss": (loss_sum.detach(), num_scored),
                "mlm_accuracy": (right_K.sum(), num_masked),
                "masked_loss": (losses_N[corrupted.positions].sum(), num_masked),
                "copy_share": ((copy_logits_N.detach().sigmoid() * scored_N).sum(), num_scored),
                "replaced_share": (is_replaced.sum(), num_scored),
            }
        return StepOutput(
            loss=generator.loss + loss_sum / global_counts.num_scored,
            sums=generator.sums | sums,
            histograms={},
        )


def copy_losses(copy_logits_N: Tensor, softmax_losses_N: Tensor, is_input_N: Tensor) -> Tensor:
    """-log of p = D 1[token = input] + (1 - D) softmax(token), D = sigmoid(copy logit), all in log space.

    `softmax_losses_N` is -log softmax(token), `is_input_N` (bool) where the token is the one in the input. Neither a sure
    head nor an unlikely token overflows or rounds to a loss that is not finite.
    """
    not_copied_N = F.logsigmoid(-copy_logits_N) - softmax_losses_N
    return -torch.where(is_input_N, torch.logaddexp(F.logsigmoid(copy_logits_N), not_copied_N), not_copied_N)
