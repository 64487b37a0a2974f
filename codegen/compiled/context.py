"""What a run works on: arrays bound to placeholders by name, and the memory of activations.

A compiled function has neither. A `Context` binds names to arrays, which stay the caller's (nothing is copied), and owns the
workspace of the runs; so one compiled function serves any number of contexts, each in its own thread, and two contexts with
different weights are two models of one function. Several functions may share a context (a training step and an evaluation).

A context is used by one thread at a time: a second one is refused, never mixed in.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from tensorexpr.codegen.compiled.arguments import address, shape_text
from tensorexpr.codegen.llvm.text.abi import ALIGNMENT
from tensorexpr.dtypes import DType
from tensorexpr.errors import ArgumentError, user_location
from tensorexpr.hints import Offering, checked
from tensorexpr.initial import initial_array
from tensorexpr.ir import Const, Expr, Program
from tensorexpr.language import Tensor
from tensorexpr.markup import listed
from tensorexpr.records import record
from tensorexpr.text import print_expr


@record
class Symbol:
    """A placeholder of a compiled function: an "input" or an "output", its extents (an int, or the text of an expression of sizes),
    the user's name where that is a path, and how it is initialised."""

    name: str
    kind: str
    dtype: DType
    shape: tuple[int | str, ...]
    path: str
    initial: Any = None

    def __str__(self) -> str:
        return f"{self.path}: {self.dtype.name}[{', '.join(map(str, self.shape))}] ({self.kind})"


def symbols_of(program: Program) -> tuple[Symbol, ...]:
    """The placeholders of a program: its inputs, then its outputs."""
    types = program.types
    inputs = [Symbol(i.name, "input", i.type.dtype, extents_of(i.type.shape), i.path or i.name, i.initial) for i in program.inputs]
    return (*inputs, *(Symbol(n, "output", types[n].dtype, extents_of(types[n].shape), n) for n in program.outputs))


def symbol_of(tensor: Tensor) -> Symbol:
    """A placeholder of the language as a symbol."""
    return Symbol(tensor.name, "input", tensor.dtype, extents_of(tensor.extents), tensor.path or tensor.name, tensor.initial)


def extents_of(shape: Iterable[Expr]) -> tuple[int | str, ...]:
    """Extents as numbers and texts."""
    return tuple(int(e.value) if isinstance(e, Const) else print_expr(e) for e in shape)


class Names(NamedTuple):
    """What the placeholders of a function are called: path and name of each input, all that outputs go by."""

    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[str, ...]

    @staticmethod
    def of(symbols: Iterable[Symbol]) -> Names:
        """The names of placeholders."""
        symbols = tuple(symbols)
        outputs = dict.fromkeys(name for s in symbols if s.kind == "output" for name in (s.path, s.name))
        return Names(tuple((s.path, s.name) for s in symbols if s.kind == "input"), tuple(outputs))


class Function(Protocol):
    """What a context needs of a compiled function."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def placeholders(self) -> tuple[Symbol, ...]:
        """Its placeholders."""
        ...

    @property
    def constants(self) -> Mapping[str, np.ndarray]:
        """The data of its constants, by name."""
        ...

    def own(self, array: np.ndarray) -> Any:
        """An array of the function's device with the contents of an array of NumPy's."""
        ...


class Context(Offering):
    """Arrays bound to placeholders by name (or path), and the workspace of runs: `te.Context({"w": array})`.

    `context[name]` is the array that is bound, `context[name] = array` binds another one in its place, `context.bind(name, array)`
    refuses a name that is bound already. A context that was made for a function (`compiled.context()`), or told of one (`declare`),
    knows its placeholders: names that none of them has, and arrays that do not fit, are refused when they are bound; else when
    they are used. `workspace` is an array to lend as memory for activations; without it, the context gets its own as runs need it.

    >>> x, w = te.placeholder((3,), name="x"), te.placeholder((3,), name="w")
    >>> f = te.compile(te.compute((3,), lambda i: x[i] * w[i], name="y"), [x, w])
    >>> context = te.Context({"w": np.ones(3, np.float32)})
    >>> f.run(context, x=np.arange(3, dtype=np.float32))
    array([0., 1., 2.], dtype=float32)
    """

    offered = ("bind", "declare", "initialize", "workspace")

    @checked()
    def __init__(self, bindings: Mapping[str, Any] | None = None, *, workspace: Any = None) -> None:
        self._arrays: dict[str, Any] = {}
        self._symbols: dict[str, Symbol] = {}
        self._own: Any = None
        self._busy = threading.Lock()
        self._lent = workspace is not None
        self._block: Any = None
        if workspace is not None:
            self._block = _writable_bytes(workspace)
        if not isinstance(bindings, Mapping | None):
            raise ArgumentError(
                f"context: expected arrays by name, got a {type(bindings).__name__}",
                location=user_location(),
                hint='te.Context({"w": array}), or te.Context() and context["w"] = array',
            )
        for name, array in (bindings or {}).items():
            self.bind(name, array)

    # ---------------------------------------------------------------------------------------------------- bindings

    def declare(self, what: Function | Iterable[Symbol | Tensor]) -> Context:
        """Tells the context of the placeholders of a function, or of these; it is strict about names from now on. Gives itself.

        Raises `ArgumentError` where something bound is no placeholder of what was declared, or does not fit.
        """
        if isinstance(what, Iterable):
            symbols = [item if isinstance(item, Symbol) else symbol_of(item) for item in what]
        else:
            symbols = list(what.placeholders)
        with self._entered():
            before = dict(self._symbols)
            for symbol in symbols:
                self._symbols[symbol.name] = self._symbols[symbol.path] = symbol
            try:
                for name, array in self._arrays.items():
                    self._check(name, array)
                    self.once(self._symbols[name])
            except ArgumentError:
                self._symbols = before
                raise
            if not isinstance(what, Iterable):
                self._own = what.own
        return self

    def once(self, symbol: Symbol) -> None:
        """Raises `ArgumentError` where a placeholder is bound twice: by its path and by its name, before the context knew of it."""
        if symbol.name != symbol.path and symbol.name in self._arrays and symbol.path in self._arrays:
            raise ArgumentError(
                f"context: expected {symbol.path} to be bound once, got arrays for {symbol.path} and {symbol.name}, which is the same",
                term=symbol,
                location=user_location(),
                hint=f"del context[{symbol.name!r}]",
            )

    def bind(self, name: str, array: Any) -> None:
        """Binds a placeholder that is not bound yet. Raises `ArgumentError` where it is, or where the array does not fit."""
        with self._entered():
            if self._key(name) in self._arrays:
                raise ArgumentError(
                    f"context: expected {name} to be bound once, got another array for it",
                    location=user_location(),
                    hint=f"context[{name!r}] = array binds another one in its place",
                )
            self._bind(name, array)

    def __setitem__(self, name: str, array: Any) -> None:
        with self._entered():
            self._bind(name, array)

    def __getitem__(self, name: str) -> Any:
        try:
            return self._arrays[self._key(name)]
        except KeyError:
            known = ", ".join(self._arrays) or "none"
            raise ArgumentError(
                f"context: expected the name of an array that is bound ({known}), got {name}", location=user_location()
            ) from None

    def __delitem__(self, name: str) -> None:
        with self._entered():
            self[name]
            del self._arrays[self._key(name)]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._key(name) in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"<context of {listed(list(self._arrays)) if self._arrays else 'nothing'}>"

    def initialize(self, seed: int = 0) -> Context:
        """Binds a new array to each declared placeholder that has an initial value and is not bound. Gives the context.

        The same seed gives the same values, whatever else is initialised. Raises `ArgumentError` where a context knows of no
        placeholders, or an extent is open.
        """
        if not self._symbols:
            raise ArgumentError(
                "context: expected placeholders to initialise, got a context that knows of none",
                location=user_location(),
                hint="compiled.context() makes one that does, context.declare(compiled) tells it",
            )
        for symbol in {s.name: s for s in self._symbols.values()}.values():
            if symbol.initial is None or symbol.name in self or symbol.path in self:
                continue
            shape = tuple(n for n in symbol.shape if isinstance(n, int))
            if len(shape) != len(symbol.shape):
                raise ArgumentError(
                    f"context: expected constant extents to initialise {symbol.path}, got {shape_text(symbol.shape)}",  # type: ignore[arg-type]  # names of open extents print as they are
                    location=user_location(),
                )
            array = initial_array(symbol.initial, symbol.path, shape, symbol.dtype, seed)
            self[symbol.path] = array if self._own is None else self._own(array)
        return self

    def _key(self, name: str) -> str:
        """The name under which an array is kept: the path where it is known."""
        symbol = self._symbols.get(name)
        if symbol is None or name in self._arrays:
            return name
        return symbol.name if symbol.name in self._arrays else symbol.path

    def _bind(self, name: str, array: Any) -> None:
        if not isinstance(name, str):
            raise ArgumentError(f"context: expected names of placeholders, got {name!r}", location=user_location())
        array = viewed(name, array)
        self._check(name, array)
        self._arrays[self._key(name)] = array

    def _check(self, name: str, array: Any) -> None:
        described = _described(array)
        if described is None:
            raise ArgumentError(
                f"context: expected an array for {name}, got a {type(array).__name__}",
                location=user_location(),
                hint="np.asarray makes one",
            )
        if not self._symbols:
            return
        shape, dtype = described
        symbol = self._symbols.get(name)
        if symbol is None:
            known = ", ".join(dict.fromkeys(s.path for s in self._symbols.values()))
            raise ArgumentError(f"context: expected the name of a placeholder ({known}), got {name}", location=user_location())
        if dtype not in (symbol.dtype.numpy, symbol.dtype.name):
            raise ArgumentError(f"context: {name}: expected dtype {symbol.dtype.name}, got {dtype}", term=symbol, location=user_location())
        fits = len(shape) == len(symbol.shape) and all(isinstance(n, str) or n == m for n, m in zip(symbol.shape, shape, strict=True))
        if not fits:
            raise ArgumentError(
                f"context: {name}: expected shape {shape_text(symbol.shape)}, got {shape_text(shape)}",  # type: ignore[arg-type]  # names of open extents print as they are
                term=symbol,
                location=user_location(),
            )

    # -------------------------------------------------------------------------------------------------------- runs

    def enter(self) -> None:
        """Takes the context for one run, until `leave`. Raises `ArgumentError` where it is in use."""
        if not self._busy.acquire(blocking=False):
            raise ArgumentError(
                "context: expected one user at a time, got a second one while it is in use",
                location=user_location(),
                hint="a context for each thread: they may share the arrays of weights",
            )

    def leave(self) -> None:
        """Gives the context back."""
        self._busy.release()

    def target(self, function: Function, name: str) -> Any:
        """The array bound for an input that a run gives a new value. Raises `ArgumentError` where there is none to be written to."""
        symbol = next(s for s in function.placeholders if s.name == name)
        found = self._arrays.get(symbol.path, self._arrays.get(symbol.name))
        if found is None or not getattr(getattr(found, "flags", None), "writeable", True):
            got = "none" if found is None else "a read-only one"
            raise ArgumentError(
                f"{function.name}: expected an array for {symbol.path} in the context that takes its new value, got {got}",
                term=symbol,
                location=user_location(),
            )
        return found

    @contextmanager
    def _entered(self) -> Iterator[None]:
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def plain_arrays(self, names: Names, given: Mapping[str, Any]) -> list[Any] | None:
        """An array of NumPy's for each input, where that is all that there is to it: each is there once, no output is, nothing is left
        over. Else None, and `arrays_for` says what is."""
        arrays, used = self._arrays, 0
        inputs: list[Any] = []
        for path, name in names.inputs:
            array = given.get(name)
            if array is None:
                array = arrays.get(path)
                if name != path and name in arrays:
                    return None
            elif path in arrays or name in arrays:
                return None
            else:
                used += 1
            if type(array) is not np.ndarray:
                return None
            inputs.append(array)
        if used != len(given):
            return None
        for name in names.outputs:
            if name in arrays:
                return None
        return inputs

    def arrays_for(self, function: Function, given: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
        """An array for each input of a function, and for each output its buffer or None; `given` are the bindings of this run alone.

        Raises `ArgumentError` for a placeholder without an array, or with two, and for a name in `given` that the function lacks.
        """
        inputs: list[Any] = []
        outputs: list[Any] = []
        used: set[str] = set()
        for symbol in function.placeholders:
            self.once(symbol)
            found = []
            for name in dict.fromkeys((symbol.path, symbol.name)):
                if name in given:
                    used.add(name)
                    found.append(viewed(name, given[name]))
                if name in self._arrays:
                    found.append(self._arrays[name])
            if len(found) > 1:
                raise ArgumentError(
                    f"{function.name}: expected one array for {symbol.path}, got two: bound in the context and given to this run",
                    term=symbol,
                    location=user_location(),
                )
            if not found and symbol.kind == "input":
                raise ArgumentError(
                    f"{function.name}: expected an array for the placeholder {symbol.path}, got none",
                    term=symbol,
                    location=user_location(),
                    hint=f"context[{symbol.path!r}] = array, or run(context, {symbol.name}=array)",
                )
            (inputs if symbol.kind == "input" else outputs).append(found[0] if found else None)
        for name in given:
            if name not in used:
                known = ", ".join(symbol.path for symbol in function.placeholders)
                raise ArgumentError(
                    f"{function.name}: expected the name of a placeholder ({known}), got {name}",
                    location=user_location(),
                    hint=f"{name} is a constant, which nothing is written to" if name in function.constants else None,
                )
        return inputs, outputs

    @property
    def workspace(self) -> int:
        """Bytes of memory for activations that the context has."""
        return 0 if self._block is None else _extent(self._block)[1]

    def memory(self, size: int, make: Any) -> Any:
        """A block for `size` bytes of activations that begin at a multiple of 64: the one lent, or its own, made by `make(bytes)`."""
        have = self._block
        if have is not None:
            start, length = _extent(have)
            if length >= size + -start % ALIGNMENT:
                return have
        if self._lent:
            raise ArgumentError(
                f"context: expected a workspace of at least {size} bytes that begins at a multiple of {ALIGNMENT} "
                f"(or {size + ALIGNMENT - 1} bytes anywhere), got {self.workspace}",
                location=user_location(),
                hint="compiled.workspace_bytes(...) tells how many",
            )
        self._block = make(size + ALIGNMENT)
        return self._block


def viewed(name: str, value: Any) -> Any:
    """An array of another library in this machine's memory (a tensor of PyTorch's) as one of NumPy's, on the same memory."""
    if isinstance(value, np.ndarray | np.generic):
        return value
    try:
        there = hasattr(value, "__cuda_array_interface__") or not hasattr(value, "__array__")
        return value if there else np.asarray(value)
    except (RuntimeError, TypeError, ValueError) as error:
        # Tensors without memory, of another device, that record gradients: their library says which.
        raise ArgumentError(
            f"context: expected an array in this machine's memory for {name}, got a {type(value).__name__}: {error}",
            location=user_location(),
        ) from error


def _described(array: Any) -> tuple[tuple[int, ...], Any] | None:
    """The shape of an array and its type, as NumPy has it or (for the types of other libraries) by name; None for what is no array."""
    shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
    if shape is not None and dtype is not None:
        return tuple(shape), dtype if isinstance(dtype, np.dtype) else str(dtype).rpartition(".")[2]
    interface = getattr(array, "__cuda_array_interface__", None)
    return None if interface is None else (tuple(interface["shape"]), np.dtype(interface["typestr"]))


def _extent(block: Any) -> tuple[int, int]:
    """Where memory begins, and how many bytes it has."""
    if isinstance(block, np.ndarray):
        return address(block), block.nbytes
    interface = block.__cuda_array_interface__
    return int(interface["data"][0] or 0), prod(interface["shape"]) * np.dtype(interface["typestr"]).itemsize


def _writable_bytes(workspace: Any) -> Any:
    """An array that was lent, as bytes."""
    if hasattr(workspace, "__cuda_array_interface__"):
        return workspace  # of a device: it knows itself what it takes
    if not isinstance(workspace, np.ndarray):
        raise ArgumentError(f"context: expected an array as workspace, got a {type(workspace).__name__}", location=user_location())
    if not workspace.flags.c_contiguous or not workspace.flags.writeable:
        raise ArgumentError("context: expected a contiguous, writeable array as workspace, got another one", location=user_location())
    return workspace.reshape(-1).view(np.uint8)
