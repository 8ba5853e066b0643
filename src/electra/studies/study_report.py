"""A study's directory: `results.csv`, `tests.csv`, `plots/` and one self-contained page, `report.html`."""

from __future__ import annotations

import dataclasses
import datetime
import platform
import shlex
import statistics
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from electra.evaluate.results import provenance
from electra.files import write_directory, write_file
from electra.studies.candidates import Candidate
from electra.studies.grid import command_of
from electra.studies.plots import charts
from electra.studies.report import count, data_uri, render
from electra.studies.scoring import metric
from electra.studies.speedrun import changes, commit, machine, with_spread
from electra.studies.tables import Outcome, as_csv, differences, differences_as_csv, is_comparable, verdict


def write_study_report(outcome: Outcome, out: Path) -> Path:
    """Write everything anew from the outcome; returns the page's path."""
    figures = charts(outcome)
    compared = differences(outcome)
    write_file(out / "results.csv", as_csv(outcome))
    write_file(out / "tests.csv", differences_as_csv(compared))
    write_directory(out / "plots", lambda directory: _save(figures, directory))
    metrics = outcome.metrics
    page = render(
        "study.html",
        study=outcome.study,
        candidates=outcome.candidates,
        seeds=len({line["seed"] for line in outcome.lines}),
        budget=f"{outcome.budget_flops:.3g}",
        planned=len(outcome.configs),
        missing=len(outcome.configs) - len({(line["candidate"], line["seed"]) for line in outcome.lines}),
        failures=outcome.failures,
        own=not all(is_comparable(outcome, name) for name in metrics),
        columns=[{"label": metric(name).label, "comparable": is_comparable(outcome, name)} for name in metrics],
        has_paper=any(candidate.paper is not None for candidate in outcome.candidates),
        rows=[_row(outcome, candidate) for candidate in outcome.candidates],
        pictures=[(metric(name).label, data_uri(figure)) for name, figure in figures.items()],
        tests=[
            dataclasses.asdict(test) | {"label": metric(test.metric).label, "verdict": verdict(test.p)}
            for test in compared
        ],
        command=provenance()["command"],
        runs=[
            {"command": shlex.join(command_of(config)), "changes": "; ".join(changes(outcome.base, config))}
            for config in outcome.configs.values()
        ],
        circumstances=_circumstances(outcome),
    )
    write_file(out / "report.html", page)
    return out / "report.html"


def as_text(outcome: Outcome) -> str:
    """The table of scores for a terminal."""
    names = outcome.metrics
    rows = [["", *(metric(name).label for name in names)]]
    rows += [[row["name"], *row["cells"]] for row in (_row(outcome, candidate) for candidate in outcome.candidates)]
    turned = list(zip(*rows, strict=True))  # metrics have long names: one a line, a column for each candidate
    widths = [max(len(cell) for cell in column) for column in zip(*turned, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in turned
    )


def _row(outcome: Outcome, candidate: Candidate) -> dict[str, Any]:
    cells = []
    for name in outcome.metrics:
        values = outcome.final(name).get(candidate.name)
        cells.append(with_spread(values) if values else "")
    ends = {line["seed"]: line for line in outcome.lines if line["candidate"] == candidate.name}
    return {
        "name": candidate.name,
        "cells": cells,
        "paper": "" if candidate.paper is None else f"{candidate.paper:.1f}",
        "tokens": count(statistics.fmean(line["tokens"] for line in ends.values())) if ends else "",
        "minutes": f"{statistics.fmean(line['minutes'] for line in ends.values()):.1f}" if ends else "",
        "seeds": len(ends),
    }


def _circumstances(outcome: Outcome) -> list[tuple[str, str]]:
    versions = provenance()["versions"] | {"python": platform.python_version()}
    return [
        ("date", datetime.date.today().isoformat()),
        ("machine", machine()),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        *([("commit", shown)] if (shown := commit()) else []),
        *outcome.data.items(),
    ]


def _save(figures: dict[str, Figure], directory: Path) -> None:
    for name, figure in figures.items():
        stem = name.replace("_", "-").replace(" ", "-").replace("/", "-")
        figure.savefig(directory / f"{stem}.png", dpi=150)
        figure.savefig(directory / f"{stem}.svg", metadata={"Date": None})
