"""Scores of predictions, each by the library that the field trusts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef


def classification_scores(gold: NDArray[np.int64], predicted: NDArray[np.int64]) -> dict[str, float]:
    """Accuracy, F1 averaged over the classes without weights, and Matthews' correlation, of [N] class numbers."""
    return {
        "accuracy": float(accuracy_score(gold, predicted)),
        "macro_f1": float(f1_score(gold, predicted, average="macro", zero_division=0)),
        "matthews": float(matthews_corrcoef(gold, predicted)),
    }


def over_seeds(values: Sequence[float]) -> dict[str, Any]:
    """Median, mean and sample standard deviation (None for a single run)."""
    return {
        "median": statistics.median(values),
        "mean": statistics.fmean(values),
        "standard_deviation": statistics.stdev(values) if len(values) > 1 else None,
        "runs": len(values),
    }
