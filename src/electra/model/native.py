"""Compiles `cpu/kernels.cpp` on first use and calls it; without a compiler the package runs on plain torch operations."""

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

SOURCES = Path(__file__).with_name("cpu")
COMPILER_FLAGS = ("-std=c++20", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp", "-fPIC")


def _cpu_features() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return platform.processor()


def _build() -> Path:
    """Compile `cpu/kernels.cpp` unless the cache has it. Safe when several processes build at once: the last rename wins."""
    compiler = os.environ.get("CXX", "c++")
    sources = [path.read_text() for path in sorted(SOURCES.glob("*.[ch]*"))]
    identity = "\n".join((*sources, compiler, *COMPILER_FLAGS, _cpu_features(), torch.__version__))
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = Path(os.environ.get("ELECTRA_CACHE") or caches / "electra")
    library_file = home / f"kernels-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.so"
    if not library_file.exists():
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home) as scratch:
            object_file, built = Path(scratch) / "kernels.o", Path(scratch) / "kernels.so"
            compile_command = [compiler, *COMPILER_FLAGS, "-c", str(SOURCES / "kernels.cpp"), "-o", str(object_file)]
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


@functools.cache
def _kernel(name: str) -> Any:
    """A kernel by the name of its address, e.g. bfloat16_dropout."""
    return ctypes.CFUNCTYPE(None)(ctypes.c_void_p.in_dll(library(), name).value)  # type: ignore[arg-type]


def call(name: str, *arguments: Tensor | int | float | None) -> None:
    """Run a kernel, the one for bfloat16 activations if any tensor is of that type.

    Every kernel takes the number of threads first; a whole number is a long, a float a double, None a null.
    """
    converted: list[Any] = [ctypes.c_long(torch.get_num_threads())]
    kind = "float32"
    for value in arguments:
        if isinstance(value, Tensor):
            if value.dtype == torch.bfloat16:
                kind = "bfloat16"
            converted.append(ctypes.c_void_p(value.data_ptr()))
        elif value is None:
            converted.append(ctypes.c_void_p(None))
        else:
            converted.append(ctypes.c_double(value) if isinstance(value, float) else ctypes.c_long(value))
    _kernel(f"{kind}_{name}")(*converted)


def fused(*activations: Tensor | None, weights: tuple[Tensor | None, ...] = ()) -> bool:
    """Whether the compiled kernels take these tensors: on the CPU, weights in float32, activations all in float32 or all in
    bfloat16; under autocast to bfloat16 they are cast first (see `activation`)."""
    given = [t for t in activations if t is not None]
    if any(t.device.type != "cpu" for t in given):
        return False
    autocast, kinds = torch.is_autocast_enabled("cpu"), {t.dtype for t in given}
    return (
        kinds <= {torch.float32, torch.bfloat16}
        and (len(kinds) == 1 or autocast)
        and all(w is None or (w.device.type == "cpu" and w.dtype == torch.float32) for w in weights)
        and (not autocast or torch.get_autocast_dtype("cpu") == torch.bfloat16)
        and library() is not None
    )


def activation(x: Tensor) -> Tensor:
    """The tensor as a kernel takes it: contiguous, and bfloat16 under autocast on the CPU."""
    return (x.bfloat16() if torch.is_autocast_enabled("cpu") else x).contiguous()


@functools.cache
def has_bfloat16_units() -> bool:
    """Whether this processor multiplies bfloat16 matrices by itself. Emulated, they are slower than float32."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


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
