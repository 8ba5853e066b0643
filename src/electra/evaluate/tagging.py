"""Fine-tuning on a label for each word: named entities, chunks, parts of speech.

Shapes: B batch, L length, C labels, W words that a batch of windows answers for.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from electra.config_finetune import TaggingConfig
from electra.errors import UserError
from electra.evaluate.conll import Sentence, as_conll, read_sentences
from electra.evaluate.recipe import filled_in
from electra.evaluate.results import earlier_result, identity, provenance, summary, write_result
from electra.evaluate.spans import Counts, are_spans
from electra.evaluate.split_files import train_and_dev
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
from electra.evaluate.windows import most_context, windows_by_size
from electra.files import write_directory, write_file
from electra.model.encoder import Encoder
from electra.model.hf_tasks import save_tagger
from electra.model.task_heads import TokenHead

PREDICTIONS = "predictions.conll"


class Tagger(TaskNetwork):
    """An encoder with a head over tokens."""

    head: TokenHead

    def forward(self, ids_BL: Tensor, mask_BL: Tensor | None, types_BL: Tensor | None) -> Tensor:
        """Token ids, mask (True at tokens, None without padding) and segments -> logits [B, L, C]."""
        return self.head(self.encoder(ids_BL, mask_BL, types_BL))


@dataclasses.dataclass(frozen=True)
class Windows:
    """Sentences as windows of word pieces. Each word is answered for by one window, at its first piece."""

    texts: Encoded
    first_pieces: list[NDArray[np.int64]]
    """Of each window, where the words it answers for begin."""
    words: list[NDArray[np.int64]]
    """Their numbers, counted through all sentences."""
    num_words: int

    def places(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Of all words that these rows answer for: row in the batch, position in the row, number of the word; each [W]."""
        counts = [len(self.words[row]) for row in rows]
        return (
            np.repeat(np.arange(len(rows)), counts),
            np.concatenate([self.first_pieces[row] for row in rows]),
            np.concatenate([self.words[row] for row in rows]),
        )


def encode_sentences(sentences: Sequence[Sequence[str]], tokenizer: Any, max_length: int) -> Windows:
    """Words to pieces, in windows of at most `max_length` tokens that share about half with their neighbours.

    A word without pieces (control characters) becomes [UNK], one longer than a window is cut: every word gets a label.
    """
    room = max_length - 2
    distinct = list(dict.fromkeys(chain.from_iterable(sentences)))
    ids = tokenizer(distinct, add_special_tokens=False)["input_ids"]
    pieces = {word: found[:room] or [tokenizer.unk_token_id] for word, found in zip(distinct, ids, strict=True)}
    rows, first_pieces, words, done = [], [], [], 0
    for sentence in sentences:
        sizes = [len(pieces[word]) for word in sentence]
        windows = windows_by_size(sizes, room)
        owner = most_context(windows, len(sizes))
        for number, (start, end) in enumerate(windows):
            inner = chain.from_iterable(pieces[word] for word in sentence[start:end])
            rows.append([tokenizer.cls_token_id, *inner, tokenizer.sep_token_id])
            mine = np.flatnonzero(owner == number)
            begins = 1 + np.cumsum([0, *sizes[start:end]])
            first_pieces.append(begins[mine - start])
            words.append(mine + done)
        done += len(sizes)
    return Windows(Encoded(rows, None), first_pieces, words, done)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingTask:
    """A label for each word: the task as the core of fine-tuning takes it."""

    start: Start
    config: TaggingConfig
    labels: list[str]
    train: Windows
    targets: NDArray[np.int64]
    """Label numbers of the training words."""
    dev: Windows | None
    gold: list[list[str]]
    """Labels of the dev sentences."""

    def new_network(self, encoder: Encoder) -> Tagger:
        return Tagger(encoder, TokenHead(encoder.config, len(self.labels), self.config.classifier_dropout))

    def loss(self, network: Tagger, rows: NDArray[np.int64], inputs: Inputs) -> Tensor:
        """Cross-entropy summed over the words, in units of the mean number of words in a row: a batch's is that of a word."""
        row, at, word = self.train.places(rows)
        targets = torch.from_numpy(self.targets[word]).to(inputs.ids_BL.device)
        loss = F.cross_entropy(network(*inputs)[row, at].float(), targets, reduction="sum")
        return loss * (len(self.train.texts) / self.train.num_words)

    def score(self, network: Tagger) -> Scored | None:
        if self.dev is None:
            return None
        numbers = predict(network, self.dev, self.start)
        predicted = _by_sentence([self.labels[number] for number in numbers], self.gold)
        scores = tag_scores(self.gold, predicted)
        degenerate = len(set(numbers)) == 1 and len(set(chain.from_iterable(self.gold))) > 1
        return Scored(scores, scores["f1" if "f1" in scores else "accuracy"], degenerate, predicted)


def tag_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """`f1`, `precision` and `recall` of spans where the gold labels mark any, and the `accuracy` over words."""
    right = sum(a == b for one, other in zip(gold, predicted, strict=True) for a, b in zip(one, other, strict=True))
    scores = Counts(gold, predicted).scores() if are_spans(chain.from_iterable(gold)) else {}
    return scores | {"accuracy": right / sum(map(len, gold))}


@torch.inference_mode()
def predict(network: Tagger, windows: Windows, start: Start) -> NDArray[np.int64]:
    """The number of the likeliest label of every word, counted through all sentences."""
    found = np.full(windows.num_words, -1)
    for rows, inputs in scoring_batches(windows.texts, start):
        row, at, word = windows.places(rows)
        found[word] = network(*inputs)[row, at].argmax(-1).cpu().numpy()
    assert (found >= 0).all(), "each word is answered for by a window"
    return found


def finetune_tagging(model: str | Path, config: TaggingConfig, *, quiet: bool = False) -> dict[str, Any]:
    """Fine-tune a tagger, once for each seed, and score it on the dev data.

    Writes to `config.out`: `model/` (the matching `ForTokenClassification` class and the tokenizer; of the best seed),
    `predictions.conll` (the dev file's lines with one more column, of that seed) and `result.json`, whose content is returned. If
    `config.out` holds the result of this very call already, that is returned. Raises UserError for anything that does not fit.
    """
    started = time.perf_counter()
    train_file, dev_file = train_and_dev(config.data, config.train_file, config.dev_file)
    columns = {"token_column": config.token_column, "label_column": config.label_column}
    train = read_sentences(train_file, **columns)
    dev = read_sentences(dev_file, **columns) if dev_file is not None else []
    labels = _label_names(train, dev, train_file, dev_file)
    start = load_start(model, config)
    call = identity(model, start, config, [path for path in (train_file, dev_file) if path is not None])
    if (done := earlier_result(config.out, call, ours=("model", PREDICTIONS))) is not None:
        return done
    config, used = filled_in(config, start.loaded.config)
    number = {label: index for index, label in enumerate(labels)}
    task = TaggingTask(
        start=start,
        config=config,
        labels=labels,
        train=encode_sentences([sentence.words for sentence in train], start.tokenizer, config.max_length),
        targets=np.array([number[label] for sentence in train for label in sentence.labels]),
        dev=encode_sentences([sentence.words for sentence in dev], start.tokenizer, config.max_length) if dev else None,
        gold=[sentence.labels for sentence in dev],
    )
    outcome = train_seeds(task, task.train.texts, start, config, quiet=quiet)
    as_spans = are_spans(chain.from_iterable(task.gold))
    result: dict[str, Any] = {
        "task": train_file.stem if config.task == "tagging" else config.task,
        "main_metric": "f1" if as_spans else "accuracy",
        **call,
        **provenance(),
        "hyper_parameters": used,
        "labels": labels,
        "train_examples": min(len(task.train.texts), config.max_train_examples or len(task.train.texts)),
        "dev_examples": len(dev),
        "dev_words": sum(map(len, task.gold)),
        **summary(outcome, ["f1", "precision", "recall", "accuracy"]),
    }
    if dev:
        if as_spans:
            result["best_seed_by_kind"] = Counts(task.gold, outcome.predictions).by_kind()
        write_file(config.out / PREDICTIONS, as_conll(dev, outcome.predictions))
    tokenizer_dir = start.loaded.tokenizer_dir
    network = outcome.network
    write_directory(
        config.out / "model", lambda out: save_tagger(network.encoder, network.head, labels, out, tokenizer_dir)
    )
    result["seconds"] = time.perf_counter() - started
    write_result(config.out, result)
    return result


def _label_names(train: list[Sentence], dev: list[Sentence], train_file: Path, dev_file: Path | None) -> list[str]:
    """Of the training data, sorted, O first. Dev labels that are not among them can never be right; rare ones are let pass."""
    found = {label for sentence in train for label in sentence.labels}
    if len(found) < 2:
        raise UserError(f"{train_file}: has the single label {min(found)!r}; set --label-column to the labels' column")
    words = [label for sentence in dev for label in sentence.labels]
    unknown = sorted(set(words) - found)
    if sum(label in unknown for label in words) > len(words) // 2:
        raise UserError(
            f"{dev_file}: most of its labels, such as {unknown[0]!r}, are not in {train_file}; check --label-column"
        )
    return sorted(found, key=lambda label: (label != "O", label))


def _by_sentence(labels: list[str], like: Sequence[Sequence[str]]) -> list[list[str]]:
    """A flat list in parts as long as those of `like`."""
    rest = iter(labels)
    return [[next(rest) for _ in sentence] for sentence in like]
