"""Words added to a WordPiece vocabulary: behind the old pieces, so that every old id stays what it was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from electra.data.tokenizer import load_tokenizer
from electra.errors import UserError
from electra.files import write_directory


def add_tokens(source: Path | str, out: Path, words: Sequence[str]) -> int:
    """Write the tokenizer of `source` (a model's or tokenizer's directory, or a vocab.txt) with `words` as pieces of their
    own. Returns how many were new.

    Raises UserError for a vocabulary that is not WordPiece, and for a word that could never come up in text: it has spaces or
    punctuation, or letters that the tokenizer changes (capitals, accents).
    """
    tokenizer = load_tokenizer(source)
    vocabulary = tokenizer.get_vocab()
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    if backend["model"]["type"] != "WordPiece":
        raise UserError(f"{source}: its vocabulary is {backend['model']['type']}; words can be added to WordPiece only")
    new = [word for word in dict.fromkeys(words) if word not in vocabulary]
    for word in new:
        text = word.removeprefix("##")
        parts = _words(tokenizer, text)
        if parts != [text]:
            seen = " ".join(parts) or "nothing"
            raise UserError(f"{word!r} can never come up: the tokenizer sees {seen!r} there; add that, or leave it out")

    def write(target: Path) -> None:
        tokenizer.save_pretrained(target)
        path = target / "tokenizer.json"
        saved = json.loads(path.read_text(encoding="utf-8"))
        saved["model"]["vocab"] |= {word: len(vocabulary) + index for index, word in enumerate(new)}
        path.write_text(json.dumps(saved, ensure_ascii=False), encoding="utf-8")
        read_back = load_tokenizer(target).get_vocab()
        if any(read_back.get(word) != len(vocabulary) + index for index, word in enumerate(new)):
            raise UserError(f"{source}: transformers does not take the longer vocabulary; give its vocab.txt instead")

    write_directory(out, write)
    return len(new)


def _words(tokenizer: Any, text: str) -> list[str]:
    """What the tokenizer cuts a text into before it looks for pieces."""
    backend = tokenizer.backend_tokenizer
    normal = backend.normalizer.normalize_str(text) if backend.normalizer is not None else text
    return [part for part, _ in backend.pre_tokenizer.pre_tokenize_str(normal)]
