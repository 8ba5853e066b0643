"""Which files of a folder are for training and which for scoring, by the names that data sets come with."""

from __future__ import annotations

from pathlib import Path

from electra.errors import UserError

_DEV = ("dev", "valid", "testa", "test")  # the first that is there


def train_and_dev(data: Path | None, train_file: Path | None, dev_file: Path | None) -> tuple[Path, Path | None]:
    """The training file and the dev file (None if there is none): those named, else those that the folder `data` has, such as
    train-v2.0.json and dev-v2.0.json, conll2000-train.txt and conll2000-test.txt, eng.train and eng.testa.

    Raises UserError when the folder has no training file or several.
    """
    if data is None:
        assert train_file is not None, "the configuration asks for one of the two"
        return train_file, dev_file
    if not data.is_dir():
        raise UserError(
            f"{data}: no such folder; give the folder with the training and dev files, or --train-file FILE"
        )
    files = sorted(path for path in data.iterdir() if path.is_file() and not path.name.startswith("."))
    train = train_file or _single(data, files, "train", "--train-file")
    if train is None:
        raise UserError(f"{data}: no file has 'train' in its name; name it with --train-file FILE")
    return train, dev_file or next((path for word in _DEV if (path := _single(data, files, word, "--dev-file"))), None)


def _single(data: Path, files: list[Path], word: str, flag: str) -> Path | None:
    found = [path for path in files if word in path.name.lower()]
    if len(found) > 1:
        names = " and ".join(path.name for path in found[:2])
        raise UserError(f"{data}: {names} both have {word!r} in their names; choose one with {flag} FILE")
    return found[0] if found else None
