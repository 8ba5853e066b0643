"""WordPiece tokenizers: trained on a text, or taken from a vocabulary or tokenizer directory. Hugging Face classes throughout."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from electra.errors import UserError
from electra.vocabulary import read_vocabulary

_CONTROLS = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
_REPEATS = 1000
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclasses.dataclass(frozen=True)
class SpecialIds:
    """Ids of the five special tokens."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, *, lowercase: bool = True, strip_accents: bool | None = None
) -> Any:
    """Learn a WordPiece vocabulary of at most `vocab_size` pieces, special tokens first. Returns a `BertTokenizer`.

    `strip_accents` None means as BERT does: together with lower-casing. The same texts give the same vocabulary, ids and all
    (unless more than a third of `vocab_size` characters occur: of the rarest, equally frequent ones any may be left out).
    Words are counted here and each distinct one is normalised and split once, which gives what the library's trainer makes of
    the texts themselves in half the time.
    """
    import tokenizers
    from transformers import BertTokenizer

    if vocab_size <= len(SPECIAL_TOKENS):
        raise UserError(f"vocab_size is {vocab_size}: it must be above {len(SPECIAL_TOKENS)}")
    normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    splitter = tokenizers.pre_tokenizers.BertPreTokenizer()
    words: Counter[str] = Counter()
    for text in texts:
        words.update(words_of(text))
    parts: Counter[str] = Counter()
    for word, count in words.items():
        for part, _ in splitter.pre_tokenize_str(normalizer.normalize_str(word)):
            parts[part] += count
    # Every character that starts a word may also continue one, so a script with many characters needs room for both.
    limit = vocab_size // 3
    # The trainer numbers the pieces that continue a word in the order of a hash table that differs from process to
    # process, and breaks ties between merges by number. Named beforehand they are numbered always the same.
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=[*SPECIAL_TOKENS, *_continuations(words, normalizer, splitter, limit)],
        limit_alphabet=limit,
        show_progress=False,
    )
    model = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    model.train_from_iterator(_repeated(parts), trainer)
    return BertTokenizer(vocab=model.get_vocab(), do_lower_case=lowercase, strip_accents=strip_accents)


def words_of(text: str) -> list[str]:
    """What white space parts. Some of it is white space to Python but nothing to BERT's normaliser: taken out."""
    return _CONTROLS.sub("", text).split()


def _repeated(counts: Counter[str]) -> Iterator[str]:
    """Texts in which each word stands as often as it was counted: the trainer takes no counts."""
    for word, count in counts.items():
        for start in range(0, count, _REPEATS):
            yield " ".join([word] * min(_REPEATS, count - start))


def _continuations(words: Counter[str], normalizer: Any, splitter: Any, limit: int) -> list[str]:
    """The pieces ##c of the `limit` commonest characters that can continue a word, in the order of the characters."""
    raw: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            raw[character] += count
    counts: Counter[str] = Counter()
    for character, count in raw.items():
        normal = normalizer.normalize_str(character)
        for part in normal.strip():
            # Punctuation and Chinese characters (set off by spaces) are words of their own. What is punctuation the
            # library's splitter says: its Unicode tables are older than Python's.
            alone = normal != normal.strip() or len(splitter.pre_tokenize_str(f"a{part}")) > 1
            if not alone and not part.isspace():
                counts[part] += count
    return [f"##{c}" for c in sorted(sorted(counts, key=lambda c: (-counts[c], c))[:limit])]


def load_tokenizer(path: str | Path, *, lowercase: bool = True, strip_accents: bool | None = None) -> Any:
    """A vocab.txt (then the case settings apply), a tokenizer directory (it has its own), or a hub name.

    Raises UserError when there is none, when it is not WordPiece-like, or when a special token is missing.
    """
    from transformers import AutoTokenizer, BertTokenizer

    path = Path(path)
    if path.is_file():
        tokenizer: Any = BertTokenizer(
            vocab=_special_vocabulary(path), do_lower_case=lowercase, strip_accents=strip_accents
        )
    else:
        if path.is_dir() and not any((path / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
            raise UserError(
                f"{path}: holds neither tokenizer.json nor vocab.txt; name a vocab.txt or a tokenizer directory"
            )
        if not path.exists() and (path.is_absolute() or path.suffix or len(path.parts) > 2):
            raise UserError(f"{path}: no such vocabulary file or tokenizer directory")
        if path.is_dir() and not (path / "tokenizer.json").is_file() and not (path / "tokenizer_config.json").is_file():
            return load_tokenizer(path / "vocab.txt", lowercase=lowercase, strip_accents=strip_accents)
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(path))
        except Exception as error:  # the library raises many kinds
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"{path}: no tokenizer could be loaded from there ({reason})") from None
    missing = [name for name in SPECIAL_TOKENS if _special_id(tokenizer, name) is None]
    if missing:
        raise UserError(
            f"{path}: the vocabulary lacks {', '.join(missing)}; add the special tokens, or train one (--vocab-size)"
        )
    return tokenizer


def _special_vocabulary(path: Path) -> dict[str, int]:
    pieces = read_vocabulary(path)
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    missing = [name for name in SPECIAL_TOKENS if name not in vocabulary]
    if missing:
        raise UserError(
            f"{path}: the vocabulary lacks {', '.join(missing)}; add the special tokens, or train one (--vocab-size)"
        )
    if len(vocabulary) != len(pieces):
        raise UserError(f"{path}: a word piece stands there twice; each line must be another one")
    return vocabulary


def _special_id(tokenizer: Any, name: str) -> int | None:
    attribute = f"{name.strip('[]').lower()}_token_id"
    return getattr(tokenizer, attribute, None)


def special_ids(tokenizer: Any) -> SpecialIds:
    """The ids, whatever the tokenizer calls the tokens."""
    return SpecialIds(**{name.strip("[]").lower(): _special_id(tokenizer, name) for name in SPECIAL_TOKENS})  # type: ignore[arg-type]


def tokenizer_hash(tokenizer: Any) -> str:
    """SHA-256 of all that decides how text becomes ids: vocabulary, normaliser, splitting. Not of padding or truncation."""
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    relevant = {name: parts[name] for name in ("normalizer", "pre_tokenizer", "model", "added_tokens")}
    return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()
