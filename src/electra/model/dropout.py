"""Dropout by a counter-based generator: what is dropped is a function of a key and the element's index alone.

The same mask comes out of the compiled kernel, of the plain form, and again in the backward pass, without being kept.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from electra.model.native import activation, call, fused


def dropout_key(rate: float, x: Tensor) -> int:
    """A fresh key for dropping from `x`, drawn from torch's default generator (so `torch.manual_seed` governs it); 0, and
    nothing is drawn, where nothing is dropped and on devices that drop by a generator of their own."""
    if rate == 0.0 or x.device.type != "cpu":
        return 0
    return int(torch.empty((), dtype=torch.int64).random_())


def dropout_factors(shape: tuple[int, ...], key: int, p: float) -> Tensor:
    """What dropout multiplies with, 0 or 1/(1-p), float32 of `shape`: a function of key, p and the element's index alone."""

    def multiply(x: Tensor, factor: int) -> Tensor:  # modulo 2^32, in 64 bits without overflow
        return ((x * (factor & 0xFFFF)) + ((x * (factor >> 16) & 0xFFFF) << 16)) & 0xFFFFFFFF

    x = torch.arange(int(torch.Size(shape).numel()), dtype=torch.int64) & 0xFFFFFFFF
    x = (multiply(x, 0x9E3779B9) + (key & 0xFFFFFFFF)) & 0xFFFFFFFF
    x = multiply(x ^ (x >> 16), 0x7FEB352D)
    x = ((x ^ (x >> 15)) + (key >> 32)) & 0xFFFFFFFF
    x = multiply(x, 0x846CA68B)
    x = x ^ (x >> 16)
    kept = (x ^ 0x80000000) >= round(p * 2**32)  # the kernel compares signed numbers
    return (kept.float() / (1.0 - p)).view(shape)


def drop(x: Tensor, p: float, key: int) -> Tensor:
    """Dropout in plain operations, with the kernels' mask on the CPU."""
    if p == 0.0:
        return x
    return x * dropout_factors(x.shape, key, p) if x.device.type == "cpu" else F.dropout(x, p)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, key: int) -> Tensor:
        ctx.p, ctx.key = p, key
        y = torch.empty_like(x)
        call("dropout", x.numel(), x, y, key, p)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        dy = dy.contiguous()
        dx = torch.empty_like(dy)
        call("dropout", dy.numel(), dy, dx, ctx.key, ctx.p)
        return dx, None, None


def dropout(x: Tensor, p: float, key: int) -> Tensor:
    """Dropout of any shape; `key` comes from `dropout_key`."""
    return _Dropout.apply(activation(x), p, key) if p > 0.0 and fused(x) else drop(x, p, key)
