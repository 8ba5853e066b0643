"""Several processes as one: started by torchrun, silent with one process.

Losses are divided by counts over all ranks, so gradients are summed, not averaged: the result does not depend on how many
ranks share the batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Join the group that torchrun describes in the environment, and leave it at the end."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield
        return
    # Counts, clock and stop signal travel over gloo, so that agreeing on them never waits for the accelerator.
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def barrier() -> None:
    if dist.is_initialized():
        dist.barrier()


def sum_over_ranks(values: list[float]) -> list[float]:
    """Element-wise sum of host numbers; exact for whole numbers up to 2**53."""
    if world_size() == 1:
        return values
    tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(tensor)
    return tensor.tolist()


def sum_tensors(tensors: list[Tensor]) -> None:
    """Sum each tensor over the ranks, in place, in one message."""
    if world_size() == 1 or not tensors:
        return
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    dist.all_reduce(flat)
    start = 0
    for tensor in tensors:
        tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
        start += tensor.numel()
