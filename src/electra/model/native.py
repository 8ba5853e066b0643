"""Compiles `kernels.cpp` on first use and calls it; without a compiler the package runs on plain torch operations."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SOURCE = Path(__file__).with_name("kernels.cpp")
COMPILER_FLAGS = ("-std=c++20", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-fPIC")


def _cpu_features() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return platform.processor()


def _build() -> Path:
    """Compile `kernels.cpp` unless the cache has it. Safe when several processes build at once: the last rename wins."""
    compiler = os.environ.get("CXX", "c++")
    identity = "\n".join((SOURCE.read_text(), compiler, *COMPILER_FLAGS, _cpu_features(), torch.__version__))
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = Path(os.environ.get("ELECTRA_CACHE") or caches / "electra")
    library_file = home / f"kernels-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.so"
    if not library_file.exists():
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home) as scratch:
            object_file, built = Path(scratch) / "kernels.o", Path(scratch) / "kernels.so"
            compile_command = [compiler, *COMPILER_FLAGS, "-c", str(SOURCE), "-o", str(object_file)]
            subprocess.run(compile_command, check=True, capture_output=True)
            # Linked without an OpenMP library: the symbols are found in the one that torch has loaded, so that both share
            # one pool of threads. Two pools on the same cores spin against each other and run several times slower.
            subprocess.run([compiler, "-shared", str(object_file), "-o", str(built)], check=True, capture_output=True)
            built.rename(library_file)
    return library_file


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels, or None where they are switched off (ELECTRA_KERNELS=off) or cannot be built."""
    if os.environ.get("ELECTRA_KERNELS", "on") == "off" or sys.platform != "linux":
        return None
    try:
        return ctypes.CDLL(str(_build()))
    except (OSError, subprocess.CalledProcessError) as error:
        failed = isinstance(error, subprocess.CalledProcessError)
        detail = error.stderr.decode(errors="replace").strip() if failed else str(error)  # type: ignore[union-attr]
        warnings.warn(
            f"the compiled kernels are off, training runs on plain torch operations: {detail[-500:]}", stacklevel=2
        )
        return None


def call(name: str, *arguments: Tensor | int | float | None) -> None:
    """Run a kernel. Every one takes the number of threads first; a whole number is a long, a float a double, None a null."""
    converted: list[Any] = [ctypes.c_long(torch.get_num_threads())]
    for value in arguments:
        if isinstance(value, Tensor):
            converted.append(ctypes.c_void_p(value.data_ptr()))
        elif value is None:
            converted.append(ctypes.c_void_p(None))
        else:
            converted.append(ctypes.c_double(value) if isinstance(value, float) else ctypes.c_long(value))
    getattr(library(), name)(*converted)


def fused(*tensors: Tensor | None) -> bool:
    """Whether the compiled kernels take these tensors: float32 on the CPU, outside autocast."""
    return (
        all(t is None or (t.device.type == "cpu" and t.dtype == torch.float32) for t in tensors)
        and not torch.is_autocast_enabled("cpu")
        and library() is not None
    )


def keep_memory() -> None:
    """Tell glibc to keep freed memory: a training step frees and asks for the same blocks again, and fresh pages cost more
    than the arithmetic on them. For the process that trains; does nothing elsewhere than on glibc."""
    try:
        libc = ctypes.CDLL("libc.so.6")
        for option, value in (
            (-1, 2**31 - 1),
            (-3, 32 * 2**20),
            (-4, 0),
        ):  # trim threshold, mmap threshold, number of mmaps
            libc.mallopt(option, value)
    except (OSError, AttributeError):
        pass
