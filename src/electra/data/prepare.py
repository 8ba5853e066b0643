"""Raw text to a token store: find the files, learn or take a vocabulary, encode on all cores, report."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from electra.data.duplicates import Deduplicate, find_duplicates, without
from electra.data.encoding import TextEncoder, encode_batches
from electra.data.shards import StoreWriter, TokenStore
from electra.data.text import Piece, ReadOptions, Source, find_sources, read_pieces
from electra.data.tokenizer import load_tokenizer, tokenizer_hash, train_tokenizer
from electra.errors import UserError

_BATCH_CHARACTERS = 2_000_000  # what is encoded at once; some tens of megabytes of memory
_RUN = 1000  # pieces that are taken or left together when a vocabulary is learned from a part of the text
VOCABULARY_BYTES = 200_000_000
"""A vocabulary is learned from about so many bytes of text, spread evenly over it: counts of distinct words grow without
end, and the pieces that more text would change are the rarest."""


@dataclasses.dataclass(frozen=True)
class PrepareReport:
    """What became of the text."""

    store: Path
    heldout_store: Path | None
    documents: int
    tokens: int
    """[SEP] after each document included."""
    vocab_size: int
    unknown_share: float
    """Of the word pieces, how many are [UNK]."""
    pieces_per_word: float
    """Words are what white space parts."""
    heldout_documents: int
    duplicates: int
    """Documents that were left out because they were there before."""
    vocabulary_seconds: float
    """Spent learning the vocabulary; 0 where one was given."""
    seconds: float

    def __str__(self) -> str:
        lines = [
            f"{self.documents:,} documents, {self.tokens:,} tokens, vocabulary of {self.vocab_size:,}",
            f"{self.unknown_share:.3%} [UNK], {self.pieces_per_word:.2f} word pieces per word, {self.seconds:.0f} s"
            + (f", of which {self.vocabulary_seconds:.0f} s for the vocabulary" if self.vocabulary_seconds else ""),
        ]
        if self.duplicates:
            lines.append(f"{self.duplicates:,} duplicate documents left out")
        if self.heldout_store is not None:
            lines.append(f"held out: {self.heldout_documents:,} documents -> {self.heldout_store}")
        if self.unknown_share > 0.01:
            lines.append(
                "more than 1% [UNK]: a larger --vocab-size, or a vocabulary of this language, would keep more of the text"
            )
        return "\n".join([*lines, f"store: {self.store}"])


def prepare(
    inputs: Sequence[str | Path],
    out: str | Path,
    *,
    vocab_size: int = 8192,
    vocab: str | Path | None = None,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    text_column: str = "text",
    one_document_per_line: bool = False,
    invalid_utf8: Literal["error", "replace"] = "error",
    heldout_share: float = 0.0,
    deduplicate: Deduplicate = "no",
    shuffle: bool = False,
    seed: int = 0,
    overwrite: bool = False,
    quiet: bool = False,
) -> PrepareReport:
    """Make the token store `out` from files (.txt, .jsonl, .csv, .tsv, .parquet; .gz, .xz, .zst), directories or hub data sets.

    Learns a WordPiece vocabulary of `vocab_size`, or takes `vocab` (vocab.txt, tokenizer directory or store's tokenizer).
    `heldout_share` of the documents, chosen by a hash of their beginning, goes into a second store, `<out>-heldout`.
    `deduplicate` leaves out documents that were there before (see `find_duplicates`), `shuffle` puts the documents of all
    inputs into one random order, by `seed`. Memory does not grow with the text (a few bytes a document apart). Raises
    UserError for anything the user can mend, and leaves no half store.
    """
    out = Path(out)
    heldout_path = out.with_name(f"{out.name}-heldout") if heldout_share > 0 else None
    if not 0.0 <= heldout_share < 1.0:
        raise UserError(f"heldout_share is {heldout_share}: it must be in [0, 1)")
    options = ReadOptions(
        text_column=text_column, one_document_per_line=one_document_per_line, invalid_utf8=invalid_utf8
    )
    sources = find_sources(inputs)
    for source in sources:  # a wrong column or a broken file shows in its first text: say so before any work
        if source.kind != "hub":
            next(read_pieces(source, options), None)
    given = load_tokenizer(vocab, lowercase=lowercase, strip_accents=strip_accents) if vocab is not None else None
    for path in filter(None, (out, heldout_path)):
        _check_target(path, given, overwrite)

    started = time.perf_counter()
    size = sum(source.size for source in sources)
    passes = (1 if given is not None else 3) + (deduplicate != "no")  # duplicates, characters, words, encoding
    progress = _progress(size * passes, quiet)
    try:
        with progress, ExitStack() as stack:
            task = progress.tasks[0].id

            def advance(count: int) -> None:
                progress.advance(task, count)

            dropped = None
            if deduplicate != "no":
                progress.update(task, description="looking for duplicates")
                dropped = find_duplicates(_all_pieces(sources, options, advance), deduplicate)
            documents = _Documents(sources, options, dropped, advance)
            tokenizer, before = given, time.perf_counter()
            if tokenizer is None:
                progress.update(task, description="learning the vocabulary")
                unpacked = sum(source.size * (4 if source.compression else 1) for source in sources)
                texts = _Texts(documents, min(1.0, VOCABULARY_BYTES / max(1, unpacked)))
                tokenizer = train_tokenizer(texts, vocab_size, lowercase=lowercase, strip_accents=strip_accents)
            vocabulary_seconds = time.perf_counter() - before if given is None else 0.0
            progress.update(task, description="encoding")
            writer = stack.enter_context(StoreWriter(out, tokenizer))
            heldout = stack.enter_context(StoreWriter(heldout_path, tokenizer)) if heldout_path else None
            _encode(iter(documents), tokenizer, writer, heldout, heldout_share)
            if writer.tokens == 0:
                raise UserError(f"{', '.join(map(str, inputs))}: no text found; nothing was written")
            if heldout is not None and heldout.tokens == 0:
                raise UserError(
                    f"heldout_share is {heldout_share}: no document of {writer.documents} was held out; raise it"
                )
            progress.update(task, description="shuffling" if shuffle else "writing")
            origin: dict[str, Any] = {"inputs": [str(item) for item in inputs], "options": dataclasses.asdict(options)}
            origin |= {"deduplicate": deduplicate, "shuffle_seed": seed if shuffle else None}
            if heldout is not None:
                heldout.finish(origin, origin["shuffle_seed"])
            store = writer.finish(origin, origin["shuffle_seed"])
    except OSError as error:
        raise UserError(
            f"{out}: cannot be written ({error.strerror or error}); free some space or choose another --out"
        ) from error
    report = PrepareReport(
        store=out,
        heldout_store=heldout_path,
        documents=store.manifest["documents"],
        tokens=store.manifest["tokens"],
        vocab_size=store.vocab_size,
        unknown_share=store.manifest["unknown_share"],
        pieces_per_word=store.manifest["pieces_per_word"],
        heldout_documents=0 if heldout is None else heldout.documents,
        duplicates=0 if dropped is None else int(dropped.sum()),
        vocabulary_seconds=vocabulary_seconds,
        seconds=time.perf_counter() - started,
    )
    if not quiet:
        print(report)
        if given is None and report.vocab_size < vocab_size:
            print(f"the text gave {report.vocab_size:,} word pieces, fewer than the {vocab_size:,} asked for")
    return report


def _check_target(path: Path, tokenizer: Any | None, overwrite: bool) -> None:
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        parent = next(parent for parent in path.absolute().parents if parent.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK):
            raise UserError(f"{path}: cannot be made in {parent}; choose another --out")
        return
    if not (path / "manifest.json").is_file():
        raise UserError(f"{path}: exists and is no token store; choose another --out")
    if overwrite:
        return
    other = ""
    if tokenizer is not None and TokenStore.open(path).tokenizer_hash != tokenizer_hash(tokenizer):
        other = " made by another tokenizer"
    raise UserError(
        f"{path}: holds a token store{other} already; choose another --out, or give --overwrite to replace it"
    )


def _all_pieces(sources: list[Source], options: ReadOptions, progress: Callable[[int], None]) -> Iterator[Piece]:
    for source in sources:
        yield from read_pieces(source, options, progress)


@dataclasses.dataclass(frozen=True)
class _Documents:
    """The pieces of all documents that are kept; can be gone through again."""

    sources: list[Source]
    options: ReadOptions
    dropped: NDArray[np.bool_] | None
    progress: Callable[[int], None]

    def __iter__(self) -> Iterator[Piece]:
        return without(_all_pieces(self.sources, self.options, self.progress), self.dropped)


@dataclasses.dataclass(frozen=True)
class _Texts:
    """The text to learn a vocabulary from: `share` of it, in runs of pieces chosen by a hash of their number. No text at all is
    refused."""

    documents: _Documents
    share: float

    def __iter__(self) -> Iterator[str]:
        empty = True
        for number, piece in enumerate(self.documents):
            if self.share < 1.0 and number and not _chosen(str(number // _RUN), self.share):
                continue
            empty = False
            yield piece.text
        if empty:
            raise UserError("the input holds no text; nothing was written")


def _encode(
    pieces: Iterator[Piece], tokenizer: Any, writer: StoreWriter, heldout: StoreWriter | None, heldout_share: float
) -> None:
    """Encode batch by batch; each document goes whole into one of the two stores."""
    target = writer
    batches = _batches(pieces)
    held_back: list[list[Piece]] = []

    def texts() -> Iterator[list[str]]:
        for batch in batches:
            held_back.append(batch)
            yield [piece.text for piece in batch]

    for encoded in encode_batches(TextEncoder(tokenizer, writer.dtype), texts()):
        routed: dict[int, list[tuple[bytes, bool, bool, int]]] = {id(writer): [], id(heldout): []}
        for piece, ids in zip(held_back.pop(0), encoded, strict=True):
            if piece.starts_document:
                target = heldout if heldout is not None and _chosen(piece.text, heldout_share) else writer
            routed[id(target)].append((ids, piece.starts_line, piece.starts_document, len(piece.text.split())))
        writer.add(routed[id(writer)])
        if heldout is not None:
            heldout.add(routed[id(heldout)])


def _batches(pieces: Iterator[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece.text)
        if size >= _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _chosen(text: str, share: float) -> bool:
    """True for `share` of all texts, always the same ones."""
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def _progress(total: int, quiet: bool) -> Progress:
    console = Console(file=sys.stderr)
    progress = Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(),
        console=console, disable=quiet or not console.is_terminal,
    )  # fmt: skip
    progress.add_task("reading", total=total or None)
    return progress
