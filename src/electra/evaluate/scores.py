"""Scores of predictions, each by the library that the field trusts."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef, root_mean_squared_error


def _correlation(measure: Callable[..., Any]) -> Callable[[NDArray[Any], NDArray[Any]], float]:
    """0 where one side is constant: there it is not defined, and nothing was found out."""

    def of(gold: NDArray[Any], predicted: NDArray[Any]) -> float:
        if len(gold) < 2 or np.ptp(gold) == 0 or np.ptp(predicted) == 0:
            return 0.0
        return float(measure(gold, predicted)[0])

    return of


METRICS: dict[str, Callable[[NDArray[Any], NDArray[Any]], float]] = {
    "accuracy": lambda gold, predicted: accuracy_score(gold, predicted),
    "f1": lambda gold, predicted: f1_score(gold, predicted, zero_division=0),  # of class 1
    "macro_f1": lambda gold, predicted: f1_score(gold, predicted, average="macro", zero_division=0),
    "micro_f1": lambda gold, predicted: f1_score(gold, predicted, average="micro", zero_division=0),
    "exact_match": lambda gold, predicted: accuracy_score(gold, predicted),  # of sets: all labels right
    "matthews": lambda gold, predicted: matthews_corrcoef(gold, predicted),
    "pearson": _correlation(pearsonr),
    "spearman": _correlation(spearmanr),
    "rmse": lambda gold, predicted: root_mean_squared_error(gold, predicted),
}
"""Name -> function of gold and predicted: class numbers [N], numbers [N], or sets of labels as 0 and 1 in [N, C]."""


def scores(names: Sequence[str], gold: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
    """These metrics of the predictions."""
    return {name: float(METRICS[name](gold, predicted)) for name in names}


def over_seeds(values: Sequence[float]) -> dict[str, Any]:
    """Median, mean and sample standard deviation (None for a single run)."""
    return {
        "median": statistics.median(values),
        "mean": statistics.fmean(values),
        "standard_deviation": statistics.stdev(values) if len(values) > 1 else None,
        "runs": len(values),
    }
