"""Fine-tuning on labelled texts and pairs: an encoder, a fresh head on top, several seeds, scores with their spread.

Shapes: B batch, N texts, C outputs (classes; one of a regression).
"""

from __future__ import annotations

import csv
import dataclasses
import io
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra.config_finetune import FinetuneConfig
from electra.evaluate.glue import find_task, glue_data
from electra.evaluate.labelled import Example
from electra.evaluate.labels import Labels
from electra.evaluate.recipe import filled_in
from electra.evaluate.results import earlier_result, identity, provenance, summary, write_result
from electra.evaluate.scores import scores
from electra.evaluate.submission import write_submission
from electra.evaluate.task_data import own_data
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
from electra.files import write_directory, write_file
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
    """Encoded texts and their targets, as `Labels.targets` makes them."""

    texts: Encoded
    targets: NDArray[Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceTask:
    """A label for a whole text or pair: the task as the core of fine-tuning takes it."""

    start: Start
    config: FinetuneConfig
    labels: Labels
    metrics: tuple[str, ...]
    main: str
    train: Labelled
    dev: Mapping[str, Labelled]
    """By the prefix of the scores; the one without decides."""

    def new_network(self, encoder: Encoder) -> Classifier:
        pooling = self.config.pooling
        if pooling == "auto":
            pooling = "mean" if encoder.config.blocks == "modern" else "first"
        dropout = self.config.classifier_dropout
        return Classifier(encoder, ClassificationHead(encoder.config, len(self.labels.names), pooling, dropout=dropout))

    def loss(self, network: Classifier, rows: NDArray[np.int64], inputs: Inputs) -> Tensor:
        targets = torch.from_numpy(self.train.targets[rows]).to(inputs.ids_BL.device)
        return self.labels.loss(network(*inputs), targets)

    def score(self, network: Classifier) -> Scored | None:
        """Of all dev sets; the outputs come back by their prefixes."""
        found: dict[str, float] = {}
        outputs = {name: predict(network, dev.texts, self.start, self.labels) for name, dev in self.dev.items()}
        if not outputs:
            return None
        for name, dev in self.dev.items():
            values = scores(self.metrics, dev.targets, self.labels.chosen(outputs[name]))
            found |= {_score_name(name, metric): value for metric, value in values.items()}
        degenerate = self.labels.is_constant(self.labels.chosen(outputs[""]))
        degenerate = degenerate and not self.labels.is_constant(self.dev[""].targets)
        return Scored(found, found[self.main], degenerate, outputs)


def finetune(model: str | Path, config: FinetuneConfig, *, quiet: bool = False) -> dict[str, Any]:
    """Fine-tune on a task of the table or on files of your own, once for each seed, and score on the dev data.

    `model` is a run directory or any Hugging Face ELECTRA or ModernBERT directory. Writes to `config.out`: `model/` (the
    matching `ForSequenceClassification` class and the tokenizer; of the best seed on the dev data), `predictions.csv` (of
    that seed), with `predict_test` `submission/`, and `result.json`, whose content is returned. A run whose loss stops being a
    number is counted as failed and does not stop the others. If `config.out` holds the result of this very call already, that
    is returned. Raises UserError for anything that does not fit.
    """
    started = time.perf_counter()
    if config.task is not None and config.data is not None:
        data = glue_data(find_task(config.task), config.data, with_test=config.predict_test)
    else:
        data = own_data(config)
    targets = data.labels.targets(data.train, data.train_name)
    dev_targets = {name: data.labels.targets(dev, data.dev_names[name]) for name, dev in data.dev.items()}
    start = load_start(model, config)
    call = identity(model, start, config, digests=data.files)
    predictions = {name: f"predictions-{name}.csv" if name else "predictions.csv" for name in data.dev}
    if (done := earlier_result(config.out, call, ours=("model", "submission", *predictions.values()))) is not None:
        return done
    config, used = filled_in(config, start.loaded.config, data.epochs)
    task = SequenceTask(
        start=start,
        config=config,
        labels=data.labels,
        metrics=data.metrics,
        main=data.main,
        train=Labelled(encode(data.train, start, config.max_length), targets),
        dev={
            name: Labelled(encode(dev, start, config.max_length), dev_targets[name]) for name, dev in data.dev.items()
        },
    )
    outcome = train_seeds(task, task.train.texts, start, config, quiet=quiet)
    result: dict[str, Any] = {
        "task": data.name,
        "main_metric": data.main,
        **call,
        **provenance(),
        "hyper_parameters": used,
        "labels": list(data.labels.names),
        "train_examples": min(len(data.train), config.max_train_examples or len(data.train)),
        "dev_examples": len(data.dev.get("", [])),
        "cut_texts": {"train": task.train.texts.num_cut, "dev": sum(dev.texts.num_cut for dev in task.dev.values())},
        "skipped_rows": data.skipped_rows,
        **(data.labels.baseline(task.dev[""].targets) if task.dev else {}),
        **summary(outcome, [_score_name(name, metric) for name in data.dev for metric in data.metrics]),
    }
    for name, examples in data.dev.items():
        _write_predictions(config.out / predictions[name], examples, data.labels, outcome.predictions[name])
    for test in data.test:
        texts = encode(test.examples, start, config.max_length)
        outputs = predict(outcome.network.to(start.device), texts, start, data.labels)
        write_submission(config.out / "submission", test, data.labels.texts(outputs))
    _save(outcome.network.cpu(), data.labels, config.out / "model", start)
    result["seconds"] = time.perf_counter() - started
    write_result(config.out, result)
    return result


@torch.inference_mode()
def predict(network: Classifier, texts: Encoded, start: Start, labels: Labels) -> NDArray[np.float64]:
    """What the network says of each text, in their order: probabilities [N, C], or numbers in the labels' units [N, 1]."""
    found = np.zeros((len(texts), network.head.num_labels))
    for rows, inputs in scoring_batches(texts, start):
        found[rows] = labels.outputs(network(*inputs)).cpu().numpy()
    return found


def encode(examples: Sequence[Example], start: Start, max_length: int) -> Encoded:
    """Texts to ids with special tokens, cut at `max_length` (of a pair, the longer text first)."""
    paired = examples[0].text_pair is not None
    encoded = start.tokenizer(
        [example.text for example in examples],
        [example.text_pair for example in examples] if paired else None,
        truncation=True,
        max_length=max_length,
        return_token_type_ids=True,
    )
    types = encoded["token_type_ids"] if paired and start.has_types else None
    return Encoded(encoded["input_ids"], types, sum(bool(one.overflowing) for one in encoded.encodings))


def _score_name(dev: str, metric: str) -> str:
    return f"{dev}_{metric}" if dev else metric


def _write_predictions(path: Path, examples: Sequence[Example], labels: Labels, outputs: NDArray[np.float64]) -> None:
    columns = [f"{labels.output_name} {name}" for name in labels.names]
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["text", "text_pair", "label", "predicted", *columns])
    for example, chosen, row in zip(examples, labels.texts(outputs), outputs, strict=True):
        writer.writerow(
            [example.text, example.text_pair or "", example.label, chosen, *(f"{value:.6f}" for value in row)]
        )
    write_file(path, text.getvalue())


def _save(network: Classifier, labels: Labels, out: Path, start: Start) -> None:
    """In Hugging Face format, with outputs in the labels' own units."""
    network.head.rescale(*labels.units)
    write_directory(
        out,
        lambda target: save_sequence_classifier(
            network.encoder,
            network.head,
            labels.names,
            target,
            start.loaded.tokenizer_dir,
            problem_type=labels.problem_type,
        ),
    )
