"""What the labels of a task are: one of several classes, a number, or a set of classes. Each says how labels become targets,
what the loss is, and how the network's outputs are read.

Shapes: N texts, C outputs of the network.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from electra.errors import UserError
from electra.evaluate.labelled import Example
from electra.evaluate.tasks import KindName, TaskSpec


class Labels(Protocol):
    """The labels of one task."""

    problem_type: ClassVar[str]
    """As Hugging Face's configurations have it."""
    metrics: ClassVar[tuple[str, ...]]
    """What is measured when the task does not say."""
    main: ClassVar[str]

    output_name: ClassVar[str]
    """What `outputs` are."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the network's outputs."""
        ...

    @property
    def units(self) -> tuple[float, float]:
        """The labels' own units are the network's logits times the first plus the second."""
        ...

    def targets(self, examples: Sequence[Example], where: str) -> NDArray[Any]:
        """[N] or [N, C]; UserError for a label that does not belong."""
        ...

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Summed over the texts."""
        ...

    def outputs(self, logits: Tensor) -> Tensor:
        """Probabilities, or numbers in the labels' own units; [N, C]."""
        ...

    def chosen(self, outputs: NDArray[np.float64]) -> NDArray[Any]:
        """What the outputs say, of the shape and type of targets."""
        ...

    def texts(self, outputs: NDArray[np.float64]) -> list[str]:
        """The same, written as in a labelled file."""
        ...

    def is_constant(self, chosen: NDArray[Any]) -> bool:
        """Do all texts get the same?"""
        ...

    def baseline(self, targets: NDArray[Any]) -> dict[str, float]:
        """What a score must be held against."""
        ...


@dataclasses.dataclass(frozen=True)
class Classes:
    """One of several classes; targets are int64 [N]."""

    labels: tuple[str, ...]
    """As the files have them."""
    names: tuple[str, ...]

    units: ClassVar[tuple[float, float]] = (1.0, 0.0)
    problem_type: ClassVar[str] = "single_label_classification"
    output_name: ClassVar[str] = "probability"
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "macro_f1", "matthews")
    main: ClassVar[str] = "accuracy"

    def targets(self, examples: Sequence[Example], where: str) -> NDArray[np.int64]:
        number = {label: index for index, label in enumerate(self.labels)}
        for index, example in enumerate(examples, 1):
            if example.label not in number:
                raise UserError(
                    f"{where}: example {index} has the label {example.label!r}, which the task has not; "
                    f"it has {', '.join(map(repr, self.labels[:10]))}{', ...' if len(self.labels) > 10 else ''}"
                )
        return np.array([number[example.label] for example in examples], np.int64)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits, targets, reduction="sum")

    def outputs(self, logits: Tensor) -> Tensor:
        return logits.double().softmax(dim=-1)

    def chosen(self, outputs: NDArray[np.float64]) -> NDArray[np.int64]:
        return outputs.argmax(axis=1)

    def texts(self, outputs: NDArray[np.float64]) -> list[str]:
        return [self.labels[index] for index in self.chosen(outputs)]

    def is_constant(self, chosen: NDArray[np.int64]) -> bool:
        return bool((chosen == chosen[0]).all())

    def baseline(self, targets: NDArray[np.int64]) -> dict[str, float]:
        return {"majority_share": float(np.bincount(targets).max() / len(targets))}


@dataclasses.dataclass(frozen=True)
class Numbers:
    """A number; targets are float32 [N]. The network is trained on the range made 0 to 1, as the reference does for STS-B."""

    name: str
    low: float
    high: float

    problem_type: ClassVar[str] = "regression"
    output_name: ClassVar[str] = "value"
    metrics: ClassVar[tuple[str, ...]] = ("pearson", "spearman", "rmse")
    main: ClassVar[str] = "pearson"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def units(self) -> tuple[float, float]:
        return self.high - self.low, self.low

    def targets(self, examples: Sequence[Example], where: str) -> NDArray[np.float32]:
        return np.array(_numbers(examples, where), np.float32)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        scale, low = self.units
        return F.mse_loss(logits.squeeze(-1), (targets - low) / scale, reduction="sum")

    def outputs(self, logits: Tensor) -> Tensor:
        scale, low = self.units
        return logits.double() * scale + low

    def chosen(self, outputs: NDArray[np.float64]) -> NDArray[np.float64]:
        return outputs[:, 0]

    def texts(self, outputs: NDArray[np.float64]) -> list[str]:
        return [f"{value:.3f}" for value in outputs[:, 0].clip(self.low, self.high)]

    def is_constant(self, chosen: NDArray[np.float64]) -> bool:
        return bool(np.ptp(chosen) < 1e-4 * (self.high - self.low))

    def baseline(self, targets: NDArray[np.float32]) -> dict[str, float]:
        return {}


@dataclasses.dataclass(frozen=True)
class LabelSets:
    """Any number of classes, none included; targets are float32 [N, C]. An output above a half is a yes."""

    names: tuple[str, ...]

    units: ClassVar[tuple[float, float]] = (1.0, 0.0)
    problem_type: ClassVar[str] = "multi_label_classification"
    output_name: ClassVar[str] = "probability"
    metrics: ClassVar[tuple[str, ...]] = ("micro_f1", "macro_f1", "exact_match")
    main: ClassVar[str] = "micro_f1"

    def targets(self, examples: Sequence[Example], where: str) -> NDArray[np.float32]:
        number = {name: index for index, name in enumerate(self.names)}
        found = np.zeros((len(examples), len(self.names)), np.float32)
        for row, example in enumerate(examples):
            for label in split_labels(example.label):
                if label not in number:
                    raise UserError(
                        f"{where}: example {row + 1} has the label {label!r}, which the task has not; "
                        f"it has {', '.join(map(repr, self.names[:10]))}{', ...' if len(self.names) > 10 else ''}"
                    )
                found[row, number[label]] = 1.0
        return found

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        # The mean over the classes, as Hugging Face has it: the rate need not follow their number.
        return F.binary_cross_entropy_with_logits(logits, targets, reduction="sum") / len(self.names)

    def outputs(self, logits: Tensor) -> Tensor:
        return logits.double().sigmoid()

    def chosen(self, outputs: NDArray[np.float64]) -> NDArray[np.float32]:
        return (outputs > 0.5).astype(np.float32)

    def texts(self, outputs: NDArray[np.float64]) -> list[str]:
        return ["|".join(name for name, yes in zip(self.names, row > 0.5, strict=True) if yes) for row in outputs]

    def is_constant(self, chosen: NDArray[np.float32]) -> bool:
        return bool((chosen == chosen[0]).all())

    def baseline(self, targets: NDArray[np.float32]) -> dict[str, float]:
        return {}


def labels_of_task(task: TaskSpec) -> Labels:
    """Of a task in the table."""
    return _OF_TASK[task.kind](task)


def labels_of_file(kind: KindName, examples: Sequence[Example], path: Path, columns: Sequence[str]) -> Labels:
    """Of a training file of the user's, from the examples in it. Raises UserError when they cannot be of this kind."""
    return _OF_FILE[kind](examples, path, columns)


def label_names(examples: Sequence[Example], path: Path) -> tuple[str, ...]:
    """The different labels of a training file: numbers in their order, names in alphabetical order."""
    names = {example.label for example in examples}
    if len(names) < 2:
        raise UserError(f"{path}: every example has the label {names.pop()!r}; a classifier needs at least two")
    if len(names) > max(20, len(examples) // 2):
        raise UserError(
            f"{path}: has {len(names)} different labels in {len(examples)} examples; name the column of the classes, "
            f"or, if they are numbers to predict, use --kind regression"
        )
    return _in_order(names)


def split_labels(label: str) -> list[str]:
    """The labels of `a|b`."""
    return [part.strip() for part in label.split("|") if part.strip()]


def _in_order(names: set[str]) -> tuple[str, ...]:
    try:
        return tuple(sorted(names, key=float))
    except ValueError:
        return tuple(sorted(names))


def _classes(examples: Sequence[Example], path: Path, columns: Sequence[str]) -> Classes:
    names = label_names(examples, path)
    return Classes(names, names)


def _number_range(examples: Sequence[Example], path: Path, columns: Sequence[str]) -> Numbers:
    values = _numbers(examples, str(path))
    if min(values) == max(values):
        raise UserError(f"{path}: every example has the label {values[0]:g}; there is nothing to predict")
    return Numbers(columns[0], min(values), max(values))


def _label_sets(examples: Sequence[Example], path: Path, columns: Sequence[str]) -> LabelSets:
    found = {label for example in examples for label in split_labels(example.label)}
    if not found:
        raise UserError(f"{path}: no example has a label; a label column holds a|b, or there is one column a label")
    if len(found) > max(100, len(examples) // 2):
        raise UserError(f"{path}: has {len(found)} different labels in {len(examples)} examples; separate them by |")
    return LabelSets(tuple(columns) if len(columns) > 1 else _in_order(found))


def _numbers(examples: Sequence[Example], where: str) -> list[float]:
    values = []
    for index, example in enumerate(examples, 1):
        try:
            value = float(example.label)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UserError(f"{where}: example {index} has the label {example.label!r}; a regression needs numbers")
        values.append(value)
    return values


_OF_FILE: dict[KindName, Callable[[Sequence[Example], Path, Sequence[str]], Labels]] = {
    "classification": _classes,
    "regression": _number_range,
    "multi-label": _label_sets,
}
_OF_TASK: dict[KindName, Callable[[TaskSpec], Labels]] = {
    "classification": lambda task: Classes(task.labels, task.names),
    "regression": lambda task: Numbers(task.label, *task.label_range),
    "multi-label": lambda task: LabelSets(task.names),
}
