"""The user's labelled files to examples: named columns of .csv, .tsv, .jsonl and .parquet, or of a hub data set."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from electra.data.text import ReadOptions, Source, find_sources, read_text_lines
from electra.errors import UserError
from electra.evaluate.tasks import KindName

HUB = "hf:"


@dataclasses.dataclass(frozen=True)
class Example:
    """One labelled text, or a pair of texts."""

    text: str
    text_pair: str | None
    label: str
    """As the file has it; of several labels, a|b; empty where there is none (a test set, or a set of no labels)."""


def read_examples(
    path: Path,
    *,
    text_column: str,
    text_pair_column: str | None,
    label_column: str | Sequence[str],
    kind: KindName = "classification",
) -> list[Example]:
    """All examples of a file, in its order; `path` may also be a hub data set, hf:NAME[:SPLIT].

    In .tsv quotes are ordinary characters (as in GLUE), in .csv they quote. Several label columns hold yes or no (1 or 0, true or
    false) each. Raises UserError for a missing file or column (naming those there are), no rows, a row without label (a
    multi-label one may have none), broken syntax.
    """
    label_columns = [label_column] if isinstance(label_column, str) else list(label_column)
    label = _LABEL[kind] if len(label_columns) == 1 else _switches
    texts = [text_column, *([text_pair_column] if text_pair_column else [])]
    examples = []
    for where, record in records(path):
        missing = [name for name in [*texts, *label_columns] if name not in record]
        if missing:
            names = ", ".join(repr(str(name)[:40]) for name in record)
            raise UserError(
                f"{path}: {where} has no column {missing[0]!r}; it has {names}; name yours with --text-column and --label-column"
            )
        found = [_text(record[name], f"{path}: {where}, column {name!r}") for name in texts]
        values = {name: record[name] for name in label_columns}
        examples.append(Example(found[0], found[1] if text_pair_column else None, label(values, f"{path}: {where}")))
    if not examples:
        raise UserError(f"{path}: holds no examples")
    return examples


def _one(values: dict[str, Any], where: str) -> str:
    """A label as its name; a whole number that a format stored as 1.0 is "1"."""
    [(column, value)] = values.items()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    name = "" if value is None else str(value).strip()
    if not name or name.lower() == "nan":
        raise UserError(f"{where} has no label in column {column!r}; fill it in, or leave the row out")
    return name


def _several(values: dict[str, Any], where: str) -> str:
    """Labels as a|b, from such a text or from a list."""
    [value] = values.values()
    if not isinstance(value, list):
        return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value).strip()
    for label in value:
        if "|" in str(label):
            raise UserError(f"{where} has the label {label!r}: | stands between labels, not in one")
    return "|".join(str(label) for label in value)


def _switches(values: dict[str, Any], where: str) -> str:
    """The columns that say yes, as a|b."""
    chosen = []
    for column, value in values.items():
        text = str(value).strip().lower()
        if text not in _YES | _NO:
            raise UserError(
                f"{where} has {value!r} in label column {column!r}; of several label columns each is 0 or 1"
            )
        if text in _YES:
            chosen.append(column)
    return "|".join(chosen)


_YES, _NO = {"1", "1.0", "true", "yes"}, {"0", "0.0", "false", "no", ""}
_LABEL: dict[KindName, Callable[[dict[str, Any], str], str]] = {
    "classification": _one,
    "regression": _one,
    "multi-label": _several,
}


def _text(value: Any, where: str) -> str:
    """A text as it stands; none, and the "not a number" of a missing one, are empty."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, dict | list | bytes):
        raise UserError(f"{where} holds a {type(value).__name__}, not a text")
    return str(value)


def records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of a file or a hub data set: (place for messages, column -> value). Raises UserError for broken syntax."""
    if str(path).startswith(HUB):
        name, _, split = str(path).removeprefix(HUB).partition(":")
        yield from ((f"row {index}", record) for index, record in enumerate(hub_rows(name, None, split or "train"), 1))
        return
    if not path.is_file():
        raise UserError(f"{path}: {'is a directory, not a file' if path.is_dir() else 'no such file'}")
    source = find_sources([path])[0]
    if source.kind == "txt":
        raise UserError(f"{path}: a .txt has no columns; give a .csv, .tsv, .jsonl or .parquet")
    yield from _READERS[source.kind](source)


def hub_rows(name: str, configuration: str | None, split: str) -> Iterator[dict[str, Any]]:
    """The rows of a split of a Hugging Face data set, by name or from a local directory; class numbers become their names.

    Raises UserError when it cannot be loaded.
    """
    import datasets

    try:
        dataset = datasets.load_dataset(name, configuration, split=split)
    except Exception as error:  # the library raises many kinds
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{HUB}{name}: its split {split!r} could not be loaded ({reason})") from None
    classes = {
        column: feature.names
        for column, feature in dataset.features.items()
        if isinstance(feature, datasets.ClassLabel)
    }
    for row in dataset:
        numbers = {column: row[column] for column in classes}  # a test set has -1, or none
        yield row | {c: classes[c][n] if n is not None and n >= 0 else None for c, n in numbers.items()}


def _parquet(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(source.path)
    except pyarrow.ArrowException as error:
        raise UserError(f"{source.path}: not a readable parquet file ({' '.join(str(error).split())[:150]})") from None
    yield from ((f"row {index}", record) for index, record in enumerate(table.to_pylist(), 1))


def _jsonl(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(read_text_lines(source, ReadOptions()), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise UserError(f"{source.path}: line {number} is not JSON ({error})") from None
        if not isinstance(record, dict):
            raise UserError(f"{source.path}: line {number} is not a JSON object with named values")
        yield f"line {number}", record


def _delimited(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    csv.field_size_limit(2**31 - 1)
    ended = (line + "\n" for line in read_text_lines(source, ReadOptions()))
    reader = (
        csv.reader(ended, delimiter="\t", quoting=csv.QUOTE_NONE)
        if source.kind == "tsv"
        else csv.reader(ended, strict=True)
    )
    try:
        header = next(reader, None)
        if twice := [name for name in header or [] if (header or []).count(name) > 1]:
            raise UserError(f"{source.path}: two columns are named {twice[0]!r}; rename one")
        for row in reader:
            if not row:
                continue
            if header is None or len(row) != len(header):
                raise UserError(
                    f"{source.path}: line {reader.line_num} has {len(row)} columns, the header has {len(header or [])}"
                )
            yield f"line {reader.line_num}", dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise UserError(f"{source.path}: line {reader.line_num} is not proper CSV ({error})") from None


_READERS: dict[str, Callable[[Source], Iterator[tuple[str, dict[str, Any]]]]] = {
    "csv": _delimited,
    "tsv": _delimited,
    "jsonl": _jsonl,
    "parquet": _parquet,
}
