"""The losses of short runs, kept in `tests/golden/`: a change that should not alter numbers must not alter these.

`ELECTRA_WRITE_GOLDEN=1 make test` writes them anew; do that only for a change that is meant to alter them.
"""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from conftest import fitting_model, small_model
from electra.config import ObjectiveConfig
from electra.objectives import OBJECTIVES
from electra.train.loop import pretrain
from electra.train.metrics import read_metrics

GOLDEN = Path(__file__).parent.parent / "golden"
NAMES = (
    "generator_loss", "generator_accuracy", "discriminator_loss", "discriminator_auc", "mlm_loss", "mlm_accuracy",
    "masked_loss", "gradient_norm",
)  # fmt: skip
# Counts of few tokens, and what one other sample in a step changes: another processor rounds otherwise.
JUMPY = ("generator_accuracy", "discriminator_auc", "mlm_accuracy", "gradient_norm")
# The optimizers are no business of the objectives: both with electra, AdamW with the rest.
CASES = [("electra", "muon"), *((name, "adamw") for name in sorted(OBJECTIVES))]


@pytest.mark.parametrize("blocks", ["classic", "modern"])
@pytest.mark.parametrize(("objective", "optimizer"), CASES)
def test_losses_are_the_kept_ones(run_config, objective, blocks, optimizer):
    config = dataclasses.replace(
        run_config,
        model=fitting_model(objective, blocks, dropout=0.0),  # torch's dropout draws differently on other processors
        objective=ObjectiveConfig(name=objective),
        # Adam's first steps are signs of gradients, rounding noise included: a large epsilon keeps processors together.
        optimizer=dataclasses.replace(run_config.optimizer, name=optimizer, peak_learning_rate=1e-3, epsilon=1e-3),
        train=dataclasses.replace(run_config.train, num_steps=12, log_every=3),
    )
    pretrain(config, quiet=True)
    lines = read_metrics(config.run_dir / "metrics.jsonl")
    curve = [{name: line[name] for name in ("step", *NAMES) if name in line} for line in lines]
    path = GOLDEN / f"{objective}-{blocks}-{optimizer}.json"
    if os.environ.get("ELECTRA_WRITE_GOLDEN"):
        path.write_text(json.dumps(curve, indent=1) + "\n")
    kept = json.loads(path.read_text())
    assert [line["step"] for line in curve] == [3, 6, 9, 12]
    for line, expected in zip(curve, kept, strict=True):
        assert line.keys() == expected.keys()
        for name in line:
            if expected[name] is None:  # an AUC without a replaced token
                assert line[name] is None
                continue
            tolerance = {"rel": 0.05, "abs": 0.03} if name in JUMPY else {"rel": 0.01, "abs": 0.0}
            assert line[name] == pytest.approx(expected[name], **tolerance), (line["step"], name)


@pytest.mark.parametrize("blocks", ["classic", "modern"])
def test_bfloat16_autocast_follows_float32(run_config, blocks):
    """Emulated on most processors, so slow; but the path is the one of machines that have the units."""
    curves = {}
    for precision in ("float32", "bfloat16"):
        config = dataclasses.replace(
            run_config,
            run_dir=run_config.run_dir / precision,
            model=small_model(blocks, dropout=0.0),
            train=dataclasses.replace(run_config.train, num_steps=20, log_every=10, precision=precision),
        )
        pretrain(config, quiet=True)
        curves[precision] = [line["generator_loss"] for line in read_metrics(config.run_dir / "metrics.jsonl")]
    assert curves["bfloat16"] == pytest.approx(curves["float32"], rel=0.02)
    assert curves["bfloat16"] != curves["float32"]
