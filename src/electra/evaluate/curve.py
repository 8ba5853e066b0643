"""How a run got better: the scores of each of its checkpoints on text and sentences that it was not trained on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from electra.data.tokenizer import load_tokenizer
from electra.evaluate.heldout import heldout_scores
from electra.evaluate.minimal_pairs import read_pairs, score_pairs
from electra.files import write_file
from electra.train.checkpoint import whole_checkpoints
from electra.train.export import load_run


def curve(
    run_dir: Path,
    heldout: Path,
    pairs: Path | None = None,
    *,
    limit: int | None = 200,
    say: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """One point for each whole checkpoint, oldest first: `step`, `tokens`, `flops`, `minutes` of training, the keys of
    `heldout_scores`, and `minimal_pairs` if `pairs` (see `read_pairs`) is given, of which `limit` of each paradigm are scored.

    Points that were made before are taken from `<run>/curve.json`, whether or not their checkpoints are still there.
    """
    chosen, digest = read_pairs(pairs, limit) if pairs is not None else ([], "")
    path = run_dir / "curve.json"
    identity = {"heldout": str(heldout), "pairs_sha256": digest}
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    known = {point["step"]: point for point in earlier.get("points", [])} if earlier.get("of") == identity else {}
    for checkpoint, state in whole_checkpoints(run_dir):
        if state.step not in known:
            point: dict[str, Any] = {
                "step": state.step,
                "tokens": state.tokens,
                "flops": state.flops,
                "minutes": state.seconds / 60.0,
                **heldout_scores(run_dir, heldout, checkpoint=checkpoint),
            }
            if chosen:
                pair, _ = load_run(run_dir, checkpoint)
                tokenizer = load_tokenizer(run_dir / "tokenizer")
                scored = score_pairs(pair.discriminator, pair.discriminator_head, tokenizer, chosen)
                point |= {"minimal_pairs": scored.overall, "phenomena": scored.phenomena}
            known[state.step] = point
            say(describe(point))
    points = [known[step] for step in sorted(known)]
    write_file(path, json.dumps({"of": identity, "points": points}, indent=1))
    return points


def describe(point: dict[str, Any]) -> str:
    """One point in a line."""
    parts = [f"{point['minutes']:.1f} min: generator loss {point['generator_loss']:.3f}"]
    for name, label in (
        ("discriminator_auc", "discriminator AUC"),
        ("swapped_word_auc", "swapped word AUC"),
        ("minimal_pairs", "minimal pairs"),
    ):
        if point.get(name) is not None:
            parts.append(f"{label} {point[name]:.3f}")
    return ", ".join(parts)
