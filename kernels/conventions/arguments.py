"""Static arguments as the kernels take them: one number for every axis or one per axis, ranks, choices; what does not fit is refused."""

from __future__ import annotations

import functools
import operator
import os
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, TypeGuard

import tensorexpr as te
from tensorexpr.errors import ArgumentError, user_location
from tensorexpr.hints import suggestion

_CONVENTIONS = os.path.dirname(__file__) + os.sep
_LIBRARY = os.path.dirname(os.path.dirname(__file__)) + os.sep


def bad(message: str, hint: str | None = None) -> ArgumentError:
    """The error for an argument that does not fit, with the line of the user's call; the message begins with the kernel's name."""
    named = _kernels_called()
    if named and message.partition(":")[0].partition(" ")[0] not in named:
        message = f"{named[-1]}: {message}"
    return ArgumentError(message, location=user_location(), hint=hint)


def _kernels_called() -> list[str]:
    """The functions of the library that are running, the one that the user called last."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        path = frame.f_code.co_filename
        name = frame.f_code.co_name
        if path.startswith(_LIBRARY) and not path.startswith(_CONVENTIONS) and name[0] not in "_<":  # no helper, no comprehension
            found.append(name)
        frame = frame.f_back
    return found


def is_int(value: object) -> TypeGuard[int]:
    """Whether a static argument is an integer; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def per_axis(name: str, value: Any, rank: int, low: int) -> tuple[int, ...]:
    """`value`, an integer or a tuple of one for all of `rank` axes, or one for each; `ArgumentError` for others and below `low`."""
    values = (value,) * rank if is_int(value) else value * rank if isinstance(value, (tuple, list)) and len(value) == 1 else value
    if not isinstance(values, (tuple, list)) or len(values) != rank or not all(is_int(v) and v >= low for v in values):
        raise bad(f"{name}: expected an integer of at least {low}, or {rank} of them, one per axis, got {value!r}")
    return tuple(values)


def at_least(name: str, value: Any, low: int) -> int:
    """`value` itself; `ArgumentError` unless it is an integer of at least `low`."""
    if not is_int(value) or value < low:
        raise bad(f"{name}: expected an integer of at least {low}, got {value!r}")
    return value


def one_of(name: str, value: Any, choices: Sequence[Any]) -> Any:
    """`value` itself; `ArgumentError` unless it is one of `choices`."""
    if value not in choices:
        raise bad(
            f"{name}: expected one of {', '.join(map(repr, choices))}, got {value!r}",
            suggestion(value, [c for c in choices if isinstance(c, str)]),
        )
    return value


def in_dtype(x: te.Tensor, dtype: Any) -> te.Tensor:
    """`x` in a dtype (one of the language, its name, NumPy's or PyTorch's), or as it is for None: what `dtype=` means to a reduction."""
    if dtype is None:
        return x
    kind = te.dtype(str(dtype).removeprefix("torch.") if type(dtype).__module__ == "torch" else dtype)
    return x if x.dtype is kind else te.compute(x.shape, lambda *i: te.cast(x[i], kind))


def floating(x: te.Tensor) -> te.DType:
    """The dtype of means and roots of `x`: its own, or float64 for integers, as NumPy has it."""
    return x.dtype if x.dtype.is_float else te.dtype("float64")


def known(*extents: Any) -> bool:
    """Whether all extents are numbers when the op is traced (not sizes that are known only as it runs)."""
    return all(isinstance(extent, int) for extent in extents)


def same_extent(name: str, got: Any, expected: Any, hint: str | None = None) -> None:
    """`ArgumentError` where two extents are known and differ; sizes known later are left to the checks of the compiled function."""
    if known(got, expected) and got != expected:
        raise bad(f"{name}: expected an extent of {expected}, got {got}", hint)


def at_least_axes(name: str, x: te.Tensor, rank: int, axes: str) -> None:
    """`ArgumentError` unless `x` has at least `rank` axes, `axes` in words."""
    if len(x.shape) < rank:
        raise bad(f"{name}: expected a tensor of at least {rank} axes ({axes}), got {x.name} of {len(x.shape)}")


def product(extents: Sequence[Any]) -> Any:
    """The product of extents, 1 of none."""
    return functools.reduce(operator.mul, extents) if extents else 1


def ranked(x: te.Tensor, *ranks: int) -> None:
    """`ArgumentError` unless `x` has one of these numbers of axes."""
    if len(x.shape) not in ranks:
        raise bad(f"{x.name}: expected {' or '.join(map(str, ranks))} axes, got {len(x.shape)} (shape {x.shape})")


def shaped(x: te.Tensor, shape: Sequence[Any], what: str) -> None:
    """`ArgumentError` unless `x` has `shape`, of which `what` says the sense ("one weight per channel"), as far as both are known."""
    if len(x.shape) != len(shape) or any(known(a, b) and a != b for a, b in zip(x.shape, shape, strict=True)):
        raise bad(f"{x.name}: expected shape {tuple(shape)} ({what}), got {x.shape}")


def integral(x: te.Tensor, what: str) -> None:
    """`ArgumentError` unless `x` holds integers; `what` says what they are."""
    if not x.dtype.is_integer:
        raise bad(f"{x.name}: expected integers ({what}), got {x.dtype.name}")


def products(body: Callable[..., te.Scalar], extents: Any) -> te.Scalar:
    """The sum of `body`, products of elements, in the dtype of the products, as NumPy's matmul and einsum have it: integers and bools
    keep theirs, and wrap around."""
    found: list[te.DType] = []

    @functools.wraps(body)
    def product(*indices: Any) -> te.Scalar:
        value = body(*indices)
        found.append(value.dtype)
        # Widened by hand: whoever wants a wider sum of this kernel casts what is given to it.
        return te.cast(value, "uint64" if value.dtype.kind == "uint" else "int64") if not value.dtype.is_float else value

    total = te.sum(product, extents)
    return total if total.dtype is found[0] else te.cast(total, found[0])
