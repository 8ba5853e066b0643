"""Windows over texts that are longer than a network reads, and which window knows most of what surrounds a place in the text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Window = tuple[int, int]
"""First, and one after the last."""


def windows_by_step(length: int, room: int, step: int) -> list[Window]:
    """Windows of `room` places over 0 .. `length`, each `step` further on than the one before; the last may be shorter.

    No place is left out: a step longer than the room counts as the room.
    """
    assert room > 0
    assert step > 0
    found = [(0, min(room, length))]
    while found[-1][1] < length:
        start = found[-1][0] + min(step, room)
        found.append((start, min(start + room, length)))
    return found


def windows_by_size(sizes: Sequence[int], room: int) -> list[Window]:
    """Windows over things of these sizes (words of so many pieces), each filled up to `room`; neighbours share about half.

    No thing may be larger than the room.
    """
    assert all(0 < size <= room for size in sizes)
    found: list[Window] = []
    start = 0
    while True:
        end, used = start, 0
        while end < len(sizes) and used + sizes[end] <= room:
            used += sizes[end]
            end += 1
        found.append((start, end))
        if end == len(sizes):
            return found
        start += 1
        while sum(sizes[start:end]) > min(room // 2, room - sizes[end]):  # the next one has to fit, too
            start += 1


def most_context(windows: Sequence[Window], length: int) -> NDArray[np.int64]:
    """For each place, the number of the window that shows most on its poorer side (of equal ones a longer, then the first).

    Source: the "max context" of BERT's run_squad.py and of google-research/electra.
    """
    best, owner = np.full(length, -1.0), np.zeros(length, np.int64)
    for number, (start, end) in enumerate(windows):
        places = np.arange(start, end)
        context = np.minimum(places - start, end - 1 - places) + 0.01 * (end - start)
        better = context > best[start:end]
        best[start:end][better] = context[better]
        owner[start:end][better] = number
    return owner
