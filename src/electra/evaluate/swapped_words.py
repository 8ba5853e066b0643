"""Can the discriminator find one word that was swapped for another of like frequency? A score that no generator has a part in.

Shapes: L length.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from electra.data.shards import TokenStore
from electra.data.tokenizer import load_tokenizer
from electra.errors import UserError
from electra.evaluate.detect import replaced_probabilities
from electra.evaluate.words import Pieces, Word, counts_of_words
from electra.model.pair import Pair

_ROWS_AT_ONCE = 64
_REFERENCE_TOKENS = 5_000_000  # enough to know how frequent a word is
_LEAST = 8  # occurrences, for a word whose frequency is known


def swapped_words(
    pair: Pair, store: TokenStore, reference: TokenStore, *, length: int = 48, num_rows: int = 1_000, seed: int = 0
) -> dict[str, float]:
    """Rows of about `length` held-out word pieces, whole words only; in each, one word becomes another whose count in the
    reference store lies in the same power of two. A word is as suspect as its most suspect piece.

    `swapped_word_auc` ranks all swapped words against all others; `swapped_word_found` is the share of rows in which the
    swapped word is the most suspect one, and `swapped_word_chance` what guessing would give.
    """
    tokenizer = load_tokenizer(store.tokenizer_dir)
    pieces = Pieces.of(tokenizer)
    rows, swapped = _rows(store, reference, pieces, length, num_rows, seed)
    scores, labels, found, chance = [], [], 0, 0.0
    pair.eval()
    for at in range(0, len(rows), _ROWS_AT_ONCE):
        part = rows[at : at + _ROWS_AT_ONCE]
        judged = replaced_probabilities(
            pair.discriminator, pair.discriminator_head, tokenizer, [row.tolist() for row in part]
        )
        for ids, probability, first in zip(part, judged, swapped[at : at + _ROWS_AT_ONCE], strict=True):
            words = pieces.words(ids)
            row = [float(probability[word].max()) for word in words]
            target = [word.start == first for word in words]
            found += int(target[int(np.argmax(row))])
            chance += 1.0 / len(row)
            scores += row
            labels += target
    return {
        "swapped_word_auc": float(roc_auc_score(labels, scores)),
        "swapped_word_found": found / len(rows),
        "swapped_word_chance": chance / len(rows),
        "swapped_word_rows": len(rows),
    }


def _rows(
    store: TokenStore, reference: TokenStore, pieces: Pieces, length: int, num_rows: int, seed: int
) -> tuple[list[NDArray[np.int64]], list[int]]:
    """The rows, and where in each the swapped word begins. Raises UserError for too little text."""
    bins = _frequency_bins(np.asarray(reference.tokens[:_REFERENCE_TOKENS]), pieces)
    draw = np.random.Generator(np.random.Philox(seed))
    rows: list[NDArray[np.int64]] = []
    swapped: list[int] = []
    for start in draw.permutation(max(1, len(store.tokens) // length - 1))[: 4 * num_rows] * length:
        ids = pieces.whole(store.tokens, int(start), int(start) + length)
        ids = ids[ids != store.special.sep]
        words = pieces.words(ids)
        candidates = [word for word in words if len(bins.of(tuple(ids[word].tolist()))) > 1]
        if len(words) < 5 or not candidates:
            continue
        chosen = candidates[draw.integers(len(candidates))]
        original = tuple(ids[chosen].tolist())
        others = [word for word in bins.of(original) if word != original]
        replacement = others[draw.integers(len(others))]
        rows.append(np.concatenate([ids[: chosen.start], replacement, ids[chosen.stop :]]))
        swapped.append(chosen.start)
        if len(rows) == num_rows:
            break
    if not rows:
        raise UserError(f"{store.path}: too little text to swap words in")
    return rows, swapped


@dataclasses.dataclass(frozen=True)
class _Bins:
    """Words by the power of two of their count."""

    bin_of: dict[Word, int]
    members: dict[int, list[Word]]

    def of(self, word: Word) -> list[Word]:
        """All words of like frequency; none for a word that the reference does not have."""
        return self.members.get(self.bin_of.get(word, -1), [])


def _frequency_bins(tokens: NDArray[np.int64], pieces: Pieces) -> _Bins:
    bin_of = {word: n.bit_length() for word, n in counts_of_words(tokens, pieces).items() if n >= _LEAST}
    members: dict[int, list[Word]] = {}
    for word, index in bin_of.items():
        members.setdefault(index, []).append(word)
    return _Bins(bin_of, members)
