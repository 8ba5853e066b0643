"""The figures of a study: one line a run and metric, mean and spread of each candidate, and how sure each difference is."""

from __future__ import annotations

import csv
import dataclasses
import io
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from electra.config import PretrainConfig
from electra.evaluate.significance import each_pair
from electra.studies.candidates import Candidate, Study
from electra.studies.grid import Failure
from electra.studies.scoring import AVERAGE, METRICS, PAIRS, metric

COLUMNS = ("study", "candidate", "seed", "step", "tokens", "flops", "minutes", "metric", "value")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came out of a study."""

    study: Study
    candidates: list[Candidate]
    base: PretrainConfig
    budget_flops: float
    lines: list[dict[str, Any]]
    """`COLUMNS` apart from the study, of every checkpoint that was scored."""
    failures: list[Failure]
    configs: dict[str, PretrainConfig]
    """By the name of the run's directory."""
    data: dict[str, str]
    """What it was trained and scored on."""

    @property
    def metrics(self) -> list[str]:
        """Those that there are, tasks and minimal pairs first."""
        there = {line["metric"] for line in self.lines}
        tasks = sorted(there - METRICS.keys())
        order = [AVERAGE, PAIRS, *tasks, *(name for name in METRICS if name not in (AVERAGE, PAIRS))]
        return [name for name in order if name in there]

    def final(self, name: str) -> dict[str, list[float]]:
        """A metric at the end of each candidate's runs, by candidate; those without any are left out."""
        last: dict[tuple[str, int], float] = {}
        for line in self.lines:  # in the order of the run
            if line["metric"] == name:
                last[line["candidate"], line["seed"]] = line["value"]
        values = {
            candidate.name: [value for (of, _), value in last.items() if of == candidate.name]
            for candidate in self.candidates
        }
        return {of: found for of, found in values.items() if found}

    def along(self, name: str) -> dict[str, list[list[tuple[float, float]]]]:
        """(operations, value) along each run of each candidate."""
        runs: dict[str, dict[int, list[tuple[float, float]]]] = {}
        for line in self.lines:
            if line["metric"] == name:
                of_seed = runs.setdefault(line["candidate"], {})
                of_seed.setdefault(line["seed"], []).append((line["flops"], line["value"]))
        return {of: list(by_seed.values()) for of, by_seed in runs.items()}


def as_csv(outcome: Outcome) -> str:
    """All lines."""
    return _csv(COLUMNS, [{"study": outcome.study.name} | line for line in outcome.lines])


@dataclasses.dataclass(frozen=True)
class Difference:
    """Welch's test of two candidates by one metric."""

    metric: str
    first: str
    second: str
    difference: float
    """Mean of the first minus mean of the second."""
    p: float | None
    """After Holm's correction over the pairs of this metric; None where one has a single seed."""


def differences(outcome: Outcome) -> list[Difference]:
    """Every pair of candidates by every metric that means the same for both."""
    found = []
    for name in outcome.metrics:
        if not is_comparable(outcome, name):
            continue
        scores = outcome.final(name)
        for (first, second), p in each_pair(scores).items():
            difference = statistics.fmean(scores[first]) - statistics.fmean(scores[second])
            found.append(Difference(name, first, second, difference, p))
    return found


def is_comparable(outcome: Outcome, name: str) -> bool:
    """Whether a metric means the same for every candidate: some depend on the objective and on its generator, which only
    weight-sharing leaves alike."""
    of = metric(name)
    shapes = {(c.config.objective.name, c.config.model.generator_encoder()) for c in outcome.candidates}
    return of.comparable or len(shapes) == 1


def differences_as_csv(found: Sequence[Difference]) -> str:
    """One line a pair and metric."""
    return _csv([field.name for field in dataclasses.fields(Difference)], [dataclasses.asdict(test) for test in found])


def verdict(p: float | None) -> str:
    """A p-value in words."""
    if p is None:
        return "one seed proves nothing"
    shown = "< 0.001" if p < 0.001 else f"= {p:.3f}"
    return f"p {shown}, {'a difference' if p < 0.05 else 'no sure difference'}"


def _csv(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
