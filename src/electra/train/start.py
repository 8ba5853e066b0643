"""What a run's first weights take from its corpus before any gradient: token frequencies and which tokens occur together.

Both are off in the paper's presets. A run of minutes spends most of its tokens learning these two; counting them takes
seconds. Shapes: V vocabulary, E embedding size.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd

from electra.data.shards import TokenStore
from electra.errors import UserError
from electra.model.pair import Pair

_MOST_TOKENS = 10_000_000  # enough to know both; keeps the start short on a large store
_LARGEST_VOCABULARY = 16_384  # the table of pairs is dense: 1 GiB at this size
_ROWS_AT_ONCE = 512
_WINDOWS = (16, 256)
"""Tokens in which two count as occurring together: about a clause, which brings out grammar, and about a document's
paragraph, which brings out topic and tone."""


def check_start(pair_vocabulary: int, embedding_start: str) -> None:
    """Raises UserError when the co-occurrence table would not fit."""
    if embedding_start == "cooccurrence" and pair_vocabulary > _LARGEST_VOCABULARY:
        raise UserError(
            f"model.embedding_start is 'cooccurrence': a vocabulary of {pair_vocabulary:,} is too large for it (at most "
            f"{_LARGEST_VOCABULARY:,}); set it to random"
        )


def start_from_corpus(pair: Pair, store: TokenStore, seed: int) -> None:
    """Fill in what `model.unigram_bias`, `model.embedding_start` and a generator without a network ask for, in place."""
    special = list(dataclasses.asdict(store.special).values())
    tokens = np.asarray(store.tokens[:_MOST_TOKENS]).astype(np.int64)
    if pair.config.unigram_bias:
        counts = np.bincount(tokens, minlength=pair.config.discriminator.vocab_size or 0) + 1.0
        counts[special] = 1.0
        for head in pair.vocabulary_heads:
            head.bias.data.copy_(torch.from_numpy(np.log(counts / counts.sum())))
    if pair.parts.frequencies is not None:
        uniform = pair.parts.frequencies == "uniform"
        vocab_size = pair.frequencies.cumulative.numel()
        weights = (
            np.ones(store.vocab_size) if uniform else np.bincount(tokens, minlength=store.vocab_size).astype(float)
        )
        weights[special] = 0.0
        pair.frequencies.set(torch.from_numpy(np.pad(weights, (0, vocab_size - store.vocab_size))))
    if pair.config.embedding_start == "cooccurrence":
        _embed_by_cooccurrence(pair, tokens, special, seed)


def _embed_by_cooccurrence(pair: Pair, tokens: NDArray[np.int64], special: list[int], seed: int) -> None:
    """Vectors whose products follow the tokens' pointwise mutual information, at the scale of the random start."""
    deviation = pair.config.discriminator.initializer_range
    for embeddings in dict.fromkeys(encoder.embeddings for encoder in pair.encoders):
        table = embeddings.tokens.weight
        vocab_size, width = table.shape
        vectors_VE = cooccurrence_vectors(tokens, vocab_size, width, special, seed)
        norms_V = np.linalg.norm(vectors_VE, axis=1)
        known_V = norms_V > 1e-6
        vectors_VE[known_V] *= (deviation * width**0.5 / norms_V[known_V])[:, None]
        start_VE = torch.from_numpy(vectors_VE).to(table)
        common_E = table.detach().mean(0).sign() * deviation if embeddings.has_common_direction else torch.zeros(width)
        if (
            embeddings.has_common_direction
        ):  # neighbour heads answer to this direction: keep it the same for every token
            start_VE -= (start_VE @ common_E)[:, None] * common_E / common_E.square().sum()
        known = torch.from_numpy(known_V)
        table.data[known] = start_VE[known] + common_E


def cooccurrence_vectors(
    tokens: NDArray[np.int64], vocab_size: int, width: int, special: list[int], seed: int
) -> NDArray[np.float64]:
    """[V, E] from the positive pointwise mutual information of tokens in runs of 16 and of 256 tokens.

    The leading singular vectors, weighted by the root of their values (Levy, Goldberg and Dagan 2015), centred and turned
    at random so that no coordinate stands out. Rows of special tokens and of tokens that do not occur are zero.
    """
    information_VV = np.zeros((vocab_size, vocab_size), dtype=np.float32)
    ordinary_V = np.ones(vocab_size, dtype=np.float32)
    ordinary_V[special] = 0.0
    for window in _WINDOWS:
        num_runs = len(tokens) // window
        if num_runs < 2:
            continue
        run = np.repeat(np.arange(num_runs, dtype=np.int32), window)
        ones = np.ones(num_runs * window, dtype=np.float32)
        counts = scipy.sparse.csr_matrix((ones, (run, tokens[: num_runs * window])), shape=(num_runs, vocab_size))
        counts.data = np.log1p(counts.data)  # repeated places were added up
        counts.data *= ordinary_V[counts.indices]
        by_token = counts.T.tocsr()
        total_V = by_token @ np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()
        for start in range(
            0, vocab_size, _ROWS_AT_ONCE
        ):  # the whole table of pairs once, of temporary ones only a strip
            rows = slice(start, start + _ROWS_AT_ONCE)
            together = (by_token[rows] @ counts).toarray()
            with np.errstate(divide="ignore", invalid="ignore"):
                together *= total_V.sum() / total_V[rows, None]
                together /= total_V
                np.log(together, out=together)
            np.nan_to_num(together, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
            information_VV[rows] += np.maximum(together, 0.0) / len(_WINDOWS)
    rank = min(width, vocab_size)
    left_VE, values_E, _ = randomized_svd(information_VV, rank, n_iter=3, random_state=seed)
    vectors_VE = np.zeros((vocab_size, width))
    vectors_VE[:, :rank] = left_VE * np.sqrt(values_E)
    known_V = information_VV.any(axis=1)
    vectors_VE[known_V] -= vectors_VE[known_V].mean(0)
    vectors_VE[~known_V] = 0.0  # the decomposition leaves rounding errors there
    turn_EE = np.linalg.qr(np.random.Generator(np.random.Philox(seed)).standard_normal((width, width)))[0]
    return vectors_VE @ turn_EE
