"""Every compiled kernel against plain PyTorch: values, gradients, dropout masks, determinism; and the form without compiler."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from electra.model import kernels
from electra.model.attention import attend, rotate
from electra.model.dropout import dropout, dropout_factors, dropout_key
from electra.model.native import library

KEY = 0x1234_5678_9ABC_DEF0
needs_compiler = pytest.mark.skipif(library() is None, reason="no C++ compiler: the plain form is all there is")


def random(*shape, scale=1.0):
    return (torch.randn(*shape) * scale).requires_grad_()


def compare(one, other, inputs, atol=2e-5):
    """Same values, and same gradients of a random combination of them."""
    torch.testing.assert_close(one, other, atol=atol, rtol=1e-4)
    weights = torch.randn(one.shape)
    for a, b, x in zip(
        torch.autograd.grad((one * weights).sum(), inputs),
        torch.autograd.grad((other * weights).sum(), inputs),
        inputs,
        strict=True,
    ):
        torch.testing.assert_close(a, b, atol=atol * 10, rtol=2e-4, msg=lambda text, x=x: f"{tuple(x.shape)}: {text}")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@needs_compiler
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 5, 3), (64, 96, 33), (200, 300, 513)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_linear(shape, with_bias):
    rows, inner, outer = shape
    x, weight = random(rows, inner), random(outer, inner)
    bias = random(outer) if with_bias else None
    inputs = [x, weight, *([bias] if with_bias else [])]
    compare(kernels.linear(x, weight, bias), F.linear(x, weight, bias), inputs, atol=2e-4)


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_rows_at_all(dtype):
    """A micro-batch may have nothing masked in it: no output, and gradients of zero rather than what the memory held."""
    torch.full((1000,), float("nan"))  # what freshly freed memory may hold
    x, weight, bias = torch.empty(0, 16, requires_grad=True), random(16, 16), random(16)
    up, up_bias, table, table_bias = random(40, 16), random(40), random(30, 16), random(30)
    none = torch.empty(0)
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        y = kernels.linear(x, weight, bias)
        y = kernels.feed_forward(y, up, up_bias, up.t().contiguous(), bias)
        y = kernels.layer_norm(kernels.gelu(y), bias, bias, 1e-6)
        loss, losses, samples, likeliest = kernels.vocabulary_loss(y, table, table_bias, none.long(), none, none)
    assert [len(t) for t in (losses, samples, likeliest)] == [0, 0, 0]
    assert y.shape == (0, 16)
    for gradient in torch.autograd.grad(loss, [weight, bias, up, up_bias, table, table_bias]):
        assert not gradient.any()


@needs_compiler
def test_an_empty_sum_is_its_bias():
    weight, bias = torch.empty(5, 0), random(5)
    x = torch.empty(3, 0)
    torch.testing.assert_close(kernels.linear(x, weight, bias), bias.expand(3, 5))


@needs_compiler
@pytest.mark.parametrize("gated", [False, True])
def test_feed_forward(gated):
    x, down = random(6, 10, 16), random(16, 40)
    up = random(80 if gated else 40, 16)
    up_bias, down_bias = (None, None) if gated else (random(40), random(16))
    p = 0.2 if gated else 0.0
    inner = F.linear(x, up, up_bias)
    if gated:
        inner = F.gelu(inner[..., :40]) * inner[..., 40:] * dropout_factors((60, 40), KEY, p).view(6, 10, 40)
    else:
        inner = F.gelu(inner)
    plain = F.linear(inner, down, down_bias)
    inputs = [t for t in (x, up, up_bias, down, down_bias) if t is not None]
    compare(kernels.feed_forward(x, up, up_bias, down, down_bias, gated=gated, p=p, key=KEY), plain, inputs, atol=5e-4)


@needs_compiler
@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("with_bias", [False, True])
def test_residual_dropout_norm(p, with_bias):
    x, residual, weight = random(5, 7, 24), random(5, 7, 24), random(24)
    bias = random(24) if with_bias else None
    total = residual + x * (dropout_factors(x.shape, KEY, p) if p else 1.0)
    normed, kept = kernels.dropout_add_norm(x, residual, weight, bias, 1e-5, p, KEY)
    inputs = [x, residual, weight, *([bias] if with_bias else [])]
    # Both outputs are used, as in a pre-norm block.
    compare(
        torch.cat([normed, kept]), torch.cat([F.layer_norm(total, (24,), weight, bias, 1e-5), total]), inputs, atol=1e-4
    )


@needs_compiler
@pytest.mark.parametrize("p", [0.0, 0.25])
@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_attention(p, window, rotary, padded):
    B, L, H, S = 3, 13, 2, 8
    qkv = random(B, L, 3, H, S)
    mask = torch.ones(B, L, dtype=torch.bool)
    mask[1, 9:] = False
    angle = torch.outer(torch.arange(L).float(), 1.0 / 100.0 ** (torch.arange(S // 2) / (S // 2)))
    tables = (angle.cos(), angle.sin()) if rotary else None
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    if tables:
        q, k = rotate(q, tables), rotate(k, tables)
    position = torch.arange(L)
    seen = torch.ones(B, 1, L, L, dtype=torch.bool)
    if padded:
        seen &= mask[:, None, None, :]
    if window:
        seen &= (position[:, None] - position).abs() <= window
    probabilities = ((q @ k.mT) * S**-0.5).masked_fill(~seen, -1e30).softmax(-1) * seen
    if p:
        probabilities = probabilities * dropout_factors(probabilities.shape, KEY, p)
    plain = (probabilities @ v).transpose(1, 2).reshape(B, L, H * S)
    ours = attend(qkv, mask if padded else None, tables, window, p, KEY)
    compare(ours, plain, [qkv], atol=1e-4)


@needs_compiler
@pytest.mark.parametrize("bytes_of_logits", [2**25, 4096])
def test_vocabulary_loss(bytes_of_logits, monkeypatch):
    monkeypatch.setattr(kernels, "LOGITS_BYTES", bytes_of_logits)  # whole, and a few rows at a time
    K, V, E = 40, 333, 16
    hidden, table, bias = random(K, E), random(V, E), random(V)
    targets, weights = torch.randint(0, V, (K,)), torch.rand(K)
    loss, losses, _, likeliest = kernels.vocabulary_loss(hidden, table, bias, targets, torch.rand(K), weights)
    logits = F.linear(hidden, table, bias)
    plain = F.cross_entropy(logits, targets, reduction="none")
    torch.testing.assert_close(losses, plain, atol=2e-5, rtol=1e-5)
    assert torch.equal(likeliest, logits.argmax(-1))
    ours = torch.autograd.grad(3.0 * loss, [hidden, table, bias])
    for a, b in zip(ours, torch.autograd.grad(3.0 * (plain * weights).sum(), [hidden, table, bias]), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@needs_compiler
def test_vocabulary_samples_are_the_inverse_cdf():
    K, V = 4000, 700
    logits = torch.randn(V) * 2
    logits[5] = -torch.inf
    uniforms = torch.linspace(0.0, 1.0 - 1e-7, K)
    hidden, zero = torch.ones(K, 1), torch.zeros(V, 1)
    samples = kernels.vocabulary_loss(hidden, zero, logits, torch.zeros(K, dtype=torch.long), uniforms, uniforms)[2]
    ends = logits.double().softmax(0).cumsum(0)
    expected = torch.searchsorted(ends, uniforms.double(), right=True)
    assert (samples == expected).float().mean() > 0.998  # rounding moves a boundary now and then
    assert (samples != 5).all()
    assert samples.max() < V


def test_dropout_rate_and_independence():
    shape = (400, 500)
    one, two = (dropout_factors(shape, dropout_key(0.1, torch.empty(0)), 0.1) for _ in range(2))
    for factors in (one, two):
        assert factors.unique().tolist() == pytest.approx([0.0, 1 / 0.9])
        dropped = (factors == 0).double()
        assert abs(dropped.mean() - 0.1) < 5 * (0.09 / factors.numel()) ** 0.5
        assert (dropped.mean(0) - 0.1).abs().max() < 6 * (0.09 / 400) ** 0.5  # no column is special
        for shift in (1, 2, 64, 500):  # neighbours in memory have nothing to do with each other
            flat = dropped.flatten() - 0.1
            assert abs((flat[:-shift] * flat[shift:]).mean()) < 5 * 0.09 / factors.numel() ** 0.5
    both = ((one == 0) & (two == 0)).double().mean()
    assert abs(both - 0.01) < 5 * (0.0099 / one.numel()) ** 0.5


@needs_compiler
def test_dropout_kernel_has_the_same_mask():
    x = random(33, 130)
    compare(dropout(x, 0.1, KEY), x * dropout_factors(x.shape, KEY, 0.1), [x])


PROGRAM = """
import dataclasses, torch
from conftest import small_model
from electra.model.encoder import Encoder
torch.manual_seed(0)
for blocks in ("classic", "modern"):
    encoder = Encoder(dataclasses.replace(small_model(blocks).discriminator, vocab_size=30))
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    ids = torch.randint(0, 30, (3, 12))
    mask = torch.ones(3, 12, dtype=torch.bool); mask[1, 8:] = False
    y = encoder(ids, mask)
    (y * mask[..., None]).square().sum().backward()
    print(*[f"{float(p.grad.double().norm()):.5e}" for p in encoder.parameters() if p.grad is not None])
"""


@needs_compiler
def test_without_compiler_the_same_numbers_with_the_same_dropout():
    found = []
    for switch in ("on", "off"):
        environment = {**os.environ, "ELECTRA_KERNELS": switch, "PYTHONPATH": os.pathsep.join(sys.path)}
        result = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
        )
        found.append([float(number) for number in result.stdout.split()])
    assert len(found[0]) > 20
    assert found[0] == pytest.approx(found[1], rel=1e-3)


def test_a_broken_compiler_is_a_warning_and_no_more(tmp_path):
    program = (
        "import warnings; warnings.simplefilter('always'); from electra.model.native import library; print(library())"
    )
    environment = {**os.environ, "CXX": "false", "ELECTRA_CACHE": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "None"
    assert "plain torch operations" in result.stderr


# ------------------------------------------------------------------------------------------------------------- bfloat16


def bfloat16_cases():
    """name -> (function of the inputs, inputs); the dropout keys are fixed, so both precisions drop the same."""
    x, residual, qkv = random(4, 9, 32), random(4, 9, 32), random(3, 17, 3, 2, 8)
    weight, bias, up, down = random(24, 32), random(24), random(80, 32, scale=0.2), random(32, 40, scale=0.2)
    scale, shift, mask = random(32), random(32), torch.rand(3, 17) > 0.2
    table, table_bias, uniforms = random(50, 32, scale=0.3), random(50), torch.rand(36)
    targets, weights = torch.randint(50, (36,)), torch.rand(36)
    return {
        "dropout": (lambda x: dropout(x, 0.3, KEY), [x]),
        "linear": (kernels.linear, [x, weight, bias]),
        "gelu": (kernels.gelu, [x]),
        "gated": (lambda x, u, d: kernels.feed_forward(x, u, None, d, None, gated=True, p=0.2, key=KEY), [x, up, down]),
        "norm": (lambda *a: kernels.dropout_add_norm(*a, 1e-6, 0.2, KEY)[0], [x, residual, scale, shift]),
        "sum": (lambda *a: kernels.dropout_add_norm(*a, 1e-6, 0.2, KEY)[1], [x, residual, scale, shift]),
        "attention": (lambda qkv: attend(qkv, mask, None, 5, 0.2, KEY), [qkv]),
        "vocabulary": (
            lambda h, t, b: kernels.vocabulary_loss(h.flatten(0, 1), t, b, targets, uniforms, weights)[0],
            [x, table, table_bias],
        ),
    }


@needs_compiler
@pytest.mark.parametrize("units", [False, True])
@pytest.mark.parametrize("name", list(bfloat16_cases()))
def test_bfloat16_is_float32_rounded(name, units, monkeypatch):
    """With and without the processor's own bfloat16 products: torch's, which are slow without the units but as right."""
    monkeypatch.setattr(kernels, "has_bfloat16_units", lambda: units)
    function, inputs = bfloat16_cases()[name]
    exact = function(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = function(*inputs)
    assert rounded.dtype == (torch.float32 if name == "vocabulary" else torch.bfloat16)
    weights = torch.randn(exact.shape)
    inputs = [t for t in inputs if name != "sum" or t.ndim == 3]  # the sum comes before the norm's weights
    found = torch.autograd.grad((rounded.float() * weights).sum(), inputs)
    wanted = torch.autograd.grad((exact * weights).sum(), inputs)
    for a, b in zip([rounded, *found], [exact, *wanted], strict=True):
        assert (a.float() - b).norm() < 0.01 * b.norm()
        assert not torch.equal(a.float(), b)  # it did run in bfloat16
    assert all(g.dtype == torch.float32 for g in found)


@needs_compiler
def test_bfloat16_weights_are_read_anew():
    """Fused optimizers do not count their changes of a weight: a rounded copy must not outlive the forward pass."""
    x, weight = torch.eye(4), torch.nn.Parameter(torch.eye(4))
    optimizer = torch.optim.AdamW([weight], lr=0.5, fused=True)
    with torch.autocast("cpu", torch.bfloat16):
        before = kernels.linear(x, weight)
        before.sum().backward()
        optimizer.step()
        after = kernels.linear(x, weight)
    assert not torch.equal(before, after)
    torch.testing.assert_close(after.float(), weight.detach().t(), atol=0.01, rtol=0.01)
