"""Weights to and from Hugging Face directories: classic blocks are ELECTRA there, modern ones ModernBERT.

    discriminator   ElectraForPreTraining            ModernBertForTokenClassification (one label: replaced)
    generator       ElectraForMaskedLM               ModernBertForMaskedLM
    classifier      ElectraForSequenceClassification ModernBertForSequenceClassification

Shapes: V vocabulary, E embedding size, D hidden size. ModernBERT has no narrow token table, so one with a projection is
written as their product [V, D]; everything else maps one to one.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoTokenizer, ElectraConfig, ModernBertConfig

from electra.config import EncoderConfig
from electra.errors import UserError
from electra.model.encoder import Encoder
from electra.model.heads import ClassificationHead, GeneratorHead, Pooling, ReplacedTokenHead
from electra.model.hf_names import (
    CLASSIFICATION,
    GENERATOR,
    POOLING,
    PREFIX,
    REPLACED_TOKEN,
    encoder_from_hf,
    encoder_names,
    encoder_to_hf,
    head_names,
    head_to_hf,
)
from electra.model.pair import Pair

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
)


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
        return self.path if any((self.path / name).is_file() for name in ("tokenizer.json", "vocab.txt")) else None


# -------------------------------------------------------------------------------------------------------------- writing


def export_discriminator(pair: Pair, out_dir: Path, tokenizer_dir: Path | None = None) -> None:
    """Write the discriminator as `ElectraForPreTraining` or `ModernBertForTokenClassification`."""
    save_discriminator(pair.discriminator, pair.discriminator_head, out_dir, tokenizer_dir)


def export_generator(pair: Pair, out_dir: Path, tokenizer_dir: Path | None = None) -> None:
    """Write the generator as `ElectraForMaskedLM` or `ModernBertForMaskedLM`."""
    save_generator(pair.generator, pair.generator_head, out_dir, tokenizer_dir)


def save_discriminator(
    encoder: Encoder, head: ReplacedTokenHead, out_dir: Path, tokenizer_dir: Path | None = None
) -> None:
    """As `export_discriminator`, from the encoder and its head."""
    if encoder.config.blocks == "classic":
        architecture, settings = "ElectraForPreTraining", {}
    else:
        architecture = "ModernBertForTokenClassification"
        settings = {"id2label": {0: "replaced"}, "label2id": {"replaced": 0}}
    _write(encoder, head_to_hf(head, REPLACED_TOKEN), architecture, settings, out_dir, tokenizer_dir)


def save_generator(encoder: Encoder, head: GeneratorHead, out_dir: Path, tokenizer_dir: Path | None = None) -> None:
    """As `export_generator`, from the encoder and its head."""
    architecture = "ElectraForMaskedLM" if encoder.config.blocks == "classic" else "ModernBertForMaskedLM"
    _write(encoder, head_to_hf(head, GENERATOR), architecture, {}, out_dir, tokenizer_dir)


def save_sequence_classifier(
    encoder: Encoder, head: ClassificationHead, labels: Sequence[str], out_dir: Path, tokenizer_dir: Path | None = None
) -> None:
    """Write a fine-tuned classifier; `labels` are the names of its classes, in order of their logits."""
    if len(labels) != head.num_labels:
        raise UserError(f"{len(labels)} labels for {head.num_labels} classes: name each class once")
    settings: dict[str, Any] = {
        "id2label": dict(enumerate(labels)),
        "label2id": {label: index for index, label in enumerate(labels)},
        "problem_type": "single_label_classification",
        "classifier_dropout": head.dropout,
    }
    architecture = "ElectraForSequenceClassification"
    if encoder.config.blocks == "modern":
        architecture = "ModernBertForSequenceClassification"
        settings["classifier_pooling"] = POOLING[head.pooling]
    _write(encoder, head_to_hf(head, CLASSIFICATION), architecture, settings, out_dir, tokenizer_dir)


def _write(
    encoder: Encoder,
    head_state: dict[str, Tensor],
    architecture: str,
    settings: dict[str, Any],
    out_dir: Path,
    tokenizer_dir: Path | None,
) -> None:
    config = encoder.config
    ids: dict[str, int | None] = {"pad": 0 if config.blocks == "classic" else None, "cls": None, "sep": None}
    if tokenizer_dir is not None:
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
        _check_vocabulary(len(tokenizer), config.vocab_size, tokenizer_dir)
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
    _hf_config(config, ids, architectures=[architecture], dtype="float32", **settings).save_pretrained(out_dir)


def _hf_config(config: EncoderConfig, ids: dict[str, int | None], **settings: Any) -> ElectraConfig | ModernBertConfig:
    common: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_length,
        "initializer_range": config.initializer_range,
        "pad_token_id": ids["pad"],
    }
    if config.blocks == "classic":
        return ElectraConfig(
            **common,
            embedding_size=config.embedding_size,
            type_vocab_size=config.type_vocab_size,
            hidden_dropout_prob=config.hidden_dropout,
            attention_probs_dropout_prob=config.attention_dropout,
            layer_norm_eps=config.layer_norm_epsilon,
            **settings,
        )
    return ModernBertConfig(
        **common,
        cls_token_id=ids["cls"],
        sep_token_id=ids["sep"],
        bos_token_id=ids["cls"],
        eos_token_id=ids["sep"],
        embedding_dropout=config.hidden_dropout,
        mlp_dropout=config.hidden_dropout,
        attention_dropout=config.attention_dropout,
        norm_eps=config.layer_norm_epsilon,
        local_attention=config.local_attention,
        layer_types=[
            "sliding_attention" if index % config.global_attention_every else "full_attention"
            for index in range(config.num_layers)
        ],
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": config.global_rope_theta},
            "sliding_attention": {"rope_type": "default", "rope_theta": config.local_rope_theta},
        },
        **settings,
    )


# -------------------------------------------------------------------------------------------------------------- reading


def load_encoder(path: Path | str) -> LoadedEncoder:
    """Read the encoder of any ELECTRA or ModernBERT directory, or of a run's or an export's discriminator, in float32.

    Raises UserError for a directory that is missing or holds another architecture, for missing weights, and for a
    vocabulary that does not match.
    """
    return _load(Path(path), "discriminator")


def load_discriminator(path: Path | str) -> tuple[Encoder, ReplacedTokenHead]:
    """Read a discriminator with its replaced-token head. Raises UserError as `load_encoder`, and for a generator."""
    loaded = _load(Path(path), "discriminator")
    with torch.device("meta"):
        head = ReplacedTokenHead(loaded.config)
    return loaded.encoder, _fill_head(head, REPLACED_TOKEN, loaded, "discriminator")


def load_generator(path: Path | str) -> tuple[Encoder, GeneratorHead]:
    """Read a generator with its vocabulary head. Raises UserError as `load_encoder`, and for a discriminator."""
    loaded = _load(Path(path), "generator")
    with torch.device("meta"):
        head = GeneratorHead(loaded.config, loaded.encoder.embeddings.tokens)
    return loaded.encoder, _fill_head(head, GENERATOR, loaded, "generator")


def load_sequence_classifier(path: Path | str) -> tuple[Encoder, ClassificationHead, list[str]]:
    """Read what `save_sequence_classifier` wrote: encoder, head, names of the classes in order of their logits."""
    loaded = _load(Path(path), "discriminator")
    settings = loaded.hf_config
    labels = [settings["id2label"][index] for index in sorted(settings["id2label"])]
    pooling: Pooling = "mean" if settings.get("classifier_pooling") == "mean" else "first"
    with torch.device("meta"):
        head = ClassificationHead(loaded.config, len(labels), pooling, float(settings.get("classifier_dropout") or 0.0))
    return loaded.encoder, _fill_head(head, CLASSIFICATION, loaded, "classifier"), labels


def _load(path: Path, network: str) -> LoadedEncoder:
    path = _model_directory(path, network)
    hf_config = _read_hf_config(path)
    config = _encoder_config(hf_config, path)
    tensors = _read_tensors(path)
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
    _check_vocabulary(_tokenizer_size(path), config.vocab_size, path)
    with torch.device("meta"):
        encoder = Encoder(config)
    _fill(
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


def _model_directory(path: Path, network: str) -> Path:
    if not path.is_dir():
        raise UserError(f"{path}: no such directory; give a model in Hugging Face format or a run directory")
    if (path / "config.json").is_file():
        return path
    if (path / network / "config.json").is_file():
        return path / network
    if (path / "config.yaml").is_file():
        raise UserError(f"{path}: this run has no {network}/ yet; let it finish or use `electra export {path} OUT`")
    raise UserError(f"{path}: holds no config.json; give a model in Hugging Face format or a run directory")


def _read_hf_config(path: Path) -> ElectraConfig | ModernBertConfig:
    classes = {"electra": ElectraConfig, "modernbert": ModernBertConfig}
    try:
        kind = json.loads((path / "config.json").read_text(encoding="utf-8")).get("model_type")
    except (ValueError, AttributeError):
        raise UserError(f"{path}/config.json: not valid JSON; the file is damaged") from None
    if kind not in classes:
        raise UserError(f"{path}: is a model of type {kind!r}; give an ELECTRA or a ModernBERT model")
    return classes[kind].from_pretrained(path)  # type: ignore[attr-defined]


def _encoder_config(hf: ElectraConfig | ModernBertConfig, path: Path) -> EncoderConfig:
    """Our configuration of a Hugging Face one; UserError for what our blocks do not do."""

    def require(name: str, *values: Any) -> None:
        found = getattr(hf, name, values[0])
        if found not in values:
            raise UserError(f"{path}: its {name} is {found!r}; only {' or '.join(map(repr, values))} is supported")

    common: dict[str, Any] = {
        "vocab_size": hf.vocab_size,
        "hidden_size": hf.hidden_size,
        "num_layers": hf.num_hidden_layers,
        "num_heads": hf.num_attention_heads,
        "intermediate_size": hf.intermediate_size,
        "max_length": hf.max_position_embeddings,
        "initializer_range": hf.initializer_range,
    }
    if isinstance(hf, ElectraConfig):
        require("hidden_act", "gelu")
        require("position_embedding_type", "absolute")
        require("is_decoder", False)
        return EncoderConfig(
            blocks="classic",
            **common,
            embedding_size=hf.embedding_size,
            type_vocab_size=hf.type_vocab_size,
            hidden_dropout=hf.hidden_dropout_prob,
            attention_dropout=hf.attention_probs_dropout_prob,
            layer_norm_epsilon=hf.layer_norm_eps,
        )
    for name in ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"):
        require(name, False)
    for name in ("hidden_activation", "classifier_activation"):
        require(name, "gelu")
    rope: dict[str, dict[str, Any]] = hf.rope_parameters  # type: ignore[assignment]
    layer_types: list[str] = hf.layer_types  # type: ignore[assignment]
    global_layers = [index for index, kind in enumerate(layer_types) if kind == "full_attention"]
    every = global_layers[1] if len(global_layers) > 1 else hf.num_hidden_layers
    if global_layers != list(range(0, hf.num_hidden_layers, every)):
        raise UserError(f"{path}: its global layers are {global_layers}; only every n-th one from 0 is supported")
    if any(parameters["rope_type"] != "default" for parameters in rope.values()):
        raise UserError(f"{path}: its rope_parameters are {rope}; only rope_type 'default' is supported")
    return EncoderConfig(
        blocks="modern",
        **common,
        embedding_size=hf.hidden_size,
        hidden_dropout=hf.mlp_dropout,
        attention_dropout=hf.attention_dropout,
        layer_norm_epsilon=hf.norm_eps,
        global_attention_every=every,
        local_attention=hf.local_attention,
        global_rope_theta=rope["full_attention"]["rope_theta"],
        local_rope_theta=rope["sliding_attention"]["rope_theta"],
    )


def _read_tensors(path: Path) -> dict[str, Tensor]:
    """Every weight of a directory: one safetensors file, several with an index, or torch's older format."""
    index = path / "model.safetensors.index.json"
    old = path / "pytorch_model.bin"
    try:
        if (path / "model.safetensors").is_file():
            return load_file(path / "model.safetensors")
        if index.is_file():
            files = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
            return {name: tensor for file in files for name, tensor in load_file(path / file).items()}
        if old.is_file():
            return torch.load(old, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise UserError(f"{path}: {Path(str(error.filename or index)).name} is missing; copy the whole model") from None
    except (SafetensorError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise UserError(
            f"{path}: the weights cannot be read ({' '.join(str(error).split())}); copy them again"
        ) from None
    raise UserError(f"{path}: holds no weights (model.safetensors); give the directory of a saved model")


def _tokenizer_size(path: Path) -> int:
    """Word pieces of the tokenizer in a directory, 0 if there is none."""
    if (path / "tokenizer.json").is_file():
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(path / "tokenizer.json")).get_vocab_size(with_added_tokens=True)
    if (path / "vocab.txt").is_file():
        return len((path / "vocab.txt").read_text(encoding="utf-8").splitlines())
    return 0


def _check_vocabulary(num_pieces: int, vocab_size: int | None, tokenizer_dir: Path) -> None:
    if vocab_size is None or num_pieces > vocab_size:
        raise UserError(
            f"{tokenizer_dir}: the tokenizer has {num_pieces} word pieces, the model {vocab_size}: use the "
            "tokenizer that the model was trained with"
        )


def _fill_head(head: Any, names: dict[str, dict[str, str]], loaded: LoadedEncoder, network: str) -> Any:
    """Give a head made on the meta device its weights; UserError if they are not there or of another head."""
    state = {}
    for ours, theirs in head_names(head, names).items():
        tensor = loaded.head_state.get(theirs)
        if tensor is None or tensor.shape != head.get_parameter(ours).shape:
            raise UserError(
                f"{loaded.path}: is a {loaded.architecture}, not a {network}; give the {network}'s directory"
            )
        state[ours] = tensor
    _fill(head, state, loaded.path)
    return head.eval()


def _fill(module: nn.Module, state: dict[str, Tensor], path: Path) -> None:
    """Give a module made on the meta device its weights, in float32."""
    for name, parameter in module.named_parameters():
        if name not in state:
            raise UserError(f"{path}: the weights lack {name}; the file is not whole or not of this architecture")
        if state[name].shape != parameter.shape:
            raise UserError(
                f"{path}: {name} is {list(state[name].shape)}, config.json asks for {list(parameter.shape)}: "
                "the files are not of one model"
            )
    module.load_state_dict({name: tensor.float() for name, tensor in state.items()}, assign=True)
