"""Files, directories and hub data sets to documents, streamed: no file is ever held in memory whole.

A source gives `Piece`s: parts of lines, at most `PIECE` characters long, that say whether they begin a line or a document.
"""

from __future__ import annotations

import codecs
import csv
import dataclasses
import gzip
import io
import json
import lzma
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from electra.errors import UserError

PIECE = 50_000
"""Characters; longer lines go on in further pieces, cut at white space, so that their words stay whole."""
_CHUNK = 1 << 20
_HALF_CHARACTERS = re.compile("[\ud800-\udfff]")  # JSON can escape half a character, which is none
_FORMATS = (".txt", ".jsonl", ".csv", ".tsv", ".parquet")
_COMPRESSIONS = (".gz", ".xz", ".zst")


class Piece(NamedTuple):
    """A part of a line."""

    text: str
    starts_line: bool
    starts_document: bool


@dataclasses.dataclass(frozen=True)
class Source:
    """One file, or one data set of the hub (then `path` is its name and `size` 0)."""

    path: str
    kind: str
    """txt, jsonl, csv, tsv, parquet or hub."""
    compression: str
    """gz, xz, zst or empty."""
    size: int
    """Bytes on disk, for progress."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How files are read."""

    text_column: str = "text"
    one_document_per_line: bool = False
    invalid_utf8: Literal["error", "replace"] = "error"


def find_sources(inputs: Sequence[str | Path]) -> list[Source]:
    """The files that the inputs name, directories walked in sorted order. Raises UserError for what is not there or unknown.

    What is no path is taken for a Hugging Face data set, `NAME`, `NAME:SPLIT` or, to be explicit, `hf:NAME[:SPLIT]`.
    """
    if not inputs:
        raise UserError("no input: name files, directories or data sets")
    sources = []
    for item in inputs:
        path = Path(item)
        if path.is_dir():
            found = [source for file in sorted(path.rglob("*")) if file.is_file() and (source := _file_source(file))]
            if not found:
                raise UserError(
                    f"{item}: holds no file ending in {', '.join(_FORMATS)} (each also with .gz, .xz or .zst)"
                )
            sources += found
        elif path.is_file():
            source = _file_source(path)
            if source is None:
                raise UserError(
                    f"{item}: unknown kind of file; known: {', '.join(_FORMATS)}, each also with .gz, .xz or .zst"
                )
            sources.append(source)
        elif str(item).startswith("hf:") or (
            re.fullmatch(r"[\w.-]+(/[\w.-]+)?(:\w+)?", str(item))
            and not set(path.suffixes) & {*_FORMATS, *_COMPRESSIONS}
        ):
            sources.append(Source(str(item).removeprefix("hf:"), "hub", "", 0))
        else:
            raise UserError(f"{item}: no such file or directory")
    return sources


def _file_source(path: Path) -> Source | None:
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    compression = suffixes.pop().removeprefix(".") if suffixes and suffixes[-1] in _COMPRESSIONS else ""
    if not suffixes or suffixes[-1] not in _FORMATS:
        return None
    return Source(str(path), suffixes[-1].removeprefix("."), compression, path.stat().st_size)


def read_pieces(
    source: Source, options: ReadOptions, progress: Callable[[int], None] = lambda count: None
) -> Iterator[Piece]:
    """The text of one source in pieces. `progress` is called with the number of further bytes of the file that were read.

    Line ends of all kinds become one, a byte-order mark is dropped, blank lines are not text. Raises UserError for bytes
    that are not UTF-8 (unless replaced), a missing column, or a broken file, naming the place.
    """
    with _faults_named(source):
        if source.kind == "txt":
            yield from _lines_to_pieces(_text_lines(source, options, progress), options.one_document_per_line)
        else:
            for text in _records(source, options, progress):
                yield from _record_to_pieces(text)


def read_text_lines(source: Source, options: ReadOptions) -> Iterator[str]:
    """The lines of a text file, unpacked and decoded as in `read_pieces`, each whole and without its line end."""
    with _faults_named(source):
        yield from _whole_lines(source, options, lambda count: None)


def read_lines(path: Path) -> Iterator[str]:
    """The same of one file, packed (.gz, .xz, .zst) or not. Raises UserError when it is not there or cannot be read."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    packing = path.suffix.lower() if path.suffix.lower() in _COMPRESSIONS else ""
    source = Source(str(path), "txt", packing.removeprefix("."), path.stat().st_size)
    return read_text_lines(source, ReadOptions())


@contextmanager
def _faults_named(source: Source) -> Iterator[None]:
    """What a damaged or unreadable file makes the libraries raise, as a UserError that names it."""
    try:
        yield
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise UserError(f"{source.path}: damaged or cut off ({error}); fetch the file again") from None
    except OSError as error:
        raise UserError(f"{source.path}: cannot be read ({error.strerror or error})") from None
    except Exception as error:  # zstandard and pyarrow have no common base
        if type(error).__module__.split(".")[0] not in ("zstandard", "zstd", "pyarrow"):
            raise
        raise UserError(f"{source.path}: damaged or cut off ({' '.join(str(error).split())[:200]})") from None


# --------------------------------------------------------------------------------------------------- bytes to characters


class _Counting(io.RawIOBase):
    """Reports how many bytes of the file underneath the decompressor were read."""

    def __init__(self, file: BinaryIO, progress: Callable[[int], None]) -> None:
        self._file, self._progress = file, progress

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)  # type: ignore[attr-defined]
        self._progress(count)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _open(source: Source, progress: Callable[[int], None]) -> BinaryIO:
    raw = io.BufferedReader(_Counting(open(source.path, "rb", buffering=0), progress), _CHUNK)  # noqa: SIM115
    if source.compression == "gz":
        return gzip.open(raw)  # type: ignore[return-value]
    if source.compression == "xz":
        return lzma.open(raw)  # type: ignore[return-value]
    if source.compression == "zst":
        import zstandard

        return zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True, closefd=True)
    return raw


def _decoded(source: Source, options: ReadOptions, progress: Callable[[int], None]) -> Iterator[str]:
    """Text in chunks, line ends made \\n, without a byte-order mark."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace" if options.invalid_utf8 == "replace" else "strict")
    offset, held, first = 0, "", True
    with _open(source, progress) as file:
        while True:
            data = file.read(_CHUNK)
            pending = len(decoder.getstate()[0])
            try:
                text = decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                place = offset - pending + error.start
                raise UserError(
                    f"{source.path}: byte {place} is not UTF-8; convert the file, or put a mark there (--invalid-utf8 replace)"
                ) from None
            offset += len(data)
            if first and text:
                text, first = text.removeprefix("\ufeff"), False
            text = held + text
            # A carriage return at the end may be half of a pair.
            held = "\r" if data and text.endswith("\r") else ""
            text = text[: len(text) - len(held)]
            if text:
                yield text.replace("\r\n", "\n").replace("\r", "\n")
            if not data:
                return


def _text_lines(source: Source, options: ReadOptions, progress: Callable[[int], None]) -> Iterator[tuple[str, bool]]:
    """(part of a line, does it end the line?): a line is handed out in parts as soon as it is longer than a piece."""
    rest = ""
    for chunk in _decoded(source, options, progress):
        *lines, rest = (rest + chunk).split("\n")
        for line in lines:
            yield line, True
        while len(rest) > 2 * PIECE:
            cut = _cut(rest)
            yield rest[:cut], False
            rest = rest[cut:]
    if rest:
        yield rest, True


def _cut(text: str) -> int:
    """Where to cut a text longer than a piece: before the last white space in reach, so that no word is broken."""
    for place in range(PIECE, 0, -1):
        if text[place].isspace():
            return place
    return PIECE


# ------------------------------------------------------------------------------------------------- characters to pieces


def _split(text: str) -> Iterator[str]:
    while len(text) > PIECE:
        cut = _cut(text)
        yield text[:cut]
        text = text[cut:]
    yield text


def _lines_to_pieces(lines: Iterator[tuple[str, bool]], one_document_per_line: bool) -> Iterator[Piece]:
    new_document, new_line, blank_so_far = True, True, True
    for text, ends_line in lines:
        for part in _split(text) if len(text) > PIECE else (text,):
            if part and not part.isspace():
                yield Piece(part, new_line, new_document)
                new_document = new_line = blank_so_far = False
        if ends_line:
            if blank_so_far or one_document_per_line:
                new_document = True
            new_line = blank_so_far = True


def _record_to_pieces(text: str) -> Iterator[Piece]:
    new_document = True
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        new_line = True
        for part in _split(line):
            if part and not part.isspace():
                yield Piece(part, new_line, new_document)
                new_document = new_line = False


# ---------------------------------------------------------------------------------------------- files of named columns


def _records(source: Source, options: ReadOptions, progress: Callable[[int], None]) -> Iterator[str]:
    """One text a document."""
    column = options.text_column
    if source.kind == "parquet":
        yield from _parquet(source, column, progress)
    elif source.kind == "hub":
        yield from _hub(source, column)
    elif source.kind == "jsonl":
        for number, line in enumerate(_whole_lines(source, options, progress), 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise UserError(f"{source.path}: line {number} is not JSON ({error})") from None
            if not isinstance(record, dict) or column not in record:
                keys = list(record) if isinstance(record, dict) else []
                raise _no_column(f"{source.path}: line {number}", column, keys)
            text = _as_text(record[column], f"{source.path}: line {number}", column)
            yield _HALF_CHARACTERS.sub("\ufffd", text) if "\\u" in line else text
    else:
        yield from _delimited(source, options, progress)


def _delimited(source: Source, options: ReadOptions, progress: Callable[[int], None]) -> Iterator[str]:
    csv.field_size_limit(2**31 - 1)
    lines = (line + "\n" for line in _whole_lines(source, options, progress))
    # In .tsv quotes are ordinary characters, as in the usual corpora and GLUE.
    reader = (
        csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        if source.kind == "tsv"
        else csv.reader(lines, strict=True)
    )
    try:
        header = next(reader, None)
        if header is None:
            return
        if options.text_column not in header:
            raise _no_column(source.path, options.text_column, header)
        index = header.index(options.text_column)
        for row in reader:
            if len(row) > index:
                yield row[index]
            elif row:
                raise UserError(
                    f"{source.path}: line {reader.line_num} has {len(row)} columns, {options.text_column!r} is number {index + 1}"
                )
    except csv.Error as error:
        raise UserError(f"{source.path}: line {reader.line_num} is not proper CSV ({error})") from None


def _whole_lines(source: Source, options: ReadOptions, progress: Callable[[int], None]) -> Iterator[str]:
    parts = []
    for text, ends_line in _text_lines(source, options, progress):
        parts.append(text)
        if ends_line:
            yield "".join(parts)
            parts = []


def _parquet(source: Source, column: str, progress: Callable[[int], None]) -> Iterator[str]:
    import pyarrow.parquet

    if source.compression:
        raise UserError(
            f"{source.path}: a compressed .parquet cannot be streamed; unpack it (the format compresses by itself)"
        )
    file = pyarrow.parquet.ParquetFile(source.path)
    if column not in file.schema_arrow.names:
        raise _no_column(source.path, column, file.schema_arrow.names)
    groups = max(1, file.num_row_groups)
    for group in range(file.num_row_groups):
        for batch in file.iter_batches(1024, row_groups=[group], columns=[column]):
            for value in batch.column(0).to_pylist():
                yield _as_text(value, source.path, column)
        progress(source.size * (group + 1) // groups - source.size * group // groups)


def _hub(source: Source, column: str) -> Iterator[str]:
    import datasets

    name, _, split = source.path.partition(":")
    try:
        dataset = datasets.load_dataset(name, split=split or "train", streaming=True)
    except Exception as error:  # the library raises many kinds
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{source.path}: no such file or directory, and no Hugging Face data set of that name could be loaded ({reason})"
        ) from None
    for record in dataset:
        if column not in record:
            raise _no_column(source.path, column, list(record))
        yield _as_text(record[column], source.path, column)


def _as_text(value: Any, where: str, column: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UserError(
            f"{where}: column {column!r} holds {type(value).__name__}, not text; choose another (--text-column)"
        )
    return value


def _no_column(where: str, column: str, known: Sequence[str]) -> UserError:
    names = ", ".join(map(repr, known)) or "none"
    return UserError(f"{where}: has no column {column!r}; it has {names} (choose with --text-column)")
