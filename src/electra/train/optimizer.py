"""Learning-rate schedule, AdamW with and without bias correction, and Muon for the matrices inside the blocks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from electra.config import OptimizerConfig
from electra.model.encoder import Attention, FeedForward

# Coefficients of the quintic Newton-Schulz step (Keller Jordan, "Muon", 2024): they push singular values towards 1 quickly
# rather than exactly.
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def learning_rate_factor(config: OptimizerConfig, step: int, progress: float) -> float:
    """Share of the peak rate for the step number `step` (from 0), after `progress` (0 to 1) of the budget.

    Linear warm-up times linear decay, as the reference has it.
    """
    if config.warmup_fraction is not None:
        warmup = min(1.0, progress / config.warmup_fraction) if config.warmup_fraction > 0 else 1.0
    else:
        warmup = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
    floor = config.final_learning_rate_fraction
    return warmup * (floor + (1.0 - floor) * (1.0 - min(1.0, progress)))


def clip_gradients(parameters: list[nn.Parameter], max_norm: float) -> Tensor:
    """Scale the gradients in place so that their joint 2-norm is at most `max_norm` (0: leave them). Returns the norm before.

    The factor stays on the device: nothing waits for it.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    if max_norm > 0:
        torch._foreach_mul_(gradients, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


class PairOptimizer:
    """AdamW over everything, or Muon over the blocks' matrices and AdamW over the rest; one learning-rate factor drives both.

    Weight decay spares every parameter with fewer than two dimensions (biases, norms), as the reference does.
    """

    def __init__(self, model: nn.Module, config: OptimizerConfig) -> None:
        self.config = config
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        in_blocks = {
            id(p)
            for name, p in model.named_parameters()
            if config.name == "muon" and ".blocks." in name and p.ndim == 2
        }
        matrices = [p for p in self.parameters if id(p) in in_blocks]
        self.muon = _Muon(matrices, _num_parts(model), config) if matrices else None
        rest = [p for p in self.parameters if id(p) not in in_blocks]
        groups = [
            {"params": [p for p in rest if p.ndim >= 2], "weight_decay": config.weight_decay},
            {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0},
        ]
        self.adamw = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=config.peak_learning_rate,
            betas=(config.beta1, config.beta2),
            eps=config.epsilon,
            fused=True,
        )
        self._decay = [group["weight_decay"] for group in self.adamw.param_groups]
        self.num_steps = 0

    def step(self, factor: float) -> None:
        """One update with every peak rate times `factor`."""
        self.num_steps += 1
        rate = self.config.peak_learning_rate * factor
        # PyTorch's AdamW always corrects the bias. Undo it through rate and epsilon:
        #   rate m / (sqrt(v) + eps) = rate' m / c1 / (sqrt(v) / sqrt(c2) + eps'),
        #   with rate' = rate c1 / sqrt(c2), eps' = eps / sqrt(c2).
        scale, root2 = 1.0, 1.0
        if not self.config.bias_correction:
            correction1 = 1.0 - self.config.beta1**self.num_steps
            root2 = (1.0 - self.config.beta2**self.num_steps) ** 0.5
            scale = correction1 / root2
        for group, decay in zip(self.adamw.param_groups, self._decay, strict=True):
            group["lr"] = rate * scale
            group["eps"] = self.config.epsilon / root2
            group["weight_decay"] = decay / scale  # decoupled decay is rate x decay, whatever the correction
        self.adamw.step()
        if self.muon is not None:
            self.muon.step(self.config.muon_learning_rate * factor)

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        return {
            "num_steps": self.num_steps,
            "adamw": self.adamw.state_dict()["state"],
            "muon": [] if self.muon is None else self.muon.momenta,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.num_steps = state["num_steps"]
        self.adamw.load_state_dict({"state": state["adamw"], "param_groups": self.adamw.state_dict()["param_groups"]})
        if self.muon is not None:
            for momentum, saved in zip(self.muon.momenta, state["muon"], strict=True):
                momentum.copy_(saved)


def _num_parts(model: nn.Module) -> dict[int, int]:
    """id of a fused matrix -> how many matrices lie on top of each other in it."""
    parts = {}
    for module in model.modules():
        if isinstance(module, Attention):
            parts[id(module.qkv.weight)] = 3
        elif isinstance(module, FeedForward) and module.gated:
            parts[id(module.up.weight)] = 2
    return parts


class _Muon:
    """Momentum, orthogonalised by Newton-Schulz; matrices of one shape go through it as one batch.

    Each part of a fused matrix (query, key and value; both halves of the gated feed-forward layer) is orthogonalised by
    itself.
    """

    def __init__(self, parameters: list[nn.Parameter], num_parts: dict[int, int], config: OptimizerConfig) -> None:
        self.parameters = parameters
        self.parts = [num_parts.get(id(p), 1) for p in parameters]
        self.momentum = config.muon_momentum
        self.weight_decay = config.weight_decay
        self.momenta = [torch.zeros_like(p) for p in parameters]
        self.by_shape: dict[tuple[int, int], list[int]] = {}
        for index, parameter in enumerate(parameters):
            rows, columns = parameter.shape
            self.by_shape.setdefault((rows // self.parts[index], columns), []).append(index)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters]
        torch._foreach_lerp_(self.momenta, gradients, 1.0 - self.momentum)
        torch._foreach_lerp_(gradients, self.momenta, self.momentum)  # Nesterov; the gradient is spent after this
        if self.weight_decay:
            torch._foreach_mul_(self.parameters, 1.0 - rate * self.weight_decay)
        for (rows, columns), indices in self.by_shape.items():
            stacked = torch.cat([gradients[i].view(-1, rows, columns) for i in indices])
            update = orthogonalise(stacked) * max(1.0, rows / columns) ** 0.5
            parts = update.split([self.parts[i] for i in indices])
            torch._foreach_add_(
                [self.parameters[i] for i in indices],
                [part.reshape(self.parameters[i].shape) for i, part in zip(indices, parts, strict=True)],
                alpha=-rate,
            )


def orthogonalise(matrices: Tensor, steps: int = 5) -> Tensor:
    """Nearest-orthogonal factor of each matrix in [N, rows, columns], roughly: singular values end up in about [0.7, 1.2].

    Source: Keller Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024).
    """
    a, b, c = _NEWTON_SCHULZ
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
