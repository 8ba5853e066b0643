"""Fine-tuning on labelled texts: an encoder, a fresh head on top, several seeds, scores with their spread.

Shapes: B batch, L length, C classes.
"""

from __future__ import annotations

import copy
import csv
import dataclasses
import json
import math
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

import electra
from electra.config import FinetuneConfig
from electra.config_files import to_dict
from electra.data.tokenizer import load_tokenizer
from electra.errors import UserError
from electra.evaluate.batching import batches_by_length, batches_per_epoch, pad, shuffled_batches, tokens_at_once
from electra.evaluate.scores import classification_scores, over_seeds
from electra.evaluate.tasks import Example, label_names, label_numbers, read_examples
from electra.evaluate.used_rows import only_used_rows
from electra.files import sha256, write_directory, write_file
from electra.model.encoder import Encoder
from electra.model.heads import ClassificationHead
from electra.model.hf import LoadedEncoder, load_encoder, save_sequence_classifier
from electra.model.native import keep_memory
from electra.train.optimizer import clip_gradients
from electra.train.randomness import seed_torch
from electra.train.run import CPU_MICRO_BATCH_TOKENS, choose_device


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Texts as word-piece ids, special tokens included, with their class numbers."""

    ids: list[list[int]]
    types: list[list[int]] | None
    """Segment of each token; None for single texts and for encoders without segments."""
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)


class Classifier(nn.Module):
    """An encoder with a classification head."""

    def __init__(self, encoder: Encoder, head: ClassificationHead) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, ids_BL: Tensor, mask_BL: Tensor | None, types_BL: Tensor | None) -> Tensor:
        """Token ids, mask (True at tokens, None without padding) and segments -> logits [B, C]."""
        # A head that reads [CLS] only needs the last block there only: the same numbers for less work.
        at_BK = ids_BL.new_zeros(len(ids_BL), 1) if self.head.pooling == "first" else None
        return self.head(self.encoder(ids_BL, mask_BL, types_BL, at_BK=at_BK), mask_BL)


def finetune(model: str | Path, config: FinetuneConfig, *, quiet: bool = False) -> dict[str, Any]:
    """Fine-tune on `config.task_file`, score on `config.dev_file`, once for each seed.

    `model` is a run directory or any Hugging Face ELECTRA or ModernBERT directory. Writes to `config.out`: `model/` (the
    matching `ForSequenceClassification` class and the tokenizer; of the best seed on the dev file), `predictions.csv` (of
    that seed) and `result.json`, whose content is returned. A run whose loss stops being a number is counted as failed
    and does not stop the others. If `config.out` holds the result of this very call already, that is returned.
    """
    started = time.perf_counter()
    device = choose_device(config.device)
    train, dev, labels = _read(config)
    loaded = load_encoder(model)
    identity = {
        "model": str(model),
        "model_sha256": sha256(weights) if (weights := loaded.path / "model.safetensors").is_file() else None,
        "config": to_dict(config),
        "files": {str(path): sha256(path) for path in (config.task_file, config.dev_file) if path is not None},
    }
    if (done := _earlier_result(config.out, identity)) is not None:
        return done
    if loaded.tokenizer_dir is None:
        raise UserError(
            f"{loaded.path}: has no tokenizer; copy tokenizer.json (or vocab.txt) of the pre-training there"
        )
    tokenizer = load_tokenizer(loaded.tokenizer_dir)
    if loaded.config.blocks == "classic" and config.max_length > loaded.config.max_length:
        raise UserError(
            f"max_length is {config.max_length}: the model's position table ends at {loaded.config.max_length}"
        )
    encode = _Encoder(tokenizer, config, has_types=loaded.config.blocks == "classic")
    train_encoded = encode(train, np.array(label_numbers(train, labels, config.task_file)))
    dev_encoded = None
    if dev and config.dev_file is not None:
        dev_encoded = encode(dev, np.array(label_numbers(dev, labels, config.dev_file)))

    num_train = min(len(train), config.max_train_examples or len(train))
    runs: list[dict[str, Any]] = []
    best: tuple[float, dict[str, Tensor], NDArray[np.float64] | None] | None = None
    classifier = None
    with _progress(quiet, config.seeds * _num_steps(num_train, config)) as progress:
        for seed in range(config.seed, config.seed + config.seeds):
            classifier = _new_classifier(loaded, config, len(labels), seed).to(device)
            part = train_encoded if num_train == len(train) else _sample(train_encoded, num_train, seed)
            began = time.perf_counter()
            if config.weight_decay:
                finite = _train(classifier, part, config, seed, device, tokenizer.pad_token_id, progress)
            else:
                with only_used_rows(classifier.encoder, part.ids, tokenizer.pad_token_id) as (ids, pad_id):
                    part = dataclasses.replace(part, ids=ids)
                    finite = _train(classifier, part, config, seed, device, pad_id, progress)
            run: dict[str, Any] = {"seed": seed, "failed": not finite, "train_seconds": time.perf_counter() - began}
            probabilities = None
            if finite and dev_encoded is not None:
                probabilities = predict(classifier, dev_encoded, device, tokenizer.pad_token_id)
                run |= classification_scores(dev_encoded.labels, probabilities.argmax(axis=1))
            runs.append(run)
            score = run.get("accuracy", 0.0)
            if finite and (best is None or score > best[0]):
                best = (score, copy.deepcopy(classifier.state_dict()), probabilities)
    if best is None or classifier is None:
        failed = "the run" if config.seeds == 1 else f"each of {config.seeds} runs"
        raise UserError(f"{failed} failed: the loss was not a number; lower peak_learning_rate")
    classifier.load_state_dict(best[1])

    good = [run for run in runs if not run["failed"]]
    result: dict[str, Any] = {
        **identity,
        "command": shlex.join(sys.argv),
        "versions": {
            "electra": electra.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "labels": labels,
        "train_examples": num_train,
        "dev_examples": len(dev),
        "runs": runs,
        "failed_runs": len(runs) - len(good),
        "seconds": 0.0,
    }
    if dev_encoded is not None:
        result["majority_share"] = float(np.bincount(dev_encoded.labels).max() / len(dev))
        for name in ("accuracy", "macro_f1", "matthews"):
            result[name] = over_seeds([run[name] for run in good])
    out = config.out
    write_directory(
        out / "model",
        lambda target: save_sequence_classifier(
            classifier.encoder.cpu(), classifier.head.cpu(), labels, target, loaded.tokenizer_dir
        ),
    )
    if best[2] is not None:
        _write_predictions(out / "predictions.csv", dev, labels, best[2])
    result["seconds"] = time.perf_counter() - started
    write_file(out / "result.json", json.dumps(result, indent=2))
    return result


def layer_rates(encoder: Encoder, peak: float, decay: float) -> list[tuple[list[nn.Parameter], float]]:
    """(parameters, learning rate) for the encoder, input side first; the head's rate is `peak`.

    The exponents are the reference's (model/optimization.py): with n layers, n + 2 for the embeddings and n + 1 - i for
    layer i from 0, so that the topmost layer already has 2. What `modern` adds after its last layer gets 1.
    """
    count = len(encoder.blocks)
    groups = [
        ([p for module in (encoder.embeddings, encoder.embeddings_project, encoder.embeddings_norm) if module
          for p in module.parameters()], peak * decay ** (count + 2)),
        *((list(block.parameters()), peak * decay ** (count + 1 - index)) for index, block in enumerate(encoder.blocks)),
    ]  # fmt: skip
    if encoder.final_norm is not None:
        groups.append((list(encoder.final_norm.parameters()), peak * decay))
    return groups


# ---------------------------------------------------------------------------------------------------- reading and checks


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


def _earlier_result(out: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The result that `out` holds, if it is of the same call. Raises UserError when `out` holds something else."""
    if (out / "result.json").is_file():
        try:
            result = json.loads((out / "result.json").read_text(encoding="utf-8"))
        except ValueError:
            result = {}
        if all(result.get(name) == value for name, value in identity.items()):
            return result
        raise UserError(f"{out}: holds the result of another fine-tuning; choose another --out, or remove it")
    others = (
        [path.name for path in out.iterdir() if path.name not in ("model", "predictions.csv")] if out.is_dir() else []
    )
    if any(not name.startswith(".") for name in others):
        raise UserError(f"{out}: is not empty; choose another --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out}: cannot be made ({error.strerror}); choose another --out") from None
    return None


class _Encoder:
    """Texts to ids with special tokens, cut at `max_length` (of a pair, the longer text first)."""

    def __init__(self, tokenizer: Any, config: FinetuneConfig, has_types: bool) -> None:
        self.tokenizer, self.config, self.has_types = tokenizer, config, has_types

    def __call__(self, examples: Sequence[Example], labels: NDArray[np.int64]) -> Encoded:
        paired = self.config.text_pair_column is not None
        encoded = self.tokenizer(
            [example.text for example in examples],
            [example.text_pair for example in examples] if paired else None,
            truncation=True,
            max_length=self.config.max_length,
            return_token_type_ids=True,
        )
        types = encoded["token_type_ids"] if paired and self.has_types else None
        return Encoded(encoded["input_ids"], types, labels)


def _sample(data: Encoded, count: int, seed: int) -> Encoded:
    chosen = np.sort(np.random.Generator(np.random.Philox(seed)).permutation(len(data))[:count])
    types = [data.types[i] for i in chosen] if data.types is not None else None
    return Encoded([data.ids[i] for i in chosen], types, data.labels[chosen])


# ---------------------------------------------------------------------------------------------------------- training


def _new_classifier(loaded: LoadedEncoder, config: FinetuneConfig, num_labels: int, seed: int) -> Classifier:
    seed_torch(seed)
    encoder = Encoder(loaded.config) if config.random_weights else copy.deepcopy(loaded.encoder)
    pooling = config.pooling
    if pooling == "auto":
        pooling = "mean" if loaded.config.blocks == "modern" else "first"
    return Classifier(
        encoder, ClassificationHead(loaded.config, num_labels, pooling, dropout=config.classifier_dropout)
    )


def _num_steps(num_examples: int, config: FinetuneConfig) -> int:
    return math.ceil(batches_per_epoch(num_examples, config.batch_size) * config.num_epochs)


def _train(
    classifier: Classifier,
    data: Encoded,
    config: FinetuneConfig,
    seed: int,
    device: torch.device,
    pad_id: int,
    progress: Progress,
) -> bool:
    """Returns whether the loss stayed a number."""
    if device.type == "cpu":
        keep_memory()
    classifier.train()
    groups = [
        *layer_rates(classifier.encoder, config.peak_learning_rate, config.layer_decay),
        (list(classifier.head.parameters()), config.peak_learning_rate),
    ]
    split = [
        {"params": chosen, "lr": rate, "peak": rate, "weight_decay": decay}
        for parameters, rate in groups
        for decay, chosen in (
            (config.weight_decay, [p for p in parameters if p.ndim >= 2]),
            (0.0, [p for p in parameters if p.ndim < 2]),
        )
        if chosen
    ]
    optimizer = torch.optim.AdamW(split, eps=1e-6, fused=True)
    parameters = list(classifier.parameters())
    num_steps = _num_steps(len(data), config)
    warmup_steps = max(1, round(config.warmup_fraction * num_steps))
    batches = shuffled_batches(np.array([len(ids) for ids in data.ids]), config.batch_size, seed)
    tokens = CPU_MICRO_BATCH_TOKENS if device.type == "cpu" else sys.maxsize
    losses = []
    for step in range(num_steps):
        factor = min(1.0, (step + 1) / warmup_steps) * (1.0 - step / num_steps)
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        batch = next(batches)
        optimizer.zero_grad()
        # Long texts in parts, whose gradients add up to the batch's.
        for part in batches_by_length([data.ids[row] for row in batch], tokens):
            rows = batch[part]
            logits = classifier(*_network_input(data, rows, pad_id, device))
            labels = torch.from_numpy(data.labels[rows]).to(device)
            loss = F.cross_entropy(logits, labels, reduction="sum") / len(batch)
            loss.backward()
            losses.append(loss.detach())
        clip_gradients(parameters, 1.0)
        optimizer.step()
        _advance(progress)
    return bool(torch.isfinite(torch.stack(losses)).all())


def _network_input(
    data: Encoded, rows: NDArray[np.int64], pad_id: int, device: torch.device
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Ids, mask and segments of these rows, as `Classifier` takes them."""
    ids, mask = pad([data.ids[row] for row in rows], pad_id)
    types = None if data.types is None else pad([data.types[row] for row in rows], 0)[0].to(device)
    return ids.to(device), None if mask is None else mask.to(device), types


@torch.inference_mode()
def predict(classifier: Classifier, data: Encoded, device: torch.device, pad_id: int) -> NDArray[np.float64]:
    """Probability of each class, [N, C], in the order of the data; texts of like length are batched together."""
    classifier.eval()
    found = np.zeros((len(data), classifier.head.num_labels))
    for batch in batches_by_length(data.ids, tokens_at_once(device)):
        rows = np.array(batch)
        found[rows] = classifier(*_network_input(data, rows, pad_id, device)).double().softmax(dim=-1).cpu().numpy()
    return found


def _write_predictions(
    path: Path, dev: Sequence[Example], labels: Sequence[str], probabilities: NDArray[np.float64]
) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "text_pair", "label", "predicted", *(f"probability {label}" for label in labels)])
        for example, row in zip(dev, probabilities, strict=True):
            chosen = labels[int(row.argmax())]
            writer.writerow([example.text, example.text_pair or "", example.label, chosen, *(f"{p:.6f}" for p in row)])


def _progress(quiet: bool, num_steps: int) -> Progress:
    """A bar on the standard error, where that is a terminal."""
    console = Console(file=sys.stderr)
    progress = Progress(
        TextColumn("fine-tuning"), BarColumn(), MofNCompleteColumn(), TextColumn("steps{task.fields[rate]}"),
        TimeRemainingColumn(), console=console, disable=quiet or not console.is_terminal, transient=True,
    )  # fmt: skip
    progress.add_task("", total=num_steps, rate="")
    return progress


def _advance(progress: Progress) -> None:
    task = progress.tasks[0]
    progress.update(task.id, advance=1, rate=f", {task.speed:.1f} a second" if task.speed else "")
