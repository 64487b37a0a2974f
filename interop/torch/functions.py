"""What autograd, forward mode and the transforms of torch.func see: an operator with its derivatives, which are operators again.

Two of a kind. `Recorded` is the short way of eager mode; once the gradient has been compiled, it keeps those inputs alone that the
gradient reads, so that memory of the others is free as soon as nobody else holds it. `Transformed` is
written in the form that torch.func asks for, which takes three times as long to enter; forward mode and batches are there too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Grads = tuple[torch.Tensor | None, ...]


def _keep(ctx: Any, operator: Any, tensors: Sequence[torch.Tensor], outputs: tuple[torch.Tensor, ...]) -> None:
    ctx.operator = operator
    ctx.floating = tuple([output.is_floating_point() for output in outputs])
    if False in ctx.floating:
        ctx.mark_non_differentiable(*[output for output, floats in zip(outputs, ctx.floating, strict=True) if not floats])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)


def _pull_back(ctx: Any, inputs: Sequence[torch.Tensor], heads: Grads) -> Grads:
    """The gradients of the inputs that want one, for those heads that are there; computed by one operator."""
    _, *rest = ctx.needs_input_grad
    wanted = tuple(rest)
    given = tuple([head is not None and floats for head, floats in zip(heads, ctx.floating, strict=True)])
    if True not in given or True not in wanted:
        return (None,) * (1 + len(wanted))
    present = heads if False not in given else [head for head, there in zip(heads, given, strict=True) if there]
    found = ctx.operator.vjp(wanted, given).call((*inputs, *present))
    if False not in wanted:
        return (None, *found)
    several = iter(found)
    return (None, *[next(several) if want else None for want in wanted])


class Recorded(torch.autograd.Function):
    """An operator in eager mode: `Recorded.apply(operator, *tensors)`."""

    @staticmethod
    def forward(ctx: Any, operator: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs: tuple[torch.Tensor, ...] = operator.execute(tensors)
        ctx.read = operator.read_by_gradient(ctx.needs_input_grad[1:], tensors) if operator.spares else None
        if ctx.read is None:
            _keep(ctx, operator, tensors, outputs)
        else:
            _keep(ctx, operator, [tensor for tensor, read in zip(tensors, ctx.read, strict=True) if read], outputs)
            ctx.spared = [(t.shape, t.dtype, t.device) for t, read in zip(tensors, ctx.read, strict=True) if not read]
        return outputs

    @staticmethod
    def backward(ctx: Any, *heads: torch.Tensor | None) -> Grads:
        inputs = ctx.saved_tensors
        if ctx.read is not None:
            kept, spared = iter(inputs), iter(ctx.spared)
            inputs = [next(kept) if read else _standing_in(*next(spared)) for read in ctx.read]
        return _pull_back(ctx, inputs, heads)


def _standing_in(shape: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of one element's memory for one that nobody reads."""
    return torch.empty((), dtype=dtype, device=device).expand(shape)


class Transformed(torch.autograd.Function):
    """An operator under torch.func and in forward mode: `Transformed.apply(operator, *tensors)`."""

    @staticmethod
    def forward(operator: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs: tuple[torch.Tensor, ...] = operator.execute(tensors)
        return outputs

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        operator, *tensors = inputs
        _keep(ctx, operator, tuple(tensors), output)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *heads: torch.Tensor | None) -> Grads:
        return _pull_back(ctx, ctx.saved_tensors, heads)

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: torch.Tensor | None) -> Grads:  # pyright: ignore[reportIncompatibleMethodOverride] as torch calls it
        """The tangents of the floating outputs, for the inputs that move."""
        moving = tuple(tangent is not None for tangent in tangents)
        if not any(moving):
            return (None,) * len(ctx.floating)
        present = [tangent for tangent in tangents if tangent is not None]
        found = iter(ctx.operator.jvp(moving).call((*ctx.saved_tensors, *present)))
        return tuple(next(found) if floats else None for floats in ctx.floating)

    @staticmethod
    def vmap(  # pyright: ignore[reportIncompatibleMethodOverride] as torch calls it
        info: Any, dims: tuple[int | None, ...], operator: Any, *tensors: torch.Tensor
    ) -> tuple[Any, Any]:
        """The outputs for every value of an axis of some inputs: a program of its own, with this axis in front."""
        outputs = batch(operator, dims[1:], tensors)
        return outputs, (0,) * len(outputs)


def batch(operator: Any, dims: tuple[int | None, ...], tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The outputs of an operator for every value of the axes `dims` of tensors; this axis is in front of each."""
    mask = tuple(dim is not None for dim in dims)
    fronted = [tensor if dim is None else tensor.movedim(dim, 0) for tensor, dim in zip(tensors, dims, strict=True)]
    outputs: tuple[torch.Tensor, ...] = operator.batched(mask).call(tuple(fronted))
    return outputs


_torch: Any = torch  # its parts that are not declared
is_many = _torch._C._functorch.is_legacy_batchedtensor
"""Whether a tensor is many in the older of torch's two ways, that of `torch.autograd.grad(..., is_grads_batched=True)`."""


def batched_by_autograd(operator: Any, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The outputs for tensors some of which are many, as they come in that way: those stay one tensor each, and so do the outputs."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    dims = tuple(0 if is_many(tensor) else None for tensor in tensors)
    plain = [_torch._remove_batch_dim(t, level, 1, 0) if many is not None else t for t, many in zip(tensors, dims, strict=True)]
    return tuple(_torch._add_batch_dim(output, 0, level) for output in batch(operator, dims, tuple(plain)))
