"""Results as PNG: a reliability curve, scores against steps, minimal pairs by phenomenon."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter, StrMethodFormatter


def png_of(figure: Figure) -> bytes:
    """The figure as a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()


def reliability_picture(bins: Sequence[dict[str, Any]], scores: dict[str, Any]) -> Figure:
    """Mean probability of each bin against the share that was replaced; on the diagonal the two agree.

    Both axes are logarithmic: a replaced token is one in ten, and most probabilities are far below that.
    """
    figure = Figure(figsize=(5.2, 5), layout="constrained")
    axes = figure.subplots()
    least = 0.5 / bins[0]["tokens"]  # a bin without any replaced token has its place below one in all of its tokens
    points = [(max(one["probability"], least), max(one["replaced_share"], least)) for one in bins]
    low = min(min(point) for point in points) / 1.5
    axes.plot([low, 1.0], [low, 1.0], color="0.7", linewidth=1, label="perfectly calibrated")
    axes.plot(*zip(*points, strict=True), marker="o", label=f"{len(bins)} bins of {bins[0]['tokens']:,} tokens")
    axes.set(xscale="log", yscale="log", xlim=(low, 1.1), ylim=(low, 1.1), aspect="equal")
    axes.set(xlabel="probability that the discriminator gives", ylabel="share that was replaced")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
    error, brier = scores["expected_calibration_error"], scores["brier_score"]
    axes.set_title(f"calibration error {error:.4f}, Brier score {brier:.4f}", fontsize="medium")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    return figure


def probe_picture(points: Sequence[dict[str, Any]], names: Sequence[str], chances: Sequence[float]) -> Figure:
    """The best layer's accuracy at each step, a panel a question; the dashed line is guessing."""
    figure = Figure(figsize=(5.2 * len(names), 4), layout="constrained")
    for axes, name, chance in zip(figure.subplots(1, len(names), squeeze=False)[0], names, chances, strict=True):
        steps = [point["step"] or 0 for point in points]
        axes.plot(steps, [max(point["accuracies"][name].values()) for point in points], marker="o", label="best layer")
        axes.axhline(chance, color="0.5", linestyle="--", linewidth=1, label="guessing")
        axes.set(title=name, xlabel="step", ylabel="accuracy on frozen features")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.legend(frameon=False)
        axes.grid(alpha=0.3)
    return figure


def pairs_picture(scores: dict[str, Any]) -> Figure:
    """Accuracy by phenomenon, the best on top; the dashed line is guessing."""
    phenomena = sorted(scores["phenomena"].items(), key=lambda item: item[1])
    figure = Figure(figsize=(7, 1.2 + 0.3 * len(phenomena)), layout="constrained")
    axes = figure.subplots()
    names, values = [name.replace("_", " ") for name, _ in phenomena], [value for _, value in phenomena]
    bars = axes.barh(names, values, height=0.7, color=["C0" if value > 0.5 else "C1" for value in values])
    axes.bar_label(bars, labels=[f"{value:.0%}" for value in values], padding=3, fontsize="small")
    axes.axvline(0.5, color="0.3", linestyle="--", linewidth=1)
    axes.set(xlim=(0.0, 1.08), xlabel=f"pairs of which the right one scores higher ({scores['score']})")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_title(f"overall {scores['overall']:.1%} of {scores['num_pairs']:,} pairs", fontsize="medium")
    return figure
