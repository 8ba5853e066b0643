"""Which tokens of a text look as if they had been put in the place of others: the discriminator's opinion, without labels."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.text import Text

from electra.data.tokenizer import load_tokenizer
from electra.errors import UserError
from electra.model.encoder import Encoder
from electra.model.heads import ReplacedTokenHead
from electra.model.hf import load_discriminator, load_encoder

TOKENS_AT_ONCE = 8192
"""Padded tokens that go through the network together."""
_LINES_AT_ONCE = 1000


@dataclasses.dataclass(frozen=True)
class TokenVerdict:
    """One word piece of a text, and how likely it is that it was replaced."""

    token: str
    word: int
    """Number of the word it belongs to, from 0; pieces of one word share it."""
    start: int
    """First character in the text ..."""
    end: int
    """... and the one after the last."""
    probability: float


class Detector:
    """A discriminator with its tokenizer, ready to judge texts."""

    def __init__(self, model: str | Path) -> None:
        self.encoder, self.head = load_discriminator(model)
        self.encoder.eval()
        self.head.eval()
        directory = load_encoder(model).tokenizer_dir
        if directory is None:
            raise UserError(f"{model}: has no tokenizer; copy tokenizer.json (or vocab.txt) of the pre-training there")
        self.tokenizer = load_tokenizer(directory)

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str], max_length: int = 512) -> list[list[TokenVerdict]]:
        """The verdicts on each text's word pieces, in order; special tokens are left out.

        A text longer than `max_length` tokens is judged in windows that overlap by half; a token's verdict is from the
        window in which it has the most context. Texts of like length are batched together.
        """
        if self.encoder.config.blocks == "classic":
            max_length = min(max_length, self.encoder.config.max_length)
        encoded = self.tokenizer(
            list(texts), add_special_tokens=False, return_offsets_mapping=True, return_attention_mask=False
        )
        probabilities = [np.zeros(len(ids)) for ids in encoded["input_ids"]]
        windows = [
            (index, start, ids[start : start + max_length - 2], keep)
            for index, ids in enumerate(encoded["input_ids"])
            for start, keep in _windows(len(ids), max_length - 2)
        ]
        rows = [window[2] for window in windows]
        for batch in batches_by_length(rows, TOKENS_AT_ONCE):
            judged = replaced_probabilities(self.encoder, self.head, self.tokenizer, [rows[at] for at in batch])
            for at, row in zip(batch, judged, strict=True):
                index, start, _, keep = windows[at]
                probabilities[index][start + keep.start : start + keep.stop] = row[keep]
        return [
            [
                TokenVerdict(token, word, start, end, float(probability))
                for token, word, (start, end), probability in zip(
                    self.tokenizer.convert_ids_to_tokens(ids), _words(encoded, index), offsets, found, strict=True
                )
            ]
            for index, (ids, offsets, found) in enumerate(
                zip(encoded["input_ids"], encoded["offset_mapping"], probabilities, strict=True)
            )
        ]


def detect(model: str | Path, texts: Sequence[str], *, max_length: int = 512) -> list[list[TokenVerdict]]:
    """The probability that each token of each text was replaced.

    `model` is a run directory or a Hugging Face discriminator (`ElectraForPreTraining`, or our ModernBERT export). Raises
    UserError for a model without a replaced-token head.
    """
    return Detector(model)(texts, max_length)


def detect_lines(
    model: str | Path, lines: Iterable[str], *, progress: Callable[[int], None] = lambda count: None
) -> Iterator[dict[str, Any]]:
    """`as_json` of each line, in order, in memory that does not grow with their number. `progress` is called with the number
    of further lines that are done."""
    detector = Detector(model)
    for part in _parts(lines, _LINES_AT_ONCE):
        for text, verdicts in zip(part, detector(part), strict=True):
            yield as_json(text, verdicts)
        progress(len(part))


def _parts(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    iterator = iter(lines)
    while part := list(itertools.islice(iterator, size)):
        yield part


@torch.inference_mode()
def replaced_probabilities(
    encoder: Encoder, head: ReplacedTokenHead, tokenizer: Any, rows: Sequence[Sequence[int]]
) -> list[np.ndarray]:
    """Word-piece ids without special tokens -> the probability of each, float64 arrays of the rows' own lengths."""
    ids, mask = padded(rows, tokenizer)
    logits = head(encoder(ids, mask)).double().sigmoid()
    return [logits[index, 1 : len(row) + 1].numpy() for index, row in enumerate(rows)]


def padded(rows: Sequence[Sequence[int]], tokenizer: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Word-piece ids between [CLS] and [SEP], padded to the longest row: int64 [B, L], and the mask bool [B, L] that is true
    at real tokens and specials, or None where nothing is padded."""
    longest = max(len(row) for row in rows) + 2
    ids = torch.full((len(rows), longest), tokenizer.pad_token_id)
    for index, row in enumerate(rows):
        ids[index, : len(row) + 2] = torch.tensor([tokenizer.cls_token_id, *row, tokenizer.sep_token_id])
    lengths = torch.tensor([len(row) + 2 for row in rows])
    mask = torch.arange(longest)[None, :] < lengths[:, None]
    return ids, None if bool(mask.all()) else mask


def batches_by_length(rows: Sequence[Sequence[int]], max_tokens: int) -> Iterator[list[int]]:
    """Indices of rows of like length, in batches of at most `max_tokens` padded tokens (but at least one row)."""
    batch: list[int] = []
    for index in sorted(range(len(rows)), key=lambda index: len(rows[index])):
        if batch and (len(batch) + 1) * (len(rows[index]) + 2) > max_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def word_probabilities(verdicts: Sequence[TokenVerdict]) -> list[tuple[int, int, float]]:
    """(start, end, probability) of each word: a word is as suspect as its most suspect piece."""
    words: dict[int, tuple[int, int, float]] = {}
    for verdict in verdicts:
        start, end, probability = words.get(verdict.word, (verdict.start, verdict.end, 0.0))
        words[verdict.word] = (min(start, verdict.start), max(end, verdict.end), max(probability, verdict.probability))
    return list(words.values())


def render(text: str, verdicts: Sequence[TokenVerdict]) -> Text:
    """The text for a terminal, each word on a red that deepens with its probability, which follows it in small print."""
    shown, at = Text(), 0
    for start, end, probability in word_probabilities(verdicts):
        shown.append(text[at:start])
        shade = round(255 * (1.0 - min(1.0, probability)))
        shown.append(text[start:end], style=f"black on rgb(255,{shade},{shade})")
        if probability >= 0.5:
            shown.append(f" {probability:.0%}", style="bold red")
        at = end
    shown.append(text[at:])
    return shown


def as_json(text: str, verdicts: Sequence[TokenVerdict]) -> dict[str, Any]:
    """The same as plain data."""
    return {"text": text, "tokens": [dataclasses.asdict(verdict) for verdict in verdicts]}


def _windows(count: int, size: int) -> Iterator[tuple[int, slice]]:
    """(start, the part of the window whose verdicts count): together the parts cover every token once."""
    if count <= size:
        yield 0, slice(0, count)
        return
    stride = size // 2
    starts = [*range(0, count - size, stride), count - size]
    for index, start in enumerate(starts):
        first = 0 if index == 0 else (starts[index - 1] + size + start) // 2 - start
        last = size if index + 1 == len(starts) else (start + size + starts[index + 1]) // 2 - start
        yield start, slice(first, last)


def _words(encoded: Any, index: int) -> list[int]:
    """The word number of each piece; the tokenizer's own splitting makes every punctuation mark a word."""
    return [word if word is not None else -1 for word in encoded.word_ids(index)]
