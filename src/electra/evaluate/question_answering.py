"""Fine-tuning on questions whose answers are spans of a text, in SQuAD's format.

Shapes: B batch, L length, K beam.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra.config_finetune import QuestionAnsweringConfig
from electra.errors import UserError
from electra.evaluate.question_windows import QuestionWindows, cut, encode_questions
from electra.evaluate.recipe import filled_in
from electra.evaluate.results import describe, earlier_result, identity, provenance, summary, write_result
from electra.evaluate.split_files import train_and_dev
from electra.evaluate.squad import SCORES, Question, QuestionFile, read_squad, squad_scores
from electra.evaluate.training import Inputs, Scored, Start, TaskNetwork, load_start, scoring_batches, train_seeds
from electra.files import write_directory, write_file
from electra.model.encoder import Encoder
from electra.model.hf_tasks import save_question_answerer
from electra.model.task_heads import JointSpanHead, PlainSpanHead, SpanHead

EPOCHS = 2.0  # table 7
JOINT_THRESHOLD = -2.75  # google-research/electra configure_finetuning.py, qa_na_threshold
PREDICTIONS, BEST, NO_ANSWER = "predictions.json", "nbest.json", "no_answer.json"


class QuestionAnswerer(TaskNetwork):
    """An encoder with a plain or joint span head."""

    head: SpanHead

    def hidden(self, inputs: Inputs) -> Tensor:
        """[B, L, D]."""
        return self.encoder(inputs.ids_BL, inputs.mask_BL, inputs.types_BL)


class Candidate(NamedTuple):
    """An answer that a network considers."""

    text: str
    start: float
    end: float
    """Scores of the two ends: logits (plain head) or log-probabilities (joint head)."""

    @property
    def score(self) -> float:
        return self.start + self.end


class Answers(NamedTuple):
    """What a network says of each question, by its id."""

    best: dict[str, list[Candidate]]
    """The likeliest first; empty where nothing in the text may be an answer."""
    no_answer: dict[str, float]
    """Higher where the text seems to have none."""

    @property
    def texts(self) -> dict[str, str]:
        """The likeliest answer, whether or not there seems to be none."""
        return {name: found[0].text if found else "" for name, found in self.best.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionTask:
    """Span extraction: the task as the core of fine-tuning takes it."""

    start: Start
    config: QuestionAnsweringConfig
    answerability: bool
    """Some training questions have no answer."""
    train: QuestionWindows
    targets: tuple[NDArray[np.int64], NDArray[np.int64]]
    """First and last piece of the answer in each training window."""
    impossible: NDArray[np.bool_]
    """Of each training window, whether its question has no answer."""
    dev: QuestionWindows | None
    dev_questions: list[Question]

    def new_network(self, encoder: Encoder) -> QuestionAnswerer:
        if self.config.head == "joint":
            return QuestionAnswerer(encoder, JointSpanHead(encoder.config, answerability=self.answerability))
        return QuestionAnswerer(encoder, PlainSpanHead(encoder.config, self.config.classifier_dropout))

    def loss(self, network: QuestionAnswerer, rows: NDArray[np.int64], inputs: Inputs) -> Tensor:
        device = inputs.ids_BL.device
        start_B, end_B, impossible_B = (
            torch.from_numpy(values[rows]).to(device) for values in (*self.targets, self.impossible)
        )
        allowed_BL = self.train.allowed(rows, inputs.ids_BL.shape[1], device)
        return network.head.loss(network.hidden(inputs), allowed_BL, start_B, end_B, impossible_B).sum()

    def score(self, network: QuestionAnswerer) -> Scored | None:
        if self.dev is None:
            return None
        answers = answer(network, self.dev_questions, self.dev, self.start, self.config)
        threshold = no_answer_threshold(self.config)
        scores = squad_scores(self.dev_questions, answers.texts, answers.no_answer, threshold)
        given = _with_threshold(answers, threshold) if _some_impossible(self.dev_questions) else answers.texts
        degenerate = len(given) > 1 and len(set(given.values())) == 1
        return Scored(scores, scores["f1"], degenerate, answers)


def no_answer_threshold(config: QuestionAnsweringConfig) -> float:
    """The configured one, else the head's usual one."""
    if config.no_answer_threshold is not None:
        return config.no_answer_threshold
    return JOINT_THRESHOLD if config.head == "joint" else 0.0


@torch.inference_mode()
def answer(
    network: QuestionAnswerer,
    questions: Sequence[Question],
    windows: QuestionWindows,
    start: Start,
    config: QuestionAnsweringConfig,
) -> Answers:
    """The best answers to each question over all its windows, as the reference chooses them (finetune/qa/qa_metrics.py).

    A span must start at a piece that no other window shows more around, and be no longer than `max_answer_length`. Of spans of
    one text the best counts. The score for no answer is the lowest of the windows; of a plain head, minus the best span's.
    """
    spans: list[list[tuple[float, float, int, int]]] = [[] for _ in questions]
    none = [math.inf] * len(questions)
    for rows, inputs in scoring_batches(windows.texts, start):
        allowed_BL = windows.allowed(rows, inputs.ids_BL.shape[1], inputs.ids_BL.device)
        found = network.head.spans(network.hidden(inputs), allowed_BL, config.beam)
        starts, starts_at, ends, ends_at, no_answer = (tensor.float().cpu().numpy() for tensor in found)
        for index, row in enumerate(rows):
            number = windows.question[row]
            none[number] = min(none[number], float(no_answer[index]))
            pieces, mine, shift = windows.offsets[row], windows.mine[row], windows.text_at[row]
            first_K1 = starts_at[index, :, None].astype(int) - shift
            last_KK = ends_at[index].astype(int) - shift
            good = (first_K1 >= 0) & (first_K1 < len(pieces)) & (first_K1 <= last_KK) & (last_KK < len(pieces))
            good &= (last_KK - first_K1 < config.max_answer_length) & mine[first_K1.clip(0, len(pieces) - 1)]
            for i, j in np.argwhere(good):
                characters = int(pieces[first_K1[i, 0], 0]), int(pieces[last_KK[i, j], 1])
                spans[number].append((float(starts[index, i]), float(ends[index, i, j]), *characters))
    best, no_answers = {}, {}
    for question, candidates, lowest in zip(questions, spans, none, strict=True):
        best[question.id] = _best(question.context, candidates, config.num_best)
        no_answers[question.id] = lowest
        if isinstance(network.head, PlainSpanHead) and best[question.id]:
            no_answers[question.id] -= best[question.id][0].score
    return Answers(best, no_answers)


def _best(context: str, candidates: list[tuple[float, float, int, int]], count: int) -> list[Candidate]:
    found: dict[str, Candidate] = {}
    for start, end, first, last in sorted(candidates, key=lambda one: -(one[0] + one[1])):
        text = cut(context, first, last)
        if text and text not in found:
            found[text] = Candidate(text, start, end)
            if len(found) == count:
                break
    return list(found.values())


def finetune_question_answering(
    model: str | Path, config: QuestionAnsweringConfig, *, quiet: bool = False
) -> dict[str, Any]:
    """Fine-tune on questions about texts, once for each seed, and score on the dev data.

    Writes to `config.out`, of the best seed: `model/` (plain head: the matching `ForQuestionAnswering` class; and the tokenizer),
    `predictions.json` (for the official script), `nbest.json`, `no_answer.json` (2.0: the score for none); and
    `result.json`, whose content is returned. If `config.out` holds the result of this very call already, that is returned.
    Raises UserError for anything that does not fit.
    """
    started = time.perf_counter()
    train_file, dev_file = train_and_dev(config.data, config.train_file, config.dev_file)
    train = read_squad(train_file)
    dev = read_squad(dev_file) if dev_file is not None else QuestionFile([], 0, 0)
    usable = [question for question in train.questions if question.impossible or question.span is not None]
    if not any(question.span for question in usable):
        raise UserError(f"{train_file}: has no question with an answer that stands in its text")
    start = load_start(model, config)
    call = identity(model, start, config, [path for path in (train_file, dev_file) if path is not None])
    if (done := earlier_result(config.out, call, ours=("model", PREDICTIONS, BEST, NO_ANSWER))) is not None:
        return done
    config, used = filled_in(config, start.loaded.config, EPOCHS)
    if config.max_train_examples is not None:
        used["max_train_examples"] = {"value": config.max_train_examples, "from": "given, in windows"}

    def windows(questions: Sequence[Question]) -> QuestionWindows:
        return encode_questions(
            questions,
            start.tokenizer,
            max_length=config.max_length,
            max_question_length=config.max_question_length,
            stride=config.stride,
            with_types=start.has_types,
        )

    train_windows = windows(usable)
    task = QuestionTask(
        start=start,
        config=config,
        answerability=_some_impossible(usable),
        train=train_windows,
        targets=train_windows.targets(usable),
        impossible=np.array([usable[number].impossible for number in train_windows.question]),
        dev=windows(dev.questions) if dev.questions else None,
        dev_questions=dev.questions,
    )
    outcome = train_seeds(task, task.train.texts, start, config, quiet=quiet)
    result: dict[str, Any] = {
        "task": "SQuAD 2.0" if _some_impossible(usable) else "SQuAD 1.1",
        "main_metric": "f1",
        **call,
        **provenance(),
        "hyper_parameters": used,
        "no_answer_threshold": no_answer_threshold(config),
        "train_examples": len(usable),
        "train_windows": len(task.train.texts),
        "dev_examples": len(dev.questions),
        "answers": {
            "moved": {"train": train.corrected, "dev": dev.corrected},
            "not in their text": {"train": train.not_found, "dev": dev.not_found},
        },
        **summary(outcome, SCORES),
    }
    if dev.questions:
        _write_predictions(config.out, outcome.predictions, dev.questions, no_answer_threshold(config))
    network = outcome.network
    write_directory(
        config.out / "model",
        lambda out: save_question_answerer(network.encoder, network.head, out, start.loaded.tokenizer_dir),
    )
    result["seconds"] = time.perf_counter() - started
    write_result(config.out, result)
    return result


def describe_answers(result: dict[str, Any]) -> list[str]:
    """A result in a few lines, with what was odd about the answers in the files."""
    lines = describe(result)
    for what, counts in result["answers"].items():
        found = [f"{count:,} {where}" for where, count in counts.items() if count]
        if found:
            lines.append(f"  first answers {what}: {' and '.join(found)} (moved ones are read where they stand)")
    return lines


def _some_impossible(questions: Sequence[Question]) -> bool:
    return any(question.impossible for question in questions)


def _with_threshold(answers: Answers, threshold: float) -> dict[str, str]:
    return {name: "" if answers.no_answer[name] > threshold else text for name, text in answers.texts.items()}


def _write_predictions(out: Path, answers: Answers, questions: Sequence[Question], threshold: float) -> None:
    """predictions.json has one answer a question, the threshold applied; nbest.json all, with probabilities among them."""
    best = {}
    for name, found in answers.best.items():
        weights = np.exp(np.array([one.score for one in found]) - max((one.score for one in found), default=0.0))
        best[name] = [
            {"text": one.text, "probability": float(weight / weights.sum()), "start": one.start, "end": one.end}
            for one, weight in zip(found, weights, strict=True)
        ]
    chosen = answers.texts
    if _some_impossible(questions):
        chosen = _with_threshold(answers, threshold)
        write_file(out / NO_ANSWER, json.dumps(answers.no_answer, indent=1))
    write_file(out / PREDICTIONS, json.dumps(chosen, indent=1, ensure_ascii=False))
    write_file(out / BEST, json.dumps(best, indent=1, ensure_ascii=False))
