"""A generator that is trained to be hard on the discriminator, by reinforcement (paper, section 3.3 and appendix F).

The discriminator is trained as in ELECTRA. The generator sees no token to predict: its reward for the sample at a masked position
is the discriminator's loss there, -log of the probability of the truth (-log(1 - p_replaced) for a sample that equals the
original, -log p_replaced for another), and REINFORCE carries it through the sampling. Where nothing was masked there is no
reward: that the verdict there does not depend on the samples is the paper's simplification. The baseline
b = -log sigmoid(w' h), of the generator's hidden state h, is fitted to the reward by cross-entropy and reaches nothing but w.

Shapes: B batch, L length, K masked positions, D hidden size, E embedding size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F

from electra.config import ObjectiveConfig, PretrainConfig
from electra.data.loader import Batch
from electra.model.pair import Pair, Parts
from electra.objectives.base import Corrupted, Counts, StepOutput, Switch
from electra.objectives.mlm import Proposals, masked_hidden, score_masked
from electra.objectives.replaced_token import TWO_STAGE_SETTINGS, joint, judge_all


@dataclasses.dataclass(frozen=True)
class Adversarial:
    """`adversarial` in the registry."""

    config: ObjectiveConfig
    corrupt: Callable[[Batch], Corrupted]
    parts: ClassVar[Parts] = Parts(baseline=True)
    unused: ClassVar[tuple[str, ...]] = (
        "generator", "temperature", "disallow_correct", "discriminator_start", *TWO_STAGE_SETTINGS,
    )  # fmt: skip
    checks: ClassVar[tuple[Callable[[PretrainConfig], None], ...]] = ()
    switches: ClassVar[tuple[Switch, ...]] = ()

    def networks(self, progress: float) -> Mapping[str, bool]:
        return {"generator": True, "discriminator": True}

    def step(self, pair: Pair, corrupted: Corrupted, global_counts: Counts, progress: float = 1.0) -> StepOutput:
        num_masked, head = corrupted.counts.num_masked, pair.generator_head
        hidden_KD = masked_hidden(pair.generator, corrupted.masked_ids, corrupted)
        hidden_KE = head(hidden_KD)
        ones_K = torch.ones_like(corrupted.uniforms)
        with torch.no_grad():
            predicted = score_masked(head, hidden_KE, corrupted, corrupted.labels, ones_K)
        verdicts = judge_all(pair, corrupted, predicted.samples)

        reward_K = verdicts.losses().detach().flatten()[corrupted.positions]
        baseline_logits_K = pair.baseline_head(hidden_KD.detach())
        baseline_K = -F.logsigmoid(baseline_logits_K)
        advantage_K = (reward_K - baseline_K).detach()
        weight = self.config.generator_weight / global_counts.num_masked
        # Gradient descent on advantage x -log p(sample) is ascent on the expected reward.
        chosen = score_masked(head, hidden_KE, corrupted, predicted.samples, weight * advantage_K)
        baseline_loss = F.binary_cross_entropy_with_logits(baseline_logits_K, (-reward_K).exp(), reduction="sum")

        sums = predicted.sums("generator", num_masked) | {
            "reward": (reward_K.sum(), num_masked),
            "baseline": (baseline_K.detach().sum(), num_masked),
            "entropy": (
                chosen.loss_sum,
                num_masked,
            ),  # of the generator, in nats: the mean of -log p over its own samples
        }
        generator = Proposals(chosen.loss + baseline_loss / global_counts.num_masked, predicted.samples, sums)
        return joint(generator, verdicts, self.config.discriminator_weight / global_counts.num_scored)
