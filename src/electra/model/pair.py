"""Generator and main network in one module, with the heads that an objective asks for, and what they share.

Shapes: K masked positions, V vocabulary, E embedding size. A tie is one module object in two places, never a copy: it outlives
moves between devices, loading and resizing. Source: the reference's `run_pretraining.py` and section 3.2 of the paper.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from torch import Tensor, nn

from electra.config import ModelConfig
from electra.errors import UserError
from electra.model.encoder import Embeddings, Encoder, truncated_normal_
from electra.model.frequencies import TokenFrequencies
from electra.model.heads import GeneratorHead, ReplacedTokenHead, TokenLogit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """What an objective needs of a pair."""

    generator: bool = True
    """Whether there is a generator, a network with a vocabulary head."""
    frequencies: Literal["uniform", "unigram"] | None = None
    """What proposes replacements in its place, if anything does."""
    baseline: bool = False
    """Whether a head on the generator foretells its reward."""
    main_head: Literal["replaced-token", "vocabulary", "copy"] = "replaced-token"
    """What stands on the main network; `copy` is a vocabulary head with a copy logit beside it."""
    main_at: Literal["all", "masked"] = "all"
    """Where the main network's output is used: its last block is computed there only."""


ELECTRA_PARTS = Parts()


class Pair(nn.Module):
    """The networks of an objective with their heads. `discriminator` is the main network, the one that people keep, whatever
    stands on it. Which of the others are there is what `parts` says: a module that is not needed is not made. `tying`:

    none        two separate networks
    embeddings  one `Embeddings` module: token, position and type tables with their norm (classic), token table (modern)
    all         one encoder; only the heads differ
    """

    generator: Encoder
    """With its `generator_head`, where `parts.generator` says so."""
    generator_head: GeneratorHead
    discriminator_head: ReplacedTokenHead
    """Where `parts.main_head` is replaced-token."""
    vocabulary_head: GeneratorHead
    """The main network's, tied to its own token table, where `parts.main_head` is vocabulary or copy."""
    copy_head: TokenLogit
    baseline_head: TokenLogit
    frequencies: TokenFrequencies

    def __init__(self, config: ModelConfig, parts: Parts = ELECTRA_PARTS) -> None:
        super().__init__()
        self.config, self.parts = config, parts
        self.discriminator = Encoder(config.discriminator)
        if parts.generator:
            if config.tying == "all":
                self.generator = self.discriminator
            else:
                shared: Embeddings | None = self.discriminator.embeddings if config.tying == "embeddings" else None
                self.generator = Encoder(config.generator_encoder(), shared)
            self.generator_head = _vocabulary_head(self.generator)
        if parts.main_head == "replaced-token":
            self.discriminator_head = ReplacedTokenHead(self.discriminator.config)
        else:
            self.vocabulary_head = _vocabulary_head(self.discriminator)
        if parts.main_head == "copy":
            self.copy_head = TokenLogit(self.discriminator.config)
        if parts.baseline:
            self.baseline_head = TokenLogit(self.generator.config)
        if parts.frequencies is not None:
            self.frequencies = TokenFrequencies(self.discriminator.embeddings.tokens.num_embeddings)

    @property
    def encoders(self) -> list[Encoder]:
        """Each encoder once, the generator first."""
        return list(dict.fromkeys([*([self.generator] if self.parts.generator else []), self.discriminator]))

    @property
    def vocabulary_heads(self) -> list[GeneratorHead]:
        """Every head that scores the vocabulary, the generator's first."""
        return [module for module in self.children() if isinstance(module, GeneratorHead)]


def _vocabulary_head(encoder: Encoder) -> GeneratorHead:
    return GeneratorHead(encoder.config, encoder.embeddings.tokens, encoder.embeddings_project)


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
    """Give every network another number of word pieces: rows stay by id, new ones are drawn as at the start."""
    kept = min(pair.discriminator.embeddings.tokens.num_embeddings, vocab_size)
    pair.config = dataclasses.replace(
        pair.config, discriminator=dataclasses.replace(pair.config.discriminator, vocab_size=vocab_size)
    )
    for tokens in dict.fromkeys(encoder.embeddings.tokens for encoder in reversed(pair.encoders)):
        old_VE = tokens.weight.detach()
        weight_VE = old_VE.new_empty(vocab_size, tokens.embedding_dim)
        truncated_normal_(weight_VE, pair.config.discriminator.initializer_range)
        weight_VE[:kept] = old_VE[:kept]
        tokens.weight, tokens.num_embeddings = nn.Parameter(weight_VE), vocab_size
    for head in pair.vocabulary_heads:
        bias_V = head.bias.detach().new_zeros(vocab_size)
        bias_V[:kept] = head.bias.detach()[:kept]
        head.bias = nn.Parameter(bias_V)
    if pair.parts.frequencies is not None:
        pair.frequencies.resize(vocab_size)
    for module in (child for child in pair.children() if child is not getattr(pair, "frequencies", None)):
        module.config = dataclasses.replace(module.config, vocab_size=vocab_size)  # type: ignore[type-var]
