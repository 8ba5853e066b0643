"""The suite of pre-training: a run on a held-out store, with the calibration of its discriminator."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure

from electra.errors import UserError
from electra.evaluate.calibration import calibration, reliability
from electra.evaluate.heldout import discriminator_probabilities, has_discriminator, open_run, pair_scores
from electra.evaluate.pictures import reliability_picture
from electra.evaluate.request import Found, Request, weights
from electra.train.checkpoint import newest_checkpoint

MAX_ROWS = 4_000


def pretraining_suite(request: Request) -> Found:
    """The keys of `pair_scores` and, where there is a discriminator, `calibration`."""
    checkpoint = newest_checkpoint(request.model)
    pair, config, store, objective = open_run(request.model, request.data, checkpoint)
    assert checkpoint is not None, "open_run refuses a run without one"
    rows: dict[str, Any] = {"max_rows": request.limit or MAX_ROWS, "seed": request.seed}
    scores: dict[str, Any] = {**pair_scores(pair, config, store, objective, **rows)}
    more: dict[str, Any] = {"run_seed": config.train.seed, "objective": config.objective.name}
    draw: Callable[[], Figure] = _nothing_to_draw
    if has_discriminator(pair):
        probabilities, is_replaced = discriminator_probabilities(pair, config, store, objective, **rows)
        scores["calibration"] = calibration(probabilities, is_replaced)
        more["reliability"] = reliability(probabilities, is_replaced)
        draw = functools.partial(reliability_picture, more["reliability"], scores["calibration"])
    return Found(scores=scores, data_sha256=store.fingerprint, model_sha256=weights(checkpoint), more=more, draw=draw)


def _nothing_to_draw() -> Figure:
    raise UserError("the run has no discriminator, so there is no reliability curve; leave --png out")
