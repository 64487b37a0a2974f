"""The table of ATen: for each overload its definition, and the two things that all definitions share, promotion and broadcasting.

A definition is `rule(result, *arguments)`: the arguments in the order of the overload's schema with defaults filled in, tensors as
tensors of the language, symbolic integers as scalars of it; `result` says what shapes and dtypes torch promises. It gives a tensor, or
as many as the overload has results. A definition that cannot do what it is asked raises `Unsupported`: PyTorch runs that node.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

import tensorexpr as te
from tensorexpr.dtypes import DType, dtype
from tensorexpr.errors import DefinitionError
from tensorexpr.interop.torch.dtypes import FROM_TORCH, TO_TORCH

Rule = Callable[..., Any]
TABLE: dict[str, Rule] = {}
"""Definitions by the names of overloads, `aten.add.Tensor`."""


class Unsupported(Exception):
    """What a definition raises for arguments that it is not for; the message says why."""


class Form:
    """Shape (numbers, or scalars of the language) and dtype of one tensor that is promised."""

    def __init__(self, shape: tuple[Any, ...], kind: DType) -> None:
        self.shape = shape
        self.dtype = kind


class Result:
    """What torch promises of a node: a `Form` for each of its tensors (None where there is none). `node` is the node itself."""

    def __init__(self, forms: Sequence[Form | None], node: torch.fx.Node) -> None:
        self.forms = tuple(forms)
        self.node = node

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the first tensor."""
        return self[0].shape

    @property
    def dtype(self) -> DType:
        """The dtype of the first tensor."""
        return self[0].dtype

    def __getitem__(self, position: int) -> Form:
        form = self.forms[position]
        if form is None:
            raise Unsupported("a result that torch does not promise")
        return form


def aten(*names: str) -> Callable[[Rule], Rule]:
    """Puts a definition into the table under the names of overloads: `add.Tensor`, without a dot the default one, `prims::fma`."""

    def enter(rule: Rule) -> Rule:
        for name in names:
            packet, _, overload = name.partition(".")
            packet = packet.replace("::", ".") if "::" in packet else f"aten.{packet}"
            TABLE[f"{packet}.{overload or 'default'}"] = rule
        return rule

    return enter


def definition_of(target: Any) -> Rule | None:
    """The definition of an overload."""
    return TABLE.get(str(target))


def arguments(target: Any, given: Sequence[Any], named: dict[str, Any]) -> list[Any]:
    """The arguments of a call in the order of the schema, with defaults."""
    values = []
    for position, parameter in enumerate(target._schema.arguments):
        if position < len(given):
            values.append(given[position])
        else:
            values.append(named.get(parameter.name, parameter.default_value))
    return values


# ---------------------------------------------------------------------------------------------------- promotion


def _category(kind: DType) -> int:
    return 2 if kind.is_float else 0 if kind.name == "bool" else 1


@functools.cache
def promoted(a: DType, b: DType) -> DType:
    """What torch promotes two dtypes to."""
    return FROM_TORCH[torch.promote_types(TO_TORCH[a], TO_TORCH[b])]


def common(*operands: Any) -> DType:
    """The dtype that torch computes with: tensors with axes decide, then those without, then numbers, each if of a higher category only."""
    levels: list[DType | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, te.Tensor):
            level, kind = (0 if operand.ndim else 1), operand.dtype
        elif operand is None:
            continue
        elif isinstance(operand, te.Scalar):
            level, kind = 2, _weak(0.0 if operand.dtype.is_float else 0)
        else:
            level, kind = 2, _weak(operand)
        known = levels[level]
        levels[level] = kind if known is None else promoted(known, kind)
    found: DType | None = None
    for kind in filter(None, levels):
        if found is None:
            found = kind
        elif _category(kind) > _category(found):
            found = promoted(found, kind)
    assert found is not None
    return found


def _weak(number: object) -> DType:
    if isinstance(number, bool):
        return dtype("bool")
    if isinstance(number, int):
        return dtype("int64")
    if isinstance(number, float):
        return FROM_TORCH[torch.get_default_dtype()]
    raise Unsupported(f"a number of type {type(number).__name__}")


def wide(kind: DType) -> DType:
    """The dtype that is computed with for operands of a dtype: float32 for 16-bit floats."""
    return dtype("float32") if kind.is_float and kind.bits < 32 else kind


# ---------------------------------------------------------------------------------------------------- broadcasting


def is_one(extent: Any) -> bool:
    """Whether an extent is known to be 1."""
    return isinstance(extent, int) and extent == 1


def element(x: te.Tensor, index: Sequence[Any]) -> Any:
    """The element of a tensor at an index of the shape that it is stretched to."""
    own = index[len(index) - x.ndim :]
    return x[tuple(0 if is_one(extent) else i for extent, i in zip(x.shape, own, strict=True))]


def within(shape: Sequence[Any], x: te.Tensor, at: Callable[..., tuple[Any, ...]], axes: Iterable[int]) -> te.Tensor:
    """`x[at(*i)]` of a shape. Where the form of open extents does not show that places along `axes` are in bounds, torch has made a
    guard of it, and what lies beyond is not read."""
    try:
        return te.compute(shape, lambda *i: x[at(*i)])
    except DefinitionError:
        if all(isinstance(n, int) for n in (*shape, *x.shape)):
            raise

    def body(*i: Any) -> Any:
        places = at(*i)
        value = x[places]
        for axis in axes:
            value = te.where(places[axis] < x.shape[axis], value, te.cast(0, x.dtype))
        return value

    return te.compute(shape, body)


def pointwise(form: Form | Result, function: Callable[..., Any], *operands: Any, kind: DType | None = None) -> te.Tensor:
    """`function` of the operands (tensors, numbers or None) element by element, stretched to the shape that is promised.

    They are computed with in `kind`, by default torch's common dtype, 16-bit floats in float32, and the result cast to the dtype promised.
    """
    computed = wide(common(*operands) if kind is None else kind)

    def body(*index: Any) -> Any:
        values = [
            None if operand is None else te.cast(element(operand, index) if isinstance(operand, te.Tensor) else operand, computed)
            for operand in operands
        ]
        return te.cast(function(*values), form.dtype)

    return te.compute(form.shape, body)


def real(*operands: Any) -> DType:
    """The dtype of functions of real numbers: the common one, or torch's default for integers."""
    found = common(*operands)
    return found if found.is_float else FROM_TORCH[torch.get_default_dtype()]


def cast_to(x: te.Tensor, kind: DType) -> te.Tensor:
    """The tensor in a dtype: itself where it has it."""
    return x if x.dtype == kind else te.compute(x.shape, lambda *i: te.cast(x[i], kind))


def filled(form: Form | Result, value: Any) -> te.Tensor:
    """A tensor of one value."""
    return te.compute(form.shape, lambda *i: te.cast(value, form.dtype))


def axes_of(dims: Any, rank: int) -> tuple[int, ...]:
    """Axes from the front, in order; all where none are given."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return tuple(range(rank))
    chosen: Iterable[int] = (dims,) if isinstance(dims, int) else dims
    return tuple(sorted(axis % max(rank, 1) for axis in chosen)) if rank else ()


def axis_of(dim: int, rank: int) -> int:
    """An axis from the front; 0 of a tensor without axes."""
    return dim % rank if rank else 0
