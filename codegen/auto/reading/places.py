"""Where statements of a nest stand, and how what they access moves with the loops around."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import nan, prod

import numpy as np

from tensorexpr.codegen.auto.kinds import Kinds
from tensorexpr.codegen.auto.moves import Move, move_of
from tensorexpr.codegen.auto.points import Points
from tensorexpr.codegen.auto.summary import AUTO, PARALLEL_AUTO, UNROLL, VECTORIZE, Loop, Memory, Touch
from tensorexpr.codegen.llvm.process.load import passes_for
from tensorexpr.codegen.llvm.text.machine import Machine
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.dtypes import DType
from tensorexpr.ir import Access, Expr, Size
from tensorexpr.records import record
from tensorexpr.traversal import tensors_read

NEAR = 16
"""Elements along each axis within which accesses that move together are taken for one, which touches all between them."""


class Seen:
    """Terms that have been computed at a place, each with the loops that change it, until something is stored to what they read."""

    def __init__(self, terms: dict[Expr, frozenset[int]] | None = None, readers: dict[str, tuple[Expr, ...]] | None = None) -> None:
        self.terms, self.readers = terms or {}, readers or {}

    def add(self, e: Expr, changed: frozenset[int]) -> None:
        self.terms[e] = changed
        for name in tensors_read(e):
            self.readers[name] = (*self.readers.get(name, ()), e)

    def forget(self, buffers: Iterable[str]) -> None:
        """Drops what reads some buffers."""
        for name in buffers:
            for e in self.readers.pop(name, ()):
                self.terms.pop(e, None)

    def without(self, buffers: Iterable[str] = ()) -> Seen:
        """A copy that has nothing that reads some buffers."""
        made = Seen(dict(self.terms), dict(self.readers))
        made.forget(buffers)
        return made


@record
class Place:
    """Where a statement stands: loops around it, the loop whose iterations are lanes, a sample of the iterations, the share that runs."""

    path: tuple[int, ...]
    names: Mapping[str, int]
    lanes: int | None
    points: Points
    share: float
    seen: Seen
    certain: bool = True
    """Whether each iteration of the innermost loop comes here."""
    turned: bool = False
    """Whether what is loaded is a square that is turned around in registers."""
    under: frozenset[int] = frozenset()
    """Loops that decide whether it is come here: what is loaded is not moved out of them."""
    masked: bool = False
    """Whether some lanes may be off."""
    torn: bool = False
    """Whether copies are apart by tests that other loops decide as well: what is held is not in registers across them."""
    beside: int = 1
    """Stores of neighbouring elements that a store stands among, itself included."""


class Accesses:
    """The loops and buffers of a nest, and what accesses touch."""

    def __init__(self, nest: LoopNest, sizes: dict[str, int], machine: Machine, threads: int) -> None:
        self.nest, self.sizes, self.machine, self.threads = nest, sizes, machine, threads
        self.loops: list[Loop] = []
        self.parts: list[tuple[int, ...]] = []
        self.touches: dict[tuple[object, ...], list[Touch]] = {}
        self.buffers: list[Memory] = []
        self.numbers: dict[str, int] = {}
        self.private: dict[str, frozenset[int]] = {}
        self.moves: dict[Expr, Move] = {}
        self.stores: dict[int, frozenset[str]] = {}
        self.kinds = Kinds(self.machine, not threads and passes_for(nest) == "loops", self.moves, self._step)
        tables = {b.name: b for b in (*nest.parameters, *nest.workspace)}
        self.start = Points(np.ones(1), {}, sizes, tables)
        self.written = {b.name for b in nest.workspace} | set(nest.writes)
        for size in nest.sizes:
            self.moves[Size(size)] = Move({}, float(self.start.value(Size(size))), frozenset())
        for constant in nest.constants:
            self._declare(constant.name, constant.type.dtype, constant.type.shape)
        for buffer in (*nest.parameters, *nest.workspace):
            self._declare(buffer.name, buffer.dtype, buffer.shape, buffer.name in nest.streams)

    def _declare(self, name: str, dtype: DType, shape: tuple[Expr, ...], streamed: bool = False, local: bool = False) -> None:
        self.numbers[name] = len(self.buffers)
        extents = tuple(max(1.0, float(self.start.value(extent))) for extent in shape)
        self.buffers.append(Memory(name, dtype.itemsize, extents, streamed, local))

    def _loop(self, path: tuple[int, ...], name: str, kind: str, extent: float, share: float = 1.0) -> int:
        number = len(self.loops)
        self.loops.append(Loop(name, kind, number, extent, share))
        self.parts.append((*path, number))
        return number

    def _meets(self, e: Access, at: Place) -> tuple[tuple[int, ...], ...]:
        """Loops that are copied out and move one index of an access alike, and no other index."""
        found: dict[tuple[int, float], list[int]] = {}
        often: dict[int, int] = {}
        for axis, index in enumerate(e.indices):
            move = move_of(index, self.moves)
            for name, step in move.steps.items():
                loop = at.names.get(name)
                if loop is not None and self.loops[loop].kind == UNROLL and name not in move.uneven:
                    found.setdefault((axis, step), []).append(loop)
                    often[loop] = often.get(loop, 0) + 1
        groups = (tuple(x for x in loops if often[x] == 1) for loops in found.values())
        return tuple(group for group in groups if len(group) > 1)

    def _rewritten(self, buffer: str, at: Place) -> frozenset[int]:
        """The loops around in which a buffer is stored to, lanes apart: what is read of it may be new in each iteration."""
        return frozenset(x for x in at.path if buffer in self.stores[x] and self.loops[x].kind != VECTORIZE)

    def _size(self, buffer: str) -> int:
        return self.buffers[self.numbers[buffer]].size

    def _rows(self, buffer: str, indices: tuple[Expr, ...]) -> list[float]:
        """Elements from one index of an axis to the next, for each index of an access."""
        extents = self.buffers[self.numbers[buffer]].extents
        if len(indices) != len(extents):
            return [1.0]
        return [prod(extents[axis + 1 :]) for axis in range(len(extents))]

    def _step(self, buffer: str, indices: tuple[Expr, ...], name: str) -> float:
        """Elements that an access moves with one iteration of a loop; NaN where they differ."""
        total = 0.0
        for index, row in zip(indices, self._rows(buffer, indices) if buffer in self.numbers else [1.0] * len(indices)):
            move = move_of(index, self.moves)
            step = move.steps.get(name, 0.0)
            if name in move.random or (step and name in move.uneven):
                return nan
            total += step * row
        return total

    def _stride(self, buffer: str, indices: tuple[Expr, ...], at: Place) -> float:
        """Elements between neighbouring lanes."""
        lanes = at.lanes
        if lanes is None:
            return 0.0
        own = self.private.get(buffer, frozenset()) & {lanes}
        return 1.0 if own else self._step(buffer, indices, self.loops[lanes].name)

    def _is_aligned(self, buffer: str, indices: tuple[Expr, ...], at: Place) -> bool:
        """Whether whole vectors begin at multiples of a cache line, as far as offsets and other loops' steps say."""
        size, line, offset = self._size(buffer), 64, 0.0
        for index, row in zip(indices, self._rows(buffer, indices)):
            move = move_of(index, self.moves)
            offset += move.offset * row
            for name, step in move.steps.items():
                number = at.names.get(name)
                if number is not None and self.loops[number].kind not in (VECTORIZE, AUTO, PARALLEL_AUTO) and step * row * size % line:
                    return False
        return offset * size % line == 0

    def _touch(self, buffer: str, indices: tuple[Expr, ...], at: Place, store: bool, updates: bool = False) -> None:
        number = self.numbers[buffer]
        moves, offsets, random = [], [], set()
        for index in indices:
            move = move_of(index, self.moves)
            moves.append(tuple(sorted((self.loops[at.names[n]].axis, step) for n, step in move.steps.items() if n in at.names)))
            offsets.append(move.offset)
            random |= {at.names[n] for n in move.random if n in at.names}
        own = self.private.get(buffer, frozenset())
        if own:
            moves, offsets = [*moves, tuple((self.loops[n].axis, 1.0) for n in own)], [*offsets, 0.0]
        key = (at.path, number, tuple(moves), frozenset(random), store)
        alike = self.touches.setdefault(key, [])
        for place, known in enumerate(alike):
            if all(low - NEAR <= offset <= high + NEAR for (low, high), offset in zip(known.offsets, offsets)):
                spread = tuple((min(low, offset), max(high, offset)) for (low, high), offset in zip(known.offsets, offsets))
                alike[place] = known._replace(offsets=spread, share=max(known.share, at.share))
                return
        spread = tuple((offset, offset) for offset in offsets)
        alike.append(Touch(at.path, number, tuple(moves), spread, frozenset(random), store, at.share, updates))
