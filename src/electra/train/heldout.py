"""The training objective's own scores on text that is not trained on."""

from __future__ import annotations

import torch

from electra.data.loader import BatchLoader
from electra.model.pair import Pair
from electra.objectives.base import Objective
from electra.train.metrics import Totals
from electra.train.run import Run


@torch.no_grad()
def heldout_scores(run: Run, pair: Pair, objective: Objective, progress: float = 1.0) -> dict[str, float]:
    """Means over up to `train.eval_batches` batches of the held-out store, each row at most once.

    The rows, their masked positions and the uniform numbers behind the samples are the same each time. Every rank runs
    the same batches, so no exchange is needed.
    """
    config, rows = run.config, run.heldout_rows
    batch_size = min(config.train.batch_size, len(rows), 64)
    num_batches = min(config.train.eval_batches, len(rows) // batch_size)
    totals = Totals()
    was_training = pair.training
    pair.eval()
    with BatchLoader(rows, batch_size=batch_size, seed=config.train.seed) as loader:
        for _ in range(num_batches):
            corrupted = objective.corrupt(next(loader))
            with torch.autocast(run.device.type, run.precision, enabled=run.precision != torch.float32):
                totals.add(objective.step(pair, corrupted.to(run.device), corrupted.counts, progress))
    pair.train(was_training)
    return totals.means(over_ranks=False)
