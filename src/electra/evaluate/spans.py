"""Spans of labelled words (chunks, named entities) and their F1, counted as conlleval does.

Ours rather than the package seqeval, whose last release is of 2020 and comes as source only; the tests compare the two.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

OUTSIDE = "O"
_LABEL = re.compile(r"[BIESLU]-.+", re.DOTALL)
_POSITION = {"L": "E", "U": "S"}  # BILOU's names for the last word and for a span of one word

Span = tuple[str, int, int]
"""Kind, first word, one after the last."""


def are_spans(labels: Iterable[str]) -> bool:
    """Do these labels mark spans (O, B-X, I-X, and E-X, S-X, L-X, U-X)? Parts of speech, for example, do not."""
    others = set(labels) - {OUTSIDE}
    return bool(others) and all(_LABEL.fullmatch(label) for label in others)


def spans(labels: Sequence[str]) -> list[Span]:
    """The spans of one sentence. As in conlleval, I-X that follows another kind or nothing starts a span of its own, so that
    IOB1, IOB2, IOBES and BILOU are all understood, mistakes of a model included."""
    found: list[Span] = []
    kind, start, before = "", 0, OUTSIDE
    for index, label in enumerate([*labels, OUTSIDE]):
        position, _, new = label.partition("-")
        position = _POSITION.get(position, position)
        inside = before in ("B", "I") and position in ("I", "E") and new == kind
        if before != OUTSIDE and not inside:
            found.append((kind, start, index))
        if position != OUTSIDE and not inside:
            kind, start = new, index
        before = position
    return found


class Counts:
    """Spans that are in the gold labels, in the predicted ones, and in both, by kind."""

    def __init__(self, gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> None:
        self.gold: Counter[str] = Counter()
        self.predicted: Counter[str] = Counter()
        self.both: Counter[str] = Counter()
        for right, said in zip(gold, predicted, strict=True):
            right_spans, said_spans = spans(right), spans(said)
            self.gold.update(kind for kind, _, _ in right_spans)
            self.predicted.update(kind for kind, _, _ in said_spans)
            self.both.update(kind for kind, _, _ in set(right_spans) & set(said_spans))

    def scores(self) -> dict[str, float]:
        """`f1`, `precision` and `recall` over all spans."""
        return _scores(self.both.total(), self.predicted.total(), self.gold.total())

    def by_kind(self) -> dict[str, dict[str, float]]:
        """The same of each kind, with its number of gold spans as `support`."""
        return {
            kind: _scores(self.both[kind], self.predicted[kind], self.gold[kind]) | {"support": self.gold[kind]}
            for kind in sorted(self.gold | self.predicted)
        }


def _scores(both: int, predicted: int, gold: int) -> dict[str, float]:
    return {
        "f1": 2 * both / (predicted + gold) if predicted + gold else 0.0,
        "precision": both / predicted if predicted else 0.0,
        "recall": both / gold if gold else 0.0,
    }
