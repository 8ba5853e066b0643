"""What a suite is asked, and what it answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from matplotlib.figure import Figure

from electra.errors import UserError
from electra.files import sha256

Score = Literal["auto", "discriminator", "pll", "pll-within-word"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be scored, on what. A suite leaves alone what it has no use for."""

    model: Path
    data: Path
    limit: int | None = None
    """Of pairs of each paradigm, of held-out rows, of labelled texts."""
    score: Score = "auto"
    """Of sentences: `auto` is `discriminator` where the model is one, else `pll`."""
    text_column: str = "text"
    text_pair_column: str | None = None
    label_column: str = "label"
    seed: int = 0
    device: str = "auto"
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise UserError(f"limit is {self.limit}: it must be at least 1")
        if self.seed < 0:
            raise UserError(f"seed is {self.seed}: it must be at least 0")

    def settings(self) -> dict[str, Any]:
        """All but model and data, for the record."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if name not in ("model", "data", "quiet")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """What a suite found."""

    scores: dict[str, Any]
    data_sha256: str
    model_sha256: dict[str, str]
    """File of weights -> its hash."""
    more: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What else goes into the record, but not into the table."""
    draw: Callable[[], Figure]
    """Makes the picture, where somebody wants it."""
    table: list[str] | None = None
    """Its lines, where it is not simply the scores one below the other."""


def weights(directory: Path) -> dict[str, str]:
    """Every file of weights in a directory -> its SHA-256."""
    names = ("*.safetensors", "pytorch_model.bin")
    return {str(path): sha256(path) for name in names for path in sorted(directory.glob(name))}
