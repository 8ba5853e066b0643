"""What a pair of networks knows of text that it was not trained on, without any labels.

Shapes: B batch, L length.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from electra.config import PretrainConfig
from electra.data.loader import BatchLoader
from electra.data.packing import make_rows
from electra.data.shards import TokenStore
from electra.data.tokenizer import load_tokenizer, tokenizer_hash
from electra.errors import UserError
from electra.evaluate.swapped_words import swapped_words
from electra.model.pair import Pair
from electra.objectives import make_objective
from electra.objectives.base import Corrupted, Objective
from electra.objectives.mlm import generate
from electra.objectives.replaced_token import judge_all, judge_masked, put_samples
from electra.train.checkpoint import load_run
from electra.train.metrics import Totals

_ROWS_AT_ONCE = 64


def heldout_scores(
    run_dir: Path, store_path: Path, *, checkpoint: Path | None = None, max_rows: int = 4_000, seed: int = 0
) -> dict[str, float | None]:
    """Scores of a run, at its newest checkpoint or the one named, on a held-out store of the same tokenizer."""
    pair, config, store, objective = open_run(run_dir, store_path, checkpoint)
    return pair_scores(pair, config, store, objective, max_rows=max_rows, seed=seed)


def pair_scores(
    pair: Pair, config: PretrainConfig, store: TokenStore, objective: Objective, *, max_rows: int = 4_000, seed: int = 0
) -> dict[str, float | None]:
    """Scores of two networks on a held-out store.

    `generator_loss`, `generator_accuracy`, `discriminator_loss`, `discriminator_auc`, `_precision`, `_recall` at the
    generator's own replacements; `most_frequent_share`, the accuracy of always guessing the commonest token; and the keys
    of `swapped_words`. None where a score is not defined (the precision of a discriminator that calls nothing replaced). Of
    objectives without a discriminator: their own losses and accuracies.
    """
    totals = Totals()
    with torch.inference_mode():
        for corrupted in _corrupted(config, store, objective, max_rows, seed):
            totals.add(objective.step(pair, corrupted, corrupted.counts))
    scores = totals.means(over_ranks=False)
    counts = np.bincount(store.tokens, minlength=store.vocab_size)
    counts[[store.special.cls, store.special.sep, store.special.pad, store.special.mask]] = 0
    scores["most_frequent_share"] = float(counts.max() / counts.sum())
    reference = TokenStore.open(config.data.store) if config.data.store is not None else store
    if has_discriminator(pair):
        scores |= swapped_words(pair, store, reference, seed=seed)
    return {name: value if math.isfinite(value) else None for name, value in scores.items()}


def has_discriminator(pair: Pair) -> bool:
    """Whether the main network tells replaced tokens from original ones."""
    return pair.parts.main_head == "replaced-token"


@torch.inference_mode()
def discriminator_probabilities(
    pair: Pair, config: PretrainConfig, store: TokenStore, objective: Objective, *, max_rows: int = 4_000, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """What the discriminator says of each scored token of the rows of `pair_scores`, with the same replacements: the probability
    that it was replaced, and whether it was; both [N]."""
    judge = judge_masked if pair.parts.main_at == "masked" else judge_all
    probabilities, truth = [], []
    for corrupted in _corrupted(config, store, objective, max_rows, seed):
        samples_K = generate(config.objective, pair, corrupted, corrupted.counts).samples
        verdicts = judge(pair, corrupted, samples_K)
        probabilities.append(verdicts.logits[verdicts.scored].double().sigmoid().numpy())
        truth.append(verdicts.is_replaced[verdicts.scored].numpy())
    return np.concatenate(probabilities), np.concatenate(truth)


def _corrupted(
    config: PretrainConfig, store: TokenStore, objective: Objective, max_rows: int, seed: int
) -> Iterator[Corrupted]:
    """At most `max_rows` held-out rows in batches, with their masked positions: the same ones each time."""
    rows = make_rows(store, config.data.length, config.data.layout, config.train.seed)
    batch_size = min(_ROWS_AT_ONCE, len(rows), max_rows)
    with BatchLoader(rows, batch_size=batch_size, seed=seed) as loader:
        for _ in range(min(max_rows, len(rows)) // batch_size):
            yield objective.corrupt(next(loader))


@torch.inference_mode()
def corrupted_sentence(run_dir: Path, store_path: Path, *, seed: int = 0, length: int = 40) -> dict[str, Any]:
    """A held-out passage with the generator's replacements and the discriminator's verdicts, to be looked at.

    Of a few passages with two to six replacements the first in the shuffled order is taken: not the prettiest one.
    Returns `tokens`: for each its text as shown, the original, whether it was replaced, and the probability.
    """
    pair, config, store, objective = open_run(run_dir, store_path)
    tokenizer = load_tokenizer(store.tokenizer_dir)
    rows = make_rows(store, length, "dense", config.train.seed)
    with BatchLoader(rows, batch_size=min(16, len(rows)), seed=seed) as loader:
        batch = next(loader)
    corrupted = objective.corrupt(batch)
    replaced_ids, is_replaced = put_samples(
        corrupted, generate(config.objective, pair, corrupted, corrupted.counts).samples
    )
    logits = pair.discriminator_head(
        pair.discriminator(replaced_ids, corrupted.attention_mask, corrupted.token_type_ids)
    )
    probabilities = logits.double().sigmoid()
    number = is_replaced.sum(dim=1)
    suited = torch.nonzero((number >= 2) & (number <= 6)).flatten()
    row = int(suited[0]) if len(suited) else int(number.argmax())
    tokens = []
    for column in torch.nonzero(corrupted.scored[row]).flatten().tolist():
        now, before = tokenizer.convert_ids_to_tokens(
            [int(replaced_ids[row, column]), int(batch.input_ids[row, column])]
        )
        tokens.append(
            {
                "text": now,
                "original": before,
                "replaced": bool(is_replaced[row, column]),
                "probability": float(probabilities[row, column]),
            }
        )
    return {"tokens": tokens}


def open_run(
    run_dir: Path, store_path: Path, checkpoint: Path | None = None
) -> tuple[Pair, PretrainConfig, TokenStore, Objective]:
    """A run at its newest checkpoint or the one named, with a held-out store and what the two are scored by. Raises UserError
    for a store of another tokenizer."""
    pair, config = load_run(run_dir, checkpoint)
    store = TokenStore.open(store_path)
    if tokenizer_hash(load_tokenizer(run_dir / "tokenizer")) != store.tokenizer_hash:
        raise UserError(
            f"{store_path}: another tokenizer made it than the run's; prepare it with --vocab {run_dir}/tokenizer"
        )
    objective = make_objective(
        config.objective, vocab_size=store.vocab_size, special=store.special, seed=config.train.seed
    )
    return pair, config, store, objective
