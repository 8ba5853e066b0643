"""Rows of whole words: nothing that a row's ends cut is taken for a word, in the score of swapped words either."""

import dataclasses
from pathlib import Path

import numpy as np

import electra.evaluate.swapped_words as swapped_words
from electra.data.shards import TokenStore
from electra.data.tokenizer import SpecialIds
from electra.evaluate.words import Pieces, counts_of_words

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "7", "play", "##ing", "##s", "chess", "in", "##side"]
PLAY, ING, S, CHESS, IN, SIDE, DOT, SEVEN = 7, 8, 9, 10, 11, 12, 5, 6


class Tokenizer:
    def __len__(self):
        return len(VOCABULARY)

    def convert_ids_to_tokens(self, ids):
        return [VOCABULARY[index] for index in ids]


def test_words_of_letters():
    pieces = Pieces.of(Tokenizer())
    ids = np.array([ING, PLAY, ING, S, DOT, SEVEN, CHESS, 3, IN, SIDE])
    assert pieces.words(ids) == [slice(1, 4), slice(6, 7), slice(8, 10)]
    assert counts_of_words(np.array([CHESS, PLAY, ING, CHESS]), pieces) == {(CHESS,): 2, (PLAY, ING): 1}


def test_what_either_end_cuts_is_left_out():
    pieces = Pieces.of(Tokenizer())
    tokens = np.array([PLAY, ING, CHESS, PLAY, S, IN, SIDE, ING, DOT], dtype=np.uint16)
    cuts = {
        (0, 9): [PLAY, ING, CHESS, PLAY, S, IN, SIDE, ING, DOT],
        (1, 5): [CHESS, PLAY, S],  # begins within playing, ends where a word ends
        (2, 4): [CHESS],  # plays is cut
        (2, 7): [CHESS, PLAY, S],  # insideing is cut after its second piece
        (2, 6): [CHESS, PLAY, S],
        (6, 8): [],  # nothing but the rest of a word
        (5, 7): [],
    }
    for (start, stop), expected in cuts.items():
        whole = pieces.whole(tokens, start, stop)
        assert whole.tolist() == expected, (start, stop)
        assert whole.dtype == np.int64


def test_rows_of_swapped_words_hold_whole_words_only():
    """Rows of 8 of a text whose words are of 1 to 3 pieces: their ends fall within words."""
    draw = np.random.Generator(np.random.Philox(1))
    words = [[PLAY], [PLAY, ING], [PLAY, S], [CHESS], [IN, SIDE], [IN, SIDE, S], [IN]]
    tokens = np.concatenate([words[index] for index in draw.integers(len(words), size=4000)])
    special = {"special_ids": dataclasses.asdict(SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4))}
    store = TokenStore(Path("made-up"), special, tokens, np.array([0]), np.array([0]))
    pieces = Pieces.of(Tokenizer())
    rows, swapped = swapped_words._rows(store, store, pieces, 12, 200, 0)
    assert len(rows) == 200
    known = {tuple(word) for word in words}
    for ids, start in zip(rows, swapped, strict=True):
        found = [tuple(ids[word].tolist()) for word in pieces.words(ids)]
        assert sum(map(len, found)) == len(ids)
        assert set(found) <= known
        assert start in [word.start for word in pieces.words(ids)]
