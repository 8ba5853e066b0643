"""What each study of the paper compares: its question, its candidates, and what the paper found. Pure: nothing runs here.

A new study is a function and a line in `STUDIES`.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable
from typing import Any, Literal

from electra.config import ObjectiveConfig, PretrainConfig
from electra.config_files import from_dict
from electra.errors import UserError
from electra.objectives import unused_settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to pre-train, to be run with several seeds."""

    name: str
    """Part of its run directories' names."""
    config: PretrainConfig
    line: str = ""
    """The line of the chart that it is a point of, where the chart has lines."""
    x: float | None = None
    """Where on that line."""
    paper: float | None = None
    """The paper's figure for it."""

    @property
    def starts_at(self) -> float:
        """Share of the budget before which its main network is not trained, and scores along the run say nothing."""
        objective = self.config.objective
        return {"two-stage": objective.two_stage_switch}.get(objective.name, objective.discriminator_start)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """One chart of the paper."""

    name: str
    question: str
    finding: str
    """What the paper found, with its place."""
    candidates: Callable[[PretrainConfig], list[Candidate]]
    chart: Literal["bars", "lines", "curves"]
    """One bar a candidate; one line a group against `x`; or each candidate's scores against operations, along its runs."""
    x_label: str = ""
    reference: str = ""
    """The candidate that bars are the difference from."""


def with_settings(base: PretrainConfig, **groups: dict[str, Any]) -> PretrainConfig:
    """`base` with other settings. Of the objective, those that it has no use for go back to their defaults."""
    config = from_dict(PretrainConfig, groups, base)
    unused = unused_settings(config.objective)
    defaults: dict[str, Any] = {
        field.name: field.default for field in dataclasses.fields(ObjectiveConfig) if field.name in unused
    }
    return dataclasses.replace(config, objective=dataclasses.replace(config.objective, **defaults))


def _efficiency(base: PretrainConfig) -> list[Candidate]:
    paper = {"electra": 85.0, "all-tokens-mlm": 84.3, "replace-mlm": 82.4, "electra-15": 82.4, "bert": 82.2}
    return [
        Candidate(name=name, config=with_settings(base, objective={"name": name}), paper=score)
        for name, score in paper.items()
    ]


def _weight_sharing(base: PretrainConfig) -> list[Candidate]:
    """At equal sizes, so that every weight can be shared."""
    paper = {"none": 83.6, "embeddings": 84.3, "all": 84.4}
    equal = {"width": 1.0, "depth": 1.0}
    return [
        Candidate(name=tying, config=with_settings(base, model={"tying": tying, "generator": equal}), paper=score)
        for tying, score in paper.items()
    ]


def _generator_size(base: PretrainConfig) -> list[Candidate]:
    """Main networks of the base's width and of half of it, each with generators from a quarter of the width to twice."""
    encoder = base.model.discriminator
    found = []
    for share in (0.5, 1.0):
        heads = max(1, round(encoder.num_heads * share))
        main = {
            "hidden_size": round(encoder.hidden_size * share),
            "embedding_size": round(encoder.embedding_size * share),
            "intermediate_size": round(encoder.intermediate_size * share),
            "num_heads": heads,
            "neighbour_heads": min(encoder.neighbour_heads, heads),
        }
        line = f"main network {main['hidden_size']} wide"
        unigram = with_settings(base, objective={"generator": "unigram"}, model={"discriminator": main})
        found.append(Candidate(name=f"main-{main['hidden_size']}-unigram", config=unigram, line=line, x=0.0))
        for width in (0.25, 0.5, 1.0, 2.0):
            config = with_settings(base, model={"discriminator": main, "generator": {"width": width}})
            size = config.model.generator_encoder().hidden_size
            name = f"main-{main['hidden_size']}-generator-{size}"
            found.append(Candidate(name=name, config=config, line=line, x=float(size)))
    return found


def _compute(base: PretrainConfig) -> list[Candidate]:
    """The two-stage runs have a generator as large as the main network, as the switch needs it. Where it is frozen afterwards
    (the paper's way; `objective.two_stage_freeze: false` trains it on) the two share nothing."""
    freeze = base.objective.two_stage_freeze
    two_stage = {"generator": {"width": 1.0, "depth": 1.0}, "tying": "none" if freeze else base.model.tying}
    return [
        Candidate(name="electra", config=with_settings(base, objective={"name": "electra"})),
        Candidate(name="adversarial", config=with_settings(base, objective={"name": "adversarial"})),
        *(
            Candidate(
                name=f"two-stage-{round(100 * share)}",
                config=with_settings(base, objective={"name": "two-stage", "two_stage_switch": share}, model=two_stage),
            )
            for share in (0.25, 0.5, 0.75)
        ),
        Candidate(name="bert", config=with_settings(base, objective={"name": "bert"})),
    ]


STUDIES = {
    study.name: study
    for study in (
        Study(
            name="efficiency",
            question="Where does the gain over BERT come from?",
            finding="Learning from all tokens instead of 15% is most of it, no [MASK] in the input a little (table 5: GLUE 85.0, "
            "84.3, 82.4, 82.4, 82.2).",
            candidates=_efficiency,
            chart="bars",
            reference="bert",
        ),
        Study(
            name="weight-sharing",
            question="What should generator and discriminator share?",
            finding="Sharing the embeddings gives most of the gain (section 3.2: GLUE 83.6 without, 84.3 with the embeddings, "
            "84.4 with all weights).",
            candidates=_weight_sharing,
            chart="bars",
            reference="none",
        ),
        Study(
            name="generator-size",
            question="How large should the generator be?",
            finding="A quarter to a half of the main network; larger ones are too hard to tell from text (figure 3, left).",
            candidates=_generator_size,
            chart="lines",
            x_label="width of the generator",
        ),
        Study(
            name="compute",
            question="Joint, adversarial or two-stage, or BERT, at equal compute?",
            finding="Joint training is best all along; two-stage catches up after the switch; adversarial training is above BERT "
            "and below ELECTRA (figure 3, right).",
            candidates=_compute,
            chart="curves",
            reference="bert",
        ),
    )
}


def find_study(name: str) -> Study:
    """Raises UserError, with the nearest name, when there is none."""
    if name not in STUDIES:
        nearest = difflib.get_close_matches(name, STUDIES, n=1, cutoff=0.0)[0]
        raise UserError(f"the study is {name!r}: did you mean {nearest!r}? Known: {', '.join(STUDIES)}")
    return STUDIES[name]
