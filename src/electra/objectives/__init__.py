"""Training objectives by name. A new one is a file here and a line in `OBJECTIVES`; the tests run over the registry."""

import dataclasses
import difflib
import functools

from electra.config import ModelConfig, ObjectiveConfig, PretrainConfig
from electra.data.tokenizer import SpecialIds
from electra.errors import UserError
from electra.model.pair import Pair, Parts
from electra.objectives.base import Objective, ObjectiveClass
from electra.objectives.corruption import corrupt
from electra.objectives.replaced_token import ReplacedToken, ReplacedTokenAtMasked
from electra.objectives.token_prediction import AllTokensMlm, Bert, ReplaceMlm

OBJECTIVES: dict[str, ObjectiveClass] = {
    "electra": ReplacedToken,
    "electra-15": ReplacedTokenAtMasked,
    "bert": Bert,
    "replace-mlm": ReplaceMlm,
    "all-tokens-mlm": AllTokensMlm,
}


def objective_class(name: str) -> ObjectiveClass:
    """The entry of the registry. Raises UserError, with the nearest name, when there is none."""
    if name not in OBJECTIVES:
        nearest = difflib.get_close_matches(name, OBJECTIVES, n=1, cutoff=0.0)[0]
        raise UserError(f"objective.name is {name!r}: did you mean {nearest!r}? Known: {', '.join(sorted(OBJECTIVES))}")
    return OBJECTIVES[name]


def make_objective(config: ObjectiveConfig, *, vocab_size: int, special: SpecialIds, seed: int) -> Objective:
    """The objective that `config.name` names. Raises UserError, with the nearest name, when there is none."""
    masking = functools.partial(corrupt, config=config, vocab_size=vocab_size, special=special, seed=seed)
    return objective_class(config.name)(config, masking)


def make_pair(model: ModelConfig, objective: ObjectiveConfig) -> Pair:
    """New networks with the heads that the objective needs, and no others. Raises UserError for an unknown objective."""
    return Pair(model, parts_of(objective))


def parts_of(objective: ObjectiveConfig) -> Parts:
    """What the objective needs of a pair. Raises UserError for an unknown objective."""
    return objective_class(objective.name).parts


def check_settings(config: PretrainConfig) -> None:
    """Raises UserError for an unknown objective and for a setting that the objective cannot use."""
    objective = config.objective
    defaults = {field.name: field.default for field in dataclasses.fields(objective)}
    for name in objective_class(objective.name).unused:
        if getattr(objective, name) != defaults[name]:
            raise UserError(
                f"objective.{name} is {getattr(objective, name)!r}: {objective.name} has no use for it; "
                f"leave it at {defaults[name]!r}"
            )
    if config.init_from is not None and parts_of(objective).main_head != "replaced-token":
        raise UserError(
            f"init_from is {config.init_from}: going on from trained weights needs a replaced-token head, which "
            f"{objective.name} has not; choose objective.name electra, or leave init_from out"
        )
