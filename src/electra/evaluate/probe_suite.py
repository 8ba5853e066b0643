"""The suite of the probe: frozen features of every checkpoint of a run, or of one model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console

from electra.config import EncoderConfig, PretrainConfig
from electra.config_files import load_config
from electra.data.tokenizer import load_tokenizer
from electra.errors import UserError
from electra.evaluate.pictures import probe_picture
from electra.evaluate.probe import Stage, probe_stages, remarks, stages, table
from electra.evaluate.probe_data import questions
from electra.evaluate.request import Found, Request, weights
from electra.model.hf import load_encoder
from electra.train.run import choose_device

MAX_LENGTH = 128


def probe_suite(request: Request) -> Found:
    """Accuracies by step, question, and layer with pooling. A directory with a run's config.yaml is taken as a run."""
    every, config, tokenizer_dir = _opened(request.model)
    tokenizer = load_tokenizer(tokenizer_dir)
    classic = config.blocks == "classic"
    asked, digest = questions(
        request.data,
        tokenizer,
        text_column=request.text_column,
        text_pair_column=request.text_pair_column,
        label_column=request.label_column,
        has_types=classic,
        max_length=min(MAX_LENGTH, config.max_length) if classic else MAX_LENGTH,
        limit=request.limit,
        seed=request.seed,
    )
    console = Console(stderr=True, quiet=request.quiet, highlight=False)
    points, read = probe_stages(
        every, asked, tokenizer.pad_token_id, choose_device(request.device), say=lambda line: console.print(line)
    )
    names, chances = [question.name for question in asked], [question.chance for question in asked]
    found = remarks(points, asked)
    scores: dict[str, Any] = {
        "points": points,
        "guessing": dict(zip(names, chances, strict=True)),
        "scored_texts": {question.name: int((~question.fitted).sum()) for question in asked},
        "remarks": found,
    }
    return Found(
        scores=scores,
        data_sha256=digest,
        model_sha256={name: value for path in read for name, value in weights(path).items()},
        draw=lambda: probe_picture(points, names, chances),
        table=[*table(points, asked), *(["", *found] if found else [])],
    )


def _opened(model: Path) -> tuple[Iterable[Stage], EncoderConfig, Path]:
    """What is to be probed, the shape of its encoder, and its tokenizer's directory."""
    if (model / "config.yaml").is_file():
        config = load_config(PretrainConfig, model / "config.yaml")
        return stages(model), config.model.discriminator, model / "tokenizer"
    loaded = load_encoder(model)
    if loaded.tokenizer_dir is None:
        raise UserError(
            f"{loaded.path}: has no tokenizer; copy tokenizer.json (or vocab.txt) of the pre-training there"
        )
    return [Stage(None, None, loaded.encoder, loaded.path)], loaded.config, loaded.tokenizer_dir
