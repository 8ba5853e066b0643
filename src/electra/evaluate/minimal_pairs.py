"""Minimal pairs: does the network find the right sentence of two more natural than the wrong one? No labels are needed.

The discriminator scores a sentence by the sum over its word pieces of log(1 - p_replaced), in one pass. Data is in BLiMP's
format (Warstadt et al. 2020): one JSON object a line with `sentence_good`, `sentence_bad` and, where they are there, `UID`
(the paradigm) and `linguistics_term` (the phenomenon).
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from electra.data.text import read_lines
from electra.errors import UserError
from electra.evaluate.detect import TOKENS_AT_ONCE, batches_by_length, padded
from electra.model.encoder import Encoder
from electra.model.heads import ReplacedTokenHead


@dataclasses.dataclass(frozen=True)
class MinimalPair:
    """Two sentences that differ in as little as possible, of which one is right."""

    good: str
    bad: str
    paradigm: str
    phenomenon: str


@dataclasses.dataclass(frozen=True)
class PairScores:
    """Share of the pairs whose good sentence scores higher; ties count half."""

    overall: float
    """Mean over paradigms, as BLiMP has it."""
    num_pairs: int
    paradigms: dict[str, float]
    phenomena: dict[str, float]
    """Mean over the paradigms of each phenomenon."""


def read_pairs(path: Path, limit: int | None = None) -> tuple[list[MinimalPair], str]:
    """The pairs of a .jsonl file (also .gz, .xz or .zst), of all such files in a directory, or of a .tar (also .gz or .xz).

    `limit` takes only the first so many pairs of each paradigm. Also returns a SHA-256 of what was read. Raises UserError
    for a line that is no pair, naming it.
    """
    pairs: list[MinimalPair] = []
    taken: dict[str, int] = {}
    digest = hashlib.sha256()
    for name, lines in _files(path):
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            pair = _parse(line, f"{name}, line {number}", Path(name).name.split(".")[0])
            taken[pair.paradigm] = taken.get(pair.paradigm, 0) + 1
            if limit is None or taken[pair.paradigm] <= limit:
                pairs.append(pair)
                digest.update(line.strip().encode())
    if not pairs:
        raise UserError(f"{path}: holds no minimal pairs; name BLiMP's .jsonl files, a directory or a .tar of them")
    return pairs, digest.hexdigest()


def score_pairs(
    encoder: Encoder,
    head: ReplacedTokenHead,
    tokenizer: Any,
    pairs: Sequence[MinimalPair],
    progress: Callable[[int], None] = lambda count: None,
) -> PairScores:
    """Accuracy of the discriminator on the pairs. `progress` is called with the number of further sentences scored."""
    sentences = [sentence for pair in pairs for sentence in (pair.good, pair.bad)]
    scores = naturalness(encoder, head, tokenizer, sentences, progress).reshape(-1, 2)
    won = np.where(scores[:, 0] > scores[:, 1], 1.0, np.where(scores[:, 0] == scores[:, 1], 0.5, 0.0))
    by_paradigm: dict[str, list[float]] = {}
    phenomenon_of: dict[str, str] = {}
    for pair, value in zip(pairs, won.tolist(), strict=True):
        by_paradigm.setdefault(pair.paradigm, []).append(value)
        phenomenon_of[pair.paradigm] = pair.phenomenon
    paradigms = {name: float(np.mean(values)) for name, values in sorted(by_paradigm.items())}
    by_phenomenon: dict[str, list[float]] = {}
    for name, value in paradigms.items():
        by_phenomenon.setdefault(phenomenon_of[name], []).append(value)
    return PairScores(
        overall=float(np.mean(list(paradigms.values()))),
        num_pairs=len(pairs),
        paradigms=paradigms,
        phenomena={name: float(np.mean(values)) for name, values in sorted(by_phenomenon.items())},
    )


@torch.inference_mode()
def naturalness(
    encoder: Encoder,
    head: ReplacedTokenHead,
    tokenizer: Any,
    sentences: Sequence[str],
    progress: Callable[[int], None] = lambda count: None,
) -> NDArray[np.float64]:
    """Sum over each sentence's word pieces of log(1 - p_replaced), [CLS] and [SEP] apart. In one pass, all on the CPU."""
    rows = tokenizer(list(sentences), add_special_tokens=False, return_attention_mask=False)["input_ids"]
    longest = max(map(len, rows)) + 2
    if encoder.config.blocks == "classic" and longest > encoder.config.max_length:
        raise UserError(
            f"a sentence has {longest} tokens, the model takes {encoder.config.max_length}: leave that pair out"
        )
    training = encoder.training, head.training
    encoder.eval()
    head.eval()
    scores = np.zeros(len(rows))
    for batch in batches_by_length(rows, TOKENS_AT_ONCE):
        ids_BL, mask_BL = padded([rows[index] for index in batch], tokenizer)
        logits_BL = head(encoder(ids_BL, mask_BL)).double()
        inner_BL = torch.ones_like(ids_BL, dtype=torch.bool) if mask_BL is None else mask_BL.clone()
        inner_BL[:, 0] = False
        inner_BL &= ids_BL != tokenizer.sep_token_id
        scores[batch] = (F.logsigmoid(-logits_BL) * inner_BL).sum(dim=1).numpy()
        progress(len(batch))
    encoder.train(training[0])
    head.train(training[1])
    return scores


# ---------------------------------------------------------------------------------------------------------- reading


def _files(path: Path) -> Iterator[tuple[str, Iterator[str]]]:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if ".jsonl" in file.suffixes)
        if not files:
            raise UserError(f"{path}: holds no .jsonl file")
        for file in files:
            yield str(file), read_lines(file)
    elif path.is_file() and ".tar" in path.suffixes:
        try:
            with tarfile.open(path) as archive:
                for member in archive:
                    if member.isfile() and ".jsonl" in Path(member.name).suffixes:
                        content = archive.extractfile(member)
                        assert content is not None
                        yield f"{path}:{member.name}", io.TextIOWrapper(content, encoding="utf-8")
        except (tarfile.TarError, EOFError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: damaged, or not a .tar of UTF-8 text ({error})") from None
    elif path.is_file():
        yield str(path), read_lines(path)
    else:
        raise UserError(f"{path}: no such file or directory")


def _parse(line: str, where: str, default_paradigm: str) -> MinimalPair:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON ({error.msg}); a minimal pair is one JSON object a line") from None
    for field in ("sentence_good", "sentence_bad"):
        if not isinstance(record, dict) or not isinstance(record.get(field), str):
            raise UserError(f"{where}: has no text {field!r}; a minimal pair has sentence_good and sentence_bad")
    paradigm = str(record.get("UID") or default_paradigm)
    return MinimalPair(
        record["sentence_good"], record["sentence_bad"], paradigm, str(record.get("linguistics_term") or paradigm)
    )
