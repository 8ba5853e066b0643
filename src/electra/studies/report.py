"""A run directory as one self-contained page: `report.html` with curves, results in plain words, and every setting.

Everything is read from files that the run left (`config.yaml`, `metrics.jsonl`, `results.json` when the quick start
made one), so a report can be written again at any time, also of a run that is still going.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import math
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np
import yaml

from electra.errors import UserError
from electra.files import write_file
from electra.train.export import exported
from electra.train.metrics import read_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_POINTS = 400  # per curve; more than a figure of this width can show
TRAIN, HELDOUT, REFERENCE = "#2563a8", "#d9730d", "#6b7280"

Records = list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Panel:
    """One figure: which metric, how its axis is named, and what a reader should take from it."""

    metric: str
    title: str
    axis: str
    caption: str
    scale: float = 1.0
    reference: Callable[[Records], tuple[float, str] | None] = lambda records: None
    """A level to compare with and its name, worked out from the records of training."""
    share: bool = False
    """Shown in percent."""
    focus: bool = False
    """Leave the steep first steps outside the picture."""


def guessing_loss(records: Records) -> tuple[float, str] | None:
    """Cross-entropy in nats of always answering with the share of replaced tokens, which takes no knowledge of text."""
    shares = [r["replaced_share"] for r in records if 0.0 < (r.get("replaced_share") or 0.0) < 1.0]
    if not shares:
        return None
    share = statistics.fmean(shares[-max(1, len(shares) // 10) :])
    return -share * math.log(share) - (1 - share) * math.log(1 - share), "knows nothing"


PANELS = (
    Panel(
        "generator_loss",
        "Generator loss",
        "nats per masked token",
        "How surprised the small network is by the words that were hidden from it. Lower is better. A long flat start "
        "means that it has only learned which words are frequent; the drop after it is where context begins to count.",
        focus=True,
    ),
    Panel(
        "generator_accuracy",
        "Generator accuracy",
        "hidden tokens guessed right",
        "How often its first guess is the hidden token. The better the generator, the harder it is to find its "
        "replacements.",
        share=True,
    ),
    Panel(
        "discriminator_loss",
        "Discriminator loss",
        "nats per token",
        "The main network says of every token whether it was replaced. The dashed line is what it would get by always "
        "answering with the base rate; below the line it has learned something. It need not fall for ever, since the "
        "generator improves too.",
        reference=guessing_loss,
        focus=True,
    ),
    Panel(
        "discriminator_auc",
        "Discriminator AUC",
        "AUC",
        "The chance that a replaced token is rated as more suspect than an untouched one: 0.5 is guessing, 1 perfect.",
        reference=lambda records: (0.5, "guessing"),
    ),
    Panel(
        "mlm_loss",
        "Token prediction",
        "nats per predicted token",
        "How surprised the main network is by the original tokens: at the hidden positions, or with all-tokens-mlm at every "
        "one, where copying makes most of them easy.",
        focus=True,
    ),
    Panel(
        "learning_rate",
        "Learning rate",
        "learning rate",
        "It rises during warm-up, then falls in a straight line to the end of the budget.",
    ),
    Panel(
        "tokens_per_second",
        "Speed",
        "thousand tokens per second",
        "Input tokens in a second; it falls where the discriminator joins. Dips are other programs on the machine.",
        scale=1e-3,
    ),
)


def write_report(run_dir: Path) -> Path:
    """Write `<run_dir>/report.html` and return its path.

    Raises UserError when `run_dir` is not a run directory or holds no metrics yet.
    """
    run_dir = Path(run_dir)
    if not (run_dir / "config.yaml").is_file():
        raise UserError(f"{run_dir}: no config.yaml in it; give the run directory of `electra pretrain`")
    config = yaml.safe_load((run_dir / "config.yaml").read_text(encoding="utf-8"))
    records = logged(run_dir / "metrics.jsonl")
    results_file = run_dir / "results.json"
    results = json.loads(results_file.read_text(encoding="utf-8")) if results_file.is_file() else {}
    train = [r for r in records if r.get("kind", "train") == "train"]
    heldout = [r for r in records if r.get("kind") == "heldout"]

    page = render(
        "report.html",
        name=run_dir.resolve().name,
        finished=bool(exported(run_dir)),
        cards=cards(train, heldout),
        panels=[(panel, picture) for panel in PANELS if (picture := draw(panel, train, heldout))],
        heldout=results.get("heldout", {}),
        downstream=downstream_rows(results.get("downstream", {})),
        task=results.get("downstream", {}),
        sentence=sentence_spans(results.get("sentence", [])),
        settings=list(flatten(config)),
    )
    path = run_dir / "report.html"
    write_file(path, page)
    return path


def render(template: str, **values: Any) -> str:
    """A page of this package filled in; whatever it asks for and does not get is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("electra.studies", ""),
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template(template).render(**values)


def data_uri(figure: Figure) -> str:
    """A figure as an SVG within a page."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def logged(path: Path) -> Records:
    """The lines of a run's metrics file. Raises UserError when there are none yet."""
    records = read_metrics(path) if path.is_file() else []
    if not records:
        raise UserError(f"{path}: no metrics; the run has logged nothing yet")
    return records


# --------------------------------------------------------------------------------------------------------- figures


def curve(records: Records, panel: Panel) -> tuple[np.ndarray, np.ndarray]:
    """(tokens, values) of one metric, without gaps, thinned to `MAX_POINTS` by the mean of each stretch."""
    pairs = [
        (r["tokens"], r[panel.metric] * panel.scale)
        for r in records
        if isinstance(r.get(panel.metric), int | float) and math.isfinite(r[panel.metric]) and "tokens" in r
    ]
    points = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    if len(points) > MAX_POINTS:
        points = np.stack([part.mean(axis=0) for part in np.array_split(points, MAX_POINTS)])
    return points[:, 0], points[:, 1]


def draw(panel: Panel, train: Records, heldout: Records) -> str:
    """The panel as a data URI of an SVG; empty when the run did not log its metric."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, PercentFormatter

    train_x, train_y = curve(train, panel)
    heldout_x, heldout_y = curve(heldout, panel)
    if not len(train_y) and not len(heldout_y):
        return ""
    figure = Figure(figsize=(5.4, 3.3), layout="constrained")
    axes = figure.add_subplot()
    if len(train_y):
        axes.plot(
            train_x,
            train_y,
            color=TRAIN,
            linewidth=1.6,
            label="training",
            marker="." if len(train_y) < 3 else None,
            zorder=2,
        )
    if len(heldout_y):
        axes.plot(
            heldout_x,
            heldout_y,
            color=HELDOUT,
            linewidth=1.2,
            marker="o",
            markersize=4.5,
            label="held-out text",
            zorder=3,
        )
    if level := panel.reference(train):
        axes.axhline(
            level[0], color=REFERENCE, linestyle="--", linewidth=1.2, label=f"{level[1]} ({level[0]:.3g})", zorder=1
        )
    axes.set_title(panel.title, fontsize=12, loc="left", fontweight="bold")
    axes.set_xlabel("input tokens seen", fontsize=10)
    axes.set_ylabel(panel.axis, fontsize=10)
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    if panel.share:
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=None))
    if panel.focus and len(train_y) > 20:
        # The first steps from random weights would squeeze everything that is worth seeing into the last tenth.
        axes.set_ylim(top=min(axes.get_ylim()[1], quantile_with_room(np.concatenate([train_y, heldout_y]))))
    if panel.metric == "tokens_per_second":
        axes.set_ylim(bottom=0.0)
    axes.tick_params(labelsize=9)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if len(axes.get_lines()) > 1:
        axes.legend(fontsize=9, frameon=False)
    return data_uri(figure)


def quantile_with_room(values: np.ndarray) -> float:
    """A top for the axis: above 97 in 100 values, with a tenth of their range to spare."""
    low, high = float(values.min()), float(np.quantile(values, 0.97))
    return high + 0.1 * (high - low)


# ----------------------------------------------------------------------------------------------- numbers and words


def count(value: float) -> str:
    """8,312,000 -> '8.3 million'."""
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{value / size:.1f} {name}"
    return f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Seconds as a reader says them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def cards(train: Records, heldout: Records) -> list[tuple[str, str]]:
    """Headline figures: (what, how much), taken from the last record that has them."""

    def last(records: Records, metric: str) -> float | None:
        return next((r[metric] for r in reversed(records) if isinstance(r.get(metric), int | float)), None)

    where, source = ("held-out", heldout) if heldout else ("training", train)
    wanted: list[tuple[str, float | None, Callable[[float], str]]] = [
        ("tokens seen", last(train, "tokens"), count),
        ("training time", last(train, "seconds"), duration),
        ("steps", last(train, "step"), lambda value: f"{value:,.0f}"),
        (f"generator accuracy, {where}", last(source, "generator_accuracy"), lambda value: f"{value:.1%}"),
        (f"discriminator AUC, {where}", last(source, "discriminator_auc"), lambda value: f"{value:.3f}"),
    ]
    return [(name, show(value)) for name, value, show in wanted if value is not None]


def downstream_rows(task: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each number of labels: `train_examples`, and mean and spread of each start that was run."""
    rows = []
    for size in sorted({run["train_examples"] for run in task.get("runs", [])}, reverse=True):
        by_start = {run["start"]: run["accuracies"] for run in task["runs"] if run["train_examples"] == size}
        row: dict[str, Any] = {"train_examples": size, "difference": None}
        row |= {start: mean_and_spread(accuracies) for start, accuracies in by_start.items()}
        if {"pretrained", "random"} <= by_start.keys():
            row["difference"] = statistics.fmean(by_start["pretrained"]) - statistics.fmean(by_start["random"])
        rows.append(row)
    return rows


def mean_and_spread(accuracies: list[float]) -> str:
    """'71.3 ± 0.8 %' (standard deviation over the runs); the spread is left out for a single run."""
    mean = 100 * statistics.fmean(accuracies)
    return (
        f"{mean:.1f} ± {100 * statistics.stdev(accuracies):.1f}\u00a0%" if len(accuracies) > 1 else f"{mean:.1f}\u00a0%"
    )


def sentence_spans(tokens: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tokens of the corrupted sentence with a colour: the redder, the surer the discriminator is of a replacement."""
    return [
        {
            **token,
            "style": f"background: rgba(214, 57, 57, {0.85 * token['probability']:.2f})",
            "percent": f"{100 * token['probability']:.0f} %",
        }
        for token in tokens
    ]


def flatten(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(dotted name, value) of every setting, in the order of the file."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", "" if value is None else str(value)
