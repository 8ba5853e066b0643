"""Predictions for the GLUE leaderboard: a file a test set, index<TAB>prediction, labels as the official files have them.

Source: the sample submission of gluebenchmark.com (its file names, header and labels; STS-B has scores from 0 to 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from electra.evaluate.task_data import Unlabelled
from electra.files import write_file


def write_submission(directory: Path, test: Unlabelled, predicted: Sequence[str]) -> Path:
    """Write `directory`/NAME.tsv; `predicted` has a label for each row of the test set. Returns the path."""
    rows = [f"{index}\t{label}" for index, label in zip(test.indices, predicted, strict=True)]
    path = directory / f"{test.name}.tsv"
    write_file(path, "\n".join(["index\tprediction", *rows, ""]))
    return path
