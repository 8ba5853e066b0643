"""Replacements without a network: each token drawn from one distribution, whatever stands around it.

Shapes: K positions, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TokenFrequencies(nn.Module):
    """A distribution over the vocabulary, saved with the networks and never trained. Set it before use."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        # Among the parameters, so that a checkpoint holds it; float64, so that rare tokens keep their share of the sum.
        self.cumulative = nn.Parameter(torch.zeros(vocab_size, dtype=torch.float64), requires_grad=False)

    @torch.no_grad()
    def set(self, weights_V: Tensor) -> None:
        """Draw from now on in proportion to these; at least two must be above 0."""
        self.cumulative.copy_(weights_V.double().cumsum(0) / weights_V.double().sum())

    @torch.no_grad()
    def sample(self, uniforms_K: Tensor, never_K: Tensor | None = None) -> Tensor:
        """One token a position by inverse distribution function at uniforms in [0, 1); int64 [K]. `never_K`: one token of each
        position that is left out, the others in the same proportions."""
        at_K = uniforms_K.double()
        if never_K is not None:
            end_K = self.cumulative[never_K]
            start_K = torch.where(never_K > 0, self.cumulative[never_K - 1], 0.0)
            at_K = at_K * (1.0 - (end_K - start_K))
            at_K = torch.where(at_K >= start_K, at_K + (end_K - start_K), at_K)
        return torch.searchsorted(self.cumulative, at_K, right=True).clamp(max=len(self.cumulative) - 1)

    def resize(self, vocab_size: int) -> None:
        """Another number of tokens; new ones are never drawn."""
        kept = self.cumulative[:vocab_size]
        more = kept[-1:].expand(vocab_size - len(kept))
        self.cumulative = nn.Parameter(torch.cat([kept, more]) / kept[-1], requires_grad=False)
