"""Models compiled by `torch.compile(..., backend="tensorexpr")`: steps of training and inference beside eager PyTorch."""

from __future__ import annotations

import copy
import dataclasses
import importlib.metadata
import logging
import math
import random
import tomllib
from itertools import combinations, cycle, pairwise
from pathlib import Path

import pytest

import tensorexpr as te

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make test-peers installs it)")

from torch import nn  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tensorexpr.interop.torch import as_torch  # noqa: E402
from tensorexpr.interop.torch.backend import TABLE, backend, cuts  # noqa: E402
from tensorexpr.interop.torch.backend.graphs import compile_graph  # noqa: E402
from tensorexpr.interop.torch.backend.lowering import lower  # noqa: E402

STRICT = {"fallback": False}


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(function, **options):
    return torch.compile(function, backend=backend, options=options or STRICT)


class Net(nn.Module):
    """Convolutions, norms of batches, pools, a residual, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.second, self.other = nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.GroupNorm(2, 8)
        self.head, self.drop = nn.Linear(8, 5), nn.Dropout(0.25)

    def forward(self, x):
        h = F.max_pool2d(F.relu(self.norm(self.first(x))), 3, 2, 1)
        h = F.silu(self.other(self.second(h))) + h
        return self.head(self.drop(F.adaptive_avg_pool2d(h, 1).flatten(1)))


class Block(nn.Module):
    """A transformer on tokens: embedding, attention, layer norm, GELU, dropout, tied weights."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.table, self.place = nn.Embedding(11, 16), nn.Parameter(torch.randn(6, 16) * 0.1)
        self.one, self.two = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down, self.drop = nn.Linear(16, 32), nn.Linear(32, 16), nn.Dropout(dropout)
        self.rate = dropout

    def forward(self, ids):
        x = self.table(ids) + self.place
        b, n, d = x.shape
        q, k, v = self.qkv(self.one(x)).view(b, n, 3, 2, d // 2).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.rate if self.training else 0.0)
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(b, n, d)))
        x = x + self.drop(self.down(F.gelu(self.up(self.two(x)))))
        return x @ self.table.weight.t()


class Recurrent(nn.Module):
    """A loop over an LSTM cell, and one over a GRU cell behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru, self.head = nn.LSTMCell(4, 6), nn.GRUCell(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], 6)
        g = x.new_zeros(x.shape[0], 5)
        for t in range(x.shape[1]):
            h, c = self.lstm(x[:, t], (h, c))
            g = self.gru(h, g)
        return self.head(g)


def mlp():
    return nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 32), nn.LeakyReLU(0.1), nn.Dropout(0.2), nn.Linear(32, 4))


def image():
    return torch.randn(4, 3, 9, 8)


MODELS = {
    "mlp": (mlp, lambda: torch.randn(7, 12)),
    "convolutions": (Net, image),
    "channels_last": (Net, lambda: image().to(memory_format=torch.channels_last)),
    "transformer": (Block, lambda: torch.randint(0, 11, (2, 6))),
    "transformer without dropout": (lambda: Block(0.0), lambda: torch.randint(0, 11, (2, 6))),
    "recurrent": (Recurrent, lambda: torch.randn(3, 4, 4)),
}


@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", MODELS)
def test_training_and_inference_are_those_of_eager_mode(name, kind):
    make, inputs = MODELS[name]
    ours = make().to(kind)
    x = inputs()
    if name == "channels_last":
        ours = ours.to(memory_format=torch.channels_last)
    x = x.to(kind) if x.is_floating_point() else x
    theirs = copy.deepcopy(ours)
    fast = compiled(ours)
    tolerance = {"rtol": 1e-9, "atol": 1e-11} if kind == torch.float64 else {"rtol": 2e-4, "atol": 2e-6}
    found = []
    for model, call in ((ours, fast), (theirs, theirs)):
        torch.manual_seed(1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            y = call(x)
            y.square().mean().backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            z = call(x)
        found.append([y.detach(), z, *(p.grad for p in model.parameters()), *model.buffers()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, **tolerance)
        assert one.stride() == other.stride() or 1 in one.shape


def test_an_optimizer_is_one_program():
    """Compiled by anyone it counts steps in float32; eager mode does so in Python's numbers."""
    models = [mlp().double().eval()]
    models += [copy.deepcopy(models[0]) for _ in range(2)]
    steps = [torch.optim.AdamW(m.parameters(), lr=1e-2, weight_decay=0.1).step for m in models]
    calls = [compiled(lambda: steps[0]()), torch.compile(lambda: steps[1](), backend="aot_eager"), steps[2]]
    x = torch.randn(5, 12, dtype=torch.float64)
    for _ in range(3):
        for model, call in zip(models, calls, strict=True):
            model.zero_grad()
            model(x).square().sum().backward()
            call()
    for one, other, eager in zip(*(m.parameters() for m in models), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(one, eager, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["AdamW", "SGD", "RMSprop"])
def test_an_optimizer_on_lists_of_tensors(kind):
    """`foreach=True`: operators on lists are operators on each, in one program."""
    options = {"AdamW": {"amsgrad": True}, "SGD": {"momentum": 0.9, "nesterov": True}, "RMSprop": {"centered": True}}[kind]
    models = [mlp().double().eval()]
    models.append(copy.deepcopy(models[0]))
    steps = [getattr(torch.optim, kind)(m.parameters(), lr=1e-2, weight_decay=0.1, foreach=True, **options).step for m in models]
    calls = [compiled(lambda: steps[0]()), torch.compile(lambda: steps[1](), backend="aot_eager")]
    x = torch.randn(5, 12, dtype=torch.float64)
    for _ in range(3):
        for model, call in zip(models, calls, strict=True):
            model.zero_grad()
            model(x).square().sum().backward()
            call()
    for one, other in zip(*(m.parameters() for m in models), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_open_sizes_are_compiled_once():
    ours = mlp().double().eval()
    calls = []

    def counted(module, inputs, **options):
        calls.append(1)
        return backend(module, inputs, **options)

    fast = torch.compile(ours, backend=counted, dynamic=True, options=STRICT)
    for rows in (3, 7, 4, 12):
        before = len(calls)
        x = torch.randn(rows, 12, dtype=torch.float64, requires_grad=True)
        y = fast(x)
        torch.testing.assert_close(y, ours(x))
        (found,) = torch.autograd.grad(y.square().sum(), x)
        (wanted,) = torch.autograd.grad(ours(x).square().sum(), x)
        torch.testing.assert_close(found, wanted)
        assert rows == 3 or len(calls) == before


def test_sizes_that_are_computed():
    def f(x, k):
        return torch.cat([x.reshape(-1), x.sum(1)]) * x.shape[0] + k

    fast = torch.compile(f, backend=backend, dynamic=True, options=STRICT)
    for rows, columns, k in ((3, 4, 2), (5, 6, 7), (2, 9, 3)):
        x = torch.randn(rows, columns, dtype=torch.float64)
        torch.testing.assert_close(fast(x, k), f(x, k))


def test_integers_of_either_sign():
    def f(x, shift, at, wide):
        return torch.roll(x, shift, -1)[..., at:].sum() + F.pad(x, (wide, 2)).mean(-1) * shift

    fast = torch.compile(f, backend=backend, dynamic=True, options=STRICT)
    shapes = cycle(((5, 8), (4, 9)))
    for shift, at, wide in ((3, 2, 3), (-3, 2, 3), (5, -3, -2), (-7, -4, -1), (0, 1, 4)):
        x = torch.randn(next(shapes), dtype=torch.float64, requires_grad=True)
        found, wanted = fast(x, shift, at, wide), f(x, shift, at, wide)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(torch.autograd.grad(found.sum(), x), torch.autograd.grad(wanted.sum(), x))


def test_numbers_that_are_ratios_of_sizes():
    taps = torch.randn(3, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))

    def f(x):
        rows, columns = x.shape[2:]
        small = F.interpolate(x[:, :, ::2, ::2], size=(rows, columns), mode="bilinear")
        mixed = x.flatten(2).view_as(x) * torch.arange(1.0, 1 + columns)
        seen = F.conv1d(x.flatten(2), taps, padding=1).view_as(x)  # places of a product of sizes
        return small * (rows / columns) + math.sqrt(rows) * seen + F.scaled_dot_product_attention(mixed, x, mixed, is_causal=True)

    fast = torch.compile(f, backend=backend, dynamic=True, options=STRICT)
    for rows, columns in ((8, 11), (5, 6)):
        x, y = (torch.randn(2, 3, rows, columns, generator=torch.Generator().manual_seed(1)).double().requires_grad_() for _ in range(2))
        found, wanted = fast(x), f(y)
        torch.testing.assert_close(found, wanted)
        found.square().sum().backward()
        wanted.square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


class Attention(nn.Module):
    """Causal attention whose mask and positions are the first rows of tables."""

    def __init__(self, most=64, width=8, heads=2):
        super().__init__()
        self.projected, self.heads = nn.Linear(width, 3 * width), heads
        self.positions = nn.Parameter(torch.randn(most, width))
        self.register_buffer("mask", torch.tril(torch.ones(1, 1, most, most)))

    def forward(self, x):
        samples, length, width = x.shape
        parts = self.projected(x + self.positions[:length]).split(width, 2)
        q, k, v = (part.view(samples, length, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        scores = (q @ k.transpose(2, 3) / math.sqrt(k.size(-1))).masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
        mixed = scores.softmax(-1) @ v + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(samples, length, width)


def test_rows_of_a_table_that_there_are_at_most():
    """A part of a table of known size is in bounds, for torch has made a guard of it. Lengths of 1 are a graph of their own."""
    ours = Attention().double()
    fast = torch.compile(ours, backend=backend, dynamic=True, options=STRICT)
    for length in (5, 64, 1):
        x = torch.randn(2, length, 8, dtype=torch.float64)
        found, wanted = fast(x), ours(x)
        torch.testing.assert_close(found, wanted)
        parameters = list(ours.parameters())
        for one, other in zip(*(torch.autograd.grad(y.square().sum(), parameters) for y in (found, wanted)), strict=True):
            torch.testing.assert_close(one, other)


def test_a_number_of_every_open_size():
    """The scale of attention is a root of a root where the width of heads is open, too."""

    def f(q, k, v):
        return F.scaled_dot_product_attention(q, k, v)

    fast = torch.compile(f, backend=backend, dynamic=True, options=STRICT)
    for shape in ((2, 3, 5, 7), (4, 2, 9, 6)):
        parts = [torch.randn(shape, dtype=torch.float64) for _ in range(3)]
        torch.testing.assert_close(fast(*parts), f(*parts))


def test_sizes_that_torch_has_related():
    """Parts, gathers and scatters whose extents are open are in bounds by torch's guards, for their forms do not show it."""

    def f(x, y, index):
        part = x[: y.shape[0]] * y
        sent = x.scatter_add(1, index, index.to(x.dtype)).scatter(0, index % x.shape[0], 2.5)
        return part, x.gather(1, index), sent, x.flip(0)[y.shape[0] - 1 :]

    fast = torch.compile(f, backend=backend, dynamic=True, options=STRICT)
    for rows, columns, own, down, across in ((7, 6, 3, 4, 5), (33, 17, 5, 20, 11)):
        x, y = torch.randn(rows, columns, dtype=torch.float64, requires_grad=True), torch.randn(own, columns, dtype=torch.float64)
        index = torch.randint(0, columns, (down, across))
        found, wanted = fast(x, y, index), f(x, y, index)
        torch.testing.assert_close(found, wanted)
        one, other = (torch.autograd.grad(sum(t.square().sum() for t in ys), x) for ys in (found, wanted))
        torch.testing.assert_close(one, other)


def test_a_convolution_by_a_part_of_its_input():
    """The derivative by the input is that with the weights held, which are made of it; each is counted once."""
    x = torch.randn(2, 3, 5, 4, dtype=torch.float64, requires_grad=True)

    def f(x):
        return F.conv2d(x, x[:1, :, :2, :2]), F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1).tanh(), align_corners=False)

    found, wanted = torch.compile(f, backend=backend, options=STRICT)(x), f(x)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(
            torch.autograd.grad(one.square().sum(), x, retain_graph=True), torch.autograd.grad(other.square().sum(), x)
        )


def test_signs_of_what_is_no_number():
    """Torch has 0, and so has the derivative of `abs`."""
    x = torch.tensor([2.0, math.nan, -0.0, -math.inf], requires_grad=True)
    fast = torch.compile(lambda x: (x.sign(), x.sgn(), x.half().sign(), x.abs()), backend=backend, options=STRICT)
    *signs, size = fast(x)
    for sign in signs:
        assert sign.tolist() == [1, 0, 0, -1]
    assert torch.autograd.grad(size.sum(), x)[0].tolist() == [1, 0, 0, -1]


def test_a_definition_that_fails_is_run_by_torch(monkeypatch, caplog):
    monkeypatch.setitem(TABLE, "aten.tanh.default", lambda result, x: {}["missing"])
    monkeypatch.delenv("TENSOREXPR_STRICT", raising=False)
    x = torch.randn(4, 6)
    with caplog.at_level(logging.WARNING, logger="tensorexpr.torch"):
        found = torch.compile(lambda x: torch.tanh(x) * 2, backend=backend)(x)
    torch.testing.assert_close(found, torch.tanh(x) * 2)
    assert any("aten.tanh.default ('missing')" in r.getMessage() for r in caplog.records)


def test_what_has_no_definition_is_run_by_torch_and_said_once(caplog):
    def f(x):
        y = torch.tanh(x) * 2
        z = torch.fft.rfft(y).abs()
        return z.sum(-1) + y.sum(-1) * 3

    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    with caplog.at_level(logging.WARNING, logger="tensorexpr.torch"):
        found = torch.compile(f, backend=backend)(x)
    (line,) = [r.getMessage() for r in caplog.records if r.name == "tensorexpr.torch"]
    assert "are run by PyTorch" in line and "_fft_r2c" in line and "tanh" not in line
    torch.testing.assert_close(found, f(x))
    torch.testing.assert_close(torch.autograd.grad(found.sum(), x)[0], torch.autograd.grad(f(x).sum(), x)[0])
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"expected a definition of every operator, got none of aten\._fft_r2c\.default"):
        compiled(f)(x)


def test_draws_keep_their_order_between_regions():
    def f(x):
        y = F.dropout(torch.tanh(x), 0.4) + torch.rand_like(x)
        return y * torch.bernoulli(torch.sigmoid(y)) + torch.randn_like(y)

    x = torch.randn(5, 7, dtype=torch.float64)
    fast = torch.compile(f, backend=backend)
    for seed in (1, 2):
        torch.manual_seed(seed)
        found = fast(x)
        state = torch.get_rng_state()
        torch.manual_seed(seed)
        torch.testing.assert_close(found, f(x))
        assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    "lying",
    [lambda x: x, lambda x: x.to(memory_format=torch.channels_last), lambda x: x.transpose(0, 3), lambda x: x[:1].expand(3, -1, -1, -1)],
)
@pytest.mark.parametrize(
    "draw",
    [
        lambda x: F.dropout(x, 0.3),
        lambda x: F.alpha_dropout(x, 0.3, True),
        lambda x: x.clone().uniform_(),
        lambda x: x.clone().normal_(),
        lambda x: x.clone().exponential_(),
        torch.rand_like,
    ],
)
def test_draws_are_in_the_order_in_which_a_tensor_lies(draw, lying):
    x, found = lying(torch.ones(2, 8, 3, 5)), []
    for function in (draw, compiled(draw)):
        torch.manual_seed(1)
        found.append((function(x), torch.rand(1)))
    (wanted, after), (ours, next_) = found
    torch.testing.assert_close(ours, wanted)
    assert ours.stride() == wanted.stride() and torch.equal(next_, after)


def test_arguments_that_are_changed_and_results_that_share_memory():
    def f(x, y):
        x.add_(1)
        x[0].mul_(2)
        z = x * y
        return z, z.t(), x[1:], y.view(-1), z[:, :2]

    fast = compiled(f)
    for _ in range(2):
        x, y = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
        mine, other = x.clone(), y.clone()
        found, wanted = fast(x, y), f(mine, other)
        torch.testing.assert_close(x, mine)
        for one, two in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, two)
            assert one.stride() == two.stride()
        assert (
            found[1].data_ptr() == found[0].data_ptr() and found[2].data_ptr() == x[1:].data_ptr() and found[3].data_ptr() == y.data_ptr()
        )


def test_tensors_that_lie_otherwise_than_the_graph_was_made_for():
    def f(x, w):
        return torch.tanh(x) @ w

    fast = compiled(f)
    base = torch.randn(6, 8, dtype=torch.float64)
    for x in (base[:, :5], base[::2, 1:6], base.t()[:5, :5].t(), base[:1, :5].expand(4, 5), base[:, 2:7]):
        w = torch.randn(3, 5, dtype=torch.float64).t()
        torch.testing.assert_close(fast(x, w), f(x, w))


def test_autocast():
    ours = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
    theirs = copy.deepcopy(ours)
    fast = compiled(ours)
    x = torch.randn(8, 16)
    for call in (fast, theirs):
        with torch.autocast("cpu", torch.bfloat16):
            y = call(x)
        assert y.dtype == torch.bfloat16
        y.float().square().mean().backward()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=5e-2, atol=2e-3)


@te.op
def windowed(x, w):
    return te.compute(x.shape, lambda b, i: te.sum(lambda k: w[k] * te.tanh(x.read(b, i + k - 1, outside=0.0)), 3))


@pytest.mark.parametrize(
    "made", [as_torch, lambda op: op, lambda op: te.op(op.__wrapped__)], ids=["as_torch", "the op", "an op made later"]
)
def test_our_own_ops_are_composed_with_what_surrounds_them(made):
    ours = made(windowed)

    def f(x, w):
        return torch.relu(ours(x * 2, w)) + x

    def plain(x, w):
        t = F.pad(torch.tanh(x * 2), (1, 1))
        return torch.relu(sum(w[k] * t[:, k : k + x.shape[1]] for k in range(3))) + x

    x = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    w = torch.randn(3, dtype=torch.float64, requires_grad=True)
    y = torch.compile(f, backend=backend, options=STRICT, fullgraph=True)(x, w)
    torch.testing.assert_close(y, plain(x, w))
    for one, other in zip(torch.autograd.grad(y.sum(), (x, w)), torch.autograd.grad(plain(x, w).sum(), (x, w)), strict=True):
        torch.testing.assert_close(one, other)


def test_a_model_without_draws_is_two_programs(monkeypatch):
    """Attention among the rest: torch marks it as one that may draw."""
    calls = []

    def counted(nodes, wanted, *rest):
        calls.append([str(node.target) for node in nodes])
        return lower(nodes, wanted, *rest)

    monkeypatch.setattr("tensorexpr.interop.torch.backend.regions.lower", counted)
    compiled(Block(0.0))(torch.randint(0, 11, (2, 6))).sum().backward()
    assert len(calls) == 2
    assert [any("flash_attention" in name for name in names) for names in calls] == [True, True]


def test_the_backward_program_runs_no_forward_again():
    graphs = []

    def kept(module, inputs, **options):
        graphs.append([str(n.target) for n in module.graph.nodes if n.op == "call_function"])
        return compile_graph(module, inputs, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tensorexpr.interop.torch.backend.graphs.compile_graph", kept)
        compiled(Net())(image()).sum().backward()
    forward, backward = graphs
    for name in ("aten.convolution.default", "aten.max_pool2d_with_indices.default", "aten._native_batch_norm_legit_functional.default"):
        assert name in forward and name not in backward
    assert "aten.convolution_backward.default" in backward


def test_a_graph_may_be_differentiated_again():
    network, x = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Softmax(-1)), torch.randn(4, 6)
    eager, ours = network(x), compiled(network)(x)
    for head in torch.randn(3, 4, 8):
        wanted = torch.autograd.grad(eager, list(network.parameters()), head, retain_graph=True)
        found = torch.autograd.grad(ours, list(network.parameters()), head, retain_graph=True)
        torch.testing.assert_close(found, wanted)


def test_memory_of_arguments_is_free_when_the_program_has_run():
    def f(x):
        return torch.tanh(x)

    made = []

    def kept(module, inputs, **options):
        made.append(compile_graph(module, inputs, **options))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr("tensorexpr.interop.torch.backend.graphs.compile_graph", kept)
        compiled(f)(torch.randn(4))
    arguments = [torch.randn(4)]
    made[0](arguments)
    assert arguments == [] and made[0]._boxed_call


def test_what_was_saved_is_freed_on_the_way_back(monkeypatch):
    """A deep backward graph is several programs, and none holds what was saved for those before it."""
    made, held = [], []

    def watched(*given):
        lowered = lower(*given)

        def call(*tensors):
            results = lowered.call(*tensors)
            made.extend([] if made else [StorageWeakRef(one.untyped_storage()) for one in results])
            held.append(sum(not one.expired() for one in made))
            return results

        return dataclasses.replace(lowered, call=call)

    monkeypatch.setattr("tensorexpr.interop.torch.backend.regions.lower", watched)
    network = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(512, 512), nn.GELU())))
    ours, x = copy.deepcopy(network), torch.randn(512, 512)
    network(x).square().sum().backward()
    compiled(ours)(x).square().sum().backward()
    for one, other in zip(ours.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-3)
    assert len(held) > 3
    assert held == sorted(held, reverse=True)
    assert held[-1] <= held[0] // 2


def test_a_backward_graph_is_cut_where_that_needs_least_memory(monkeypatch):
    """Of all ways to cut small graphs into as many parts none needs less."""
    monkeypatch.setattr(cuts, "_EACH", 3)
    draw = random.Random(0)
    for _ in range(200):
        count = draw.randint(1, 8)
        held = sorted((draw.randrange(100) for _ in range(count + 1)), reverse=True)
        given = sorted(draw.randrange(100) for _ in range(count + 1))
        given[0] = 0
        passed = [0, *(draw.randrange(30) for _ in range(count - 1)), 0]
        held[-1] = 0
        held[0] += held[0] + given[-1] == 0

        def need(a, b, held=held, passed=passed, given=given):
            return held[a] + given[b] + max(passed[a] + passed[b], *passed[a : b + 1])

        monkeypatch.setattr(cuts, "_places", lambda *_, all_=(*range(count + 1),): all_)
        found = cuts._cuts(held, passed, given)
        ways = [(0, *way, count) for cuts_ in range(count) for way in combinations(range(1, count), cuts_)]
        needs = {way: max(need(a, b) for a, b in pairwise(way)) for way in ways}
        assert needs[0, *found, count] == min(most for way, most in needs.items() if len(way) == len(found) + 2)


def test_the_name_and_the_options():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    named = project["entry-points"]["torch_dynamo_backends"]
    assert named == {"tensorexpr": "tensorexpr.interop.torch.backend:backend"}
    entry = importlib.metadata.EntryPoint("tensorexpr", named["tensorexpr"], "torch_dynamo_backends")
    assert entry.load() is backend
    with pytest.raises(Exception) as caught:
        compiled(torch.tanh, fallbck=False)(torch.randn(3))
    assert "expected options among fallback, got 'fallbck'" in str(caught.value) and "fallback" in str(caught.value)
