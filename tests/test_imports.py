"""The shape of the package: who may import whom, and what `import electra` costs."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import electra

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "electra"

# Each part and the parts that it may import (DESIGN.md, "Direction of imports").
BASE = {"config", "config_files", "config_finetune", "errors", "files", "vocabulary"}
ALLOWED = {
    "config": {"errors"},
    "config_files": {"errors"},
    "config_finetune": {"errors"},
    "errors": set(),
    "files": {"errors"},
    "vocabulary": {"errors"},
    "presets": BASE,
    "data": BASE,
    "model": BASE,
}
ALLOWED["objectives"] = BASE | {"data", "model"}
ALLOWED["train"] = ALLOWED["objectives"] | {"objectives", "presets"}
ALLOWED["evaluate"] = ALLOWED["train"] | {"train"}
ALLOWED["studies"] = ALLOWED["evaluate"] | {"evaluate"}
ALLOWED["quickstart"] = ALLOWED["studies"] | {"studies"}
ALLOWED["cli"] = ALLOWED["quickstart"] | {"quickstart"}


def part_of(path: Path) -> str:
    """data/text.py -> data, cli.py -> cli."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    """What a file imports of this package; the version apart, which lies in the package's own light file."""
    parts = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "electra"
                else [node.module or ""]
            )
        else:
            continue
        for name in names:
            if name.split(".")[0] == "electra" and name not in ("electra", "electra.__version__"):
                part = [*name.split("."), "electra"][1]
                parts.add(part if (PACKAGE / part).exists() or (PACKAGE / f"{part}.py").exists() else "electra")
    return parts


SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    part = part_of(path)
    assert part in ALLOWED, f"{part}: give the new part its place in the direction of imports"
    forbidden = imported_parts(path) - ALLOWED[part] - {part}
    assert not forbidden, f"{path.name} imports {', '.join(sorted(forbidden))}"


def test_the_check_sees_a_wrong_import(tmp_path):
    path = tmp_path / "text.py"
    path.write_text("def f():\n    from electra.model.encoder import Encoder\n")
    assert imported_parts(path) == {"model"}


def test_data_does_not_need_torch_to_read_text():
    """Preparing text is numpy's work; torch comes in with batches."""
    for name in ("text", "tokenizer", "shards", "order", "prepare"):
        imported = {
            alias.name
            for node in ast.walk(ast.parse((PACKAGE / "data" / f"{name}.py").read_text(encoding="utf-8")))
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert "torch" not in imported, name


def test_files_are_one_idea_long():
    too_long = {str(p.relative_to(PACKAGE)): n for p in SOURCES if (n := len(p.read_text().splitlines())) > 400}
    assert not too_long


def test_importing_electra_is_light():
    """Neither torch nor transformers is loaded before something is asked for."""
    heavy = ("torch", "transformers", "datasets", "matplotlib")
    code = f"import sys, electra, electra.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", electra.__all__)
def test_every_public_name_exists(name):
    assert getattr(electra, name) is not None
    assert name in dir(electra)


def test_unknown_public_name():
    with pytest.raises(AttributeError, match="no attribute 'pretrian'"):
        _ = electra.pretrian  # type: ignore[attr-defined]


def test_version_is_the_distributions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert electra.__version__ == project["version"]
