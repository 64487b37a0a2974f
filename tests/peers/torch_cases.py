"""Ops and the same in torch, with example arguments, for the tests of `tensorexpr.interop.torch`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import tensorexpr as te

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make test-peers installs it)")

from tensorexpr.interop.torch import as_torch  # noqa: E402

__all__ = ["CASES", "Case", "as_torch", "mixed", "moments", "torch"]


@dataclass(frozen=True)
class Case:
    """`theirs` gives what `op` gives; `shapes` are those of its floating arguments, `integers` behind them those of indices below 3."""

    op: te.Op
    theirs: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    integers: tuple[tuple[int, ...], ...] = ()
    static: tuple[tuple[str, Any], ...] = ()

    def tensors(self, *, requires_grad: bool = False, dtype: Any = torch.float64) -> list[Any]:
        generator = torch.Generator().manual_seed(5)
        floats = [torch.randn(shape, generator=generator, dtype=dtype, requires_grad=requires_grad) for shape in self.shapes]
        return [*floats, *(torch.randint(0, 3, shape, generator=generator) for shape in self.integers)]


@te.op
def mixed(x, w, *, factor=1.0):
    return te.compute((w.shape[0],), lambda i: te.sum(lambda k: te.tanh(factor * x[k] * w[i, k]), x.shape[0]))


@te.op
def correlation(a, b, *, radius=1):
    (n,) = a.shape
    return te.compute((n, 2 * radius + 1), lambda i, d: a[i] * b.read(i + d - radius, outside=0.0))


@te.op
def looked_up(table, ids):
    return te.compute((ids.shape[0], table.shape[1]), lambda i, j: te.sin(table[ids[i], j]))


@te.op
def recurrence(x, start):
    return te.scan(lambda t, s: te.compute(start.shape, lambda i: te.sin(s[i]) + x[t, i]), start, x.shape[0])


@te.op
def moments(x):
    n = x.shape[0]
    mean = te.compute((), lambda: te.sum(lambda i: x[i], n) / n)
    return mean, te.compute((), lambda: te.sum(lambda i: (x[i] - mean[()]) ** 2, n)), te.compute((), lambda: te.argmax(lambda i: x[i], n))


def twice_the_truth(y, inputs, head):
    (x,) = inputs
    return [te.compute(x.shape, lambda i: 2 * head[i] * te.exp(x[i]))]


@te.op(gradient=twice_the_truth)
def ruled(x):
    return te.compute(x.shape, lambda i: te.exp(x[i]))


class TwiceTheTruth(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, head):
        return 2 * head * ctx.saved_tensors[0].exp()

    @staticmethod
    def jvp(ctx, tangent):
        return 2 * tangent * ctx.saved_tensors[0].exp()


def shifted(a, b, radius=1):
    padded = torch.nn.functional.pad(b, (radius, radius))
    return torch.stack([a * padded[d : d + a.shape[0]] for d in range(2 * radius + 1)], -1)


def stepped(x, start):
    states = []
    for row in x:
        start = start.sin() + row
        states.append(start)
    return torch.stack(states)


CASES = {
    "mixed": Case(mixed, lambda x, w, factor=1.0: torch.tanh(factor * x * w).sum(-1), ((4,), (3, 4))),
    "static": Case(mixed, lambda x, w, factor=1.0: torch.tanh(factor * x * w).sum(-1), ((4,), (3, 4)), static=(("factor", 0.5),)),
    "correlation": Case(correlation, shifted, ((5,), (5,)), static=(("radius", 2),)),
    "looked_up": Case(looked_up, lambda table, ids: table[ids].sin(), ((3, 2),), ((5,),)),
    "recurrence": Case(recurrence, stepped, ((3, 2), (2,))),
    "moments": Case(moments, lambda x: (x.mean(), ((x - x.mean()) ** 2).sum(), x.argmax()), ((6,),)),
    "ruled": Case(ruled, TwiceTheTruth.apply, ((4,),)),
}
