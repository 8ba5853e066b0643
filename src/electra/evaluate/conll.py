"""Sentences with a label for each word: CoNLL column files, and lists of words and labels in .jsonl and .parquet."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from electra.errors import UserError
from electra.evaluate.labelled import records

_DOCUMENT = "-DOCSTART-"
_LISTS = (".jsonl", ".parquet", ".jsonl.gz", ".jsonl.xz", ".jsonl.zst")


@dataclasses.dataclass(frozen=True)
class Sentence:
    """Words and their labels."""

    words: list[str]
    labels: list[str]
    rows: list[str]
    """Each word's line of a column file; of lists, word and label."""


def read_sentences(path: Path, *, token_column: str | None = None, label_column: str | None = None) -> list[Sentence]:
    """All sentences of a file.

    Columns of a column file are numbers: 0 is the first (the words, unless told otherwise), -1 the last (the labels). In .jsonl
    and .parquet they are names, of lists (`tokens` and `labels`). Raises UserError, naming the place, for a missing file or
    column, for rows of different widths, for lists of different lengths, and for a file without sentences.
    """
    if not path.is_file():
        raise UserError(f"{path}: {'is a directory, not a file' if path.is_dir() else 'no such file'}")
    if path.name.endswith(_LISTS):
        found = _lists(path, token_column or "tokens", label_column or "labels")
    else:
        found = _columns(path, _number(token_column or "0", "token"), _number(label_column or "-1", "label"))
    if not found:
        raise UserError(f"{path}: holds no sentences")
    return found


def as_conll(sentences: Sequence[Sentence], predicted: Sequence[Sequence[str]]) -> str:
    """The lines of the sentences with the predicted label as one more column, as the script conlleval reads them."""
    blocks = []
    for sentence, labels in zip(sentences, predicted, strict=True):
        rows = zip(sentence.rows, labels, strict=True)
        blocks.append("".join(f"{row}{chr(9) if chr(9) in row else ' '}{label}\n" for row, label in rows))
    return "\n".join(blocks)


def _number(text: str, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UserError(
            f"{what}_column is {text!r}: columns of a CoNLL file are numbers, from 0 or, backwards, from -1"
        ) from None


def _columns(path: Path, token_column: int, label_column: int) -> list[Sentence]:
    try:
        # Only these characters part lines and columns: to Python U+2028 and the no-break space would, too.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        number = path.read_bytes()[: error.start].count(b"\n") + 1
        raise UserError(f"{path}: line {number} is not UTF-8; convert the file, for example with iconv") from None
    found, width = [], 0
    current = Sentence([], [], [])
    for number, line in enumerate([*lines, ""], 1):
        row = line.rstrip("\r")
        if not row.strip(" \t"):
            if current.words:
                found.append(current)
            current = Sentence([], [], [])
            continue
        columns = row.split("\t") if "\t" in row else [column for column in row.split(" ") if column]
        if columns[0] == _DOCUMENT:
            continue
        width = width or len(columns)
        if len(columns) != width:
            raise UserError(f"{path}: line {number} has {len(columns)} columns, the first one has {width}")
        for name, column in (("token", token_column), ("label", label_column)):
            if not -width <= column < width:
                raise UserError(f"{path}: line {number} has no column {column} ({name}_column); it has {width}")
        if token_column % width == label_column % width:
            raise UserError(
                f"{path}: column {token_column} cannot be both words and labels ({width} columns); set --label-column"
            )
        current.words.append(columns[token_column])
        current.labels.append(columns[label_column])
        current.rows.append(row.strip(" ") if "\t" not in row else row)
    return found


def _lists(path: Path, token_column: str, label_column: str) -> list[Sentence]:
    found = []
    for where, record in records(path):
        words, labels = (
            _list(record, name, flag, f"{path}: {where}", kind)
            for name, flag, kind in ((token_column, "token", _word), (label_column, "label", _label))
        )
        if len(words) != len(labels):
            raise UserError(f"{path}: {where} has {len(words)} {token_column} and {len(labels)} {label_column}")
        if words:
            rows = [f"{word}\t{label}" for word, label in zip(words, labels, strict=True)]
            found.append(Sentence(words, labels, rows))
    return found


def _list(record: dict[str, Any], name: str, flag: str, where: str, read: Callable[[Any], str | None]) -> list[str]:
    if name not in record:
        names = ", ".join(repr(str(other)[:40]) for other in record)
        raise UserError(f"{where} has no column {name!r}; it has {names}; name yours with --{flag}-column")
    values = record[name]
    if not isinstance(values, list):
        raise UserError(f"{where}, column {name!r} is not a list, one entry a word")
    found = [read(value) for value in values]
    texts = [value for value in found if value is not None]
    if len(texts) != len(found):
        raise UserError(f"{where}, column {name!r}: entry {found.index(None) + 1} is not a {flag}")
    return texts


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _label(value: Any) -> str | None:
    """Names, or numbers for names."""
    if isinstance(value, str) and value:
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None
