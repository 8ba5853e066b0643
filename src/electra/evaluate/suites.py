"""Suites of scores that need no labels of the user's making, each with a record of how it was made."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from electra.data.shards import TokenStore
from electra.data.tokenizer import load_tokenizer
from electra.errors import UserError
from electra.evaluate.heldout import heldout_scores
from electra.evaluate.minimal_pairs import read_pairs, score_pairs
from electra.evaluate.results import provenance
from electra.evaluate.sentence_scores import SCORERS, Discriminator, MaskedLM
from electra.files import sha256, write_file
from electra.model.hf import LoadedEncoder, load_discriminator, load_encoder, load_generator
from electra.model.hf_names import NETWORK_OF
from electra.train.checkpoint import newest_checkpoint
from electra.train.run import choose_device

Suite = Literal["minimal-pairs", "pretraining"]
Score = Literal["auto", "discriminator", "pll", "pll-within-word"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be scored, on what. Settings that a suite has no use for are left alone by it."""

    model: Path
    data: Path
    limit: int | None = None
    """Of pairs of each paradigm, of held-out rows, of labelled texts."""
    score: Score = "auto"
    """Of sentences: `auto` is `discriminator` where the model is one, else `pll`."""
    seed: int = 0
    device: str = "auto"
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise UserError(f"limit is {self.limit}: it must be at least 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """What a suite found."""

    scores: dict[str, Any]
    data_sha256: str
    model_sha256: dict[str, str]
    """File of weights -> its hash."""
    more: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What else goes into the file, but not into the table."""


def evaluate(
    model: str | Path,
    suite: Suite,
    data: str | Path,
    *,
    out: Path | None = None,
    png: Path | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Run a suite; returns its `scores` and how they were made, and writes that to `out`.

    `settings` are the other fields of `Request`. `minimal-pairs` takes a run directory, or a Hugging Face discriminator or
    masked LM, and pairs as `read_pairs` does. `pretraining` takes a run directory and a token store. Beside `scores` the result
    has `suite`, `model`, `model_sha256`, `data`, `data_sha256`, `settings` (the seed is one), `command` and `versions`. Raises
    UserError for anything that does not fit.
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
        "settings": {name: getattr(request, name) for name in ("limit", "score", "seed", "device")},
        **found.more,
        **provenance(),
    }
    if out is not None:
        write_file(out, json.dumps(result, indent=2))
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


class _Rate(ProgressColumn):
    """Items a second."""

    def render(self, task: Task) -> Text:
        rate = task.finished_speed or task.speed
        return Text(f"{rate:,.0f}/s" if rate else "")


def _minimal_pairs(request: Request) -> Found:
    loaded = load_encoder(request.model)
    score = request.score if request.score != "auto" else "pll" if _is_masked_lm(loaded) else "discriminator"
    path, network = _NETWORKS[score](request.model, loaded)
    directory = loaded.tokenizer_dir
    if directory is None:
        raise UserError(f"{path}: has no tokenizer; copy tokenizer.json (or vocab.txt) of the pre-training there")
    tokenizer = load_tokenizer(directory)
    pairs, digest = read_pairs(request.data, request.limit)
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("sentences"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn(),
        console=console, disable=request.quiet or not console.is_terminal,
    )  # fmt: skip
    with progress:
        task = progress.add_task("", total=2 * len(pairs))
        scored = score_pairs(
            network.to(choose_device(request.device)),
            tokenizer,
            pairs,
            scorer=SCORERS[score],
            progress=lambda count: progress.advance(task, count),
        )
    return Found(scores={"score": score, **dataclasses.asdict(scored)}, data_sha256=digest, model_sha256=_weights(path))


def _is_masked_lm(loaded: LoadedEncoder) -> bool:
    return NETWORK_OF.get(loaded.architecture.partition("For")[2]) == "generator"


def _discriminator(model: Path, loaded: LoadedEncoder) -> tuple[Path, Discriminator]:
    if _is_masked_lm(loaded):
        raise UserError(f"{loaded.path}: is a {loaded.architecture}, without a replaced-token head; use --score pll")
    return loaded.path, Discriminator(*load_discriminator(loaded.path))


def _masked_lm(model: Path, loaded: LoadedEncoder) -> tuple[Path, MaskedLM]:
    """The main network where that is a masked LM (of a run that trained one, or a directory that holds one), else the
    run's generator."""
    path = loaded.path if _is_masked_lm(loaded) or loaded.path == model else model / "generator"
    if not _is_masked_lm(loaded) and path == loaded.path:
        raise UserError(
            f"{path}: is a {loaded.architecture}, which has no trained vocabulary head; give a generator or a masked LM, "
            "or use --score discriminator"
        )
    return path, MaskedLM(*load_generator(path))


_NETWORKS: dict[str, Callable[[Path, LoadedEncoder], tuple[Path, Discriminator | MaskedLM]]] = {
    "discriminator": _discriminator,
    "pll": _masked_lm,
    "pll-within-word": _masked_lm,
}


def _pretraining(request: Request) -> Found:
    scores = heldout_scores(request.model, request.data, seed=request.seed)
    checkpoint = newest_checkpoint(request.model)
    assert checkpoint is not None
    fingerprint = TokenStore.open(request.data).fingerprint
    return Found(scores=scores, data_sha256=fingerprint, model_sha256=_weights(checkpoint))


def _weights(directory: Path) -> dict[str, str]:
    """Every file of weights in a directory -> its SHA-256."""
    names = ("*.safetensors", "pytorch_model.bin")
    return {str(path): sha256(path) for name in names for path in sorted(directory.glob(name))}


SUITES: dict[str, Callable[[Request], Found]] = {
    "minimal-pairs": _minimal_pairs,
    "pretraining": _pretraining,
}
