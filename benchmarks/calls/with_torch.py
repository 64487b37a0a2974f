"""Calls on torch tensors, with and without gradient, beside torch's own operation and the lightest ways to register one's own.

"registered" is an operator of `torch.library.Library` (define and impl), "Function" a `torch.autograd.Function`; both are around
the same compiled function called by its addresses, and nothing else: what is under that is torch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tensorexpr.benchmarks.calls.square import COUNT, square
from tensorexpr.interop.torch import as_torch
from tensorexpr.op.transforms import vjp

_LIBRARY = torch.library.Library("tensorexpr_bench", "FRAGMENT")


def calls() -> dict[str, Callable[[], object]]:
    """A call without gradient, one that is recorded, and one with the way back."""
    torch.set_num_threads(1)
    x, head = torch.linspace(0, 1, COUNT), torch.ones(COUNT)
    w = x.clone().requires_grad_()
    ours, forward, backward = as_torch(square), _bare(square.compile(((COUNT,), "float32"))), _bare(_pulled())

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, head: torch.Tensor) -> torch.Tensor:
            return backward(*ctx.saved_tensors, head)

    if not hasattr(torch.ops.tensorexpr_bench, "square"):
        _LIBRARY.define("square(Tensor x) -> Tensor")
        _LIBRARY.impl("square", forward, "CPU")
    registered = torch.ops.tensorexpr_bench.square.default
    grad = torch.autograd.grad
    return {
        "x * x": lambda: x * x,
        "as_torch(op)": lambda: ours(x),
        "op": lambda: square(x),
        "registered": lambda: registered(x),
        "x * x, recorded": lambda: w * w,
        "as_torch(op), recorded": lambda: ours(w),
        "Function, recorded": lambda: Function.apply(w),
        "x * x, and back": lambda: grad(w * w, w, head),
        "as_torch(op), and back": lambda: grad(ours(w), w, head),
        "Function, and back": lambda: grad(Function.apply(w), w, head),
    }


def _pulled() -> Any:
    return vjp(square, wrt="x").compile(((COUNT,), "float32"), ((COUNT,), "float32"))


def _bare(function: Any) -> Callable[..., torch.Tensor]:
    """A compiled function as one of tensors of one shape, by their addresses."""
    enter = function.entry(function.layout(tuple((COUNT,) for _ in function.signature.inputs)))

    def call(*tensors: torch.Tensor) -> torch.Tensor:
        result = torch.empty_like(tensors[0])
        enter([tensor.data_ptr() for tensor in tensors], [result.data_ptr()])
        return result

    return call
