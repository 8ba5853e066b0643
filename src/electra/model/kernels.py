"""Fused kernels of the training step, each with a plain PyTorch form beside it.

Shapes: D hidden size, F feed-forward size, E embedding size, V vocabulary, K masked
positions, N any number of rows.

On a CPU the work goes to `cpu/kernels.cpp` (see native.py), in float32 or, under autocast, with activations in bfloat16 (weights
stay float32 and are rounded once a forward pass; sums are float32). Without a compiler the same functions run as plain torch
operations with the same dropout masks; on other devices they run as torch's own operations.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from electra.model.dropout import drop
from electra.model.native import activation, call, fused, has_bfloat16_units

LOGITS_BYTES = 32 * 2**20
"""Size of the one buffer of vocabulary scores; more masked positions than fit are worked through in parts."""

# --------------------------------------------------------------------------------------------------- products of matrices


def _product(a: Tensor, b: Tensor, bias: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """a [M, N] times b [N, P], both of one type, plus bias [P] in float32."""
    if a.dtype == torch.float32:
        return _gemm(a, b, bias=bias, out=out)
    if has_bfloat16_units():
        made = torch.mm(a, b, out=out) if bias is None else torch.addmm(bias.to(a.dtype), a, b, out=out)
    else:  # what the units do, on float32 hardware: exact products, float32 sums, one rounding at the end
        made = _gemm(a.float(), b.float(), bias=bias)
        made = made.to(a.dtype) if out is None else out.copy_(made)
    return made


def _weight_gradient(
    dy: Tensor, x: Tensor, sums: Tensor | None, out: Tensor | None = None, accumulate: bool = False
) -> Tensor:
    """dy [M, N] transposed times x [M, P], as float32; `sums` [N] receives dy's sums over M. `accumulate`: both are added.

    Units for bfloat16 round the product once on the way, as torch's autocast has it; everything else is float32."""
    if dy.dtype == torch.float32:
        return _gemm(dy.t(), x, sums=sums, out=out, accumulate=accumulate)
    if not has_bfloat16_units():
        return _gemm(dy.float().t(), x.float(), sums=sums, out=out, accumulate=accumulate)
    made, total = torch.mm(dy.t(), x), None if sums is None else dy.sum(0, dtype=torch.float32)
    if sums is not None and total is not None:
        sums.add_(total) if accumulate else sums.copy_(total)
    if out is None:
        return made.float()
    return out.add_(made) if accumulate else out.copy_(made)


def _gemm(
    a: Tensor,
    b: Tensor,
    *,
    out: Tensor | None = None,
    bias: Tensor | None = None,
    sums: Tensor | None = None,
    accumulate: bool = False,
) -> Tensor:
    """float32: a [M, N] times b [N, P], plus bias [P]; `sums` receives the sums of a's rows (only for a transposed a)."""
    out = torch.empty(a.shape[0], b.shape[1]) if out is None else out
    sizes = a.shape[0], b.shape[1], a.shape[1]
    call("gemm", *sizes, a, *a.stride(), b, *b.stride(), out, out.stride(0), int(accumulate), bias, sums)
    return out


def _weight_gradients(dy: Tensor, x: Tensor, has_bias: bool) -> tuple[Tensor, Tensor | None]:
    db = torch.empty(dy.shape[1]) if has_bias else None
    return _weight_gradient(dy, x, db), db


def _rows(x: Tensor) -> Tensor:
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1]).contiguous()  # -1 is ambiguous when there are no rows


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows, weight = _rows(x), weight.to(x.dtype)
        ctx.save_for_backward(rows, weight)
        ctx.has_bias = bias is not None
        return _product(rows, weight.t(), bias).view(*x.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        rows, weight = ctx.saved_tensors
        shape, dy = dy.shape[:-1], _rows(dy)
        dx = _product(dy, weight).view(*shape, weight.shape[1]) if ctx.needs_input_grad[0] else None
        return dx, *_weight_gradients(dy, rows, ctx.has_bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., N] times weight [M, N] transposed, plus bias [M]."""
    if fused(x, weights=(weight, bias)):
        return _Linear.apply(activation(x), weight, bias)
    return F.linear(x, weight, bias)


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        up: Tensor,
        up_bias: Tensor | None,
        down: Tensor,
        down_bias: Tensor | None,
        gated: bool,
        p: float,
        key: int,
    ) -> Tensor:
        rows, up, down = _rows(x), up.to(x.dtype), down.to(x.dtype)
        inner = _product(rows, up.t(), up_bias)
        active = torch.empty(len(rows), down.shape[1], dtype=x.dtype)
        if gated:
            call("geglu_forward", len(rows), down.shape[1], inner, active, key, p)
        else:
            call("gelu_forward", inner.numel(), inner, active)
        # `active` is not kept: the backward pass needs the normal distribution at `inner` anyway and finds it again for nothing.
        ctx.save_for_backward(rows, inner, up, down)
        ctx.settings = gated, p, key, up_bias is not None, down_bias is not None
        return _product(active, down.t(), down_bias).view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        rows, inner, up, down = ctx.saved_tensors
        gated, p, key, has_up_bias, has_down_bias = ctx.settings
        shape, dy = dy.shape, _rows(dy)
        active, dinner = _product(dy, down), torch.empty_like(inner)  # `active` holds its own gradient first
        if gated:
            call("geglu_backward", len(rows), down.shape[1], inner, active, active, dinner, key, p)
        else:
            call("gelu_backward", inner.numel(), inner, active, active, dinner)
        ddown, ddown_bias = _weight_gradients(dy, active, has_down_bias)
        dup, dup_bias = _weight_gradients(dinner, rows, has_up_bias)
        return _product(dinner, up).view(shape), dup, dup_bias, ddown, ddown_bias, None, None, None


def feed_forward(
    x: Tensor,
    up: Tensor,
    up_bias: Tensor | None,
    down: Tensor,
    down_bias: Tensor | None,
    *,
    gated: bool = False,
    p: float = 0.0,
    key: int = 0,
) -> Tensor:
    """down(gelu(up(x))) for x [..., D], up [F, D], down [D, F]. `gated`: up is [2F, D], the GELU of the first half times the
    second, then dropout `p` (only then) before down."""
    if fused(x, weights=(up, up_bias, down, down_bias)):
        return _FeedForward.apply(activation(x), up, up_bias, down, down_bias, gated, p, key)
    inner = F.linear(x, up, up_bias)
    if gated:
        value, gate = inner.chunk(2, dim=-1)
        return F.linear(drop(F.gelu(value) * gate, p, key), down, down_bias)
    return F.linear(F.gelu(inner), down, down_bias)


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        call("gelu_forward", x.numel(), x, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        call("gelu_backward", x.numel(), x, dy.contiguous(), torch.empty_like(x), dx)
        return dx


def gelu(x: Tensor) -> Tensor:
    """GELU by the error function, any shape."""
    return _Gelu.apply(activation(x)) if fused(x) else F.gelu(x)


# ----------------------------------------------------------------------------------------------------------------- norms


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        residual: Tensor | None,
        weight: Tensor,
        bias: Tensor | None,
        epsilon: float,
        p: float,
        key: int,
    ) -> tuple[Tensor, Tensor]:
        shape, x = x.shape, _rows(x)
        residual = None if residual is None else _rows(residual)
        total = x if residual is None and p == 0.0 else torch.empty_like(x)
        y, statistics = torch.empty_like(x), torch.empty(len(x), 2)
        call(
            "norm_forward",
            *x.shape,
            x,
            residual,
            weight,
            bias,
            epsilon,
            key,
            p,
            None if total is x else total,
            y,
            statistics,
        )
        ctx.save_for_backward(total, statistics, weight)
        ctx.settings = residual is not None, bias is not None, p, key
        ctx.set_materialize_grads(False)
        return y.view(shape), total.view(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor | None, dsum: Tensor | None) -> tuple[Tensor | None, ...]:
        total, statistics, weight = ctx.saved_tensors
        has_residual, has_bias, p, key = ctx.settings
        shape = (dy if dy is not None else dsum).shape  # type: ignore[union-attr]
        dy = torch.zeros(shape, dtype=total.dtype) if dy is None else dy
        dtotal, dweight = torch.empty_like(total), torch.empty_like(weight)
        dbias = torch.empty_like(weight) if has_bias else None
        dx = torch.empty_like(total) if p > 0.0 else None
        call(
            "norm_backward",
            *total.shape,
            total,
            statistics,
            weight,
            _rows(dy),
            None if dsum is None else _rows(dsum),
            key,
            p,
            dtotal,
            dx,
            dweight,
            dbias,
        )
        dx = (dtotal if dx is None else dx).view(shape)
        return dx, dtotal.view(shape) if has_residual else None, dweight, dbias, None, None, None


def dropout_add_norm(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float, p: float = 0.0, key: int = 0
) -> tuple[Tensor, Tensor]:
    """s = residual + dropout(x); returns (LayerNorm(s), s), both [..., D]. Post-norm blocks use the first, pre-norm both."""
    if fused(x, residual, weights=(weight, bias)):
        return _Norm.apply(activation(x), activation(residual), weight, bias, epsilon, p, key)
    total = residual + drop(x, p, key)
    return F.layer_norm(total, weight.shape, weight, bias, epsilon), total


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
    """LayerNorm over the last dimension, with or without bias."""
    if fused(x, weights=(weight, bias)):
        return _Norm.apply(activation(x), None, weight, bias, epsilon, 0.0, 0)[0]
    return F.layer_norm(x, weight.shape, weight, bias, epsilon)


# -------------------------------------------------------------------------------------------------------- vocabulary head


class _VocabularyLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        table: Tensor,
        bias: Tensor,
        targets: Tensor,
        uniforms: Tensor,
        weights: Tensor,
        with_gradient: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        K, V = len(targets), len(table)
        scores, parts = table.to(hidden.dtype).t(), max(1, -(-K * V * hidden.element_size() // LOGITS_BYTES))
        size = -(-K // parts)
        buffer = torch.empty(size, V, dtype=hidden.dtype)
        losses, samples, likeliest = (
            torch.empty(K),
            torch.empty(K, dtype=torch.int64),
            torch.empty(K, dtype=torch.int64),
        )
        if with_gradient:
            dhidden, dtable, dbias = (
                torch.empty_like(hidden),
                torch.empty(table.shape),
                torch.zeros(V),
            )
        for start in range(0, max(1, K), max(1, size)):  # once even without positions: the gradients are then zeros
            part = slice(start, min(start + size, K))
            logits = _product(hidden[part], scores, bias, out=buffer[: part.stop - part.start])
            call(
                "vocabulary_rows",
                len(logits),
                V,
                logits,
                targets[part],
                uniforms[part],
                weights[part] if with_gradient else None,
                losses[part],
                samples[part],
                likeliest[part],
            )
            if with_gradient:
                _product(logits, scores.t(), out=dhidden[part])
                _weight_gradient(logits, hidden[part], dbias, out=dtable, accumulate=start > 0)
        if with_gradient:
            ctx.gradients = dhidden, dtable, dbias
        ctx.mark_non_differentiable(losses, samples, likeliest)
        return (losses * weights).sum(), losses, samples, likeliest

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dloss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if dloss.item() != 1.0:
            for gradient in gradients:
                gradient.mul_(dloss)
        return *gradients, None, None, None, None


def vocabulary_loss(
    hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor, uniforms: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The generator's loss and its samples from one pass over the vocabulary.

    hidden [K, E], table [V, E], bias [V], targets int64 [K], uniforms [K] in [0, 1), weights float32 [K]. Returns the sum of
    weights times -log p(target) (which alone has a gradient), those losses [K], one token drawn from each softmax by inverse
    CDF [K], and each row's likeliest token [K]. A token of probability zero is never drawn. The gradient is made in the
    forward pass, in the buffer of the scores, of which LOGITS_BYTES exist at a time.
    """
    with_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in (hidden, table, bias))
    return _VocabularyLoss.apply(
        activation(hidden),
        table,
        bias,
        targets.contiguous(),
        uniforms.double().contiguous(),
        weights.contiguous(),
        with_gradient,
    )
