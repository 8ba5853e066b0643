"""What the time of our training step goes to: torch's profiler, with the package's kernels and phases named.

Every microsecond of a step is the own time of exactly one event, so the shares add up to one without a rest that was not
looked at: what no rule names is `the rest` (autograd, allocation, losses, Python).
"""

from __future__ import annotations

import collections
import contextlib
import functools
import re
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from torch.profiler import ProfilerActivity, profile, record_function

PHASES = ("vocabulary head", "optimizer", "clipping", "masking on the host", "sums of gradients")
"""Everything below an event of this name counts as it."""

RULES = (
    (r"kernel gemm|aten::(mm|addmm|linear)$", "matrix products"),
    (r"kernel attention|attend_at|aten::(bmm|baddbmm)$|softmax|scaled_dot_product", "attention"),
    (r"kernel (norm|dropout|gelu|geglu)|aten::.*(layer_norm|gelu|dropout)", "norms, dropout, GELU"),
    (r"kernel vocabulary", "vocabulary head"),
    (r"embedding", "embeddings"),
    (r"AccumulateGrad", "sums of gradients"),
)
REST = "the rest (autograd, allocation, losses, Python)"


def shares(make: Callable[[], Callable[[], None]], steps: int) -> dict[str, float]:
    """Group -> its share of the time of `steps` steps (after two untimed ones), largest first; they add up to 1.

    `make` builds the step; it runs inside, so that the step it makes calls the functions that are named here.
    """
    with contextlib.ExitStack() as stack:
        for owner, attribute, name in _phases():
            stack.enter_context(patch.object(owner, attribute, _named(getattr(owner, attribute), name)))
        step = make()
        step()
        step()
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            for _ in range(steps):
                with record_function("step"):
                    step()
    spent: collections.Counter[str] = collections.Counter()
    for event in profiler.events():
        path = _path(event)
        if path[-1] == "step":
            spent[_group(path)] += event.self_cpu_time_total
    total = sum(spent.values())
    return {group: time / total for group, time in spent.most_common()}


def _phases() -> list[tuple[Any, str, str | None]]:
    """Owner, attribute, and the name it gets; None for the kernels, which are named by their first argument."""
    from electra import objectives
    from electra.model import attention, kernels
    from electra.objectives import mlm
    from electra.train import optimizer

    return [
        (kernels, "call", None),
        (attention, "call", None),
        (attention, "attend_at", "attend_at"),
        (mlm, "vocabulary_loss", "vocabulary head"),
        (objectives, "corrupt", "masking on the host"),
        (optimizer, "clip_gradients", "clipping"),
        (optimizer.PairOptimizer, "step", "optimizer"),
    ]


def _named(function: Callable[..., Any], name: str | None) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        with record_function(name or f"kernel {arguments[0]}"):
            return function(*arguments, **named)

    return wrapper


def _path(event: Any) -> list[str]:
    """Names from an event up to the outermost around it."""
    names = []
    while event is not None:
        names.append(event.name)
        event = event.cpu_parent
    return names


def _group(path: list[str]) -> str:
    for name in path:
        if name in PHASES:
            return name
    for name in path:
        for pattern, group in RULES:
            if re.search(pattern, name):
                return group
    return REST
