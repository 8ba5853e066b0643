"""AUC, precision and recall from histograms against scikit-learn on the raw logits."""

import math

import pytest
import torch
from sklearn.metrics import precision_score, recall_score, roc_auc_score

from electra.objectives.ranking import auc_from_histogram, logit_histogram, precision_recall_from_histogram


@pytest.mark.parametrize("shift", [0.0, 1.0, -2.0])
def test_agrees_with_scikit_learn(shift):
    draw = torch.Generator().manual_seed(0)
    labels = torch.rand(8, 500, generator=draw) < 0.1
    logits = torch.randn(8, 500, generator=draw) * 2 + shift * labels - 1
    counted = torch.rand(8, 500, generator=draw) < 0.8
    # Added up over two halves, as over two steps.
    histogram = sum(logit_histogram(logits[h], labels[h], counted[h]) for h in (slice(0, 4), slice(4, 8)))
    y, x = labels[counted].numpy(), logits[counted].numpy()
    assert auc_from_histogram(histogram) == pytest.approx(roc_auc_score(y, x), abs=1e-3)
    precision, recall = precision_recall_from_histogram(histogram)
    assert precision == pytest.approx(precision_score(y, x >= 0))
    assert recall == pytest.approx(recall_score(y, x >= 0))


def test_extremes_and_ties():
    logits = torch.tensor([-1e9, 1e9, 0.0, float("nan")])
    labels = torch.tensor([False, True, True, False])
    histogram = logit_histogram(logits, labels, torch.ones(4, dtype=torch.bool))
    assert histogram.sum() == 4
    assert auc_from_histogram(histogram) == pytest.approx((2 + 1 + 0.5) / 4)


def test_undefined_without_both_classes():
    histogram = logit_histogram(torch.zeros(3), torch.zeros(3, dtype=torch.bool), torch.ones(3, dtype=torch.bool))
    assert math.isnan(auc_from_histogram(histogram))
    assert all(math.isnan(value) for value in precision_recall_from_histogram(histogram)[1:])
