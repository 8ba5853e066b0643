"""Heads over tokens: a label for each, and the span that answers a question (plain and joint).

Shapes: B batch, L length, D hidden size, C outputs, K beam, H hidden units of the joint head.
Sources: `ElectraForTokenClassification`, `ElectraForQuestionAnswering` and their ModernBERT counterparts in transformers, which
`TokenHead` equals weight for weight; google-research/electra `finetune/qa/qa_tasks.py` for the joint head.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra.config import EncoderConfig
from electra.model.encoder import bias_free_norm, truncated_normal_

_FORBIDDEN = -1000.0  # added to the logits of positions that hold no answer, as in the reference
_JOINT_HIDDEN = 512


class TokenHead(nn.Module):
    """C numbers a token. classic: dropout, D -> C. modern: dense, GELU, norm, dropout, D -> C.

    With labels as outputs a tagger; with the two outputs start and end the plain head of question answering.
    """

    def __init__(self, config: EncoderConfig, num_outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        modern = config.blocks == "modern"
        self.config, self.num_outputs, self.dropout = config, num_outputs, dropout
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=False) if modern else None
        self.norm = bias_free_norm(config) if modern else None
        self.classifier = nn.Linear(config.hidden_size, num_outputs)
        if self.dense is not None:
            truncated_normal_(self.dense.weight, config.initializer_range / math.sqrt(2.0 * config.num_layers))
        truncated_normal_(self.classifier.weight, config.hidden_size**-0.5 if modern else config.initializer_range)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, hidden_BLD: Tensor) -> Tensor:
        """Hidden states [B, L, D] -> logits [B, L, C]."""
        x_BLD = hidden_BLD
        if self.dense is not None and self.norm is not None:
            x_BLD = self.norm(F.gelu(self.dense(x_BLD)))
        return self.classifier(F.dropout(x_BLD, self.dropout, self.training))


class Spans(NamedTuple):
    """The most likely spans of each row: K starts, and for each of them K ends."""

    start_BK: Tensor
    """Score of each start: a logit (plain head) or a log-probability (joint head)."""
    start_at_BK: Tensor
    end_BKK: Tensor
    end_at_BKK: Tensor
    no_answer_B: Tensor
    """Higher where there is none: start + end logit of [CLS] (plain), or the answerability logit (joint; 0 without one)."""


class PlainSpanHead(TokenHead):
    """Start and end logits, each from the token alone."""

    def __init__(self, config: EncoderConfig, dropout: float = 0.0) -> None:
        super().__init__(config, 2, dropout)

    def loss(
        self, hidden_BLD: Tensor, allowed_BL: Tensor, start_B: Tensor, end_B: Tensor, impossible_B: Tensor
    ) -> Tensor:
        """Mean cross-entropy of start and end for each row, [B]; a row without answer has both at [CLS].

        `allowed_BL` is true where an answer may start or end, and at [CLS].
        """
        start_BL, end_BL = _allowed(self(hidden_BLD), allowed_BL)
        return (_cross_entropy(start_BL, start_B) + _cross_entropy(end_BL, end_B)) / 2

    def spans(self, hidden_BLD: Tensor, allowed_BL: Tensor, beam: int) -> Spans:
        """The `beam` likeliest starts with the `beam` likeliest ends."""
        start_BL, end_BL = _allowed(self(hidden_BLD), allowed_BL)
        k = min(beam, start_BL.shape[1])
        start, end = start_BL.topk(k), end_BL.topk(k)
        ends, ends_at = (x_BK[:, None].expand(-1, k, -1) for x_BK in end)
        return Spans(start.values, start.indices, ends, ends_at, start_BL[:, 0] + end_BL[:, 0])


class JointSpanHead(nn.Module):
    """The reference's head: the end is scored given the start, and a logit says whether there is an answer at all.

    End: [start; end] -> 512, GELU -> 1, for the `beam` likeliest starts (in training for the right one). Answerability:
    [[CLS]; mean of the states weighted by the start probabilities] -> 512, GELU -> 1, above 0 says no answer.
    """

    def __init__(self, config: EncoderConfig, *, answerability: bool, answerability_weight: float = 0.5) -> None:
        super().__init__()
        size = config.hidden_size
        self.config, self.answerability_weight = config, answerability_weight
        self.start = nn.Linear(size, 1)
        self.hidden = nn.Linear(2 * size, _JOINT_HIDDEN)
        self.end = nn.Linear(_JOINT_HIDDEN, 1)
        self.answerable_hidden = nn.Linear(2 * size, _JOINT_HIDDEN) if answerability else None
        self.answerable = nn.Linear(_JOINT_HIDDEN, 1) if answerability else None
        for module in self.modules():
            if isinstance(module, nn.Linear):  # TensorFlow's default, as in the reference
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def loss(
        self, hidden_BLD: Tensor, allowed_BL: Tensor, start_B: Tensor, end_B: Tensor, impossible_B: Tensor
    ) -> Tensor:
        """As `PlainSpanHead.loss`, plus `answerability_weight` times that of the answerability logit, [B]."""
        start_BL = self._starts(hidden_BLD, allowed_BL)
        end_BL = self._ends(hidden_BLD, start_B[:, None], allowed_BL)[:, 0]
        loss_B = (_cross_entropy(start_BL, start_B) + _cross_entropy(end_BL, end_B)) / 2
        if self.answerable is not None:
            logits_B, target_B = self._no_answer(hidden_BLD, start_BL), impossible_B.to(loss_B.dtype)
            doubt_B = F.binary_cross_entropy_with_logits(logits_B, target_B, reduction="none")
            loss_B = loss_B + self.answerability_weight * doubt_B
        return loss_B

    def spans(self, hidden_BLD: Tensor, allowed_BL: Tensor, beam: int) -> Spans:
        """The `beam` likeliest starts, and for each the `beam` likeliest ends given it."""
        start_BL = self._starts(hidden_BLD, allowed_BL)
        k = min(beam, start_BL.shape[1])
        start = start_BL.log_softmax(-1).topk(k)
        end = self._ends(hidden_BLD, start.indices, allowed_BL).log_softmax(-1).topk(k)
        return Spans(start.values, start.indices, end.values, end.indices, self._no_answer(hidden_BLD, start_BL))

    def _starts(self, hidden_BLD: Tensor, allowed_BL: Tensor) -> Tensor:
        return self.start(hidden_BLD).squeeze(-1) + _FORBIDDEN * ~allowed_BL

    def _ends(self, hidden_BLD: Tensor, start_at_BK: Tensor, allowed_BL: Tensor) -> Tensor:
        """End logits for each of these starts, [B, K, L]."""
        size = hidden_BLD.shape[-1]
        rows = torch.arange(len(hidden_BLD), device=hidden_BLD.device)[:, None]
        # The matrix times [start; end] is a sum of two products, each of which is needed once a token.
        of_start_BKH = F.linear(hidden_BLD[rows, start_at_BK], self.hidden.weight[:, :size], self.hidden.bias)
        of_end_BLH = F.linear(hidden_BLD, self.hidden.weight[:, size:])
        x_BKLH = F.gelu(of_start_BKH[:, :, None] + of_end_BLH[:, None])
        return self.end(x_BKLH).squeeze(-1) + _FORBIDDEN * ~allowed_BL[:, None]

    def _no_answer(self, hidden_BLD: Tensor, start_BL: Tensor) -> Tensor:
        if self.answerable is None or self.answerable_hidden is None:
            return start_BL.new_zeros(len(start_BL))
        start_BD = torch.einsum("bl,bld->bd", start_BL.softmax(-1), hidden_BLD)
        x_BH = F.gelu(self.answerable_hidden(torch.cat([hidden_BLD[:, 0], start_BD], -1)))
        return self.answerable(x_BH).squeeze(-1)


SpanHead = PlainSpanHead | JointSpanHead


def _allowed(logits_BL2: Tensor, allowed_BL: Tensor) -> tuple[Tensor, Tensor]:
    """Start and end logits [B, L], low where no answer can be."""
    start_BL, end_BL = logits_BL2.float().unbind(-1)
    forbidden_BL = _FORBIDDEN * ~allowed_BL
    return start_BL + forbidden_BL, end_BL + forbidden_BL


def _cross_entropy(logits_BL: Tensor, at_B: Tensor) -> Tensor:
    return F.cross_entropy(logits_BL, at_B, reduction="none")
