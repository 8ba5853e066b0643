"""Batches in order from processes; errors of either side come through, and nothing stays behind."""

import functools
import operator
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from electra.data.workers import in_order, workers
from electra.errors import UserError

BATCHES = [f"batch {n} " * n for n in range(20)]


@pytest.mark.parametrize("num_processes", [0, 1, 3])
def test_results_come_in_order(num_processes):
    with workers(num_processes, operator.methodcaller, "upper") as held:
        assert len(held) == max(1, num_processes)
        assert list(in_order(held, iter(BATCHES))) == [batch.upper() for batch in BATCHES]


def test_what_a_worker_prints_is_no_result(capfd):
    with workers(1, functools.partial, print) as held:
        assert list(in_order(held, ["hello", "there"])) == [None, None]
    assert capfd.readouterr() == ("", "hello\nthere\n")


def test_a_worker_that_dies_is_one_line(capfd):
    with workers(2, functools.partial, os._exit) as held, pytest.raises(UserError, match=r"ended early \(status 3\)"):
        list(in_order(held, [3] * 5))


@pytest.mark.parametrize("num_processes", [0, 1])
def test_an_error_in_reading_comes_through(num_processes):
    def batches():
        yield "the soup"
        raise OSError("gone")

    with workers(num_processes, operator.methodcaller, "upper") as held, pytest.raises(OSError, match="gone"):
        list(in_order(held, batches()))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at /proc")
def test_workers_end_when_the_parent_is_killed(tmp_path):
    program = (
        "import operator, sys; from electra.data.workers import *\n"
        "with workers(1, operator.methodcaller, 'upper') as held:\n"
        "    held[0]('a'); print(held[0]._process.pid, flush=True); sys.stdin.read()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    assert _running(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()
    until = time.monotonic() + 60
    while _running(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _running(pid)


def _running(pid):
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
