"""Documents that are there twice: found in one pass over the text, in a few bytes a document, before anything is written."""

from __future__ import annotations

import array
import dataclasses
import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from electra.data.text import Piece
from electra.data.workers import in_order, workers
from electra.errors import UserError

Deduplicate = Literal["no", "exact", "near"]

_WORDS = 5  # in a gram
_PERMUTATIONS = 128  # numbers in a signature; an estimated similarity is off by 0.035 (one standard deviation) at 0.8
_PART = 100_000  # characters of a document that become grams at once; grams across the ends of parts are left out
_BATCH = 500_000  # characters handed to a worker
_BUCKET = 8  # earlier documents that one is compared with in each band
_DOCUMENTS = 1 << 16  # signatures read from disk at once


@dataclasses.dataclass(frozen=True)
class Duplicates:
    """Which documents to leave out."""

    dropped: NDArray[np.bool_]
    """For each document, in order."""
    exact: int
    """Documents that are the same as one before."""
    near: int
    """Documents that are not the same as one before, but much the same."""

    def without(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """The pieces of the documents that are kept."""
        number = -1
        for piece in pieces:
            number += piece.starts_document
            if not self.dropped[number]:
                yield piece


def check_library() -> None:
    """Raises UserError when the library that near duplicates need is not installed."""
    try:
        import datasketch  # noqa: F401
    except ImportError:
        raise UserError(
            "deduplicate is 'near': that needs the datasketch library (pip install 'electra-pretraining[dedup]')"
        ) from None


def find_duplicates(
    pieces: Iterator[Piece], kind: Literal["exact", "near"], *, similarity: float, directory: Path, num_workers: int
) -> Duplicates:
    """The documents that are the same as one before them (`exact`), or also much the same as one before (`near`).

    The same: their words and lines are. What is kept in memory is a 128-bit hash, 16 bytes a document.
    Much the same: the sets of their word 5-grams, case aside, have a Jaccard similarity of about `similarity` or more, as
    estimated by MinHash signatures (Broder 1997) that the `datasketch` library computes in `num_workers` processes. The
    signatures, 512 bytes a document, lie in an unnamed file in `directory`; finding those that agree on a band takes some 60
    bytes of memory a document.
    """
    digests = _Digests()
    pieces = digests.watch(pieces)
    if kind == "exact":
        for _ in pieces:
            pass
        same = digests.repeated()
        return Duplicates(same, int(same.sum()), 0)
    check_library()
    with tempfile.TemporaryFile(dir=directory) as file:
        _write_signatures(pieces, file, num_workers)
        same = digests.repeated()
        near = _resembling(file, same, similarity)
    return Duplicates(same | near, int(same.sum()), int(near.sum()))


class _Digests:
    """The hash of each document that goes by."""

    def __init__(self) -> None:
        self.values = array.array("Q")  # two a document

    def watch(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        current = None
        for piece in pieces:
            if piece.starts_document:
                self._add(current)
                current = hashlib.blake2b(digest_size=16)
            assert current is not None
            between = b"\n" if piece.starts_line else b" " if piece.text[0].isspace() else b""
            current.update(between + " ".join(piece.text.split()).encode("utf-8"))
            yield piece
        self._add(current)

    def _add(self, current: hashlib.blake2b | None) -> None:
        if current is not None:
            self.values.frombytes(current.digest())

    def repeated(self) -> NDArray[np.bool_]:
        """For each document, whether one before has the same hash. Sorts a 256th of them at a time."""
        values = np.frombuffer(self.values, dtype=np.uint64).reshape(-1, 2)
        first = (values[:, 0] >> np.uint64(56)).astype(np.uint8)
        same = np.zeros(len(values), dtype=np.bool_)
        for byte in range(256 if len(values) else 0):
            members = np.flatnonzero(first == byte)
            order = members[np.lexsort((values[members, 1], values[members, 0]))]  # stable: by number where equal
            same[order[1:]] = (values[order[1:]] == values[order[:-1]]).all(axis=1)
        return same


# -------------------------------------------------------------------------------------------------- near duplicates


class Signatures:
    """MinHash signatures of texts; made in worker processes."""

    def __call__(self, texts: list[str]) -> NDArray[np.uint32]:
        """[texts, _PERMUTATIONS]"""
        from datasketch import MinHash

        rows = np.empty((len(texts), _PERMUTATIONS), dtype=np.uint32)
        empty = MinHash(num_perm=_PERMUTATIONS, seed=1, scheme="affine32")
        for row, text in zip(rows, texts, strict=True):
            signature = empty.copy()
            signature.update_batch(_grams(text))
            row[:] = signature.hashvalues
        return rows


def _grams(text: str) -> list[bytes]:
    """The word 5-grams of a text; of a shorter text all of it is one gram."""
    words = text.lower().split()
    return [" ".join(words[at : at + _WORDS]).encode("utf-8") for at in range(max(1, len(words) - _WORDS + 1))]


def _write_signatures(pieces: Iterator[Piece], file: BinaryIO, num_workers: int) -> None:
    """One row a document. That of a document in parts is the least of theirs, number by number."""
    begins: list[list[bool]] = []

    def batches() -> Iterator[list[str]]:
        texts: list[str] = []
        flags: list[bool] = []
        size = 0
        for text, begins_document in _parts(pieces):
            texts.append(text)
            flags.append(begins_document)
            size += len(text)
            if size >= _BATCH:
                begins.append(flags)
                yield texts
                texts, flags, size = [], [], 0
        if texts:
            begins.append(flags)
            yield texts

    last: NDArray[np.uint32] | None = None
    with workers(num_workers, Signatures) as held:
        for rows in in_order(held, batches()):
            starts = np.flatnonzero(begins.pop(0))
            if last is not None:
                head = rows[: starts[0] if len(starts) else len(rows)]
                last = np.minimum(last, head.min(axis=0, initial=np.uint32(2**32 - 1)))
            if len(starts):
                if last is not None:
                    file.write(last.tobytes())
                merged = np.minimum.reduceat(rows, starts, axis=0)
                file.write(merged[:-1].tobytes())
                last = merged[-1]
    if last is not None:
        file.write(last.tobytes())


def _parts(pieces: Iterator[Piece]) -> Iterator[tuple[str, bool]]:
    """(text of a document or of a part of a long one, does it begin the document?)"""
    lines: list[str] = []
    size, begins = 0, True
    for piece in pieces:
        if lines and (piece.starts_document or size >= _PART):
            yield "".join(lines), begins
            lines, size, begins = [], 0, piece.starts_document
        lines.append("\n" + piece.text if piece.starts_line else piece.text)
        size += len(piece.text)
    if lines:
        yield "".join(lines), begins


def _resembling(file: BinaryIO, same: NDArray[np.bool_], similarity: float) -> NDArray[np.bool_]:
    """For each document, whether it resembles one before it. Those that are the `same` as another are passed over.

    Signatures are cut into bands; documents that agree on a whole band are compared (locality-sensitive hashing, Leskovec,
    Rajaraman and Ullman, Mining of Massive Datasets, chapter 3). The library chooses the number of bands.
    """
    from datasketch import MinHashLSH

    # Towards finding too many: they are compared. (The library has no bands for thresholds near 1.)
    index = MinHashLSH(threshold=min(similarity, 0.9), num_perm=_PERMUTATIONS, weights=(0.05, 0.95))
    near = np.zeros(len(same), dtype=np.bool_)
    for band in range(index.b):
        keys = _keys(file, len(same), slice(band * index.r, (band + 1) * index.r))
        documents = np.flatnonzero(~same)
        order = documents[np.argsort(keys[documents], kind="stable")]
        for distance in range(1, _BUCKET + 1):
            later, earlier = order[distance:], order[:-distance]
            at = np.flatnonzero((keys[later] == keys[earlier]) & ~near[later])
            for start in range(0, len(at), 4096):
                some = at[start : start + 4096]
                agree = _rows(file, later[some]) == _rows(file, earlier[some])
                near[later[some[agree.mean(axis=1) >= similarity]]] = True
    return near


def _keys(file: BinaryIO, num_documents: int, columns: slice) -> NDArray[np.uint64]:
    """A hash of some columns of each signature."""
    keys = np.zeros(num_documents, dtype=np.uint64)
    file.seek(0)
    for start in range(0, num_documents, _DOCUMENTS):
        data = file.read(_DOCUMENTS * _PERMUTATIONS * 4)
        rows = np.frombuffer(data, dtype=np.uint32).reshape(-1, _PERMUTATIONS)[:, columns]
        block = keys[start : start + len(rows)]
        for column in rows.T:
            block ^= column
            block *= np.uint64(0x9E3779B97F4A7C15)
            block ^= block >> np.uint64(29)
    return keys


def _rows(file: BinaryIO, documents: NDArray[np.int64]) -> NDArray[np.uint32]:
    rows = np.empty((len(documents), _PERMUTATIONS), dtype=np.uint32)
    for row, document in zip(rows, documents.tolist(), strict=True):
        file.seek(document * row.nbytes)
        row[:] = np.frombuffer(file.read(row.nbytes), dtype=np.uint32)
    return rows
