"""Definitions and programs. Frozen nodes, tuples, structural equality.

A definition says what every element of a tensor is, by scalar expressions (`expressions`); a program is inputs, definitions in order,
outputs. Tensors are known by name, so sharing lives in names. Names of indices are unique within a definition (no shadowing) and differ
from the names of sizes. `tensorexpr.verify` states all invariants in prose and checks them.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from tensorexpr import dtypes
from tensorexpr.dtypes import DType
from tensorexpr.errors import Location
from tensorexpr.ir.expressions import Axis, Const, Expr, apply, const, counted, integer, product
from tensorexpr.ir.nodes import Node
from tensorexpr.markup import amount, listed
from tensorexpr.records import field, record


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


def _plus_one(extent: Expr) -> Expr:
    return const(int(extent.value) + 1) if isinstance(extent, Const) else apply("add", extent, const(1))
