"""Masked language modelling, by the generator or the main network, and sampling replacements (paper, section 2).

Shapes: B batch, L length, K masked positions, D hidden, V vocabulary.
"""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor

from electra.config import ObjectiveConfig
from electra.model.encoder import Encoder
from electra.model.heads import GeneratorHead
from electra.model.kernels import vocabulary_loss
from electra.model.native import fused
from electra.model.pair import Pair
from electra.objectives.base import Corrupted, Counts

_BLOCK = 128  # near the square root of usual vocabularies, where the two levels of the search cost the same


@dataclasses.dataclass(frozen=True)
class MaskedPredictions:
    """What a network with a vocabulary head makes of the masked positions."""

    loss: Tensor
    """Scalar to be differentiated: `weight` times the cross-entropy summed over the masked positions."""
    loss_sum: Tensor
    """Scalar: that cross-entropy, in nats, without weight and gradient."""
    num_correct: Tensor
    """Scalar: positions where the most likely token is the original."""
    samples: Tensor
    """[K] int64: one token a position, drawn from the predicted distribution. No gradient passes."""

    def sums(self, name: str, num_masked: int) -> dict[str, tuple[Tensor, int]]:
        """Loss and accuracy as the metrics NAME_loss and NAME_accuracy."""
        return {f"{name}_loss": (self.loss_sum, num_masked), f"{name}_accuracy": (self.num_correct, num_masked)}


def predict_masked(
    encoder: Encoder,
    head: GeneratorHead,
    input_ids: Tensor,
    corrupted: Corrupted,
    weight: float,
    temperature: float = 1.0,
    disallow_correct: bool = False,
) -> MaskedPredictions:
    """Read `input_ids` [B, L] and predict the original tokens at the masked positions, where alone a softmax is computed: one
    pass of it serves the loss, its gradient and the sample. `disallow_correct`: the sample is another token than the original.
    """
    hidden_KE = head(masked_hidden(encoder, input_ids, corrupted))
    if temperature == 1.0 and not disallow_correct:
        return score_masked(head, hidden_KE, corrupted, corrupted.labels, torch.full_like(corrupted.uniforms, weight))
    # The scores follow autocast; softmax, loss and sample are float32, where half precision would lose the tail.
    logits_KV = F.linear(hidden_KE, head.decoder_weight, head.bias).float()
    with torch.no_grad():
        allowed_KV = logits_KV.scatter(1, corrupted.labels[:, None], -torch.inf) if disallow_correct else logits_KV
        samples_K = sample_tokens(allowed_KV, corrupted.uniforms, temperature)
        num_correct = (logits_KV.argmax(dim=-1) == corrupted.labels).sum()
    loss_sum = F.cross_entropy(logits_KV, corrupted.labels, reduction="sum")
    return MaskedPredictions(loss_sum * weight, loss_sum.detach(), num_correct, samples_K)


def masked_hidden(encoder: Encoder, input_ids: Tensor, corrupted: Corrupted) -> Tensor:
    """Hidden states at the masked positions, [K, D]."""
    hidden_BMD = encoder(input_ids, corrupted.attention_mask, corrupted.token_type_ids, at_BK=corrupted.columns)
    return hidden_BMD.flatten(0, 1)[corrupted.filled]


def score_masked(
    head: GeneratorHead, hidden_KE: Tensor, corrupted: Corrupted, targets_K: Tensor, weights_K: Tensor
) -> MaskedPredictions:
    """The vocabulary at the masked positions, from the head's output: the loss is the weighted sum of -log p(target)."""
    table_VE, bias_V = head.decoder_weight, head.bias
    if fused(hidden_KE, weights=(table_VE, bias_V)):
        loss, losses_K, samples_K, likeliest_K = vocabulary_loss(
            hidden_KE, table_VE, bias_V, targets_K, corrupted.uniforms, weights_K
        )
        return MaskedPredictions(loss, losses_K.sum(), (likeliest_K == corrupted.labels).sum(), samples_K)
    logits_KV = F.linear(hidden_KE, table_VE, bias_V).float()
    with torch.no_grad():
        samples_K = sample_tokens(logits_KV, corrupted.uniforms)
        num_correct = (logits_KV.argmax(dim=-1) == corrupted.labels).sum()
    losses_K = F.cross_entropy(logits_KV, targets_K, reduction="none")
    return MaskedPredictions(losses_K @ weights_K, losses_K.detach().sum(), num_correct, samples_K)


def run_generator(
    pair: Pair, corrupted: Corrupted, temperature: float, weight: float, disallow_correct: bool = False
) -> MaskedPredictions:
    """The generator's predictions; their samples are the replacements."""
    return predict_masked(
        pair.generator, pair.generator_head, corrupted.masked_ids, corrupted, weight, temperature, disallow_correct
    )


@dataclasses.dataclass(frozen=True)
class Proposals:
    """Replacements for the masked positions, from a network or from frequencies."""

    loss: Tensor
    """Scalar to be differentiated: the generator's, weighted and divided by the step's masked positions; 0 without one."""
    samples: Tensor
    """[K] int64"""
    sums: dict[str, tuple[Tensor, int]]


def generate(config: ObjectiveConfig, pair: Pair, corrupted: Corrupted, global_counts: Counts) -> Proposals:
    """What takes the place of the masked tokens, and the generator's MLM loss where it is a network."""
    num_masked = corrupted.counts.num_masked
    if pair.parts.frequencies is not None:
        samples_K = pair.frequencies.sample(corrupted.uniforms, corrupted.labels if config.disallow_correct else None)
        right = (samples_K == corrupted.labels).sum()
        return Proposals(torch.zeros((), device=right.device), samples_K, {"generator_accuracy": (right, num_masked)})
    weight = config.generator_weight / global_counts.num_masked
    made = run_generator(pair, corrupted, config.temperature, weight, config.disallow_correct)
    return Proposals(made.loss, made.samples, made.sums("generator", num_masked))


def sample_tokens(logits_KV: Tensor, uniforms_K: Tensor, temperature: float = 1.0) -> Tensor:
    """Draw from softmax(logits / temperature) by inverting its cumulative distribution at `uniforms_K`. Returns [K] int64.

    One random number a row in place of Gumbel noise over the whole vocabulary. The search has two levels, sums of blocks
    and then one block, which is faster than one long cumulative sum and rounds less. A token of probability zero is never
    drawn.
    """
    weights_KV = torch.softmax(logits_KV.float() / temperature, dim=-1)
    num_rows, vocab_size = weights_KV.shape
    num_blocks = -(-vocab_size // _BLOCK)
    blocks = F.pad(weights_KV, (0, num_blocks * _BLOCK - vocab_size)).view(num_rows, num_blocks, _BLOCK)
    ends = blocks.sum(-1).cumsum(-1)
    block_K, rest_K = _first_above(ends, uniforms_K.float() * ends[:, -1])
    within = blocks.gather(1, block_K[:, None, None].expand(-1, 1, _BLOCK)).squeeze(1).cumsum(-1)
    token_K, _ = _first_above(within, rest_K)
    return block_K * _BLOCK + token_K


def _first_above(ends: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """First index whose running sum exceeds `target` [K], and what is left of the target there.

    Rounding may carry the target up to the total, above which nothing lies; it is held just below.
    """
    below = torch.nextafter(ends[:, -1], torch.zeros_like(target))
    target = torch.minimum(target.clamp_min(0.0), below)
    # The clamp matters only where the logits are not numbers; the loss then says so at the next log line.
    index = torch.searchsorted(ends, target[:, None], right=True).clamp_(max=ends.shape[1] - 1)
    start = torch.where(index > 0, ends.gather(1, (index - 1).clamp_min(0)), torch.zeros_like(target[:, None]))
    return index.squeeze(1), target - start.squeeze(1)
