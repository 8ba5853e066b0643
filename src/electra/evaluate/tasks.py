"""Labelled files to examples: named columns of .csv, .tsv, .jsonl and .parquet, labels by name."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from electra.data.text import ReadOptions, Source, find_sources, read_text_lines
from electra.errors import UserError


@dataclasses.dataclass(frozen=True)
class Example:
    """One labelled text, or a pair of texts."""

    text: str
    text_pair: str | None
    label: str


def read_examples(path: Path, *, text_column: str, text_pair_column: str | None, label_column: str) -> list[Example]:
    """All examples of a file, in its order. In .tsv quotes are ordinary characters (as in GLUE), in .csv they quote.

    Raises UserError for a missing file or column (naming those there are), no rows, a row without label, broken syntax.
    """
    if not path.is_file():
        raise UserError(f"{path}: {'is a directory, not a file' if path.is_dir() else 'no such file'}")
    source = find_sources([path])[0]
    if source.kind == "txt":
        raise UserError(f"{path}: a .txt has no columns; give a .csv, .tsv, .jsonl or .parquet")
    wanted = [text_column, *([text_pair_column] if text_pair_column else []), label_column]
    examples = []
    for where, record in _records(source):
        missing = [name for name in wanted if name not in record]
        if missing:
            names = ", ".join(repr(str(name)[:40]) for name in record)
            raise UserError(
                f"{path}: {where} has no column {missing[0]!r}; it has {names}; name yours with --text-column and --label-column"
            )
        label = _label(record[label_column])
        if not label:
            raise UserError(
                f"{path}: {where} has no label in column {label_column!r}; fill it in, or leave the row out"
            )
        texts = [_text(record[name], f"{path}: {where}, column {name!r}") for name in wanted[:-1]]
        examples.append(Example(texts[0], texts[1] if text_pair_column else None, label))
    if not examples:
        raise UserError(f"{path}: holds no examples")
    return examples


def label_names(examples: Sequence[Example], path: Path) -> list[str]:
    """The different labels of a training file: numbers in their order, names in alphabetical order."""
    names = {example.label for example in examples}
    if len(names) < 2:
        raise UserError(f"{path}: every example has the label {names.pop()!r}; a classifier needs at least two")
    if len(names) > max(20, len(examples) // 2):
        raise UserError(
            f"{path}: has {len(names)} different labels in {len(examples)} examples; name the column of the classes"
        )
    try:
        return sorted(names, key=float)
    except ValueError:
        return sorted(names)


def label_numbers(examples: Sequence[Example], names: Sequence[str], path: Path) -> list[int]:
    """Each example's label as an index into `names`. Raises UserError for a label that training does not have."""
    number = {name: index for index, name in enumerate(names)}
    for index, example in enumerate(examples, 1):
        if example.label not in number:
            raise UserError(
                f"{path}: example {index} has the label {example.label!r}, which the training file has not; "
                f"it has {', '.join(map(repr, names[:10]))}{', ...' if len(names) > 10 else ''}"
            )
    return [number[example.label] for example in examples]


def _label(value: Any) -> str:
    """A label as its name; a whole number that a format stored as 1.0 is "1". Empty where there is none, or not a number."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    name = str(value).strip()
    return "" if name.lower() == "nan" else name


def _text(value: Any, where: str) -> str:
    """A text as it stands; none, and the "not a number" of a missing one, are empty."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, dict | list | bytes):
        raise UserError(f"{where} holds a {type(value).__name__}, not a text")
    return str(value)


def _records(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place in the file for messages, column -> value)."""
    if source.kind == "parquet":
        import pyarrow.parquet

        try:
            table = pyarrow.parquet.read_table(source.path)
        except pyarrow.ArrowException as error:
            raise UserError(
                f"{source.path}: not a readable parquet file ({' '.join(str(error).split())[:150]})"
            ) from None
        yield from ((f"row {index}", record) for index, record in enumerate(table.to_pylist(), 1))
        return
    lines = read_text_lines(source, ReadOptions())
    if source.kind == "jsonl":
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise UserError(f"{source.path}: line {number} is not JSON ({error})") from None
            if not isinstance(record, dict):
                raise UserError(f"{source.path}: line {number} is not a JSON object with named values")
            yield f"line {number}", record
        return
    csv.field_size_limit(2**31 - 1)
    ended = (line + "\n" for line in lines)
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
