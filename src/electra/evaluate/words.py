"""Which of a vocabulary's pieces make words: rows of word pieces cut into whole words, without going back to the text.

Shapes: L length, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

Word = tuple[int, ...]
"""The ids of a word's pieces."""


@dataclasses.dataclass(frozen=True)
class Pieces:
    """What is known of each piece of a WordPiece vocabulary."""

    continues: NDArray[np.bool_]
    """[V]: goes on a word (##ing)."""
    starts_word: NDArray[np.bool_]
    """[V]: begins a word of letters; not punctuation, a number or a special token."""

    @classmethod
    def of(cls, tokenizer: Any) -> Pieces:
        pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        return cls(
            np.array([piece.startswith("##") for piece in pieces]),
            np.array([piece.isalpha() and not piece.startswith("[") for piece in pieces]),
        )

    def words(self, ids_L: NDArray[Any]) -> list[slice]:
        """Each word of letters as the slice of its pieces; pieces before the first start of a word are left out."""
        starts = np.flatnonzero(~self.continues[ids_L])
        return [
            slice(int(a), int(b))
            for a, b in zip(starts, [*starts[1:], len(ids_L)], strict=True)
            if self.starts_word[ids_L[a]]
        ]

    def whole(self, tokens: NDArray[Any], start: int, stop: int) -> NDArray[np.int64]:
        """tokens[start:stop] as int64, without what is left of a word that either end cuts."""
        while start < stop and self.continues[tokens[start]]:
            start += 1
        if stop < len(tokens) and self.continues[tokens[stop]]:
            while stop > start and self.continues[tokens[stop - 1]]:
                stop -= 1
            stop = max(start, stop - 1)  # the piece that the cut word begins with
        return np.asarray(tokens[start:stop]).astype(np.int64)


def counts_of_words(tokens: NDArray[Any], pieces: Pieces) -> dict[Word, int]:
    """How often each word of letters comes in a text."""
    counts: dict[Word, int] = {}
    ids = tokens.tolist()
    for word in pieces.words(tokens):
        key = tuple(ids[word])
        counts[key] = counts.get(key, 0) + 1
    return counts
