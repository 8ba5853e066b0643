"""Token ids to rows of one length. Pure: what row i holds depends on the store, the length and i.

Shapes: B batch, L length.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from electra.data.shards import TokenStore
from electra.errors import UserError

Gathered = tuple[NDArray[np.int64], NDArray[np.bool_] | None, NDArray[np.int64] | None]
"""input_ids [B, L]; attention_mask [B, L] or None without padding; token_type_ids [B, L] or None for one segment."""


class Rows(Protocol):
    """Something with numbered rows of one length."""

    def __len__(self) -> int: ...

    def gather(self, row_ids: NDArray[np.int64]) -> Gathered:
        """The rows of a batch, in the order asked for."""
        ...


def make_rows(store: TokenStore, length: int, layout: Literal["dense", "two-segment"], seed: int) -> Rows:
    """The rows of a store in one of the two layouts."""
    if length < 8:
        raise UserError(f"data.length is {length}: a row needs at least 8 tokens")
    return DenseRows(store, length) if layout == "dense" else TwoSegmentRows(store, length, seed)


@dataclasses.dataclass(frozen=True)
class DenseRows:
    """[CLS], the next L - 2 tokens of the store, [SEP]. Documents run on, each ended by its own [SEP]; no padding but in the
    last row. Every token of the store is in exactly one row.
    """

    store: TokenStore
    length: int

    def __len__(self) -> int:
        return -(-len(self.store.tokens) // (self.length - 2))

    def gather(self, row_ids: NDArray[np.int64]) -> Gathered:
        body, special, tokens = self.length - 2, self.store.special, self.store.tokens
        starts = row_ids * body
        at = starts[:, None] + np.arange(body)
        within = at < len(tokens)
        ids = np.empty((len(row_ids), self.length), dtype=np.int64)
        ids[:, 0], ids[:, -1] = special.cls, special.sep
        ids[:, 1:-1] = tokens[np.minimum(at, len(tokens) - 1)]
        if within.all():
            return ids, None, None
        # The last row: its tokens, one [SEP] (its own or added), padding.
        mask = np.ones(ids.shape, dtype=bool)
        for row in np.flatnonzero(~within.all(axis=1)):
            count = len(tokens) - starts[row]
            end = 1 + count if ids[row, count] == special.sep else 2 + count
            ids[row, end - 1] = special.sep
            ids[row, end:], mask[row, end:] = special.pad, False
        return ids, mask, None


class TwoSegmentRows:
    """[CLS] A [SEP] B [SEP] made of whole lines, as the reference builds its examples (build_pretraining_dataset.py).

    Lines of a document are collected until they fill a row (one row in ten aims at a shorter length); then they are split
    into two segments at a line boundary near a random half of the target. A single line, and one row in ten, stays in one
    segment. Unlike the reference, what does not fit is carried into the next row rather than cut off. Token types are 0
    for [CLS] A [SEP] and 1 for B [SEP]; rows are padded.
    """

    def __init__(self, store: TokenStore, length: int, seed: int) -> None:
        self.store, self.length = store, length
        self.spans = _two_segment_spans(store, length - 3, np.random.Generator(np.random.Philox(seed)))
        """[rows, 3]: start, split and end in the store's tokens; split equals end for a single segment."""

    def __len__(self) -> int:
        return len(self.spans)

    def gather(self, row_ids: NDArray[np.int64]) -> Gathered:
        special, tokens = self.store.special, self.store.tokens
        shape = (len(row_ids), self.length)
        ids = np.full(shape, special.pad, dtype=np.int64)
        types, mask = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=bool)
        for row, (start, split, end) in enumerate(self.spans[row_ids]):
            first, second = tokens[start:split], tokens[split:end]
            middle, last = 1 + len(first), 2 + len(first) + len(second)
            ids[row, 0], ids[row, 1:middle], ids[row, middle] = special.cls, first, special.sep
            mask[row, : middle + 1] = True
            if len(second):
                ids[row, middle + 1 : last], ids[row, last] = second, special.sep
                types[row, middle + 1 : last + 1], mask[row, : last + 1] = 1, True
        return ids, mask, types


def _two_segment_spans(store: TokenStore, capacity: int, draw: np.random.Generator) -> NDArray[np.int64]:
    spans: list[tuple[int, int, int]] = []
    line_starts = store.line_starts
    document_ends = np.append(store.document_starts[1:], len(store.tokens)) - 1  # without the [SEP] that closes it
    first_line = np.searchsorted(line_starts, store.document_starts)
    last_line = np.append(first_line[1:], len(line_starts))
    for start_line, end_line, document_end in zip(first_line, last_line, document_ends, strict=True):
        bounds = [*line_starts[start_line:end_line].tolist(), int(document_end)]
        start, index = bounds[0], 0
        while start < document_end:
            target = int(draw.integers(min(5, capacity), capacity + 1)) if draw.random() < 0.1 else capacity
            # Take whole lines up to the target; a line that is longer by itself is taken up to the capacity and goes on
            # in the next row.
            while index + 1 < len(bounds) and (bounds[index + 1] - start) < target:
                index += 1
            if bounds[index] <= start:
                index += 1
            end = min(bounds[index] if index < len(bounds) else int(document_end), start + capacity)
            # Line boundaries inside the row: bounds[low:high].
            low, high = bisect_right(bounds, start), bisect_left(bounds, end)
            split = end
            if low < high and draw.random() >= 0.1:
                half = start + int(draw.integers(1, max(2, target // 2 + 1)))
                split = bounds[min(bisect_left(bounds, half, low, high), high - 1)]
            spans.append((start, split, end))
            start = end
    return np.array(spans, dtype=np.int64).reshape(-1, 3)
