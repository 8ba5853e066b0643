"""How well logits rank replaced tokens above original ones, from histograms that add up over steps and ranks.

An exact AUC needs every logit of an epoch; two histograms need none of them, and with bins this narrow the difference is in
the fourth decimal.
"""

from __future__ import annotations

import torch
from torch import Tensor

NUM_BINS = 512
LIMIT = 12.0
"""Logits beyond +-12 (probabilities within 6e-6 of 0 or 1) share the outermost bins."""


def logit_histogram(logits: Tensor, is_positive: Tensor, counted: Tensor) -> Tensor:
    """Counts of the logits at `counted` places, [2, NUM_BINS] float64: row 0 negatives, row 1 positives.

    The three arguments have one shape; the last two are bool. Bin NUM_BINS / 2 begins at logit 0 (probability 0.5). Nothing
    is read back from the device. Logits that are not numbers count as 0.
    """
    scaled = torch.nan_to_num(logits.float()).clamp(-LIMIT, LIMIT) * (NUM_BINS / (2 * LIMIT)) + NUM_BINS / 2
    bins = scaled.floor().long().clamp_(0, NUM_BINS - 1) + is_positive.long() * NUM_BINS
    histogram = torch.zeros(2 * NUM_BINS, dtype=torch.float64, device=logits.device)
    # Whole numbers in float64 add up exactly, in whatever order.
    histogram.index_add_(0, bins.flatten(), counted.flatten().double())
    return histogram.view(2, NUM_BINS)


def auc_from_histogram(histogram: Tensor) -> float:
    """Share of (positive, negative) pairs in which the positive has the higher logit, ties in a bin counted half.

    Not a number when one of the classes is absent.
    """
    negatives, positives = histogram.double().cpu()
    below = negatives.cumsum(0) - negatives
    pairs = positives.sum() * negatives.sum()
    return float((positives * (below + negatives / 2)).sum() / pairs) if pairs > 0 else float("nan")


def precision_recall_from_histogram(histogram: Tensor) -> tuple[float, float]:
    """Precision and recall of "replaced" at probability 0.5; not a number where there is nothing to divide by."""
    called = histogram[:, NUM_BINS // 2 :].sum(1).tolist()
    positives = float(histogram[1].sum())
    precision = called[1] / (called[0] + called[1]) if called[0] + called[1] > 0 else float("nan")
    recall = called[1] / positives if positives > 0 else float("nan")
    return precision, recall
