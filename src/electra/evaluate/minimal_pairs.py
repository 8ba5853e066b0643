"""Minimal pairs: does the network find the right sentence of two more natural than the wrong one? No labels are needed.

Data is in BLiMP's format (Warstadt et al. 2020): one JSON object a line with `sentence_good`, `sentence_bad` and, where they
are there, `UID` (the paradigm), `linguistics_term` (the phenomenon) and `field` (morphology, syntax, ...).

How a sentence is scored is the `Scorer`'s business (sentence_scores.py); here is reading, comparing and averaging.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import lzma
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from electra.data.text import read_lines
from electra.errors import UserError
from electra.evaluate.sentence_scores import Progress, Scorer, naturalness, silent


@dataclasses.dataclass(frozen=True)
class MinimalPair:
    """Two sentences that differ in as little as possible, of which one is right."""

    good: str
    bad: str
    paradigm: str
    phenomenon: str
    field: str = ""
    """Empty where the data does not say."""


@dataclasses.dataclass(frozen=True)
class PairScores:
    """Share of the pairs whose good sentence scores higher; ties count half."""

    overall: float
    """Mean over paradigms, as BLiMP has it."""
    num_pairs: int
    num_ties: int
    """Pairs of equal scores: to the model, the two sentences are the same."""
    paradigms: dict[str, float]
    phenomena: dict[str, float]
    """Mean over the paradigms of each phenomenon ..."""
    fields: dict[str, float]
    """... and of each field that the data names."""


def read_pairs(path: Path, limit: int | None = None) -> tuple[list[MinimalPair], str]:
    """The pairs of a .jsonl file (also .gz, .xz or .zst), of all such files in a directory, or of a .tar (also .gz or .xz).

    `limit` takes only the first so many pairs of each paradigm. Also returns a SHA-256 of what was taken, whatever the order
    of the files. Raises UserError for a line that is no pair, naming it.
    """
    pairs: list[MinimalPair] = []
    taken: dict[str, int] = {}
    lines_taken: list[str] = []
    for name, lines in _files(path):
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            pair = _parse(line, f"{name}, line {number}", Path(name).name.split(".")[0])
            taken[pair.paradigm] = taken.get(pair.paradigm, 0) + 1
            if limit is None or taken[pair.paradigm] <= limit:
                pairs.append(pair)
                lines_taken.append(line.strip())
    if not pairs:
        raise UserError(f"{path}: holds no minimal pairs; name BLiMP's .jsonl files, a directory or a .tar of them")
    return pairs, hashlib.sha256("\n".join(sorted(lines_taken)).encode()).hexdigest()


def score_pairs(
    network: nn.Module,
    tokenizer: Any,
    pairs: Sequence[MinimalPair],
    *,
    scorer: Scorer = naturalness,
    progress: Progress = silent,
) -> PairScores:
    """Accuracy on the pairs of `network`, which is what `scorer` takes: for the default a `Discriminator`, for the other
    `SCORERS` a `MaskedLM`."""
    sentences = [sentence for pair in pairs for sentence in (pair.good, pair.bad)]
    scores = scorer(network, tokenizer, sentences, progress).reshape(-1, 2)
    if not np.isfinite(scores).all():
        raise UserError("the model's scores are not numbers: its weights are damaged, or its training diverged")
    won = np.where(scores[:, 0] > scores[:, 1], 1.0, np.where(scores[:, 0] == scores[:, 1], 0.5, 0.0))
    paradigms = _means((pair.paradigm, value) for pair, value in zip(pairs, won.tolist(), strict=True))
    like = {pair.paradigm: pair for pair in pairs}
    return PairScores(
        overall=float(np.mean(list(paradigms.values()))),
        num_pairs=len(pairs),
        num_ties=int((won == 0.5).sum()),
        paradigms=paradigms,
        phenomena=_means((like[name].phenomenon, value) for name, value in paradigms.items()),
        fields=_means((like[name].field, value) for name, value in paradigms.items() if like[name].field),
    )


def _means(values: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The mean of each name's values, by name."""
    grouped: dict[str, list[float]] = {}
    for name, value in values:
        grouped.setdefault(name, []).append(value)
    return {name: float(np.mean(group)) for name, group in sorted(grouped.items())}


# ---------------------------------------------------------------------------------------------------------- reading


def _files(path: Path) -> Iterator[tuple[str, Iterable[str]]]:
    """Name and lines of each file of pairs."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if ".jsonl" in file.suffixes)
        if not files:
            raise UserError(f"{path}: holds no .jsonl file")
        for file in files:
            yield str(file), read_lines(file)
    elif path.is_file() and (".tar" in path.suffixes or path.suffix in (".tgz", ".txz")):
        yield from _members(path)
    elif path.is_file():
        yield str(path), read_lines(path)
    else:
        raise UserError(f"{path}: no such file or directory")


def _members(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The same of an archive. Each member is read whole, so that damage shows here, where it can be named."""
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isfile() and ".jsonl" in Path(member.name).suffixes:
                    content = archive.extractfile(member)
                    assert content is not None
                    yield f"{path}/{member.name}", content.read().decode("utf-8").split("\n")
    except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: damaged, or not a .tar of UTF-8 text ({error}); fetch it again") from None


def _parse(line: str, where: str, default_paradigm: str) -> MinimalPair:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON ({error.msg}); a minimal pair is one JSON object a line") from None
    for name in ("sentence_good", "sentence_bad"):
        if not isinstance(record, dict) or not isinstance(record.get(name), str) or not record[name].strip():
            raise UserError(f"{where}: has no text {name!r}; a minimal pair has sentence_good and sentence_bad")
    paradigm = str(record.get("UID") or default_paradigm)
    phenomenon = str(record.get("linguistics_term") or paradigm)
    field = str(record.get("field") or "").replace("/", "_")  # BLiMP has syntax/semantics and syntax_semantics for one
    return MinimalPair(record["sentence_good"], record["sentence_bad"], paradigm, phenomenon, field)
