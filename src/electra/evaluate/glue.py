"""GLUE's tasks from the official files, or from the Hugging Face data set.

The official files' quirks: a byte-order mark (MRPC), quotes that are ordinary characters, no header in CoLA's training and dev
files, test files without labels (and with other columns), rows with too few columns (QQP).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from electra.config_files import unknown_setting
from electra.data.text import read_lines
from electra.errors import UserError
from electra.evaluate.labelled import HUB, Example, hub_rows
from electra.evaluate.labels import labels_of_task
from electra.evaluate.task_data import TaskData, Unlabelled, digest
from electra.evaluate.tasks import TASKS, Split, TaskSpec
from electra.files import sha256

_MOST_DAMAGED = 0.001
"""Share of rows with too few columns beyond which a file is not what it should be."""


class _Table(NamedTuple):
    """One file or split."""

    name: str
    digest: str
    examples: list[Example]
    indices: list[str]
    """As the file numbers its rows."""
    skipped: int
    """Rows that were damaged."""


_Reader = Callable[[TaskSpec, str, Split, bool], _Table | None]


def find_task(name: str) -> TaskSpec:
    """The task of this name, in whatever case, or of its name on the hub (sst2, stsb). Raises UserError, with the nearest one."""
    task = TASKS.get(name.lower()) or next((task for task in TASKS.values() if task.hub == name.lower()), None)
    if task is None:
        hint = unknown_setting(name.lower(), list(TASKS)).partition("; ")[2]
        known = f"choose one of {', '.join(task.name for task in TASKS.values())}"
        raise UserError(f"--task is {name!r}: {hint if 'did you mean' in hint else known}")
    return task


def glue_data(task: TaskSpec, data: str, *, with_test: bool = False) -> TaskData:
    """A task's examples from `data`: the folder of its official files, that of all tasks, or a data set, `hf:NAME`.

    `with_test` reads the test sets, too. Raises UserError for what is not there, and for files of another task.
    """
    on_hub = data.startswith(HUB)
    read: _Reader = _from_hub if on_hub else _from_file
    place = data if on_hub else str(task_folder(task, Path(data)))

    def existing(splits: tuple[Split, ...], labelled: bool) -> list[tuple[Split, _Table]]:
        found = [(split, table) for split in splits if (table := read(task, place, split, labelled)) is not None]
        if not found or found[0][0] is not splits[0]:
            raise UserError(f"{place}: has no {splits[0].file}; put the official files of {task.name} there")
        return found

    [(_, train)] = existing((task.train,), True)
    dev = existing(task.dev, True)
    test = existing(task.test, False) if with_test else []
    tables = [train, *(table for _, table in [*dev, *test])]
    return TaskData(
        name=task.name,
        labels=labels_of_task(task),
        train=train.examples,
        train_name=train.name,
        dev={split.name: table.examples for split, table in dev},
        dev_names={split.name: table.name for split, table in dev},
        test=[Unlabelled(split.name, table.indices, table.examples) for split, table in test],
        metrics=task.metrics,
        main=task.main,
        epochs=task.epochs,
        files={table.name: table.digest for table in tables},
        skipped_rows={table.name: table.skipped for table in tables if table.skipped},
    )


def task_folder(task: TaskSpec, data: Path) -> Path:
    """Where the task's files are: the folder of its name in `data` (in whatever case), or `data` itself."""
    if not data.is_dir():
        raise UserError(f"{data}: no such directory; --data is the folder of the official files, or hf:NAME")
    named = [path for path in sorted(data.iterdir()) if path.is_dir() and path.name.lower() == task.name.lower()]
    return named[0] if named else data


# -------------------------------------------------------------------------------------------------- the official files


def _from_file(task: TaskSpec, place: str, split: Split, labelled: bool) -> _Table | None:
    path = Path(place) / split.file
    if not path.is_file():
        return None
    lines = read_lines(path)
    header = list(split.columns) if split.columns else next(lines, "").split("\t")
    texts = [task.text, *([task.text_pair] if task.text_pair else [])]
    wanted = [*texts, *([task.label] if labelled else [])]
    if missing := [name for name in wanted if name not in header]:
        raise UserError(f"{path}: has no column {missing[0]!r}; is it the official file of {task.name}?")
    places = [header.index(name) for name in wanted]
    examples, indices, skipped = [], [], 0
    for line in lines:
        row = line.split("\t")
        if not line:
            continue
        if len(row) <= max(places) or len(row) < len(header):
            skipped += 1
            continue
        values = [row[place] for place in places]
        examples.append(_example(task, values[: len(texts)], values[-1].strip() if labelled else ""))
        indices.append(row[0])
    if skipped > _MOST_DAMAGED * len(examples) + 1:
        raise UserError(
            f"{path}: {skipped} of {skipped + len(examples)} rows have fewer columns than the {len(header)} of "
            f"{task.name}; is it the official file?"
        )
    return _Table(str(path), sha256(path), examples, indices, skipped)


def _example(task: TaskSpec, texts: list[str], label: str) -> Example:
    return Example(texts[0], texts[1] if task.text_pair else None, label)


# ---------------------------------------------------------------------------------------------------- the hub data set


def _from_hub(task: TaskSpec, place: str, split: Split, labelled: bool) -> _Table:
    configuration, _, name = split.hub.rpartition(":")
    rows = hub_rows(place.removeprefix(HUB), configuration or task.hub, name)
    examples, indices = [], []
    columns = [task.hub_text, *([task.hub_text_pair] if task.hub_text_pair else [])]
    for number, row in enumerate(rows):
        if missing := [column for column in [*columns, *(["label"] if labelled else [])] if column not in row]:
            raise UserError(
                f"{place}: {split.hub} of {task.hub} has no column {missing[0]!r}; is it the data set glue?"
            )
        label = _as_in_files(task, row["label"]) if labelled else ""
        examples.append(_example(task, [str(row[column]) for column in columns], label))
        indices.append(str(row.get("idx", number)))
    return _Table(f"{place}/{configuration or task.hub}/{name}", digest(examples), examples, indices, 0)


def _as_in_files(task: TaskSpec, label: Any) -> str:
    """A label of the data set (a name, or a number where it does not say the names), as the official files have it."""
    if task.labels and isinstance(label, int):
        return task.labels[label] if 0 <= label < len(task.labels) else str(label)
    return task.labels[task.names.index(label)] if label in task.names else str(label)


def tasks_in(data: str) -> Iterator[TaskSpec]:
    """The tasks that `data` has training and dev sets of (of a hub data set: all)."""
    for task in TASKS.values():
        if data.startswith(HUB):
            yield task
            continue
        folder = task_folder(task, Path(data))
        if folder.name.lower() == task.name.lower() and all(
            (folder / split.file).is_file() for split in (task.train, task.dev[0])
        ):
            yield task
