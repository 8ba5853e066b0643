"""Cross-entropy over the vocabulary at many positions, in the memory of a few: scores are made twice, never all at once.

Shapes: N positions, E embedding size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from electra.model.kernels import vocabulary_loss
from electra.model.native import fused

SCORES_BYTES = 256 * 2**20
"""Size of the scores that exist at a time in plain operations; the compiled kernels have a smaller buffer of their own."""


class _TargetLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        ctx.autocast = {"dtype": torch.get_autocast_dtype(device), "enabled": torch.is_autocast_enabled(device)}
        ctx.save_for_backward(hidden, table, bias, targets)
        parts = [
            _part(hidden[part], table, bias, targets[part], torch.ones_like(targets[part], dtype=torch.float32))
            for part in _parts(hidden, table, bias)
        ]
        losses, likeliest = (torch.cat(tensors) for tensors in zip(*(part[1:] for part in parts), strict=True))
        ctx.mark_non_differentiable(likeliest)
        return losses, likeliest

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dlosses: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        hidden, table, bias, targets = ctx.saved_tensors
        dhidden, sums = [], [torch.zeros_like(table), torch.zeros_like(bias)]
        for part in _parts(hidden, table, bias):
            x, w, b = leaves = [tensor.detach().requires_grad_() for tensor in (hidden[part], table, bias)]
            with torch.enable_grad(), torch.autocast(hidden.device.type, **ctx.autocast):
                total = _part(x, w, b, targets[part], dlosses[part].float())[0]
            gradients = torch.autograd.grad(total, leaves)
            dhidden.append(gradients[0])
            sums = [held.add_(gradient) for held, gradient in zip(sums, gradients[1:], strict=True)]
        return torch.cat(dhidden), *sums, None


def _parts(hidden: Tensor, table: Tensor, bias: Tensor) -> Iterator[slice]:
    """All positions at once for the kernels, which go through them in parts by themselves."""
    kernels = fused(hidden, weights=(table, bias))
    size = len(hidden) if kernels else max(1, SCORES_BYTES // (4 * len(table)))
    for start in range(0, max(1, len(hidden)), max(1, size)):
        yield slice(start, start + size)


def _part(
    hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Sum of weights times losses (which alone has a gradient), the losses, and each position's likeliest token."""
    if fused(hidden, weights=(table, bias)):
        total, losses, _, likeliest = vocabulary_loss(hidden, table, bias, targets, torch.zeros_like(weights), weights)
        return total, losses, likeliest
    logits_NV = F.linear(hidden, table, bias).float()
    losses_N = F.cross_entropy(logits_NV, targets, reduction="none")
    return losses_N @ weights, losses_N.detach(), logits_NV.detach().argmax(dim=-1)


def target_losses(hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """-log softmax(hidden table' + bias)[target] at each position, [N] float32, and the likeliest tokens [N].

    hidden [N, E], table [V, E], bias [V], targets int64 [N]. Where `vocabulary_loss` needs each position's weight in the loss
    beforehand, this gives the losses themselves, to be used in any function of them: the scores are recomputed in the
    backward pass, part by part, when those weights are known.
    """
    losses, likeliest = _TargetLosses.apply(hidden, table, bias, targets)
    return losses, likeliest
