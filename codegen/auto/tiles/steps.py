"""Loops of scans whose points do not communicate: lanes, squares and cores, as rewrites of the plain nests of their steps.

    for i in range(0, n):                         for i_o in parallel(range(0, n // 16)):
        state: local(f32[()])                         state: local(f32[16])
        state[()] = 0.0                               for i_i in vectorize(range(0, 16)): state[i_i] = 0.0
        for t in range(0, m):             -->         for t_o in range(0, m // 16):
            state[()] = state[()] + x[i, t]               x_of: local(f32[16, 16]) = x of the block, turned around; y_of
            y[i, t] = state[()]                           for t_i in unroll(range(0, 16)):
                                                              for i_i in vectorize(range(0, 16)): ... y_of[t_i, i_i] = state[i_i]
                                                          y of the block = y_of, turned around

Every element that a step touches is looked at along each loop over points: the lanes go along the one along which most of them lie side by
side. Elements that lie along the steps instead are moved in square tiles, so steps go in blocks of as many as there are lanes. Without any
of those, lanes come in long blocks, whose states stay in the first cache: a step then walks through memory and not from page to page.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from math import prod

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.lowering.context.arithmetic import ZERO, constant
from tensorexpr.codegen.nest import For, Kernel, LoopNest
from tensorexpr.codegen.nest.walks import buffers_written, elements_read, statements, stores_in
from tensorexpr.codegen.rewrites.names import fresh, named
from tensorexpr.codegen.rewrites.paths import walk_nest
from tensorexpr.codegen.schedule.analysis.steps import Sweep
from tensorexpr.codegen.schedule.analysis.strides import Reach, reach
from tensorexpr.codegen.schedule.analysis.work import CHUNKS_PER_CORE, PARALLEL_WORK, length, operations
from tensorexpr.codegen.target import Target
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Const, integer
from tensorexpr.records import replace
from tensorexpr.traversal import free_names

GATHER = 20.0
TURNED = 1.5
"""What an element costs whose neighbors lie apart, and one that is moved in a square tile, in loads of elements side by side."""
STATE_BYTES = 16 << 10
"""Bytes of the states of a block of points: half of a first cache."""
WIDEST = 4
"""Vectors that run side by side, so that the latencies of their steps overlap."""
LONGEST = 1024
COPIED_WORK = 12
"""Operations of a step up to which a block of steps is copied out."""


def with_steps(nest: LoopNest, sweeps: Iterable[Sweep], target: Target) -> LoopNest:
    """The nest with lanes, squares and threads for the kernels of some scans, which have a plain loop for each axis and step."""
    of = {" ".join((*one.names, *one.readers)): one for one in sweeps}
    made = (_kernel(nest, kernel, of[kernel.name], target) if kernel.name in of else kernel for kernel in nest.kernels)
    return replace(nest, kernels=tuple(made))


def _kernel(nest: LoopNest, kernel: Kernel, sweep: Sweep, target: Target) -> Kernel:
    """A kernel of a scan in blocks; as it is where they are not legal."""
    made = buffers_written(kernel.body)
    alone = replace(
        nest,
        kernels=(kernel,),
        parameters=tuple(b for b in (*nest.parameters, *nest.workspace) if b.name in kernel.buffers),
        workspace=(),
        writes=tuple(b.name for b in (*nest.parameters, *nest.workspace) if b.name in made),
    )
    given, new = named(alone), dict[str, str]()
    for (_, one), (_, other) in zip(walk_nest(alone), walk_nest(given), strict=True):
        if isinstance(one, For) and isinstance(other, For):  # a tensor may have the name of a loop
            new.setdefault(one.index, other.index)
    axes = tuple(replace(a, index=new.get(a.index, a.index)) for a in sweep.axes)
    sweep = replace(sweep, axes=axes, step=replace(sweep.step, index=new.get(sweep.step.index, sweep.step.index)))
    with suppress(ScheduleError):
        steps = _Steps(Candidate(given), sweep, target)
        steps.in_blocks()
        (kernel,) = steps.candidate.nest.kernels
    return kernel


class _Steps:
    """The nest of one scan while it gets its blocks: `axes` are its loops over points, `step` that over steps."""

    def __init__(self, start: Candidate, sweep: Sweep, target: Target) -> None:
        self.candidate, self.sweep, self.target = start, sweep, target
        self.axes = {a.index: integer(a.stop) if isinstance(a.stop, Const) else None for a in sweep.axes}
        self.points = prod(map(length, sweep.axes))
        self.step = sweep.step.index
        nest = start.nest
        shapes = {b.name: b.shape for b in nest.parameters} | {c.name: c.type.shape for c in nest.constants}
        body = nest.kernels[0].body
        touched = [*elements_read(body), *(Access(s.buffer, s.indices, s.value.dtype) for s in stores_in(body))]
        self.reached = [reach(a, shapes[a.tensor]) for a in dict.fromkeys(touched) if a.tensor in shapes]

    def then(self, word: str, *arguments: object) -> None:
        """One more rewrite."""
        self.candidate = self.candidate.then(word, *arguments)

    def in_blocks(self) -> None:
        """Chooses lanes, blocks and threads, and makes them."""
        costs = {a.index: sum(self._cost(r, a.index) for r in self.reached) for a in reversed(self.sweep.axes) if length(a) > 1}
        lanes = min(16, max(self.target.lanes(s.dtype) for s in self.sweep.states))
        axis = min(costs, key=costs.__getitem__, default="")
        extent = self.axes.get(axis)
        while extent is not None and lanes > extent:
            lanes //= 2
        if not axis or lanes < 2 or costs[axis] > lanes * max(1, len(self.reached)):
            self._on_cores(list(self.axes))
            return
        across = [r for r in self.reached if self._lies_across(r, axis)]
        count = lanes if across else self._long(axis, extent, lanes)
        self._in_front({r.access.tensor for r in across})
        outer, lane = [x for x in self.axes if x != axis], axis
        if extent != count:
            block, lane = fresh(self.candidate.nest, f"{axis}_o", f"{axis}_i")
            self.then("split", axis, count, "shift", (block, lane))
            outer.append(block)
        if len(self.axes) > 1 and axis != [*self.axes][-1]:
            self.then("reorder", *outer, lane)
        self._on_cores(outer)
        inner = [lane]
        if count > WIDEST * lanes:
            inner = list(fresh(self.candidate.nest, f"{lane}_o", f"{lane}_i"))
            self.then("split", lane, WIDEST * lanes, "peel", tuple(inner))
        for loop in reversed(inner):
            self.then("reorder", self.step, loop)
        many = constant(self.sweep.step.stop)
        if across and many is not None and many < lanes:
            self.then("unroll", self.step)
        elif across:
            steps, one = fresh(self.candidate.nest, f"{self.step}_o", f"{self.step}_i")
            self.then("split", self.step, lanes, "peel", (steps, one))
            for buffer, (rank, at) in reversed(_squares((r.access for r in across), axis, self.step).items()):
                with suppress(ScheduleError):
                    self._turned(buffer, rank, at, steps)
            if sum(operations(m.value) for m in self.sweep.moments) <= COPIED_WORK:
                self.then("unroll", one)
        self.then("vectorize", inner[-1])

    def _long(self, axis: str, extent: int | None, lanes: int) -> int:
        """Points of a block."""
        wide = lanes * WIDEST
        if extent is not None and extent < wide:
            return extent // lanes * lanes
        others = prod(length(a) for a in self.sweep.axes if a.index != axis)
        state, long = sum(s.dtype.itemsize for s in self.sweep.states), wide
        while (
            extent is not None
            and 2 * long <= min(extent, LONGEST)
            and 2 * long * state <= STATE_BYTES
            and others * (extent // (2 * long)) >= 2 * self.target.cores
        ):
            long *= 2
        return long

    def _on_cores(self, outer: list[str]) -> None:
        """The outermost loops over all cores, as one while there are few iterations."""
        work = self.points * length(self.sweep.step) * sum(operations(m.value) for m in self.sweep.moments)
        if self.target.cores < 2 or not outer or work < PARALLEL_WORK:
            return
        before, (loop, *rest) = self.candidate, outer
        with suppress(ScheduleError):
            while rest and (many := constant(self._loops()[loop].stop)) is not None and many < CHUNKS_PER_CORE * self.target.cores:
                (one,) = fresh(self.candidate.nest, f"{loop}_{rest[0]}")
                self.then("fuse", loop, rest.pop(0), one)
                loop = one
            self.then("parallel", loop)
            return
        self.candidate = before
        with suppress(ScheduleError):
            self.then("parallel", outer[0])

    def _turned(self, buffer: str, rank: int, at: int, block: str) -> None:
        """What a block of steps touches of a buffer in square tiles, lanes along one axis."""
        before, known = self.candidate, self._loops()
        self.then("stage", buffer, block, (*(x for x in range(rank - 1) if x != at), rank - 1, at))
        made = [x for x in self._loops() if x not in known]
        if len(made) != 2:  # a single row, or element
            self.candidate = before
            return
        if self._loops()[made[0]].start != ZERO:  # a step may not have its element
            self.then("reorder", made[1], made[0])
            self.then("widen", made[0], block)
            self.then("reorder", *made)
        long, side = (constant(self._loops()[x].stop) for x in made)
        if long is None or side is None or long > 2 * side:
            self.candidate = before
            return
        if long > side:  # elements of the steps around, too
            names = fresh(self.candidate.nest, f"{made[0]}_o", f"{made[0]}_i")
            self.then("split", made[0], side, "peel", names)
            self.then("simplify")
            made[0] = names[1]
        self.then("unroll", made[0])
        self.then("vectorize", made[1])

    def _in_front(self, buffers: set[str]) -> None:
        """Elements of some buffers that are the same in all steps are read in front of these."""
        for a in dict.fromkeys(elements_read(self._loops()[self.step].body)):
            if a.tensor in buffers and self.step not in {n for i in a.indices for n in free_names(i)}:
                self.then("hoist", self.step, a)

    def _loops(self) -> dict[str, For]:
        """The loops of the nest by name, the first copy of each."""
        found: dict[str, For] = {}
        for s in statements(self.candidate.nest.kernels[0].body):
            if isinstance(s, For):
                found.setdefault(s.index, s)
        return found

    def _lies_across(self, r: Reach, axis: str) -> bool:
        return abs(r.stride(self.step)) == 1 and abs(r.stride(axis)) > 1

    def _cost(self, r: Reach, axis: str) -> float:
        stride = abs(r.stride(axis))
        return float(stride) if stride <= 1 else TURNED if self._lies_across(r, axis) else GATHER


def _squares(accesses: Iterable[Access], axis: str, step: str) -> dict[str, tuple[int, int]]:
    """The buffers whose elements lie along the steps by their last index alone, and along an axis by one other: how many axes they have,
    and which that is."""
    found: dict[str, set[tuple[int, int]]] = {}
    for a in accesses:
        places = [at for at, i in enumerate(a.indices) if axis in free_names(i)]
        alone = [at for at, i in enumerate(a.indices) if step in free_names(i)] == [len(a.indices) - 1]
        found.setdefault(a.tensor, set()).add((len(a.indices), places[0] if alone and len(places) == 1 else -1))
    return {name: next(iter(ways)) for name, ways in found.items() if len(ways) == 1 and 0 <= min(ways)[1] < min(ways)[0] - 1}
