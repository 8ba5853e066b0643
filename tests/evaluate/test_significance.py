"""Differences between candidates against values worked out by hand or by scipy."""

import pytest

from electra.evaluate.significance import each_pair, welch


def test_welch():
    assert welch([1.0], [2.0, 3.0]) is None
    assert welch([1.0, 1.0], [2.0, 2.0]) == 0.0
    assert welch([1.0, 1.0], [1.0, 1.0]) == 1.0
    assert welch([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]) == pytest.approx(0.2208, abs=5e-4)


def test_holm_multiplies_the_smallest_most_and_keeps_the_order():
    scores = {"a": [1.0, 2.0, 3.0], "b": [11.0, 12.0, 13.5], "c": [12.0, 13.0, 15.0], "one seed": [4.0]}
    raw = {pair: welch(scores[pair[0]], scores[pair[1]]) for pair in (("a", "b"), ("a", "c"), ("b", "c"))}
    found = each_pair(scores)
    assert found["a", "one seed"] is None
    assert raw["a", "b"] < raw["a", "c"] < raw["b", "c"]
    assert found["a", "b"] == pytest.approx(3 * raw["a", "b"])
    assert found["a", "c"] == pytest.approx(max(3 * raw["a", "b"], 2 * raw["a", "c"]))
    assert found["b", "c"] == pytest.approx(raw["b", "c"])
