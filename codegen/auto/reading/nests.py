"""A nest summarised: each statement once, with what it computes, touches and waits for (see `summary`).

What is counted is what LLVM is left with: equal terms once, until something is stored to what they read, a product that is added as one
instruction, indices that move evenly not at all. A local buffer is held in registers where all that moves its indices is copied out or in
lanes.
Of a nest without vectors (`passes_for`) LLVM copies out short loops, and makes vectors of innermost loops whose elements lie side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2, prod

from tensorexpr.codegen.auto import operations
from tensorexpr.codegen.auto.kinds import instructions_of
from tensorexpr.codegen.auto.moves import move_of
from tensorexpr.codegen.auto.points import typical
from tensorexpr.codegen.auto.reading.places import Place, Seen
from tensorexpr.codegen.auto.reading.values import TURNED, Values
from tensorexpr.codegen.auto.summary import AUTO, LOAD, PARALLEL, PARALLEL_AUTO, SCALAR, SERIAL, STORE, UNROLL, VECTORIZE, Chain, Summary
from tensorexpr.codegen.dependence import in_turn
from tensorexpr.codegen.llvm.emitter.dots import dot_in
from tensorexpr.codegen.llvm.emitter.rectangles import LANES as LANES_OF_SQUARES
from tensorexpr.codegen.llvm.emitter.rectangles import MOST_COLUMNS
from tensorexpr.codegen.llvm.emitter.squares import LEAST_ROWS
from tensorexpr.codegen.llvm.text.machine import Machine, host
from tensorexpr.codegen.lowering.stage.joining import side_by_side
from tensorexpr.codegen.nest import LANES, Alloc, Block, Check, For, If, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import blocks_of, statements, stores_in
from tensorexpr.codegen.rewrites.lanes_last import lanes_last
from tensorexpr.dtypes import int8
from tensorexpr.ir import Access, Apply, Cast, Const, Expr, const
from tensorexpr.records import replace
from tensorexpr.traversal import free_names, substitute, walk

MOST_KEPT = 32
"""Registers of elements in memory that LLVM keeps while a loop updates them: as many as there are."""
COLUMNS = range(2, MOST_COLUMNS + 1)
"""Copies around lanes of a copy that make a rectangle that is turned around."""
SIGNED = 1.4
"""What a sum of products of two signed bytes takes beside one instruction: subtractions run in part beside it (measured, Zen 4)."""


def summary_of(nest: LoopNest, sizes: Mapping[str, int] | None = None, machine: Machine | None = None, block: int = 0) -> Summary:
    """The summary of a nest at these sizes (`points.typical` ones for those that are not said), as compiled for a machine (by default this
    one), or for a GPU, by blocks of so many threads."""
    return _Reader(nest, {**typical(nest), **(sizes or {})}, machine or host(), block).summary()


class _Reader(Values):
    def __init__(self, nest: LoopNest, sizes: dict[str, int], machine: Machine, threads: int) -> None:
        super().__init__(nest, sizes, machine, threads)
        self.features = machine.features.split(",")
        self.chains: dict[Chain, None] = {}
        self.born: dict[str, int] = {}
        self._known: dict[int, tuple[Stmt, frozenset[str]]] = {}

    def summary(self) -> Summary:
        for kernel in self.nest.kernels:
            number = self._loop((), kernel.name, SERIAL, 1.0)
            self.stores[number] = frozenset(s.buffer for s in stores_in(kernel.body))
        for number, kernel in enumerate(self.nest.kernels):
            self.matter = _names_that_matter(kernel.body)
            self.block(kernel.body, Place((number,), {}, None, self.start, 1.0, Seen()))
        work = tuple(key._replace(instructions=count) for key, count in self.work.items())
        kernels = tuple(kernel.name for kernel in self.nest.kernels)
        touches = tuple(touch for alike in self.touches.values() for touch in alike)
        return Summary(
            tuple(self.loops), work, touches, tuple(self.chains), tuple(self.held), tuple(self.buffers), kernels, tuple(self.parts)
        )

    # ---------------------------------------------------------------------------------------------------- statements

    def block(self, body: Block, at: Place) -> None:
        left = beside = 1
        for n, s in enumerate(body):
            if at.lanes is not None and isinstance(s, Store):
                left -= 1
                if not left:
                    left = beside = max(1, len(side_by_side(body[n:])))
                    at = replace(at, beside=beside)
            match s:
                case For():
                    self._for(s, at)
                case If():
                    self._if(s, at)
                case Store():
                    self._store(s, at)
                case Alloc():
                    self._alloc(s, at)
                case Check():
                    self._visit(s.index, at)
                    self._add(at, self._changed(s.index, at), SCALAR, 8, 2.0)
            at.seen.forget(self._stored(s))

    def _stored(self, s: Stmt) -> frozenset[str]:
        """The buffers that a statement stores to, found once: each loop around asks as well."""
        if isinstance(s, Store):
            return frozenset((s.buffer,))
        found = self._known.get(id(s))
        if found is None:  # the statement is kept with them, so that no other one gets its number
            stored = frozenset[str]().union(*(self._stored(x) for block in blocks_of(s) for x in block))
            found = self._known[id(s)] = s, stored
        return found[1]

    def _if(self, s: If, at: Place) -> None:
        self._visit(s.condition, at)
        yes, no, share = at.points.where(s.condition)
        if at.lanes is not None and at.names and self._changed(s.condition, at) & {at.lanes}:
            yes, no, share = at.points, at.points, 1.0  # a mask: lanes that are off take the same time
        changed = self._changed(s.condition, at)
        for store in s.then if at.lanes in changed else ():
            if isinstance(store, Store):  # an element that is kept or not by what it is: as a choice of it
                index = frozenset(x for i in store.indices for x in self._changed(i, at))
                for access in (n for n in walk(s.condition) if isinstance(n, Access) and n.tensor == store.buffer):
                    self._chain(store, access, index, store.buffer in self.registers, at, s.condition)
        under = frozenset(x for x in changed if self.loops[x].kind not in (UNROLL, VECTORIZE))
        copied = self._tears(s.condition, at)
        at = replace(at, masked=at.masked or at.lanes in changed)
        at = replace(at, certain=at.certain and not under, under=at.under | under | copied, torn=at.torn or bool(copied))
        if share > 0:
            self.block(s.then, replace(at, points=yes, share=at.share * share, seen=at.seen.without()))
        if s.otherwise and share < 1:
            self.block(s.otherwise, replace(at, points=no, share=at.share * (1 - share), seen=at.seen.without()))

    def _tears(self, condition: Expr, at: Place) -> frozenset[int]:
        """The loops that are copied out whose copies a branch parts: some run in one iteration of other loops, and not in another."""
        changed = self._changed(condition, at)
        if at.lanes in changed or not any(self.loops[x].kind not in (UNROLL, VECTORIZE) for x in changed):
            return frozenset()
        return frozenset(x for x in changed if self.loops[x].kind == UNROLL)

    def _for(self, s: For, at: Place) -> None:
        inside, extent = at.points.inside(s.index, s.start, s.stop, s.index in self.matter)
        if extent <= 0:
            return
        kind = self.kinds.of(s, extent, at.lanes is not None)
        number = self._loop(at.path, s.index, kind, extent, at.share)
        self.stores[number] = self._stored(s)
        path, names = self.parts[number], {**at.names, s.index: number}
        lanes = number if kind in (VECTORIZE, AUTO, PARALLEL_AUTO) else at.lanes
        if at.lanes is not None and at.lanes in self._changed(s.start, at) | self._changed(s.stop, at):
            mask = Place(path, names, lanes, inside, at.share, Seen())
            self._add(mask, frozenset((number, at.lanes)), operations.ARITHMETIC, 8, 3.0)  # two comparisons, and both
        if self.threads and kind == PARALLEL and not any(isinstance(x, For) and x.kind in LANES for x in statements(s.body)):
            # Iterations are threads: blocks of them run one after the other on each multiprocessor, a warp at a time.
            self.loops[number] = self.loops[number]._replace(extent=float(-(-extent // self.threads)))
            lanes = self._loop(path, s.index, VECTORIZE, min(extent, self.threads))
            self.loops[lanes] = self.loops[lanes]._replace(axis=number)
            self.stores[lanes], path, names = self.stores[number], self.parts[lanes], {**names, s.index: lanes}
        if not isinstance(s.start, Const) or not isinstance(s.stop, Const):
            self._visit(s.start, at)
            self._visit(s.stop, at)
        inner = Place(
            path, names, lanes, inside, at.share, at.seen.without(self.stores[number]), kind != UNROLL or at.certain, at.turned, at.under
        )
        if kind != UNROLL or not self._dot(s, extent, at, inner):
            self.block(s.body, inner)

    def _dot(self, s: For, extent: float, at: Place, inner: Place) -> bool:
        """Counts a loop in lanes that is an instruction for sums of products of narrow numbers (`llvm/emitter/dots.py`), if it is one."""
        if at.lanes is None or self.threads:
            return False
        lane = self.loops[at.lanes].name

        def apart(e: Access) -> tuple[float, float]:
            return self._step(e.tensor, e.indices, lane), self._step(e.tensor, e.indices, s.index)

        found = dot_in(s, int(extent), apart, self.features)
        if found is None:
            return False
        dot, store, shared, own = found
        first = {s.index: const(0)}
        changed: frozenset[int] = self._rewritten(store.buffer, at) | at.under
        for e, stride in ((shared, 0.0), (own, 1.0)):
            moved = self._indexed(e.tensor, tuple(substitute(i, first) for i in e.indices), at)
            self._add(at, moved | at.under, LOAD, dot.total.itemsize, 1.0, stride)
            self._touch(e.tensor, e.indices, inner, False)
            changed |= moved
        index = self._indexed(store.buffer, store.indices, at)
        self._add(at, changed | index, operations.ARITHMETIC, dot.total.itemsize, SIGNED if dot.shared is int8 else 1.0)
        total = Access(store.buffer, store.indices, dot.total)
        if store.buffer in self.registers:
            self._hold(store.buffer, index, at)
        else:
            self._load(total, at)
            self._add(at, frozenset(at.path), STORE, dot.total.itemsize, 1.0)
            self._touch(store.buffer, store.indices, at, True, True)
        self._chain(store, total, index, store.buffer in self.registers, at)
        return True

    def _alloc(self, s: Alloc, at: Place) -> None:
        s = lanes_last(s) if at.lanes is None else s
        name = s.buffer.name
        self._declare(name, s.buffer.dtype, s.buffer.shape, local=True)
        at.seen.forget((name,))
        self.private[name] = frozenset() if at.lanes is None else frozenset({at.lanes})
        self.registers.discard(name)
        self.born[name] = len(at.path)
        if self.kinds.holds(s.body, name, dict.fromkeys(at.names, SERIAL)):
            self.registers.add(name)
        self.block(s.body, at)

    def _store(self, s: Store, at: Place) -> None:
        s = replace(s, value=in_turn(s)) if self.machine.fuses else s
        if any(self._is_behind_a_branch(n, at) for n in walk(s.value) if isinstance(n, Apply) and n.op.name == "where"):
            at = replace(at, torn=True)
        index = self._indexed(s.buffer, s.indices, at)
        again = [n for n in walk(s.value) if isinstance(n, Access) and n.tensor == s.buffer]
        held, loops = s.buffer in self.registers, frozenset(at.path)
        same = any(n.indices == s.indices for n in again)
        if isinstance(s.value, Access) and self._is_turned(s.value.tensor, s.value.indices, at, COLUMNS, LANES_OF_SQUARES):
            changed = self._load(s.value, replace(at, turned=True))
        elif same and not held:
            kept = self._kept_element(s, index, at)
            for element, loops_of_it in kept.items():
                at.seen.add(element, loops_of_it)
            changed = self._visit(s.value, at)
        else:
            changed = self._visit(s.value, at)
        if held:
            self._hold(s.buffer, index, at)
        else:
            loops = self._kept(index, at) if same else loops
            stride = self._stride(s.buffer, s.indices, at)
            if self._is_turned(s.buffer, s.indices, at, range(LEAST_ROWS, 65)):
                self._add(at, loops | changed & self._lanes(at) | index, operations.SHUFFLE, self._size(s.buffer), TURNED)
                stride = 1.0
            elif self._is_interleaved(s, stride, at):
                self._add(at, loops | changed & self._lanes(at) | index, operations.SHUFFLE, self._size(s.buffer), log2(stride))
                stride = 1.0
            self._add(
                at,
                loops | changed & self._lanes(at) | index,
                STORE,
                self._size(s.buffer),
                1.0,
                stride,
                self._is_aligned(s.buffer, s.indices, at),
            )
            self._touch(s.buffer, s.indices, at, True, same)
        for access in again:
            self._chain(s, access, index, held or (same and loops != frozenset(at.path)), at)

    def _is_behind_a_branch(self, choice: Apply, at: Place) -> bool:
        """Whether lanes of what may be beyond a border are loaded behind a branch; a single element is loaded from one of two places."""
        loads = [n for n in walk(choice.args[1]) if isinstance(n, Access)]
        return bool(self._tears(choice.args[0], at)) and any(self._stride(n.tensor, n.indices, at) for n in loads)

    def _is_turned(self, buffer: str, indices: tuple[Expr, ...], at: Place, sides: Sequence[int], lanes: Sequence[int] = ()) -> bool:
        """Whether lanes that go across the rows of a buffer are turned around in registers: copies around them go along the rows. They are
        whole registers, or as many `lanes`; of numbers of 8 and 16 bits whole squares of these alone."""
        if at.lanes is None or self.private.get(buffer) or abs(self._stride(buffer, indices, at)) in (0.0, 1.0) or at.path[-1] != at.lanes:
            return False
        extent = self.loops[at.lanes].extent
        whole = self._size(buffer) >= 4 and not extent * self._size(buffer) % (self.machine.vector_bits // 8)
        if not whole and extent not in lanes:
            return False
        sides = sides if self._size(buffer) >= 4 else [int(extent)]
        around = [self.loops[x] for x in at.path[:-1] if self.loops[x].kind == UNROLL and self.loops[x].extent in sides]
        return any(abs(self._step(buffer, indices, loop.name)) == 1 for loop in around)

    def _is_interleaved(self, s: Store, stride: float, at: Place) -> bool:
        """Whether statements, or the copies of an unrolled loop in lanes, store side by side what lanes leave out: vectors without gaps,
        after shuffles."""
        if at.lanes is None or at.masked or not stride > 1:
            return False
        if at.beside == stride:
            return True
        inside = at.path[at.path.index(at.lanes) + 1 :]
        own = [x for x in inside if self.loops[x].kind == UNROLL and self.loops[x].extent == stride]
        return any(self._step(s.buffer, s.indices, self.loops[x].name) == 1 for x in own)

    def _kept(self, index: frozenset[int], at: Place) -> frozenset[int]:
        """The loops around an element that is updated in place, without the innermost ones that leave it, and its copies and lanes, where
        they are: there it is kept, if it is stored to in each iteration."""
        inner = len(at.path)
        while inner > 1 and self.loops[at.path[inner - 1]].kind in (UNROLL, VECTORIZE) and at.path[inner - 1] in index:
            inner -= 1
        held = prod(self.loops[x].extent for x in at.path[inner:])
        path = list(at.path[:inner] if held <= MOST_KEPT * self.machine.vector_bits / 32 else at.path)
        while path[1:] and at.certain and path[-1] not in index and self.loops[path[-1]].kind in (SERIAL, UNROLL):
            path.pop()
        return frozenset((*path, *at.path[inner:]))

    def _kept_element(self, s: Store, index: frozenset[int], at: Place) -> dict[Expr, frozenset[int]]:
        """The element that a statement updates in place, where it is kept for some loops, and is loaded in front of them."""
        kept = self._kept(index, at)
        if kept == frozenset(at.path):
            return {}
        access = next(n for n in walk(s.value) if isinstance(n, Access) and n.tensor == s.buffer and n.indices == s.indices)
        own = kept | self._lanes(at) if self._lanes(at) & index else kept
        self._add(
            at, own, LOAD, self._size(s.buffer), 1.0, self._stride(s.buffer, s.indices, at), self._is_aligned(s.buffer, s.indices, at)
        )
        self._touch(s.buffer, s.indices, at, False)
        return {access: index | self._rewritten(s.buffer, at)}

    def _chain(self, s: Store, access: Access, index: frozenset[int], near: bool, at: Place, asked: Expr | None = None) -> None:
        """Iterations that wait for each other: the element that is stored is made of one that an iteration before has stored, or kept where
        a condition that is `asked` of it holds."""
        free = {x for x in index if self.loops[x].kind != VECTORIZE} | set(at.path[: self.born.get(s.buffer, 1)])
        if access.indices != s.indices:
            carried: set[int] = set()
            for mine, other in zip(s.indices, access.indices):
                a, b = move_of(mine, self.moves), move_of(other, self.moves)
                if a.steps != b.steps:
                    return
                if a.offset != b.offset:
                    carried |= {at.names[n] for n in a.steps if n in at.names}
            free -= {next((x for x in at.path if x in carried), -1)}  # one iteration of it waits; those inside of it do not
            near = False
        if any(x not in free and self.loops[x].kind != VECTORIZE for x in at.path):
            height = self._height(s.value if asked is None else asked, access)
            if height is not None and asked is not None:
                height = height[0], height[1] + 1.0
            if height is not None:
                self.chains[Chain(at.path, frozenset(free), *height, not near, at.share)] = None

    def _height(self, e: Expr, access: Access) -> tuple[float, float] | None:
        """Additions and other instructions one after the other from an access to the value that it is in."""
        if e == access:
            return 0.0, 0.0
        if isinstance(e, Cast):
            below = self._height(e.arg, access)
            return None if below is None else (below[0], below[1] + 1.0)
        if not isinstance(e, Apply):
            return None
        found = [h for h in (self._height(a, access) for a in e.args) if h is not None]
        if not found:
            return None
        additions, others = max(found, key=sum)
        if e.op.name in ("add", "sub"):
            fused = self.machine.fuses and any(isinstance(a, Apply) and a.op.name == "mul" for a in e.args)
            return (additions, others + 1.0) if fused else (additions + 1.0, others)
        return additions, others + (0.0 if e.op.name == "mul" and not others else max(1.0, instructions_of(e, self.machine) / 2))


def _names_that_matter(body: Block) -> frozenset[str]:
    """The loops whose indices bounds and conditions of others depend on."""
    found: set[str] = set()
    for s in statements(body):
        match s:
            case For():
                found.update((*free_names(s.start), *free_names(s.stop)))
            case If():
                found.update(free_names(s.condition))
    return frozenset(found)
