"""What frozen features are tried on: labelled texts, or two questions made from held-out text itself.

    word-order    are two neighbouring words of the passage swapped? A bag of words is at 50%; it needs features that know order
    word-content  which of a few words is in the passage? It falls when features collapse

The two are "bigram shift" and "word content" of Conneau et al. 2018 ("What you can cram into a single vector"), made smaller.

Shapes: N passages.
"""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra.data.shards import TokenStore
from electra.data.tokenizer import tokenizer_hash
from electra.errors import UserError
from electra.evaluate.labelled import HUB, read_examples
from electra.evaluate.labels import label_names
from electra.evaluate.task_data import digest
from electra.evaluate.words import Pieces
from electra.files import sha256

PASSAGE = 32
"""Word pieces of a passage, about."""
MAX_PASSAGES = 2_000
CONTENT_WORDS = 20
_COMMONEST = 0.05
"""A word in more passages than this is a function word; it says nothing of content."""


@dataclasses.dataclass(frozen=True)
class Question:
    """Rows with special tokens, their answers, and which of them a classifier is fitted on; the others score it."""

    name: str
    rows: list[list[int]]
    types: list[list[int]] | None
    """Segments of pairs of texts."""
    answers: NDArray[np.int64]
    """[N], from 0."""
    fitted: NDArray[np.bool_]
    """[N]"""
    beats_random: bool = True
    """Whether a network that learns comes to do better than random weights; these keep the identity of words better."""

    def __post_init__(self) -> None:
        if len(set(self.answers[self.fitted].tolist())) < 2 or self.fitted.all():
            raise UserError(f"{self.name}: {len(self.rows)} texts are too few to fit a classifier on half of them")

    @property
    def chance(self) -> float:
        """The share of the commonest answer among those that score."""
        return float(np.bincount(self.answers[~self.fitted]).max() / (~self.fitted).sum())


def questions(
    data: Path,
    tokenizer: Any,
    *,
    text_column: str = "text",
    text_pair_column: str | None = None,
    label_column: str = "label",
    has_types: bool = True,
    max_length: int = 128,
    limit: int | None = None,
    seed: int = 0,
) -> tuple[list[Question], str]:
    """The questions of a token store or of a labelled file, at most `limit` texts each, and a hash of the data.

    `has_types`: the encoder tells the segments of a pair apart. Raises UserError for a store of another tokenizer, for a file
    without these columns, and for too little text.
    """
    limit = limit or MAX_PASSAGES
    draw = np.random.Generator(np.random.Philox(seed))
    if data.is_dir():
        store = TokenStore.open(data)
        if tokenizer_hash(tokenizer) != store.tokenizer_hash:
            raise UserError(
                f"{data}: another tokenizer made it than the model's; prepare it with the model's (--vocab)"
            )
        return from_text(store, Pieces.of(tokenizer), limit, draw), store.fingerprint
    examples = read_examples(
        data, text_column=text_column, text_pair_column=text_pair_column, label_column=label_column
    )
    names = label_names(examples, data)
    chosen = [examples[index] for index in draw.permutation(len(examples))[:limit]]
    encoded = tokenizer(
        [example.text for example in chosen],
        [example.text_pair for example in chosen] if text_pair_column else None,
        truncation=True,
        max_length=max_length,
        return_token_type_ids=True,
    )
    question = Question(
        data.name.partition(".")[0],
        encoded["input_ids"],
        encoded["token_type_ids"] if text_pair_column and has_types else None,
        np.array([names.index(example.label) for example in chosen]),
        _first_half(len(chosen)),
    )
    return [question], digest(examples) if str(data).startswith(HUB) else sha256(data)


def from_text(store: TokenStore, pieces: Pieces, limit: int, draw: np.random.Generator) -> list[Question]:
    """What can be asked about a held-out text. Raises UserError for too little of it."""
    passages = _passages(store, pieces, draw)
    found = [_word_order(passages, pieces, limit, draw, store)]
    content = _word_content(passages, pieces, limit, store)
    return [*found, *([content] if content is not None else [])]


def _passages(store: TokenStore, pieces: Pieces, draw: np.random.Generator) -> list[NDArray[np.int64]]:
    """Parts of the text that do not overlap, of whole words, in random order."""
    passages = []
    for index in draw.permutation(len(store.tokens) // PASSAGE):
        ids = pieces.whole(store.tokens, int(index) * PASSAGE, int(index + 1) * PASSAGE)
        passages.append(ids[ids != store.special.sep])
    return passages


def _word_order(
    passages: list[NDArray[np.int64]], pieces: Pieces, limit: int, draw: np.random.Generator, store: TokenStore
) -> Question:
    rows: list[list[int]] = []
    answers: list[int] = []
    for ids in passages:
        words = pieces.words(ids)
        pairs = [
            (a, b) for a, b in itertools.pairwise(words) if a.stop == b.start and not np.array_equal(ids[a], ids[b])
        ]
        if not pairs or len(rows) == limit:
            continue
        a, b = pairs[draw.integers(len(pairs))]
        swapped = bool(draw.random() < 0.5)
        if swapped:
            ids = np.concatenate([ids[: a.start], ids[b], ids[a], ids[b.stop :]])
        rows.append(_framed(ids, store))
        answers.append(int(swapped))
    return Question("word-order", rows, None, np.array(answers, dtype=np.int64), _first_half(len(rows)))


def _word_content(passages: list[NDArray[np.int64]], pieces: Pieces, limit: int, store: TokenStore) -> Question | None:
    """None where no words are of middling frequency: the text is too short, or all of it is alike."""
    in_passages = [{tuple(ids[word].tolist()) for word in pieces.words(ids)} for ids in passages]
    counts: dict[tuple[int, ...], int] = {}
    for words in in_passages:
        for word in words:
            counts[word] = counts.get(word, 0) + 1
    middling = [word for word, count in counts.items() if count <= _COMMONEST * len(passages)]
    chosen = sorted(middling, key=lambda word: (-counts[word], word))[:CONTENT_WORDS]
    rows: list[list[int]] = []
    answers: list[int] = []
    for ids, words in zip(passages, in_passages, strict=True):
        present = [index for index, word in enumerate(chosen) if word in words]
        if len(present) == 1 and answers.count(present[0]) < limit // CONTENT_WORDS:
            rows.append(_framed(ids, store))
            answers.append(present[0])
    if len(chosen) < 2 or len(rows) < 10 * len(chosen):
        return None
    return Question("word-content", rows, None, np.array(answers, dtype=np.int64), _first_half(len(rows)), False)


def _framed(ids: NDArray[np.int64], store: TokenStore) -> list[int]:
    return [store.special.cls, *ids.tolist(), store.special.sep]


def _first_half(count: int) -> NDArray[np.bool_]:
    """The order is random already."""
    return np.arange(count) < (count + 1) // 2
