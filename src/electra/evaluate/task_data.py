"""What fine-tuning needs of a task, wherever it comes from: labels, examples, metrics. Here: from the user's own files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electra.config_finetune import FinetuneConfig
from electra.evaluate.labelled import HUB, Example, read_examples
from electra.evaluate.labels import Labels, labels_of_file
from electra.evaluate.recipe import EPOCHS
from electra.files import sha256


class Unlabelled(NamedTuple):
    """A test set: texts to be predicted for a leaderboard."""

    name: str
    indices: list[str]
    """As the file numbers its rows."""
    examples: list[Example]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskData:
    """The examples of a task and what is known of it."""

    name: str
    labels: Labels
    train: list[Example]
    train_name: str
    """For messages: the file, usually."""
    dev: dict[str, list[Example]]
    """By a prefix of the scores, which is empty for the set that decides; empty without dev data."""
    dev_names: dict[str, str]
    test: list[Unlabelled]
    metrics: tuple[str, ...]
    main: str
    """Of `metrics`, the one that decides."""
    epochs: float
    files: dict[str, str]
    """Path or name of all that was read -> its hash."""
    skipped_rows: dict[str, int] = dataclasses.field(default_factory=dict)
    """Path -> damaged rows that were left out."""

    @property
    def paired(self) -> bool:
        return self.train[0].text_pair is not None


def own_data(config: FinetuneConfig) -> TaskData:
    """From the files that the configuration names. Raises UserError for whatever does not fit."""
    assert config.task_file is not None
    columns = config.label_columns or (config.label_column,)
    reading: dict[str, Any] = {
        "text_column": config.text_column,
        "text_pair_column": config.text_pair_column,
        "label_column": columns,
        "kind": config.kind,
    }
    train = read_examples(config.task_file, **reading)
    labels = labels_of_file(config.kind, train, config.task_file, columns)
    files = {str(config.task_file): _file_digest(config.task_file, train)}
    dev = {}
    if config.dev_file is not None:
        dev[""] = read_examples(config.dev_file, **reading)
        files[str(config.dev_file)] = _file_digest(config.dev_file, dev[""])
    return TaskData(
        name=config.task_file.stem,
        labels=labels,
        train=train,
        train_name=str(config.task_file),
        dev=dev,
        dev_names={"": str(config.dev_file)},
        test=[],
        metrics=labels.metrics,
        main=labels.main,
        epochs=EPOCHS,
        files=files,
    )


def digest(examples: Sequence[Example]) -> str:
    """SHA-256 of examples, for data that is in no file of ours."""
    return hashlib.sha256(json.dumps([dataclasses.astuple(example) for example in examples]).encode()).hexdigest()


def _file_digest(path: Path, examples: Sequence[Example]) -> str:
    return digest(examples) if str(path).startswith(HUB) else sha256(path)
