"""Grids: kernels that have loops over data and no threads get them, as rewrites of their nests.

    for i in range(0, 8192):                      for i_o_j_o in parallel(range(0, 65536)):           a block of threads each
        for j in range(0, 8192):                      x_of: local(f32[32, 32])                        in shared memory
            y[i, j] = x[j, i]            -->          for x_0_r in unroll(range(0, 4)):
                                                          for x_0_t_x_1 in vectorize(range(0, 256)): x_of[...] = x[...]
                                                      for i_r in unroll(range(0, 4)):
                                                          for i_t_j_i in vectorize(range(0, 256)): y[...] = x_of[...]

Loops over data that stand directly inside each other are one loop, whose iterations are threads. What one of them does is the first of
these that fits:

- a *square* of an elementwise kernel that reads a tensor across its lines, as a transposition does, is turned around in shared memory by a
  block: results are written along their last axis and the tensor is read along the axis on which its elements lie, whole lines of both;
- *neighbors* of an elementwise kernel, sixteen bytes of the widest element;
- *rows* along which some operand of a sum stays where it is, so that what a thread loads is used again;
- a *window* that is cut off at borders: all of its points under conditions, copied out, so that what it reads is on its way at once;
- a point.

Where squares, neighbors and rows leave multiprocessors without threads, they are none. Planners leave to this what they have no loops for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from math import gcd, prod

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.tiles.survey import DATA, Leaf, Survey
from tensorexpr.codegen.lowering.context.arithmetic import ZERO, constant
from tensorexpr.codegen.nest import Alloc, Block, For, If, Kernel, LoopNest, Stmt
from tensorexpr.codegen.nest.walks import loops_in, stores_in
from tensorexpr.codegen.rewrites.names import fresh, named
from tensorexpr.codegen.rewrites.paths import loop_at, loop_paths
from tensorexpr.codegen.target import Gpu
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access, Apply, Expr, Index, apply, conjunction, conjuncts, const
from tensorexpr.records import replace
from tensorexpr.traversal import free_names, tensors_read

SIDES = {1: 64, 2: 64}
"""Points of a side of a square by bytes of the widest element; `SIDE` of others: a line of 128 bytes, of small ones as many as pays."""
SIDE = 32
TEAM = 256
"""Threads of a block that turns a square around."""
LEAST_LINE = 16
"""Points of an axis below which its elements are no line."""
PACK = 16
"""Bytes that a thread accesses at once."""
ROWS = (8, 4, 2)
"""Rows that a thread computes at once."""
NEAR = 8
"""Elements from one to the next up to which threads beside each other read a line together."""
WINDOW = 16
"""Iterations of a loop up to which it may run over one range."""
WASTE = 2.0
"""How many more iterations it may have then."""
COPIES = 64
"""Points of a window that are copied out."""
RESIDENT = 1024
"""Threads per multiprocessor that keep it busy."""
ENOUGH = 128
"""The same of threads that add up several rows."""

Way = Callable[[Candidate, Survey, list[str], list[Leaf], Gpu], Candidate | None]


def with_grids(nest: LoopNest, target: Gpu) -> LoopNest:
    """The nest with threads for those of its kernels that have none; of kernels that run together, for those of their loops."""
    return replace(nest, kernels=tuple(made for kernel in nest.kernels for made in _kernels(nest, kernel, target)))


def _kernels(nest: LoopNest, kernel: Kernel, target: Gpu) -> Iterator[Kernel]:
    """A kernel with threads, as several where others follow each other in it, or where a block does one of those that run together."""
    roots = kernel.body if kernel.together else ()
    loops = [s for s in loops_in(kernel.body) if not any(s is root for root in roots)]
    if not (loops or roots) or any(s.kind != "serial" for s in loops):
        yield kernel
        return
    beside: list[Kernel] = []
    for s in kernel.body:
        made = Candidate(named(replace(nest, kernels=(replace(kernel, body=(s,), together=False),))))
        if kernel.together and isinstance(s, For):
            made = made.then("serial", s.index)
        for name in list(_starts(made.nest.kernels[0].body, Survey(made.nest, 0))):
            made = _threads(made, name, target)
        for one in made.nest.kernels:  # none where no loop has iterations
            has_grid = any(x.kind == "parallel" for x in loops_in(one.body))
            if kernel.together and not has_grid:
                beside.append(replace(kernel, body=(s,)))
            elif has_grid and not kernel.together:
                yield from _joined(kernel, beside)
                yield one
                beside = []
            elif any(x.stop == const(TEAM) for x in loops_in(one.body) if x.kind == "vectorize"):
                written = {x.buffer for x in stores_in(one.body)}
                yield replace(one, name=" ".join(b.name for b in (*nest.parameters, *nest.workspace) if b.name in written))
            else:
                beside.append(one)
    yield from _joined(kernel, beside)


def _joined(kernel: Kernel, parts: list[Kernel]) -> Iterator[Kernel]:
    """What is left of a kernel as one."""
    if parts:
        yield replace(kernel, body=tuple(s for one in parts for s in one.body), together=kernel.together and len(parts) > 1)


def _starts(block: Block, survey: Survey) -> Iterator[str]:
    """The outermost loops over data: of a kernel, and of the steps in it."""
    for s in block:
        if isinstance(s, Alloc):
            yield from _starts(s.body, survey)
        elif isinstance(s, For) and _is_counted(s):
            if survey.kind(s.index) == DATA:
                yield s.index
            else:
                yield from _starts(s.body, survey)


def _is_counted(s: For) -> bool:
    """Whether the host knows how often a loop runs: no data says it."""
    return not any(map(tensors_read, (s.start, s.stop)))


def _threads(made: Candidate, root: str, target: Gpu) -> Candidate:
    """The candidate with threads for a loop over data and those inside of it; as it was where there may be none."""
    survey = Survey(made.nest, 0)
    loops = _chain(made.nest, root, survey)
    leaves = survey.below(root)
    elementwise = all(leaf.path[-1] == loops[-1] for leaf in leaves)
    ways: tuple[Way, ...] = (_square, _neighbors, _points) if elementwise else (_rows, _window, _points)
    for way in ways:
        try:
            found = way(made, survey, loops, leaves, target)
        except ScheduleError:
            continue
        if found is not None:
            return found
    return made


def _window(made: Candidate, survey: Survey, loops: list[str], leaves: list[Leaf], target: Gpu) -> Candidate | None:
    whole = made
    for inner in survey.loops:
        bounds = [e for s in survey.loops[inner] for e in (s.start, s.stop)]
        around = [outer for outer in (*loops, *survey.loops) if any(outer in free_names(e) for e in bounds)]
        most = min(WINDOW, WASTE * survey.iterations(inner))
        for outers in (around, [None]) if around else ():  # of all that there may be, or one that moves on with what is around
            try:
                one = reduce(lambda one, outer: one.then("widen", inner, *([outer] if outer else [])), outers, whole)
            except ScheduleError:
                continue
            length = Survey(one.nest, 0).length(inner)
            if length is not None and length <= most:
                whole = one
                break
    return None if whole is made else _copied_out(_as_one(whole, loops))


def _copied_out(made: Candidate) -> Candidate:
    """The candidate with the innermost loops of a window copied out: what it reads is on its way at once."""
    survey, copies = Survey(made.nest, 0), {s.index: s for s in loops_in(made.nest.kernels[0].body)}
    for leaf in survey.leaves:
        count = 1
        for s in reversed(leaf.loops):
            length = survey.length(s.index)
            if s.kind == "unroll" and length is not None:
                count *= length
            elif s.kind == "serial" and length is not None and count * length <= COPIES and copies[s.index].kind == "serial":
                try:
                    made = made.then("unroll", s.index)
                except ScheduleError:
                    break
                count, copies[s.index] = count * length, replace(s, kind="unroll")
            else:
                break
    (kernel,) = made.nest.kernels
    return Candidate(replace(made.nest, kernels=(replace(kernel, body=_inward(kernel.body)),)), made.calls).then("simplify")


def _inward(block: Block) -> Block:
    """Statements with conditions inside of the loops that are copied out, each of their comparisons by itself."""
    made: list[Stmt] = []
    for s in block:
        match s:
            case For() | Alloc():
                made.append(replace(s, body=_inward(s.body)))
            case If(then=(For(kind="unroll") as inner,), otherwise=()):
                made += _inward((replace(inner, body=tuple(replace(s, then=(x,)) for x in inner.body)),))
            case If(then=(If(otherwise=()) as inner,), otherwise=()) if not any(tensors_read(inner.condition)):
                made += _inward((replace(inner, condition=conjunction((s.condition, inner.condition))),))
            case If():
                test = conjunction(tuple(one for c in conjuncts(s.condition) for one in _comparisons(c)))
                made.append(replace(s, condition=test, then=_inward(s.then), otherwise=_inward(s.otherwise)))
            case _:
                made.append(s)
    return tuple(made)


def _comparisons(test: Expr) -> Iterator[Expr]:
    """What a comparison with the greatest or the least of some bounds says of each."""
    ends = {"ge": "maximum", "gt": "maximum", "le": "minimum", "lt": "minimum"}
    if isinstance(test, Apply) and isinstance(bound := test.args[-1], Apply) and bound.op.name == ends.get(test.op.name):
        for one in bound.args:
            yield from _comparisons(apply(test.op.name, test.args[0], one))
    else:
        yield test


def _chain(nest: LoopNest, root: str, survey: Survey) -> list[str]:
    """A loop and those over data that stand directly inside of each other, of bounds that do not change with these."""
    found = [root]
    s = loop_at(nest, loop_paths(nest, root)[0])
    while len(s.body) == 1 and isinstance(inner := s.body[0], For) and survey.kind(inner.index) == DATA:
        if not _is_counted(inner) or not set(found).isdisjoint({*free_names(inner.start), *free_names(inner.stop)}):
            break
        found.append(inner.index)
        s = inner
    return found


def _as_one(made: Candidate, loops: list[str]) -> Candidate:
    """The candidate with some loops, of which each stands right inside of the one before, as one that is parallel."""
    return _fused(made.then("parallel", loops[0]), loops)[0].then("simplify")


def _fused(made: Candidate, loops: list[str]) -> tuple[Candidate, list[str]]:
    loop, *further = loops
    for inner in further:
        (name,) = fresh(made.nest, f"{loop}_{inner}")
        made, loop = made.then("fuse", loop, inner, name), name
    return made, [loop]


def _points(made: Candidate, survey: Survey, loops: list[str], leaves: list[Leaf], target: Gpu) -> Candidate | None:
    return _as_one(made, loops)


def _neighbors(made: Candidate, survey: Survey, loops: list[str], leaves: list[Leaf], target: Gpu) -> Candidate | None:
    touched = [a for leaf in leaves for a in leaf.accesses]
    lanes = PACK // max(a.dtype.itemsize if isinstance(a, Access) else a.value.dtype.itemsize for a in touched)
    lengths = [n for n in map(survey.length, loops) if n is not None]
    if lanes < 2 or len(lengths) < len(loops) or prod(lengths) // lanes < target.cores * RESIDENT:
        return None
    if lengths[-1] % lanes:
        steps = [prod(lengths[k + 1 :]) for k in range(len(lengths))]
        flat = all([survey.stride(a, name) for name in loops] in (steps, [0.0] * len(loops)) for a in touched)
        if not flat or prod(lengths) % lanes:
            return None
        made, loops = _fused(made, loops)
    outer, inner = fresh(made.nest, f"{loops[-1]}_o", f"{loops[-1]}_i")
    return _as_one(made.then("split", loops[-1], lanes, "guard", (outer, inner)).then("vectorize", inner), [*loops[:-1], outer])


def _rows(made: Candidate, survey: Survey, loops: list[str], leaves: list[Leaf], target: Gpu) -> Candidate | None:
    leaf = max(leaves, key=survey.work)
    read = [a for a in leaf.loads if a.tensor not in survey.locals and any(survey.stride(a, x) for x in leaf.path if x not in loops)]
    found: list[tuple[int, int, str]] = []
    for name in loops:
        again, extent = sum(not survey.stride(a, name) for a in read), survey.length(name)
        if name == loops[-1] and any(0 < abs(survey.stride(a, name)) < NEAR for a in read):
            continue  # neighbors read neighbors
        if again and extent is not None and not survey.bounds_others(name):
            enough = (n for n in ROWS if extent % n == 0 and _count(survey, loops) // n >= target.cores * ENOUGH)
            found += [(again, count, name) for count in [next(enough, 0)] if count]
    if not found:
        return None
    _, count, name = max(found)
    outer, inner = fresh(made.nest, f"{name}_o", f"{name}_i")
    made = made.then("split", name, count, "guard", (outer, inner))
    grid = [outer if x == name else x for x in loops]
    made = made.then("reorder", *grid, *(x for x in leaf.path if x not in loops), inner).then("unroll", inner)
    return _as_one(made, grid)


def _square(made: Candidate, survey: Survey, loops: list[str], leaves: list[Leaf], target: Gpu) -> Candidate | None:
    last = loops[-1]
    across: dict[str, list[str]] = {}
    loads = [a for leaf in leaves for a in leaf.loads]
    for tensor in dict.fromkeys(a.tensor for a in loads):
        read = [a for a in loads if a.tensor == tensor]
        along = {name for a in read for name in loops if survey.stride(a, name) == 1}
        if len(along) == 1 and all(abs(survey.stride(a, last)) > 1 for a in read):
            across.setdefault(along.pop(), []).append(tensor)
    axis = max(across, key=lambda name: len(across[name]), default=last)
    widest = max((a.dtype.itemsize for a in loads if a.tensor in across.get(axis, ())), default=0)
    side = SIDES.get(max(widest, *(s.value.dtype.itemsize for s in stores_in(survey.body))), SIDE)
    if axis == last or min(map(survey.iterations, (axis, last))) < LEAST_LINE or _count(survey, loops) < side * side * target.cores:
        return None
    outer, inner, last_outer, last_inner = fresh(made.nest, f"{axis}_o", f"{axis}_i", f"{last}_o", f"{last}_i")
    made = made.then("split", axis, side, "guard", (outer, inner)).then("split", last, side, "guard", (last_outer, last_inner))
    grid = [*(x for x in loops if x not in (axis, last)), outer, last_outer]
    made = made.then("reorder", *grid, inner, last_inner)
    for tensor in across[axis]:
        before = _names(made.nest)
        made = made.then("stage", tensor, last_outer)
        lines, elements = (x for x in _names(made.nest) if x not in before)
        made = _in_lines(made, lines, elements, side, _even(survey, loads, tensor, axis))
    return _as_one(_in_lines(made, inner, last_inner, side), grid)


def _even(survey: Survey, loads: list[Access], tensor: str, axis: str) -> int:
    """How many neighbors of a tensor along an axis may be loaded at once: up to sixteen bytes, of which its lines are whole."""
    length = constant(survey.buffers[tensor].shape[-1])
    if length is None or any(a.indices[-1] != Index(axis) for a in loads if a.tensor == tensor):
        return 1
    return gcd(PACK // survey.buffers[tensor].dtype.itemsize, length)


def _in_lines(made: Candidate, lines: str, elements: str, side: int, pack: int = 1) -> Candidate:
    """The candidate with the loops over a square as threads, each of which has a few neighbors of a line; neighbors have neighboring
    ones."""
    around: list[str] = []
    beside: list[str] = []
    if pack > 1:
        groups, neighbor = fresh(made.nest, f"{elements}_g", f"{elements}_n")
        made, elements = made.then("split", elements, pack, "guard", (groups, neighbor)), groups
        beside.append(neighbor)
    whole: list[str] = []
    for name, length in ((lines, side), (elements, side // pack)):
        s = loop_at(made.nest, loop_paths(made.nest, name)[0])
        if s.start != ZERO or Survey(made.nest, 0).length(name) != length:  # at the end of an axis: of one length, which is cut off
            once, name = fresh(made.nest, f"{name}_o", f"{name}_i")
            made = made.then("split", s.index, length, "guard", (once, name))
            around.append(once)
        whole.append(name)
    lines, elements = whole
    rounds, own = fresh(made.nest, f"{lines}_r", f"{lines}_t")
    (thread,) = fresh(made.nest, f"{own}_{elements}")
    made = made.then("split", lines, TEAM * pack // side, "guard", (rounds, own))
    made = made.then("reorder", *around, own, elements, rounds, *beside)
    for name, kind in ((rounds, "unroll"), *((name, "vectorize") for name in beside)):
        made = made.then(kind, name) if name in _names(made.nest) else made
    return made.then("fuse", own, elements, thread).then("vectorize", thread)


def _names(nest: LoopNest) -> list[str]:
    return list(dict.fromkeys(s.index for s in loops_in(nest.kernels[0].body)))


def _count(survey: Survey, loops: list[str]) -> float:
    """How many iterations all of some loops have."""
    return prod(map(survey.iterations, loops))
