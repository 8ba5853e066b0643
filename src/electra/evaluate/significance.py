"""How sure the difference between two candidates is, from a handful of seeds each."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from scipy.stats import ttest_ind


def welch(values: Sequence[float], others: Sequence[float]) -> float | None:
    """The p-value of Welch's t-test (two-sided, unequal variances); None where a side has a single value."""
    if len(values) < 2 or len(others) < 2:
        return None
    if len(set(values)) == len(set(others)) == 1:  # no spread at all: the test divides by it
        return 1.0 if values[0] == others[0] else 0.0
    return float(ttest_ind(values, others, equal_var=False).pvalue)


def each_pair(scores: Mapping[str, Sequence[float]]) -> dict[tuple[str, str], float | None]:
    """The p-value of every pair of candidates, corrected for how many pairs there are (Holm 1979)."""
    raw = {pair: welch(scores[pair[0]], scores[pair[1]]) for pair in itertools.combinations(scores, 2)}
    known = sorted((p, pair) for pair, p in raw.items() if p is not None)
    corrected: dict[tuple[str, str], float | None] = dict.fromkeys(raw)
    highest = 0.0
    for rank, (p, pair) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - rank)))
        corrected[pair] = highest
    return corrected
