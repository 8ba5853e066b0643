"""The suite of minimal pairs: which network of a model scores the sentences, and how."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from electra.data.tokenizer import load_tokenizer
from electra.errors import UserError
from electra.evaluate.minimal_pairs import read_pairs, score_pairs
from electra.evaluate.pictures import pairs_picture
from electra.evaluate.request import Found, Request, weights
from electra.evaluate.sentence_scores import SCORERS, Discriminator, MaskedLM
from electra.model.hf import LoadedEncoder, load_discriminator, load_encoder, load_generator
from electra.model.hf_files import has_network
from electra.model.hf_names import NETWORK_OF
from electra.train.run import choose_device


def minimal_pairs_suite(request: Request) -> Found:
    """Accuracy by paradigm, phenomenon and field."""
    loaded = load_encoder(request.model)
    score = request.score if request.score != "auto" else "pll" if _is_masked_lm(loaded) else "discriminator"
    path, network = _NETWORKS[score](request.model, loaded)
    if loaded.tokenizer_dir is None:
        raise UserError(
            f"{loaded.path}: has no tokenizer; copy tokenizer.json (or vocab.txt) of the pre-training there"
        )
    tokenizer = load_tokenizer(loaded.tokenizer_dir)
    pairs, digest = read_pairs(request.data, request.limit)
    with _progress(request.quiet, 2 * len(pairs)) as progress:
        scored = score_pairs(
            network.to(choose_device(request.device)),
            tokenizer,
            pairs,
            scorer=SCORERS[score],
            progress=lambda count: progress.advance(progress.task_ids[0], count),
        )
    scores = {"score": score, **dataclasses.asdict(scored)}
    return Found(scores=scores, data_sha256=digest, model_sha256=weights(path), draw=lambda: pairs_picture(scores))


def _is_masked_lm(loaded: LoadedEncoder) -> bool:
    return NETWORK_OF.get(loaded.architecture.partition("For")[2]) == "generator"


def _discriminator(model: Path, loaded: LoadedEncoder) -> tuple[Path, Discriminator]:
    """With the directory that it is from."""
    if _is_masked_lm(loaded):
        raise UserError(f"{loaded.path}: is a {loaded.architecture}, without a replaced-token head; use --score pll")
    return loaded.path, Discriminator(*load_discriminator(loaded.path))


def _masked_lm(model: Path, loaded: LoadedEncoder) -> tuple[Path, MaskedLM]:
    """The main network where that is a masked LM (of a run that trained one, or a directory that holds one), else the run's
    generator; with the directory that it is from."""
    if not _is_masked_lm(loaded) and not has_network(model, "generator"):
        raise UserError(
            f"{loaded.path}: is a {loaded.architecture}, which has no trained vocabulary head; give a generator or a masked LM, "
            "or use --score discriminator"
        )
    path = loaded.path if _is_masked_lm(loaded) else model / "generator"
    return path, MaskedLM(*load_generator(path))


_NETWORKS: dict[str, Callable[[Path, LoadedEncoder], tuple[Path, Discriminator | MaskedLM]]] = {
    "discriminator": _discriminator,
    "pll": _masked_lm,
    "pll-within-word": _masked_lm,
}


class _Rate(ProgressColumn):
    """Items a second."""

    def render(self, task: Task) -> Text:
        rate = task.finished_speed or task.speed
        return Text(f"{rate:,.0f}/s" if rate else "")


def _progress(quiet: bool, total: int) -> Progress:
    """A bar on the standard error, where that is a terminal."""
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("sentences"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn(),
        console=console, disable=quiet or not console.is_terminal,
    )  # fmt: skip
    progress.add_task("", total=total)
    return progress
