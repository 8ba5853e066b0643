"""The benchmark of the step: every side's step at toy size, the profile, and the table of a run."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
RIVALS = {"electra-pytorch": "electra_pytorch", "simpletransformers": "simpletransformers.language_modeling"}
NAMES = [
    "ours", "ours bf16", "transformers sdpa", "transformers eager", "transformers sdpa bf16", "electra-pytorch",
    "electra-pytorch bf16", "simpletransformers",
]  # fmt: skip


@pytest.fixture
def benchmark(monkeypatch):
    """benchmarks/step.py, which is in no package; `sides` and `breakdown` are its neighbours. Toy sizes."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("benchmark_step", BENCHMARKS / "step.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, value in (("VOCABULARY", 200), ("LENGTH", 16)):
        monkeypatch.setattr(sys.modules["sides"], name, value)
        monkeypatch.setattr(module, name, value)
    yield module
    for name in ("sides", "breakdown"):
        sys.modules.pop(name)


@pytest.mark.parametrize("name", NAMES)
def test_each_side_takes_a_step(benchmark, name):
    if (rival := name.removesuffix(" bf16")) in RIVALS:
        pytest.importorskip(RIVALS[rival], reason="installed by `make benchmark`")
    options = benchmark.parse(["--batch-size", "2", "--steps", "1"])
    found = benchmark.measure(name, options)
    assert found["tokens_per_second"] > 0
    assert found["start_seconds"] > 0
    assert found["peak_mib"] > 50  # torch alone is more


def test_the_rival_has_as_many_parameters_as_our_pair(benchmark):
    """So that no side works on a table more than another."""
    from electra.presets import small

    sides = sys.modules["sides"]
    _, parameters = sides.adamw(*sides.networks("sdpa"))
    assert sum(p.numel() for p in parameters) == benchmark.flops_of(small()).parameters


def test_every_side_gets_the_same_rows(benchmark):
    sides = sys.modules["sides"]
    one, other = sides.endless_rows(3), sides.endless_rows(3)
    first = next(one)
    assert torch.equal(first, next(other))
    assert not torch.equal(first, next(one))
    assert first[:, 0].eq(sides.CLS).all()
    assert first[:, -1].eq(sides.SEP).all()


def test_the_profile_adds_up(benchmark):
    sides, breakdown = sys.modules["sides"], sys.modules["breakdown"]
    shares = breakdown.shares(lambda: sides.our_step(2, torch.float32, torch.device("cpu")), steps=1)
    assert sum(shares.values()) == pytest.approx(1.0)
    groups = {group for _, group in breakdown.RULES} | {*breakdown.PHASES, breakdown.REST}
    assert shares.keys() == groups
    assert min(shares.values()) > 0.0


def test_a_side_that_fails_says_why(benchmark):
    options = benchmark.parse(["--device", "nowhere", "--sides", "ours"])
    assert "nowhere" in benchmark.in_a_process("ours", options)["error"]


@pytest.fixture
def description():
    return {
        "batch_size": 16, "machine": "m", "device": "cpu", "threads": 2, "units": {"avx2": True, "amx_bf16": False},
        "versions": {"torch": "2", "simpletransformers": None}, "useful_operations_per_token": 7e7,
    }  # fmt: skip


def figures(speed, start=1.0):
    return {"tokens_per_second": speed, "peak_mib": speed / 10.0, "start_seconds": start}


def test_the_table_of_a_run(benchmark, description):
    rounds = [
        {
            "matrix products": {"float32": {"a": rate - 1e10, "b": rate, "c": 9e11}},
            "ours": figures(speed),
            "transformers sdpa": figures(500.0),
            "electra-pytorch": {"error": "ModuleNotFoundError: No module named 'electra_pytorch'"},
        }
        for speed, rate in ((1000.0, 1e11), (1500.0, 2e11), (1100.0, 1e11))
    ]
    table = benchmark.report(description, rounds, {"matrix products": 0.7, "optimizer": 0.3})
    ours = next(line for line in table.splitlines() if line.startswith("ours"))
    # Round by round 70%, 52.5% and 77% of the median shape's rate.
    assert ours.split() == ["ours", "1,100", "2.20", "(2.00", "to", "3.00)", "70%", "150", "1"]
    assert "float32 100 GFLOP/s" in table
    assert "did not run: ModuleNotFoundError: No module named 'electra_pytorch'" in table
    assert table.endswith("where our step's time goes: matrix products 70.0%, optimizer 30.0%")


@pytest.mark.parametrize(
    ("speed", "verdict"), [(750.0, "more than 5 minutes"), (400.0, "never pays back")], ids=["faster", "slower"]
)
def test_whether_compiling_pays_back(benchmark, description, speed, verdict):
    """100 s of compiling at 1.5 times the speed: even after 300 s."""
    found = {"matrix products": {"float32": {"a": 1e11}}, "ours": figures(1000.0), "transformers sdpa": figures(500.0)}
    table = benchmark.report(description, [{**found, benchmark.COMPILED: figures(speed, start=101.0)}], {})
    assert verdict in table


def test_bfloat16_rows_where_the_processor_has_the_units(benchmark, monkeypatch):
    def names(*words, units):
        monkeypatch.setattr("electra.model.native.has_bfloat16_units", lambda: units)
        return benchmark.choose_sides(benchmark.parse(list(words)))

    assert not any("bf16" in name for name in names(units=False))
    assert "ours bf16" in names(units=True)
    assert "ours bf16" in names("--bfloat16", units=False)
    assert "transformers eager bf16" in names("--device", "cuda", units=False)
    assert names("--sides", "--compile", units=True) == ["ours", "transformers sdpa", "transformers sdpa compiled"]
