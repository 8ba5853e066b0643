"""Text to word-piece ids, fast: each distinct word is cut by the `tokenizers` library once and then looked up.

The library cuts a text at white space before anything else if it is set up as BERT is, so the ids of a text are those of its
words, one after the other. Natural text repeats its words: looking them up is several times as fast on one core as the
library is, and gives the same bytes (tests compare them on any text that can be made up).
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from electra.data.tokenizer import words_of

_MAX_WORD = 32  # longer words (text without spaces, web addresses) seldom come again and are not kept
MAX_WORDS = 400_000
"""Words kept, about 150 bytes each; the commonest come first, so the rest are seldom asked for."""


class TextEncoder:
    """Word-piece ids of texts as bytes of `dtype`, without special tokens, and how many words (parted by white space).

    `settings` is a tokenizer of the `tokenizers` library as JSON, so that an encoder can be made in another process.
    A literal "[MASK]" in a text is a text: it becomes ordinary word pieces, never the special id.
    """

    def __init__(self, settings: str, dtype: str) -> None:
        import tokenizers

        self.backend = tokenizers.Tokenizer.from_str(settings)  # ours to set up
        self.backend.no_padding()
        self.backend.no_truncation()
        self.backend.encode_special_tokens = True
        self.dtype = np.dtype(dtype)
        self.by_word = splits_at_white_space(settings)
        self._known: dict[str, bytes] = {}

    def __call__(self, texts: list[str]) -> list[tuple[bytes, int]]:
        """(ids, number of words) of each text."""
        if not self.by_word:
            return [(ids, len(text.split())) for ids, text in zip(self._cut(texts), texts, strict=True)]
        words = [words_of(text) for text in texts]
        known = self._known
        new = list(set().union(*words).difference(known))
        found = dict(zip(new, self._cut(new), strict=True))
        kept = {word: ids for word, ids in found.items() if len(word) <= _MAX_WORD}
        if len(known) + len(kept) <= MAX_WORDS:
            known.update(kept)
        look_up = (known if all(word in known for word in new) else _Either(known, found)).__getitem__
        return [(b"".join(map(look_up, line)), len(line)) for line in words]

    def _cut(self, texts: list[str]) -> list[bytes]:
        encoded = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, dtype=self.dtype).tobytes() for encoding in encoded]


class _Either:
    """Words that are kept, and those of one batch."""

    def __init__(self, known: dict[str, bytes], found: dict[str, bytes]) -> None:
        self.known, self.found = known, found

    def __getitem__(self, word: str) -> bytes:
        ids = self.known.get(word)
        return self.found[word] if ids is None else ids


def splits_at_white_space(settings: str) -> bool:
    """Whether the ids of a text are those of its words: BERT's normaliser and splitter, and no words added to them."""
    parts: dict[str, Any] = json.loads(settings)
    normalizer, splitter = parts["normalizer"] or {}, parts["pre_tokenizer"] or {}
    added = [token["content"] for token in parts["added_tokens"] if not token["special"]]
    return (
        normalizer.get("type") == "BertNormalizer"
        and normalizer.get("clean_text") is True
        and splitter.get("type") == "BertPreTokenizer"
        and parts["model"]["type"] == "WordPiece"
        and not added
    )
