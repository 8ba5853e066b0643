"""The commands that fine-tune, and that lay results side by side."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from electra.cli.arguments import Model, Settings, positional
from electra.config_finetune import FinetuneConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finetune:
    """Fine-tune a pre-trained model on a task of GLUE, or on labelled texts of your own: classes, numbers, sets of labels.

    MODEL is a run directory, or a Hugging Face ELECTRA or ModernBERT directory. Give --task NAME with --data DIR, or
    --task-file FILE.
    """

    model: Model
    settings: Annotated[FinetuneConfig, Settings]

    def run(self) -> None:
        from electra.evaluate.finetune import finetune
        from electra.evaluate.results import describe

        print("\n".join(describe(finetune(self.model, self.settings))))
        print(f"model: {self.settings.out / 'model'}")


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
