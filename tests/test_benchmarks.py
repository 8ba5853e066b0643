"""The benchmarks run: our step and the rival's at toy size, and the table of a round."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    """A module of benchmarks/, which is no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def load(name):
        spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield load
    sys.modules.pop("sides", None)


@pytest.mark.parametrize("side", ["ours", "ours bf16", "transformers sdpa", "electra-pytorch", "simpletransformers"])
def test_a_step_of_each_side(benchmark, side, monkeypatch):
    sides = benchmark("sides")
    monkeypatch.setattr(sides, "VOCABULARY", 200)
    monkeypatch.setattr(sides, "LENGTH", 16)
    if side not in ("ours", "ours bf16", "transformers sdpa"):
        pytest.importorskip(side.replace("-", "_"), reason="installed by `make benchmark`")
    make, precision = sides.SIDES[side]
    make(2, getattr(torch, precision), torch.device("cpu"))()


def test_the_table_of_a_run(benchmark):
    step = benchmark("step")
    rounds = [
        {
            "matrix rate": {"float32": 1e11},
            "ours": {"tokens_per_second": speed, "peak_mib": 100.0},
            "transformers sdpa": {"tokens_per_second": 500.0, "peak_mib": 200.0},
            "electra-pytorch": {"error": "ModuleNotFoundError"},
        }
        for speed in (1000.0, 1500.0, 1100.0)
    ]
    machine = {"batch": 16, "machine": "m", "threads": 2, "units": ["avx2"], "torch": "2", "device": "cpu"}
    table = step.report(machine, rounds, ["ours", "transformers sdpa", "electra-pytorch"], {"matrix products": 0.7})
    ours = next(line for line in table.splitlines() if line.startswith("ours"))
    assert ours.split()[1:3] == ["1,100", "2.20"]
    assert "(2.00 to 3.00)" in ours
    assert f"{1100 * step.useful_operations() / 1e11:.0%}" in ours
    assert "electra-pytorch" in table
    assert "did not run: ModuleNotFoundError" in table
