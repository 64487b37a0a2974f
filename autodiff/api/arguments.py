"""Checks of what users ask to differentiate, each with the message that says what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorexpr.errors import DifferentiationError, user_location
from tensorexpr.hints import described
from tensorexpr.ir import Expr
from tensorexpr.language import Tensor
from tensorexpr.text import print_type


def checked_tensors(given: Any, what: str) -> tuple[Tensor, ...]:
    """The tensor or tensors given as `what`. Raises `DifferentiationError` unless they are floating tensors."""
    tensors = (given,) if isinstance(given, Tensor) else tuple(given) if isinstance(given, list | tuple) else (given,)
    strange = [tensor for tensor in tensors if not isinstance(tensor, Tensor)]
    if strange or not tensors:
        raise DifferentiationError(
            f"expected {what} to be a tensor or a list of tensors, got {described(strange[0]) if strange else 'nothing'}",
            location=user_location(),
            hint="te.gradient works on tensors, te.vjp and te.grad on ops",
        )
    for tensor in tensors:
        if tensor.frames:
            raise DifferentiationError(
                f"expected {what} to be a tensor of its own, got {tensor.name}, which belongs to the body of a scan",
                term=text_of(tensor),
                location=tensor.location or user_location(),
                hint="only what te.scan returns leaves its body: make it one of the states",
            )
        if not tensor.dtype.is_float:
            raise DifferentiationError(
                f"expected {what} to be floating, got {tensor.name} of dtype {tensor.dtype.name}",
                term=text_of(tensor),
                location=tensor.location or user_location(),
                hint=f'only floating tensors have gradients: te.cast(..., "float32"), or leave {tensor.name} out',
            )
    return tensors


def checked_heads(outputs: Sequence[Tensor], single: bool, given: Any) -> tuple[tuple[Tensor | None, ...], Expr | None]:
    """One head per output, None for a scalar without one; and the extent of the axis of directions in front of all (None: no such axis)."""
    if given is None:
        heads: list[Any] = [None] * len(outputs)
    elif single and isinstance(given, Tensor):
        heads = [given]
    elif not isinstance(given, Tensor) and isinstance(given, Sequence):
        heads = list(given)
    else:
        heads = [given]
    if len(heads) != len(outputs):
        raise DifferentiationError(
            f"expected one head per output, got {len(heads)} for {len(outputs)}",
            location=user_location(),
            hint=f"head=[{', '.join(f'{t.name}_bar' for t in outputs)}]",
        )
    for output, head in zip(outputs, heads, strict=True):
        wanted = print_type(output.type)
        make = f"te.placeholder({_shape(output)}, {output.dtype.name!r}, name={output.name + '_bar'!r})"
        if head is None:
            if output.ndim:
                raise DifferentiationError(
                    f"expected a head for the output {output.name}, which is no scalar, got none",
                    term=text_of(output),
                    location=user_location(),
                    hint=f"head={make}, or differentiate a scalar; te.jacobian gives all derivatives",
                )
            continue
        if not isinstance(head, Tensor):
            raise DifferentiationError(
                f"expected the head of {output.name} to be a tensor {wanted}, got {described(head)}",
                location=user_location(),
                hint=f"head={make}",
            )
        if output.extents not in (head.extents, head.extents[1:]) or head.dtype is not output.dtype:
            raise DifferentiationError(
                f"expected the head of {output.name} to be {wanted}, got {print_type(head.type)}",
                term=text_of(head),
                location=head.location or user_location(),
                hint=f"head={make}, or with one more axis in front for many heads at once",
            )
    return tuple(heads), _directions("head", [(head, output) for head, output in zip(heads, outputs, strict=True) if head is not None])


def checked_tangents(wrt: Sequence[Tensor], given: Any) -> tuple[tuple[Tensor, ...], Expr | None]:
    """One tangent of the shape and dtype of each tensor of `wrt`; and how many directions they hold, as `checked_heads` gives it."""
    tangents = list(given) if isinstance(given, list | tuple) else [given]
    if len(tangents) != len(wrt):
        raise DifferentiationError(f"expected one tangent per tensor of wrt, got {len(tangents)} for {len(wrt)}", location=user_location())
    for tensor, tangent in zip(wrt, tangents, strict=True):
        fits = isinstance(tangent, Tensor) and tensor.extents in (tangent.extents, tangent.extents[1:])
        if not fits or tangent.dtype is not tensor.dtype:
            got = print_type(tangent.type) if isinstance(tangent, Tensor) else described(tangent)
            raise DifferentiationError(
                f"expected the tangent of {tensor.name} to be {print_type(tensor.type)}, got {got}",
                term=text_of(tensor),
                location=user_location(),
                hint=f"te.placeholder({_shape(tensor)}, {tensor.dtype.name!r}, name={tensor.name + '_dot'!r})",
            )
    return tuple(tangents), _directions("tangent", list(zip(tangents, wrt, strict=True)))


def _directions(what: str, pairs: Sequence[tuple[Tensor, Tensor]]) -> Expr | None:
    """The extent of the axis that all of the given tensors have in front of the shape of the tensor they belong to."""
    extents = [given.extents[0] if given.ndim > tensor.ndim else None for given, tensor in pairs]
    for (given, tensor), extent in zip(pairs, extents, strict=True):
        if extent != extents[0]:
            raise DifferentiationError(
                f"expected every {what} to have the same axis of directions in front, or none, got {print_type(given.type)} for "
                f"{print_type(tensor.type)} beside {print_type(pairs[0][0].type)} for {print_type(pairs[0][1].type)}",
                term=text_of(given),
                location=given.location or user_location(),
            )
    return extents[0] if extents else None


def text_of(tensor: Tensor) -> str:
    """A tensor with its type, for messages."""
    return f"{tensor.name}: {print_type(tensor.type)}"


def _shape(tensor: Tensor) -> str:
    return f"{tensor.name}.shape"
