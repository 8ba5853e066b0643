"""A study: its candidates pre-trained at equal compute over several seeds, scored, tabled and drawn.

`<out>/study.json` says what it is of, so that the same command goes on with it and another one is refused. Runs are in
`<out>/runs/<candidate>-seed<k>/`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from electra.config import PretrainConfig, TrainConfig
from electra.config_files import to_dict
from electra.data.shards import TokenStore
from electra.errors import UserError
from electra.files import write_file
from electra.objectives import check_settings
from electra.studies.candidates import Candidate, Study, find_study
from electra.studies.grid import Failure, is_finished, run_grid, threads_each
from electra.studies.report import duration
from electra.studies.scoring import Measures, digest_of, score_run
from electra.studies.speed import operations_per_second
from electra.studies.study_report import as_text, write_study_report
from electra.studies.tables import Outcome
from electra.train.run import flops_of_step

SECONDS_BETWEEN_LINES = 60.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What will be run."""

    study: Study
    candidates: list[Candidate]
    budget_flops: float
    rates: dict[str, float]
    """Measured operations a second by candidate, each with its share of the cores."""
    seeds: list[int]
    parallel: int
    points: int
    """Checkpoints along each run, where the study's chart is of curves."""
    out: Path

    def runs(self) -> list[tuple[Candidate, int, PretrainConfig]]:
        """(candidate, seed, configuration), all candidates with the first seed first, so that a study that is stopped half way
        has something of each."""
        return [(candidate, seed, self._run(candidate, seed)) for seed in self.seeds for candidate in self.candidates]

    def _run(self, candidate: Candidate, seed: int) -> PretrainConfig:
        along = self.study.chart == "curves"
        minutes = self.budget_flops / self.rates[candidate.name] / 60.0
        train = dataclasses.replace(
            with_budget(candidate.config.train, self.budget_flops),
            seed=seed,
            eval_every=0,
            save_every=0,
            save_minutes=minutes / self.points if along else candidate.config.train.save_minutes,
            keep_checkpoints=10 * self.points if along else 1,
        )
        return dataclasses.replace(
            candidate.config, run_dir=self.out / "runs" / f"{candidate.name}-seed{seed}", train=train
        )

    def describe(self) -> str:
        """How many runs, how much compute, about how long."""
        open_runs = [(candidate, config) for candidate, _, config in self.runs() if not is_finished(config)]
        seconds = sum(self.budget_flops / self.rates[candidate.name] for candidate, _ in open_runs) / self.parallel
        return (
            f"{self.study.name}: {len(self.candidates)} candidates x {len(self.seeds)} seeds, {len(open_runs)} runs to do "
            f"of {self.budget_flops:.3g} FLOPs each, {len(open_runs) * self.budget_flops:.3g} in all; "
            f"pre-training takes about {duration(seconds)}, {self.parallel} at a time with {threads_each(self.parallel)} threads "
            f"each; start of each run and scoring come on top"
        )


def study(
    name: str,
    base: PretrainConfig,
    out: Path,
    *,
    measures: Measures,
    budget_flops: float | None = None,
    minutes: float | None = None,
    seeds: int = 1,
    points: int = 8,
    parallel: int = 1,
    plan_only: bool = False,
    say: Callable[[str], None] = print,
) -> Path | None:
    """Run the study `name` from the settings `base`; returns the path of `<out>/report.html` (None with `plan_only`).

    Every run has the same budget: `budget_flops`, or what the first candidate does in `minutes` on this machine, measured once.
    Writes `results.csv`, `tests.csv`, `report.html` and `plots/*.png|svg`. Stopped in between, the same call goes on. Raises
    UserError before any work for settings or data that do not fit, and in the end, with all else written, when runs failed.
    """
    if (budget_flops is None) == (minutes is None):
        raise UserError("give the budget of a run, either --budget-flops or --minutes")
    for field, value in (("seeds", seeds), ("points", points), ("parallel", parallel), ("limit", measures.limit)):
        if value is not None and value < 1:
            raise UserError(f"{field} is {value}: it must be at least 1")
    if (minutes if minutes is not None else budget_flops or 0.0) <= 0.0:
        raise UserError("the budget of a run must be above 0")
    found = find_study(name)
    store = _store(base)
    candidates = found.candidates(_with_vocabulary(base, store))
    for candidate in candidates:
        check_settings(candidate.config)
    if measures.pairs is None and not measures.tasks and base.data.heldout is None:
        raise UserError("there is nothing to score with: give --pairs, --tasks or --heldout")
    measures.check()
    plan = _plan(found, candidates, out, store, minutes, budget_flops, parallel, base.train.seed, seeds, points)
    say(plan.describe())
    if plan_only:
        return None
    failures = run_grid([config for _, _, config in plan.runs()], parallel, say=say, watch=_announcer(say))
    lines: list[dict[str, Any]] = []
    for candidate, seed, config in plan.runs():
        if not is_finished(config):
            continue
        along = candidate.starts_at * plan.budget_flops if found.chart == "curves" else None
        try:
            scored = score_run(config.run_dir, measures, from_flops=along)
        except (UserError, RuntimeError, OSError, ValueError) as error:  # of one run; the others are still worth having
            failures.append(Failure(config.run_dir, f"scoring: {' '.join(str(error).split())}"))
            continue
        lines += [{"candidate": candidate.name, "seed": seed} | line for line in scored]
        last = {line["metric"]: line["value"] for line in scored}
        say(f"{config.run_dir.name}: " + ", ".join(f"{metric} {value:.3f}" for metric, value in last.items()))
    outcome = Outcome(
        study=found,
        candidates=candidates,
        base=base,
        budget_flops=plan.budget_flops,
        lines=lines,
        failures=failures,
        configs={config.run_dir.name: config for _, _, config in plan.runs()},
        data={"store": store.fingerprint, **({"pairs": str(measures.pairs)} if measures.pairs else {})},
    )
    if not lines:
        raise UserError(f"every run failed, the first: {failures[0].run_dir.name}: {failures[0].reason}")
    report = write_study_report(outcome, out)
    say(as_text(outcome))
    if failures:
        raise UserError(
            f"{len(failures)} of {len(plan.runs())} runs failed, the first: {failures[0].run_dir.name}: {failures[0].reason} "
            f"(the others are in {report}; the same command tries the failed ones again)"
        )
    return report


def _announcer(say: Callable[[str], None]) -> Callable[[float], None]:
    """Says now and then how far the pre-training is."""
    began, last_said, first_share = time.monotonic(), time.monotonic(), math.nan

    def announce(share: float) -> None:
        nonlocal last_said, first_share
        first_share = share if math.isnan(first_share) else first_share
        now = time.monotonic()
        if now - last_said >= SECONDS_BETWEEN_LINES and share > first_share:
            last_said = now
            left = (now - began) * (1.0 - share) / (share - first_share)
            say(f"{share:.0%} of the pre-training done, about {duration(left)} left")

    return announce


def with_budget(train: TrainConfig, budget_flops: float) -> TrainConfig:
    """These operations as the only budget."""
    return dataclasses.replace(train, num_steps=None, num_tokens=None, num_minutes=None, num_flops=budget_flops)


def _store(base: PretrainConfig) -> TokenStore:
    """The store to train on, checked against the held-out one."""
    if base.data.store is None:
        raise UserError("no token store to train on: give --data STORE, made by `electra prepare`")
    store = TokenStore.open(base.data.store)
    if base.data.heldout is not None and TokenStore.open(base.data.heldout).tokenizer_hash != store.tokenizer_hash:
        raise UserError(
            f"{base.data.heldout}: another tokenizer made it than {store.path}; prepare it with --vocab {store.tokenizer_dir}"
        )
    return store


def _with_vocabulary(base: PretrainConfig, store: TokenStore) -> PretrainConfig:
    encoder = dataclasses.replace(base.model.discriminator, vocab_size=store.vocab_size)
    return dataclasses.replace(base, model=dataclasses.replace(base.model, discriminator=encoder))


def _plan(
    found: Study,
    candidates: list[Candidate],
    out: Path,
    store: TokenStore,
    minutes: float | None,
    budget_flops: float | None,
    parallel: int,
    first_seed: int,
    seeds: int,
    points: int,
) -> Plan:
    """Budget and rates, measured or, for a study that was begun before, read back."""
    path = out / "study.json"
    identity = {
        "study": found.name,
        "store": store.fingerprint,
        "minutes": minutes,
        "candidates": {candidate.name: digest_of(_settings(candidate)) for candidate in candidates},
    }
    if path.is_file():
        begun = json.loads(path.read_text(encoding="utf-8"))
        for key, value in identity.items():
            if begun.get(key) != value:
                raise UserError(f"{out}: holds a study with other {key}; choose another --out, or repeat its settings")
        if budget_flops is not None and budget_flops != begun["budget_flops"]:
            raise UserError(f"{out}: holds a study of {begun['budget_flops']:g} FLOPs a run; choose another --out")
    elif out.is_dir() and any(out.iterdir()):
        raise UserError(f"{out}: is not empty and holds no study; choose another --out")
    else:
        if budget_flops is not None:
            _check_budget(candidates, store, budget_flops)
        threads = threads_each(parallel)
        rates = {candidate.name: operations_per_second(candidate.config, threads) for candidate in candidates}
        budget = budget_flops or 60.0 * (minutes or 0.0) * rates[candidates[0].name]
        _check_budget(candidates, store, budget)
        begun = identity | {"budget_flops": budget, "rates": rates}
        write_file(path, json.dumps(begun, indent=1))
    return Plan(
        study=found,
        candidates=candidates,
        budget_flops=begun["budget_flops"],
        rates=begun["rates"],
        seeds=list(range(first_seed, first_seed + seeds)),
        parallel=parallel,
        points=points,
        out=out,
    )


def _settings(candidate: Candidate) -> dict[str, Any]:
    """What makes a run of this candidate what it is, the data's path and the budget apart."""
    settings = to_dict(candidate.config)
    return {group: settings[group] for group in ("model", "objective", "optimizer")} | {
        "length": candidate.config.data.length,
        "batch_size": candidate.config.train.batch_size,
    }


def _check_budget(candidates: list[Candidate], store: TokenStore, budget_flops: float) -> None:
    """Raises UserError when it does not pay for one step of every candidate."""
    for candidate in candidates:
        step = flops_of_step(candidate.config, store)
        if budget_flops < step:
            raise UserError(
                f"the budget of a run is {budget_flops:.3g} FLOPs: one step of {candidate.name} takes {step:.3g}; raise it"
            )
