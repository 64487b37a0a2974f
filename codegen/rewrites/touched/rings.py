"""Buffers as rings: of an axis along which the window that iterations of a loop touch goes forward, as many elements as the window has.

What two iterations, places or copies of the loop may have in common is asked of `dependence`, in nests in which the axis is gone: there
elements that would share a place in the ring are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tensorexpr.codegen.dependence import Conflict, dependences
from tensorexpr.codegen.lowering.context.arithmetic import ONE, ZERO, add, constant, sub
from tensorexpr.codegen.nest import Alloc, Buffer, For, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import elements_mapped, map_accesses, map_own_expressions
from tensorexpr.codegen.rewrites.expressions import substituted_in
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import Path, loop_at, put, statement
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.codegen.rewrites.touched.places import Touched, elements_of, loops_around, undeclared
from tensorexpr.codegen.rewrites.touched.windows import Window
from tensorexpr.ir import Access, Expr, apply, const
from tensorexpr.records import replace
from tensorexpr.regions import affine_of

SERIAL = ("serial", "unroll")


def ring(nest: LoopNest, one: Touched, buffer: Buffer, frames: Mapping[Path, Sequence[Window]], behind: Sequence[Path]) -> LoopNest:
    """The nest with a buffer, whose windows in the copies of a loop are given, as a ring; statements `behind` the loop read it, too. Raises
    `ScheduleError` where elements that are needed would meet in it."""
    first = min(frames)
    loop = loop_at(nest, first)

    def refused(why: str) -> Exception:
        return refuse(
            f"expected an iteration of {loop.index} to write what it reads of {buffer.name}, or a ring of what it touches: {why}", loop
        )

    if any(loop_at(nest, at).kind not in SERIAL for at in frames):
        raise refused(f"its iterations run to {next(k for at in frames if (k := loop_at(nest, at).kind) not in SERIAL)}")
    rings = {axis: long for axis in range(len(buffer.shape)) if (long := _length(nest, buffer, axis, frames, behind))}
    if not rings:
        last = ", or other elements than the last are read behind it" if behind else ""
        raise refused(f"no window of constant length goes forward with it{last}")
    axis = min(rings, key=lambda a: (rings[a], a))
    around = [s for at in frames for s in loops_around(nest, at, len(one.home))]
    if (len(frames) > 1 or around) and (behind or not _are_apart(nest, one, buffer, axis, list(frames))):
        raise refused("copies of the loop, or loops around it, touch the same elements along the other axes")
    length = rings[axis]
    later = {at: replace(frame[axis], low=add(frame[axis].low, ONE)) for at, frame in frames.items()}
    if length > 1 and all(
        _in_last(nest, at, buffer, axis, w.low, behind) and _is_read_first(nest, at, one, buffer, axis, w.low) for at, w in later.items()
    ):
        length -= 1

    def place(access: Access) -> Access:
        return _with(access, axis, ZERO if length == 1 else apply("mod", access.indices[axis], const(length)))

    made = replace(buffer, shape=(*buffer.shape[:axis], const(length), *buffer.shape[axis + 1 :]))
    for at in frames:
        nest = put(nest, at, map_accesses((loop_at(nest, at),), lambda a: place(a) if a.tensor == buffer.name else a))
    for path in sorted(behind, reverse=True):
        nest = put(nest, path, (_read(statement(nest, path), buffer, place),))
    if not behind and not around and len(frames) == 1 and all(constant(extent) is not None for extent in made.shape):
        return undeclared(put(nest, first, (Alloc(replace(made, memory="local"), (loop_at(nest, first),)),)), one)
    if not one.home:
        return replace(nest, workspace=tuple(made if b.name == buffer.name else b for b in nest.workspace))
    home = statement(nest, one.home)
    assert isinstance(home, Alloc)
    return put(nest, one.home, (replace(home, buffer=made),))


def _length(nest: LoopNest, buffer: Buffer, axis: int, frames: Mapping[Path, Sequence[Window]], behind: Sequence[Path]) -> int | None:
    """The length of the longest window of an axis, where all go forward and are shorter than that; else None."""
    longest = 0
    for at, frame in frames.items():
        low, length = affine_of(frame[axis].low), constant(frame[axis].length)
        moves = low is not None and low.coefficient(loop_at(nest, at).index) > 0 and not low.has_division()
        if frame[axis].whole or length is None or not moves or not _in_last(nest, at, buffer, axis, frame[axis].low, behind):
            return None
        longest = max(longest, length)
    most = constant(buffer.shape[axis])
    return longest if most is None or longest < most else None


def _in_last(nest: LoopNest, at: Path, buffer: Buffer, axis: int, low: Expr, behind: Sequence[Path]) -> bool:
    """Whether statements behind a loop read what stands in its last window of an axis, which begins at `low`."""
    loop = loop_at(nest, at)
    first = substituted_in(low, {loop.index: sub(loop.stop, ONE)})
    return all(
        len(access.indices) == len(buffer.shape) and Facts.at(nest, path).is_less(first, access.indices[axis], 0)
        for path in behind
        for access in elements_of(statement(nest, path), buffer.name)
    )


def _with(access: Access, axis: int, index: Expr) -> Access:
    return replace(access, indices=(*access.indices[:axis], index, *access.indices[axis + 1 :]))


def _read(s: Stmt, buffer: Buffer, function: Callable[[Access], Access]) -> Stmt:
    """A statement with other elements in place of those that it reads of a buffer itself."""
    return map_own_expressions(s, lambda e: elements_mapped(e, lambda a: function(a) if a.tensor == buffer.name else a))


def _conflicts(nest: LoopNest, buffer: Buffer, places: Sequence[Stmt]) -> Iterator[Conflict]:
    """The conflicts of what touches a buffer in some places."""
    found = dependences(nest)
    return (c for c in found.between(places, places) if c.first.home.buffer.name == buffer.name)


def _are_apart(nest: LoopNest, one: Touched, buffer: Buffer, axis: int, copies: Sequence[Path]) -> bool:
    """Whether copies of a loop, and iterations of the loops around them, touch elements that differ along other axes than the ring's."""
    tested = nest
    for at in copies:
        gone = map_accesses((loop_at(tested, at),), lambda a: _with(a, axis, ZERO) if a.tensor == buffer.name else a)
        tested = put(tested, at, gone)
    own = [loop_at(tested, at) for at in copies]
    carriers = {id(s) for at in copies for s in loops_around(tested, at, len(one.home))}
    for conflict in _conflicts(tested, buffer, own):
        if conflict.carrier is not None and id(conflict.carrier) in carriers:
            return False
        around = [{id(loop.statement) for loop in touch.loops} for touch in (conflict.first, conflict.second)]
        if not any(all(id(s) in loops for loops in around) for s in own):
            return False
    return True


def _is_read_first(nest: LoopNest, at: Path, one: Touched, buffer: Buffer, axis: int, second: Expr) -> bool:
    """Whether an iteration of the loop at a path reads what is not at or beyond `second` along an axis, the oldest of its window, before it
    stores to the newest: then that may take the place of the oldest. Asked of a nest in which both have one place and all that is read
    otherwise is another buffer's."""
    (other,) = fresh(nest, f"{buffer.name}_other")

    def placed(s: Stmt, path: Path) -> Stmt:
        facts = Facts.at(nest, path)

        def element(access: Access) -> Access:
            newer = facts.is_less(second, access.indices[axis], 0)
            return replace(access, tensor=other) if newer else _with(access, axis, ZERO)

        made = _read(s, buffer, element)
        if not isinstance(made, Store) or made.buffer != buffer.name:
            return made
        return replace(made, indices=(*made.indices[:axis], ZERO, *made.indices[axis + 1 :]))

    tested = replace(nest, workspace=(*nest.workspace, Buffer(other, buffer.dtype, buffer.shape, "workspace")))
    for path in sorted(path for path in {*one.stores, *one.reads} if path[: len(at)] == at):
        tested = put(tested, path, (placed(statement(tested, path), path),))
    loop: For = loop_at(tested, at)
    for conflict in _conflicts(tested, buffer, [loop]):
        within = conflict.carrier is not loop and conflict.kind != "output"
        at_once = conflict.carrier is not None and conflict.carrier.kind not in SERIAL
        if within and (conflict.kind == "flow" or at_once):
            return False
    return True
