"""What our weights are called in the Hugging Face classes, and how the few that differ in shape are turned into theirs."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from electra.config import EncoderConfig
from electra.errors import UserError
from electra.model.encoder import Encoder
from electra.model.heads import Pooling

PREFIX = {"classic": "electra.", "modern": "model."}

POOLING: dict[Pooling, str] = {"first": "cls", "mean": "mean"}

NETWORK_OF = {
    "PreTraining": "discriminator",
    "TokenClassification": "discriminator",
    "MaskedLM": "generator",
    "SequenceClassification": "classifier",
}
"""What a Hugging Face class is for, by the end of its name -> which of our networks it may be."""

DECODER = {"classic": "generator_lm_head.weight", "modern": "decoder.weight"}
"""The generator's output matrix, where a file has it besides the token table that it is tied to."""

# Our names of a head's weights -> theirs, per kind of blocks. Biases and norms that a kind lacks are skipped.
REPLACED_TOKEN = {
    "classic": {"dense": "discriminator_predictions.dense", "classifier": "discriminator_predictions.dense_prediction"},
    "modern": {"dense": "head.dense", "norm": "head.norm", "classifier": "classifier"},
}
GENERATOR = {
    "classic": {
        "dense": "generator_predictions.dense",
        "norm": "generator_predictions.LayerNorm",
        "bias": "generator_lm_head.bias",
    },
    "modern": {"dense": "head.dense", "norm": "head.norm", "bias": "decoder.bias"},
}
CLASSIFICATION = {
    "classic": {"dense": "classifier.dense", "classifier": "classifier.out_proj"},
    "modern": {"dense": "head.dense", "norm": "head.norm", "classifier": "classifier"},
}


def encoder_names(config: EncoderConfig) -> dict[str, str]:
    """Our name of every encoder weight -> theirs, without their prefix. Where theirs are three, {} stands for each."""
    if config.blocks == "classic":
        modules = {
            "embeddings.tokens": "embeddings.word_embeddings",
            "embeddings.norm": "embeddings.LayerNorm",
            "embeddings.positions": "embeddings.position_embeddings",
            "embeddings.types": "embeddings.token_type_embeddings",
            "embeddings_project": "embeddings_project",
        }
        layer, parts = (
            "encoder.layer",
            {
                "attention.qkv": "attention.self.{}",
                "attention.out": "attention.output.dense",
                "attention_norm": "attention.output.LayerNorm",
                "feed_forward.up": "intermediate.dense",
                "feed_forward.down": "output.dense",
                "feed_forward_norm": "output.LayerNorm",
            },
        )
    else:
        modules = {
            "embeddings.tokens": "embeddings.tok_embeddings",
            "embeddings_norm": "embeddings.norm",
            "final_norm": "final_norm",
        }
        layer, parts = (
            "layers",
            {
                "attention_norm": "attn_norm",
                "attention.qkv": "attn.Wqkv",
                "attention.out": "attn.Wo",
                "feed_forward_norm": "mlp_norm",
                "feed_forward.up": "mlp.Wi",
                "feed_forward.down": "mlp.Wo",
            },
        )
    for index in range(config.num_layers):
        modules |= {f"blocks.{index}.{ours}": f"{layer}.{index}.{theirs}" for ours, theirs in parts.items()}
    with torch.device("meta"):
        names = [name for name, _ in Encoder(config).named_parameters()]
    return {
        name: f"{modules[module]}.{kind}"
        for name in names
        for module, _, kind in [name.rpartition(".")]
        if module in modules
    }


def encoder_to_hf(encoder: Encoder) -> dict[str, Tensor]:
    ours = dict(encoder.named_parameters())
    tensors = {}
    for name, theirs in encoder_names(encoder.config).items():
        if "{}" in theirs:
            for part, tensor in zip(("query", "key", "value"), ours[name].chunk(3), strict=True):
                tensors[theirs.format(part)] = tensor
        else:
            tensors[theirs] = ours[name]
    if encoder.config.blocks == "modern" and encoder.embeddings_project is not None:
        with torch.no_grad():
            tensors["embeddings.tok_embeddings.weight"] = encoder.embeddings_project(encoder.embeddings.tokens.weight)
    return tensors


def encoder_from_hf(config: EncoderConfig, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Their encoder weights under our names; one that is missing is left out, for `fill` to name."""
    state = {}
    for name, theirs in encoder_names(config).items():
        parts = [tensors.get(theirs.format(part)) for part in ("query", "key", "value")[: 3 if "{}" in theirs else 1]]
        if all(part is not None for part in parts):
            state[name] = torch.cat([part for part in parts if part is not None])
    return state


def head_to_hf(head: nn.Module, names: dict[str, dict[str, str]]) -> dict[str, Tensor]:
    return {theirs: dict(head.named_parameters())[ours] for ours, theirs in head_names(head, names).items()}


def head_names(head: nn.Module, names: dict[str, dict[str, str]]) -> dict[str, str]:
    """Our name of every weight of a head -> theirs."""
    modules = names[head.config.blocks]  # type: ignore[union-attr,index]
    result = {}
    for name, _ in head.named_parameters():
        module, _, kind = name.rpartition(".")
        result[name] = f"{modules[module]}.{kind}" if module else modules[name]
    return result


def fill(module: nn.Module, state: dict[str, Tensor], path: Path) -> None:
    """Give a module made on the meta device its weights, in float32. Raises UserError for one that is missing or does not fit."""
    for name, parameter in module.named_parameters():
        if name not in state:
            raise UserError(f"{path}: the weights lack {name}; the file is not whole or not of this architecture")
        if state[name].shape != parameter.shape:
            raise UserError(
                f"{path}: {name} is {list(state[name].shape)}, the configuration asks for {list(parameter.shape)}: "
                "the files are not of one model"
            )
    module.load_state_dict({name: tensor.float() for name, tensor in state.items()}, assign=True)
