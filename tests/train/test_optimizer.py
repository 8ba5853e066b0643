"""Optimizers against their formulas, the schedule against values worked out by hand."""

import pytest
import torch
from torch import nn

from electra.config import OptimizerConfig
from electra.train.optimizer import PairOptimizer, clip_gradients, learning_rate_factor, orthogonalise


class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.linspace(-1, 1, 12).view(3, 4))
        self.bias = nn.Parameter(torch.linspace(-1, 1, 4))


@pytest.mark.parametrize("bias_correction", [False, True])
def test_adamw_is_the_reference_formula(bias_correction):
    config = OptimizerConfig(peak_learning_rate=0.01, weight_decay=0.1, bias_correction=bias_correction)
    model = Toy()
    optimizer = PairOptimizer(model, config)
    expected = {name: p.detach().double().clone() for name, p in model.named_parameters()}
    first = {name: torch.zeros_like(value) for name, value in expected.items()}
    second = {name: torch.zeros_like(value) for name, value in expected.items()}
    generator = torch.Generator().manual_seed(0)
    for step in range(1, 6):
        factor = 1.0 / step
        for name, parameter in model.named_parameters():
            gradient = torch.randn(parameter.shape, generator=generator)
            parameter.grad = gradient.clone()
            g = gradient.double()
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.999 * second[name] + 0.001 * g * g
            c1, c2 = (1 - 0.9**step, 1 - 0.999**step) if bias_correction else (1.0, 1.0)
            update = first[name] / c1 / ((second[name] / c2).sqrt() + 1e-6)
            decay = 0.1 if name == "matrix" else 0.0  # never on a bias
            expected[name] = expected[name] - 0.01 * factor * (update + decay * expected[name])
        optimizer.step(factor)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.double(), expected[name], atol=2e-6, rtol=1e-5)


def test_without_bias_correction_a_parameter_may_start_late():
    """A network that joins after 1,000 steps moves in its first step as one that was there from the start did."""
    model = Toy()
    optimizer = PairOptimizer(model, OptimizerConfig(peak_learning_rate=0.01, weight_decay=0.0, bias_correction=False))
    for _ in range(1_000):
        model.bias.grad = torch.ones(4)
        optimizer.step(1.0)
    before = model.matrix.detach().clone()
    model.matrix.grad = torch.ones(3, 4)
    optimizer.step(1.0)
    expected = before - 0.01 * 0.1 / (0.001**0.5 + 1e-6)
    torch.testing.assert_close(model.matrix.detach(), expected)


def test_schedule_by_steps():
    config = OptimizerConfig(warmup_steps=10)
    factors = [learning_rate_factor(config, step, step / 100) for step in (0, 4, 9, 50, 100)]
    assert factors == pytest.approx([0.1, 0.5 * 0.96, 0.91, 0.5, 0.0])


def test_schedule_by_share_of_the_budget():
    config = OptimizerConfig(warmup_fraction=0.1, final_learning_rate_fraction=0.2)
    factors = [learning_rate_factor(config, 0, progress) for progress in (0.0, 0.05, 0.1, 1.0)]
    assert factors == pytest.approx([0.0, 0.5 * (0.2 + 0.8 * 0.95), 0.2 + 0.8 * 0.9, 0.2])


def test_clipping():
    parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
    for limit, expected in ((1.0, [3 / 13, 4 / 13]), (100.0, [3.0, 4.0]), (0.0, [3.0, 4.0])):
        parameters[0].grad, parameters[1].grad = torch.tensor([3.0, 4.0]), torch.tensor([12.0])
        assert clip_gradients(parameters, limit).item() == pytest.approx(13.0)
        assert parameters[0].grad.tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 8, 24), (2, 24, 8)])
def test_orthogonalise_gives_singular_values_near_one(shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    result = orthogonalise(matrices)
    values = torch.linalg.svdvals(result)
    assert values.min() > 0.3
    assert values.max() < 1.7
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    cosine = (result * (u @ v)).sum((1, 2)) / (result.norm(dim=(1, 2)) * (u @ v).norm(dim=(1, 2)))
    assert cosine.min() > 0.9


class Block(nn.Module):
    """What Muon looks for: a matrix inside `blocks`."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.inner.blocks = nn.ModuleList([nn.Linear(8, 8, bias=False)])
        self.bias = nn.Parameter(torch.zeros(1))


def test_muon_decays_its_matrices_and_so_bounds_them():
    """One update is w (1 - rate decay) - rate times the orthogonalised gradient; pushed one way for long, w ends at 1 / decay."""
    model = Block()
    weight = model.inner.blocks[0].weight
    config = OptimizerConfig(name="muon", muon_learning_rate=0.05, muon_weight_decay=0.5, muon_momentum=0.0)
    optimizer = PairOptimizer(model, config)
    gradient = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
    direction = orthogonalise(gradient[None])[0]
    before = weight.detach().clone()
    weight.grad = gradient.clone()
    optimizer.step(1.0)
    torch.testing.assert_close(weight.detach(), before * (1 - 0.05 * 0.5) - 0.05 * direction)
    for _ in range(600):
        weight.grad = gradient.clone()
        optimizer.step(1.0)
    torch.testing.assert_close(weight.detach(), -direction / 0.5, atol=1e-3, rtol=1e-3)
