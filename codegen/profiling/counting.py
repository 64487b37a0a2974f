"""What the kernels of a nest compute and touch at some sizes, statement by statement.

Iterations are counted as the model of cost counts them (`auto.points`): exactly where loops are rectangles or small, else as means
over a sample. A scalar operation on elements counts one at each iteration that comes to it, so what is computed again in a tile
counts again; arithmetic on indices, casts and selections count nothing, as in `codegen.cost`. Bytes are the compulsory traffic of a
kernel: of each buffer beyond local memory every element that it reads counts once, and every element that it writes. `assumed` says
that data decides how often something runs.

A statement belongs to the definition whose name its buffer has (`h_sum` and `h_staged_1` are of `h`), or, where its buffer is an
accumulator with the name of no definition (`sum_1`), to the one that reads it. It belongs to the lines of the accesses in its value; a
statement without any has those of its definition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from tensorexpr.codegen.auto.points import Points
from tensorexpr.codegen.nest import Alloc, Block, For, If, Kernel, LoopNest, Store
from tensorexpr.codegen.nest.walks import expressions_of, statements, stores_in
from tensorexpr.errors import Location
from tensorexpr.interpret import extent_value
from tensorexpr.ir import Access, Apply, Definition, Expr, Program, Scan
from tensorexpr.traversal import children, free_names, tensors_read, walk


class Part(NamedTuple):
    """A statement: its definition, its lines, and its weight among those of its kernel."""

    definition: str
    lines: tuple[Location, ...]
    weight: float


class Traffic(NamedTuple):
    """Bytes that a kernel reads, writes, and has to hold."""

    read: int
    written: int
    held: int


class Work(NamedTuple):
    """A kernel: its name, operations, the same weighted by the bytes of an element, its traffic, whether data decides how often some of it
    runs (which is assumed then), and its statements.
    """

    name: str
    operations: int
    operation_bytes: int
    traffic: Traffic
    assumed: bool
    parts: tuple[Part, ...]


def counted(nest: LoopNest, sizes: Mapping[str, int], program: Program) -> tuple[Work, ...]:
    """The work of every kernel at these sizes."""
    owners = _Owners(program)
    counter = _Counter(nest, dict(sizes), owners)
    found = [counter.kernel(kernel) for kernel in nest.kernels]
    lines = {name: dict.fromkeys(places) for name, places in owners.lines.items()}
    for part in (part for one in found for part in one.parts if part.lines):
        if part.definition not in owners.lines:
            lines.setdefault(part.definition, {}).update(dict.fromkeys(part.lines))
    return tuple(
        one._replace(parts=tuple(part._replace(lines=part.lines or tuple(lines.get(part.definition, ()))) for part in one.parts))
        for one in found
    )


class _Owners:
    """Which definition a buffer is for, and the lines of those that have some."""

    def __init__(self, program: Program) -> None:
        self.names = {item.name for item in program.inputs} | {constant.name for constant in program.constants}
        self.lines: dict[str, tuple[Location, ...]] = {}
        self._add(program.definitions)

    def _add(self, definitions: Sequence[Definition]) -> None:
        for definition in definitions:
            for name, _ in definition.results:
                self.names.add(name)
                if definition.location is not None:
                    self.lines[name] = (definition.location,)
            if isinstance(definition, Scan):
                self._add(definition.body)

    def of(self, buffer: str) -> str:
        """The definition with the longest name that the name of the buffer begins with; the buffer itself where there is none."""
        parts = buffer.split("_")
        names = ("_".join(parts[:end]) for end in range(len(parts), 0, -1))
        return next((name for name in names if name in self.names), buffer)

    def by_reader(self, block: Block) -> dict[str, str]:
        """The definition of each buffer that a kernel stores to: the one with its name, else that of what reads it there."""
        readers: dict[str, str] = {}
        stores = tuple(stores_in(block))
        for store in stores:
            for node in walk(store.value):
                if isinstance(node, Access) and node.tensor != store.buffer:
                    readers.setdefault(node.tensor, store.buffer)
        return {store.buffer: self._followed(store.buffer, readers) for store in stores}

    def _followed(self, buffer: str, readers: Mapping[str, str]) -> str:
        seen = [buffer]
        while (owner := self.of(seen[-1])) not in self.names and readers.get(seen[-1], buffer) not in seen:
            seen.append(readers[seen[-1]])
        return owner if owner in self.names else buffer


class _Counter:
    """Walks the kernels of a nest at sizes."""

    def __init__(self, nest: LoopNest, sizes: dict[str, int], owners: _Owners) -> None:
        self.owners = owners
        constants = {c.name: (c.type.shape, c.type.dtype) for c in nest.constants}
        buffers = {b.name: (b.shape, b.dtype) for b in (*nest.parameters, *nest.workspace)}
        self.whole = {name: prod(extent_value(e, sizes) for e in shape) for name, (shape, _) in (constants | buffers).items()}
        self.itemsize = {name: dtype.itemsize for name, (_, dtype) in (constants | buffers).items()}
        self.start = Points(np.ones(1), {}, sizes, {b.name: b for b in (*nest.parameters, *nest.workspace)})

    def kernel(self, kernel: Kernel) -> Work:
        """The work of one kernel."""
        found = _Found(frozenset(_deciding(kernel.body)), self.owners.by_reader(kernel.body))
        self._block(kernel.body, self.start, found)
        amounts = [
            {name: min(round(times), self.whole[name]) * self.itemsize[name] for name, times in counts.items() if name in self.whole}
            for counts in (found.read, found.written)
        ]
        held = sum(max(amounts[0].get(name, 0), amounts[1].get(name, 0)) for name in {*amounts[0], *amounts[1]})
        traffic = Traffic(sum(amounts[0].values()), sum(amounts[1].values()), held)
        return Work(kernel.name, round(found.operations), round(found.weighted), traffic, found.assumed, tuple(found.parts))

    def _block(self, block: Block, points: Points, found: _Found) -> None:
        for statement in block:
            match statement:
                case For():
                    found.assumed |= points.value(statement.start) is None or points.value(statement.stop) is None
                    inner, _ = points.inside(statement.index, statement.start, statement.stop, statement.index in found.deciding)
                    self._block(statement.body, inner, found)
                case If():
                    found.assumed |= points.value(statement.condition) is None
                    then, otherwise, _ = points.where(statement.condition)
                    self._block(statement.then, then, found)
                    self._block(statement.otherwise, otherwise, found)
                case Alloc():
                    self._block(statement.body, points, found)
                case Store():
                    self._store(statement, points, found)

    def _store(self, store: Store, points: Points, found: _Found) -> None:
        read_before = sum(found.read.values())
        for index in store.indices:
            self._value(index, points, found)
        done = self._value(store.value, points, found)
        found.written[store.buffer] = found.written.get(store.buffer, 0.0) + points.total
        found.operations += done
        found.weighted += done * store.value.dtype.itemsize
        accesses = (node for node in walk(store.value) if isinstance(node, Access))
        lines = tuple(dict.fromkeys(node.location for node in accesses if node.location is not None))
        touched = points.total + sum(found.read.values()) - read_before
        found.parts.append(Part(found.owners[store.buffer], lines, done + touched))

    def _value(self, value: Expr, points: Points, found: _Found) -> float:
        """The operations of a value at these points; its reads are counted on the way."""
        match value:
            case Access():
                for index in value.indices:
                    self._value(index, points, found)
                found.read[value.tensor] = found.read.get(value.tensor, 0.0) + points.total
                return 0.0
            case Apply() if value.op.name == "where":
                condition, taken, other = value.args
                chosen = any(isinstance(node, Apply) for branch in (taken, other) for node in walk(branch))
                found.assumed |= chosen and points.value(condition) is None
                yes, no, share = points.where(condition)
                done = self._value(condition, points, found)
                done += self._value(taken, yes, found) if share else 0.0
                return done + (self._value(other, no, found) if share < 1 else 0.0)
        inside = sum(self._value(child, points, found) for child in children(value))
        is_of_elements = isinstance(value, Apply) and bool(tensors_read(value))
        return inside + (points.total if is_of_elements else 0.0)


class _Found:
    """What has been counted in a kernel so far."""

    def __init__(self, deciding: frozenset[str], owners: Mapping[str, str]) -> None:
        self.deciding = deciding
        self.owners = owners
        self.operations = self.weighted = 0.0
        self.read: dict[str, float] = {}
        self.written: dict[str, float] = {}
        self.parts: list[Part] = []
        self.assumed = False


def _deciding(block: Block) -> Iterator[str]:
    """Names of indices in bounds and conditions: those that say how often something runs."""
    for s in statements(block):
        asked = list(expressions_of(s)) if isinstance(s, For | If) else []
        if isinstance(s, Store):
            asked = [node.args[0] for node in walk(s.value) if isinstance(node, Apply) and node.op.name == "where"]
        yield from (name for e in asked for name in free_names(e))
