"""The command that scores models."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

from electra.cli.arguments import Model
from electra.config_finetune import TuningConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Score a model, without labels or on all tasks of GLUE.

    minimal-pairs: the share of sentence pairs (BLiMP's .jsonl, a directory or a .tar of them) of which the model finds the
    right one more natural. pretraining: generator and discriminator of a run on a held-out store, and how well the
    discriminator's probabilities are calibrated. probe: frozen features of every checkpoint of a run, to see early that it
    goes wrong. glue: fine-tune on each task that is there.
    """

    model: Model
    suite: Literal["glue", "minimal-pairs", "pretraining", "probe"]
    data: Path
    """The pairs; the token store; for the probe a token store or a labelled file; the folder of GLUE's files (or hf:NAME)."""
    limit: int | None = None
    """Score only so many pairs of each paradigm, rows of the store, texts of the probe; glue: train on so many examples of
    each task."""
    score: Literal["auto", "discriminator", "pll", "pll-within-word"] = "auto"
    """Of a sentence: the discriminator's, or a masked LM's pseudo-log-likelihood (of a run, its generator's); auto takes the
    discriminator where there is one."""
    text_column: str = "text"
    """probe: columns of the labelled file."""
    text_pair_column: str | None = None
    label_column: str = "label"
    seed: int = 0
    device: str = "auto"
    png: Path | None = None
    """File for a picture: accuracies by phenomenon, the reliability curve, scores against steps."""
    seeds: int = 1
    """glue: runs of each task."""
    num_epochs: float | None = None
    """glue: passes over the training examples; left out, the paper's."""
    max_length: int = 128
    """glue: word pieces at which texts are cut."""
    random_weights: bool = False
    """glue: start from random weights, to see what pre-training gave."""
    predict_test: bool = False
    """glue: write the leaderboard's files, too."""
    out: Path = Path("glue-results")
    """glue: directory for the models, glue.json and the table glue.md."""
    json: Path | None = None
    """File for the result, with the command, versions, seed and hashes of data and weights."""

    def run(self) -> None:
        if self.suite == "glue":
            return self.finetune_all()
        from electra.evaluate.suites import evaluate

        names = ("limit", "score", "text_column", "text_pair_column", "label_column", "seed", "device", "png")
        settings = {name: getattr(self, name) for name in names}
        evaluate(self.model, self.suite, self.data, out=self.json, say=print, **settings)

    def finetune_all(self) -> None:
        from electra.evaluate.glue_suite import glue_suite

        names = ("out", "seeds", "seed", "num_epochs", "max_length", "random_weights", "device")
        tuning = TuningConfig(max_train_examples=self.limit, **{name: getattr(self, name) for name in names})
        glue_suite(self.model, str(self.data), tuning, predict_test=self.predict_test, json_file=self.json)
