"""What the words of a schedule ask of a nest: copies of loops, accumulators, kernels of definitions, loops merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorexpr.codegen.dependence import operation_of
from tensorexpr.codegen.nest import Alloc, For, LoopNest, Store
from tensorexpr.codegen.rewrites import data
from tensorexpr.codegen.rewrites.paths import around, loop_at, loop_paths, walk_block, walk_nest
from tensorexpr.codegen.rewrites.touched.winners import winner_of
from tensorexpr.errors import ScheduleError
from tensorexpr.traversal import free_names


def every_loop(nest: LoopNest) -> list[For]:
    """The loops of all kernels, each before those inside of it."""
    return [s for kernel in nest.kernels for _, s in walk_block(kernel.body) if isinstance(s, For)]


def in_parts(nest: LoopNest, loop: str) -> LoopNest:
    """The nest in which what a loop accumulates has an accumulator for each of its iterations."""
    for buffer in accumulators_of(nest, loop):
        nest = data.rfactor(nest, buffer, loop)
    return nest


def copies_of(nest: LoopNest, loop: str) -> list[For]:
    """The loops of a name."""
    return [loop_at(nest, path) for path in loop_paths(nest, loop)]


def accumulators_of(nest: LoopNest, loop: str) -> list[str]:
    """The buffers made outside of a loop of which its iterations update one element; of an argmax or argmin the one for the position."""
    bodies = [s.body for s in copies_of(nest, loop)]
    own = {s.buffer.name for body in bodies for _, s in walk_block(body) if isinstance(s, Alloc)}
    stores = [s for body in bodies for _, s in walk_block(body) if isinstance(s, Store)]
    held = [s.buffer for s in stores if s.buffer not in own and operation_of(s) and not any(loop in free_names(i) for i in s.indices)]
    winners = [winner for body in bodies for _, s in walk_block(body) if (winner := winner_of(s))]
    found = [w.found for w in winners if w.buffers[0] not in own and not any(loop in free_names(i) for i in w.found.indices)]
    return list(dict.fromkeys([*held, *(access.tensor for access in found)]))


def loops_at(nest: LoopNest, loop: str) -> tuple[list[str], set[str]]:
    """The loops around the first copy of a loop, and those inside of it."""
    path = loop_paths(nest, loop)[0]
    inner = {s.index for _, s in walk_block(loop_at(nest, path).body) if isinstance(s, For)}
    return [s.index for s in around(nest, path).loops], inner


def put_before(buffers: Mapping[str, str], name: str, other: str) -> dict[str, str]:
    """The buffers of definitions with another definition in front of one."""
    made: dict[str, str] = {}
    for each, buffer in buffers.items():
        if each == other:
            made[name] = name
        made[each] = buffer
    return {name: name, **made} if name not in made else made


def kernel_of(nest: LoopNest, buffer: str) -> int:
    """The last kernel that stores to a buffer."""
    return max(path[0] for path, s in walk_nest(nest) if isinstance(s, Store) and s.buffer == buffer)


def home_of(nest: LoopNest, buffer: str) -> str | None:
    """The innermost loop whose iterations have a buffer of their own."""
    path = next((path for path, s in walk_nest(nest) if isinstance(s, Alloc) and s.buffer.name == buffer), None)
    outer = () if path is None else around(nest, path).loops
    return outer[-1].index if outer else None


def merged(nest: LoopNest, theirs: Sequence[str], mine: Sequence[str]) -> tuple[LoopNest, dict[str, str]]:
    """The nest with loops of two definitions in one kernel merged, from the outermost inwards; and what became of each that is gone."""
    became: dict[str, str] = {}
    taken: set[str] = set()
    refusal: ScheduleError | None = None
    for own in mine:
        for other in theirs:
            if other in taken or other == own:
                continue
            try:
                first, second = sorted((own, other), key=lambda name: loop_paths(nest, name)[0])
                nest = data.merge(nest, first, second)
            except ScheduleError as error:
                refusal = refusal or error
                continue
            became[second] = first
            taken |= {first, second}
            break
    if not became:
        raise refusal or ScheduleError("expected definitions with loops to merge, got one without")
    return nest, became
