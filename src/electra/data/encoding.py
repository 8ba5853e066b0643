"""Text to word-piece ids, fast: each distinct word is cut by the `tokenizers` library once and then looked up.

The library cuts a text at white space before anything else if it is set up as BERT is, so the ids of a text are those of its
words, one after the other. Natural text repeats its words: looking them up is several times as fast on one core as the
library is on two, and gives the same bytes (tests compare them on any text that can be made up).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

_MAX_WORD = 32  # longer words (text without spaces, web addresses) seldom come again and are not kept
_MAX_WORDS = 1_000_000  # kept; about 150 bytes each
_CONTROLS = re.compile("[\x0b\x0c\x1c-\x1f\x85]")  # white space to Python, nothing to the library


class TextEncoder:
    """Word-piece ids of texts as bytes of `dtype`, without special tokens.

    A literal "[MASK]" in a text is a text: it becomes ordinary word pieces, never the special id.
    """

    def __init__(self, tokenizer: Any, dtype: DTypeLike) -> None:
        import tokenizers

        self.backend = tokenizers.Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())  # ours to set up
        self.backend.no_padding()
        self.backend.no_truncation()
        self.backend.encode_special_tokens = True
        self.dtype = np.dtype(dtype)
        self.by_word = _splits_at_white_space(json.loads(tokenizer.backend_tokenizer.to_str()))
        self._known: dict[str, bytes] = {}

    def __call__(self, texts: list[str]) -> list[bytes]:
        """The ids of each text; all cores work on what has to be cut."""
        if not self.by_word:
            return self._cut(texts)
        words = [_CONTROLS.sub("", text).split() for text in texts]
        known = self._known
        new = list(set().union(*words).difference(known))
        found = dict(zip(new, self._cut(new), strict=True))
        kept = {word: ids for word, ids in found.items() if len(word) <= _MAX_WORD}
        if len(known) + len(kept) <= _MAX_WORDS:
            known.update(kept)
        if all(word in known for word in new):
            return [b"".join(map(known.__getitem__, line)) for line in words]
        both = _Either(known, found)
        return [b"".join(map(both.__getitem__, line)) for line in words]

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


def encode_batches(encoder: TextEncoder, batches: Iterable[list[str]]) -> Iterator[list[bytes]]:
    """The ids of each batch, in order. The next batch is handed over before the last one is taken: while the library cuts
    it (it lets other threads run) the caller reads and writes."""
    with ThreadPoolExecutor(1) as pool:
        pending: Future[list[bytes]] | None = None
        for batch in batches:
            submitted = pool.submit(encoder, batch)
            if pending is not None:
                yield pending.result()
            pending = submitted
        if pending is not None:
            yield pending.result()


def _splits_at_white_space(settings: dict[str, Any]) -> bool:
    """Whether the ids of a text are those of its words: BERT's normaliser and splitter, and no words added to them."""
    normalizer, splitter = settings["normalizer"] or {}, settings["pre_tokenizer"] or {}
    added = [token["content"] for token in settings["added_tokens"] if not token["special"]]
    return (
        normalizer.get("type") == "BertNormalizer"
        and normalizer.get("clean_text") is True
        and splitter.get("type") == "BertPreTokenizer"
        and settings["model"]["type"] == "WordPiece"
        and not added
    )
