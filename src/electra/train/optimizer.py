"""Learning-rate schedule, AdamW with and without bias correction, and Muon for the matrices inside the blocks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from electra.config import OptimizerConfig
from electra.model.encoder import Attention, FeedForward

# Coefficients (a, b, c) of x -> a x + b x^3 + c x^5 for each of four steps: the best polynomials for singular values in
# [1e-3, 1] (Amsel et al., "The Polar Express", arXiv 2505.16932, 2025). Four steps do where Newton-Schulz with one fixed
# polynomial (Jordan et al., "Muon", 2024) takes five.
_POLAR_EXPRESS = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
)


def learning_rate_factor(config: OptimizerConfig, step: int, progress: float) -> float:
    """Share of the peak rate for the step number `step` (from 0), after `progress` (0 to 1) of the budget.

    Linear warm-up times linear decay, as the reference has it.
    """
    if config.warmup_fraction is not None:
        warmup = min(1.0, progress / config.warmup_fraction) if config.warmup_fraction > 0 else 1.0
    else:
        warmup = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
    floor = config.final_learning_rate_fraction
    left = min(1.0, (1.0 - min(1.0, progress)) / config.decay_fraction)
    return warmup * (floor + (1.0 - floor) * left)


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
        tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
        embedding_rate = config.embedding_learning_rate or config.peak_learning_rate
        groups = [
            ([p for p in rest if id(p) in tables], embedding_rate, config.weight_decay),
            ([p for p in rest if p.ndim >= 2 and id(p) not in tables], config.peak_learning_rate, config.weight_decay),
            ([p for p in rest if p.ndim < 2], config.peak_learning_rate, 0.0),
        ]
        self._rates = [rate for chosen, rate, _ in groups if chosen]
        self.adamw = torch.optim.AdamW(
            [{"params": chosen, "weight_decay": decay} for chosen, _, decay in groups if chosen],
            betas=(config.beta1, config.beta2),
            eps=config.epsilon,
            fused=True,
        )
        if not config.bias_correction:
            self._switch_correction_off()

    def _switch_correction_off(self) -> None:
        """PyTorch's AdamW always corrects the bias of its averages, by each parameter's own number of updates. At a number
        as large as this the corrections are exactly 1, for a parameter that starts late as for one that starts at once."""
        for parameter in (p for group in self.adamw.param_groups for p in group["params"]):
            state = self.adamw.state[parameter]
            if not state:
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            state["step"] = torch.tensor(float(2**24), device=parameter.device)

    def step(self, factor: float) -> None:
        """One update with every peak rate times `factor`."""
        for group, peak_rate in zip(self.adamw.param_groups, self._rates, strict=True):
            group["lr"] = peak_rate * factor
        self.adamw.step()
        if self.muon is not None:
            self.muon.step(self.config.muon_learning_rate * factor)

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        return {
            "adamw": self.adamw.state_dict()["state"],
            "muon": [] if self.muon is None else self.muon.momenta,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.adamw.load_state_dict({"state": state["adamw"], "param_groups": self.adamw.state_dict()["param_groups"]})
        if not self.config.bias_correction:
            self._switch_correction_off()
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
        self.weight_decay = config.muon_weight_decay
        self.momenta = [torch.zeros_like(p) for p in parameters]
        self.by_shape: dict[tuple[int, int], list[int]] = {}
        for index, parameter in enumerate(parameters):
            rows, columns = parameter.shape
            self.by_shape.setdefault((rows // self.parts[index], columns), []).append(index)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One update of the matrices that have a gradient; the others (a network that does not run yet) stay as they are."""
        gradients = {index: p.grad for index, p in enumerate(self.parameters) if p.grad is not None}
        if not gradients:
            return
        momenta = [self.momenta[index] for index in gradients]
        torch._foreach_lerp_(momenta, list(gradients.values()), 1.0 - self.momentum)
        torch._foreach_lerp_(list(gradients.values()), momenta, self.momentum)  # Nesterov; spends the gradient
        if self.weight_decay:
            torch._foreach_mul_([self.parameters[index] for index in gradients], 1.0 - rate * self.weight_decay)
        for (rows, columns), members in self.by_shape.items():
            indices = [index for index in members if index in gradients]
            if not indices:
                continue
            stacked = torch.cat([gradients[i].view(-1, rows, columns) for i in indices])
            update = orthogonalise(stacked) * max(1.0, rows / columns) ** 0.5
            parts = update.split([self.parts[i] for i in indices])
            torch._foreach_add_(
                [self.parameters[i] for i in indices],
                [part.reshape(self.parameters[i].shape) for i, part in zip(indices, parts, strict=True)],
                alpha=-rate,
            )


def orthogonalise(matrices: Tensor) -> Tensor:
    """Nearest-orthogonal factor of each matrix in [N, rows, columns], roughly: singular values from 1e-3 of the matrix's norm
    upwards end up in about [0.4, 1.6], smaller ones are only lifted."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) * 1.02 + 1e-7)  # a little below 1, so that rounding keeps it in range
    for a, b, c in _POLAR_EXPRESS:
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
