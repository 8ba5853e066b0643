"""Documents that are there twice: found in one pass over the text, in a few bytes a document, before anything is written."""

from __future__ import annotations

import array
import hashlib
import itertools
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from electra.data.text import Piece
from electra.errors import UserError

Deduplicate = Literal["no", "exact", "near"]

NEAR_SIMILARITY = 0.8
"""Jaccard similarity of the sets of word 5-grams from which on two documents count as near duplicates."""
_WORDS = 5
_PERMUTATIONS = 64


def find_duplicates(pieces: Iterator[Piece], kind: Deduplicate) -> NDArray[np.bool_]:
    """For each document, in order, whether one before it is the same (`exact`) or much the same (`near`).

    `exact` compares lines without the white space at their ends; it takes 8 bytes a document while reading (64-bit hashes:
    among a hundred million documents the chance of one false match is 0.03%). `near` is MinHash with locality-sensitive
    hashing by the `datasketch` library, some kilobytes a document. Raises UserError when that is not installed.
    """
    return _near(pieces) if kind == "near" else _exact(pieces)


def without(pieces: Iterator[Piece], dropped: NDArray[np.bool_] | None) -> Iterator[Piece]:
    """The pieces of the documents that are not dropped."""
    if dropped is None:
        yield from pieces
        return
    number = -1
    for piece in pieces:
        number += piece.starts_document
        if not dropped[number]:
            yield piece


def _exact(pieces: Iterator[Piece]) -> NDArray[np.bool_]:
    digests = array.array("Q")
    current = hashlib.blake2b(digest_size=8)
    for piece in pieces:
        if piece.starts_document and len(digests):
            digests[-1] = int.from_bytes(current.digest(), "little")
        if piece.starts_document:
            digests.append(0)
            current = hashlib.blake2b(digest_size=8)
        current.update(b"\n" if piece.starts_line else b"")
        current.update(piece.text.strip().encode("utf-8", "replace"))
    if digests:
        digests[-1] = int.from_bytes(current.digest(), "little")
    values = np.frombuffer(digests, dtype=np.uint64) if digests else np.zeros(0, np.uint64)
    dropped = np.ones(len(values), dtype=np.bool_)
    dropped[np.unique(values, return_index=True)[1]] = False  # the first of each
    return dropped


def _near(pieces: Iterator[Piece]) -> NDArray[np.bool_]:
    try:
        from datasketch import MinHash, MinHashLSH
    except ImportError:
        raise UserError(
            "deduplicate is 'near': that needs the datasketch library (pip install 'electra-pretraining[dedup]')"
        ) from None
    index = MinHashLSH(threshold=NEAR_SIMILARITY, num_perm=_PERMUTATIONS)
    found: list[bool] = []
    for grams in _grams(pieces):
        signature = MinHash(num_perm=_PERMUTATIONS, seed=1)
        for part in grams:
            signature.update_batch(part)
        twin = bool(index.query(signature))
        if not twin:
            index.insert(len(found), signature)
        found.append(twin)
    return np.array(found, dtype=np.bool_)


def _grams(pieces: Iterator[Piece]) -> Iterator[Iterator[list[bytes]]]:
    """For each document its word 5-grams in parts, a piece's at a time; a shorter document is one gram."""
    for _, document in itertools.groupby(pieces, key=_document_number()):
        yield _grams_of(document)


def _document_number() -> Callable[[Piece], int]:
    counter = itertools.count()
    current = 0

    def number(piece: Piece) -> int:
        nonlocal current
        if piece.starts_document:
            current = next(counter)
        return current

    return number


def _grams_of(document: Iterator[Piece]) -> Iterator[list[bytes]]:
    words: list[str] = []
    any_yet = False
    for piece in document:
        words += piece.text.lower().split()
        if len(words) >= _WORDS:
            any_yet = True
            yield [_joined(words[i : i + _WORDS]) for i in range(len(words) - _WORDS + 1)]
            words = words[1 - _WORDS :]
    if not any_yet:
        yield [_joined(words)]


def _joined(words: list[str]) -> bytes:
    return " ".join(words).encode("utf-8", "replace")
