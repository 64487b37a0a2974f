"""The program IR: scalar expressions, definitions, programs. Frozen nodes, tuples, structural equality.

An expression computes one scalar from indices and elements of tensors; a definition says what every element of a tensor
is; a program is inputs, definitions in order, outputs. Tensors are known by name, so sharing lives in names. Names of
indices are unique within a definition (no shadowing) and differ from the names of sizes; every operand of `Apply` has
one dtype. `tensorexpr.verify` states all invariants in prose and checks them.

Nodes hash once, at construction; equality is structural, with an identity shortcut, and floats compare by bits. The line
of the user's source rides along without taking part in equality.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from tensorexpr import dtypes
from tensorexpr.dtypes import DType
from tensorexpr.errors import InternalError, Location
from tensorexpr.ir.nodes import Node, set_equal, set_hash
from tensorexpr.markup import amount, listed
from tensorexpr.ops import OPS, Op, result_dtype
from tensorexpr.records import field, record

# ---------------------------------------------------------------------------------------------------- expressions


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


# ---------------------------------------------------------------------------------------------------- definitions


@record(eq=False)
class TensorType(Node):
    """Shape (int64 expressions over sizes and constants) and element type."""

    shape: tuple[Expr, ...]
    dtype: DType

    def __str__(self) -> str:
        from tensorexpr.text import print_type  # noqa: PLC0415

        return print_type(self)


class _Definition(Node):
    """Base of definitions: each makes its results once, so that types of a tensor are one object wherever they are asked for, and remembers
    what it reads (`traversal.reads`) and its form but for names (`simplify.passes.definitions.formal_of`)."""

    __slots__ = ("_formal", "_reads", "_results")
    _formal: dict[bool, Any]
    _reads: tuple[str, ...]
    _results: tuple[tuple[str, TensorType], ...]

    @property
    def results(self) -> tuple[tuple[str, TensorType], ...]:
        """The tensors that it defines, by name, each with its type."""
        try:
            return self._results
        except AttributeError:
            found = tuple(self._made())
            object.__setattr__(self, "_results", found)
            return found

    @abstractmethod
    def _made(self) -> Iterable[tuple[str, TensorType]]:
        """The same, made anew."""


@record(eq=False, weakrefs=True)
class Define(_Definition):
    """`name[axes] = value` for every point of the axes; axes start at 0 and stop at expressions over sizes."""

    name: str
    axes: tuple[Axis, ...]
    value: Expr
    location: Location | None = field(default=None, compare=False, repr=False)

    def _made(self) -> Iterable[tuple[str, TensorType]]:
        return ((self.name, TensorType(tuple(a.stop for a in self.axes), self.value.dtype)),)


@record(eq=False, weakrefs=True)
class Scatter(_Definition):
    """`name[indices] = combine(name[indices], value)` for every point of `axes` where `where` holds.

    Elements start from the identity of `combine` (sum, prod, max, min). `lowering` is "segments" (contributions combine
    in row-major order of the axes, by default schedules perhaps in parts: the same bits on every run) or "atomics" (in any order).
    """

    name: str
    type: TensorType
    axes: tuple[Axis, ...]
    indices: tuple[Expr, ...]
    value: Expr
    where: Expr | None = None
    combine: str = "sum"
    lowering: str = "segments"
    location: Location | None = field(default=None, compare=False, repr=False)

    def _made(self) -> Iterable[tuple[str, TensorType]]:
        return ((self.name, self.type),)


@record(eq=False, weakrefs=True)
class Scan(_Definition):
    """A recurrence: state 0 is `inits`; step t computes `body` from the states before it; entry t of the result is the state after.

    `states` are the formal names (with types) under which `body` reads the state, `step` the index bound in the body,
    `body` definitions local to the scan, `nexts` the names in `body` of the next states. The results `names` have
    the shape (length, *state shape).
    """

    names: tuple[str, ...]
    length: Expr
    step: str
    states: tuple[tuple[str, TensorType], ...]
    inits: tuple[str, ...]
    body: tuple[Definition, ...]
    nexts: tuple[str, ...]
    location: Location | None = field(default=None, compare=False, repr=False)

    def _made(self) -> Iterable[tuple[str, TensorType]]:
        return [
            (name, TensorType((self.length, *type_.shape), type_.dtype)) for name, (_, type_) in zip(self.names, self.states, strict=True)
        ]


@record(eq=False, weakrefs=True)
class Segments(_Definition):
    """A plan for gathering by key: `order` lists the points of `axes` sorted by key, those of key v at offsets[v] ... offsets[v + 1] - 1.

    The key of a point is the flat row-major position of `keys` in the shape `extents`; points where `where` does not hold
    have none. `order` holds positions (row-major numbers of points in `axes`, which start at 0 as those of a `Define`), in
    increasing order for each key, and zeros behind the last. Both results are int64; each point of `batch` (axes in front
    of both) has a plan of its own: `offsets` has the shape (*batch, product of extents + 1), `order` (*batch, number of
    points). A key outside of its extent is an error, as an access out of bounds is.
    """

    names: tuple[str, str]
    extents: tuple[Expr, ...]
    batch: tuple[Axis, ...]
    axes: tuple[Axis, ...]
    keys: tuple[Expr, ...]
    where: Expr | None = None
    location: Location | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The name of the offsets, which stands for the whole definition."""
        return self.names[0]

    @property
    def loops(self) -> tuple[Axis, ...]:
        """All axes, those of the batch in front."""
        return (*self.batch, *self.axes)

    def _made(self) -> Iterable[tuple[str, TensorType]]:
        batch = tuple(a.stop for a in self.batch)
        places = (_plus_one(counted(product(self.extents))), product(tuple(a.stop for a in self.axes)))
        return [(name, TensorType((*batch, extent), dtypes.int64)) for name, extent in zip(self.names, places, strict=True)]


Definition = Define | Scatter | Segments | Scan


@record(eq=False)
class Input(Node):
    """A placeholder: a name and a type, bound to an array when the program runs.

    `path` is the user's name where that is no identifier ("layers.0.w"), `initial` how an array for it is made
    (`tensorexpr.initial`); neither takes part in what the program means.
    """

    name: str
    type: TensorType
    path: str | None = field(default=None, compare=False, repr=False)
    initial: Any = field(default=None, compare=False, repr=False)


@record(eq=False)
class Constant(Node):
    """A tensor that has its data: a read-only array, shared between programs and never written. Compared by content."""

    name: str
    data: np.ndarray
    _content: bytes | None = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.data.flags.writeable:
            view = self.data.view()
            view.flags.writeable = False
            object.__setattr__(self, "data", view)

    @staticmethod
    def of_type(name: str, type_: TensorType) -> Constant:
        """A constant that stands for all of its type, whose elements nobody asks for: told by its type."""
        shape = tuple(map(integer, type_.shape))
        made = Constant(name, np.broadcast_to(np.zeros((), type_.dtype.numpy), shape))
        object.__setattr__(made, "_content", f"any {type_.dtype.name}{shape}".encode())
        return made

    @property
    def type(self) -> TensorType:
        shape = tuple(Const(n, dtypes.int64) for n in self.data.shape)
        return TensorType(shape, dtypes.dtype(self.data.dtype))

    def _key(self) -> tuple[Any, ...]:
        return (self.name, self.content)

    @property
    def content(self) -> bytes:
        """A digest of dtype, shape and elements, by which constants are compared: made once, without a copy of the data."""
        found = self._content
        if found is None:
            found = content_of(self.data)
            object.__setattr__(self, "_content", found)
        return found


def content_of(data: np.ndarray) -> bytes:
    """A digest of dtype, shape and elements of an array."""
    state = hashlib.sha256(f"{data.dtype.name}{data.shape}".encode())
    state.update(np.ascontiguousarray(data).reshape(-1).view(np.uint8).data)
    return state.digest()


@record(eq=False, weakrefs=True)
class Program(Node):
    """Inputs, constants, definitions in an order in which each reads only earlier tensors, and the names of the outputs.

    `sizes` lists the symbolic extents that occur, in the order in which inputs mention them.
    """

    inputs: tuple[Input, ...]
    constants: tuple[Constant, ...]
    definitions: tuple[Definition, ...]
    outputs: tuple[str, ...]
    sizes: tuple[str, ...] = ()
    _types: Mapping[str, TensorType] | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def types(self) -> Mapping[str, TensorType]:
        """The type of every tensor that can be named at the top level of the program: made once, since every pass asks for it."""
        found = self._types
        if found is None:
            table = {i.name: i.type for i in self.inputs} | {c.name: c.type for c in self.constants}
            for definition in self.definitions:
                table.update(definition.results)
            found = MappingProxyType(table)
            object.__setattr__(self, "_types", found)
        return found

    def __getstate__(self) -> tuple[Any, ...]:
        return (self.inputs, self.constants, self.definitions, self.outputs, self.sizes, None)

    def __str__(self) -> str:
        from tensorexpr.text import print_program  # noqa: PLC0415

        return print_program(self)

    def __repr__(self) -> str:
        made = ", ".join(amount(len(items), noun) for items, noun in ((self.inputs, "input"), (self.definitions, "definition")))
        open_sizes = f", sizes {listed(self.sizes)}" if self.sizes else ""
        return f"<program of {listed(self.outputs)}: {made}{open_sizes}>"

    def _repr_latex_(self) -> str:
        from tensorexpr.latex import displayed  # noqa: PLC0415

        return displayed(self)


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


def _plus_one(extent: Expr) -> Expr:
    return const(int(extent.value) + 1) if isinstance(extent, Const) else apply("add", extent, const(1))


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
