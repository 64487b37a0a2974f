"""Operators in torch's dispatcher: what torch.compile, torch.export and whoever traces a graph sees of them.

An operator is registered when it is first traced, once per number of outputs: `torch.ops.tensorexpr.matmul`,
`torch.ops.tensorexpr.matmul_vjp_a` and so on; those with the same name get a number, in the order in which they are first met.
Each has a schema, its kernel for CPU and CUDA, shapes for fake tensors, the gradient (the derived operator, registered the same way, so
that there are all orders) and a rule for vmap.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

from tensorexpr.interop.torch.functions import batch
from tensorexpr.traversal import fresh_name

NAMESPACE = "tensorexpr"
_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
_TAKEN: set[str] = set()
_LOCK = threading.RLock()


class Registered:
    """The operators of torch for one of ours, by number of outputs."""

    def __init__(self, operator: Any) -> None:
        self._operator = operator
        self._overloads: dict[int, Any] = {}

    def overload(self, outputs: int) -> Any:
        """The operator of torch with this number of outputs."""
        with _LOCK:
            if outputs not in self._overloads:
                self._overloads[outputs] = _register(self._operator, outputs)
            return self._overloads[outputs]


def _register(operator: Any, outputs: int) -> Any:
    name = fresh_name(operator.operator.mark, _TAKEN)
    arguments = ", ".join(f"Tensor {argument}" for argument in operator.names)
    results = "Tensor" if outputs == 1 else f"({', '.join(['Tensor'] * outputs)})"
    _LIBRARY.define(f"{name}({arguments}) -> {results}", tags=(torch.Tag.pt2_compliant_tag,))

    def given(values: Any) -> Any:
        return values[0] if outputs == 1 else tuple(values)

    def kernel(*tensors: torch.Tensor) -> Any:
        return given(operator.kernel(tensors)(tensors))

    def fake(*tensors: torch.Tensor) -> Any:
        device = tensors[0].device if tensors else "cpu"
        return given([torch.empty(shape, dtype=type_, device=device) for shape, type_ in operator.shapes(tensors)])

    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: Any) -> None:
        ctx.floating = tuple(one.is_floating_point() for one in (output if isinstance(output, tuple) else (output,)))
        ctx.save_for_backward(*inputs)

    def backward(ctx: Any, *heads: torch.Tensor | None) -> Any:
        wanted = tuple(ctx.needs_input_grad)
        present = tuple(head is not None and floats for head, floats in zip(heads, ctx.floating, strict=True))
        if not any(present) or not any(wanted):
            return (None,) * len(wanted)
        seeds = [head for head, there in zip(heads, present, strict=True) if there]
        found = iter(operator.vjp(wanted, present).call((*ctx.saved_tensors, *seeds)))
        return tuple(next(found) if want else None for want in wanted)

    def vmap(info: Any, dims: tuple[int | None, ...], *tensors: torch.Tensor) -> Any:
        found = batch(operator, dims, tensors)
        return given(found), given((0,) * len(found))

    qualified = f"{NAMESPACE}::{name}"
    for key in ("CPU", "CUDA"):
        _LIBRARY.impl(name, kernel, key)
    torch.library.register_fake(qualified, fake, lib=_LIBRARY)
    torch.library.register_autograd(qualified, backward, setup_context=setup_context, lib=_LIBRARY)
    torch.library.register_vmap(qualified, vmap, lib=_LIBRARY)
    return getattr(getattr(torch.ops, NAMESPACE), name).default
