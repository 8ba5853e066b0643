"""Which tokens of a text look as if they had been put in the place of others: the discriminator's opinion, without labels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.text import Text

from electra.data.text import read_lines
from electra.data.tokenizer import load_tokenizer
from electra.errors import UserError
from electra.evaluate.batching import batches_by_length, pad, tokens_at_once
from electra.model.encoder import Encoder
from electra.model.heads import ReplacedTokenHead
from electra.model.hf import load_discriminator, load_encoder
from electra.train.run import choose_device

# Lines that are sorted by length together: as many, or as long, as keep the memory small.
_LINES_AT_ONCE, _CHARACTERS_AT_ONCE = 2000, 500_000


class TokenVerdict(NamedTuple):
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
    """A discriminator with its tokenizer, ready to judge texts. `device` is `auto`, `cpu`, `cuda`, ..."""

    def __init__(self, model: str | Path, device: str = "auto") -> None:
        self.encoder, self.head = load_discriminator(model)
        self.device = choose_device(device)
        self.encoder.eval().to(self.device)
        self.head.eval().to(self.device)
        directory = load_encoder(model).tokenizer_dir
        if directory is None:
            raise UserError(f"{model}: has no tokenizer; copy tokenizer.json (or vocab.txt) of the pre-training there")
        self.tokenizer = load_tokenizer(directory)

    def __call__(self, texts: Sequence[str], max_length: int = 512) -> list[list[TokenVerdict]]:
        """The verdicts on each text's word pieces, in order; special tokens are left out.

        A text longer than `max_length` tokens is judged in windows that overlap by half; a token's verdict is from the
        window in which it has the most context. Texts of like length are batched together. Raises UserError for what is no
        text.
        """
        if isinstance(texts, str):
            raise UserError("texts is a single text; give a list of texts")
        if not texts:
            return []
        if self.encoder.config.blocks == "classic":
            max_length = min(max_length, self.encoder.config.max_length)
        encodings = self._encode(texts)
        found = self._probabilities([encoding.ids for encoding in encodings], max_length - 2)
        return [
            [
                TokenVerdict(token, word, start, end, probability)
                for token, word, (start, end), probability in zip(
                    encoding.tokens, encoding.word_ids, encoding.offsets, probabilities.tolist(), strict=True
                )
            ]
            for encoding, probabilities in zip(encodings, found, strict=True)
        ]

    def _encode(self, texts: Sequence[str]) -> Any:
        """An encoding of the `tokenizers` library for each text, without special tokens."""
        try:
            return self.tokenizer(
                list(texts), add_special_tokens=False, return_attention_mask=False, return_token_type_ids=False
            ).encodings
        except (TypeError, ValueError):  # the library does not say which
            for number, text in enumerate(texts, start=1):
                if not isinstance(text, str):
                    raise UserError(f"text {number} is of type {type(text).__name__}; give a str") from None
                if any("\ud800" <= character <= "\udfff" for character in text):
                    raise UserError(f"text {number} is not proper Unicode; decode it from UTF-8 first") from None
            raise

    def _probabilities(self, rows: Sequence[Sequence[int]], size: int) -> list[np.ndarray]:
        """Word-piece ids of each text -> float64 arrays of the same lengths, by windows of at most `size` pieces."""
        found = [np.zeros(len(ids)) for ids in rows]
        windows = [
            (index, start, ids[start : start + size], keep)
            for index, ids in enumerate(rows)
            for start, keep in _windows(len(ids), size)
        ]
        pieces = [window[2] for window in windows]
        for batch in batches_by_length(pieces, tokens_at_once(self.device)):
            judged = replaced_probabilities(self.encoder, self.head, self.tokenizer, [pieces[at] for at in batch])
            for at, probabilities in zip(batch, judged, strict=True):
                index, start, _, keep = windows[at]
                found[index][start + keep.start : start + keep.stop] = probabilities[keep]
        return found


def detect(
    model: str | Path, texts: Sequence[str], *, max_length: int = 512, device: str = "auto"
) -> list[list[TokenVerdict]]:
    """The probability that each token of each text was replaced.

    `model` is a run directory or a Hugging Face discriminator (`ElectraForPreTraining`, or our ModernBERT export). Raises
    UserError for a model without a replaced-token head.
    """
    return Detector(model, device)(texts, max_length)


def detect_lines(
    model: str | Path,
    lines: Iterable[str],
    *,
    device: str = "auto",
    progress: Callable[[int], None] = lambda count: None,
) -> Iterator[dict[str, Any]]:
    """`as_json` of each line, in order, in memory that does not grow with their number. `progress` is called with the number
    of further lines that are done."""
    detector = Detector(model, device)
    for part in _parts(lines):
        for text, verdicts in zip(part, detector(part), strict=True):
            yield as_json(text, verdicts)
        progress(len(part))


def lines_of(file: Path) -> Iterator[str]:
    """The lines of a text file (also .gz, .xz or .zst), or for - of the standard input. Raises UserError for bytes that are
    not UTF-8, naming the place."""
    return _standard_input() if str(file) == "-" else read_lines(file)


def _standard_input() -> Iterator[str]:
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise UserError(f"standard input: line {number} is not UTF-8; convert it first (iconv)") from None


def _parts(lines: Iterable[str]) -> Iterator[list[str]]:
    part: list[str] = []
    characters = 0
    for line in lines:
        part.append(line)
        characters += len(line)
        if len(part) >= _LINES_AT_ONCE or characters >= _CHARACTERS_AT_ONCE:
            yield part
            part, characters = [], 0
    if part:
        yield part


@torch.inference_mode()
def replaced_probabilities(
    encoder: Encoder, head: ReplacedTokenHead, tokenizer: Any, rows: Sequence[Sequence[int]]
) -> list[np.ndarray]:
    """Word-piece ids without special tokens -> the probability of each, float64 arrays of the rows' own lengths."""
    ids, mask = padded(rows, tokenizer)
    device = head.classifier.weight.device
    logits = head(encoder(ids.to(device), None if mask is None else mask.to(device)))
    probabilities = logits.double().sigmoid().cpu().numpy()
    return [probabilities[index, 1 : len(row) + 1] for index, row in enumerate(rows)]


def padded(rows: Sequence[Sequence[int]], tokenizer: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Word-piece ids between [CLS] and [SEP], padded to the longest row: int64 [B, L], and the mask bool [B, L] that is true
    at real tokens and specials, or None where nothing is padded."""
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    return pad([[first, *row, last] for row in rows], tokenizer.pad_token_id)


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
    return {"text": text, "tokens": [verdict._asdict() for verdict in verdicts]}


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
