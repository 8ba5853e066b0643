"""Suites of scores that need no fine-tuning, each with a record of how it was made. A new one is a line in `SUITES`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from electra.evaluate.minimal_pairs_suite import minimal_pairs_suite
from electra.evaluate.pictures import png_of
from electra.evaluate.pretraining_suite import pretraining_suite
from electra.evaluate.probe_suite import probe_suite
from electra.evaluate.request import Found, Request
from electra.evaluate.results import provenance
from electra.files import write_file

Suite = Literal["minimal-pairs", "pretraining", "probe"]
SUITES: dict[str, Callable[[Request], Found]] = {
    "minimal-pairs": minimal_pairs_suite,
    "pretraining": pretraining_suite,
    "probe": probe_suite,
}


def evaluate(
    model: str | Path,
    suite: Suite,
    data: str | Path,
    *,
    out: Path | None = None,
    png: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
    **settings: Any,
) -> dict[str, Any]:
    """Run a suite; returns its `scores` and how they were made, writes that to `out` and a picture of it to `png`, and gives
    `say` the lines of a table.

    `settings` are the other fields of `Request`. `minimal-pairs` takes a run directory, or a Hugging Face discriminator or
    masked LM, and pairs as `read_pairs` does. `pretraining` takes a run directory and a token store. `probe` takes a run
    directory or a Hugging Face directory, and a token store or a labelled file. Beside `scores` the result has `suite`,
    `model`, `model_sha256`, `data`, `data_sha256`, `settings` (the seed is one), `command` and `versions`. Raises UserError for
    anything that does not fit.
    """
    request = Request(model=Path(model), data=Path(data), **settings)
    found = SUITES[suite](request)
    result = {
        "suite": suite,
        "scores": found.scores,
        "model": str(model),
        "model_sha256": found.model_sha256,
        "data": str(data),
        "data_sha256": found.data_sha256,
        "settings": request.settings(),
        **found.more,
        **provenance(),
    }
    if out is not None:
        write_file(out, json.dumps(result, indent=2))
    if png is not None:
        write_file(png, png_of(found.draw()))
    for line in describe(found.scores) if found.table is None else found.table:
        say(line)
    return result


def describe(scores: dict[str, Any], indent: str = "") -> list[str]:
    """A table of two columns; the single scores come last, where a reader's eye is after a long table."""
    lines = []
    for name, value in scores.items():
        if isinstance(value, dict):
            lines += [name.replace("_", " "), *describe(value, indent + "  "), ""]
    for name, value in scores.items():
        if not isinstance(value, dict):
            amount = f"{value:.4f}" if isinstance(value, float) else "undefined" if value is None else f"{value}"
            lines.append(f"{indent + name.replace('_', ' '):<58}{amount:>14}")
    return lines
