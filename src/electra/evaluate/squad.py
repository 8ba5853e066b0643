"""SQuAD: its JSON files, versions 1.1 and 2.0, and the scores of its official evaluation script.

Sources: the layout of the files and the script evaluate-v2.0.py at rajpurkar.github.io/SQuAD-explorer; google-research/electra
`finetune/qa/qa_tasks.py` for what becomes of answers that are not where the file says.
"""

from __future__ import annotations

import dataclasses
import json
import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from electra.errors import UserError

SCORES = (
    *("exact_match", "f1", "best_exact_match", "best_f1", "best_exact_match_threshold", "best_f1_threshold"),
    *("answerable_exact_match", "answerable_f1", "unanswerable_exact_match", "unanswerable_f1"),
)
"""What `squad_scores` may give."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclasses.dataclass(frozen=True)
class Question:
    """A question about a text."""

    id: str
    text: str
    context: str
    answers: tuple[str, ...]
    """All that count as right; empty where the text has none."""
    span: tuple[int, int] | None
    """Characters of the first answer in the context; None where there is none, or where it is not in the text."""

    @property
    def impossible(self) -> bool:
        return not self.answers


@dataclasses.dataclass(frozen=True)
class QuestionFile:
    """The questions of a file, in its order."""

    questions: list[Question]
    corrected: int
    """Answers that stood elsewhere in the text than their answer_start says."""
    not_found: int
    """First answers that are nowhere in the text."""


def read_squad(path: Path) -> QuestionFile:
    """Read a file in the official layout.

    The first answer is the one to learn. Where the text does not have it at its `answer_start`, the nearest place that has it is
    taken (letter case ignored); where there is none, the question has no `span`: good for scoring, not for training, as in the
    reference. Raises UserError, naming the place, for a missing file, broken JSON and missing or wrong entries.
    """
    if not path.is_file():
        raise UserError(f"{path}: {'is a directory, not a file' if path.is_dir() else 'no such file'}")
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: line {error.lineno}, column {error.colno}: not valid JSON ({error.msg})") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not UTF-8 text; give a .json file in SQuAD's format") from None
    questions, corrected, not_found = [], 0, 0
    seen: set[str] = set()
    for where, context, entry in _entries(content, f"{path}: "):
        name = _get(entry, "id", str, where)
        if name in seen:
            raise UserError(f"{where}: the id {name!r} stands in the file twice")
        seen.add(name)
        answers = [] if entry.get("is_impossible") is True else _get(entry, "answers", list, where)
        texts = [_get(answer, "text", str, f"{where}.answers[{i}]") for i, answer in enumerate(answers)]
        span = None
        if texts:
            begin = _get(answers[0], "answer_start", int, f"{where}.answers[0]")
            span = _locate(context, texts[0], begin)
            corrected += span is not None and span[0] != begin
            not_found += span is None
        questions.append(Question(name, _get(entry, "question", str, where), context, tuple(texts), span))
    if not questions:
        raise UserError(f"{path}: holds no questions")
    return QuestionFile(questions, corrected, not_found)


def _entries(content: Any, where: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(place, context, question) of all questions."""
    for a, article in enumerate(_get(content, "data", list, where.rstrip(": "))):
        place = f"{where}data[{a}]"
        for p, paragraph in enumerate(_get(article, "paragraphs", list, place)):
            inner = f"{place}.paragraphs[{p}]"
            context = _get(paragraph, "context", str, inner)
            for q, entry in enumerate(_get(paragraph, "qas", list, inner)):
                yield f"{inner}.qas[{q}]", context, entry


def _get(holder: Any, name: str, kind: type[Any], where: str) -> Any:
    if not isinstance(holder, dict):
        raise UserError(f"{where}: is a {type(holder).__name__}, not an object; give a file in SQuAD's format")
    if name not in holder:
        raise UserError(f"{where}: has no {name!r}; give a file in SQuAD's format")
    if not isinstance(holder[name], kind) or isinstance(holder[name], bool):
        raise UserError(f"{where}: {name!r} is a {type(holder[name]).__name__}, not a {kind.__name__}")
    return holder[name]


def _locate(context: str, text: str, begin: int) -> tuple[int, int] | None:
    """Where the text is, as near as possible to `begin`; None if it is nowhere (or is nothing)."""
    if not text.strip():
        return None
    if begin >= 0 and context.startswith(text, begin):
        return begin, begin + len(text)
    places = [found.span() for found in re.finditer(re.escape(text), context, re.IGNORECASE)]
    return min(places, key=lambda place: abs(place[0] - begin), default=None)


# ---------------------------------------------------------------------------------------------------------------- scores


def normalized(text: str) -> str:
    """As the script compares answers: lower case, without punctuation and articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(gold: str, predicted: str) -> float:
    """1 if the two are equal when normalised."""
    return float(normalized(gold) == normalized(predicted))


def token_f1(gold: str, predicted: str) -> float:
    """F1 of the words of the two; without words on one side, 1 if the other has none either."""
    gold_words, words = normalized(gold).split(), normalized(predicted).split()
    if not gold_words or not words:
        return float(gold_words == words)
    common = (Counter(gold_words) & Counter(words)).total()
    if common == 0:
        return 0.0
    precision, recall = common / len(words), common / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def best_over_answers(question: Question, predicted: str) -> tuple[float, float]:
    """Exact match and F1, each with the answer that suits best; without answer, with the empty one."""
    golds = [answer for answer in question.answers if normalized(answer)] or [""]
    return max(exact_match(gold, predicted) for gold in golds), max(token_f1(gold, predicted) for gold in golds)


def squad_scores(
    questions: Sequence[Question], predicted: Mapping[str, str], no_answer: Mapping[str, float], threshold: float
) -> dict[str, float]:
    """`exact_match` and `f1`, from 0 to 1 (the script prints per cent), of the best answers `predicted` by question.

    Where some questions have no answer: an answer whose `no_answer` score is above the threshold counts as none given;
    then also the scores over questions with and without answer, and the best that any threshold gives, with that threshold.
    """
    scores = {question.id: best_over_answers(question, predicted[question.id]) for question in questions}
    impossible = {question.id: question.impossible for question in questions}
    if not any(impossible.values()):
        return _means(list(scores.values()))
    kept = {
        name: found if no_answer[name] <= threshold else (float(impossible[name]),) * 2
        for name, found in scores.items()
    }
    result = _means(list(kept.values()))
    for prefix, which in (("answerable", False), ("unanswerable", True)):
        part = [found for name, found in kept.items() if impossible[name] == which]
        if part:
            result |= {f"{prefix}_{name}": value for name, value in _means(part).items()}
    for index, name in enumerate(("exact_match", "f1")):
        best, at = _best_threshold(
            {key: found[index] for key, found in scores.items()}, predicted, no_answer, impossible
        )
        result |= {f"best_{name}": best, f"best_{name}_threshold": at}
    return result


def _means(scores: Sequence[tuple[float, ...]]) -> dict[str, float]:
    return {name: sum(found[i] for found in scores) / len(scores) for i, name in enumerate(("exact_match", "f1"))}


def _best_threshold(
    scores: Mapping[str, float],
    predicted: Mapping[str, str],
    no_answer: Mapping[str, float],
    impossible: Mapping[str, bool],
) -> tuple[float, float]:
    """The best mean score, and the lowest threshold that gives it: answers are let through one after the other, the surest
    first; an answer to a question without one costs a point, as in the script."""
    current = best = float(sum(impossible.values()))
    threshold = 0.0
    for name in sorted(scores, key=lambda name: no_answer[name]):
        current += (-1.0 if predicted[name] else 0.0) if impossible[name] else scores[name]
        if current > best:
            best, threshold = current, no_answer[name]
    return best / len(scores), threshold
