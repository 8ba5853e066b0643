"""Results side by side: a column for each, with spread, significance where both have several seeds, and the average over GLUE.

The average is the paper's (Clark et al. 2020, section 3.1): Spearman for STS-B, Matthews for CoLA, accuracy for the others, MNLI
once (matched), without WNLI.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electra.errors import UserError
from electra.evaluate.scores import over_seeds
from electra.evaluate.significance import welch
from electra.evaluate.tasks import GLUE

AVERAGE = "GLUE average"
_COUNTED = {f"{task.name} {task.main}" for task in GLUE if task.in_average}


class Score(NamedTuple):
    """One score of one column, of each seed (a single number where there are none)."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return over_seeds(self.values)["median"]

    def __str__(self) -> str:
        found = over_seeds(self.values)
        if len(self.values) == 1:
            return f"{self.values[0]:.4f}"
        return f"{found['median']:.4f} ± {found['standard_deviation']:.4f} ({len(self.values)})"


class Column(NamedTuple):
    """What one argument holds."""

    name: str
    scores: dict[str, Score]
    """By what they are of: "CoLA matthews"."""
    notes: tuple[str, ...]


class Comparison(NamedTuple):
    """The table; every row has a cell for each column."""

    columns: list[Column]
    rows: dict[str, list[Score | None]]
    p_values: dict[str, list[float | None]]
    """Of Welch's test against the first column; None where one of the two has a single seed."""
    notes: list[str]


def compare(paths: Sequence[Path]) -> Comparison:
    """Read results (JSON files, or directories with result.json in them) and lay them side by side, in their order.

    Raises UserError for what is no result, and for a directory that has two results of one score.
    """
    columns = [_column(path) for path in paths]
    names = _apart([column.name for column in columns], paths)
    columns = [column._replace(name=name) for column, name in zip(columns, names, strict=True)]
    labels = list(dict.fromkeys(label for column in columns for label in column.scores))
    rows: dict[str, list[Score | None]] = {label: [column.scores.get(label) for column in columns] for label in labels}
    common = [label for label in labels if label in _COUNTED and all(cell is not None for cell in rows[label])]
    notes = [f"{column.name}: {note}" for column in columns for note in column.notes]
    if len(common) > 1:
        rows[AVERAGE] = [_average([rows[label][index] for label in common]) for index in range(len(columns))]
        missing = sorted(_COUNTED - set(common))
        of = f"{AVERAGE}: of {', '.join(label.split()[0] for label in common)}"
        notes.append(of + (f"; without {', '.join(label.split()[0] for label in missing)}" if missing else ""))
    p_values: dict[str, list[float | None]] = {
        label: [None, *(_p_value(first, cell) for cell in others)] for label, (first, *others) in rows.items()
    }
    if any(value is not None for values in p_values.values() for value in values):
        notes.append("p: Welch's t-test over seeds against the first column")
    return Comparison(columns, rows, p_values, notes)


def as_markdown(comparison: Comparison) -> str:
    """The table in Markdown, notes below."""
    lines = ["| | " + " | ".join(column.name for column in comparison.columns) + " |"]
    lines.append("|---|" + "---:|" * len(comparison.columns))
    lines += [f"| {label} | {' | '.join(cells)} |" for label, cells in _cells(comparison)]
    return "\n".join([*lines, "", *comparison.notes, ""])


def as_text(comparison: Comparison) -> str:
    """The same for a terminal."""
    table = [("", [column.name for column in comparison.columns]), *_cells(comparison)]
    first = max(len(label) for label, _ in table)
    widths = [max(len(cells[index]) for _, cells in table) for index in range(len(comparison.columns))]
    lines = [
        "  ".join(
            [label.ljust(first), *(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))]
        ).rstrip()
        for label, cells in table
    ]
    return "\n".join([*lines, *comparison.notes])


def _cells(comparison: Comparison) -> Iterator[tuple[str, list[str]]]:
    for label, cells in comparison.rows.items():
        texts = []
        for cell, p in zip(cells, comparison.p_values[label], strict=True):
            text = "" if cell is None else str(cell)
            texts.append(text if p is None else f"{text}, p {'< 0.001' if p < 0.001 else f'= {p:.3f}'}")
        yield label, texts


# ---------------------------------------------------------------------------------------------------------- reading


def _column(path: Path) -> Column:
    files = sorted(path.rglob("result.json")) if path.is_dir() else [path]
    if not files:
        raise UserError(f"{path}: holds no result.json; name a result, or the --out of a fine-tuning or a suite")
    results = [result for file in files for result in _results(file)]
    scores: dict[str, Score] = {}
    notes = []
    for result in results:
        for label, score in _scores_of(result).items():
            if label in scores:
                raise UserError(f"{path}: holds several results of {label}; name them one by one")
            scores[label] = score
        for kind in ("failed", "degenerate"):
            if count := result.get(f"{kind}_runs"):
                notes.append(f"{count} of {len(result['runs'])} runs of {result['task']} {kind}")
    models = dict.fromkeys(_model_name(result) for result in results)
    return Column(" + ".join(models), scores, tuple(notes))


def _results(file: Path) -> list[dict[str, Any]]:
    """The results in a file: one, or those of a suite of tasks."""
    if not file.is_file():
        raise UserError(f"{file}: no such file or directory")
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        raise UserError(f"{file}: not JSON; name a result.json, or what `electra evaluate --json` wrote") from None
    if not isinstance(result, dict) or not ({"runs", "tasks", "scores"} & set(result)):
        raise UserError(f"{file}: not a result; name a result.json, or what `electra evaluate --json` wrote")
    return list(result["tasks"].values()) if "tasks" in result else [result]


def _scores_of(result: dict[str, Any]) -> dict[str, Score]:
    if "runs" in result:
        metrics = [name for name, value in result.items() if isinstance(value, dict) and "median" in value]
        metrics.sort(key=lambda name: name != result.get("main_metric"))
        good = [run for run in result["runs"] if not run["failed"]]
        task = result.get("task", "")
        return {f"{task} {name}".strip(): Score(tuple(float(run[name]) for run in good)) for name in metrics}
    return dict(_flat(result["scores"], str(result.get("suite", ""))))


def _flat(scores: dict[str, Any], prefix: str) -> Iterator[tuple[str, Score]]:
    """The numbers of a suite that needs no labels, single ones first as they stand, groups by their names."""
    for name, value in scores.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix} {name}")
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield f"{prefix} {name}".strip(), Score((float(value),))


def _model_name(result: dict[str, Any]) -> str:
    path = Path(str(result.get("model", "")))
    name = path.parent.name if path.name in ("discriminator", "generator", "model") and path.parent.name else path.name
    config = result.get("config")
    return f"{name}, random weights" if isinstance(config, dict) and config.get("random_weights") else name


def _apart(names: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """Columns of one name get the paths they came from."""
    return [name if names.count(name) == 1 else f"{name} ({path})" for name, path in zip(names, paths, strict=True)]


# --------------------------------------------------------------------------------------------------------- statistics


def _average(cells: Sequence[Score | None]) -> Score:
    """Over tasks: of the i-th seed of each where all have as many, so that the average has a spread, too; else of the medians."""
    there = [cell for cell in cells if cell is not None]
    if len({len(cell.values) for cell in there}) == 1:
        return Score(tuple(sum(values) / len(values) for values in zip(*(cell.values for cell in there), strict=True)))
    return Score((sum(cell.median for cell in there) / len(there),))


def _p_value(first: Score | None, other: Score | None) -> float | None:
    """Of Welch's test; None without several seeds on both sides, and where neither varies (a degenerate pair says nothing)."""
    if first is None or other is None or len(set(first.values)) == len(set(other.values)) == 1:
        return None
    return welch(other.values, first.values)
