"""Are a discriminator's probabilities what they say? Of the tokens that it gives 30%, three in ten should be replaced.

Shapes: N tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_curve

NUM_BINS = 15


def calibration(
    probabilities_N: NDArray[np.float64], is_replaced_N: NDArray[np.bool_], num_bins: int = NUM_BINS
) -> dict[str, float | None]:
    """How far probabilities and truth are apart, and what a threshold on them is worth.

    `expected_calibration_error`: mean over bins of |mean probability - replaced share|, in bins of equally many tokens, since
    most probabilities are small (Nguyen and O'Connor 2015; Nixon et al. 2019). `brier_score`: mean squared error of the
    probability, and `brier_of_base_rate`, what always giving the base rate would have. Precision, recall and F1 at 0.5, and at
    the threshold with the best F1. None where there is nothing to divide by.
    """
    truth_N = is_replaced_N.astype(np.float64)
    base = float(truth_N.mean())
    bins = reliability(probabilities_N, is_replaced_N, num_bins)
    error = sum(one["tokens"] * abs(one["probability"] - one["replaced_share"]) for one in bins) / len(truth_N)
    called_N = probabilities_N > 0.5
    at_half = _quotients(float(truth_N[called_N].sum()), float(called_N.sum()), float(truth_N.sum()))
    return {
        "expected_calibration_error": float(error),
        "brier_score": float(np.mean((probabilities_N - truth_N) ** 2)),
        "brier_of_base_rate": base * (1.0 - base),
        **{f"{name}_at_0.5": value for name, value in zip(("precision", "recall", "f1"), at_half, strict=True)},
        **_best_f1(probabilities_N, is_replaced_N),
    }


def reliability(
    probabilities_N: NDArray[np.float64], is_replaced_N: NDArray[np.bool_], num_bins: int = NUM_BINS
) -> list[dict[str, Any]]:
    """Bins of equally many tokens (give or take one), the least suspect first: `tokens`, mean `probability`, `replaced_share`."""
    order_N = np.argsort(probabilities_N, kind="stable")
    return [
        {
            "tokens": len(part),
            "probability": float(probabilities_N[part].mean()),
            "replaced_share": float(is_replaced_N[part].mean()),
        }
        for part in np.array_split(order_N, min(num_bins, len(order_N)))
    ]


def _best_f1(probabilities_N: NDArray[np.float64], is_replaced_N: NDArray[np.bool_]) -> dict[str, float | None]:
    names = ("threshold_of_best_f1", "precision_at_best_f1", "recall_at_best_f1", "best_f1")
    if not is_replaced_N.any():
        return dict.fromkeys(names)
    precision, recall, thresholds = precision_recall_curve(is_replaced_N, probabilities_N)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-300)
    best = int(np.argmax(f1[:-1]))  # the last point has no threshold
    return dict(zip(names, map(float, (thresholds[best], precision[best], recall[best], f1[best])), strict=True))


def _quotients(hits: float, called: float, positives: float) -> tuple[float | None, float | None, float | None]:
    """Precision, recall and F1."""
    return (
        hits / called if called else None,
        hits / positives if positives else None,
        2 * hits / (called + positives) if called + positives else None,
    )
