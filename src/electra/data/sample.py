"""A part of the text, spread evenly over it, to learn a vocabulary from: the counts of distinct words of all text would grow
without end, and the word pieces that more text would change are the rarest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import zstandard

from electra.data.text import Piece

SAMPLE_BYTES = 150_000_000
"""Text that is kept at most."""
_RUN = 100_000  # characters that are kept or dropped together
_THINNING = 0.9


class TextSample:
    """All of the text, or runs of it chosen by a hash of their number: at most `limit` bytes, packed in memory.

    How long the text is need not be known: when there is too much, the share that is kept gets smaller, and runs outside it
    are dropped. Can be gone through again and again.
    """

    def __init__(self, pieces: Iterator[Piece], limit: int | None = None) -> None:
        limit = SAMPLE_BYTES if limit is None else limit
        packer = zstandard.ZstdCompressor(level=1)
        self.share = 1.0
        self.runs: list[tuple[float, int, bytes]] = []  # (place in [0, 1), bytes, packed)
        size = 0
        for number, run in enumerate(_runs(pieces)):
            place = _place(number)
            if place >= self.share:
                continue
            data = "\n".join(run).encode("utf-8")
            self.runs.append((place, len(data), packer.compress(data)))
            size += len(data)
            while size > limit and len(self.runs) > 1:
                self.share *= _THINNING
                self.runs = [run for run in self.runs if run[0] < self.share]
                size = sum(length for _, length, _ in self.runs)

    def __iter__(self) -> Iterator[str]:
        unpacker = zstandard.ZstdDecompressor()
        for _, _, packed in self.runs:
            yield from unpacker.decompress(packed).decode("utf-8").split("\n")


def _runs(pieces: Iterator[Piece]) -> Iterator[list[str]]:
    run: list[str] = []
    size = 0
    for piece in pieces:
        run.append(piece.text)
        size += len(piece.text)
        if size >= _RUN:
            yield run
            run, size = [], 0
    if run:
        yield run


def _place(number: int) -> float:
    """The first run is always kept, so that a sample of a text is never empty."""
    digest = hashlib.blake2b(str(number).encode(), digest_size=8).digest()
    return 0.0 if number == 0 else int.from_bytes(digest, "big") / 2**64
