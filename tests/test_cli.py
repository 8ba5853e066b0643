"""The command line: what is accepted, and that every mistake gets one line, exit code 2 and no traceback."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from electra import cli
from electra.cli import arguments, commands
from electra.config import PretrainConfig
from electra.config_files import load_config, save_config
from electra.errors import UserError
from electra.presets import PRESETS


def said(capsys, *words):
    """(exit code, stdout, stderr) of one command."""
    code = cli.main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def refused(capsys, *words):
    """The one line that a refused command prints."""
    code, out, err = said(capsys, *words)
    assert code == 2
    assert out == ""
    assert err.startswith("electra: error: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert not set(err) & set("╭╮╰╯│─")
    return err.removeprefix("electra: error: ").strip()


# ------------------------------------------------------------------------------------------------- what is accepted


def test_overview_lists_every_command(capsys):
    for words in ([], ["--help"], ["-h"]):
        code, out, _ = said(capsys, *words)
        assert code == 0
        assert all(f"\n  {name} " in out for name in cli.COMMANDS)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(capsys, name):
    with pytest.raises(SystemExit) as leaving:
        cli.main([name, "--help"])
    assert leaving.value.code in (0, None)
    out = capsys.readouterr().out
    assert out.startswith(f"usage: electra {name}")
    for flag in arguments.flags(cli.COMMANDS[name][0]):
        assert flag in out


def test_spellings_that_are_part_of_the_interface():
    prepare = cli.parse("prepare", ["a.txt", "b", "--out", "store", "--vocab-size", "100"])
    assert prepare.files == ("a.txt", "b")
    assert (prepare.out, prepare.vocab_size) == (Path("store"), 100)

    words = "--preset tiny --data.store store --run-dir run --train.num-steps 5 --train.save-every 2 --train.seed 3"
    settings = cli.parse("pretrain", words.split()).settings
    assert (settings.data.store, settings.run_dir) == (Path("store"), Path("run"))
    assert (settings.train.num_steps, settings.train.save_every, settings.train.seed) == (5, 2, 3)

    words = "model --task-file f.tsv --dev-file g.tsv --text-column text --label-column label --out out"
    settings = cli.parse("finetune", words.split()).settings
    assert (settings.task_file, settings.dev_file, settings.out) == (Path("f.tsv"), Path("g.tsv"), Path("out"))

    assert cli.parse("export", ["run", "out"]).out == Path("out")
    detect = cli.parse("detect", ["model", "the chef ate the meal", "--json"])
    assert (detect.text, detect.json) == ("the chef ate the meal", True)
    flops = cli.parse("flops", ["--preset", "small", "--json", "--reference"])
    assert (flops.preset, flops.json, flops.reference) == ("small", True, True)
    quickstart = cli.parse("quickstart", ["--minutes", "1.5", "--out", "o", "--seed", "1"])
    assert (quickstart.minutes, quickstart.out, quickstart.seed) == (1.5, Path("o"), 1)
    assert cli.parse("report", ["run"]).run_dir == Path("run")


def test_underscores_and_equal_signs_are_fine():
    settings = cli.parse(
        "pretrain", ["--train.num_steps=5", "--data.layout=two-segment", "--train.tensorboard"]
    ).settings
    assert (settings.train.num_steps, settings.data.layout, settings.train.tensorboard) == (5, "two-segment", True)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_alone_is_that_preset(name):
    assert cli.parse("pretrain", ["--preset", name]).settings == PRESETS[name]()


def test_preset_then_file_then_flags(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("optimizer: {weight_decay: 0.5, clip_norm: 2.0}\n")
    settings = cli.parse(
        "pretrain", ["--preset", "small", "--config", str(file), "--optimizer.clip-norm", "3"]
    ).settings
    assert settings.optimizer.peak_learning_rate == PRESETS["small"]().optimizer.peak_learning_rate
    assert settings.optimizer.weight_decay == 0.5
    assert settings.optimizer.clip_norm == 3.0


def test_a_budget_that_is_named_takes_the_place_of_the_presets(tmp_path):
    assert PRESETS["small"]().train.num_steps == 1_000_000
    train = cli.parse("pretrain", ["--preset", "small", "--train.num-tokens", "2e6"]).settings.train
    assert (train.num_steps, train.num_tokens) == (None, 2e6)
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"train": {"num_minutes": 3}}))
    train = cli.parse("pretrain", ["--preset", "small", "--config", str(file)]).settings.train
    assert (train.num_steps, train.num_minutes) == (None, 3)
    file.write_text(json.dumps({"train": {"seed": 3}}))
    train = cli.parse("pretrain", ["--preset", "small", "--config", str(file)]).settings.train
    assert (train.num_steps, train.seed) == (1_000_000, 3)


def test_a_run_goes_on_with_its_own_settings(tmp_path):
    save_config(PRESETS["small"](), tmp_path / "config.yaml")
    assert cli.parse("pretrain", ["--run-dir", str(tmp_path)]).settings == load_config_of(tmp_path)
    settings = cli.parse("pretrain", ["--run-dir", str(tmp_path), "--preset", "base"]).settings
    assert settings.model == PRESETS["base"]().model


def load_config_of(run_dir):
    settings = load_config(PretrainConfig, run_dir / "config.yaml")
    return type(settings)(**{**vars(settings), "run_dir": run_dir})


def test_flops_as_json_and_as_a_table(capsys):
    code, out, _ = said(capsys, "flops", "--preset", "small", "--json", "--reference")
    assert code == 0
    assert json.loads(out)["run"]["flops"] == pytest.approx(1.294e18, rel=1e-3)
    code, out, _ = said(capsys, "flops", "--preset", "tiny")
    assert code == 0
    assert "parameters discriminator" in out


def test_the_way_to_the_first_answer_is_short():
    """Neither help nor a mistake waits for torch: the start must not import it. (No timed test: machines differ.)"""
    code = (
        "import sys\nfrom electra.cli import main\n"
        "assert main(['--help']) == 0\nassert main(['pretrain', '--nothing']) == 2\n"
        "assert not {'torch', 'transformers', 'matplotlib', 'pandas'} & set(sys.modules), 'heavy import'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


# -------------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("pretrian", "unknown command 'pretrian'; did you mean 'pretrain'?"),
        ("pretrain --train.nm-steps 5", "unknown setting '--train.nm-steps'; did you mean '--train.num-steps'?"),
        ("pretrain --train.num_step=5", "did you mean '--train.num-steps'?"),
        ("pretrain --train.num-steps x", "--train.num-steps is 'x': it must be a whole number"),
        ("pretrain --train.num-steps 5.5", "--train.num-steps is '5.5': it must be a whole number"),
        ("pretrain --train.save-every x", "--train.save-every is 'x': it must be a whole number"),
        ("pretrain --objective.mask-fraction x", "--objective.mask-fraction is 'x': it must be a number"),
        ("pretrain --objective.mask-fraction 2", "objective.mask_fraction is 2.0: it must be between 0 and 1"),
        ("pretrain --data.layout two", "--data.layout is 'two': choose one of dense, two-segment"),
        ("pretrain --preset tin", "--preset is 'tin': choose one of tiny, small"),
        ("pretrain --train.tensorboard yes", "yes: not understood"),
        ("pretrain --train.num-steps", "--train.num-steps has no value"),
        ("pretrain --preset", "--preset has no value"),
        ("pretrain --config", "--config has no value"),
        ("pretrain --config no-such-file", "no-such-file: no such configuration file"),
        ("pretrain --preset small --data.length 1024", "the position table ends at 512"),
        ("prepare text.txt", "--out is missing"),
        ("finetune model", "give either --task-file FILE or --task NAME with --data DIR"),
        ("finetune --task-file f.csv", "MODEL is missing"),
        ("detect model", "give either a TEXT in quotes or --file FILE"),
        ("detect model the chef", "chef: not understood; quote a text of several words"),
        ("export run", "OUT is missing"),
        ("report no-such-run", "no-such-run: no config.yaml in it"),
        ("quickstart --minutes soon", "--minutes is 'soon': it must be a number"),
        ("flops --preset", "--preset has no value"),
    ],
)
def test_a_mistake_gets_one_line(capsys, words, expected):
    assert expected in refused(capsys, *words.split())


def test_no_files_to_prepare(capsys, tmp_path):
    assert refused(capsys, "prepare", "--out", str(tmp_path / "store"))


@pytest.mark.parametrize("text", ["train: {num_stepz: 5}", "train: 5", "- 1", "a: [", "train: {num_steps: many}"])
def test_a_bad_configuration_file_gets_one_line(capsys, tmp_path, text):
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    assert refused(capsys, "pretrain", "--config", str(file))


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UserError("two\nlines"), 2, "electra: error: two lines"),
        (
            OSError(errno.ENOSPC, "No space left on device", "run/step-5"),
            2,
            "electra: error: run/step-5: No space left on device",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "run"), 2, "electra: error: run: Permission denied"),
        (KeyboardInterrupt(), 130, "electra: stopped; the same command goes on from what is saved"),
    ],
)
def test_what_a_command_raises_becomes_one_line(capsys, monkeypatch, error, code, line):
    def fail(self):
        raise error

    monkeypatch.setattr(commands.Report, "run", fail)
    assert said(capsys, "report", "run") == (code, "", f"{line}\n")


def test_a_fault_of_ours_is_not_hidden(monkeypatch):
    def fail(self):
        raise ZeroDivisionError

    monkeypatch.setattr(commands.Report, "run", fail)
    with pytest.raises(ZeroDivisionError):
        cli.main(["report", "run"])


def test_a_closed_pipe_is_no_mistake():
    command = f"{sys.executable} -m electra.cli pretrain --help | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    assert "Traceback" not in done.stderr
