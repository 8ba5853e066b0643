"""Training objectives by name. A new one is a file here and a line in `OBJECTIVES`; the tests run over the registry."""

import difflib
from collections.abc import Callable

from electra.config import ObjectiveConfig
from electra.data.tokenizer import SpecialIds
from electra.errors import UserError
from electra.objectives.base import Objective
from electra.objectives.replaced_token import ReplacedToken

OBJECTIVES: dict[str, Callable[..., Objective]] = {
    "electra": ReplacedToken,
}


def make_objective(config: ObjectiveConfig, *, vocab_size: int, special: SpecialIds, seed: int) -> Objective:
    """The objective that `config.name` names. Raises UserError, with the nearest name, when there is none."""
    if config.name not in OBJECTIVES:
        nearest = difflib.get_close_matches(config.name, OBJECTIVES, n=1, cutoff=0.0)[0]
        raise UserError(
            f"objective.name is {config.name!r}: did you mean {nearest!r}? Known: {', '.join(sorted(OBJECTIVES))}"
        )
    return OBJECTIVES[config.name](config, vocab_size=vocab_size, special=special, seed=seed)
