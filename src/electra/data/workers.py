"""Work on all cores: further Python processes that each hold one callable, and batches handed to them in turn.

Not `multiprocessing`: its children import the caller's main program again or are forks of a process that has threads.
Here a child is `python -m electra.data.workers`, told over its standard input what to hold; it ends when that input does,
so nothing stays behind whatever ends the parent.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

from electra.errors import UserError

Batch = TypeVar("Batch")
Result = TypeVar("Result")

MAX_WORKERS = 8
"""Reading and writing are one process's work, which more than so many workers would only wait for."""


def num_cores() -> int:
    """Those this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Process:
    """A child that holds `factory(*arguments)`; calling this calls that. Everything must be picklable."""

    def __init__(self, factory: Callable[..., Any], arguments: Sequence[Any]) -> None:
        package = Path(__file__).resolve().parents[2]
        paths = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
        single = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}  # the processes are the parallelism
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "electra.data.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **single, "PYTHONPATH": os.pathsep.join(paths)},
        )
        self._unsent: Any = (factory, arguments)  # sent with the first batch: children start side by side

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdout.close()
        with suppress(BrokenPipeError):  # it is gone already; whoever called it has been told
            self._process.stdin.close()
        self._process.wait()

    def __call__(self, batch: Any) -> Any:
        assert self._process.stdout
        try:
            if self._unsent is not None:
                self._send(self._unsent)
                self._unsent = None
            self._send(batch)
            return pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            raise UserError(
                f"a worker process ended early (status {self._process.wait()}); if memory ran out, ask for fewer (--num-workers)"
            ) from None

    def _send(self, what: Any) -> None:
        assert self._process.stdin
        pickle.dump(what, self._process.stdin, protocol=5)
        self._process.stdin.flush()


@contextmanager
def workers(num_processes: int, factory: Callable[..., Any], *arguments: Any) -> Iterator[list[Callable[[Any], Any]]]:
    """`factory(*arguments)` in each of `num_processes` processes; with 0 in this one, for little work."""
    with ExitStack() as stack:
        if num_processes == 0:
            yield [factory(*arguments)]
        else:
            yield [stack.enter_context(_Process(factory, arguments)) for _ in range(num_processes)]


def in_order(held: Sequence[Callable[[Batch], Result]], batches: Iterable[Batch]) -> Iterator[Result]:
    """The result of each batch, in order of the batches. Some batches more than there are workers are read ahead, so that
    all are at work while the caller reads the next batch and writes the last result. Errors of either side come through."""
    free: SimpleQueue[Callable[[Batch], Result]] = SimpleQueue()
    for worker in held:
        free.put(worker)

    def work(batch: Batch) -> Result:
        worker = free.get()
        try:
            return worker(batch)
        finally:
            free.put(worker)

    pool = ThreadPoolExecutor(len(held))
    pending: deque[Future[Result]] = deque()
    try:
        for batch in batches:
            pending.append(pool.submit(work, batch))
            if len(pending) > 2 * len(held):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _serve() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the parent ends its children
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not get among the results
    try:
        factory, arguments = pickle.load(source)
        held = factory(*arguments)
        while True:
            pickle.dump(held(pickle.load(source)), sink, protocol=5)
            sink.flush()
    except (EOFError, BrokenPipeError):  # the parent is done, or gone
        os._exit(0)


if __name__ == "__main__":
    _serve()
