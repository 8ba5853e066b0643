"""Questions and texts as windows of word pieces, and spans of pieces back to characters of the text.

Shapes: B batch, L length.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra.errors import UserError
from electra.evaluate.squad import Question
from electra.evaluate.training import Encoded
from electra.evaluate.windows import most_context, windows_by_step


@dataclasses.dataclass(frozen=True)
class QuestionWindows:
    """[CLS] question [SEP] part of the text [SEP], one or more for each question."""

    texts: Encoded
    question: NDArray[np.int64]
    """Of each window, the number of its question."""
    text_at: NDArray[np.int64]
    """Of each window, where the part of the text begins."""
    offsets: list[NDArray[np.int64]]
    """Of each window, first character and one after the last of each piece of its part of the text, [pieces, 2]."""
    mine: list[NDArray[np.bool_]]
    """Of each window, whether it shows more around a piece than the other windows: only there it may start an answer."""

    def allowed(self, rows: NDArray[np.int64], length: int, device: torch.device) -> Tensor:
        """Where an answer may start and end: in the text, and at [CLS], which stands for none; bool [B, L]."""
        at_L = np.arange(length)
        begin_B1 = self.text_at[rows, None]
        end_B1 = begin_B1 + np.array([[len(self.offsets[row])] for row in rows])
        return torch.from_numpy((at_L == 0) | ((begin_B1 <= at_L) & (at_L < end_B1))).to(device)

    def targets(self, questions: Sequence[Question]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions of the first and last piece of the answer in each window; 0, [CLS], where it is not all in the window."""
        found = np.zeros((2, len(self.texts)), np.int64)
        for row, number in enumerate(self.question):
            if (span := questions[number].span) is None:
                continue
            pieces = self.offsets[row]
            if pieces[0, 0] > span[0] or pieces[-1, 1] < span[1]:
                continue
            touched = np.flatnonzero((pieces[:, 0] < span[1]) & (pieces[:, 1] > span[0]))
            if len(touched):
                found[:, row] = self.text_at[row] + touched[[0, -1]]
        return found[0], found[1]


def encode_questions(
    questions: Sequence[Question],
    tokenizer: Any,
    *,
    max_length: int,
    max_question_length: int,
    stride: int,
    with_types: bool,
) -> QuestionWindows:
    """Windows of all questions, in their order. Raises UserError for a tokenizer that does not tell where its pieces are."""
    if not tokenizer.is_fast:
        raise UserError("question answering needs a tokenizer.json: this tokenizer does not say where its pieces are")
    asked = tokenizer([question.text for question in questions], add_special_tokens=False)["input_ids"]
    contexts = list(dict.fromkeys(question.context for question in questions))
    read = tokenizer(contexts, add_special_tokens=False, return_offsets_mapping=True)
    pieces = dict(zip(contexts, zip(read["input_ids"], read["offset_mapping"], strict=True), strict=True))
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    rows, types, number, text_at, offsets, mine = [], [], [], [], [], []
    for index, question in enumerate(questions):
        ids, at = pieces[question.context]
        if not ids:
            raise UserError(f"question {question.id!r}: its context is empty; leave the question out")
        opening = [cls, *asked[index][:max_question_length], sep]
        windows = windows_by_step(len(ids), max_length - len(opening) - 1, stride)
        owner = most_context(windows, len(ids))
        places = np.array(at)
        for window, (start, end) in enumerate(windows):
            rows.append([*opening, *ids[start:end], sep])
            types.append([0] * len(opening) + [1] * (end - start + 1))
            number.append(index)
            text_at.append(len(opening))
            offsets.append(places[start:end])
            mine.append(owner[start:end] == window)
    return QuestionWindows(
        Encoded(rows, types if with_types else None), np.array(number), np.array(text_at), offsets, mine
    )


def cut(context: str, start: int, end: int) -> str:
    """The characters of an answer as they stand in the text, with accents that follow the last of them as characters of their
    own: a tokenizer that strips accents leaves them out of its pieces."""
    while end < len(context) and unicodedata.combining(context[end]):
        end += 1
    return context[start:end].strip()
