"""Duplicates against what comparing every pair gives."""

import itertools
import random

import numpy as np
import pytest

from electra.data import duplicates as duplicates_module
from electra.data.duplicates import find_duplicates
from electra.data.text import Piece


def pieces_of(documents):
    """Lines are parted by \\n, pieces of a line by |."""
    for document in documents:
        first = True
        for line in document.split("\n"):
            for index, part in enumerate(line.split("|")):
                yield Piece(part, index == 0, first)
                first = False


def dropped(documents, kind, tmp_path, similarity=0.8, num_workers=0):
    found = find_duplicates(
        pieces_of(documents), kind, similarity=similarity, directory=tmp_path, num_workers=num_workers
    )
    assert list(tmp_path.iterdir()) == []
    assert found.dropped.sum() == found.exact + found.near
    return found.dropped.tolist()


def test_exact(tmp_path):
    documents = ["a b", "a\nb", " a  b ", "a| b", "ab", "a|b", "c", "a\n b", "A b"]
    assert dropped(documents, "exact", tmp_path) == [False, False, True, True, False, True, False, True, False]
    assert dropped([], "exact", tmp_path) == []


def test_exact_of_many(tmp_path):
    draw = random.Random(0)
    documents = [str(draw.randrange(3000)) for _ in range(6000)]
    seen: set[str] = set()
    expected = [document in seen or seen.add(document) is not None for document in documents]
    assert dropped(documents, "exact", tmp_path) == expected


def grams(text):
    words = text.split()
    return {tuple(words[at : at + 5]) for at in range(max(1, len(words) - 4))}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_near_agrees_with_comparing_all(tmp_path, num_workers, monkeypatch):
    """Of texts well above and well below the threshold; batches and parts of documents are made small."""
    monkeypatch.setattr(duplicates_module, "_BATCH", 3000)
    monkeypatch.setattr(duplicates_module, "_DOCUMENTS", 7)
    draw = random.Random(1)
    documents = []
    for _ in range(20):
        words = [f"w{draw.randrange(5000)}" for _ in range(300)]
        documents.append(" ".join(words))
        for changes in (0, 3, 60):  # 3 change at most 15 of 296 grams
            copy = list(words)
            for place in draw.sample(range(300), changes):
                copy[place] = f"w{draw.randrange(5000)}"
            documents.append("\n".join(itertools.chain([" ".join(copy[:150])], [" ".join(copy[150:])])))
    draw.shuffle(documents)
    sets = [grams(document) for document in documents]
    expected = np.zeros(len(documents), dtype=bool)
    for earlier, later in itertools.combinations(range(len(documents)), 2):
        alike = len(sets[earlier] & sets[later]) / len(sets[earlier] | sets[later])
        assert not 0.7 < alike < 0.88
        expected[later] |= alike > 0.8
    assert expected.sum() == 40
    assert dropped(documents, "near", tmp_path, num_workers=num_workers) == expected.tolist()


def test_long_documents_are_signed_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(duplicates_module, "_PART", 2000)
    monkeypatch.setattr(duplicates_module, "_BATCH", 3000)
    draw = random.Random(2)
    long = "\n".join(" ".join(f"w{draw.randrange(5000)}" for _ in range(20)) for _ in range(200))
    other = "\n".join(" ".join(f"w{draw.randrange(5000)}" for _ in range(20)) for _ in range(200))
    documents = ["short one", long, other, long + "\nand some words more at its end", "short one"]
    assert dropped(documents, "near", tmp_path) == [False, False, False, True, True]


def test_a_cluster_keeps_its_first(tmp_path):
    """More alike than a bucket compares."""
    words = [f"w{n}" for n in range(300)]
    documents = [" ".join([*words, f"end{n}"]) for n in range(50)]
    assert dropped(documents, "near", tmp_path) == [False] + [True] * 49
