"""Raw text to a token store: find the files, learn or take a vocabulary, encode on all cores, report."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from electra.data.duplicates import Deduplicate, Duplicates, check_library, find_duplicates
from electra.data.encoding import TextEncoder, splits_at_white_space
from electra.data.sample import TextSample
from electra.data.shards import StoreWriter, TokenStore
from electra.data.text import Piece, ReadOptions, Source, find_sources, read_pieces
from electra.data.tokenizer import load_tokenizer, tokenizer_hash, train_tokenizer
from electra.data.workers import MAX_WORKERS, in_order, num_cores, workers
from electra.errors import UserError

_BATCH_CHARACTERS = 500_000  # what is encoded at once; some megabytes of memory
_LITTLE = 16_000_000  # bytes of text that are done before worker processes would have paid


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
    exact_duplicates: int
    """Documents that were left out because the same one was there before."""
    near_duplicates: int
    """Documents that were left out because much the same one was there before."""
    vocabulary_seconds: float
    """Spent learning the vocabulary; 0 where one was given."""
    seconds: float

    def __str__(self) -> str:
        lines = [
            f"{self.documents:,} documents, {self.tokens:,} tokens, vocabulary of {self.vocab_size:,}",
            f"{self.unknown_share:.3%} [UNK], {self.pieces_per_word:.2f} word pieces per word, {self.seconds:.0f} s"
            + (f", of which {self.vocabulary_seconds:.0f} s for the vocabulary" if self.vocabulary_seconds else ""),
        ]
        if self.exact_duplicates or self.near_duplicates:
            near = f" and {self.near_duplicates:,} near" if self.near_duplicates else ""
            lines.append(f"left out: {self.exact_duplicates:,} exact{near} duplicates of documents before them")
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
    similarity: float = 0.8,
    shuffle: bool = False,
    seed: int = 0,
    num_workers: int | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> PrepareReport:
    """Make the token store `out` from files (.txt, .jsonl, .csv, .tsv, .parquet; .gz, .xz, .zst), directories or hub data sets.

    Learns a WordPiece vocabulary of `vocab_size`, or takes `vocab` (vocab.txt, tokenizer directory or store's tokenizer).
    `heldout_share` of the documents, chosen by a hash of their beginning, goes into a second store, `<out>-heldout`.
    `deduplicate` leaves out documents that were there before (see `find_duplicates`; `similarity` is of "near"), `shuffle`
    puts the documents of all inputs into one random order, by `seed`. `num_workers` processes cut the text (one a core, at
    most 8; 0: none, this process does it); the store is the same with any number. Memory does not grow with the text (some
    bytes a document with `deduplicate` or `shuffle`). Raises UserError for anything the user can mend, and leaves no half store.
    """
    out = Path(out)
    heldout_path = out.with_name(f"{out.name}-heldout") if heldout_share > 0 else None
    if not 0.0 <= heldout_share < 1.0:
        raise UserError(f"heldout_share is {heldout_share}: it must be in [0, 1)")
    if not 0.3 <= similarity <= 1.0:
        raise UserError(f"similarity is {similarity}: it must be in [0.3, 1]; 0.8 is usual")
    if num_workers is not None and num_workers < 0:
        raise UserError(f"num_workers is {num_workers}: it must be at least 0")
    if deduplicate == "near":
        check_library()
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
    if num_workers is None:
        little = size < _LITTLE and all(source.kind != "hub" for source in sources)
        num_workers = 0 if little or num_cores() == 1 else min(num_cores(), MAX_WORKERS)
    passes = (1 if given is not None else 2) + (deduplicate != "no")  # duplicates, vocabulary, encoding
    progress = _progress(size * passes, quiet)
    try:
        with progress, ExitStack() as stack:
            task = progress.tasks[0].id

            def advance(count: int) -> None:
                progress.advance(task, count)

            duplicates = None
            if deduplicate != "no":
                progress.update(task, description="looking for duplicates")
                duplicates = find_duplicates(
                    _pieces(sources, options, None, advance),
                    deduplicate,
                    similarity=similarity,
                    directory=_parent(out),
                    num_workers=num_workers,
                )
            tokenizer, before = given, time.perf_counter()
            if tokenizer is None:
                progress.update(task, description="learning the vocabulary")
                sample = TextSample(_pieces(sources, options, duplicates, advance))
                if not sample.runs:
                    raise UserError(f"{', '.join(map(str, inputs))}: no text found; nothing was written")
                tokenizer = train_tokenizer(sample, vocab_size, lowercase=lowercase, strip_accents=strip_accents)
                del sample
            vocabulary_seconds = time.perf_counter() - before if given is None else 0.0
            progress.update(task, description="encoding")
            writer = stack.enter_context(StoreWriter(out, tokenizer))
            heldout = stack.enter_context(StoreWriter(heldout_path, tokenizer)) if heldout_path else None
            pieces = _pieces(sources, options, duplicates, advance)
            _encode(pieces, tokenizer, writer, heldout, heldout_share, num_workers)
            if writer.tokens == 0:
                raise UserError(f"{', '.join(map(str, inputs))}: no text found; nothing was written")
            if heldout is not None and heldout.tokens == 0:
                raise UserError(
                    f"heldout_share is {heldout_share}: no document of {writer.documents} was held out; raise it"
                )
            progress.update(task, description="shuffling" if shuffle else "writing")
            origin: dict[str, Any] = {"inputs": [str(item) for item in inputs], "options": dataclasses.asdict(options)}
            origin |= {"deduplicate": deduplicate, "shuffle_seed": seed if shuffle else None}
            if deduplicate == "near":
                origin["similarity"] = similarity
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
        exact_duplicates=0 if duplicates is None else duplicates.exact,
        near_duplicates=0 if duplicates is None else duplicates.near,
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
        parent = _parent(path)
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


def _parent(path: Path) -> Path:
    """The nearest directory above that is there."""
    return next(parent for parent in path.absolute().parents if parent.exists())


def _pieces(
    sources: list[Source], options: ReadOptions, duplicates: Duplicates | None, progress: Callable[[int], None]
) -> Iterator[Piece]:
    """The pieces of all documents that are kept."""
    pieces = (piece for source in sources for piece in read_pieces(source, options, progress))
    return pieces if duplicates is None else duplicates.without(pieces)


def _encode(
    pieces: Iterator[Piece],
    tokenizer: Any,
    writer: StoreWriter,
    heldout: StoreWriter | None,
    heldout_share: float,
    num_workers: int,
) -> None:
    """Encode batch by batch; each document goes whole into one of the two stores."""
    settings = tokenizer.backend_tokenizer.to_str()
    if not splits_at_white_space(settings):
        num_workers = 0  # the library itself is at work on all cores
    target = writer
    held_back: deque[list[Piece]] = deque()

    def texts() -> Iterator[list[str]]:
        for batch in _batches(pieces):
            held_back.append(batch)
            yield [piece.text for piece in batch]

    with workers(num_workers, TextEncoder, settings, writer.dtype.str) as encoders:
        for encoded in in_order(encoders, texts()):
            routed: dict[int, list[tuple[bytes, bool, bool, int]]] = {id(writer): [], id(heldout): []}
            for (text, starts_line, starts_document), (ids, words) in zip(held_back.popleft(), encoded, strict=True):
                if starts_document:
                    target = heldout if heldout is not None and _chosen(text, heldout_share) else writer
                routed[id(target)].append((ids, starts_line, starts_document, words))
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
