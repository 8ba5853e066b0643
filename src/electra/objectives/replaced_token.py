"""Replaced-token detection, the ELECTRA objective (paper, section 2).

Input of the main network: the text with the generator's samples at the masked positions. Scored: every real token.
Loss: the generator's MLM loss + lambda x binary cross-entropy of original (0) against replaced (1); a sample that happens
to be the original counts as original. The discriminator's loss does not reach the generator, tied weights aside.

Shapes: B batch, L length, K masked positions.
"""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor

from electra.config import ObjectiveConfig
from electra.data.loader import Batch
from electra.data.tokenizer import SpecialIds
from electra.model.pair import Pair
from electra.objectives.base import Corrupted, Counts, StepOutput
from electra.objectives.corruption import corrupt
from electra.objectives.mlm import run_generator
from electra.objectives.ranking import logit_histogram


@dataclasses.dataclass(frozen=True)
class ReplacedToken:
    """`electra` in the registry."""

    config: ObjectiveConfig
    _: dataclasses.KW_ONLY
    vocab_size: int
    special: SpecialIds
    seed: int

    def corrupt(self, batch: Batch) -> Corrupted:
        return corrupt(batch, self.config, vocab_size=self.vocab_size, special=self.special, seed=self.seed)

    def networks(self, progress: float) -> tuple[str, ...]:
        return ("generator",) if progress < self.config.discriminator_start else ("generator", "discriminator")

    def step(self, pair: Pair, corrupted: Corrupted, global_counts: Counts, progress: float = 1.0) -> StepOutput:
        generator_weight = self.config.generator_weight / global_counts.num_masked
        generator = run_generator(pair, corrupted, self.config.temperature, generator_weight)
        num_masked, num_scored = corrupted.counts.num_masked, corrupted.counts.num_scored
        sums = {
            "generator_loss": (generator.loss_sum, num_masked),
            "generator_accuracy": (generator.num_correct, num_masked),
        }
        if "discriminator" not in self.networks(progress):
            return StepOutput(loss=generator.loss, sums=sums, histograms={})
        replaced_ids, is_replaced = put_samples(corrupted, generator.samples)

        hidden_BLD = pair.discriminator(replaced_ids, corrupted.attention_mask, corrupted.token_type_ids)
        logits_BL = pair.discriminator_head(hidden_BLD).float()
        bce_BL = F.binary_cross_entropy_with_logits(logits_BL, is_replaced.float(), reduction="none")
        discriminator_loss_sum = (bce_BL * corrupted.scored).sum()

        discriminator_weight = self.config.discriminator_weight / global_counts.num_scored
        return StepOutput(
            loss=generator.loss + discriminator_weight * discriminator_loss_sum,
            sums=sums
            | {
                "discriminator_loss": (discriminator_loss_sum.detach(), num_scored),
                "replaced_share": (is_replaced.sum(), num_scored),
            },
            histograms={
                "discriminator": logit_histogram(logits_BL.detach(), is_replaced, corrupted.scored),
            },
        )


def put_samples(corrupted: Corrupted, samples_K: Tensor) -> tuple[Tensor, Tensor]:
    """The discriminator's input [B, L] int64 and its labels [B, L] bool, True where the token now differs from the text."""
    replaced_ids = corrupted.input_ids.clone()
    replaced_ids.view(-1)[corrupted.positions] = samples_K
    with torch.no_grad():
        return replaced_ids, replaced_ids != corrupted.input_ids
