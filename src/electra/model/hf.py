"""Weights to and from Hugging Face directories: classic blocks are ELECTRA there, modern ones ModernBERT.

    discriminator   ElectraForPreTraining            ModernBertForTokenClassification (one label: replaced)
    generator, main ElectraForMaskedLM               ModernBertForMaskedLM
    classifier      ElectraForSequenceClassification ModernBertForSequenceClassification

Shapes: V vocabulary, E embedding size, D hidden size. ModernBERT has no narrow token table, so one with a projection is
written as their product [V, D]; everything else maps one to one.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoTokenizer

from electra.config import EncoderConfig
from electra.errors import UserError
from electra.model.encoder import Encoder
from electra.model.heads import ClassificationHead, GeneratorHead, Pooling, ReplacedTokenHead
from electra.model.hf_config import from_hf_config, read_hf_config, to_hf_config
from electra.model.hf_files import (
    TOKENIZER_FILES,
    check_vocabulary,
    model_directory,
    read_tensors,
    tokenizer_directory,
    tokenizer_size,
)
from electra.model.hf_names import (
    CLASSIFICATION,
    DECODER,
    GENERATOR,
    NETWORK_OF,
    POOLING,
    PREFIX,
    REPLACED_TOKEN,
    encoder_from_hf,
    encoder_names,
    encoder_to_hf,
    fill,
    head_names,
    head_to_hf,
)
from electra.model.pair import Pair


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadedEncoder:
    """An encoder read from a Hugging Face directory, and what else lay there."""

    encoder: Encoder
    config: EncoderConfig
    path: Path
    """The directory that holds config.json."""
    architecture: str
    """Name of the Hugging Face class that wrote it."""
    head_state: dict[str, Tensor]
    """Weights outside the encoder, under their Hugging Face names."""
    hf_config: dict[str, Any]

    @property
    def tokenizer_dir(self) -> Path | None:
        """Where the tokenizer is: the same directory, or None if it has none."""
        return tokenizer_directory(self.path)


# -------------------------------------------------------------------------------------------------------------- writing


def export_discriminator(pair: Pair, out_dir: Path, tokenizer_dir: Path | None = None) -> None:
    """Write the discriminator as `ElectraForPreTraining` or `ModernBertForTokenClassification`."""
    save_discriminator(pair.discriminator, pair.discriminator_head, out_dir, tokenizer_dir)


def export_generator(pair: Pair, out_dir: Path, tokenizer_dir: Path | None = None) -> None:
    """Write the generator as `ElectraForMaskedLM` or `ModernBertForMaskedLM`."""
    save_generator(pair.generator, pair.generator_head, out_dir, tokenizer_dir)


def export_main(pair: Pair, out_dir: Path, tokenizer_dir: Path | None = None) -> None:
    """Write a main network that predicts tokens as `ElectraForMaskedLM` or `ModernBertForMaskedLM`; a copy head is left out."""
    save_generator(pair.discriminator, pair.vocabulary_head, out_dir, tokenizer_dir)


def save_discriminator(
    encoder: Encoder, head: ReplacedTokenHead, out_dir: Path, tokenizer_dir: Path | None = None
) -> None:
    """As `export_discriminator`, from the encoder and its head."""
    if encoder.config.blocks == "classic":
        architecture, settings = "ElectraForPreTraining", {}
    else:
        architecture = "ModernBertForTokenClassification"
        settings = {"id2label": {0: "replaced"}, "label2id": {"replaced": 0}}
    write_network(encoder, head_to_hf(head, REPLACED_TOKEN), architecture, settings, out_dir, tokenizer_dir)


def save_generator(encoder: Encoder, head: GeneratorHead, out_dir: Path, tokenizer_dir: Path | None = None) -> None:
    """As `export_generator`, from the encoder and its head."""
    architecture = "ElectraForMaskedLM" if encoder.config.blocks == "classic" else "ModernBertForMaskedLM"
    write_network(encoder, head_to_hf(head, GENERATOR), architecture, {}, out_dir, tokenizer_dir)


def save_sequence_classifier(
    encoder: Encoder,
    head: ClassificationHead,
    labels: Sequence[str],
    out_dir: Path,
    tokenizer_dir: Path | None = None,
    problem_type: str = "single_label_classification",
) -> None:
    """Write a fine-tuned classifier; `labels` are the names of its outputs, in their order (a regression has one).

    `problem_type` is Hugging Face's: single_label_classification, multi_label_classification or regression.
    """
    if len(labels) != head.num_labels:
        raise UserError(f"{len(labels)} labels for {head.num_labels} classes: name each class once")
    settings: dict[str, Any] = {
        "id2label": dict(enumerate(labels)),
        "label2id": {label: index for index, label in enumerate(labels)},
        "problem_type": problem_type,
        "classifier_dropout": head.dropout,
    }
    architecture = "ElectraForSequenceClassification"
    if encoder.config.blocks == "modern":
        architecture = "ModernBertForSequenceClassification"
        settings["classifier_pooling"] = POOLING[head.pooling]
    write_network(encoder, head_to_hf(head, CLASSIFICATION), architecture, settings, out_dir, tokenizer_dir)


def write_network(
    encoder: Encoder,
    head_state: dict[str, Tensor],
    architecture: str,
    settings: dict[str, Any],
    out_dir: Path,
    tokenizer_dir: Path | None,
) -> None:
    """Write an encoder with a head's weights (under their Hugging Face names), the configuration of this class with its own
    `settings`, and the tokenizer."""
    config = encoder.config
    ids: dict[str, int | None] = {"pad": 0 if config.blocks == "classic" else None, "cls": None, "sep": None}
    if tokenizer_dir is not None:
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
        check_vocabulary(len(tokenizer), config.vocab_size, tokenizer_dir)
        ids = {"pad": tokenizer.pad_token_id, "cls": tokenizer.cls_token_id, "sep": tokenizer.sep_token_id}
    tensors = {PREFIX[config.blocks] + name: tensor for name, tensor in encoder_to_hf(encoder).items()} | head_state
    tensors = {name: tensor.detach().to("cpu").contiguous().clone() for name, tensor in tensors.items()}
    out_dir.mkdir(parents=True, exist_ok=True)
    if tokenizer_dir is not None:
        for name in TOKENIZER_FILES:
            if (tokenizer_dir / name).is_file():
                shutil.copyfile(tokenizer_dir / name, out_dir / name)
    temporary = out_dir / "model.safetensors.partial"  # a full disk must not leave half a file under the good name
    save_file(tensors, temporary, metadata={"format": "pt"})
    os.replace(temporary, out_dir / "model.safetensors")
    to_hf_config(config, ids, architectures=[architecture], dtype="float32", **settings).save_pretrained(out_dir)


# -------------------------------------------------------------------------------------------------------------- reading


def load_encoder(path: Path | str) -> LoadedEncoder:
    """Read the encoder of any ELECTRA or ModernBERT directory, or of a run's or an export's discriminator, in float32.

    Raises UserError for a directory that is missing or holds another architecture, for missing weights, and for a
    vocabulary that does not match.
    """
    return load_network(Path(path), "discriminator")


def load_discriminator(path: Path | str) -> tuple[Encoder, ReplacedTokenHead]:
    """Read a discriminator with its replaced-token head. Raises UserError as `load_encoder`, and for a generator."""
    loaded = load_network(Path(path), "discriminator")
    with torch.device("meta"):
        head = ReplacedTokenHead(loaded.config)
    return loaded.encoder, _fill_head(head, REPLACED_TOKEN, loaded, "discriminator")


def load_generator(path: Path | str) -> tuple[Encoder, GeneratorHead]:
    """Read a generator with its vocabulary head. Raises UserError as `load_encoder`, and for a discriminator."""
    loaded = load_network(Path(path), "generator")
    with torch.device("meta"):
        head = GeneratorHead(loaded.config, loaded.encoder.embeddings.tokens)
    _fill_head(head, GENERATOR, loaded, "generator")
    table_VE = loaded.encoder.embeddings.tokens.weight
    decoder_VE = loaded.head_state.get(DECODER[loaded.config.blocks], table_VE)
    if not torch.equal(decoder_VE.float(), table_VE):
        raise UserError(
            f"{loaded.path}: its output matrix is not its token table; only generators that tie them are supported"
        )
    return loaded.encoder, head


def load_sequence_classifier(path: Path | str) -> tuple[Encoder, ClassificationHead, list[str]]:
    """Read what `save_sequence_classifier` wrote: encoder, head, names of the classes in order of their logits."""
    loaded = load_network(Path(path), "discriminator")
    settings = loaded.hf_config
    labels = [settings["id2label"][index] for index in sorted(settings["id2label"])]
    pooling: Pooling = "mean" if settings.get("classifier_pooling") == "mean" else "first"
    with torch.device("meta"):
        head = ClassificationHead(loaded.config, len(labels), pooling, float(settings.get("classifier_dropout") or 0.0))
    return loaded.encoder, _fill_head(head, CLASSIFICATION, loaded, "classifier"), labels


def load_network(path: Path, network: str) -> LoadedEncoder:
    """Read an encoder and whatever else lies there; of a run or an export, its `network`. Raises UserError as `load_encoder`."""
    path = model_directory(path, network)
    hf_config = read_hf_config(path)
    config = from_hf_config(hf_config, path)
    tensors = read_tensors(path)
    prefix = PREFIX[config.blocks]
    if not any(name.startswith(prefix) for name in tensors):
        prefix = ""  # written by the bare model class
    names = encoder_names(config)
    table = tensors.get(f"{prefix}{names['embeddings.tokens.weight']}")
    if table is not None and table.shape[0] != config.vocab_size:
        raise UserError(
            f"{path}: config.json says {config.vocab_size} word pieces, the weights have {table.shape[0]}: "
            "the files are not of one model"
        )
    check_vocabulary(tokenizer_size(path), config.vocab_size, path)
    with torch.device("meta"):
        encoder = Encoder(config)
    fill(
        encoder, encoder_from_hf(config, {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}), path
    )
    architectures = hf_config.architectures or []
    return LoadedEncoder(
        encoder=encoder.eval(),
        config=config,
        path=path,
        architecture=architectures[0] if architectures else type(hf_config).__name__.replace("Config", "Model"),
        head_state={name: tensor for name, tensor in tensors.items() if not prefix or not name.startswith(prefix)},
        hf_config={**hf_config.to_dict(), "id2label": hf_config.id2label},
    )


def _fill_head(head: Any, names: dict[str, dict[str, str]], loaded: LoadedEncoder, network: str) -> Any:
    """Give a head made on the meta device its weights; UserError if they are not there or of another head."""
    refusal = f"{loaded.path}: is a {loaded.architecture}, not a {network}; give the {network}'s directory"
    kind = loaded.architecture.partition("For")[2]
    if kind and NETWORK_OF.get(kind) != network:  # a regression's head has the shape of a replaced-token head
        raise UserError(refusal)
    state = {}
    for ours, theirs in head_names(head, names).items():
        tensor = loaded.head_state.get(theirs)
        if tensor is None or tensor.shape != head.get_parameter(ours).shape:
            raise UserError(refusal)
        state[ours] = tensor
    fill(head, state, loaded.path)
    return head.eval()
