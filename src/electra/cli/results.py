"""The command that lays results side by side."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from electra.cli.arguments import positional


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compare:
    """Lay results side by side: scores with their spread over seeds, p-values against the first, the average over GLUE."""

    results: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        positional("RESULTS", "JSON files, or directories of fine-tunings; a column each."),
    ]
    markdown: bool = False
    """Print Markdown."""

    def run(self) -> None:
        from electra.evaluate.compare import as_markdown, as_text, compare

        print((as_markdown if self.markdown else as_text)(compare(self.results)))
