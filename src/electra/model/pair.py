"""Generator and discriminator in one module, and what they share.

Shapes: V vocabulary, E embedding size. A tie is one module object in two places, never a copy: it outlives moves
between devices, loading and resizing. Source: the reference's `run_pretraining.py` and section 3.2 of the paper.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from electra.config import ModelConfig
from electra.errors import UserError
from electra.model.encoder import Embeddings, Encoder, truncated_normal_
from electra.model.heads import GeneratorHead, ReplacedTokenHead


class Pair(nn.Module):
    """Both networks with their heads. `tying`:

    none        two separate networks
    embeddings  one `Embeddings` module: token, position and type tables with their norm (classic), token table (modern)
    all         one encoder; only the heads differ
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.discriminator = Encoder(config.discriminator)
        if config.tying == "all":
            self.generator = self.discriminator
        else:
            shared: Embeddings | None = self.discriminator.embeddings if config.tying == "embeddings" else None
            self.generator = Encoder(config.generator_encoder(), shared)
        self.generator_head = GeneratorHead(
            self.generator.config, self.generator.embeddings.tokens, self.generator.embeddings_project
        )
        self.discriminator_head = ReplacedTokenHead(self.discriminator.config)


def pair_state_dict(pair: nn.Module) -> dict[str, Tensor]:
    """Every parameter once, under the first of its names: a dictionary that safetensors can save."""
    return {name: parameter.detach() for name, parameter in pair.named_parameters(remove_duplicate=True)}


def load_pair_state(pair: nn.Module, state: dict[str, Tensor]) -> None:
    """Copy the values of `pair_state_dict` into the parameters; ties stay as they are.

    Raises UserError if names or shapes are not those of this pair.
    """
    parameters = dict(pair.named_parameters(remove_duplicate=True))
    misfit = "the saved weights do not fit this model ({}): use the configuration that they were saved with"
    for name in sorted(parameters.keys() ^ state.keys()):
        raise UserError(misfit.format(f"{name} is only in the " + ("model" if name in parameters else "saved weights")))
    for name, parameter in parameters.items():
        if parameter.shape != state[name].shape:
            raise UserError(
                misfit.format(
                    f"{name} is {list(state[name].shape)} in the saved weights and {list(parameter.shape)} in the model"
                )
            )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(state[name])


def resize_vocabulary(pair: Pair, vocab_size: int) -> None:
    """Give both networks another number of word pieces: rows stay by id, new ones are drawn as at the start."""
    kept = min(pair.discriminator.embeddings.tokens.num_embeddings, vocab_size)
    pair.config = dataclasses.replace(
        pair.config, discriminator=dataclasses.replace(pair.config.discriminator, vocab_size=vocab_size)
    )
    tables = [pair.discriminator.embeddings.tokens, pair.generator.embeddings.tokens]
    for tokens in tables[:1] if tables[0] is tables[1] else tables:
        old_VE = tokens.weight.detach()
        weight_VE = old_VE.new_empty(vocab_size, tokens.embedding_dim)
        truncated_normal_(weight_VE, pair.config.discriminator.initializer_range)
        weight_VE[:kept] = old_VE[:kept]
        tokens.weight, tokens.num_embeddings = nn.Parameter(weight_VE), vocab_size
    bias_V = pair.generator_head.bias.detach().new_zeros(vocab_size)
    bias_V[:kept] = pair.generator_head.bias.detach()[:kept]
    pair.generator_head.bias = nn.Parameter(bias_V)
    pair.discriminator.config = pair.discriminator_head.config = pair.config.discriminator
    if pair.generator is not pair.discriminator:
        pair.generator.config = pair.config.generator_encoder()
    pair.generator_head.config = pair.generator.config
