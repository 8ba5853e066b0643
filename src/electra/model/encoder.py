"""The two kinds of encoder: the paper's blocks (Hugging Face ELECTRA) and ModernBERT's.

Shapes: B batch, L length, H heads, S head size, E embedding size, D hidden size, F feed-forward size, V vocabulary.

Sources: Clark et al. (ICLR 2020) and google-research/electra `model/modeling.py` for `classic`; Warner et al. (2024,
arXiv 2412.13663) for `modern`. Weights map one to one onto the Hugging Face classes (see `hf.py`).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from electra.config import EncoderConfig
from electra.errors import UserError
from electra.model import attention, kernels
from electra.model.attention import Rotary
from electra.model.dropout import dropout, dropout_key


def gather_positions(x_BLD: Tensor, at_BK: Tensor) -> Tensor:
    """The vectors at K positions of each row, [B, K, D]."""
    rows, length, width = x_BLD.shape
    flat_BK = at_BK + torch.arange(rows, device=at_BK.device)[:, None] * length
    return x_BLD.reshape(rows * length, width)[flat_BK.flatten()].view(rows, -1, width)


def norm(x_BLD: Tensor, layer: nn.LayerNorm) -> Tensor:
    """A LayerNorm module, computed by the kernels."""
    return kernels.layer_norm(x_BLD, layer.weight, layer.bias, layer.eps)


def add_and_norm(x_BLD: Tensor, residual_BLD: Tensor, layer: nn.LayerNorm, rate: float) -> tuple[Tensor, Tensor]:
    """s = residual + dropout(x) -> (norm(s), s)."""
    return kernels.dropout_add_norm(
        x_BLD, residual_BLD, layer.weight, layer.bias, layer.eps, rate, dropout_key(rate, x_BLD)
    )


def truncated_normal_(weight: Tensor, std: float) -> None:
    """Normal with the tails beyond two standard deviations cut off: `truncated_normal_initializer` of the reference."""
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)


# -------------------------------------------------------------------------------------------------------------- modules


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a token of a layer sees."""

    mask_BL: Tensor | None
    """bool, True at keys that may be seen; None for all."""
    rotary: Rotary | None = None
    """Tables that turn queries and keys (modern)."""
    window: int = 0
    """Tokens to each side; 0 for the whole row."""


class Embeddings(nn.Module):
    """The tables that generator and discriminator can share, width E.

    classic: token + position + type, then LayerNorm (the reference shares the norm too). modern: token alone.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        if config.vocab_size is None:
            raise UserError("vocab_size is not set: give the size of the vocabulary")
        size = config.embedding_size
        self.has_common_direction = False
        """Whether `look_at_neighbours` has put its direction into the token table."""
        self.tokens = nn.Embedding(config.vocab_size, size)
        tables = [self.tokens]
        self.positions: nn.Embedding | None = None
        self.types: nn.Embedding | None = None
        self.norm: nn.LayerNorm | None = None
        if config.blocks == "classic":
            self.positions = nn.Embedding(config.max_length, size)
            self.types = nn.Embedding(config.type_vocab_size, size)
            self.norm = nn.LayerNorm(size, eps=config.layer_norm_epsilon)
            tables += [self.positions, self.types]
        for table in tables:
            truncated_normal_(table.weight, config.initializer_range)

    def forward(self, input_ids_BL: Tensor, token_type_ids_BL: Tensor | None = None) -> Tensor:
        """Token ids -> [B, L, E]. Raises UserError for a row longer than the position table."""
        x_BLE = self.tokens(input_ids_BL)
        if self.positions is None or self.types is None or self.norm is None:
            return x_BLE
        length = input_ids_BL.shape[1]
        if length > self.positions.num_embeddings:
            raise UserError(
                f"the row has {length} tokens, the position table ends at {self.positions.num_embeddings}: "
                "shorten the rows or raise max_length"
            )
        x_BLE = x_BLE + self.positions.weight[:length]
        x_BLE = x_BLE + (self.types.weight[0] if token_type_ids_BL is None else self.types(token_type_ids_BL))
        return norm(x_BLE, self.norm)


class Attention(nn.Module):
    """Multi-head self-attention with one matrix for queries, keys and values ([3D, D], in that order)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        bias = config.blocks == "classic"
        self.num_heads = config.num_heads
        self.dropout = config.attention_dropout
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=bias)
        self.out = nn.Linear(config.hidden_size, config.hidden_size, bias=bias)

    def forward(self, x_BLD: Tensor, seen: Seen, at_BK: Tensor | None = None) -> Tensor:
        """Mixed vectors of every token, [B, L, D]; with `at_BK` only of those K positions of each row, [B, K, D]."""
        B, L, D = x_BLD.shape
        heads = (self.num_heads, D // self.num_heads)
        rate = self.dropout if self.training else 0.0
        if at_BK is None:
            qkv_BL3HS = kernels.linear(x_BLD, self.qkv.weight, self.qkv.bias).view(B, L, 3, *heads)
            mixed_BLD = attention.attend(
                qkv_BL3HS, seen.mask_BL, seen.rotary, seen.window, rate, dropout_key(rate, x_BLD)
            )
        else:
            (query_DD, rest_2DD), (query_D, rest_2D) = self._split()
            query_BKHS = kernels.linear(gather_positions(x_BLD, at_BK), query_DD, query_D).view(B, -1, *heads)
            rest_BL2HS = kernels.linear(x_BLD, rest_2DD, rest_2D).view(B, L, 2, *heads)
            mixed_BLD = attention.attend_at(query_BKHS, rest_BL2HS, at_BK, seen.mask_BL, seen.rotary, seen.window, rate)
        return kernels.linear(mixed_BLD, self.out.weight, self.out.bias)

    def _split(self) -> tuple[tuple[Tensor, ...], tuple[Tensor | None, ...]]:
        """Weights and biases of the queries, and of keys and values."""
        D = self.qkv.in_features
        weights = self.qkv.weight.split((D, 2 * D))
        return weights, (None, None) if self.qkv.bias is None else self.qkv.bias.split((D, 2 * D))


class FeedForward(nn.Module):
    """classic: up, GELU, down. modern: up to both halves ([2F, D]), GELU of the first times the second, dropout, down."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.gated = config.blocks == "modern"
        self.dropout = config.hidden_dropout if self.gated else 0.0  # ModernBERT has it inside, ELECTRA after
        self.up = nn.Linear(
            config.hidden_size, (2 if self.gated else 1) * config.intermediate_size, bias=not self.gated
        )
        self.down = nn.Linear(config.intermediate_size, config.hidden_size, bias=not self.gated)

    def forward(self, x_BLD: Tensor) -> Tensor:
        rate = self.dropout if self.training else 0.0
        up, down = self.up, self.down
        return kernels.feed_forward(
            x_BLD, up.weight, up.bias, down.weight, down.bias, gated=self.gated, p=rate, key=dropout_key(rate, x_BLD)
        )


class ClassicBlock(nn.Module):
    """Post-norm: x = norm(x + f(x)) for attention, then for the feed-forward layer."""

    def __init__(self, config: EncoderConfig, index: int) -> None:
        super().__init__()
        self.is_global = True
        self.dropout = config.hidden_dropout
        self.attention = Attention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        for linear in (self.attention.qkv, self.attention.out, self.feed_forward.up, self.feed_forward.down):
            truncated_normal_(linear.weight, config.initializer_range)
            nn.init.zeros_(linear.bias)

    def forward(self, x_BLD: Tensor, seen: Seen, at_BK: Tensor | None = None) -> Tensor:
        """The block's output [B, L, D]; with `at_BK` at those positions only, [B, K, D]."""
        rate = self.dropout if self.training else 0.0
        mixed_BLD = self.attention(x_BLD, seen, at_BK)
        if at_BK is not None:
            x_BLD = gather_positions(x_BLD, at_BK)
        x_BLD, _ = add_and_norm(mixed_BLD, x_BLD, self.attention_norm, rate)
        x_BLD, _ = add_and_norm(self.feed_forward(x_BLD), x_BLD, self.feed_forward_norm, rate)
        return x_BLD


class ModernBlock(nn.Module):
    """Pre-norm: x = x + f(norm(x)). The first block's attention norm is the identity: the embedding norm came just before."""

    def __init__(self, config: EncoderConfig, index: int) -> None:
        super().__init__()
        self.dropout = config.attention_dropout
        self.is_global = index % config.global_attention_every == 0
        self.attention_norm = None if index == 0 else bias_free_norm(config)
        self.attention = Attention(config)
        self.feed_forward_norm = bias_free_norm(config)
        self.feed_forward = FeedForward(config)
        # Each block starts as the identity: what it writes into the residual stream is zero, what it reads is at the scale
        # of its input. At small budgets this learns faster than ModernBERT's own scheme (docs/architecture.md).
        truncated_normal_(self.attention.qkv.weight, config.hidden_size**-0.5)
        truncated_normal_(self.feed_forward.up.weight, config.hidden_size**-0.5)
        nn.init.zeros_(self.attention.out.weight)
        nn.init.zeros_(self.feed_forward.down.weight)

    def forward(self, x_BLD: Tensor, seen: Seen, at_BK: Tensor | None = None) -> Tensor:
        """The block's output [B, L, D]; with `at_BK` at those positions only, [B, K, D]."""
        normed_BLD = x_BLD if self.attention_norm is None else norm(x_BLD, self.attention_norm)
        mixed_BLD = self.attention(normed_BLD, seen, at_BK)
        if at_BK is not None:
            x_BLD = gather_positions(x_BLD, at_BK)
        rate = self.dropout if self.training else 0.0
        normed_BLD, x_BLD = add_and_norm(mixed_BLD, x_BLD, self.feed_forward_norm, rate)
        return x_BLD + self.feed_forward(normed_BLD)


def bias_free_norm(config: EncoderConfig) -> nn.LayerNorm:
    """LayerNorm over D with a weight and no bias (modern)."""
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon, bias=False)


class RotaryTables:
    """Tables of one frequency base, made once per length and device. Not a module: nothing to learn or save."""

    def __init__(self, head_size: int, theta: float) -> None:
        self.head_size, self.theta = head_size, theta
        self._tables: dict[tuple[int, torch.device], Rotary] = {}

    def tables(self, length: int, device: torch.device) -> Rotary:
        key = (length, device)
        if key not in self._tables:
            # Off, or a table first made in inference mode could not be used in training afterwards.
            with torch.inference_mode(False), torch.no_grad():
                power_S = torch.arange(0, self.head_size, 2, dtype=torch.float32, device=device) / self.head_size
                position_L = torch.arange(length, dtype=torch.float32, device=device)
                angle_LS = position_L[:, None] * (1.0 / self.theta**power_S)
                self._tables[key] = (angle_LS.cos(), angle_LS.sin())
        return self._tables[key]


class Encoder(nn.Module):
    """Token ids to one vector a token. `embeddings`: tables that another encoder has too (the same module object)."""

    def __init__(self, config: EncoderConfig, embeddings: Embeddings | None = None) -> None:
        super().__init__()
        self.config = config
        modern = config.blocks == "modern"
        self.embeddings = Embeddings(config) if embeddings is None else embeddings
        self.embeddings_project: nn.Linear | None = None
        if config.embedding_size != config.hidden_size:
            self.embeddings_project = nn.Linear(config.embedding_size, config.hidden_size, bias=not modern)
            if modern:  # keeps the entries of table times projection at the scale of a table of full width
                truncated_normal_(self.embeddings_project.weight, config.embedding_size**-0.5)
            else:  # the reference leaves TensorFlow's default here
                nn.init.xavier_uniform_(self.embeddings_project.weight)
                nn.init.zeros_(self.embeddings_project.bias)
        self.embeddings_norm = bias_free_norm(config) if modern else None
        block = ModernBlock if modern else ClassicBlock
        self.blocks = nn.ModuleList([block(config, index) for index in range(config.num_layers)])
        self.final_norm = bias_free_norm(config) if modern else None
        if config.neighbour_heads:
            look_at_neighbours(self)
        self._global_rotary = RotaryTables(config.head_size, config.global_rope_theta)
        self._local_rotary = RotaryTables(config.head_size, config.local_rope_theta)

    def embed(self, input_ids_BL: Tensor, token_type_ids_BL: Tensor | None = None) -> Tensor:
        """Token ids -> input of the first block, [B, L, D]."""
        x = self.embeddings(input_ids_BL, token_type_ids_BL)
        rate = self.config.hidden_dropout if self.training else 0.0
        project = self.embeddings_project
        if self.embeddings_norm is None:  # classic: dropout comes before the projection ...
            x = dropout(x, rate, dropout_key(rate, x))
        if project is not None:
            x = kernels.linear(x, project.weight, project.bias)
        if self.embeddings_norm is not None:  # ... modern: after the norm
            x = dropout(norm(x, self.embeddings_norm), rate, dropout_key(rate, x))
        return x

    def forward(
        self,
        input_ids_BL: Tensor,
        attention_mask_BL: Tensor | None = None,
        token_type_ids_BL: Tensor | None = None,
        return_all_layers: bool = False,
        at_BK: Tensor | None = None,
    ) -> Any:
        """Hidden states [B, L, D]; with `return_all_layers` the list of the embedding output and every block's output.

        With `at_BK` (int64, K positions of each row) the hidden states there, [B, K, D]: the last block is then computed at
        those positions only, which gives the same numbers for a part of the work.

        `attention_mask_BL` is true at real tokens; None says that there is no padding and is the fast path. The last
        entry of the list is the encoder's output (for `modern` after the final norm). `modern` has no segment types.
        """
        length, device = input_ids_BL.shape[1], input_ids_BL.device
        mask_BL = None if attention_mask_BL is None else attention_mask_BL.bool()
        globally = locally = Seen(mask_BL)
        if self.config.blocks == "modern":
            window = self.config.local_attention // 2
            globally = Seen(mask_BL, self._global_rotary.tables(length, device))
            locally = Seen(mask_BL, self._local_rotary.tables(length, device), window if window < length - 1 else 0)

        x_BLD = self.embed(input_ids_BL, token_type_ids_BL)
        layers = [x_BLD]
        for index, block in enumerate(self.blocks):
            last_at_BK = at_BK if index + 1 == len(self.blocks) else None
            x_BLD = block(x_BLD, globally if block.is_global else locally, last_at_BK)
            layers.append(x_BLD)
        if self.final_norm is not None:
            x_BLD = layers[-1] = norm(x_BLD, self.final_norm)
        return layers if return_all_layers else x_BLD


@torch.no_grad()
def look_at_neighbours(encoder: Encoder, strength: float = 1.0) -> None:
    """Start `neighbour_heads` heads of each layer of a modern encoder as windows on one neighbour each (-1, +1, -2, +2, ...).

    A direction u is put into every token's embedding, so that after the norm all inputs share it. Each such head's query
    and key matrices get a part of rank one that answers to u: through the rotary turn, the score of a key is then largest
    at the wanted offset, by about `strength` standard deviations of the other scores. Without it a small network spends
    the first million tokens at unigram frequencies before its attention finds any use for positions
    (docs/architecture.md has the measurement). Encoders that share an embedding table share u: it is read off the table.
    """
    config = encoder.config
    table, width, half = encoder.embeddings.tokens.weight, config.embedding_size, config.head_size // 2
    u_E = torch.ones(width, device=table.device)
    u_E[1::2] = -1.0  # the norm takes the mean away, so u has none
    if not encoder.embeddings.has_common_direction:
        table += config.initializer_range * u_E
        encoder.embeddings.has_common_direction = True
    if encoder.embeddings_project is not None:
        u_D = encoder.embeddings_project.weight @ u_E
        u_D = (u_D - u_D.mean()) / (u_D - u_D.mean()).norm()
    else:
        u_D = u_E / u_E.norm()
    gain = (strength * config.head_size**0.5 / (config.hidden_size / 2)) ** 0.5
    for block in encoder.blocks:
        assert isinstance(block, ModernBlock)
        theta = config.global_rope_theta if block.is_global else config.local_rope_theta
        frequency_S = theta ** -(torch.arange(half, device=table.device) / half)
        query, key, _ = block.attention.qkv.weight.view(3, config.num_heads, 2 * half, config.hidden_size)
        query *= 0.5
        key *= 0.5
        for head in range(config.neighbour_heads):
            offset = (head // 2 + 1) * (-1 if head % 2 == 0 else 1)
            query[head, :half] += gain * torch.outer((frequency_S * offset).cos(), u_D)
            query[head, half:] += gain * torch.outer((frequency_S * offset).sin(), u_D)
            key[head, :half] += gain * u_D
