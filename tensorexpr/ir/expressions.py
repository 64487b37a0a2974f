"""Scalar expressions: their nodes, and how they are made.

An expression computes one scalar from indices and elements of tensors; every operand of `Apply` has one dtype. Nodes hash once, at
construction; equality is structural, with an identity shortcut, and floats compare by bits. The line of the user's source rides along
without taking part in equality.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import Any, ClassVar

import numpy as np

from tensorexpr import dtypes
from tensorexpr.dtypes import DType
from tensorexpr.errors import InternalError, Location
from tensorexpr.ir.nodes import Node, set_equal, set_hash
from tensorexpr.ops import OPS, Op, result_dtype
from tensorexpr.records import field, record


class Expr(Node):
    """A scalar expression. Every expression has a `dtype`."""

    __slots__ = ()
    dtype: DType


@record(eq=False)
class Const(Expr):
    """A literal: a Python bool, int or float that is a value of `dtype` (floats are rounded to it)."""

    value: bool | int | float
    dtype: DType

    def __post_init__(self) -> None:
        value: Any = self.value
        if type(value) is int and self.dtype.is_integer:
            return
        if self.dtype.is_float:
            value = float(value)
            if self.dtype is not dtypes.float64:
                with np.errstate(over="ignore"):  # beyond the greatest number is infinity: no news for the user
                    value = float(self.dtype.numpy.type(value))
            if math.isnan(value):
                value = math.nan  # one NaN: its sign and payload have no meaning, and text could not give them back
        elif self.dtype.is_bool:
            value = bool(value)
        else:
            value = int(value)
        object.__setattr__(self, "value", value)

    def _key(self) -> tuple[Any, ...]:
        if self.dtype.is_float:
            return (struct.pack("<d", self.value), self.dtype)
        return (self.value, self.dtype)


def integer(expr: Expr) -> int:
    """The integer that a constant extent or bound is. Raises `InternalError` for anything else: who asks has proved it constant."""
    if not isinstance(expr, Const):
        raise InternalError(f"expected a constant, got {type(expr).__name__}")
    return int(expr.value)


@record(eq=False)
class Index(Expr):
    """A loop index, an int64: bound by an axis of a definition or a reduction, or the step of a scan."""

    name: str
    dtype: ClassVar[DType] = dtypes.int64  # type: ignore[misc]  # a fact of the class, a field elsewhere

    def __post_init__(self) -> None:
        set_hash(self, hash(("Index", self.name)))
        set_equal(self, None)

    _remember_hash = __post_init__

    def __eq__(self, other: object) -> bool:  # what is compared most often, by its only field
        return self is other or (type(other) is Index and self.name == other.name)

    __hash__ = Expr.__hash__


@record(eq=False)
class Size(Expr):
    """A symbolic extent (`te.dim`), an int64 >= 0 that is bound when the program runs.

    A greatest value stands in its name (`n_upto512`): so text, keys and signatures carry it.
    """

    name: str
    dtype: ClassVar[DType] = dtypes.int64  # type: ignore[misc]  # a fact of the class, a field elsewhere


_MOST = re.compile(r"_upto(\d+)$")


@cache
def greatest_size(name: str) -> int | None:
    """The greatest value of the size with this name, where it has one."""
    found = _MOST.search(name)
    return None if found is None else int(found[1])


@record(eq=False)
class Param(Expr):
    """A scalar parameter of a user's combiner (see `Combiner`)."""

    name: str
    dtype: DType


@record(eq=False)
class Access(Expr):
    """The element of `tensor` at `indices` (int64 each, one per axis). Must be in bounds wherever it is evaluated."""

    tensor: str
    indices: tuple[Expr, ...]
    dtype: DType
    location: Location | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        set_hash(self, hash(("Access", self.tensor, self.indices)))
        set_equal(self, None)

    _remember_hash = __post_init__


@record(eq=False)
class Apply(Expr):
    """A scalar operation on operands of one dtype. `where(c, a, b)` evaluates only the branch taken; all else is strict."""

    op: Op
    args: tuple[Expr, ...]
    dtype: DType = field(init=False, compare=False)

    def __post_init__(self) -> None:
        op, args = self.op, self.args
        found: DType | None = None
        if len(args) == op.arity <= 2:
            first = args[0].dtype
            if args[-1].dtype is first:
                found = op.results.get(first.name)
        _set_dtype(self, found or result_dtype(op, tuple([a.dtype for a in args])))
        self._remember_hash()

    def _remember_hash(self) -> None:
        set_hash(self, hash(("Apply", self.op.name, self.args)))
        set_equal(self, None)


_set_dtype = vars(Apply)["dtype"].__set__


@record(eq=False)
class Cast(Expr):
    """The value of `arg` in another dtype (see `ops.cast_value` for what happens out of range)."""

    dtype: DType
    arg: Expr


@record(eq=False)
class Axis(Node):
    """A loop: `index` runs over start <= index < stop (int64 expressions; nothing is visited when stop <= start)."""

    index: str
    start: Expr
    stop: Expr

    def __post_init__(self) -> None:
        set_hash(self, hash(("Axis", self.index, self.start, self.stop)))
        set_equal(self, None)

    _remember_hash = __post_init__


BUILTIN_COMBINERS = ("sum", "prod", "max", "min", "all", "any", "argmax", "argmin")


@record(eq=False)
class Combiner(Node):
    """How a reduction combines values: a built-in by `name`, or a user's associative function of two tuples.

    For a user's combiner `left` and `right` are the parameters, `results` the combined tuple over them and `identity`
    (constants) its neutral element; the builtins leave all four empty.
    """

    name: str
    left: tuple[Param, ...] = ()
    right: tuple[Param, ...] = ()
    results: tuple[Expr, ...] = ()
    identity: tuple[Expr, ...] = ()

    @property
    def is_builtin(self) -> bool:
        return not self.results


@record(eq=False)
class Reduce(Expr):
    """`values` combined over the points of `axes` (row-major, later axes may depend on earlier ones) where `where` holds.

    Built-in combiners take one value. sum and prod start from 0 and 1 and carry 16-bit floats in float32; max and min
    start from the dtype's least and greatest value and propagate NaN; all and any take bools; argmax and argmin give the
    flat row-major position (int64) of the first winner, a NaN wins, 0 over nothing. A user's combiner has as many values
    as its tuple and `component` says which of the results this expression is.
    """

    combiner: Combiner
    values: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    where: Expr | None = None
    component: int = 0

    def __post_init__(self) -> None:
        set_hash(self, hash(("Reduce", self.combiner.name, self.values, self.axes)))
        set_equal(self, None)

    _remember_hash = __post_init__

    @property
    def dtype(self) -> DType:  # type: ignore[override]  # computed here, a field elsewhere
        if self.combiner.name in ("argmax", "argmin"):
            return dtypes.int64
        return self.values[self.component].dtype


# ---------------------------------------------------------------------------------------------------- construction


def const(value: bool | int | float, dtype: DType = dtypes.int64) -> Const:
    """A literal; an index constant (int64) by default."""
    return _integer(value) if type(value) is int and dtype is dtypes.int64 else Const(value, dtype)


@lru_cache(maxsize=1 << 10)
def _integer(value: int) -> Const:
    """One node for each of the few numbers that extents, bounds and offsets are: it has its hash, and is equal by identity."""
    return Const(value, dtypes.int64)


def apply(name: str, *args: Expr) -> Apply:
    """The operation called `name` on operands that already have one dtype."""
    return Apply(OPS[name], args)


def product(extents: tuple[Expr, ...]) -> Expr:
    """The number of elements of a shape; an extent below zero is none, so no two of them make a number above it."""
    number = math.prod(max(0, int(e.value)) for e in extents if isinstance(e, Const))
    result: Expr | None = None
    for extent in sorted((e for e in extents if not isinstance(e, Const)), key=is_natural):
        # One factor may be below zero: so is the product then, or zero.
        result = extent if result is None else apply("mul", result, counted(extent))
    if result is None or number == 0:
        return const(number)
    return result if number == 1 else apply("mul", result, const(number))


def counted(extent: Expr) -> Expr:
    """The number of iterations of a loop from 0 to an extent, which is none where that is below zero."""
    if isinstance(extent, Const):
        return const(max(0, int(extent.value)))
    return extent if is_natural(extent) else apply("maximum", extent, const(0))


def is_natural(extent: Expr) -> bool:
    """Whether the form of an extent says that it is not below zero, whatever the sizes are."""
    match extent:
        case Const():
            return int(extent.value) >= 0
        case Size():
            return True
        case Apply() if extent.op.name in ("add", "mul", "minimum", "floordiv"):
            return all(map(is_natural, extent.args))
        case Apply() if extent.op.name == "mod":
            return is_natural(extent.args[1])
        case Apply() if extent.op.name == "maximum":
            return any(map(is_natural, extent.args))
        case Apply() if extent.op.name == "where":
            return all(map(is_natural, extent.args[1:]))
    return False


TRUE = Const(True, dtypes.bool_)
FALSE = Const(False, dtypes.bool_)


def conjunction(conditions: Iterable[Expr]) -> Expr:
    """All of the conditions, `TRUE` for none."""
    result: Expr | None = None
    for condition in conditions:
        if condition == TRUE:
            continue
        result = condition if result is None else apply("and", result, condition)
    return TRUE if result is None else result


def conjuncts(condition: Expr | None) -> Iterator[Expr]:
    """The conditions whose conjunction `condition` is, left to right (nothing for None and for TRUE)."""
    if condition is None or condition == TRUE:
        return
    if isinstance(condition, Apply) and condition.op.name == "and" and condition.dtype.is_bool:
        yield from conjuncts(condition.args[0])
        yield from conjuncts(condition.args[1])
    else:
        yield condition
