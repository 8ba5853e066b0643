"""A sample is all of a short text, and of a long one no more than was asked for, spread over all of it."""

import pytest

from electra.data.sample import TextSample
from electra.data.text import Piece


def pieces(count):
    return (Piece(f"line {n} says caf\u00e9 " + "x" * 100, True, n % 10 == 0) for n in range(count))


def test_a_short_text_is_kept_whole():
    sample = TextSample(pieces(5000))
    for _ in range(2):
        assert list(sample) == [piece.text for piece in pieces(5000)]


def test_no_text():
    assert list(TextSample(iter([]))) == []


@pytest.mark.parametrize("limit", [50_000, 1_000_000])
def test_a_long_text_is_thinned(limit):
    count = 200_000  # 24 MB
    kept = [int(text.split()[1]) for text in TextSample(pieces(count), limit)]
    assert kept == sorted(set(kept))
    assert kept[0] == 0
    if limit == 50_000:  # a single run is more than that already
        assert len(kept) < 1000
        return
    assert 0.6 * limit < sum(len(piece.text.encode()) for piece in pieces(len(kept))) <= limit
    quarters = [sum(n // (count // 4) == quarter for n in kept) for quarter in range(4)]
    assert sum(quarter > 0 for quarter in quarters) >= 3


def test_the_same_text_gives_the_same_sample():
    first, second = (list(TextSample(pieces(30_000), 500_000)) for _ in range(2))
    assert first == second
