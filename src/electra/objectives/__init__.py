"""Training objectives by name. A new one is a file here and a line in `OBJECTIVES`; the tests run over the registry."""

import dataclasses
import difflib
import functools

from electra.config import ModelConfig, ObjectiveConfig, PretrainConfig
from electra.data.tokenizer import SpecialIds
from electra.errors import UserError
from electra.model.pair import Pair, Parts
from electra.objectives.adversarial import Adversarial
from electra.objectives.base import Objective, ObjectiveClass
from electra.objectives.corruption import corrupt
from electra.objectives.replaced_token import ReplacedToken, ReplacedTokenAtMasked
from electra.objectives.token_prediction import AllTokensMlm, Bert, ReplaceMlm
from electra.objectives.two_stage import TwoStage

OBJECTIVES: dict[str, ObjectiveClass] = {
    "electra": ReplacedToken,
    "electra-15": ReplacedTokenAtMasked,
    "bert": Bert,
    "replace-mlm": ReplaceMlm,
    "all-tokens-mlm": AllTokensMlm,
    "adversarial": Adversarial,
    "two-stage": TwoStage,
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
    parts = objective_class(objective.name).parts
    if parts.generator and objective.generator != "network":
        return dataclasses.replace(parts, generator=False, frequencies=objective.generator)
    return parts


def unused_settings(objective: ObjectiveConfig) -> tuple[str, ...]:
    """The settings that this objective, with this kind of generator, has no use for."""
    of_networks = ("generator_weight", "temperature", "discriminator_start")
    return objective_class(objective.name).unused + (of_networks if objective.generator != "network" else ())


def check_settings(config: PretrainConfig) -> None:
    """Raises UserError for an unknown objective and for settings that the objective cannot use or that do not fit it."""
    objective = config.objective
    defaults = {field.name: field.default for field in dataclasses.fields(objective)}
    for name in unused_settings(objective):
        if getattr(objective, name) != defaults[name]:
            kind = "" if objective.generator == "network" else f" with a {objective.generator} generator"
            raise UserError(
                f"objective.{name} is {getattr(objective, name)!r}: {objective.name}{kind} has no use for it; "
                f"leave it at {defaults[name]!r}"
            )
    for check in objective_class(objective.name).checks:
        check(config)
