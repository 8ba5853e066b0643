"""The charts of a study: bars beside the paper's, lines over generator sizes, curves over operations.

Points are single pre-training runs, lines and bars their means, whiskers the standard deviation over pre-training seeds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from electra.studies.scoring import Metric, metric
from electra.studies.speedrun import with_spread
from electra.studies.tables import Outcome, is_comparable

COLOURS = ("#2563a8", "#d9730d", "#2e8b57", "#a8327d", "#7a5c3e", "#1f2328", "#8a8a00", "#c0392b")
PAPER = "#9aa1ab"
GRID_POINTS = 60


def bars(outcome: Outcome, name: str) -> Figure:
    """The gain over the reference candidate, ours and, where it is a score of quality, the paper's next to it."""
    of, scores = metric(name), outcome.final(name)
    names = [c.name for c in outcome.candidates if c.name in scores][::-1]  # the first one on top
    paper = {c.name: c.paper for c in outcome.candidates if c.paper is not None}
    reference = outcome.study.reference if outcome.study.reference in scores else names[-1]
    level = statistics.fmean(scores[reference])
    beside = bool(paper) and of.sign > 0 and is_comparable(outcome, name)
    figure = Figure(figsize=(10.5 if beside else 6.6, 1.3 + 0.55 * len(names)), layout="constrained")
    ours, *theirs = figure.subplots(1, 2 if beside else 1, squeeze=False, sharey=True)[0]

    places = np.arange(len(names))
    means = [statistics.fmean(scores[candidate]) - level for candidate in names]
    spreads = [statistics.stdev(scores[c]) if len(scores[c]) > 1 else 0.0 for c in names]
    ours.barh(
        places, means, xerr=spreads if any(spreads) else None, color=COLOURS[0], height=0.62, capsize=3, alpha=0.85
    )
    for place, candidate in zip(places, names, strict=True):
        values = [value - level for value in scores[candidate]]
        ours.plot(values, [place] * len(values), "o", color="black", markersize=3.5, alpha=0.6, zorder=3)
    ours.set_yticks(places, [f"{candidate}\n{with_spread(scores[candidate])}" for candidate in names])
    ours.set_title(f"Ours: {of.label}", fontsize=11, loc="left", fontweight="bold")
    ours.set_xlabel(f"difference from {reference} ({_direction(of)})")
    if not is_comparable(outcome, name):
        ours.set_title(
            f"{of.label}:\nmeans something else for each candidate", fontsize=11, loc="left", fontweight="bold"
        )
    for axes in theirs:
        there = [candidate for candidate in names if candidate in paper]
        gains = [paper[candidate] - paper.get(reference, 0.0) for candidate in there]
        spots = [places[names.index(candidate)] for candidate in there]
        axes.barh(spots, gains, color=PAPER, height=0.62)
        for spot, candidate, gain in zip(spots, there, gains, strict=True):
            axes.annotate(
                f"{paper[candidate]:.1f}",
                (max(gain, 0.0), spot),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
            )
        axes.margins(x=0.15)
        axes.set_title("The paper: GLUE average", fontsize=11, loc="left", fontweight="bold")
        axes.set_xlabel(f"points above {reference} (figures: the average itself)")
    for axes in (ours, *theirs):
        axes.axvline(0.0, color="black", linewidth=0.8)
        _plain(axes, "x")
    _footnote(figure, outcome)
    return figure


def lines(outcome: Outcome, name: str) -> Figure:
    """A line for each main network over the sizes of its generator."""
    of, scores = metric(name), outcome.final(name)
    there = [c for c in outcome.candidates if c.name in scores and c.x is not None]
    sizes = sorted({c.x for c in there if c.x is not None})
    figure = Figure(figsize=(7.4, 4.6), layout="constrained")
    axes = figure.add_subplot()
    for index, line in enumerate(dict.fromkeys(c.line for c in there)):
        of_line = sorted((c for c in there if c.line == line), key=lambda c: c.x or 0.0)
        where = [sizes.index(c.x) + 0.06 * index for c in of_line if c.x is not None]  # beside each other
        _line(axes, where, [scores[c.name] for c in of_line], COLOURS[index % len(COLOURS)], line)
    axes.set_xticks(range(len(sizes)), [f"{size:g}" if size else "unigram" for size in sizes])
    axes.set_xlabel(outcome.study.x_label)
    _finish(axes, of)
    axes.set_title(outcome.study.question, fontsize=12, loc="left", fontweight="bold")
    _footnote(figure, outcome)
    return figure


def curves(outcome: Outcome, name: str) -> Figure:
    """Each candidate's score against the operations spent, the mean of its seeds taken at equal compute."""
    of, along = metric(name), outcome.along(name)
    figure = Figure(figsize=(7.8, 4.8), layout="constrained")
    axes = figure.add_subplot()
    for index, candidate in enumerate(c.name for c in outcome.candidates if c.name in along):
        colour, runs = COLOURS[index % len(COLOURS)], along[candidate]
        for run in runs:
            axes.plot(*zip(*run, strict=True), ".", color=colour, markersize=5, alpha=0.45)
        grid = np.linspace(max(run[0][0] for run in runs), min(run[-1][0] for run in runs), GRID_POINTS)
        values = np.array([np.interp(grid, *np.array(run).T) for run in runs])
        mean = values.mean(axis=0)
        axes.plot(
            grid, mean, color=colour, linewidth=1.8, label=f"{candidate} ({len(runs)} seed{'s' * (len(runs) > 1)})"
        )
        if len(runs) > 1:
            spread = values.std(axis=0, ddof=1)
            axes.fill_between(grid, mean - spread, mean + spread, color=colour, alpha=0.12, linewidth=0)
    axes.set_xlim(left=0.0)
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.set_xlabel("pre-training operations (FLOPs, all networks)")
    _finish(axes, of)
    axes.set_title(outcome.study.question, fontsize=12, loc="left", fontweight="bold")
    _footnote(figure, outcome)
    return figure


CHARTS: dict[str, Callable[[Outcome, str], Figure]] = {"bars": bars, "lines": lines, "curves": curves}


def charts(outcome: Outcome) -> dict[str, Figure]:
    """A figure for each metric; scores that were taken at the end of runs only are bars where the others are curves."""
    found = {}
    for name in outcome.metrics:
        draw = CHARTS[outcome.study.chart]
        if draw is curves and all(len(run) == 1 for runs in outcome.along(name).values() for run in runs):
            draw = bars
        found[name] = draw(outcome, name)
    return found


# ---------------------------------------------------------------------------------------------------------------- pieces


def _line(axes: Axes, where: Sequence[float], values: Sequence[Sequence[float]], colour: str, label: str) -> None:
    means = [statistics.fmean(of_seeds) for of_seeds in values]
    spreads = [statistics.stdev(of_seeds) if len(of_seeds) > 1 else 0.0 for of_seeds in values]
    axes.errorbar(where, means, yerr=spreads if any(spreads) else None, fmt="o-", color=colour, capsize=3, label=label)
    for x, of_seeds in zip(where, values, strict=True):
        if len(of_seeds) > 1:
            axes.plot([x] * len(of_seeds), of_seeds, "o", color=colour, markersize=3, alpha=0.4)


def _finish(axes: Axes, of: Metric) -> None:
    if of.chance is not None:
        axes.axhline(of.chance, color=PAPER, linestyle="--", linewidth=1.0, label="guessing")
    axes.set_ylabel(f"{of.label}\n({_direction(of)})")
    axes.legend(frameon=False, fontsize=9)
    _plain(axes, "both")


def _direction(of: Metric) -> str:
    return "higher is better" if of.sign > 0 else "lower is better"


def _plain(axes: Axes, grid: str) -> None:
    axes.grid(axis=grid, alpha=0.25)  # type: ignore[arg-type]
    axes.spines[["top", "right"]].set_visible(False)


def _footnote(figure: Figure, outcome: Outcome) -> None:
    seeds = len({line["seed"] for line in outcome.lines})
    spread = "dots: runs; whiskers and bands: ± one standard deviation" if seeds > 1 else "one seed: no spread"
    figure.supxlabel(
        f"{outcome.budget_flops:.3g} pre-training FLOPs a run, {seeds} pre-training seed{'s' * (seeds != 1)}\n{spread}",
        fontsize=8, color="#57606a",
    )  # fmt: skip
