"""Our configuration of an encoder to and from those of the Hugging Face ELECTRA and ModernBERT classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import ElectraConfig, ModernBertConfig

from electra.config import EncoderConfig
from electra.errors import UserError


def to_hf_config(
    config: EncoderConfig, ids: dict[str, int | None], **settings: Any
) -> ElectraConfig | ModernBertConfig:
    """The Hugging Face configuration; `ids` has the special tokens pad, cls and sep, `settings` what else it should say."""
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


def read_hf_config(path: Path) -> ElectraConfig | ModernBertConfig:
    """A directory's config.json. Raises UserError when it is damaged or of another kind of model."""
    classes = {"electra": ElectraConfig, "modernbert": ModernBertConfig}
    try:
        kind = json.loads((path / "config.json").read_text(encoding="utf-8")).get("model_type")
    except (ValueError, AttributeError):
        raise UserError(f"{path}/config.json: not valid JSON; the file is damaged") from None
    if kind not in classes:
        raise UserError(f"{path}: is a model of type {kind!r}; give an ELECTRA or a ModernBERT model")
    return classes[kind].from_pretrained(path)  # type: ignore[attr-defined]


def from_hf_config(hf: ElectraConfig | ModernBertConfig, path: Path) -> EncoderConfig:
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
