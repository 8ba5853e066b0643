"""Softmax attention for short rows: compiled on the CPU, plain operations elsewhere (see kernels.py).

Shapes: B batch, L length, K positions, H heads, S head size.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from electra.model.dropout import drop, dropout_key
from electra.model.native import activation, call, fused

Rotary = tuple[Tensor, Tensor]
"""Cosines and sines, float32 [L, S/2] each."""


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, mask: Tensor | None, rotary: Rotary | None, window: int, p: float, key: int
    ) -> Tensor:
        B, L, _, H, S = qkv.shape
        mask = None if mask is None else mask.contiguous()
        cosine, sine = rotary or (None, None)
        context, log_sums = torch.empty(B, L, H * S, dtype=qkv.dtype), torch.empty(B, H, L)
        call("attention_forward", B, L, H, S, qkv, mask, cosine, sine, window, key, p, context, log_sums)
        ctx.save_for_backward(qkv, log_sums)
        ctx.settings = mask, cosine, sine, window, key, p
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dcontext: Tensor) -> tuple[Tensor | None, ...]:
        qkv, log_sums = ctx.saved_tensors
        B, L, _, H, S = qkv.shape
        dqkv = torch.empty_like(qkv)
        call("attention_backward", B, L, H, S, qkv, *ctx.settings, dcontext.contiguous(), log_sums, dqkv)
        return dqkv, None, None, None, None, None


def attend(
    qkv: Tensor, mask: Tensor | None = None, rotary: Rotary | None = None, window: int = 0, p: float = 0.0, key: int = 0
) -> Tensor:
    """Softmax attention with dropout of the probabilities: qkv [B, L, 3, H, S] -> [B, L, H S].

    `mask` bool [B, L] is true at the keys that may be seen, `rotary` turns queries and keys, `window` lets a token see that
    many tokens to each side (0: all). A token that sees nothing gets zeros.
    """
    if fused(qkv) and (mask is None or mask.dtype == torch.bool):
        return _Attention.apply(activation(qkv), mask, rotary, window, p, key)
    B, L, _, H, S = qkv.shape
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    if rotary is not None:
        q, k = rotate(q, rotary), rotate(k, rotary)
    seen = _seen(L, mask, window, qkv.device)
    return _plain_attention(q, k, v, seen, p, key).transpose(1, 2).reshape(B, L, H * S)


def attend_at(
    query: Tensor, key_value: Tensor, at: Tensor, mask: Tensor | None, rotary: Rotary | None, window: int, p: float
) -> Tensor:
    """The same for queries at some positions only: query [B, K, H, S] of the positions `at` [B, K], key_value
    [B, L, 2, H, S] -> [B, K, H S]. In plain operations: with few queries the matrix products are nearly all of it."""
    if fused(query, key_value) and torch.is_autocast_enabled(
        "cpu"
    ):  # few queries: not worth a kernel, nor less precision
        with torch.autocast("cpu", enabled=False):
            return attend_at(query.float(), key_value.float(), at, mask, rotary, window, p).bfloat16()
    B, K, H, S = query.shape
    L = key_value.shape[1]
    q, (k, v) = query.transpose(1, 2), key_value.permute(2, 0, 3, 1, 4)
    if rotary is not None:
        q, k = rotate(q, (rotary[0][at][:, None], rotary[1][at][:, None])), rotate(k, rotary)
    seen = _seen(L, mask, window, query.device, at)
    return _plain_attention(q, k, v, seen, p, dropout_key(p, q)).transpose(1, 2).reshape(B, K, H * S)


def _seen(
    length: int, mask: Tensor | None, window: int, device: torch.device, at: Tensor | None = None
) -> Tensor | None:
    """Which keys each query may see, bool and broadcastable to [B, H, queries, L]; None for all."""
    seen = None if mask is None else mask[:, None, None, :]
    if window:
        position = torch.arange(length, device=device)
        queries = position if at is None else at
        near = ((queries[..., None] - position).abs() <= window).unsqueeze(-3)
        seen = near if seen is None else seen & near
    return seen


def _plain_attention(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, p: float, key: int) -> Tensor:
    """[B, H, queries, S]."""
    if q.device.type != "cpu":
        added = None if seen is None else torch.zeros_like(seen, dtype=q.dtype).masked_fill(~seen, -1e30)
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=added, dropout_p=p)
        return context if seen is None else context * seen.any(-1, keepdim=True)
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if seen is None:
        probabilities = scores.softmax(dim=-1)
    else:  # finite, so that a row that sees nothing has no NaN on its way to zero
        probabilities = scores.masked_fill(~seen, -1e30).softmax(dim=-1) * seen
    return drop(probabilities, p, key) @ v


def rotate(x: Tensor, rotary: Rotary) -> Tensor:
    """Rotary positions (Su et al. 2021): turn the pair (i, i + S/2) of each head by position times frequency i."""
    cosine, sine = rotary
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), dim=-1).to(x.dtype)
