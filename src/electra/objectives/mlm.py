"""Masked language modelling, by the generator or the main network, and sampling replacements (paper, section 2).

Shapes: B batch, L length, K masked positions, D hidden, V vocabulary.
"""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor

from electra.model.encoder import Encoder
from electra.model.heads import GeneratorHead
from electra.model.kernels import vocabulary_loss
from electra.model.native import fused
from electra.model.pair import Pair
from electra.objectives.base import Corrupted

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
) -> MaskedPredictions:
    """Read `input_ids` [B, L] and predict the original tokens at the masked positions, where alone a softmax is computed: one
    pass of it serves the loss, its gradient and the sample."""
    hidden_BKD = encoder(input_ids, corrupted.attention_mask, corrupted.token_type_ids, at_BK=corrupted.columns)
    hidden_KD = hidden_BKD.flatten(0, 1)[corrupted.filled]
    hidden_KE, table_VE = head(hidden_KD), head.decoder_weight
    if temperature == 1.0 and fused(hidden_KE, weights=(table_VE, head.bias)):
        weights_K = torch.full_like(corrupted.uniforms, weight)
        loss, losses_K, samples_K, likeliest_K = vocabulary_loss(
            hidden_KE, table_VE, head.bias, corrupted.labels, corrupted.uniforms, weights_K
        )
        return MaskedPredictions(loss, losses_K.sum(), (likeliest_K == corrupted.labels).sum(), samples_K)
    # The scores follow autocast; softmax, loss and sample are float32, where half precision would lose the tail.
    logits_KV = F.linear(hidden_KE, table_VE, head.bias).float()
    with torch.no_grad():
        samples_K = sample_tokens(logits_KV, corrupted.uniforms, temperature)
        num_correct = (logits_KV.argmax(dim=-1) == corrupted.labels).sum()
    loss_sum = F.cross_entropy(logits_KV, corrupted.labels, reduction="sum")
    return MaskedPredictions(loss_sum * weight, loss_sum.detach(), num_correct, samples_K)


def run_generator(pair: Pair, corrupted: Corrupted, temperature: float, weight: float) -> MaskedPredictions:
    """The generator's predictions; their samples are the replacements."""
    return predict_masked(pair.generator, pair.generator_head, corrupted.masked_ids, corrupted, weight, temperature)


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
