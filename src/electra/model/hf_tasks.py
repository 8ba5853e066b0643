"""Taggers and question answerers to and from Hugging Face directories.

    tagger           ElectraForTokenClassification  ModernBertForTokenClassification
    plain span head  ElectraForQuestionAnswering    ModernBertForQuestionAnswering
    joint span head  ElectraModel                   ModernBertModel

Transformers has no class for the joint head: its weights lie beside the encoder's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from electra.errors import UserError
from electra.model.encoder import Encoder
from electra.model.hf import LoadedEncoder, load_network, write_network
from electra.model.hf_names import fill, head_names, head_to_hf
from electra.model.task_heads import JointSpanHead, PlainSpanHead, SpanHead, TokenHead

_MODERN = {"dense": "head.dense", "norm": "head.norm", "classifier": "classifier"}
TAGGING = {"classic": {"classifier": "classifier"}, "modern": _MODERN}
PLAIN = {"classic": {"classifier": "qa_outputs"}, "modern": _MODERN}
_JOINT = {name: f"span_head.{name}" for name in ("start", "hidden", "end", "answerable_hidden", "answerable")}
JOINT = {"classic": _JOINT, "modern": _JOINT}

_FAMILY = {"classic": "Electra", "modern": "ModernBert"}
_JOINT_SETTING = "joint_span_head"
"""In config.json: whether the joint head has an answerability logit."""

Head = TypeVar("Head", bound=nn.Module)


def save_tagger(
    encoder: Encoder, head: TokenHead, labels: Sequence[str], out_dir: Path, tokenizer_dir: Path | None = None
) -> None:
    """Write a tagger; `labels` are the names of its outputs, in their order."""
    settings: dict[str, Any] = {
        "id2label": dict(enumerate(labels)),
        "label2id": {label: index for index, label in enumerate(labels)},
        "classifier_dropout": head.dropout,
    }
    architecture = f"{_FAMILY[encoder.config.blocks]}ForTokenClassification"
    write_network(encoder, head_to_hf(head, TAGGING), architecture, settings, out_dir, tokenizer_dir)


def load_tagger(path: Path | str) -> tuple[Encoder, TokenHead, list[str]]:
    """Read a tagger: encoder, head, names of the labels. Raises UserError for another kind of model."""
    loaded = load_network(Path(path), "tagger")
    names = loaded.hf_config["id2label"]
    labels = [names[index] for index in sorted(names)]
    if not loaded.architecture.endswith("ForTokenClassification") or labels == ["replaced"]:
        raise UserError(f"{loaded.path}: is a {loaded.architecture}, not a tagger; give the directory of a tagger")
    with torch.device("meta"):
        head = TokenHead(loaded.config, len(labels), float(loaded.hf_config.get("classifier_dropout") or 0.0))
    return loaded.encoder, _filled(head, TAGGING, loaded), labels


def save_question_answerer(encoder: Encoder, head: SpanHead, out_dir: Path, tokenizer_dir: Path | None = None) -> None:
    """Write a question answerer: the plain head as the matching transformers class, the joint head beside the encoder."""
    family = _FAMILY[encoder.config.blocks]
    if isinstance(head, JointSpanHead):
        settings: dict[str, Any] = {_JOINT_SETTING: {"answerability": head.answerable is not None}}
        write_network(encoder, head_to_hf(head, JOINT), f"{family}Model", settings, out_dir, tokenizer_dir)
    else:
        settings = {"classifier_dropout": head.dropout}
        architecture = f"{family}ForQuestionAnswering"
        write_network(encoder, head_to_hf(head, PLAIN), architecture, settings, out_dir, tokenizer_dir)


def load_question_answerer(path: Path | str) -> tuple[LoadedEncoder, SpanHead]:
    """Read what `save_question_answerer` wrote, or any `...ForQuestionAnswering`. Raises UserError for another kind of model."""
    loaded = load_network(Path(path), "question answerer")
    joint = loaded.hf_config.get(_JOINT_SETTING)
    if joint is None and not loaded.architecture.endswith("ForQuestionAnswering"):
        raise UserError(f"{loaded.path}: is a {loaded.architecture}, not a question answerer; fine-tune one first")
    with torch.device("meta"):
        if joint is not None:
            return loaded, _filled(JointSpanHead(loaded.config, answerability=joint["answerability"]), JOINT, loaded)
        return loaded, _filled(PlainSpanHead(loaded.config), PLAIN, loaded)


def _filled(head: Head, names: dict[str, dict[str, str]], loaded: LoadedEncoder) -> Head:
    """A head made on the meta device with its weights."""
    theirs = head_names(head, names)
    found = {ours: loaded.head_state[name] for ours, name in theirs.items() if name in loaded.head_state}
    fill(head, found, loaded.path)
    return head.eval()
