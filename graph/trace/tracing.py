"""Traces: what a Python function does, recorded while it runs on values.

Pure work needs no recording, tensors of the language are a graph by themselves. A trace notes the rest, in program order: reads,
assignments, calls, branches, loops. When the function has returned, `graph` walks from its results and from the operands of what
was noted, and makes a `Graph` of it. Tensors that were made before the trace began belong to an enclosing trace: they are *captured*,
and become inputs of the graph (of branches and loops, which are traced where they stand) or an error (of functions).
"""

from __future__ import annotations

import contextlib
import contextvars
import keyword
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tensorexpr import dtypes
from tensorexpr.codegen.compile import check_target
from tensorexpr.errors import ArgumentError, DefinitionError, user_location
from tensorexpr.graph.nodes.ir import Assign, Compute, Graph, Node, Read, unused
from tensorexpr.graph.trace import journal
from tensorexpr.graph.trace.journal import Journal
from tensorexpr.graph.trace.naming import current_scope
from tensorexpr.graph.trace.values import arithmetic, value_of
from tensorexpr.hints import checked
from tensorexpr.ir import Constant, Definition, Input, TensorType
from tensorexpr.language import Tensor, cast, compute, constant, names_of, program_of
from tensorexpr.language.core.renaming import ProgramRenaming
from tensorexpr.language.core.tensor import number_of, whole
from tensorexpr.text import print_type
from tensorexpr.traversal import reads

_current: contextvars.ContextVar[Trace | None] = contextvars.ContextVar("current trace", default=None)
_device: contextvars.ContextVar[str | None] = contextvars.ContextVar("current device", default=None)
_after: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("nodes to come after", default=())


def current() -> Trace | None:
    """The innermost trace that goes on in this thread, or None."""
    return _current.get()


@dataclass(eq=False)
class Operation:
    """A node of a trace, as the user holds it: something that `te.control_dependencies` takes."""

    trace: Trace
    id: str


@dataclass
class Record:
    """A node noted by a trace: the node with tensors still to be named, its operands and results as tensors.

    `derived` are the graphs that were differentiated, for a note that a derivative has passed, and `saved` what results behind the
    first ones stand for.
    """

    node: Node
    number: int
    operands: list[Tensor]
    results: list[Tensor]
    derived: tuple[Any, ...] = ()
    saved: list[Tensor] = field(default_factory=list)


@dataclass(eq=False)
class Trace:
    """What was noted. `start` is the number of the first tensor that is its own; `captures` are the tensors of others."""

    name: str
    capturing: bool = True
    formals: list[Tensor] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    start: int = field(default_factory=journal.now)
    devices: Journal[str | None] = field(default_factory=lambda: Journal(_device.get()))
    scopes: Journal[str] = field(default_factory=lambda: Journal(current_scope()))

    @contextlib.contextmanager
    def open(self) -> Iterator[Trace]:
        """Makes this the current trace."""
        own: list[tuple[contextvars.ContextVar[Any], Any]] = [
            (_current, self), (journal.devices, self.devices), (journal.scopes, self.scopes), (_after, ()), (whole, arithmetic),
        ]  # fmt: skip
        tokens = [(variable, variable.set(value)) for variable, value in own]
        try:
            yield self
        finally:
            for variable, token in reversed(tokens):
                variable.reset(token)

    def is_own(self, tensor: Tensor) -> bool:
        """Whether a tensor was made in this trace."""
        return number_of(tensor.key) >= self.start

    # ------------------------------------------------------------------------------------------------------ notes

    def formal(self, type_: TensorType, stem: str) -> Tensor:
        """A new argument."""
        value = value_of(type_, stem)
        self.formals.append(value)
        return value

    def note(self, node: Node, operands: Sequence[Tensor], types: Sequence[tuple[str, TensorType]]) -> Record:
        """Notes a node; `types` are the stems and types of its results."""
        number = journal.now()
        results = [value_of(type_, stem) for stem, type_ in types]
        placed = replace(
            node, id=unused(node.id, self.ids), device=_device.get(), scope=current_scope(), after=_after.get(), location=user_location()
        )
        record = Record(placed, number, list(operands), results)
        self.records.append(record)
        return record

    def read(self, variable: Any) -> Tensor:
        """The value of a variable at this point."""
        variable.check()
        stem = stem_of(variable)
        return self.note(Read(f"read_{stem}", (), (), variable=variable), (), [(stem, variable.type)]).results[0]

    def assign(self, variable: Any, value: Any) -> Operation:
        """Notes that a variable is given a value."""
        variable.check()
        tensor = as_tensor(value, f"{variable.name}.assign")
        if tensor.extents != variable.type.shape or not _same_kind(tensor, variable):
            raise ArgumentError(
                f"{variable.name}: expected {print_type(variable.type)}, got {print_type(tensor.type)}",
                term=repr(variable),
                location=user_location(),
                hint="the shape and dtype of a variable are fixed",
            )
        if tensor.dtype is not variable.dtype:
            wide = tensor
            tensor = compute(wide.shape, lambda *i: cast(wide[i], variable.dtype))
        stem = stem_of(variable)
        record = self.note(Assign(f"assign_{stem}", (), (), variable=variable), [tensor], ())
        return Operation(self, record.node.id)

    # ----------------------------------------------------------------------------------------------------- the end

    def captured(self) -> list[Tensor]:
        """The tensors of enclosing traces that this one uses, in order of their first use. Raises if it is not to use any."""
        return self._captured(self._roots(self.outputs), self.values)

    def graph(self, captured: Sequence[Tensor] = (), extra: Sequence[Tensor] = (), **facts: Any) -> Graph:
        """The graph of what was noted, with `captured` (at least what it captures) as its last inputs and `extra` as further outputs.

        `facts` are further fields of the graph.
        """
        outputs = [*self.outputs, *extra]
        roots, values = self._roots(outputs), self.values
        given = [*values, *captured]
        computed = [t for t in dict.fromkeys(roots) if t not in values and t not in set(captured) and t.data is None]
        data = list(dict.fromkeys(t for t in roots if t.data is not None and t not in set(captured)))
        with _numbered(given):
            names = names_of([*computed, *data], given)
        program = program_of([*computed, *data], given, keys=True)
        nodes = self._nodes(program.definitions, names)
        constants = tuple(Constant(names[c.name], c.data) for c in program.constants)
        return Graph(
            self.name,
            tuple(Input(names[t.key], t.type) for t in [*self.formals, *captured]),
            constants,
            tuple(nodes),
            tuple(names[t.key] for t in outputs),
            origin=(self, (*self.formals, *captured)),
            **facts,
        )

    @property
    def values(self) -> dict[Tensor, None]:
        """The values of this trace: arguments and results of notes."""
        return dict.fromkeys([*self.formals, *(value for record in self.records for value in record.results)])

    def _roots(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        return [*outputs, *(operand for record in self.records for operand in record.operands)]

    def _captured(self, roots: Iterable[Tensor], values: dict[Tensor, None]) -> list[Tensor]:
        """The tensors of enclosing traces that the roots are computed from; an error if this trace is not to capture any."""
        captured: dict[Tensor, None] = {}
        done: set[Tensor] = set()
        stack = list(roots)[::-1]
        while stack:
            tensor = stack.pop()
            if tensor in done or tensor in values or tensor.data is not None:
                continue
            done.add(tensor)
            if self.is_own(tensor) and tensor.definition is not None:
                stack.extend(reversed(tensor.sources))
            elif self.capturing:
                captured[tensor] = None
            else:
                raise DefinitionError(
                    f"{self.name}: expected tensors that are made from its arguments, got {tensor.name}, which belongs to another function",
                    term=tensor,
                    location=tensor.location or user_location(),
                    hint=f"pass it to {self.name} as an argument; what a function keeps between calls is a te.Variable",
                )
        return list(captured)

    def _nodes(self, definitions: Sequence[Definition], names: dict[str, str]) -> list[Node]:
        """Notes and definitions (under keys) in one order: a definition stands where its tensors were made, or later if it must."""
        renaming = ProgramRenaming(names, ())
        entries: list[tuple[int, Node]] = []
        for keyed in definitions:
            number = number_of(keyed.results[0][0])
            definition = renaming.definition(keyed)
            results = definition.results
            node = Compute(
                results[0][0], reads(definition), results, self.devices.at(number), self.scopes.at(number), (), definition.location,
                definition=definition,
            )  # fmt: skip
            entries.append((number, node))
        for record in self.records:
            results = tuple((names[t.key], t.type) for t in record.results)
            entries.append((record.number, replace(record.node, operands=tuple(names[t.key] for t in record.operands), results=results)))
        return _ordered(entries, [record.node.id for record in self.records])


@contextlib.contextmanager
def _numbered(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Lets names that repeat be numbered: what a trace captures may be several results of one op, and has the op's name."""
    named = [tensor for tensor in tensors if tensor.named]
    for tensor in named:
        tensor.named = False
    try:
        yield
    finally:
        for tensor in named:
            tensor.named = True


def _ordered(entries: list[tuple[int, Node]], noted: list[str]) -> list[Node]:
    """The nodes so that each comes after what it takes and notes keep their order: by number where that leaves a choice."""
    producers = {name: node for _, node in entries for name in node.names}
    numbers = {node.id: number for number, node in entries}
    notes = {node.id: node for _, node in entries if node.id in set(noted)}
    done: dict[str, Node] = {}

    def place(root: Node) -> None:
        stack = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if node.id in done:
                continue
            if ready:
                done[node.id] = node
                continue
            stack.append((node, True))
            stack.extend((producers[name], False) for name in reversed(node.operands) if name in producers)

    pure = sorted((node for _, node in entries if node.id not in notes), key=lambda node: numbers[node.id])
    at = 0
    for identity in noted:
        while at < len(pure) and numbers[pure[at].id] < numbers[identity]:
            if not _needs_later(pure[at], producers, notes, done):
                place(pure[at])
            at += 1
        place(notes[identity])
    for node in pure:
        place(node)
    return list(done.values())


def _needs_later(node: Node, producers: dict[str, Node], notes: dict[str, Node], done: dict[str, Node]) -> bool:
    """Whether a node takes what a note gives that has not been placed yet."""
    stack, seen = [node], set()
    while stack:
        for name in stack.pop().operands:
            source = producers.get(name)
            if source is None or source.id in done or source.id in seen:
                continue
            if source.id in notes:
                return True
            seen.add(source.id)
            stack.append(source)
    return False


def stem_of(variable: Any) -> str:
    """What the values of a variable are called in programs: the last part of its name, as an identifier."""
    stem = re.sub(r"\W", "_", variable.name.rpartition("/")[2])
    return stem if stem.isidentifier() and not keyword.iskeyword(stem) else f"v_{stem}"


def _same_kind(tensor: Tensor, variable: Any) -> bool:
    return bool(np.can_cast(tensor.dtype.numpy, variable.dtype.numpy, "same_kind"))


def as_tensor(value: Any, what: str) -> Tensor:
    """A tensor of the current trace for a value, a variable (which is read), an array or a number."""
    if hasattr(type(value), "__tensor__"):
        value = value.__tensor__()
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (np.ndarray, np.generic, bool, int, float)):
        return constant(np.float32(value) if isinstance(value, float) and not isinstance(value, np.generic) else value)
    raise ArgumentError(
        f"{what}: expected a tensor, an array or a number, got a {type(value).__name__}", location=user_location(), hint="np.asarray(...)"
    )


def truth(flag: Any, what: str) -> Tensor:
    """A scalar as a bool. Raises `ArgumentError` for a tensor with axes."""
    tensor = as_tensor(flag, what)
    if tensor.ndim:
        raise ArgumentError(
            f"{what}: expected a scalar to decide by, got {print_type(tensor.type)}",
            location=user_location(),
            hint="te.all or te.any over its elements gives one",
        )
    return tensor if tensor.dtype is dtypes.bool_ else compute((), lambda: tensor[()] != 0)


@contextlib.contextmanager
@checked()
def device(name: str | None) -> Iterator[None]:
    """What is made inside belongs on a device: "cpu" or "cuda"; None leaves it to the caller. Raises `TargetError` for another name.

    Functions that are called inside, in a trace or not, are computed there, but for what has a device of its own.

    >>> @te.function
    ... def doubled(x):
    ...     with te.device("cpu"):
    ...         return x * 2.0
    >>> float(doubled(np.float64(2.0)))
    4.0
    """
    if name is not None:
        check_target(name)
    token = _device.set(name)
    note = journal.devices.get()
    if note is not None:
        note.note(name)
    try:
        yield
    finally:
        _device.reset(token)
        if note is not None:
            note.note(_device.get())


def current_device() -> str | None:
    """The device that was chosen last and is in force, or None."""
    return _device.get()


@contextlib.contextmanager
@checked()
def control_dependencies(operations: Iterable[Operation | Tensor]) -> Iterator[None]:
    """What is noted inside runs after `operations`: what assignments, prints and checks gave, or results of calls.

    Only needed where no variable says so. Raises `ArgumentError` outside of a trace, and for anything that is no operation of it.

    >>> log = te.Variable(np.float64(0.0), name="log")
    >>> @te.function
    ... def step(x):
    ...     stored = log.assign(x)
    ...     with te.control_dependencies([stored]):
    ...         te.print("stored {}", x)
    ...     return x
    >>> float(step(np.float64(1.0)))
    stored 1.0
    1.0
    """
    trace = current()
    ids = []
    for operation in operations:
        found = operation.id if isinstance(operation, Operation) and operation.trace is trace else None
        if trace is not None and isinstance(operation, Tensor):
            found = next((r.node.id for r in trace.records if operation in r.results), None)
        if found is None:
            raise ArgumentError(
                f"te.control_dependencies: expected operations of the function that is traced, got {operation!r}",
                location=user_location(),
                hint="what v.assign, te.print and te.check give, or the result of a call, a branch or a loop",
            )
        ids.append(found)
    token = _after.set(tuple(dict.fromkeys((*_after.get(), *ids))))
    try:
        yield
    finally:
        _after.reset(token)
