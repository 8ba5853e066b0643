"""The token store: one prepared corpus on disk, memory-mapped, that serves every row length.

tokens.bin            word-piece ids end to end, uint16 (uint32 above 65,536 pieces); one [SEP] after each document
document_starts.bin   int64, index of each document's first token
line_starts.bin       int64, index of each line's first token
tokenizer/            the Hugging Face tokenizer that made it
manifest.json         counts, tokenizer hash, size and SHA-256 of the files; written last
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from electra.data.tokenizer import SpecialIds, special_ids, tokenizer_hash
from electra.errors import UserError

FORMAT = 1
_FILES = ("tokens.bin", "document_starts.bin", "line_starts.bin")


@dataclasses.dataclass(frozen=True)
class TokenStore:
    """An opened store. The arrays are memory maps: nothing is read until it is used."""

    path: Path
    manifest: dict[str, Any]
    tokens: NDArray[Any]
    document_starts: NDArray[np.int64]
    line_starts: NDArray[np.int64]

    @classmethod
    def open(cls, path: str | Path) -> TokenStore:
        """Raises UserError when there is no store, or an incomplete or damaged one."""
        path = Path(path)
        if not path.is_dir():
            raise UserError(f"{path}: no such token store; make one with `electra prepare FILES --out {path}`")
        try:
            manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
            if manifest["format"] != FORMAT:
                raise UserError(
                    f"{path}: a token store of format {manifest['format']}, this version reads {FORMAT}; prepare it again"
                )
            sizes = {name: manifest["files"][name]["bytes"] for name in _FILES}
            dtype = np.dtype(manifest["dtype"])
        except FileNotFoundError:
            raise UserError(f"{path}: not a complete token store (no manifest.json); prepare it again") from None
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{path}: manifest.json is damaged; prepare the store again") from None
        for name, size in sizes.items():
            actual = (path / name).stat().st_size if (path / name).is_file() else None
            if actual != size:
                has = "is missing" if actual is None else f"has {actual} bytes in place of {size}"
                raise UserError(f"{path}: {name} {has}; prepare the store again")
        kinds = (dtype, np.dtype("<i8"), np.dtype("<i8"))
        arrays = [np.memmap(path / name, dtype=kind, mode="r") for name, kind in zip(_FILES, kinds, strict=True)]
        return cls(path, manifest, *arrays)

    @property
    def vocab_size(self) -> int:
        return self.manifest["vocab_size"]

    @property
    def special(self) -> SpecialIds:
        return SpecialIds(**self.manifest["special_ids"])

    @property
    def tokenizer_hash(self) -> str:
        return self.manifest["tokenizer_hash"]

    @property
    def tokenizer_dir(self) -> Path:
        return self.path / "tokenizer"

    @property
    def fingerprint(self) -> str:
        """Same for stores with the same tokens in the same order from the same tokenizer."""
        parts = [self.tokenizer_hash, *(self.manifest["files"][name]["sha256"] for name in _FILES)]
        return hashlib.sha256("".join(parts).encode()).hexdigest()

    def verify(self) -> None:
        """Read every byte. Raises UserError naming the first file that is not as it was written."""
        for name in _FILES:
            with (self.path / name).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != self.manifest["files"][name]["sha256"]:
                    raise UserError(f"{self.path}: {name} is damaged; prepare the store again")


class StoreWriter:
    """Writes a store into a temporary directory beside `path`, which takes its name in `finish`; until then nothing is there.

    Use as a context manager: leaving it without `finish` removes what was written.
    """

    def __init__(self, path: Path, tokenizer: Any) -> None:
        self.path, self.tokenizer = path, tokenizer
        self.temporary = path.with_name(f".{path.name}.partial")
        self.special = special_ids(tokenizer)
        self.dtype = np.dtype("<u2") if len(tokenizer) <= 2**16 else np.dtype("<u4")
        self.documents = self.lines = self.tokens = self.unknown = self.words = 0

    def __enter__(self) -> StoreWriter:
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir(parents=True)
        self._open()
        return self

    def _open(self) -> None:
        self._files: list[BinaryIO] = [(self.temporary / name).open("wb") for name in _FILES]
        self._hashes = [hashlib.sha256() for _ in _FILES]

    def _close(self) -> None:
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
            file.close()

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for file in self._files:
            with suppress(OSError):  # a full disk again; the first such error is already on its way
                file.close()
        shutil.rmtree(self.temporary, ignore_errors=True)

    def add(self, pieces: list[tuple[bytes, bool, bool, int]]) -> None:
        """Append pieces: (ids as bytes of `dtype`, starts a line, starts a document, words in it)."""
        ids: list[bytes] = []
        documents: list[int] = []
        lines: list[int] = []
        at, size, separator = self.tokens, self.dtype.itemsize, np.array([self.special.sep], dtype=self.dtype).tobytes()
        for piece, starts_line, starts_document, num_words in pieces:
            if starts_document:
                if self.documents:
                    ids.append(separator)
                    at += 1
                documents.append(at)
                self.documents += 1
            if starts_line:
                lines.append(at)
                self.lines += 1
            ids.append(piece)
            at += len(piece) // size
            self.words += num_words
        tokens = np.frombuffer(b"".join(ids), dtype=self.dtype)
        self._write(0, tokens)
        self._write(1, np.array(documents, dtype="<i8"))
        self._write(2, np.array(lines, dtype="<i8"))
        self.unknown += int(np.count_nonzero(tokens == self.special.unk))
        self.tokens = at

    def finish(self, source: dict[str, Any], shuffle_seed: int | None = None) -> TokenStore:
        """Close the last document, write tokenizer and manifest, and give the store its name.

        With `shuffle_seed` the documents are put into a random order first, read from disk and written anew one by one.
        """
        self._write(0, np.array([self.special.sep], dtype=self.dtype))
        self.tokens += 1
        self._close()
        if shuffle_seed is not None:
            self._shuffle(shuffle_seed)
            self._close()
        self.tokenizer.save_pretrained(self.temporary / "tokenizer")
        pieces = self.tokens - self.documents
        manifest = {
            "format": FORMAT,
            "documents": self.documents,
            "lines": self.lines,
            "tokens": self.tokens,
            "words": self.words,
            "unknown_share": self.unknown / max(1, pieces),
            "pieces_per_word": pieces / max(1, self.words),
            "vocab_size": len(self.tokenizer),
            "special_ids": dataclasses.asdict(self.special),
            "tokenizer_hash": tokenizer_hash(self.tokenizer),
            "dtype": self.dtype.str,
            "source": source,
            "files": {
                name: {"bytes": (self.temporary / name).stat().st_size, "sha256": digest.hexdigest()}
                for name, digest in zip(_FILES, self._hashes, strict=True)
            },
        }
        (self.temporary / "manifest.json").write_text(json.dumps(manifest, indent=2), encoding="utf-8")
        shutil.rmtree(self.path, ignore_errors=True)
        self.temporary.rename(self.path)
        return TokenStore.open(self.path)

    def _shuffle(self, seed: int) -> None:
        """Write the closed files anew, documents in random order. Memory is some 60 bytes a document: tokens and lines are
        read from disk a document at a time (a memory map would count as memory in use)."""
        ordered = self.temporary / "ordered"
        ordered.mkdir()
        for name in _FILES:
            (self.temporary / name).rename(ordered / name)
        tokens, documents, lines = (ordered / name for name in _FILES)
        starts = np.append(np.fromfile(documents, dtype="<i8"), self.tokens)
        first_lines = np.searchsorted(np.memmap(lines, dtype="<i8", mode="r"), starts)
        self._open()
        at = 0
        with tokens.open("rb", buffering=0) as token_file, lines.open("rb", buffering=0) as line_file:
            for index in np.random.Generator(np.random.Philox(seed)).permutation(self.documents):
                start, end = (int(place) for place in starts[index : index + 2])
                lines_of = _read_slice(line_file, np.dtype("<i8"), *first_lines[index : index + 2].tolist())
                self._write(0, _read_slice(token_file, self.dtype, start, end))
                self._write(1, np.array([at], dtype="<i8"))
                self._write(2, lines_of - (start - at))
                at += end - start
        shutil.rmtree(ordered)

    def _write(self, index: int, values: NDArray[Any]) -> None:
        data = values.tobytes()
        self._files[index].write(data)
        self._hashes[index].update(data)


def _read_slice(file: BinaryIO, dtype: np.dtype[Any], start: int, end: int) -> NDArray[Any]:
    file.seek(start * dtype.itemsize)
    return np.frombuffer(file.read((end - start) * dtype.itemsize), dtype=dtype)
