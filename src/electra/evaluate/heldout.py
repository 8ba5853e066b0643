"""What a pair of networks knows of text that it was not trained on, without any labels.

Shapes: B batch, L length.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from electra.config import PretrainConfig
from electra.data.loader import BatchLoader
from electra.data.packing import make_rows
from electra.data.shards import TokenStore
from electra.data.tokenizer import load_tokenizer, tokenizer_hash
from electra.errors import UserError
from electra.evaluate.detect import replaced_probabilities
from electra.model.pair import Pair
from electra.objectives import make_objective
from electra.objectives.base import Objective
from electra.objectives.mlm import run_generator
from electra.objectives.replaced_token import put_samples
from electra.train.checkpoint import load_run
from electra.train.metrics import Totals

_ROWS_AT_ONCE = 64


def heldout_scores(
    run_dir: Path, store_path: Path, *, checkpoint: Path | None = None, max_rows: int = 4_000, seed: int = 0
) -> dict[str, float | None]:
    """Scores of a run, at its newest checkpoint or the one named, on a held-out store of the same tokenizer."""
    pair, config, store, objective = _open(run_dir, store_path, checkpoint)
    return pair_scores(pair, config, store, objective, max_rows=max_rows, seed=seed)


def pair_scores(
    pair: Pair, config: PretrainConfig, store: TokenStore, objective: Objective, *, max_rows: int = 4_000, seed: int = 0
) -> dict[str, float | None]:
    """Scores of two networks on a held-out store.

    `generator_loss`, `generator_accuracy`, `discriminator_loss`, `discriminator_auc`, `_precision`, `_recall` at the
    generator's own replacements; `most_frequent_share`, the accuracy of always guessing the commonest token; and the keys
    of `swapped_words`. None where a score is not defined (the precision of a discriminator that calls nothing replaced).
    """
    rows = make_rows(store, config.data.length, config.data.layout, config.train.seed)
    totals = Totals()
    with BatchLoader(rows, batch_size=min(_ROWS_AT_ONCE, len(rows)), seed=seed) as loader, torch.inference_mode():
        for _ in range(max(1, min(max_rows, len(rows)) // _ROWS_AT_ONCE)):
            corrupted = objective.corrupt(next(loader))
            totals.add(objective.step(pair, corrupted, corrupted.counts))
    scores = totals.means(over_ranks=False)
    counts = np.bincount(store.tokens, minlength=store.vocab_size)
    counts[[store.special.cls, store.special.sep, store.special.pad, store.special.mask]] = 0
    scores["most_frequent_share"] = float(counts.max() / counts.sum())
    reference = TokenStore.open(config.data.store) if config.data.store is not None else store
    scores |= swapped_words(pair, store, reference, seed=seed)
    return {name: value if math.isfinite(value) else None for name, value in scores.items()}


def swapped_words(
    pair: Pair, store: TokenStore, reference: TokenStore, *, length: int = 48, num_rows: int = 1_000, seed: int = 0
) -> dict[str, float]:
    """Can the discriminator find one word that was swapped for another of like frequency?

    Rows of `length` held-out word pieces; in each, one whole word becomes another whose count in the reference store lies
    in the same power of two. A word is as suspect as its most suspect piece. `swapped_word_auc` ranks all swapped words
    against all others; `swapped_word_found` is the share of rows in which the swapped word is the most suspect one, and
    `swapped_word_chance` what guessing would give.
    """
    tokenizer = load_tokenizer(store.tokenizer_dir)
    continues = np.array([piece.startswith("##") for piece in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))])
    is_word = np.array([_is_word(piece) for piece in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))])
    bins = _frequency_bins(np.asarray(reference.tokens[:5_000_000]), continues, is_word)
    draw = np.random.Generator(np.random.Philox(seed))
    rows: list[NDArray[np.int64]] = []
    swapped: list[int] = []
    for start in draw.permutation(max(1, len(store.tokens) // length - 1))[: 4 * num_rows] * length:
        ids = np.asarray(store.tokens[start : start + length]).astype(np.int64)
        ids = ids[ids != store.special.sep]
        words = [word for word in _words(ids, continues) if is_word[ids[word.start]]]
        candidates = [word for word in words if len(bins.of(tuple(ids[word].tolist()))) > 1]
        if len(words) < 5 or not candidates:
            continue
        chosen = candidates[draw.integers(len(candidates))]
        original = tuple(ids[chosen].tolist())
        others = [word for word in bins.of(original) if word != original]
        replacement = others[draw.integers(len(others))]
        ids = np.concatenate([ids[: chosen.start], replacement, ids[chosen.stop :]])
        rows.append(ids)
        swapped.append(chosen.start)
        if len(rows) == num_rows:
            break
    if not rows:
        raise UserError(f"{store.path}: too little text to swap words in")
    scores, labels, found, chance = [], [], 0, 0.0
    pair.eval()
    for at in range(0, len(rows), _ROWS_AT_ONCE):
        part = rows[at : at + _ROWS_AT_ONCE]
        judged = replaced_probabilities(
            pair.discriminator, pair.discriminator_head, tokenizer, [row.tolist() for row in part]
        )
        for ids, probability, first in zip(part, judged, swapped[at : at + _ROWS_AT_ONCE], strict=True):
            words = [word for word in _words(ids, continues) if is_word[ids[word.start]]]
            row = [float(probability[word].max()) for word in words]
            target = [word.start == first for word in words]
            found += int(target[int(np.argmax(row))])
            chance += 1.0 / len(row)
            scores += row
            labels += target
    return {
        "swapped_word_auc": float(roc_auc_score(labels, scores)),
        "swapped_word_found": found / len(rows),
        "swapped_word_chance": chance / len(rows),
        "swapped_word_rows": len(rows),
    }


@torch.inference_mode()
def corrupted_sentence(run_dir: Path, store_path: Path, *, seed: int = 0, length: int = 40) -> dict[str, Any]:
    """A held-out passage with the generator's replacements and the discriminator's verdicts, to be looked at.

    Of a few passages with two to six replacements the first in the shuffled order is taken: not the prettiest one.
    Returns `tokens`: for each its text as shown, the original, whether it was replaced, and the probability.
    """
    pair, config, store, objective = _open(run_dir, store_path)
    tokenizer = load_tokenizer(store.tokenizer_dir)
    rows = make_rows(store, length, "dense", config.train.seed)
    with BatchLoader(rows, batch_size=min(16, len(rows)), seed=seed) as loader:
        batch = next(loader)
    corrupted = objective.corrupt(batch)
    replaced_ids, is_replaced = put_samples(
        corrupted, run_generator(pair, corrupted, config.objective.temperature, 1.0).samples
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


# ------------------------------------------------------------------------------------------------------------ pieces


def _open(
    run_dir: Path, store_path: Path, checkpoint: Path | None = None
) -> tuple[Pair, PretrainConfig, TokenStore, Objective]:
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


def _is_word(piece: str) -> bool:
    return piece.isalpha() and not piece.startswith("[")


def _words(ids: NDArray[np.int64], continues: NDArray[np.bool_]) -> list[slice]:
    """Each word's pieces as a slice; pieces that go on a word from before the row are left out."""
    starts = np.flatnonzero(~continues[ids])
    return [slice(int(a), int(b)) for a, b in zip(starts, [*starts[1:], len(ids)], strict=True)]


@dataclasses.dataclass(frozen=True)
class _Bins:
    """Words (as tuples of pieces) by the power of two of their count."""

    bin_of: dict[tuple[int, ...], int]
    members: dict[int, list[tuple[int, ...]]]

    def of(self, word: tuple[int, ...]) -> list[tuple[int, ...]]:
        """All words of like frequency; none for a word that the reference does not have."""
        return self.members.get(self.bin_of.get(word, -1), [])


def _frequency_bins(
    tokens: NDArray[Any], continues: NDArray[np.bool_], is_word: NDArray[np.bool_], least: int = 8
) -> _Bins:
    counts: dict[tuple[int, ...], int] = {}
    ids = tokens.tolist()
    starts = np.flatnonzero(~continues[tokens]).tolist()
    for a, b in zip(starts, [*starts[1:], len(ids)], strict=True):
        if not is_word[ids[a]]:
            continue
        word = tuple(ids[a:b])
        counts[word] = counts.get(word, 0) + 1
    bin_of = {word: count.bit_length() for word, count in counts.items() if count >= least}
    members: dict[int, list[tuple[int, ...]]] = {}
    for word, index in bin_of.items():
        members.setdefault(index, []).append(word)
    return _Bins(bin_of, members)
