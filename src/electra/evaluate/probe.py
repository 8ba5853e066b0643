"""A quick check of frozen features, for each checkpoint of a run: is it learning, or has something gone wrong?

A logistic regression on what each layer makes of a text, of its first token and of the mean over its tokens. Nothing is
fine-tuned, so it takes seconds; the figures are for comparing checkpoints, not for a paper.

Shapes: B batch, L length, D hidden size, N texts.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from electra.errors import UserError
from electra.evaluate.batching import batches_by_length, tokens_at_once
from electra.evaluate.probe_data import Question
from electra.evaluate.training import Encoded
from electra.model.encoder import Encoder
from electra.train.checkpoint import load_run, whole_checkpoints
from electra.train.run import initial_pair

Features = dict[str, NDArray[np.float32]]
"""`layer 3, first` -> [N, D]; layer 0 is the embeddings."""


class Stage(NamedTuple):
    """An encoder as it was at some step."""

    step: int | None
    """None for a model that is no run's."""
    tokens: int | None
    encoder: Encoder
    weights: Path | None
    """Directory that it was read from; None for the random weights of step 0."""


def stages(run_dir: Path) -> Iterator[Stage]:
    """The main network of a run at random weights (step 0) and at every whole checkpoint, oldest first.

    Raises UserError when there is no checkpoint yet.
    """
    found = whole_checkpoints(run_dir)
    if not found:
        raise UserError(f"{run_dir}: has no whole checkpoint yet; let `electra pretrain` run until it saves one")
    for checkpoint, state in found:
        pair, config = load_run(run_dir, checkpoint)
        if checkpoint == found[0][0]:
            yield Stage(0, 0, initial_pair(config, None).discriminator.eval(), None)
        yield Stage(state.step, state.tokens, pair.discriminator, checkpoint)


def probe(
    encoder: Encoder, questions: Sequence[Question], pad_id: int, device: torch.device
) -> dict[str, dict[str, float]]:
    """Question -> layer and pooling -> accuracy of a logistic regression on the half of the texts that it was not fitted on."""
    encoder.to(device)
    return {question.name: _accuracies(features(encoder, question, pad_id, device), question) for question in questions}


@torch.inference_mode()
def features(encoder: Encoder, question: Question, pad_id: int, device: torch.device) -> Features:
    """The vectors of each text: after each layer, of the first token and of the mean over its tokens (special ones count)."""
    data = Encoded(question.rows, question.types)
    width, names = encoder.config.hidden_size, [f"layer {index}" for index in range(encoder.config.num_layers + 1)]
    found = {f"{n}, {p}": np.empty((len(data), width), np.float32) for n in names for p in ("first", "mean")}
    for batch in batches_by_length(data.ids, tokens_at_once(device)):
        rows = np.array(batch)
        inputs = data.inputs(rows, pad_id, device)
        layers = encoder(*inputs, return_all_layers=True)
        real_BL = torch.ones_like(inputs.ids_BL) if inputs.mask_BL is None else inputs.mask_BL
        weights_BL1 = (real_BL / real_BL.sum(dim=1, keepdim=True)).unsqueeze(-1)
        for name, hidden_BLD in zip(names, layers, strict=True):
            found[f"{name}, first"][rows] = hidden_BLD[:, 0].float().cpu().numpy()
            found[f"{name}, mean"][rows] = (hidden_BLD.float() * weights_BL1).sum(dim=1).cpu().numpy()
    return found


def _accuracies(found: Features, question: Question) -> dict[str, float]:
    fitted, answers = question.fitted, question.answers
    accuracies = {}
    for name, vectors in found.items():
        if not np.isfinite(vectors).all():
            raise UserError("the features are not numbers: the checkpoint's training diverged, or its file is damaged")
        # A strong penalty, and no need to converge to the last digit: this is a quick check.
        classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=100))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            classifier.fit(vectors[fitted], answers[fitted])
        accuracies[name] = float(classifier.score(vectors[~fitted], answers[~fitted]))
    return accuracies


def best(accuracies: dict[str, float]) -> tuple[str, float]:
    """The layer and pooling that do best; of equal ones the lowest layer."""
    name = max(accuracies, key=lambda name: accuracies[name])
    return name, accuracies[name]


def remarks(points: Sequence[dict[str, Any]], questions: Sequence[Question]) -> list[str]:
    """What looks wrong along a run, beyond what chance explains (two standard errors of a difference)."""
    said = []
    for question in questions:
        scores = {point["step"]: best(point["accuracies"][question.name])[1] for point in points}
        start = scores.pop(0, None)
        if start is None or not scores:
            continue
        newest = max(scores)
        now, peak = scores[newest], max(scores, key=lambda step: scores[step])
        floor, of = (start, "random weights") if question.beats_random else (question.chance, "guessing")
        error = 2.0 * math.sqrt(2.0 * max(now * (1.0 - now), 1e-4) / int((~question.fitted).sum()))
        if now < scores[peak] - error:
            said.append(
                f"{question.name}: fell from {scores[peak]:.3f} at step {peak:,} to {now:.3f} at step {newest:,}"
            )
        elif now <= floor + error:
            said.append(f"{question.name}: {now:.3f} at step {newest:,} is no better than the {floor:.3f} of {of}")
    return said


def table(points: Sequence[dict[str, Any]], questions: Sequence[Question]) -> list[str]:
    """Steps down, questions across, each with the layer that did best; below, every layer of the newest checkpoint."""
    names = [question.name for question in questions]
    lines = [f"{'step':>10}" + "".join(f"  {name:>14} (at)               " for name in names)]
    for point in points:
        cells = [best(point["accuracies"][name]) for name in names]
        lines.append(
            f"{_label(point['step']):>10}" + "".join(f"  {value:>14.3f} {where:<19}" for where, value in cells)
        )
    lines.append(f"{'guessing':>10}" + "".join(f"  {question.chance:>14.3f} {'':<19}" for question in questions))
    lines += ["", f"every layer, {_label(points[-1]['step'], 'step ')}"]
    for where in points[-1]["accuracies"][names[0]]:
        lines.append(f"{where:>16}" + "".join(f"  {points[-1]['accuracies'][name][where]:>14.3f}" for name in names))
    return lines


def _label(step: int | None, prefix: str = "") -> str:
    return "as given" if step is None else f"{prefix}{step:,}"


def probe_stages(
    every: Iterable[Stage],
    questions: Sequence[Question],
    pad_id: int,
    device: torch.device,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[list[dict[str, Any]], list[Path]]:
    """One point for each stage: `step`, `tokens` and `accuracies`, as `probe` gives them; and the directories of weights that
    were read."""
    points, read = [], []
    for stage in every:
        accuracies = probe(stage.encoder, questions, pad_id, device)
        points.append({"step": stage.step, "tokens": stage.tokens, "accuracies": accuracies})
        read += [stage.weights] if stage.weights is not None else []
        say(
            f"{_label(stage.step, 'step ')}: " + ", ".join(f"{name} {best(a)[1]:.3f}" for name, a in accuracies.items())
        )
    return points, read
