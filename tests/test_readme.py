"""What README and docs tell people to type: every command is read by the real parser, and README's are run, small."""

import ast
import re
import shlex
from pathlib import Path

import pytest

import electra
from electra import cli

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CLASSES = [("a fine dish , well cooked", "good"), ("the soup was burned", "bad")]

# What makes a command of minutes one of seconds; everything else is run as it stands on the page.
SMALL = {
    "--vocab-size 8192": "--vocab-size 100",
    "--train.num-minutes 30": "--train.num-steps 3",
    "vocab_size=8192": "vocab_size=100",
    "num_minutes=30": "num_minutes=None, num_steps=3",
}


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def commands(page):
    lines = [line for block in blocks(page, "bash") for line in block.splitlines()]
    return [line for line in lines if line.startswith("electra ")]


def small(text):
    for large, tiny in SMALL.items():
        text = text.replace(large, tiny)
    return text


@pytest.fixture
def workplace(tmp_path, monkeypatch, corpus_file):
    """A directory with the files that the pages name."""
    monkeypatch.chdir(tmp_path)
    Path("my-text.txt").write_text(corpus_file.read_text(encoding="utf-8"), encoding="utf-8")
    for name in ("train.csv", "dev.csv"):
        Path(name).write_text("text,label\n" + "".join(f'"{text}",{label}\n' for text, label in CLASSES * 8))
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_is_understood(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for line in commands(page):
        _, name, *words = shlex.split(line, comments=True)
        if "COMMAND" not in line:
            cli.parse(name, words)


def test_the_readmes_commands_work(workplace, capsys):
    lines = commands(ROOT / "README.md")
    assert {shlex.split(line)[1] for line in lines} >= {"prepare", "pretrain", "detect", "finetune", "report", "export"}
    for line in lines:
        code = cli.main(shlex.split(small(line))[1:])
        assert code == 0, f"{line}\n{capsys.readouterr().err}"
    for made in ("run/discriminator/config.json", "run/report.html", "exported/generator/config.json", "classifier"):
        assert (workplace / made).exists(), made


def test_the_readmes_python_works(workplace):
    code = small("\n".join(blocks(ROOT / "README.md", "python")))
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_uses_public_names(page):
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "electra":
                assert node.attr in electra.__all__


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_make_targets_that_are_named_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in PAGES:
        for target in re.findall(r"`?make ([a-z]+)", "\n".join(blocks(page, "bash"))):
            assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_every_command_is_in_the_readme():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in cli.COMMANDS:
        assert f"electra {name}" in text or f"make {name}" in text, name


def test_nothing_is_left_to_be_filled_in():
    for page in PAGES:
        assert "<FIGURE" not in page.read_text(encoding="utf-8"), page.name
