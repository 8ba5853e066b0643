"""Fine-tuning on labelled texts: an encoder, a fresh head on top, several seeds, scores with their spread.

Shapes: B batch, C classes.
"""

from __future__ import annotations

import csv
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from electra.config_finetune import FinetuneConfig
from electra.evaluate.recipe import filled_in
from electra.evaluate.results import earlier_result, identity, provenance, summary, write_result
from electra.evaluate.scores import classification_scores
from electra.evaluate.tasks import Example, label_names, label_numbers, read_examples
from electra.evaluate.training import (
    Encoded,
    Inputs,
    Scored,
    Start,
    TaskNetwork,
    load_start,
    scoring_batches,
    train_seeds,
)
from electra.files import write_directory
from electra.model.encoder import Encoder
from electra.model.heads import ClassificationHead
from electra.model.hf import save_sequence_classifier


class Classifier(TaskNetwork):
    """An encoder with a classification head."""

    head: ClassificationHead

    def forward(self, ids_BL: Tensor, mask_BL: Tensor | None, types_BL: Tensor | None) -> Tensor:
        """Token ids, mask (True at tokens, None without padding) and segments -> logits [B, C]."""
        # A head that reads [CLS] only needs the last block there only: the same numbers for less work.
        at_BK = ids_BL.new_zeros(len(ids_BL), 1) if self.head.pooling == "first" else None
        return self.head(self.encoder(ids_BL, mask_BL, types_BL, at_BK=at_BK), mask_BL)


@dataclasses.dataclass(frozen=True)
class Labelled:
    """Encoded texts and the number of each one's class."""

    texts: Encoded
    labels: NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Classification:
    """One class a text."""

    start: Start
    config: FinetuneConfig
    num_labels: int
    train: Labelled
    dev: Labelled | None

    def new_network(self, encoder: Encoder) -> Classifier:
        pooling = self.config.pooling
        if pooling == "auto":
            pooling = "mean" if encoder.config.blocks == "modern" else "first"
        dropout = self.config.classifier_dropout
        return Classifier(encoder, ClassificationHead(encoder.config, self.num_labels, pooling, dropout=dropout))

    def loss(self, network: Classifier, rows: NDArray[np.int64], inputs: Inputs) -> Tensor:
        labels = torch.from_numpy(self.train.labels[rows]).to(inputs.ids_BL.device)
        return F.cross_entropy(network(*inputs), labels, reduction="sum")

    def score(self, network: Classifier) -> Scored | None:
        if self.dev is None:
            return None
        probabilities = predict(network, self.dev.texts, self.start)
        chosen = probabilities.argmax(axis=1)
        scores = classification_scores(self.dev.labels, chosen)
        return Scored(scores, scores["accuracy"], bool((chosen == chosen[0]).all()), probabilities)


def finetune(model: str | Path, config: FinetuneConfig, *, quiet: bool = False) -> dict[str, Any]:
    """Fine-tune on `config.task_file`, score on `config.dev_file`, once for each seed.

    `model` is a run directory or any Hugging Face ELECTRA or ModernBERT directory. Writes to `config.out`: `model/` (the
    matching `ForSequenceClassification` class and the tokenizer; of the best seed on the dev file), `predictions.csv` (of
    that seed) and `result.json`, whose content is returned. A run whose loss stops being a number is counted as failed
    and does not stop the others. If `config.out` holds the result of this very call already, that is returned.
    """
    started = time.perf_counter()
    train, dev, labels = _read(config)
    start = load_start(model, config)
    call = identity(model, start, config, [path for path in (config.task_file, config.dev_file) if path is not None])
    if (done := earlier_result(config.out, call, ours=("model", "predictions.csv"))) is not None:
        return done
    config, used = filled_in(config, start.loaded.config)
    task = Classification(
        start,
        config,
        len(labels),
        _labelled(train, label_numbers(train, labels, config.task_file), start, config),
        _labelled(dev, label_numbers(dev, labels, config.dev_file), start, config) if config.dev_file else None,
    )
    outcome = train_seeds(task, task.train.texts, start, config, quiet=quiet)
    result: dict[str, Any] = {
        **call,
        **provenance(),
        "hyper_parameters": used,
        "labels": labels,
        "train_examples": min(len(train), config.max_train_examples or len(train)),
        "dev_examples": len(dev),
        **summary(outcome, ("accuracy", "macro_f1", "matthews")),
    }
    if task.dev is not None:
        result["majority_share"] = float(np.bincount(task.dev.labels).max() / len(dev))
        _write_predictions(config.out / "predictions.csv", dev, labels, outcome.predictions)
    network = outcome.network
    write_directory(
        config.out / "model",
        lambda target: save_sequence_classifier(
            network.encoder, network.head, labels, target, start.loaded.tokenizer_dir
        ),
    )
    result["seconds"] = time.perf_counter() - started
    write_result(config.out, result)
    return result


@torch.inference_mode()
def predict(network: Classifier, texts: Encoded, start: Start) -> NDArray[np.float64]:
    """Probability of each class, [N, C], in the order of the texts."""
    found = np.zeros((len(texts), network.head.num_labels))
    for rows, inputs in scoring_batches(texts, start):
        found[rows] = network(*inputs).double().softmax(dim=-1).cpu().numpy()
    return found


def _read(config: FinetuneConfig) -> tuple[list[Example], list[Example], list[str]]:
    columns: dict[str, Any] = {
        "text_column": config.text_column,
        "text_pair_column": config.text_pair_column,
        "label_column": config.label_column,
    }
    train = read_examples(config.task_file, **columns)
    labels = label_names(train, config.task_file)
    dev = read_examples(config.dev_file, **columns) if config.dev_file is not None else []
    if config.dev_file is not None:
        label_numbers(dev, labels, config.dev_file)
    return train, dev, labels


def _labelled(examples: Sequence[Example], labels: Sequence[int], start: Start, config: FinetuneConfig) -> Labelled:
    """Texts to ids with special tokens, cut at `max_length` (of a pair, the longer text first)."""
    paired = config.text_pair_column is not None
    encoded = start.tokenizer(
        [example.text for example in examples],
        [example.text_pair for example in examples] if paired else None,
        truncation=True,
        max_length=config.max_length,
        return_token_type_ids=True,
    )
    types = encoded["token_type_ids"] if paired and start.has_types else None
    return Labelled(Encoded(encoded["input_ids"], types), np.array(labels))


def _write_predictions(
    path: Path, dev: Sequence[Example], labels: Sequence[str], probabilities: NDArray[np.float64]
) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "text_pair", "label", "predicted", *(f"probability {label}" for label in labels)])
        for example, row in zip(dev, probabilities, strict=True):
            chosen = labels[int(row.argmax())]
            writer.writerow([example.text, example.text_pair or "", example.label, chosen, *(f"{p:.6f}" for p in row)])
