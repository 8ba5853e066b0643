"""The two kinds of encoder: the paper's blocks (Hugging Face ELECTRA) and ModernBERT's.

Shapes: B batch, L length, H heads, S head size, E embedding size, D hidden size, F feed-forward size, V vocabulary.

Sources: Clark et al. (ICLR 2020) and google-research/electra `model/modeling.py` for `classic`; Warner et al. (2024,
arXiv 2412.13663) for `modern`. Weights map one to one onto the Hugging Face classes (see `hf.py`).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra.config import EncoderConfig
from electra.errors import UserError

MASKED = -1e30
"""Added to the score of a key that must not be seen. Finite, so that a row of padding gives numbers and not NaN."""

RotaryTables = tuple[Tensor, Tensor]
"""Cosines and sines, float32 [L, S/2] each."""


# ------------------------------------------------------------------------------------------------------------ functions


def attention(query_BHLS: Tensor, key_BHLS: Tensor, value_BHLS: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """Scaled dot-product attention -> [B, H, L, S]. `mask` is added to the scores: [B or 1, 1, L or 1, L]."""
    if mask is not None:
        mask = mask.to(query_BHLS.dtype)
    if dropout > 0.0 and query_BHLS.device.type == "cpu":
        # torch has no tiled kernel with dropout on the CPU, and its fallback is slower than these five lines.
        scores_BHLL = (query_BHLS * query_BHLS.shape[-1] ** -0.5) @ key_BHLS.transpose(-1, -2)
        if mask is not None:
            scores_BHLL = scores_BHLL + mask
        return F.dropout(scores_BHLL.softmax(dim=-1), dropout) @ value_BHLS
    return F.scaled_dot_product_attention(query_BHLS, key_BHLS, value_BHLS, attn_mask=mask, dropout_p=dropout)


def rotate(x_BLHS: Tensor, tables: RotaryTables) -> Tensor:
    """Rotary positions (Su et al. 2021): turn the pair (i, i + S/2) of each head by position times frequency i."""
    cos_L1S, sin_L1S = (table.unsqueeze(-2) for table in tables)
    first, second = x_BLHS.chunk(2, dim=-1)
    turned = torch.cat((first * cos_L1S - second * sin_L1S, second * cos_L1S + first * sin_L1S), dim=-1)
    return turned.to(x_BLHS.dtype)


def gather_positions(x_BLD: Tensor, at_BK: Tensor) -> Tensor:
    """The vectors at K positions of each row, [B, K, D]."""
    rows, length, width = x_BLD.shape
    flat_BK = at_BK + torch.arange(rows, device=at_BK.device)[:, None] * length
    return x_BLD.reshape(rows * length, width)[flat_BK.flatten()].view(rows, -1, width)


def gelu(x_BLF: Tensor) -> Tensor:
    """GELU by the error function, as in the paper."""
    return F.gelu(x_BLF)


def gated_gelu(x_BL2F: Tensor) -> Tensor:
    """[B, L, 2F] -> [B, L, F]: GELU of the first half times the second (Shazeer 2020, GEGLU)."""
    value_BLF, gate_BLF = x_BL2F.chunk(2, dim=-1)
    return F.gelu(value_BLF) * gate_BLF


def padding_mask(attention_mask_BL: Tensor) -> Tensor:
    """Real tokens (true) and padding (false) -> what is added to the scores, float32 [B, 1, 1, L]."""
    added_BL = torch.zeros_like(attention_mask_BL, dtype=torch.float32).masked_fill(~attention_mask_BL, MASKED)
    return added_BL[:, None, None, :]


def window_mask(length: int, window: int, device: torch.device) -> Tensor | None:
    """Added to the scores so that a token sees `window` tokens to each side, [1, 1, L, L]; None if that is all."""
    if length - 1 <= window:
        return None
    position_L = torch.arange(length, device=device)
    far_LL = (position_L[:, None] - position_L[None, :]).abs() > window
    return torch.zeros(length, length, device=device).masked_fill(far_LL, MASKED)[None, None]


def truncated_normal_(weight: Tensor, std: float) -> None:
    """Normal with the tails beyond two standard deviations cut off: `truncated_normal_initializer` of the reference."""
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)


# -------------------------------------------------------------------------------------------------------------- modules


class Embeddings(nn.Module):
    """The tables that generator and discriminator can share, width E.

    classic: token + position + type, then LayerNorm (the reference shares the norm too). modern: token alone.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        if config.vocab_size is None:
            raise UserError("vocab_size is not set: give the size of the vocabulary")
        size = config.embedding_size
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
            raise UserError(f"the row has {length} tokens, the position table ends at {self.positions.num_embeddings}: "
                            "shorten the rows or raise max_length")
        x_BLE = x_BLE + self.positions.weight[:length]
        x_BLE = x_BLE + (self.types.weight[0] if token_type_ids_BL is None else self.types(token_type_ids_BL))
        return self.norm(x_BLE)


class Attention(nn.Module):
    """Multi-head self-attention with one matrix for queries, keys and values ([3D, D], in that order)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        bias = config.blocks == "classic"
        self.num_heads = config.num_heads
        self.dropout = config.attention_dropout
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=bias)
        self.out = nn.Linear(config.hidden_size, config.hidden_size, bias=bias)

    def forward(self, x_BLD: Tensor, mask: Tensor | None, rotary: RotaryTables | None = None,
                at_BK: Tensor | None = None) -> Tensor:
        """Mixed vectors of every token, [B, L, D]; with `at_BK` only of those K positions of each row, [B, K, D]."""
        B, L, D = x_BLD.shape
        heads = (self.num_heads, D // self.num_heads)
        query_rotary = rotary
        if at_BK is None:
            query_BLHS, key_BLHS, value_BLHS = self.qkv(x_BLD).view(B, L, 3, *heads).unbind(dim=2)
        else:
            (query_DD, rest_2DD), (query_D, rest_2D) = self._split()
            query_BLHS = F.linear(gather_positions(x_BLD, at_BK), query_DD, query_D).view(B, -1, *heads)
            key_BLHS, value_BLHS = F.linear(x_BLD, rest_2DD, rest_2D).view(B, L, 2, *heads).unbind(dim=2)
            if rotary is not None:
                query_rotary = (rotary[0][at_BK], rotary[1][at_BK])
            if mask is not None and mask.shape[-2] > 1:  # a row of the mask for each query
                mask = mask.expand(B, 1, L, L).gather(2, at_BK[:, None, :, None].expand(-1, -1, -1, L))
        if rotary is not None and query_rotary is not None:
            query_BLHS, key_BLHS = rotate(query_BLHS, query_rotary), rotate(key_BLHS, rotary)
        mixed_BHLS = attention(query_BLHS.transpose(1, 2), key_BLHS.transpose(1, 2), value_BLHS.transpose(1, 2), mask,
                               self.dropout if self.training else 0.0)
        return self.out(mixed_BHLS.transpose(1, 2).reshape(B, -1, D))

    def _split(self) -> tuple[tuple[Tensor, ...], tuple[Tensor | None, ...]]:
        """Weights and biases of the queries, and of keys and values."""
        D = self.qkv.in_features
        weights = self.qkv.weight.split((D, 2 * D))
        return weights, (None, None) if self.qkv.bias is None else self.qkv.bias.split((D, 2 * D))


class FeedForward(nn.Module):
    """classic: up, GELU, down. modern: up to both halves ([2F, D]), gated GELU, dropout, down."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.gated = config.blocks == "modern"
        self.dropout = config.hidden_dropout if self.gated else 0.0  # ModernBERT has it inside, ELECTRA after
        hidden, inner, bias = config.hidden_size, config.intermediate_size, not self.gated
        self.up = nn.Linear(hidden, 2 * inner if self.gated else inner, bias=bias)
        self.down = nn.Linear(inner, hidden, bias=bias)

    def forward(self, x_BLD: Tensor) -> Tensor:
        inner_BLF = gated_gelu(self.up(x_BLD)) if self.gated else gelu(self.up(x_BLD))
        return self.down(F.dropout(inner_BLF, self.dropout, self.training and self.dropout > 0.0))


class ClassicBlock(nn.Module):
    """Post-norm: x = norm(x + f(x)) for attention, then for the feed-forward layer."""

    def __init__(self, config: EncoderConfig, index: int) -> None:
        super().__init__()
        self.dropout = config.hidden_dropout
        self.attention = Attention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        for linear in (self.attention.qkv, self.attention.out, self.feed_forward.up, self.feed_forward.down):
            truncated_normal_(linear.weight, config.initializer_range)
            nn.init.zeros_(linear.bias)

    def forward(self, x_BLD: Tensor, mask: Tensor | None, rotary: RotaryTables | None = None,
                at_BK: Tensor | None = None) -> Tensor:
        """The block's output [B, L, D]; with `at_BK` at those positions only, [B, K, D]."""
        mixed_BLD = self._drop(self.attention(x_BLD, mask, at_BK=at_BK))
        if at_BK is not None:
            x_BLD = gather_positions(x_BLD, at_BK)
        x_BLD = self.attention_norm(x_BLD + mixed_BLD)
        return self.feed_forward_norm(x_BLD + self._drop(self.feed_forward(x_BLD)))

    def _drop(self, x_BLD: Tensor) -> Tensor:
        return F.dropout(x_BLD, self.dropout) if self.training and self.dropout > 0.0 else x_BLD


class ModernBlock(nn.Module):
    """Pre-norm: x = x + f(norm(x)). The first attention norm is the identity: the embedding norm came just before."""

    def __init__(self, config: EncoderConfig, index: int) -> None:
        super().__init__()
        self.dropout = config.attention_dropout
        self.is_global = index % config.global_attention_every == 0
        self.attention_norm: nn.Module = nn.Identity() if index == 0 else bias_free_norm(config)
        self.attention = Attention(config)
        self.feed_forward_norm = bias_free_norm(config)
        self.feed_forward = FeedForward(config)
        # Each block starts as the identity: what it writes into the residual stream is zero, what it reads is at the scale
        # of its input. At small budgets this learns faster than ModernBERT's own scheme (docs/architecture.md).
        truncated_normal_(self.attention.qkv.weight, config.hidden_size**-0.5)
        truncated_normal_(self.feed_forward.up.weight, config.hidden_size**-0.5)
        nn.init.zeros_(self.attention.out.weight)
        nn.init.zeros_(self.feed_forward.down.weight)

    def forward(self, x_BLD: Tensor, mask: Tensor | None, rotary: RotaryTables | None = None,
                at_BK: Tensor | None = None) -> Tensor:
        """The block's output [B, L, D]; with `at_BK` at those positions only, [B, K, D]."""
        mixed_BLD = self.attention(self.attention_norm(x_BLD), mask, rotary, at_BK)
        if self.training and self.dropout > 0.0:
            mixed_BLD = F.dropout(mixed_BLD, self.dropout)
        if at_BK is not None:
            x_BLD = gather_positions(x_BLD, at_BK)
        x_BLD = x_BLD + mixed_BLD
        return x_BLD + self.feed_forward(self.feed_forward_norm(x_BLD))


def bias_free_norm(config: EncoderConfig) -> nn.LayerNorm:
    """LayerNorm over D with a weight and no bias (modern)."""
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon, bias=False)


class Rotary:
    """Tables of one frequency base, made once per length and device. Not a module: nothing to learn or save."""

    def __init__(self, head_size: int, theta: float) -> None:
        self.head_size, self.theta = head_size, theta
        self._tables: dict[tuple[int, torch.device], RotaryTables] = {}

    def tables(self, length: int, device: torch.device) -> RotaryTables:
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
        self._global_rotary = Rotary(config.head_size, config.global_rope_theta)
        self._local_rotary = Rotary(config.head_size, config.local_rope_theta)

    def embed(self, input_ids_BL: Tensor, token_type_ids_BL: Tensor | None = None) -> Tensor:
        """Token ids -> input of the first block, [B, L, D]."""
        x = self.embeddings(input_ids_BL, token_type_ids_BL)
        drop = self.training and self.config.hidden_dropout > 0.0
        if self.config.blocks == "classic":  # dropout comes before the projection here ...
            x = F.dropout(x, self.config.hidden_dropout, drop)
            return x if self.embeddings_project is None else self.embeddings_project(x)
        if self.embeddings_project is not None:
            x = self.embeddings_project(x)
        assert self.embeddings_norm is not None
        return F.dropout(self.embeddings_norm(x), self.config.hidden_dropout, drop)  # ... and after the norm here

    def forward(self, input_ids_BL: Tensor, attention_mask_BL: Tensor | None = None,
                token_type_ids_BL: Tensor | None = None, return_all_layers: bool = False,
                at_BK: Tensor | None = None) -> Any:
        """Hidden states [B, L, D]; with `return_all_layers` the list of the embedding output and every block's output.

        With `at_BK` (int64, K positions of each row) the hidden states there, [B, K, D]: the last block is then computed at
        those positions only, which gives the same numbers for a part of the work.

        `attention_mask_BL` is true at real tokens; None says that there is no padding and is the fast path. The last
        entry of the list is the encoder's output (for `modern` after the final norm). `modern` has no segment types.
        """
        length, device = input_ids_BL.shape[1], input_ids_BL.device
        global_mask = None if attention_mask_BL is None else padding_mask(attention_mask_BL.bool())
        local_mask, global_rotary, local_rotary = global_mask, None, None
        if self.config.blocks == "modern":
            window = window_mask(length, self.config.local_attention // 2, device)
            if window is not None:
                local_mask = window if global_mask is None else window + global_mask
            global_rotary = self._global_rotary.tables(length, device)
            local_rotary = self._local_rotary.tables(length, device)

        x_BLD = self.embed(input_ids_BL, token_type_ids_BL)
        layers = [x_BLD]
        for index, block in enumerate(self.blocks):
            last_at_BK = at_BK if index + 1 == len(self.blocks) else None
            if getattr(block, "is_global", True):
                x_BLD = block(x_BLD, global_mask, global_rotary, last_at_BK)
            else:
                x_BLD = block(x_BLD, local_mask, local_rotary, last_at_BK)
            layers.append(x_BLD)
        if self.final_norm is not None:
            x_BLD = layers[-1] = self.final_norm(x_BLD)
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
    if not getattr(encoder.embeddings, "has_common_direction", False):
        table += config.initializer_range * u_E
        encoder.embeddings.has_common_direction = True  # type: ignore[assignment]
    if encoder.embeddings_project is not None:
        u_D = encoder.embeddings_project.weight @ u_E
        u_D = (u_D - u_D.mean()) / (u_D - u_D.mean()).norm()
    else:
        u_D = u_E / u_E.norm()
    gain = (strength * config.head_size**0.5 / (config.hidden_size / 2)) ** 0.5
    for block in encoder.blocks:
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
