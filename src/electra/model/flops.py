"""Parameters and floating-point operations of the networks: ours, counted exactly, and by the reference's formula.

Shapes in names: B batch, L length, D hidden size, E embedding size, F feed-forward size, V vocabulary.
One multiply and one add are two operations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from electra.config import EncoderConfig, ModelConfig, PretrainConfig
from electra.errors import UserError
from electra.model.pair import ELECTRA_PARTS, Pair, Parts

PAPER_VOCABULARY = 30_522
"""Word pieces of uncased English BERT, the vocabulary of every model in the paper; counted with where none is set."""

TRAINING_FACTOR = 3
"""A training step costs three forward passes: the backward pass multiplies with the inputs and with the weights."""

RECOMPUTED_FACTOR = 4
"""And four where the scores of the vocabulary are made twice: in the backward pass once more (model/target_losses.py), or for the
sample and again for its log-probability (objectives/adversarial.py)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkCount:
    """One network with its head. Operations are per input token."""

    parameters: int
    forward_flops: float
    training_flops: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlopCount:
    """The networks of an objective. A shared parameter counts in each network that uses it, and once in `parameters`."""

    generator: NetworkCount
    """All zero where there is none."""
    discriminator: NetworkCount
    """The main network, whatever stands on it."""
    parameters: int
    shared_parameters: int
    training_flops: float
    """Operations of one step that trains every network, per input token."""

    def of(self, network: str) -> NetworkCount:
        """`generator` or `discriminator`."""
        return {"generator": self.generator, "discriminator": self.discriminator}[network]

    def of_step(self, networks: Mapping[str, bool]) -> float:
        """Operations per input token of a step that runs these networks and trains those that are True."""
        counts = [(self.of(name), trained) for name, trained in networks.items()]
        return sum(count.training_flops if trained else count.forward_flops for count, trained in counts)


def count(
    config: ModelConfig,
    length: int,
    mask_fraction: float = 0.15,
    vocab_size: int = PAPER_VOCABULARY,
    parts: Parts = ELECTRA_PARTS,
) -> FlopCount:
    """Count parameters, and the operations of our step on rows of `length` tokens, for an objective that needs `parts`.

    Matrix products only (element-wise work is left out, table look-ups are free), as they are carried out: a local
    layer multiplies whole rows and masks, so it counts like a global one. The masked positions are those of a full row:
    `mask_fraction` of `length` - 2, rounded. Where a network is needed there only, so are the queries, the output projection
    and the feed-forward layer of its last block, and its head. `vocab_size` is used where none is configured.
    """
    config = _with_vocabulary(config, vocab_size)
    with torch.device("meta"):
        pair = Pair(config, parts)
    masked_share = max(1, round(mask_fraction * (length - 2))) / length
    heads_of_generator: list[torch.nn.Module] = []
    generator = NetworkCount(parameters=0, forward_flops=0.0, training_flops=0.0)
    if parts.generator:
        small = pair.generator.config
        heads_of_generator = [pair.generator_head, *([pair.baseline_head] if parts.baseline else [])]
        baseline = 2.0 * small.hidden_size if parts.baseline else 0.0
        generator = _network(
            _parameters(pair.generator, *heads_of_generator),
            encoder_flops(small, length, masked_share) + masked_share * (_head_flops(small) + baseline),
            masked_share * _scores_flops(small),
            recomputed=parts.baseline,
        )
    main = pair.discriminator.config
    main_share = masked_share if parts.main_at == "masked" else 1.0
    body = encoder_flops(main, length, main_share)
    others = {id(module) for module in (*pair.encoders, *heads_of_generator)}
    heads = [module for module in pair.children() if id(module) not in others]
    if parts.main_head == "replaced-token":
        scores, body = 0.0, body + main_share * 2.0 * main.hidden_size * (main.hidden_size + 1)
    else:
        scores, body = main_share * _scores_flops(main), body + main_share * _head_flops(main)
    recomputed = parts.main_head == "copy"
    if recomputed:
        body += 2.0 * main.hidden_size
    discriminator = _network(_parameters(pair.discriminator, *heads), body, scores, recomputed)
    total = _parameters(pair)
    return FlopCount(
        generator=generator,
        discriminator=discriminator,
        parameters=total,
        shared_parameters=generator.parameters + discriminator.parameters - total,
        training_flops=generator.training_flops + discriminator.training_flops,
    )


def _network(parameters: int, body: float, scores: float, recomputed: bool = False) -> NetworkCount:
    """`body` is a forward pass without the scores of the vocabulary, `scores` those."""
    return NetworkCount(
        parameters=parameters,
        forward_flops=body + scores,
        training_flops=TRAINING_FACTOR * body + (RECOMPUTED_FACTOR if recomputed else TRAINING_FACTOR) * scores,
    )


def summary(config: PretrainConfig, reference: bool = False, vocab_size: int = PAPER_VOCABULARY) -> dict[str, Any]:
    """What `electra flops` prints, ready for JSON: parameters, operations per token, and the run's totals.

    The totals are None for a budget in minutes. With `reference` they come from the reference's formula, which knows
    budgets of whole steps only. Raises UserError for modern blocks then.
    """
    counted = count(config.model, config.data.length, config.objective.mask_fraction, vocab_size)
    tokens_per_step = config.train.batch_size * config.data.length
    budgets = [
        (config.train.num_steps or 0) * tokens_per_step,
        config.train.num_tokens or 0,
        (config.train.num_flops or 0) / counted.training_flops,
    ]
    tokens = min((budget for budget in budgets if budget), default=None)
    total: float | None = None if tokens is None else tokens * counted.training_flops
    if reference:
        steps = 0 if tokens is None else tokens / tokens_per_step
        total = reference_total(config.model, config.data.length, config.train.batch_size, steps, vocab_size) or None
    return {
        "vocab_size": config.model.discriminator.vocab_size or vocab_size,
        "parameters": {
            "generator": counted.generator.parameters,
            "discriminator": counted.discriminator.parameters,
            "shared": counted.shared_parameters,
            "total": counted.parameters,
        },
        "forward_flops_per_token": {
            "generator": counted.generator.forward_flops,
            "discriminator": counted.discriminator.forward_flops,
        },
        "training_flops_per_token": {
            "generator": counted.generator.training_flops,
            "discriminator": counted.discriminator.training_flops,
            "total": counted.training_flops,
        },
        "run": {"tokens": tokens, "flops": total, "formula": "reference" if reference else "exact"},
    }


def encoder_flops(config: EncoderConfig, length: int, last_share: float = 1.0) -> float:
    """Forward operations of one encoder per input token, matrix products only. `last_share` is the share of the positions at
    which the last block's output is wanted; its keys and values are needed at all."""
    D, E, F = config.hidden_size, config.embedding_size, config.intermediate_size
    feed_forward = (3 if config.blocks == "modern" else 2) * D * F  # gated: two matrices up and one down
    by_query = 2 * D * D + 2 * length * D + feed_forward
    keys_and_values = 2 * D * D
    blocks = config.num_layers * (by_query + keys_and_values) - (1.0 - last_share) * by_query
    return 2.0 * (blocks + (D * E if E != D else 0))


def _head_flops(config: EncoderConfig) -> float:
    """Operations of the vocabulary head for one position, up to the scores ..."""
    D, E = config.hidden_size, config.embedding_size
    if config.blocks == "classic":
        return 2.0 * D * E
    return 2.0 * (D * D + (D * E if E != D else 0))


def _scores_flops(config: EncoderConfig) -> float:
    """... and of the scores themselves."""
    assert config.vocab_size is not None
    return 2.0 * config.embedding_size * config.vocab_size


def _with_vocabulary(config: ModelConfig, vocab_size: int) -> ModelConfig:
    main = config.discriminator
    return dataclasses.replace(
        config, discriminator=dataclasses.replace(main, vocab_size=main.vocab_size or vocab_size)
    )


def _parameters(*modules: torch.nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters() if p.requires_grad)


# ------------------------------------------------------------------------------------ the formula of the reference

DROPOUT, LAYER_NORM, ACTIVATION, SOFTMAX = 4, 5, 8, 5
"""Operations per number that the reference assumes for each."""

OUTPUT_FRACTION = 0.15625
"""Share of the positions that its vocabulary head works on: 80 of 512, whatever share is masked."""


def reference_total(
    config: ModelConfig, length: int, batch_size: int, num_steps: float, vocab_size: int = PAPER_VOCABULARY
) -> float:
    """Operations of a whole classic pre-training run by google-research/electra `flops_computation.py`.

    It counts more than `count` does: biases, dropout, norms, GELU and softmax, and table look-ups as products with
    one-hot vectors; and less: a backward pass costs one forward pass there. It gives small 1.294e18, base 6.425e19,
    large after 400K steps 7.118e20, the figures that the paper prints rounded. Raises UserError for modern blocks.
    """
    config = _with_vocabulary(config, vocab_size)
    main, small = config.discriminator, config.generator_encoder()
    if main.blocks != "classic":
        raise UserError(f"blocks is {main.blocks!r}: the reference's formula is for classic blocks; leave it off")
    forward = (
        _reference_encoder(main, length)
        + _reference_replaced_token_head(main)
        + _reference_encoder(small, length)
        + OUTPUT_FRACTION * _reference_vocabulary_head(small)
    )
    return 2.0 * batch_size * num_steps * length * forward


def _reference_encoder(config: EncoderConfig, length: int) -> float:
    """Forward operations per token of embeddings and blocks."""
    D, E, F, heads = config.hidden_size, config.embedding_size, config.intermediate_size, config.num_heads
    assert config.vocab_size is not None
    attention = (
        3 * (2 * D * D + D)  # queries, keys, values
        + 2 * (2 * D * length)  # scores, weighted mean of the values
        + (SOFTMAX + DROPOUT + 1) * length * heads  # on each score; 1 is the scaling
        + 2 * D * D
        + D
        + DROPOUT * D
        + D  # output, bias, dropout, residual
        + LAYER_NORM  # so in the original: not times D, unlike the one below
    )
    feed_forward = (2 * D * F + F + ACTIVATION * F) + (2 * D * F + D + DROPOUT * D + D + LAYER_NORM * D)
    embeddings = 2 * E * config.vocab_size + 2 * E * (length + 2) + 2 * E + (LAYER_NORM + DROPOUT) * E
    projection = 2 * D * E + D if E != D else 0
    return float(config.num_layers * (attention + feed_forward) + embeddings + projection)


def _reference_vocabulary_head(config: EncoderConfig) -> float:
    """Forward operations per scored position of the generator's head."""
    D, E, V = config.hidden_size, config.embedding_size, config.vocab_size
    assert V is not None
    return float(2 * E * V + 2 * D * E + E + (ACTIVATION + LAYER_NORM) * E + (SOFTMAX + 2) * V)


def _reference_replaced_token_head(config: EncoderConfig) -> float:
    """Forward operations per token of the discriminator's head."""
    D = config.hidden_size
    return float(2 * D * D + D + ACTIVATION * D + 2 * D)
