"""One table of the tasks that `electra finetune --task NAME` knows, as plain data.

Sources: the official files of gluebenchmark.com (columns, labels, what the leaderboard wants); Clark et al. 2020, section 3.1
(the metric of each task: Spearman for STS-B, Matthews for CoLA, else accuracy) and table 7 (epochs).
"""

from __future__ import annotations

import dataclasses
from typing import Literal

KindName = Literal["classification", "regression", "multi-label"]


@dataclasses.dataclass(frozen=True)
class Split:
    """A file of a task, and the same in the Hugging Face data set."""

    file: str
    hub: str
    """Name of the split, after CONFIGURATION: where that is not the task's own."""
    name: str = ""
    """What tells it from the task's other sets of its kind: a prefix of the scores of a dev set, the name of a test set on the
    leaderboard."""
    columns: tuple[str, ...] = ()
    """What the columns are, where the file has no header."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """Where a task's examples are, what its labels are, and how it is scored."""

    name: str
    """As on the leaderboard, and the folder of its files."""
    kind: KindName = "classification"
    text: str
    """Column of the first text in the official files."""
    text_pair: str | None = None
    label: str = "label"
    labels: tuple[str, ...] = ()
    """As the files have them, in the order of the Hugging Face data set's numbers."""
    label_names: tuple[str, ...] = ()
    """What they mean, where the files have numbers."""
    label_range: tuple[float, float] = (0.0, 1.0)
    """Of a regression."""
    metrics: tuple[str, ...] = ("accuracy",)
    main: str = "accuracy"
    """The one that counts in the paper's average."""
    in_average: bool = True
    epochs: float = 3.0
    hub: str
    """Configuration of the data set `glue` on the hub."""
    hub_text: str = "sentence1"
    hub_text_pair: str | None = "sentence2"
    train: Split = Split("train.tsv", "train")
    dev: tuple[Split, ...] = (Split("dev.tsv", "validation"),)
    """The first one's main metric is the task's."""
    test: tuple[Split, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of the labels, for people."""
        return self.label_names or self.labels


_COLA = ("source", "label", "mark", "sentence")
_ENTAILMENT = ("entailment", "not_entailment")


def _test(name: str) -> tuple[Split, ...]:
    return (Split("test.tsv", "test", name),)


GLUE = (
    TaskSpec(
        name="CoLA", text="sentence", labels=("0", "1"), label_names=("unacceptable", "acceptable"),
        metrics=("matthews", "accuracy"), main="matthews", hub="cola", hub_text="sentence", hub_text_pair=None,
        train=Split("train.tsv", "train", columns=_COLA),
        dev=(Split("dev.tsv", "validation", columns=_COLA),),
        test=_test("CoLA"),  # this one has a header
    ),
    TaskSpec(
        name="SST-2", text="sentence", labels=("0", "1"), label_names=("negative", "positive"),
        hub="sst2", hub_text="sentence", hub_text_pair=None, test=_test("SST-2"),
    ),
    TaskSpec(
        name="MRPC", text="#1 String", text_pair="#2 String", label="Quality", labels=("0", "1"),
        label_names=("not_equivalent", "equivalent"), metrics=("accuracy", "f1"), hub="mrpc", test=_test("MRPC"),
    ),
    TaskSpec(
        name="STS-B", kind="regression", text="sentence1", text_pair="sentence2", label="score", label_range=(0.0, 5.0),
        metrics=("pearson", "spearman"), main="spearman", epochs=10.0, hub="stsb", test=_test("STS-B"),
    ),
    TaskSpec(
        name="QQP", text="question1", text_pair="question2", label="is_duplicate", labels=("0", "1"),
        label_names=("not_duplicate", "duplicate"), metrics=("accuracy", "f1"), hub="qqp", hub_text="question1",
        hub_text_pair="question2", test=_test("QQP"),
    ),
    TaskSpec(
        name="MNLI", text="sentence1", text_pair="sentence2", label="gold_label",
        labels=("entailment", "neutral", "contradiction"), hub="mnli", hub_text="premise", hub_text_pair="hypothesis",
        dev=(
            Split("dev_matched.tsv", "validation_matched"),
            Split("dev_mismatched.tsv", "validation_mismatched", "mismatched"),
        ),
        test=(
            Split("test_matched.tsv", "test_matched", "MNLI-m"),
            Split("test_mismatched.tsv", "test_mismatched", "MNLI-mm"),
            Split("../diagnostic/diagnostic.tsv", "ax:test", "AX"),
        ),
    ),
    TaskSpec(
        name="QNLI", text="question", text_pair="sentence", labels=_ENTAILMENT, hub="qnli", hub_text="question",
        hub_text_pair="sentence", test=_test("QNLI"),
    ),
    TaskSpec(
        name="RTE", text="sentence1", text_pair="sentence2", labels=_ENTAILMENT, epochs=10.0, hub="rte",
        test=_test("RTE"),
    ),
    TaskSpec(
        name="WNLI", text="sentence1", text_pair="sentence2", labels=("0", "1"),
        label_names=("not_entailment", "entailment"), in_average=False, hub="wnli", test=_test("WNLI"),
    ),
)  # fmt: skip

TASKS = {task.name.lower(): task for task in GLUE}
