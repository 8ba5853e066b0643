"""From the words of a command line to a command's dataclass, with one clear line for every mistake."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from electra.config_files import unknown_setting
from electra.errors import UserError
from electra.presets import PRESETS

if typing.TYPE_CHECKING:
    PresetName = str
else:
    PresetName = typing.Literal[tuple(PRESETS)]


def given(arguments: Sequence[str], flag: str) -> str | None:
    """The value of a flag that has to be known before the others can be read."""
    value = None
    for word, following in zip(arguments, [*arguments[1:], None], strict=True):
        name, equals, rest = word.partition("=")
        if name.replace("_", "-") == flag:
            value = rest if equals else following
    return value


def positional(name: str, explanation: str) -> Any:
    """How an argument without a flag is shown."""
    return tyro.conf.arg(metavar=name, help=explanation)


Settings = tyro.conf.arg(name="")  # the fields of a group of settings without a prefix of their own
Model = Annotated[tyro.conf.Positional[Path], positional("MODEL", "Run directory, or Hugging Face directory.")]
POSITIONAL = typing.get_args(tyro.conf.Positional[str])[1]  # tyro's marker


def flags(command: type[Any], prefix: str = "--") -> list[str]:
    """Every flag of a command, as it is typed."""
    found = []
    for name, hint in typing.get_type_hints(command, include_extras=True).items():
        if POSITIONAL in getattr(hint, "__metadata__", ()):
            continue
        inner = typing.get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
        dashed = name.replace("_", "-")
        if dataclasses.is_dataclass(inner):
            found += flags(typing.cast(type[Any], inner), prefix if hint is not inner else f"{prefix}{dashed}.")
        else:
            found.append(f"{prefix}{dashed}")
            if hint is bool:
                head, dot, last = f"{prefix}{dashed}".rpartition(".")
                found.append(f"{head}{dot}no-{last}" if dot else f"--no-{dashed}")
    return found


def read(name: str, command: type[Any], arguments: Sequence[str]) -> Any:
    """The command's dataclass, filled from the words after its name. Raises UserError in one line for any mistake."""
    known = [*flags(command), "--help"]
    for word in arguments:
        flag = word.partition("=")[0].replace("_", "-")
        if word == "--":
            break
        if flag.startswith("--") and flag not in known:
            raise UserError(unknown_setting(word.partition("=")[0], known))
    defaults = {"default": command.defaults(arguments)} if hasattr(command, "defaults") else {}
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(command, args=list(arguments), prog=f"electra {name}", **defaults)
    except SystemExit as leaving:
        if leaving.code in (0, None):
            raise
        raise UserError(f"{one_line(complaint.getvalue())}; see electra {name} --help") from None


def one_line(box: str) -> str:
    """What tyro says in a box (of ASCII where the terminal is not UTF-8), as one line."""
    lines = [
        re.sub(r"^[│|]|[│|]$", "", line.strip()).strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", box).split("\n")
    ]
    parts = re.split(r"[─-]{5,}|Got errors:", " ".join(lines[1:]))  # the first line is the title
    text = next((words for part in parts if (words := " ".join(part.split()))), "not understood")
    if bad := re.match(r"Error parsing (\S+): no type matching (\S+) could be instantiated from \[(.*)\]", text):
        kind = {"INT": "a whole number", "FLOAT": "a number"}.get(bad[2].split("|")[-1], bad[2])
        return f"{bad[1]} is {bad[3]}: it must be {kind}"
    if bad := re.match(r"Error parsing (\S+): .*(int\(\)|float).*: ('.*')", text):
        return f"{bad[1]} is {bad[3]}: it must be {'a whole number' if 'int' in bad[2] else 'a number'}"
    if bad := re.match(r"invalid choice ('.*') for argument '(\S+)'\. Expected one of \((.*?),?\)", text):
        return f"{bad[2]} is {bad[1]}: choose one of {bad[3].replace(chr(39), '')}"
    if bad := re.match(r"Missing from .*?: (\S+)", text):
        return f"{bad[1]} is missing: give it a value"
    if bad := re.match(r"Missing value for argument '(\S+)'", text):
        return f"{bad[1]} has no value: give it one"
    if bad := re.match(r"Unrecognized options: (.*)", text):
        return f"{bad[1]}: not understood; quote a text of several words"
    return text.rstrip(".")
