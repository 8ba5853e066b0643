"""Token tables moved to another vocabulary: rows of pieces that agree stay, new ones start from what their parts know.

Shapes: V old vocabulary, W new vocabulary, E embedding size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from electra.model.encoder import Encoder
from electra.model.heads import GeneratorHead


@dataclasses.dataclass(frozen=True)
class Plan:
    """Where each row of the new table comes from."""

    vocab_size: int
    """W, rows of the new table (at least the new pieces)."""
    same: dict[int, int]
    """New id -> old id, for pieces that are in both."""
    parts: dict[int, list[int]]
    """New id -> old ids of the pieces that it is made of."""
    dropped: int
    """Old pieces that the new vocabulary does not have."""

    @property
    def drawn(self) -> int:
        """Rows about which the old table knows nothing."""
        return self.vocab_size - len(self.same) - len(self.parts)

    def __str__(self) -> str:
        return (
            f"{len(self.same):,} of {self.vocab_size:,} word pieces carried over, {len(self.parts):,} start as the mean of "
            f"their parts, {self.drawn:,} at random; {self.dropped:,} old ones dropped"
        )


def plan(
    old: Mapping[str, int],
    new: Mapping[str, int],
    split: Callable[[str], Sequence[int]],
    roles: Mapping[int, int],
    vocab_size: int,
) -> Plan:
    """Match two vocabularies (piece -> id). `split` gives the old ids of a new piece's parts, none where it cannot;
    `roles` the new -> old ids of special tokens, whatever they are called."""
    same, parts = dict(roles), {}
    for piece, index in new.items():
        if index in same:
            continue
        if piece in old:
            same[index] = old[piece]
        elif found := list(split(piece)):
            parts[index] = found
    return Plan(vocab_size, same, parts, dropped=len(set(old.values()) - set(same.values())))


@torch.no_grad()
def move_embeddings(encoder: Encoder, plan: Plan) -> None:
    """Give an encoder's token table [V, E] the rows [W, E] that the plan says, in place.

    Rows about which nothing is known are drawn from a normal distribution with the old table's mean and deviation in each
    coordinate (torch's generator).
    """
    tokens = encoder.embeddings.tokens
    old_VE = tokens.weight
    new_WE = torch.normal(old_VE.mean(0).expand(plan.vocab_size, -1), old_VE.std(0).expand(plan.vocab_size, -1))
    _fill_rows(new_WE, old_VE, plan, lambda part_KE: part_KE.mean(0))
    tokens.weight, tokens.num_embeddings = nn.Parameter(new_WE), plan.vocab_size
    encoder.config = dataclasses.replace(encoder.config, vocab_size=plan.vocab_size)


@torch.no_grad()
def move_output_bias(head: GeneratorHead, plan: Plan) -> None:
    """The same for the generator's output bias, a log frequency: a piece is at most as frequent as its rarest part."""
    new_W = head.bias.median().expand(plan.vocab_size).clone()
    _fill_rows(new_W, head.bias, plan, lambda part_K: part_K.min())
    head.bias = nn.Parameter(new_W)


def _fill_rows(new: Tensor, old: Tensor, plan: Plan, join: Callable[[Tensor], Tensor]) -> None:
    new[list(plan.same.keys())] = old[list(plan.same.values())]
    for index, ids in plan.parts.items():
        new[index] = join(old[ids])
