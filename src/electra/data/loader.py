"""Batches of rows in the endless shuffled order, gathered ahead in the background.

Shapes: B batch, L length.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from electra.data.order import rank_slice, row_at
from electra.data.packing import Rows

_AHEAD = 4  # batches; gathering one takes a small part of a step


@dataclasses.dataclass(frozen=True)
class Batch:
    """Rows with their places in the corpus, on the host."""

    input_ids: Tensor
    """[B, L] int64."""
    attention_mask: Tensor | None
    """[B, L] bool, True at tokens; None when there is no padding."""
    token_type_ids: Tensor | None
    """[B, L] int64; None for one segment."""
    row_ids: Tensor
    """[B] int64."""
    epochs: Tensor
    """[B] int64."""

    def __len__(self) -> int:
        return len(self.row_ids)

    def split(self, size: int) -> list[Batch]:
        """The same rows in batches of at most `size`."""
        parts = []
        for start in range(0, len(self), size):
            rows: dict[str, Any] = {n: None if v is None else v[start : start + size] for n, v in vars(self).items()}
            parts.append(Batch(**rows))
        return parts


@dataclasses.dataclass(frozen=True)
class Position:
    """Rows of the endless order that have been consumed, over all ranks. With the store and the seed, all the state."""

    rows: int = 0


class BatchLoader(Iterator[Batch]):
    """This rank's part of each global batch. Use as a context manager, which ends the background thread."""

    def __init__(
        self,
        rows: Rows,
        *,
        batch_size: int,
        seed: int,
        position: Position = Position(),
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.rows, self.batch_size, self.seed = rows, batch_size, seed
        self.part = rank_slice(batch_size, rank, world_size)
        self.position = position
        """Where the batch after the last one handed out begins."""
        self.wait_seconds = 0.0
        """Time that the consumer has waited for a batch."""
        self._queue: queue.Queue[Batch | BaseException] = queue.Queue(_AHEAD)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._fill, args=(position.rows,), daemon=True)
        self._thread.start()

    def __next__(self) -> Batch:
        started = time.perf_counter()
        item = self._queue.get()
        self.wait_seconds += time.perf_counter() - started
        if isinstance(item, BaseException):
            raise item
        self.position = Position(self.position.rows + self.batch_size)
        return item

    def __enter__(self) -> BatchLoader:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading ahead."""
        self._closed.set()
        self._thread.join()

    def _fill(self, start: int) -> None:
        try:
            while not self._closed.is_set():
                self._put(self._gather(start))
                start += self.batch_size
        except BaseException as error:  # handed over, and raised where the batch is waited for
            self._put(error)

    def _put(self, item: Batch | BaseException) -> None:
        while not self._closed.is_set():
            try:
                return self._queue.put(item, timeout=0.1)
            except queue.Full:
                continue

    def _gather(self, start: int) -> Batch:
        positions = np.arange(start, start + self.batch_size, dtype=np.int64)[self.part]
        epochs, row_ids = row_at(positions, len(self.rows), self.seed)
        ids, mask, types = self.rows.gather(row_ids)
        return Batch(
            input_ids=torch.from_numpy(ids),
            attention_mask=None if mask is None else torch.from_numpy(mask),
            token_type_ids=None if types is None else torch.from_numpy(types),
            row_ids=torch.from_numpy(row_ids),
            epochs=torch.from_numpy(epochs),
        )
