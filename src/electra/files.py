"""Files and directories that are either whole or not there: written under another name, synced, renamed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from electra.errors import UserError


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file that is whole or not there, making its directory; text as UTF-8. Raises UserError, naming it, when that
    fails."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        partial.replace(path)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror}); free some space or choose another place"
        ) from None


def write_directory(directory: Path, write: Callable[[Path], None]) -> None:
    """Make `directory` hold what `write` puts in the temporary directory it is given: all of it or nothing.

    Raises UserError, naming the directory, when it cannot be written (disk full, no permission).
    """
    temporary = directory.with_name(f".{directory.name}.partial")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        write(temporary)
        for path in temporary.rglob("*"):
            _sync(path)
        _sync(temporary)
        shutil.rmtree(directory, ignore_errors=True)
        temporary.rename(directory)
        _sync(directory.parent)
    except Exception as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if not isinstance(error, OSError) and "No space left" not in str(error):  # safetensors and torch wrap OSError
            raise
        reason = (
            os.strerror(error.errno) if isinstance(error, OSError) and error.errno else " ".join(str(error).split())
        )
        raise UserError(
            f"{directory}: cannot be written ({reason}); free some space or choose another directory, "
            f"what was saved before is intact"
        ) from error


@contextlib.contextmanager
def exclusive(directory: Path, *, held: bool = True) -> Iterator[None]:
    """Keep other processes out of an existing directory as long as this one writes there; a killed one lets go, too.

    Raises UserError, naming the directory, when another process is at work. Does nothing where locks are unknown, and
    without `held` (for the other ranks of one run).
    """
    if not held:
        yield
        return
    with contextlib.ExitStack() as opened:
        try:
            import fcntl

            file = opened.enter_context((directory / ".lock").open("a+", encoding="utf-8"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UserError(
                f"{directory} is in use by another process (number {file.read().strip() or 'unknown'}): wait for it, stop it, "
                f"or choose another directory"
            ) from None
        except (ImportError, OSError):  # Windows, or a file system without locks
            pass
        else:
            file.truncate(0)
            file.write(f"{os.getpid()}")
            file.flush()
        yield


def sha256(path: Path) -> str:
    """Of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
