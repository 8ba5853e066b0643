"""Fine-tuning with only those rows of the token table that the texts use.

The other rows get no gradient, so AdamW without weight decay never moves them. But the gradient of a whole table is made,
measured and applied at every step: for `tiny` on short texts a fifth of the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import numpy as np
import torch
from torch import nn

from electra.model.encoder import Encoder


@contextmanager
def only_used_rows(
    encoder: Encoder, texts: Sequence[Sequence[int]], pad_id: int
) -> Iterator[tuple[list[list[int]], int]]:
    """Inside, the encoder's token table has the rows of `texts` and of `pad_id` alone; the result is their ids in it. Afterwards
    the whole table is back, with what these rows have become."""
    whole = encoder.embeddings.tokens
    used = np.unique(np.fromiter(chain([pad_id], chain.from_iterable(texts)), np.int64))
    place = np.zeros(whole.num_embeddings, np.int64)
    place[used] = np.arange(len(used))
    rows = torch.from_numpy(used).to(whole.weight.device)
    encoder.embeddings.tokens = nn.Embedding.from_pretrained(whole.weight.detach()[rows], freeze=False)
    try:
        yield [place[np.array(ids, np.int64)].tolist() for ids in texts], int(place[pad_id])
    finally:
        with torch.no_grad():
            whole.weight[rows] = encoder.embeddings.tokens.weight
        encoder.embeddings.tokens = whole
