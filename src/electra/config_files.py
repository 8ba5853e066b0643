"""Configurations to and from dictionaries, YAML and JSON, with one-line complaints about what does not fit."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import types
import typing
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from electra.errors import UserError

T = TypeVar("T")


def to_dict(config: Any) -> dict[str, Any]:
    """The configuration as plain dictionaries, strings and numbers, ready for YAML or JSON."""

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, Path):
            return str(value)
        if isinstance(value, tuple):
            return [plain(item) for item in value]
        return value

    return plain(config)


def from_dict(cls: type[T], values: dict[str, Any], base: T | None = None, where: str = "") -> T:
    """Build `cls` from a dictionary; fields that are not named keep the value of `base` (or the default).

    Raises UserError for an unknown field, with the nearest known name, and for a value of the wrong type.
    """
    hints = typing.get_type_hints(cls)
    known = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    changes: dict[str, Any] = {}
    for raw_name, value in values.items():
        name = str(raw_name).replace("-", "_")
        if name not in known:
            raise UserError(unknown_setting(f"{where}{raw_name}", [f"{where}{k}" for k in known]))
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            if not isinstance(value, dict):
                raise UserError(f"{where}{name} is {value!r}: it must be a group of settings")
            inner_base = getattr(base, name) if base is not None else None
            changes[name] = from_dict(hint, value, inner_base, f"{where}{name}.")  # type: ignore[arg-type]
        else:
            changes[name] = _convert(hint, value, f"{where}{name}")
    if base is not None:
        return dataclasses.replace(base, **changes)  # type: ignore[type-var]
    missing = [
        n
        for n, f in known.items()
        if n not in changes and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise UserError(f"{where}{missing[0]} is missing: give it a value")
    return cls(**changes)


def _convert(hint: Any, value: Any, name: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _convert(next(a for a in arguments if a is not type(None)), value, name)
    if origin is Literal:
        if value not in arguments:
            raise UserError(f"{name} is {value!r}: choose one of {', '.join(map(str, arguments))}")
        return value
    if hint is bool:
        if not isinstance(value, bool):
            raise UserError(f"{name} is {value!r}: it must be true or false")
        return value
    if hint in (int, float):
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise UserError(f"{name} is {value!r}: it must be a number") from None
        if isinstance(value, bool) or not math.isfinite(number) or (hint is int and number != int(number)):
            raise UserError(f"{name} is {value!r}: it must be a {'whole ' if hint is int else ''}number")
        return int(number) if hint is int else number
    if hint is Path:
        return Path(str(value))
    return str(value)


def unknown_setting(name: str, known: list[str]) -> str:
    """One line for a setting that does not exist, with the nearest that does."""
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"unknown setting {name!r}" + (f"; did you mean {nearest[0]!r}?" if nearest else "; see --help for the list")


def save_config(config: Any, path: Path) -> None:
    """Write the configuration as YAML (or JSON, by the file's ending)."""
    text = (
        json.dumps(to_dict(config), indent=2)
        if path.suffix == ".json"
        else yaml.safe_dump(to_dict(config), sort_keys=False)
    )
    path.write_text(text, encoding="utf-8")


def load_config(cls: type[T], path: Path, base: T | None = None) -> T:
    """Read a configuration written by hand or by `save_config`; fields that the file leaves out come from `base`."""
    if not path.is_file():
        raise UserError(f"{path}: no such configuration file")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML too
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: not valid YAML or JSON ({reason})") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: must hold settings as `name: value`")
    return from_dict(cls, values, base)
