"""The commands: each a dataclass of its arguments with a `run` that calls the package and prints what came out.

Imports of torch wait until the arguments are known to be good, so that help and mistakes are answered at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from electra.cli.arguments import Model, PresetName, Settings, given, positional
from electra.cli.checkpoints import AddTokens, Export, Import
from electra.cli.evaluation import Evaluate
from electra.cli.finetuning import Compare, Finetune
from electra.cli.studies import Speedrun, Study
from electra.config import PretrainConfig
from electra.config_files import load_config
from electra.errors import UserError
from electra.presets import PRESETS, continued


def show(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


BUDGETS = ("num_steps", "num_tokens", "num_flops", "num_minutes")


def without_budget(settings: PretrainConfig) -> PretrainConfig:
    train = dataclasses.replace(settings.train, num_steps=None, num_tokens=None, num_flops=None, num_minutes=None)
    return dataclasses.replace(settings, train=train)


@contextlib.contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on the standard error, where that is a terminal: count, rate and time left. Gives the function that moves it.

    None where the results go to a terminal, too: the two would write over each other.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TaskProgressColumn(show_speed=True),
        TimeRemainingColumn(),
    )
    shown = console.is_terminal and not sys.stdout.isatty()
    # Left to itself, the bar sends what is printed to its own terminal.
    with Progress(*columns, console=console, disable=not shown, redirect_stdout=False) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.advance(task, count)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quickstart:
    """The whole way on film reviews: prepare, pre-train, fine-tune beside random weights, a table and a report.

    Stopped with Ctrl-C, the same command goes on where it was.
    """

    minutes: float | None = None
    """Minutes of pre-training by the clock; without it, the default that the opening lines name."""
    out: Path = Path("quickstart")
    """Directory for everything that is made."""
    seed: int = 42

    def run(self) -> None:
        from electra.quickstart.stages import quickstart

        quickstart(self.out, minutes=self.minutes, seed=self.seed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepare:
    """Turn raw text into a token store: train (or take) a vocabulary, cut the text into word pieces.

    FILES are files or directories (.txt, .jsonl, .csv, .tsv, .parquet, also .gz, .xz or .zst), or Hugging Face data
    sets by name. In .txt a blank line ends a document.
    """

    files: Annotated[tyro.conf.Positional[tuple[str, ...]], positional("FILES", "Files, directories or data sets.")]
    out: Path
    """Directory of the token store."""
    vocab_size: int = 8192
    """Word pieces to learn."""
    vocab: Path | None = None
    """Take this vocabulary instead: a vocab.txt or a tokenizer directory."""
    lowercase: bool = True
    """Make all text lower case (an "uncased" vocabulary)."""
    strip_accents: bool | None = None
    """Drop accents; left out, they go with the case (dropped when lower case)."""
    text_column: str = "text"
    """Column of .csv, .jsonl and .parquet files that holds the text."""
    one_document_per_line: bool = False
    """In .txt each line is a document."""
    invalid_utf8: Literal["error", "replace"] = "error"
    """What to do with bytes that are not UTF-8."""
    heldout_share: float = 0.0
    """Share of the documents that goes into a second store, OUT-heldout, for the held-out loss."""
    deduplicate: Literal["no", "exact", "near"] = "no"
    """Leave out documents that were there before: the same ones, or also nearly the same ones (MinHash)."""
    similarity: float = 0.8
    """Of --deduplicate near: share of word 5-grams in common (of those in either) from which on two count as the same."""
    shuffle: bool = False
    """Put the documents of all inputs into one random order."""
    seed: int = 0
    """Of --shuffle."""
    num_workers: int | None = None
    """Processes that cut the text; left out, one a core (at most 8). Fewer take less memory."""
    overwrite: bool = False
    """Replace a token store that is there already."""

    def run(self) -> None:
        from electra.data.prepare import prepare

        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        prepare(options.pop("files"), **options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretrain:
    """Pre-train a generator and a discriminator together on a token store.

    Every setting of the run is a flag. Values come from the preset, then from --config, then from flags. When the run
    directory holds a run already and neither is given, that run's own settings are the start, and it goes on from its
    newest checkpoint.
    """

    preset: PresetName = "tiny"
    """Where the settings start."""
    config: Path | None = None
    """YAML or JSON file of settings that are laid over the preset."""
    settings: Annotated[PretrainConfig, Settings] = dataclasses.field(default_factory=PretrainConfig)

    @classmethod
    def defaults(cls, arguments: Sequence[str]) -> Pretrain:
        """The values that flags are laid over: preset, file, or the run that is there already."""
        preset, file, run_dir = (given(arguments, flag) for flag in ("--preset", "--config", "--run-dir"))
        if preset is not None and preset not in PRESETS:
            raise UserError(f"--preset is {preset!r}: choose one of {', '.join(PRESETS)}")
        begun = Path(run_dir) / "config.yaml" if run_dir else None
        if preset is None and file is None and begun is not None and begun.is_file():
            return cls(settings=load_config(PretrainConfig, begun))
        settings = PRESETS[preset or "tiny"]()
        if given(arguments, "--init-from") is not None:
            settings = continued(settings)
        if file is not None:
            laid_over = load_config(PretrainConfig, Path(file), without_budget(settings))
            has_budget = any(getattr(laid_over.train, budget) is not None for budget in BUDGETS)
            settings = laid_over if has_budget else load_config(PretrainConfig, Path(file), settings)
        # A budget that the user names takes the place of the preset's: whichever ends first would surprise here.
        if any(given(arguments, f"--train.{budget.replace('_', '-')}") for budget in BUDGETS):
            settings = without_budget(settings)
        return cls(preset=preset or "tiny", config=Path(file) if file else None, settings=settings)

    def run(self) -> None:
        from electra.studies.report import write_report
        from electra.train.export import exported
        from electra.train.loop import pretrain

        run_dir = pretrain(self.settings)
        for directory in exported(run_dir):
            print(f"{f'{directory.name}:':<15}{directory}")
        print(f"report:        {write_report(run_dir)}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Detect:
    """Say of each token of a text how likely it is that somebody put it in the place of another.

    With --file every line of a text file is judged, and each gives a line of JSON.
    """

    model: Model
    text: Annotated[tyro.conf.Positional[str | None], positional("TEXT", "Text in quotes.")] = None
    file: Path | None = None
    """Text file (also .gz, .xz or .zst) instead of TEXT; - is the standard input."""
    json: bool = False
    """Print JSON instead of colours."""
    device: str = "auto"

    def run(self) -> None:
        from rich.console import Console

        from electra.evaluate.detect import as_json, detect, render

        if (self.text is None) == (self.file is None):
            raise UserError("give either a TEXT in quotes or --file FILE")
        if self.file is not None:
            return self.judge_lines(self.file)
        assert self.text is not None
        [verdicts] = detect(self.model, [self.text], device=self.device)
        if self.json:
            show(as_json(self.text, verdicts))
        else:
            Console(highlight=False).print(render(self.text, verdicts), soft_wrap=True)

    def judge_lines(self, file: Path) -> None:
        from electra.evaluate.detect import detect_lines, lines_of

        with progress_bar("lines", None) as advance:
            for record in detect_lines(self.model, lines_of(file), device=self.device, progress=advance):
                print(json.dumps(record, ensure_ascii=False))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flops:
    """Parameters and floating-point operations of both networks, per token and for the run."""

    preset: PresetName = "tiny"
    vocab_size: int = 30_522
    """Word pieces; the default is the paper's vocabulary."""
    json: bool = False
    """Print JSON instead of a table."""
    reference: bool = False
    """Count the run with the formula of the ELECTRA authors' own code, as in their paper."""

    def run(self) -> None:
        from electra.model.flops import summary

        counted = summary(PRESETS[self.preset](), reference=self.reference, vocab_size=self.vocab_size)
        if self.json:
            return show(counted)
        for group, values in counted.items():
            for name, value in values.items() if isinstance(values, dict) else (("", values),):
                amount = value if isinstance(value, str | None) else f"{value:,.0f}" if value < 1e12 else f"{value:.4g}"
                print(f"{f'{group} {name}'.replace('_', ' ').strip():<42}{amount or 'depends on the machine':>22}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """Write RUN/report.html: curves, results and settings on one page. Works on a run that is still going, too."""

    run_dir: Annotated[tyro.conf.Positional[Path], positional("RUN", "Run directory of `electra pretrain`.")]

    def run(self) -> None:
        from electra.studies.report import write_report

        print(write_report(self.run_dir))


COMMANDS: dict[str, tuple[type[Any], str]] = {
    "quickstart": (Quickstart, "see it all work on film reviews, in minutes"),
    "prepare": (Prepare, "raw text -> token store"),
    "pretrain": (Pretrain, "token store -> pre-trained pair of networks"),
    "finetune": (Finetune, "pre-trained model + labelled texts -> classifier"),
    "detect": (Detect, "which words of a text do not belong there?"),
    "evaluate": (Evaluate, "scores without labels: minimal pairs, held-out text"),
    "compare": (Compare, "results side by side, with spread and significance"),
    "study": (Study, "a chart of the paper on your text: runs at equal compute, scores, a page"),
    "speedrun": (Speedrun, "what half an hour buys on this machine, and is it a record?"),
    "export": (Export, "run -> Hugging Face directories"),
    "add-tokens": (AddTokens, "model + words -> tokenizer with the words as pieces"),
    "import": (Import, "TensorFlow checkpoint of the authors -> Hugging Face directories"),
    "report": (Report, "run -> report.html"),
    "flops": (Flops, "parameters and compute of a preset"),
}
