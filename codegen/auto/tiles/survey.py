"""What is known of one kernel before it is tiled: its loops, how their iterations depend on each other, and what moves with them.

A loop is DATA where its iterations may run in any order, SUM where they may but for updates of one element, else ORDER. Statements that
stand in the same loops are a *leaf*; a *cut* gives each innermost loop the loop around it (or itself) whose iterations become lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, product
from math import prod
from typing import Any, TypeVar

from tensorexpr.codegen.auto.moves import Move, move_of
from tensorexpr.codegen.auto.points import few_rows, sizes_along, typical
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.dependence import Dependences, dependences
from tensorexpr.codegen.lowering.context.arithmetic import constant, sub
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import expressions_of
from tensorexpr.codegen.rewrites.paths import statement, walk_block
from tensorexpr.codegen.rewrites.regions import region
from tensorexpr.codegen.rewrites.touched.places import is_read_by
from tensorexpr.dtypes import float32
from tensorexpr.interpret import extent_value
from tensorexpr.ir import Access, Apply, Expr, Index, Size, conjuncts
from tensorexpr.records import cached_property, record, replace
from tensorexpr.traversal import free_names, size_names, tensors_read, walk

Told = TypeVar("Told")
DATA, SUM, ORDER = "data", "sum", "order"
FAR = 3.0
"""How much further apart than at best the elements of neighbouring lanes may be in a cut that is looked at: a gather takes as many loads as
lanes, of which other work hides some."""
NEAR = 1.1
"""The same for lanes that store far apart: that costs little behind a sum, but they are only looked at where no others lie better."""
NARROW = 16
"""Lanes that fill no register of 512 bits: they are not looked at where others lie as well."""
MOST_CUTS = 12
"""Assignments of lanes that are looked at: a kernel of three sums in a row has eight."""


WINDOW = 8
"""Iterations of a sum up to which it may be copied out as a whole: wider windows have hundreds of loads in one iteration."""

SHORT_SUM = 16
"""The same where an index is an exponent."""


@record(eq=False)
class Leaf:
    """The loops around some statements, outermost first, and the elements that these load and store."""

    loops: tuple[For, ...]
    loads: tuple[Access, ...]
    stores: tuple[Store, ...]

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(s.index for s in self.loops)

    @property
    def accesses(self) -> tuple[Access | Store, ...]:
        return (*self.loads, *self.stores)


class Survey:
    """A kernel: `nest` has it alone."""

    def __init__(self, nest: LoopNest, kernel: int) -> None:
        self.nest = alone(nest, kernel)
        self.body = self.nest.kernels[0].body
        self.loops: dict[str, list[For]] = {}
        self.children: dict[str, list[str]] = {}
        self.roots: list[str] = []
        self.parents: dict[str, str | None] = {}
        self.born: dict[str, tuple[str, ...]] = {}
        self.locals: dict[str, Buffer] = {}
        self.leaves: list[Leaf] = []
        self.sizes = typical(nest)
        self.small = nest.rest is not None and not nest.least  # small tiles: what more is made is for large sizes
        self.moves: dict[Expr, Move] = {Size(name): Move({}, float(size), frozenset()) for name, size in self.sizes.items()}
        self._walk(self.body, ())
        self.deps: Dependences = dependences(self.nest)
        self._kinds: dict[str, str] = {}
        self._known: dict[object, Any] = {}
        self.sized: dict[object, Any] = {}  # what was found of skeletons
        constants = (Buffer(c.name, c.type.dtype, c.type.shape, "constant") for c in nest.constants)
        self.constants = {c.name for c in nest.constants}
        self.buffers = {b.name: b for b in (*nest.parameters, *nest.workspace, *constants, *self.locals.values())}

    def _walk(self, block: Block, around: tuple[For, ...]) -> None:
        """Enters what stands in a block; copies of a loop may stand in different loops, each of which has it among its children."""
        loads: list[Access] = []
        stores: list[Store] = []
        for s in block:
            self._statement(s, around, loads, stores)
        if stores:
            self.leaves.append(Leaf(around, tuple(loads), tuple(stores)))

    def _statement(self, s: Stmt, around: tuple[For, ...], loads: list[Access], stores: list[Store]) -> None:
        loads += [n for e in expressions_of(s) for n in walk(e) if isinstance(n, Access)]
        match s:
            case For():
                parent = around[-1].index if around else None
                beside = self.roots if parent is None else self.children[parent]
                if s.index not in beside:
                    beside.append(s.index)
                self.parents.setdefault(s.index, parent)
                self.loops.setdefault(s.index, []).append(s)
                self.children.setdefault(s.index, [])
                self._walk(s.body, (*around, s))
            case If():
                for inner in (*s.then, *s.otherwise):
                    self._statement(inner, around, loads, stores)
            case Alloc():
                self.born[s.buffer.name] = tuple(x.index for x in around)
                self.locals[s.buffer.name] = s.buffer
                for inner in s.body:
                    self._statement(inner, around, loads, stores)
            case Store():
                stores.append(s)

    def once(self, key: object, ask: Callable[[], Told]) -> Told:
        """What is asked of a kernel for several tiles alike, once for equal keys."""
        if key not in self._known:
            self._known[key] = ask()
        found: Told = self._known[key]
        return found

    # ------------------------------------------------------------------------------------------------------- loops

    def kind(self, name: str) -> str:
        """How the iterations of a loop, of all its copies, depend on each other."""
        if name not in self._kinds:
            copies = self.loops[name]
            if any(s.kind != "serial" for s in copies):
                found = ORDER
            elif all(self.deps.may_run_in_any_order(s) for s in copies):
                found = DATA
            elif all(self.deps.may_run_in_any_order(s, updates=True) for s in copies):
                found = SUM
            else:
                found = ORDER
            self._kinds[name] = found
        return self._kinds[name]

    def length(self, name: str) -> int | None:
        """The iterations of a loop, the most of its copies, where that is a constant."""
        found = [constant(sub(s.stop, s.start)) for s in self.loops[name]]
        return None if any(n is None for n in found) else max(int(n or 0) for n in found)

    def keeps(self, name: str) -> bool:
        """Whether each iteration of a loop has local elements of its own."""
        return any(name in path for path in self.born.values())

    def iterations(self, name: str) -> float:
        """The same, or the mean at typical sizes of what is around."""
        length = self.length(name)
        return self._means.get(name, 1.0) if length is None else float(length)

    def extent(self, e: Expr) -> float:
        """An extent of a buffer, at typical sizes."""
        return float(max(1, extent_value(e, self.sizes)))

    def updated(self, name: str) -> tuple[str, ...]:
        """The buffers of which iterations of a loop update the same elements."""
        found: dict[str, None] = {}
        for s in self.loops[name]:
            for conflict in self.deps.carried(s):
                found.setdefault(conflict.first.home.buffer.name)
        return tuple(found)

    def may_be_lanes(self, name: str) -> bool:
        """Whether the iterations of a loop may run in lanes: of a sum where it is taken into local elements."""
        kind, length = self.kind(name), self.length(name)
        if kind == ORDER or (length is not None and length < 2) or self.bounds_others(name) or self._scatters(name):
            return False
        return kind == DATA or all(buffer in self.locals for buffer in self.updated(name))

    def _scatters(self, name: str) -> bool:
        """Whether lanes would each change an element of another row, at a place of it that data says: a line for each lane, every time."""
        stores = (s for leaf in self.below(name) for s in leaf.stores if s.buffer not in self.locals)
        return any(abs(self.stride(s, name)) > 2 and any(isinstance(n, Access) for e in s.indices for n in walk(e)) for s in stores)

    def bounds_others(self, name: str) -> bool:
        """Whether bounds of other loops change with a loop, which then stays outside of them."""
        inner = (x for s in self.loops[name] for _, x in walk_block(s.body) if isinstance(x, For))
        return any(name in free_names(bound) for x in inner for bound in (x.start, x.stop))

    # ------------------------------------------------------------------------------------------------------- strides

    def stride(self, access: Access | Store, name: str) -> float:
        """Elements that an access moves with one iteration of a loop; NaN where that differs."""
        indices, buffer = (access.indices, access.tensor) if isinstance(access, Access) else (access.indices, access.buffer)
        shape = self.buffers[buffer].shape
        total, row = 0.0, 1.0
        extents = [self.extent(e) for e in shape] if len(indices) == len(shape) else [1.0] * len(indices)
        for index, extent in zip(reversed(indices), reversed(extents), strict=True):
            move = move_of(index, self.moves)
            if name in move.random or (move.steps.get(name) and name in move.uneven):
                return float("nan")
            total += move.steps.get(name, 0.0) * row
            row *= extent
        return total

    def often(self, leaf: Leaf) -> float:
        """How often a leaf is executed."""
        return prod(map(self.iterations, leaf.path))

    @cached_property
    def _means(self) -> dict[str, float]:
        """The iterations of loops in the mean, whose bounds change with others, the most of the copies of a loop."""
        found: dict[str, float] = {}
        for loop in summary_of(self.nest).loops:
            found[loop.name] = max(loop.extent, found.get(loop.name, 0.0))
        return found

    @cached_property
    def written(self) -> frozenset[str]:
        """The buffers that the kernel stores to."""
        return frozenset(s.buffer for leaf in self.leaves for s in leaf.stores)

    def reader_of(self, buffer: str) -> str | None:
        """What the kernel makes of a buffer, for whose sake that may be copied: one of results that are stored together; else None."""
        made = sorted(self.written - self.locals.keys())
        if len({leaf.path for leaf in self.leaves if any(s.buffer in made for s in leaf.stores)}) != 1:
            return None
        read = (name for name in made for path in region(self.nest, name).stores if is_read_by(statement(self.nest, path), buffer))
        return next(read, None)

    @cached_property
    def has_tests(self) -> bool:
        """Whether something is asked of indices, which may be decided between borders."""
        every = (s for _, s in walk_block(self.body))
        return any(
            isinstance(s, If) or any(isinstance(n, Apply) and n.op.name == "where" for e in expressions_of(s) for n in walk(e))
            for s in every
        )

    @cached_property
    def exponents(self) -> frozenset[str]:
        """The loops that exponents change with."""
        return exponents(self.body)

    @property
    def lanes_alone(self) -> bool:
        """Whether tiles of a form for small sizes are lanes alone: unless a load goes through rows as long as those of results once for
        each of a few iterations. A product of twelve rows, one after the other, takes up to ninety times as long as in blocks of four."""
        return self.small and not self.once("few rows", self._few_rows)

    def _few_rows(self) -> bool:
        leaf, few, along = self.busiest, few_rows(self.nest), sizes_along(self.nest)
        rows, lanes = ([s.index for s in leaf.loops if not names.isdisjoint(size_names(s.stop))] for names in (few, along))
        loads = [a for a in leaf.loads if a.tensor not in self.locals]
        return any(self.stride(a, row) == 0 != self.stride(a, lane) for a in loads for row in rows for lane in lanes)

    @cached_property
    def busiest(self) -> Leaf:
        """The leaf that is executed most, by accesses."""
        return max(self.leaves, key=self.work)

    def work(self, leaf: Leaf) -> float:
        """How many elements a leaf touches."""
        return self.often(leaf) * len(leaf.accesses)

    def asked_with(self, name: str) -> set[str]:
        """The sums whose indices choices in a loop ask about together with its own: those of windows at borders."""
        values = (e for leaf in self.below(name) for s in leaf.stores for e in expressions_of(s))
        choices = (n.args[0] for e in values for n in walk(e) if isinstance(n, Apply) and n.op.name == "where")
        tests = [free_names(test) for condition in choices for test in conjuncts(condition)]
        return {x for own in tests if name in own for x in own if x in self.loops and self.kind(x) == SUM}

    def meets(self, access: Access, name: str, leaf: Leaf) -> bool:
        """Whether iterations of a loop read what others read in another iteration of a short sum: rows of a window."""
        own = self.stride(access, name)
        others = [x for x in leaf.path if x != name and self.kind(x) == SUM and 0 < (self.length(x) or 0) <= WINDOW]
        return bool(own) and any(self.stride(access, x) == own for x in others)

    @cached_property
    def crooked(self) -> tuple[str, ...]:
        """Loops whose iterations may be lanes but for what changes with them: indices that do not move evenly, such as those held at a
        border, or bounds of loops inside."""
        bending = (name for name in self.loops if self.bounds_others(name) and self.kind(name) == DATA)
        return tuple(dict.fromkeys((*self._uneven, *bending)))

    @property
    def _uneven(self) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for leaf in self.leaves:
            for loop in leaf.loops:
                name = loop.index
                length = constant(sub(loop.stop, loop.start)) or NARROW
                if length == 1 or length < min(NARROW, self.length(name) or NARROW):
                    continue  # cut off at a border
                strides = [self.stride(a, name) for a in leaf.accesses]
                if any(x != x for x in strides) and self.kind(name) == DATA:
                    found.setdefault(name)
        return tuple(found)

    def may_be_packed(self, access: Access, lanes: str, leaf: Leaf, alone: bool = False) -> bool:
        """Whether what an access loads of a buffer may be copied so that lanes lie side by side: along an axis of their own, for other
        loops that load the same, or for the lanes `alone`."""
        if access.tensor in self.locals or access.tensor in self.written or len(access.indices) < 2:
            return False
        if any(a.tensor == access.tensor and a != access for a in leaf.loads):
            return False
        moving = [e for e in access.indices if lanes in free_names(e)]
        again = alone or any(self.kind(x) == DATA and self.stride(access, x) == 0 for x in leaf.path)
        return moving == [Index(lanes)] and again

    def _slides(self, access: Access, lanes: str) -> bool:
        """Whether lanes begin anywhere in a line: another loop moves along their axis as well."""
        names = (free_names(e) for e in access.indices if lanes in free_names(e))
        return any(x != lanes and x in self.loops for own in names for x in own)

    def below(self, name: str) -> list[Leaf]:
        """The leaves in a loop."""
        return [leaf for leaf in self.leaves if name in leaf.path]

    # ------------------------------------------------------------------------------------------------------- cuts

    def cuts(self) -> list[tuple[str, ...]]:
        """Assignments of lanes, those first whose lanes lie side by side in memory."""
        found = dict.fromkeys(tuple(dict.fromkeys(c)) for c in islice(self._cuts(self.roots), 4 * MOST_CUTS))
        once = (c for c in found if all(sum(name in c for name in leaf.path) <= 1 for leaf in self.leaves))
        distances = {cut: self._distance(cut) for cut in once}
        ordered = sorted(distances, key=distances.__getitem__)
        wide = [cut for cut in ordered if not self._is_narrow(cut)]
        if wide:
            ordered = [cut for cut in ordered if cut in wide or distances[cut] < distances[wide[0]]]
        least = distances[(wide or ordered)[0]] if ordered else 0.0
        most = {cut: NEAR if self._is_stored_across(cut) else FAR for cut in ordered}
        return [cut for cut in ordered if distances[cut] <= most[cut] * least][:MOST_CUTS]

    def _is_stored_across(self, cut: tuple[str, ...]) -> bool:
        """Whether lanes store far apart, which no copy of an operand mends."""
        stores = ((s, name) for leaf in self.leaves for name in leaf.path if name in cut for s in leaf.stores)
        return any(abs(self.stride(s, name)) > 2 for s, name in stores if s.buffer not in self.locals)

    def _is_narrow(self, cut: tuple[str, ...]) -> bool:
        """Whether lanes of what is executed most are few."""
        lanes = next((name for name in self.busiest.path if name in cut), None)
        return lanes is not None and self.iterations(lanes) < NARROW

    def _cuts(self, names: list[str]) -> Iterator[list[str]]:
        for chosen in product(*(list(islice(self._cut(name), 4 * MOST_CUTS)) for name in names)):  # no more than that are looked at
            yield [x for part in chosen for x in part]

    def _cut(self, name: str) -> Iterator[list[str]]:
        if self.children[name]:
            yield from self._cuts(self.children[name])
        if self.may_be_lanes(name):
            yield [name]
        elif not self.children[name]:
            yield []

    def _distance(self, cut: tuple[str, ...]) -> float:
        """How far the elements of neighbouring lanes are from each other, by how often they are touched."""
        total = 0.0
        for leaf in self.leaves:
            lanes = next((name for name in reversed(leaf.path) if name in cut), None)
            often = self.often(leaf)
            for access in leaf.accesses:
                stride = 16.0 if lanes is None else abs(self.stride(access, lanes))
                if isinstance(access, Access) and lanes is not None:
                    if (stride > 2 and self.may_be_packed(access, lanes, leaf)) or (stride == 1 and self._slides(access, lanes)):
                        stride = 2.0
                total += often * (1.0 if stride <= 1 else 2.0 if stride == 2 else 16.0)
        return total


def alone(nest: LoopNest, kernel: int) -> LoopNest:
    """A nest that has one of the kernels, for what is asked about it alone."""
    return nest if len(nest.kernels) == 1 else replace(nest, kernels=(nest.kernels[kernel],))


def exponents(body: Block) -> frozenset[str]:
    """The loops that exponents change with: in copies of theirs a power is a few products."""
    values = (n for _, s in walk_block(body) for e in expressions_of(s) for n in walk(e))
    powers = (n.args[1] for n in values if isinstance(n, Apply) and n.op.name == "pow" and n.dtype is float32)
    return frozenset(name for e in powers if not tensors_read(e) for name in free_names(e))
