"""Settings of fine-tuning: frozen dataclasses, checked when made."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, Literal

from electra.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuningConfig:
    """How an encoder is fine-tuned, whatever the task is. What is left empty is the paper's (table 7)."""

    out: Path = Path("finetuned")
    num_epochs: float | None = None
    """Passes over the training data; empty means the paper's: 3, for RTE and STS-B 10."""
    batch_size: int = 32
    peak_learning_rate: float | None = None
    """Empty means what suits the size: 3e-4 for Small, 1e-4 for Base, 5e-5 for Large (paper); 1e-3 for tiny (ours)."""
    layer_decay: float | None = None
    """Each layer below the top learns at this multiple of the one above it. Empty means 0.8 for Small and Base, 0.9 for Large
    (paper) and tiny (ours)."""
    warmup_fraction: float = 0.1
    weight_decay: float = 0.0
    classifier_dropout: float = 0.1
    """In the new head; the encoder keeps its own."""
    max_length: int = 128
    max_train_examples: int | None = None
    """Use only this many training examples, drawn anew with each seed."""
    random_weights: bool = False
    """Start from random weights of the same shape instead: the baseline that shows what pre-training gave."""
    seeds: int = 1
    """Number of runs, with seeds seed, seed+1, ...; the first best one on the dev data is kept."""
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        def check(fix: str, valid: Any, *names: str) -> None:
            for name in names:
                if (value := getattr(self, name)) is not None and not valid(value):
                    raise UserError(f"{name} is {value!r}: {fix}")

        check("it must be above 0, and finite", lambda x: 0.0 < x < math.inf, "num_epochs", "peak_learning_rate")
        check("it must be at least 0, and finite", lambda x: 0 <= x < math.inf, "weight_decay", "seed")
        check("it must be in (0, 1]", lambda x: 0.0 < x <= 1.0, "layer_decay")
        check("it must be in [0, 1)", lambda x: 0.0 <= x < 1.0, "classifier_dropout", "warmup_fraction")
        check("it must be at least 1", lambda x: x >= 1, "batch_size", "seeds", "max_train_examples")
        check("it must be at least 8", lambda x: x >= 8, "max_length")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneConfig(TuningConfig):
    """Fine-tuning on labelled text: a task of the table (`task`, `data`), or your own files (`task_file`, `dev_file`)."""

    task: str | None = None
    """A task by name: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE or WNLI."""
    data: str | None = None
    """Folder of the task's official files, or of all tasks; or a Hugging Face data set, hf:NAME (hf:nyu-mll/glue)."""
    predict_test: bool = False
    """Also predict the task's test set, into OUT/submission/, as the GLUE leaderboard wants it."""
    task_file: Path | None = None
    """Labelled training file of your own: .csv, .tsv, .jsonl or .parquet, or hf:NAME[:SPLIT]."""
    dev_file: Path | None = None
    """Labelled file to score on."""
    kind: Literal["classification", "regression", "multi-label"] = "classification"
    """What the labels of your own files are: one of several classes, a number, or any number of classes (a|b)."""
    text_column: str = "text"
    text_pair_column: str | None = None
    """Second text, for pairs."""
    label_column: str = "label"
    label_columns: tuple[str, ...] = ()
    """Several columns of 0 and 1, one a label, instead of a single column (with --kind multi-label)."""
    pooling: Literal["auto", "first", "mean"] = "auto"
    """What the classifier reads: [CLS] or the mean over tokens; `auto` is [CLS] for classic and the mean for modern blocks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.task is None) == (self.task_file is None):
            raise UserError("give either --task-file FILE or --task NAME with --data DIR")
        if (self.task is None) != (self.data is None):
            raise UserError("--task NAME and --data DIR belong together: give both, or --task-file FILE")
        if self.task is not None and self.dev_file is not None:
            raise UserError("dev_file is for files of your own: a task of the table has its own dev set")
        if self.predict_test and self.task is None:
            raise UserError("predict_test is for the tasks of the table, which have a test set")
        if self.label_columns and (self.kind != "multi-label" or len(self.label_columns) == 1):
            raise UserError("label_columns are several, for kind multi-label; name a single column with label_column")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _FilesConfig(TuningConfig):
    """Training and dev data in files of their own."""

    data: Path | None = None
    """Folder with a training and a dev file, told apart by their names."""
    train_file: Path | None = None
    dev_file: Path | None = None
    """File to score on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data is None and self.train_file is None:
            raise UserError("give --data DIR or --train-file FILE (and --dev-file FILE to score on)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingConfig(_FilesConfig):
    """Fine-tuning on a label for each word. Longer sentences than `max_length` are read in windows."""

    task: Literal["tagging", "chunking", "ner"] = "tagging"
    """All three do the same; the name is the result's."""
    token_column: str | None = None
    """The words: a number in a CoNLL file (0, the first), a name in .jsonl and .parquet (tokens)."""
    label_column: str | None = None
    """The labels: a number in a CoNLL file (-1, the last), a name in .jsonl and .parquet (labels)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionAnsweringConfig(_FilesConfig):
    """Fine-tuning on questions whose answers are spans of a text (SQuAD's format, 1.1 and 2.0)."""

    task: Literal["squad"] = "squad"
    """Whether all questions have answers (1.1) or not (2.0) is seen in the data."""
    head: Literal["plain", "joint"] = "plain"
    """plain: start and end each by itself, as in transformers. joint: the reference's, end given start, and answerability."""
    max_length: int = 384
    """Question and window of the text together, in word pieces."""
    stride: int = 128
    """How much further on the next window begins."""
    max_question_length: int = 64
    """Longer questions are cut."""
    max_answer_length: int = 30
    """Word pieces of the longest answer that may be given."""
    beam: int = 20
    """How many starts, and for each how many ends, are looked at."""
    num_best: int = 20
    """Answers of each question in nbest.json."""
    no_answer_threshold: float | None = None
    """No answer is given where the score for none is above it. Empty means 0 for the plain head, and for the joint one the
    reference's -2.75."""
    classifier_dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("stride", "max_question_length", "max_answer_length", "beam", "num_best"):
            if (value := getattr(self, name)) < 1:
                raise UserError(f"{name} is {value}: it must be at least 1")
        if self.max_length < self.max_question_length + 16:
            raise UserError(
                f"max_length is {self.max_length}: with questions of up to {self.max_question_length} pieces "
                f"(max_question_length) it must be at least {self.max_question_length + 16}"
            )
