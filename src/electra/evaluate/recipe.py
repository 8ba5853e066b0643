"""Which learning rate, layer decay and number of epochs a network of some size is fine-tuned with when nobody says.

Source: Clark et al. 2020, table 7 ("Fine-tune hyperparameters"), the figures for ELECTRA-Small, -Base and -Large. The paper has
nothing smaller than Small; the row `tiny` is ours.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, TypeVar

from electra.config import EncoderConfig
from electra.config_finetune import TuningConfig

Config = TypeVar("Config", bound=TuningConfig)
EPOCHS = 3.0
"""Of every task that does not say otherwise (table 7: 10 for RTE and STS-B, 2 for SQuAD, 3 for other tasks)."""


class Recipe(NamedTuple):
    """What suits networks of one size."""

    size: str
    widest: float
    """Largest hidden size that counts as this size."""
    peak_learning_rate: float
    layer_decay: float
    source: str


RECIPES = (
    Recipe("tiny", 160, 1e-3, 0.9, "ours"),
    Recipe("small", 384, 3e-4, 0.8, "paper, table 7"),
    Recipe("base", 896, 1e-4, 0.8, "paper, table 7"),
    Recipe("large", float("inf"), 5e-5, 0.9, "paper, table 7"),
)


def filled_in(config: Config, encoder: EncoderConfig, epochs: float = EPOCHS) -> tuple[Config, dict[str, Any]]:
    """The settings without open ends, and a record of what was used and who says so: for each hyper-parameter its `value` and
    whether it is `from` the caller, the paper, or us."""
    recipe = next(recipe for recipe in RECIPES if encoder.hidden_size <= recipe.widest)
    chosen = {
        "num_epochs": (epochs, "paper, table 7"),
        "peak_learning_rate": (recipe.peak_learning_rate, f"{recipe.source}, {recipe.size}"),
        "layer_decay": (recipe.layer_decay, f"{recipe.source}, {recipe.size}"),
    }
    values = {name: value for name, (value, _) in chosen.items() if getattr(config, name) is None}
    used = {
        name: {"value": values.get(name, getattr(config, name)), "from": source if name in values else "given"}
        for name, (_, source) in chosen.items()
    }
    changed: dict[str, Any] = values
    return dataclasses.replace(config, **changed), used
