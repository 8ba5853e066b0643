"""Fine-tuning and detection beside `transformers`: both sides do the same work, and the table says what was measured."""

import argparse
import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parent.parent.parent / "benchmarks" / "downstream.py"


@pytest.fixture(scope="module")
def downstream():
    spec = importlib.util.spec_from_file_location("benchmark_downstream", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def options(exported, tmp_path, downstream):
    words = ["good film", "bad story", "lovely", "weak, awful", "fine story", "poor"]
    rows = [f"{word} the film was\t{index % 2}\n" for index, word in enumerate(words * 3)]
    (tmp_path / "task.tsv").write_text("text\tlabel\n" + "".join(rows))
    found = argparse.Namespace(
        train=tmp_path / "task.tsv", dev=tmp_path / "task.tsv", text="text", label="label", examples=18, join=1,
        data=tmp_path, out=tmp_path / "out", epochs=1, max_length=32, round=0,
    )  # fmt: skip
    (tmp_path / "model").symlink_to(exported / "discriminator")
    assert downstream.write_data(found, tmp_path) == 18
    return found


def test_both_ways_of_detecting_give_the_same_numbers(downstream, options):
    ours, plain = downstream.our_detection(options), downstream.plain_detection(options)
    assert ours["sum"] == pytest.approx(plain["sum"], abs=1e-4)


def test_our_fine_tuning_is_measured(downstream, options):
    found = downstream.our_finetuning(options)
    assert 0.0 < found["training"] < found["seconds"]
    assert 0.0 <= found["accuracy"] <= 1.0


def test_texts_of_one_label_are_joined(downstream, options):
    options.join = 3
    assert downstream.write_data(options, options.data) == 6
    lines = (options.data / "lines.txt").read_text().splitlines()
    assert all(line.count("the film was") == 3 for line in lines)


def test_the_table_is_of_medians_and_ratios_round_by_round(downstream):
    def found(seconds):
        return {
            side: {"seconds": seconds * (2 if "ours" not in side else 1), "processor": 3.0, "sum": 1.5}
            for side in downstream.SIDES
        }

    result = {"preset": "small", "examples": 100, "epochs": 1, "max_length": 128, "threads": 2, "machine": "a machine"}
    table = downstream.report({**result, "rounds": [found(1.0), found(5.0), found(2.0)]})
    line = next(line for line in table.splitlines() if line.startswith("detection, transformers loop"))
    assert line.split()[3:] == ["4.0", "25", "2.00", "2.00", "to", "2.00", "1.00", "sum", "1.5", "1.5", "1.5"]
