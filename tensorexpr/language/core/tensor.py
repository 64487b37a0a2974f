"""Tensors: nodes of the graph that a user writes. A tensor has a type, and a definition unless it is given.

`te.placeholder` and `te.constant` are the leaves, `te.compute`, `te.scatter` and `te.scan` make the rest. A tensor is
known inside IR expressions by its `key`, unique in the process; `name` is what the user reads. Indexing gives a scalar of
the language; there is no arithmetic on whole tensors, because an index says what is meant (but in a traced function: `whole`).
"""

from __future__ import annotations

import contextvars
import itertools
import keyword
import os
import unicodedata
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorexpr import dtypes
from tensorexpr.dtypes import DType
from tensorexpr.errors import DefinitionError, Location, user_location
from tensorexpr.hints import Offering, made_by, unknown_name
from tensorexpr.hints import checked as checked_call
from tensorexpr.ir import Access, Apply, Cast, Const, Definition, Expr, Index, Input, Program, Size, TensorType, const
from tensorexpr.language.core import borders, habits
from tensorexpr.language.core.renaming import index_names, local_names, renamed
from tensorexpr.language.core.scalar import Scalar, operand
from tensorexpr.language.core.tracing import RESERVED, Frame
from tensorexpr.records import record
from tensorexpr.regions import normal_form
from tensorexpr.text import is_readable, print_definition, print_type
from tensorexpr.traversal import fresh_name, substitute, walk

_serial = itertools.count()
_process = os.urandom(4).hex()
"""What tells the tensors of this process from those that pickles bring."""


def _begin_anew() -> None:
    global _process
    _process = os.urandom(4).hex()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


@record
class Ruled:
    """A tensor with a `unit` in the body of a scan: in `frames`, outermost first; `names` are what tensors there are called in the
    definition, where these are not their keys.

    In the definition `depth` scans stand around it, and `steps` are the steps of the frames as expressions over theirs, `step_of(0)` the
    outermost: the steps themselves where it stands as it was written, others where a derivative computes it again.
    """

    tensor: Tensor
    frames: tuple[Frame, ...]
    names: Mapping[str, str]
    steps: tuple[Expr, ...]
    depth: int

    def inside(self, frame: Frame) -> Ruled:
        """The same with one more scan around."""
        deeper: dict[str, Expr] = {step_of(at).name: step_of(at + 1) for at in range(self.depth)}
        steps = (step_of(0), *(substitute(step, deeper) for step in self.steps))
        return Ruled(self.tensor, (frame, *self.frames), self.names, steps, self.depth + 1)


def step_of(at: int) -> Index:
    """What stands for the step of a scan in `Ruled.steps`."""
    return Index(f"#{at}")


whole: contextvars.ContextVar[Callable[..., Any] | None] = contextvars.ContextVar("arithmetic on whole tensors", default=None)
"""What `A + B` means for whole tensors: nothing, but while a `te.function` is traced, which reads like NumPy."""

_LONGEST = 400
"""Characters of a definition that `repr` shows; `print` shows any."""


def identifier(name: object, what: str) -> str:
    """The name as Python reads it, if it can stand in the text of a program. Raises `DefinitionError` if not."""
    if isinstance(name, str) and name.isidentifier():
        name = unicodedata.normalize("NFKC", name)
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or name in RESERVED:
        raise DefinitionError(
            f"{what}: expected a name that is a Python identifier, got {name!r}",
            location=user_location(),
            hint="letters, digits and underscores, not a keyword, not inf or nan",
        )
    return name


class Tensor(Offering):
    """A tensor of the language, by identity.

    `shape` holds a Python int for every concrete extent and a scalar for every symbolic one; `dtype`, `ndim`, `name` as
    in NumPy. `A[i, j]` is an element, proved in bounds when the definition that reads it is complete;
    `A.read(i - 1, j, outside=0.0)` an element that may lie beyond the border.

    `definition` is the IR with keys for names (None for a placeholder, a constant and the state of a scan), shared by all
    results of one scan; `component` says which of its results this is. `sources` are the tensors that the definition reads.
    `unit` is None, or `(inputs, rule)`: how an op with a gradient rule of its own is differentiated in place of the definition;
    `plan` is None, or the offsets and order of a sort plan for its elements (`te.planned`). `recompute` is the mark of
    `te.checkpoint`, `ruled` are the tensors in the body of a scan that have a `unit`. Of a placeholder, `path` is the user's name where
    that is no identifier, `initial` how an array for it is made.

    >>> A = te.placeholder((2, 3), name="A")
    >>> A.shape, A.ndim, A.dtype == te.float32
    ((2, 3), 2, True)
    """

    offered = ("shape", "dtype", "ndim", "name", "read", "location")

    __slots__ = (
        "__weakref__", "_shape", "component", "data", "definition", "dtype", "extents", "frames", "initial", "key", "location", "name",
        "named", "path", "plan", "recompute", "ruled", "sources", "unit",
    )  # fmt: skip

    scalar_hint = "a tensor has many elements: write one with an index, A[i, j], or s[()] for a tensor without axes"

    @checked_call(made_by("te.placeholder is an input, te.constant has data, te.compute says each element"))
    def __init__(
        self,
        name: str | None,
        extents: tuple[Expr, ...],
        dtype: DType,
        *,
        stem: str = "t",
        key: str | None = None,
        definition: Definition | None = None,
        component: int = 0,
        sources: tuple[Tensor, ...] = (),
        frames: tuple[Frame, ...] = (),
        data: np.ndarray | None = None,
        location: Location | None = None,
    ) -> None:
        self.named = name is not None
        self.name = stem if name is None else name
        self.key = fresh_key(self.name) if key is None else key
        self.extents = extents
        self.dtype = dtype
        self.definition = definition
        self.component = component
        self.sources = sources
        self.frames = frames
        self.data = data
        self.location = location
        self.unit: tuple[tuple[Tensor, ...], Any] | None = None
        self.plan: tuple[Tensor, Tensor] | None = None
        self.recompute = False
        self.ruled: tuple[Ruled, ...] = ()
        self.path: str | None = None
        self.initial: Any = None
        self._shape: tuple[int | Scalar, ...] | None = None

    @property
    def shape(self) -> tuple[int | Scalar, ...]:
        """One extent per axis: a Python int, or a scalar of the language where it is symbolic."""
        if self._shape is None:
            self._shape = habits.Shape(int(e.value) if isinstance(e, Const) else Scalar(e, weak=True) for e in self.extents)
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.extents)

    @property
    def type(self) -> TensorType:
        """Shape and dtype as IR."""
        return TensorType(self.extents, self.dtype)

    def __getitem__(self, item: Any) -> Scalar:
        items = item if isinstance(item, tuple) else (item,)
        location = user_location()
        indices = self._indices(items, location)
        sources: dict[str, Any] = {self.key: self}
        for index in indices:
            sources.update(index.sources)
        return Scalar(Access(self.key, tuple(i.expr for i in indices), self.dtype, location), sources)

    def __setitem__(self, item: Any, value: Any) -> None:
        raise DefinitionError(
            f"expected an expression, got an assignment to an element of {self.name}: tensors are never written",
            location=user_location(),
            hint="te.compute defines all elements of a new tensor, te.scatter sends values to places, te.scan iterates",
        )

    @checked_call()
    def read(self, *indices: Any, outside: Any) -> Scalar:
        """The element at `indices`, which may lie beyond the border: there the read gives what `outside` says.

        `outside` is a value (cast to the tensor's dtype), or "clamp" (the nearest element), "reflect" (mirrored, the edge
        not repeated), "symmetric" (mirrored, the edge repeated) or "wrap" (periodic), at any distance, as `numpy.pad`.
        """
        items = indices[0] if len(indices) == 1 and isinstance(indices[0], tuple) else indices
        return borders.read(self, self._indices(items, user_location()), outside)

    def _indices(self, items: tuple[Any, ...], location: Location | None) -> list[Scalar]:
        if len(items) != self.ndim:
            for axis, item in enumerate(items):
                _refuse_slice(item, f"axis {axis} of {self.name}")
            raise DefinitionError(
                f"{self.name}: expected {self.ndim} {'index' if self.ndim == 1 else 'indices'}, one per axis, got {len(items)}",
                term=f"{self.name}: {self._type_text()}",
                location=location,
                hint=f"{self.name}[()] reads a tensor without axes"
                if self.ndim == 0
                else f"a tensor is indexed at all its axes at once: {habits.element(self)}",
            )
        return [as_index(item, f"axis {axis} of {self.name}") for axis, item in enumerate(items)]

    def _type_text(self) -> str:
        return print_type(self.type)

    def __str__(self) -> str:
        if self.definition is None:
            return f"{self.name}: {self._type_text()}"
        return print_definition(renamed(self.definition, self._names(self.definition), {}))

    def __repr__(self) -> str:
        text = str(self) if self.definition is None or is_readable(self.definition) else ""
        return text if 0 < len(text) <= _LONGEST else f"{self.name}: {self._type_text()} = ..."

    def _names(self, definition: Definition) -> dict[str, str]:
        """What the keys in its definition are called: no two alike, and none as an index."""
        keys = [key for key, _ in definition.results] + [source.key for source in self.sources] + [*local_names(definition)]
        taken = set(index_names(definition))
        return {key: fresh_name(name_of(key), taken) for key in dict.fromkeys(keys)}

    def _repr_latex_(self) -> str:
        from tensorexpr.latex import displayed  # noqa: PLC0415

        if self.definition is None:
            return displayed(Program((Input(self.name, self.type),), (), (), ()))
        names = self._names(self.definition)
        read = {names[source.key]: source.type for source in self.sources}
        shown = renamed(self.definition, names, {})
        return displayed(Program(tuple(Input(name, type_) for name, type_ in read.items()), (), (shown,), ()))

    def __copy__(self) -> Tensor:
        return self

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Tensor):
            return self is other
        if isinstance(other, Scalar | bool | int | float | np.generic | np.ndarray):
            raise self._not_a_scalar("==")
        return NotImplemented

    def __iter__(self) -> Any:
        raise DefinitionError(
            f"expected something to iterate over, got the tensor {self.name}",
            location=user_location(),
            hint=f"loops over indices are reductions: te.sum(lambda k: ..., n); extents are in {self.name}.shape",
        )

    def __contains__(self, item: object) -> bool:
        raise DefinitionError(
            f"expected something to look into, got the tensor {self.name}",
            location=user_location(),
            hint=f"te.any(lambda {habits.indices(self)}: {habits.element(self)} == value, {self.name}.shape) says whether one is there",
        )

    def __len__(self) -> int:
        raise DefinitionError(
            f"expected something with a length, got the tensor {self.name}",
            location=user_location(),
            hint=f"the extent of the first axis is {self.name}.shape[0]" if self.ndim else "it has no axes",
        )

    def __bool__(self) -> bool:
        raise DefinitionError(
            f"expected a Python truth value, got the tensor {self.name}, which has none until it runs",
            location=user_location(),
            hint="A is not None says whether there is one; te.where(condition, a, b) chooses, in a te.function te.cond",
        )

    def __float__(self) -> float:
        raise DefinitionError(
            f"expected a Python number, got the tensor {self.name}, which has no elements until it runs",
            location=user_location(),
            hint="te.cast(A[i, j], dtype) converts within the language; te.evaluate or a compiled function gives arrays",
        )

    __int__ = __float__

    @classmethod
    def __torch_function__(cls, called: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise habits.with_torch(called, habits.KERNELS.get(called.__name__))

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise DefinitionError(
            f"expected an array, got the tensor {self.name}, which has no elements until it runs",
            location=user_location(),
            hint="te.evaluate or a compiled function gives arrays",
        )

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # what Python and NumPy look for
                raise AttributeError(name)
            raise unknown_name(f"the tensor {self.name}", name, self.offered, habits.of_tensor(self, name))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in (np.shape, np.ndim) and args == (self,):
            return self.shape if function is np.shape else self.ndim
        raise self._not_a_scalar(f"numpy.{function.__name__}")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        meaning = whole.get()
        if meaning is not None and method == "__call__" and not options:
            return meaning(ufunc.__name__, *inputs)
        raise self._not_a_scalar(f"numpy.{ufunc.__name__}")

    def _not_a_scalar(self, what: str) -> DefinitionError:
        return DefinitionError(
            f"{what}: expected scalars, got the tensor {self.name} of {self.ndim} {'axis' if self.ndim == 1 else 'axes'}",
            term=f"{self.name}: {self._type_text()}",
            location=user_location(),
            hint=habits.whole(self, what),
        )


def _arithmetic(name: str, symbol: str, reflected: bool = False) -> Any:
    def method(self: Tensor, *others: Any) -> Any:
        meaning = whole.get()
        if meaning is None:
            raise self._not_a_scalar(symbol)
        return meaning(name, *reversed((self, *others))) if reflected else meaning(name, self, *others)

    return method


for _name, _symbol in {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
}.items():  # fmt: skip
    setattr(Tensor, f"__{_name}__", _arithmetic(_name, _symbol))
    setattr(Tensor, f"__r{_name}__", _arithmetic(_name, _symbol, reflected=True))
for _name, _symbol in {"neg": "-", "pos": "+", "invert": "~", "abs": "abs", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    setattr(Tensor, f"__{_name}__", _arithmetic(_name, _symbol))


def fresh_key(name: str) -> str:
    """A key that no other tensor has, of this process or of another one."""
    return f"{name}__{_process}_{next(_serial)}"


def number_of(key: str) -> int:
    """The number of a tensor among those of this process, in the order in which they were made; -1 for one that was made elsewhere."""
    process, _, number = key.rpartition("__")[2].partition("_")
    return int(number) if process == _process else -1


def name_of(key: str) -> str:
    """The name from which a key was made."""
    return key.rpartition("__")[0]


def _refuse_slice(value: Any, what: str) -> None:
    if isinstance(value, slice) or value is Ellipsis or value is None:
        raise DefinitionError(
            f"{what}: expected an index, got {value!r}",
            location=user_location(),
            hint="a tensor is read one element at a time; te.compute((m,), lambda i: x[i + start]) makes a slice",
        )


def as_index(value: Any, what: str) -> Scalar:
    """The value as an index, an int64. Raises `DefinitionError` for what is not an integer."""
    _refuse_slice(value, what)
    if isinstance(value, Tensor | list | str) or (isinstance(value, np.ndarray) and value.ndim):
        got = (
            f"the tensor {value.name}"
            if isinstance(value, Tensor)
            else f"{'an' if isinstance(value, np.ndarray) else 'a'} {type(value).__name__}"
        )
        raise DefinitionError(
            f"{what}: expected an integer index, got {got}",
            term=None if isinstance(value, np.ndarray) else repr(value),
            location=user_location(),
            hint="an index is a number, a parameter of the body, or computed from them: x[i, j + 1]"
            if isinstance(value, str)
            else "indices that are data are read one by one, too: ids = te.constant(...), and x[ids[t]]",
        )
    found = operand(value)
    if isinstance(found, Scalar) and found.dtype.is_integer:
        if isinstance(found.expr, Const):
            return Scalar(const(int(found.expr.value)))
        return found if found.dtype is dtypes.int64 else Scalar(Cast(dtypes.int64, found.expr), found.sources)
    if isinstance(found, int) and not isinstance(found, bool):
        if not dtypes.int64.least <= found <= dtypes.int64.greatest:
            raise DefinitionError(f"{what}: expected an integer of 64 bits, got {found}", location=user_location())
        return Scalar(const(found))
    kind = found.dtype.name if isinstance(found, Scalar) else type(found).__name__
    hint = 'i // 2 divides to an integer; te.cast(x, "int64") makes one (it truncates toward zero; te.floor rounds down first)'
    if kind == "bool":
        hint = "te.where(condition, a, b) chooses one of two values; where=lambda k: ... says which points a reduction takes"
    raise DefinitionError(
        f"{what}: expected an integer index, got a {kind}",
        term=repr(value),
        location=user_location(),
        hint=hint,
    )


_NO_EXTENTS = (float, np.floating, bool, np.bool_, str, list, tuple, range, np.ndarray, Tensor)


def _extent_hint(item: Any) -> str:
    if isinstance(item, Tensor) and item.ndim == 0:
        return f"a number that shapes depend on is no tensor: a static argument of an op, behind *: def f(x, *, {item.name}); or te.dim"
    if isinstance(item, Tensor):
        return f"the extents of a tensor are {item.name}.shape"
    if isinstance(item, range):
        return f"loops begin at 0: {len(item)}" if item.start == 0 and item.step == 1 else "loops go from 0 in steps of 1: x[2 + 3 * k]"
    if isinstance(item, float):
        return "n // 2 divides to an integer"
    if isinstance(item, str) and not item.isidentifier():
        return "extents are integers, sizes te.dim(...) and what is computed from them"
    if isinstance(item, str):
        return f'a symbolic extent is te.dim("{item}"); the name of a tensor is given by name="{item}"'
    return (
        "the shape comes before the body: te.compute(shape, lambda i, j: ...)"
        if callable(item)
        else 'symbolic extents are made by te.dim("n")'
    )


def as_extents(shape: Any, what: str) -> tuple[Scalar, ...]:
    """A shape, or one extent, as scalars. Raises `DefinitionError` for what is not an integer, or a negative literal."""
    if isinstance(shape, Tensor):
        raise DefinitionError(
            f"{what}: expected extents, got the tensor {shape.name}", location=user_location(), hint=f"its extents are {shape.name}.shape"
        )
    if isinstance(shape, np.ndarray) and shape.ndim == 1:
        shape = shape.tolist()
    items = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    extents = []
    for item in items:
        if isinstance(item, _NO_EXTENTS) or item is None or callable(item):
            raise DefinitionError(
                f"{what}: expected extents that are integers, got {'a function' if callable(item) else repr(item)}",
                location=user_location(),
                hint=_extent_hint(item),
            )
        extent = as_index(item, what)
        if isinstance(extent.expr, Const) and extent.expr.value < 0:
            raise DefinitionError(
                f"{what}: expected extents that are not negative, got {extent.expr.value}",
                location=user_location(),
                hint="extents are what is computed, 0 for nothing: te.maximum(n - 2, 0), x.shape[0] for a whole axis",
            )
        extents.append(extent)
    return tuple(extents)


def of_sizes(expr: Expr) -> bool:
    """Whether an expression is made of integers and sizes alone."""
    return all(isinstance(node, Const | Size | Apply) for node in walk(expr))


def as_shape(shape: Any, what: str) -> tuple[Expr, ...]:
    """The shape of a tensor as IR: integers, sizes and arithmetic on them. Raises `DefinitionError` for anything else."""
    extents = as_extents(shape, what)
    for extent in extents:
        if not of_sizes(extent.expr):
            raise DefinitionError(
                f"{what}: expected extents made of integers and sizes, got {extent!r}",
                location=user_location(),
                hint="the shape of a tensor cannot depend on an index or on data; an extent of a reduction can",
            )
    return tuple(normal_form(extent.expr) for extent in extents)


def as_dtype(value: Any) -> DType:
    """The dtype meant, or a `DefinitionError` with the user's line."""
    try:
        return dtypes.dtype(value)
    except DefinitionError as error:
        raise DefinitionError(error.message, location=user_location(), hint=error.hint) from None
