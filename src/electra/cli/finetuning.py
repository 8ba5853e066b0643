"""The commands that fine-tune, and that lay results side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from electra.cli.arguments import Model, Settings, given, positional
from electra.config_finetune import FinetuneConfig, QuestionAnsweringConfig, TaggingConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finetune:
    """Fine-tune a pre-trained model on a task of GLUE, or on labelled texts of your own: classes, numbers, sets of labels.

    MODEL is a run directory, or a Hugging Face ELECTRA or ModernBERT directory. Give --task NAME with --data DIR, or
    --task-file FILE. Tasks of another kind have settings of their own: see --task tagging --help and --task squad --help.
    """

    model: Model
    settings: Annotated[FinetuneConfig, Settings]

    @staticmethod
    def variant(arguments: Sequence[str]) -> type[Any]:
        """The command for the task that the arguments name."""
        return OTHER_KINDS.get((given(arguments, "--task") or "").lower(), Finetune)

    def run(self) -> None:
        from electra.evaluate.finetune import finetune
        from electra.evaluate.results import describe

        print("\n".join(describe(finetune(self.model, self.settings))))
        print(f"model: {self.settings.out / 'model'}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneTagger:
    """Fine-tune a pre-trained model on a label for each word: named entities, chunks, parts of speech.

    MODEL is a run directory, or a Hugging Face ELECTRA or ModernBERT directory. Data are CoNLL column files, or .jsonl and
    .parquet with lists: --data DIR, or --train-file FILE --dev-file FILE.
    """

    model: Model
    settings: Annotated[TaggingConfig, Settings]

    def run(self) -> None:
        from electra.evaluate.results import describe
        from electra.evaluate.tagging import finetune_tagging

        print("\n".join(describe(finetune_tagging(self.model, self.settings))))
        print(f"model: {self.settings.out / 'model'}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneQuestions:
    """Fine-tune a pre-trained model on questions whose answers are spans of a text (SQuAD 1.1 and 2.0).

    MODEL is a run directory, or a Hugging Face ELECTRA or ModernBERT directory. Data are .json files in SQuAD's layout: --data
    DIR, or --train-file FILE --dev-file FILE.
    """

    model: Model
    settings: Annotated[QuestionAnsweringConfig, Settings]

    def run(self) -> None:
        from electra.evaluate.question_answering import describe_answers, finetune_question_answering

        print("\n".join(describe_answers(finetune_question_answering(self.model, self.settings))))
        print(f"model: {self.settings.out / 'model'}")


OTHER_KINDS: dict[str, type[Any]] = {
    "squad": FinetuneQuestions,
    "tagging": FinetuneTagger,
    "chunking": FinetuneTagger,
    "ner": FinetuneTagger,
}
"""By --task: what is no label of a whole text."""


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
