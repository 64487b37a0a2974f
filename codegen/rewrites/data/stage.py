"""The rewrite `stage`: the part of a buffer that a loop's iteration touches, in a buffer of its own with another layout.

                                                        for j_o in range(0, 4):
    for j_o in range(0, 4):                                 B_of: local(f32[2, 64, 8])
        for i in range(0, 32):                              for B_1 in range(0, 16):
            for k in range(0, 64):                              for B_0 in range(0, 64):
                for j_i in range(0, 16):         -->                B_of[B_1//8, B_0, B_1 % 8] = B[B_0, B_1 + j_o*16]
                    ... B[k, j_i + j_o*16]                  for i in range(0, 32):
                                                                for k in range(0, 64):
                                                                    for j_i in range(0, 16):
                                                                        ... B_of[j_i//8, k, j_i % 8]

The part is the window of each axis (`windows`), of constant length; an axis of one element is gone. `order` gives the axes of the copy;
with `panel` the first of them is cut into panels of that many, whose places are the last axis: the layout of packed operands. What the
loop only reads is copied in front of its body, as far as it exists (in front of a loop over what is left beside whole blocks). What it
stores is kept in the copy and written back behind its body: legal where an iteration writes its whole window, and reads no element before
it has written it. What is copied has been written before: no copy reads more than what is there. A workspace (`memory`) is for parts that
are too large for the stack, in loops that run one iteration at a time. Values keep their bits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext, suppress

from tensorexpr.codegen.lowering.context.arithmetic import ZERO, add, constant, floordiv, maximum, minimum, normal, sub
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, LoopNest, Stmt, Store, buffers_of
from tensorexpr.codegen.nest.walks import map_accesses
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import Path, loop_at, loop_paths, put, statement, walk_nest
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.codegen.rewrites.touched.covering import is_covered, is_written, writes_all
from tensorexpr.codegen.rewrites.touched.places import Touched, declared, is_read_by, loops_around, rest_of, touched
from tensorexpr.codegen.rewrites.touched.windows import Window, windows
from tensorexpr.errors import ScheduleError
from tensorexpr.hints import suggestion
from tensorexpr.ir import Access, Expr, Index, apply, conjunction, const
from tensorexpr.records import record, replace

MEMORIES = ("local", "workspace")


def stage(
    nest: LoopNest,
    buffer: str,
    loop: str,
    order: Sequence[int] | None = None,
    panel: int | None = None,
    memory: str = "local",
    name: str | None = None,
) -> LoopNest:
    """The nest with what each iteration of a loop touches of a buffer in a copy of it.

    `order` are the axes of the buffer in the order in which the copy has them, `panel` is how many elements of the first of these lie
    together. Raises `ScheduleError` where the part has no constant size, or what is stored may not be held back.

    >>> from tensorexpr.codegen.plain import plain_nest
    >>> from tensorexpr.codegen.rewrites.names import named
    >>> from tensorexpr.parse import parse_program
    >>> program = parse_program('''
    ... x: f32[4, 6] = input()
    ... y[i, j]: f32[4, 6] = x[i, j] * x[i, 5 - j]
    ... return y
    ... ''')
    >>> print(stage(named(plain_nest(program)), "x", "i"))
    main(x, y)
    x: parameter(f32[4, 6])
    y: parameter(f32[4, 6], written)
    <BLANKLINE>
    def kernel_0() -> y:
        for i in range(0, 4):
            x_of: local(f32[6])
            for x_1 in range(0, 6):
                x_of[x_1] = x[i, x_1]
            for j in range(0, 6):
                y[i, j] = x_of[j] * x_of[5 - j]
    <BLANKLINE>
    """
    if memory not in MEMORIES:
        raise refuse(f"expected a memory among {', '.join(MEMORIES)}, got {memory!r}", hint=suggestion(memory, MEMORIES))
    loops = [at for at in loop_paths(nest, loop) if _touches(nest, buffer, at)]
    places = [path for path, s in walk_nest(nest) if is_read_by(s, buffer) or (isinstance(s, Store) and s.buffer == buffer)]
    others = [path for path in places if not any(path[: len(at)] == at for at in loops)]
    found = dict.fromkeys(rest_of(nest, path, loops) for path in others) if loops else {}
    rests = [at for at in found if at is not None and isinstance(statement(nest, at), For)]
    copies = [(at, _touched_in(nest, buffer, at)) for at in sorted((*loops, *rests))]
    if not copies:
        known = buffers_of(loop_at(nest, loop_paths(nest, loop)[0]).body)
        hint = suggestion(buffer, known, f"it touches {', '.join(known) or 'none'}")
        raise refuse(f"expected a buffer that {loop} touches, got {buffer}", loop_at(nest, loop_paths(nest, loop)[0]), loop, hint)
    name = name or fresh(nest, f"{buffer}_of")[0]
    frames: list[tuple[Path, Touched, tuple[Window, ...]]] = []
    for at, one in copies:
        with suppress(ScheduleError) if at in rests else nullcontext():
            frames.append((at, one, windows(nest, at, (*one.stores, *one.reads), _buffer(nest, one), at not in rests)))
    wide = {axis for _, _, frame in frames for axis, w in enumerate(frame) if not w.is_point}
    made = nest
    buffers: list[Buffer] = []
    for at, one, frame in reversed(frames):
        with suppress(ScheduleError) if at in rests else nullcontext():
            copy = _copy(nest, one, at, frame, _axes(buffer, len(frame), order, wide), panel, memory, name)
            made = put(made, at, _staged(nest, one, at, copy, at not in rests))
            buffers.append(copy.buffer)
    if memory == "workspace":
        longest = tuple(max(sizes, key=lambda e: constant(e) or 0) for sizes in zip(*(b.shape for b in buffers), strict=True))
        made = replace(made, workspace=(*made.workspace, replace(buffers[0], shape=longest)))
    return made


def _axes(buffer: str, rank: int, order: Sequence[int] | None, wide: Collection[int]) -> tuple[int, ...]:
    """The axes of copies in their order, without those of which each copy has one element."""
    given = tuple(range(rank)) if order is None else tuple(order)
    if sorted(given) != list(range(rank)):
        raise refuse(f"expected the axes 0 to {rank - 1} of {buffer} in some order, got {list(given)}")
    return tuple(axis for axis in given if axis in wide)


@record
class _Copy:
    """A copy of a part: its windows, the axes in the order of the copy, how many elements of the first lie together, and its buffer."""

    original: Buffer
    frame: tuple[Window, ...]
    axes: tuple[int, ...]
    panel: int | None
    buffer: Buffer

    def element(self, indices: Sequence[Expr]) -> Access:
        """The element of the copy that an element of the original is."""
        at = [normal(sub(indices[axis], self.frame[axis].low)) for axis in self.axes]
        if self.panel is not None:
            within = apply("mod", at[0], const(self.panel))
            at = [floordiv(at[0], self.panel), *at[1:], within if constant(at[0]) is None else const((constant(at[0]) or 0) % self.panel)]
        return Access(self.buffer.name, tuple(at), self.buffer.dtype)


def _touched_in(nest: LoopNest, buffer: str, at: Path) -> Touched:
    """What touches a buffer in the loop at a path."""
    homes = [path for path, s in walk_nest(nest) if isinstance(s, Alloc) and s.buffer.name == buffer]
    home = next((path for path in homes if at[: len(path)] == path), ())
    if any(path[: len(at)] == at for path in homes):
        raise refuse(f"expected a buffer that is declared around the loop, got {buffer}", loop_at(nest, at))
    if homes and not home:
        return Touched(buffer, home, (), ())
    inside = [(path, s) for path, s in walk_nest(nest) if path[: len(at)] == at and path != at]
    stores = tuple(path for path, s in inside if isinstance(s, Store) and s.buffer == buffer)
    return Touched(buffer, home, stores, tuple(path for path, s in inside if is_read_by(s, buffer)))


def _touches(nest: LoopNest, buffer: str, at: Path) -> bool:
    one = _touched_in(nest, buffer, at)
    return bool(one.stores or one.reads)


def _copy(
    nest: LoopNest, one: Touched, at: Path, frame: tuple[Window, ...], axes: tuple[int, ...], panel: int | None, memory: str, name: str
) -> _Copy:
    loop, buffer = loop_at(nest, at), _buffer(nest, one)
    lengths = [constant(w.length) for w in frame]
    if any(length is None for length in lengths):
        raise refuse(f"expected an iteration to touch a part of {buffer.name} of constant size", loop, hint="split its loops first")
    if panel is not None and (not isinstance(panel, int) or isinstance(panel, bool) or panel < 1 or not axes):
        raise refuse(f"expected a positive int as the panel of an axis, got {panel!r}")
    if memory == "workspace" and any(s.kind not in ("serial", "unroll") for s in (*loops_around(nest, at), loop)):
        raise refuse(f"expected loops that run one iteration at a time around a copy in the workspace, got {loop.index}", loop)
    shape = [const(lengths[axis] or 0) for axis in axes]
    if panel is not None:
        shape = [const(-(-(lengths[axes[0]] or 0) // panel)), *shape[1:], const(panel)]
    return _Copy(buffer, frame, axes, panel, Buffer(name, buffer.dtype, tuple(shape), memory))


def _buffer(nest: LoopNest, one: Touched) -> Buffer:
    constants = {c.name: Buffer(c.name, c.type.dtype, c.type.shape, "constant") for c in nest.constants}
    return constants[one.buffer] if one.buffer in constants else declared(nest, one)


def _staged(nest: LoopNest, one: Touched, at: Path, copy: _Copy, inside_: bool) -> Block:
    """The loop at a path with the part of a buffer in its copy; without `inside_` the copy is made once for the loop."""
    loop = loop_at(nest, at)
    if one.stores:
        if not inside_ or not all(is_covered(nest, one, at, path) for path in one.reads):
            raise refuse(f"expected an iteration to write what it reads of {one.buffer} before, to keep it in a copy", loop)
        if not writes_all(nest, one, at, copy.frame):
            raise refuse(f"expected an iteration to write all of its part of {one.buffer}, to write it back", loop)
    elif one.home or one.buffer in {b.name for b in nest.workspace} | set(nest.writes):
        whole = next(each for each in touched(nest, one.buffer) if each.home == one.home)
        if not is_written(nest, whole, at, copy.frame, inside_):
            raise refuse(f"expected all of a part of {one.buffer} to be written before {loop.index}, to copy it", loop)

    def moved(access: Access) -> Access:
        return copy.element(access.indices) if access.tensor == one.buffer else access

    facts = Facts.at(nest, at)
    facts = facts.loop(loop.index, loop.start, loop.stop) if inside_ else facts
    names = fresh(nest, *(f"{one.buffer}_{axis}" for axis in copy.axes))
    at_ = {axis: add(copy.frame[axis].low, Index(name)) for axis, name in zip(copy.axes, names, strict=True)}
    element = tuple(at_.get(axis, w.low) for axis, w in enumerate(copy.frame))
    there, here = copy.element(element), Access(one.buffer, element, copy.buffer.dtype)
    through = Store(here.tensor, here.indices, there) if one.stores else Store(there.tensor, there.indices, here)
    copied: Stmt = through
    for axis, index in reversed(list(zip(copy.axes, names, strict=True))):
        w, extent = copy.frame[axis], copy.original.shape[axis]
        before, behind = sub(ZERO, w.low), sub(extent, w.low)
        start = ZERO if facts.is_less(before, ZERO, 0) else maximum(before, ZERO)
        stop = w.length if facts.is_less(w.length, behind, 0) else minimum(w.length, behind)
        copied = For(index, start, stop, (copied,))
    points = [(w.low, extent) for w, extent in zip(copy.frame, copy.original.shape, strict=True) if w.is_point]
    tests = [test for low, extent in points for test in (apply("ge", low, ZERO), apply("lt", low, extent)) if not facts.holds(test)]
    copied = If(conjunction(tests), (copied,)) if tests else copied
    body = map_accesses(loop.body if inside_ else (loop,), moved)
    body = (*body, copied) if one.stores else (copied, *body)
    made: Block = (Alloc(copy.buffer, body),) if copy.buffer.memory == "local" else body
    return (replace(loop, body=made),) if inside_ else made
