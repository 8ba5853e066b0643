"""How a run got better: the scores of each of its checkpoints on text and sentences that it was not trained on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from electra.config import DataConfig, ObjectiveConfig, PretrainConfig
from electra.data.shards import TokenStore
from electra.data.tokenizer import load_tokenizer
from electra.errors import UserError
from electra.evaluate.heldout import has_discriminator, pair_scores
from electra.evaluate.minimal_pairs import MinimalPair, read_pairs, score_pairs
from electra.evaluate.sentence_scores import Discriminator, MaskedLM, Scorer, naturalness, pseudo_log_likelihood
from electra.files import write_file
from electra.model.pair import Pair
from electra.objectives import make_objective
from electra.train.checkpoint import load_run, whole_checkpoints

ROW_LENGTH = 128
MASKED = ObjectiveConfig(mask_fraction=0.15, mask_share=1.0)
"""What every run is measured with, whatever it was trained with: fewer masks or longer rows would make the task easier, and a
run that changes them could not be compared."""
_MEASURE = (
    "2"  # raised when a score comes to mean something else, so that no curve mixes the two; 2: rows of whole words
)


@dataclasses.dataclass(frozen=True)
class Ruler:
    """What networks are measured against: a held-out store and, perhaps, minimal pairs."""

    heldout: TokenStore
    pairs: list[MinimalPair]
    identity: dict[str, str]
    """`heldout`: the store's fingerprint; `pairs`: hash of the pairs that are scored, empty without any."""

    @classmethod
    def open(cls, heldout: Path, pairs: Path | None = None, limit: int | None = 200) -> Ruler:
        """`pairs` as `read_pairs` takes them, of which `limit` of each paradigm are scored. Raises UserError for bad data."""
        store = TokenStore.open(heldout)
        if len(store.tokens) < 2 * ROW_LENGTH:
            raise UserError(f"{heldout}: {len(store.tokens)} tokens are too little text to measure on")
        chosen, digest = read_pairs(pairs, limit) if pairs is not None else ([], "")
        return cls(store, chosen, {"heldout": store.fingerprint, "pairs": digest})

    def check(self, store: TokenStore) -> None:
        """Raises UserError when the held-out store is of another tokenizer than the store to train on."""
        if store.tokenizer_hash != self.heldout.tokenizer_hash:
            raise UserError(
                f"{self.heldout.path}: another tokenizer made it than {store.path}; "
                f"prepare it with --vocab {store.tokenizer_dir}"
            )

    def measure(self, pair: Pair, config: PretrainConfig) -> dict[str, Any]:
        """The keys of `pair_scores`, and with pairs `minimal_pairs` and `phenomena`, of two networks on the CPU.

        Rows, masked positions and the noise behind the samples are the same for every pair of networks.
        """
        encoder = config.model.discriminator
        length = min(ROW_LENGTH, encoder.max_length) if encoder.blocks == "classic" else ROW_LENGTH
        config = dataclasses.replace(
            config,
            data=DataConfig(store=config.data.store, length=length),
            train=dataclasses.replace(config.train, seed=0),
        )
        # Every discriminator is measured as ELECTRA's; a main network that predicts tokens, by its own objective.
        masked = MASKED if has_discriminator(pair) else dataclasses.replace(MASKED, name=config.objective.name)
        objective = make_objective(
            masked, vocab_size=self.heldout.vocab_size, special=self.heldout.special, seed=config.train.seed
        )
        scores: dict[str, Any] = pair_scores(pair, config, self.heldout, objective)
        if self.pairs:
            network, scorer = _sentence_scorer(pair)
            scored = score_pairs(network, load_tokenizer(self.heldout.tokenizer_dir), self.pairs, scorer=scorer)
            scores |= {"minimal_pairs": scored.overall, "phenomena": scored.phenomena}
        return scores


def _sentence_scorer(pair: Pair) -> tuple[Discriminator | MaskedLM, Scorer]:
    if has_discriminator(pair):
        return Discriminator(pair.discriminator, pair.discriminator_head), naturalness
    return MaskedLM(pair.discriminator, pair.vocabulary_head), pseudo_log_likelihood


def curve(run_dir: Path, ruler: Ruler, *, say: Callable[[str], None] = lambda line: None) -> list[dict[str, Any]]:
    """One point for each whole checkpoint, oldest first: `step`, `tokens`, `flops`, `minutes` of training, and its measure.

    Points that were made before are taken from `<run>/curve.json`, whether or not their checkpoints are still there.
    """
    path, of = run_dir / "curve.json", {**ruler.identity, "measure": _MEASURE}
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    known = {point["step"]: point for point in earlier["points"]} if earlier.get("of") == of else {}
    for checkpoint, state in whole_checkpoints(run_dir):
        if state.step not in known:
            pair, config = load_run(run_dir, checkpoint)
            point = {"step": state.step, "tokens": state.tokens, "flops": state.flops, "minutes": state.seconds / 60.0}
            known[state.step] = point | ruler.measure(pair, config)
            say(describe(known[state.step]))
    points = [known[step] for step in sorted(known)]
    write_file(path, json.dumps({"of": of, "points": points}, indent=1))
    return points


def describe(point: dict[str, Any]) -> str:
    """One point in a line."""
    parts = []
    for name, label in (
        ("generator_loss", "generator loss"),
        ("mlm_loss", "MLM loss"),
        ("discriminator_auc", "discriminator AUC"),
        ("swapped_word_auc", "swapped word AUC"),
        ("minimal_pairs", "minimal pairs"),
    ):
        if point.get(name) is not None:
            parts.append(f"{label} {point[name]:.3f}")
    return f"{point['minutes']:.1f} min: {', '.join(parts)}"
