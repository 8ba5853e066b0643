"""What stands on an encoder: vocabulary (generator, MLM), replaced-token (discriminator), one-logit and classification heads.

Shapes: B batch, L length, K scored positions, D hidden size, E embedding size, V vocabulary, C classes.
Sources: google-research/electra `run_pretraining.py`; Hugging Face `modeling_electra.py` and `modeling_modernbert.py`,
whose heads these equal weight for weight.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra.config import EncoderConfig
from electra.errors import UserError
from electra.model import kernels
from electra.model.encoder import bias_free_norm, norm, truncated_normal_

Pooling = Literal["first", "mean"]


def _hidden_layer(config: EncoderConfig, out_size: int) -> nn.Linear:
    """The dense layer that opens each head, initialised as its source does."""
    modern = config.blocks == "modern"
    dense = nn.Linear(config.hidden_size, out_size, bias=not modern)
    truncated_normal_(dense.weight, config.initializer_range / (math.sqrt(2.0 * config.num_layers) if modern else 1.0))
    if not modern:
        nn.init.zeros_(dense.bias)
    return dense


class GeneratorHead(nn.Module):
    """Scores of the vocabulary, with the token table as the last matrix.

    classic: dense D -> E, GELU, LayerNorm. modern: dense D -> D, GELU, norm, and where the encoder is not as wide as
    the table, the transposed embedding projection D -> E, so that the last matrix is tied through it.
    `embedding` and `project` belong to the encoder; they are the same module objects, which keeps the tie through
    moves, loads and resizes.
    """

    def __init__(self, config: EncoderConfig, embedding: nn.Embedding, project: nn.Linear | None = None) -> None:
        super().__init__()
        modern = config.blocks == "modern"
        self.config = config
        self.dense = _hidden_layer(config, config.hidden_size if modern else config.embedding_size)
        epsilon = config.layer_norm_epsilon
        self.norm = bias_free_norm(config) if modern else nn.LayerNorm(config.embedding_size, eps=epsilon)
        self.bias = nn.Parameter(torch.zeros(embedding.num_embeddings))
        # Out of the module tree (a tuple): these are the encoder's to list, move and save.
        self._tied = (embedding, project if modern else None)

    @property
    def decoder_weight(self) -> Tensor:
        """The tied token table, [V, E]."""
        return self._tied[0].weight

    def forward(self, hidden_KD: Tensor) -> Tensor:
        """Hidden states at the scored positions -> what the token table is multiplied with, [K, E]."""
        x_KE = norm(kernels.gelu(kernels.linear(hidden_KD, self.dense.weight, self.dense.bias)), self.norm)
        project = self._tied[1]
        return x_KE if project is None else kernels.linear(x_KE, project.weight.t())

    def logits(self, hidden_KD: Tensor) -> Tensor:
        """Hidden states [K, D] -> scores of the vocabulary [K, V]."""
        return F.linear(self(hidden_KD), self.decoder_weight, self.bias)


class ReplacedTokenHead(nn.Module):
    """One logit a token: above 0 says replaced. classic: dense, GELU, D -> 1. modern: dense, GELU, norm, D -> 1."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.dense = _hidden_layer(config, config.hidden_size)
        self.norm = bias_free_norm(config) if config.blocks == "modern" else None
        self.classifier = nn.Linear(config.hidden_size, 1)
        if config.blocks == "modern":
            truncated_normal_(self.classifier.weight, config.hidden_size**-0.5)
            nn.init.constant_(self.classifier.bias, -2.0)  # about the share of replaced tokens at first
        else:  # the reference leaves TensorFlow's default here
            nn.init.xavier_uniform_(self.classifier.weight)
            nn.init.zeros_(self.classifier.bias)

    def forward(self, hidden_BLD: Tensor) -> Tensor:
        """Hidden states [..., D] -> logits [...]."""
        x_BLD = kernels.gelu(kernels.linear(hidden_BLD, self.dense.weight, self.dense.bias))
        if self.norm is not None:
            x_BLD = norm(x_BLD, self.norm)
        with torch.autocast(x_BLD.device.type, enabled=False):  # one number a token: no reason to round it
            return self.classifier(x_BLD.to(self.classifier.weight.dtype)).squeeze(-1)


class TokenLogit(nn.Module):
    """One logit a token, straight from the hidden state: the copy mechanism of an all-tokens MLM (paper, section 3.4) and the
    baseline of an adversarial generator (appendix F)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.classifier = nn.Linear(config.hidden_size, 1)
        truncated_normal_(self.classifier.weight, config.initializer_range)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, hidden_BLD: Tensor) -> Tensor:
        """Hidden states [..., D] -> logits [...], in float32."""
        with torch.autocast(hidden_BLD.device.type, enabled=False):  # one number a token: no reason to round it
            return self.classifier(hidden_BLD.float()).squeeze(-1)


class ClassificationHead(nn.Module):
    """Classes of a whole row, equal to the heads of the Hugging Face classes for sequence classification.

    classic, `ElectraForSequenceClassification`: [CLS], dropout, dense, GELU, dropout, D -> C.
    modern, `ModernBertForSequenceClassification`: pooling, dense, GELU, norm, dropout, D -> C.
    """

    def __init__(self, config: EncoderConfig, num_labels: int, pooling: Pooling, dropout: float = 0.0) -> None:
        super().__init__()
        if pooling not in ("first", "mean"):
            raise UserError(f"pooling is {pooling!r}: choose one of first, mean")
        if config.blocks == "classic" and pooling == "mean":
            raise UserError(
                "pooling is 'mean': classic blocks become an ElectraForSequenceClassification, which reads "
                "[CLS]; choose 'first'"
            )
        self.config, self.num_labels, self.pooling, self.dropout = config, num_labels, pooling, dropout
        self.dense = _hidden_layer(config, config.hidden_size)
        self.norm = bias_free_norm(config) if config.blocks == "modern" else None
        self.classifier = nn.Linear(config.hidden_size, num_labels)
        truncated_normal_(
            self.classifier.weight, config.hidden_size**-0.5 if config.blocks == "modern" else config.initializer_range
        )
        nn.init.zeros_(self.classifier.bias)

    @torch.no_grad()
    def rescale(self, scale: float, shift: float) -> None:
        """Make the logits `scale` times what they were plus `shift`: a regression's into the units of its labels."""
        self.classifier.weight.mul_(scale)
        self.classifier.bias.mul_(scale).add_(shift)

    def pool(self, hidden_BLD: Tensor, attention_mask_BL: Tensor | None = None) -> Tensor:
        """[B, L, D] -> [B, D]: the first token, or the mean over real tokens (specials count, as in ModernBERT)."""
        if self.pooling == "first":
            return hidden_BLD[:, 0]
        if attention_mask_BL is None:
            return hidden_BLD.mean(dim=1)
        real_BL1 = attention_mask_BL.to(hidden_BLD.dtype).unsqueeze(-1)
        return (hidden_BLD * real_BL1).sum(dim=1) / real_BL1.sum(dim=1)

    def forward(self, hidden_BLD: Tensor, attention_mask_BL: Tensor | None = None) -> Tensor:
        """Hidden states [B, L, D] and mask (true at real tokens) -> logits [B, C]."""
        x_BD = self.pool(hidden_BLD, attention_mask_BL)
        if self.norm is None:
            x_BD = F.gelu(self.dense(F.dropout(x_BD, self.dropout, self.training)))
        else:
            x_BD = self.norm(F.gelu(self.dense(x_BD)))
        return self.classifier(F.dropout(x_BD, self.dropout, self.training))
