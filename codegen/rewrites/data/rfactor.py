"""The rewrite `rfactor`: a reduction in several parts, one for each iteration of a loop, which are combined behind it.

                                                        parts: local(f32[8])
                                                        for k_i_1 in range(0, 8):
                                                            parts[k_i_1] = 0.0
    for k_o in range(0, n//8):                          for k_o in range(0, n//8):
        for k_i in range(0, 8):                             for k_i in range(0, 8):
            acc[()] = acc[()] + x[k_i + k_o*8]   -->            parts[k_i] = parts[k_i] + x[k_i + k_o*8]
    for k_i in range(0, n % 8):                         for k_i in range(0, n % 8):
        acc[()] = acc[()] + x[k_i + n//8*8]                 parts[k_i] = parts[k_i] + x[k_i + n//8*8]
                                                        for k_i_1 in range(0, 4):
                                                            parts[k_i_1] = parts[k_i_1] + parts[k_i_1 + 4]
                                                        ... 2, 1
                                                        acc[()] = acc[()] + parts[0]

The parts are those of lanes, of turns or of threads: their loop may then be unrolled, vectorized, or moved outside. All copies of the loop
(what is left beside whole blocks) add to the same parts; updates outside of it stay as they are. Half of the parts are added to the other
half until one is left, by loops of one name. Legal for updates by an operation whose order and grouping do not matter (a sum, product,
maximum, minimum, and, or), of a buffer that nothing else touches meanwhile. Sums and products of floats are rounded in another order, in
shorter chains. All else keeps its bits.

An argmax or argmin has two buffers, position and best value (`winners`), which are taken apart together, where positions grow with time;
then each copy of the loop has parts of its own.

What is sent to elements of a large buffer that data chooses (a scatter) has its parts in the workspace, a whole buffer for each iteration
of the loop, so that cores may run them; they are added up element by element, in the order of the loop:

    for t_o in range(0, 4):                             for t_o in range(0, 4):
        for t_i in range(0, n):                             for t_i in range(0, n):
            S[k[t_i + t_o*n]] = S[...] + v[...]  -->            parts[t_o, k[t_i + t_o*n]] = parts[t_o, ...] + v[...]
                                                        for t_o_2 in range(0, m):
                                                            for t_o_1 in range(0, 4):
                                                                S[t_o_2] = S[t_o_2] + parts[t_o_1, t_o_2]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from tensorexpr.codegen.dependence import operation_of
from tensorexpr.codegen.facts.winners import beaten_by_all
from tensorexpr.codegen.lowering.context.arithmetic import add, constant, sub
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import map_accesses
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import Path, loop_at, loop_paths, put, statement, walk_block
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.codegen.rewrites.touched.places import Touched, apart, by_axes, declared, shared, touched
from tensorexpr.codegen.rewrites.touched.winners import Winner, grows, is_ahead, winner_of
from tensorexpr.errors import ScheduleError
from tensorexpr.hints import suggestion
from tensorexpr.interpret import identity_of
from tensorexpr.ir import Access, Const, Expr, Index, apply, const
from tensorexpr.records import record, replace

COMBINERS = {"add": "sum", "mul": "prod", "maximum": "max", "minimum": "min", "and": "all", "or": "any"}
"""The reduction of each operation, which knows what it starts from."""
MEMORIES = ("local", "workspace")
"""Where parts are kept."""


def rfactor(nest: LoopNest, buffer: str, loop: str, name: str | None = None, memory: str = "local") -> LoopNest:
    """The nest with updates of a buffer in the copies of a loop made in parts, an element for each iteration, combined behind them.

    `name` is that of the parts, a local buffer or one of the workspace. Raises `ScheduleError` where no update stands in the loop, its
    length is not known, the operation has no order of its own, or something else touches the buffer in between.

    >>> from tensorexpr.codegen.plain import plain_nest
    >>> from tensorexpr.codegen.rewrites.loops.split import split
    >>> from tensorexpr.codegen.rewrites.names import named
    >>> from tensorexpr.parse import parse_program
    >>> program = parse_program('''
    ... x: f32[16] = input()
    ... y: f32 = sum(x[k] for k in range(16))
    ... return y
    ... ''')
    >>> print(rfactor(split(named(plain_nest(program)), "k", 4), "sum", "k_i"))
    main(x, y)
    x: parameter(f32[16])
    y: parameter(f32[()], written)
    <BLANKLINE>
    def kernel_0() -> y:
        sum: local(f32[()])
        sum[()] = 0.0
        sum_parts: local(f32[4])
        for k_i_1 in range(0, 4):
            sum_parts[k_i_1] = 0.0
        for k_o in range(0, 4):
            for k_i in range(0, 4):
                sum_parts[k_i] = sum_parts[k_i] + x[k_i + k_o * 4]
        for k_i_1 in range(0, 2):
            sum_parts[k_i_1] = sum_parts[k_i_1] + sum_parts[k_i_1 + 2]
        for k_i_1 in range(0, 1):
            sum_parts[k_i_1] = sum_parts[k_i_1] + sum_parts[k_i_1 + 1]
        sum[()] = sum[()] + sum_parts[0]
        del sum_parts
        y[()] = sum[()]
    <BLANKLINE>
    """
    if memory not in MEMORIES:
        raise refuse(f"expected parts in {' or '.join(MEMORIES)} memory, got {memory!r}", loop=loop, hint=suggestion(memory, MEMORIES))
    copies = loop_paths(nest, loop)
    made = nest
    every = touched(nest, buffer)
    winner = _winner(nest, buffer, copies)
    names = (buffer,) if winner is None else winner.buffers
    given = tuple(fresh(nest, *(f"{n}_parts" for n in names)))
    if name is not None:
        given = (name, *given[1:]) if names[0] == buffer else (given[0], name)
    count = 0
    for one in reversed(every):
        mine = [at for at in copies if any(path[: len(at)] == at and path != at for path in one.stores)]
        for group in reversed([[at] for at in mine] if winner else [mine] if mine else []):
            made = _parted(made, _alone(made, one, group) if winner is None else _winning(made, one, group), group, given, memory)
            count += 1
    if not count:
        raise refuse(f"expected a loop that updates {buffer}, got {loop}", loop_at(nest, copies[0]), loop)
    return apart(made)


@record(eq=False)
class _Group:
    """What is accumulated together between two statements of a block: the buffers, what each starts from, and how one state, of later
    points or of any, is taken into another one."""

    block: Path
    first: int
    last: int
    buffers: tuple[Buffer, ...]
    identities: tuple[Const, ...]
    taken_in: Callable[[tuple[Access, ...], tuple[Access, ...], bool], Stmt]


def _alone(nest: LoopNest, one: Touched, copies: list[Path]) -> _Group:
    """The updates of one declaration of a buffer by an operation whose order does not matter."""
    buffer = declared(nest, one)
    block, first, last, operation = _range(nest, (one,), copies, lambda first, last: _operation(nest, one, first, last))

    def taken_in(here: tuple[Access, ...], other: tuple[Access, ...], later: bool) -> Stmt:
        return Store(here[0].tensor, here[0].indices, apply(operation, here[0], other[0]))

    return _Group(block, first, last, (buffer,), (Const(identity_of(COMBINERS[operation], buffer.dtype), buffer.dtype),), taken_in)


def _winner(nest: LoopNest, buffer: str, copies: Sequence[Path]) -> Winner | None:
    """The argmax or argmin that has a buffer and is updated in some loops."""
    for at in copies:
        for _, s in walk_block(loop_at(nest, at).body):
            winner = winner_of(s)
            if winner is not None and buffer in winner.buffers:
                return winner
    return None


def _winning(nest: LoopNest, one: Touched, copies: list[Path]) -> _Group:
    """The updates of an argmax or argmin in one loop."""
    winner = _winner(nest, one.buffer, copies)
    homes = [] if winner is None else [t for name in winner.buffers for t in touched(nest, name)]
    both = [t for t in homes if any(at[: len(t.home)] == t.home and at != t.home for at in copies)]
    if winner is None or len(both) != 2:
        raise refuse(f"expected an argmax or argmin that is declared around {loop_at(nest, copies[0]).index}", loop_at(nest, copies[0]))

    def only(first: Path, last: Path) -> Winner:
        found: dict[Path, None] = {}
        for t in both:
            for path in (*t.stores, *t.reads):
                if not first <= path[: len(first)] <= last:
                    continue
                at = path if winner_of(statement(nest, path)) else path[:-1]
                updated = winner_of(statement(nest, at)) if len(at) > 1 else None
                if updated is None or (updated.name, updated.buffers) != (winner.name, winner.buffers):
                    raise refuse(f"expected nothing but updates of an argmax or argmin to touch {t.buffer}", statement(nest, path))
                found[at] = None
        (at,) = list(found)[:1]
        updated = winner_of(statement(nest, at))
        if len(found) > 1 or updated is None or not grows(nest, at, updated, len(first)):
            raise refuse(f"expected one update of {winner.found.tensor}, by positions that grow with the loops", statement(nest, at))
        return updated

    block, first, last, updated = _range(nest, both, copies, only)
    buffers = tuple(declared(nest, t) for t in both)
    identities = (Const(-1, buffers[0].dtype), Const(beaten_by_all(updated.name, buffers[1].dtype), buffers[1].dtype))

    def taken_in(here: tuple[Access, ...], other: tuple[Access, ...], later: bool) -> Stmt:
        return If(
            is_ahead(updated.name, here, other, later), tuple(Store(a.tensor, a.indices, b) for a, b in zip(here, other, strict=True))
        )

    return _Group(block, first, last, buffers, identities, taken_in)


def _parted(nest: LoopNest, group: _Group, copies: list[Path], names: tuple[str, ...], memory: str) -> LoopNest:
    """The nest with the updates of a group of buffers in parts."""
    buffers, shape, block, first, last = group.buffers, group.buffers[0].shape, group.block, group.first, group.last
    start, length = _iterations(nest, copies)
    loop = loop_at(nest, copies[0])
    index, *others = fresh(nest, loop.index, *(f"{loop.index}_{axis}" for axis in range(len(shape))))
    if memory == "local" and any(constant(extent) is None for b in buffers for extent in b.shape):
        raise refuse(f"expected a buffer of constant shape to keep in parts, got {buffers[0].name}", loop, hint='memory="workspace"')
    parts = tuple(Buffer(n, b.dtype, (const(length), *b.shape), memory) for n, b in zip(names, buffers, strict=True))
    becomes = {b.name: (b, part) for b, part in zip(buffers, parts, strict=True)}

    def moved(access: Access) -> Access:
        if access.tensor not in becomes:
            return access
        buffer, part = becomes[access.tensor]
        return Access(part.name, (sub(Index(loop.index), start), *by_axes(buffer, access).indices), access.dtype)

    for path in sorted(copies, reverse=True):
        own = loop_at(nest, path)
        nest = put(nest, path, (replace(own, body=map_accesses(own.body, moved)),))
    at = tuple(Index(other) for other in others)
    axes = list(zip(others, shape, strict=True))
    kept = tuple(Access(b.name, at, b.dtype) for b in buffers)

    def part(position: Expr) -> tuple[Access, ...]:
        return tuple(Access(p.name, (position, *at), p.dtype) for p in parts)

    here = part(Index(index))
    begin = tuple(
        _over([(index, const(length)), *axes], Store(a.tensor, a.indices, start)) for a, start in zip(here, group.identities, strict=True)
    )
    end: list[Stmt] = []
    if memory == "local" or len(buffers) > 1:
        left = length
        while left > 1:
            half = left // 2
            other = part(add(Index(index), const(left - half)))
            end.append(_over([(index, const(half)), *axes], group.taken_in(here, other, False)))
            left -= half
        end.append(_over(axes, group.taken_in(kept, part(const(0)), True)))
    else:
        end.append(_over([*axes, (index, const(length))], group.taken_in(kept, here, True)))
    between = tuple(statement(nest, (*block, position)) for position in range(first, last + 1))
    for position in range(last, first, -1):
        nest = put(nest, (*block, position), ())
    made: Block = (*begin, *between, *end)
    if memory == "local":
        for each in reversed(parts):
            made = (Alloc(each, made),)
    else:
        nest = _with_room(nest, parts)
    return put(nest, (*block, first), made)


def _with_room(nest: LoopNest, parts: Sequence[Buffer]) -> LoopNest:
    """The nest with parts in the workspace, as many as the copy of a loop with the most iterations has."""
    room = {b.name: b for b in nest.workspace}
    for part in parts:
        there = room.get(part.name)
        if there is None or (constant(there.shape[0]) or 0) < (constant(part.shape[0]) or 0):
            room[part.name] = part
    return replace(nest, workspace=tuple(room.values()))


def _over(axes: list[tuple[str, Expr]], s: Stmt) -> Stmt:
    for index, extent in reversed(axes):
        s = For(index, const(0), extent, (s,))
    return s


Judged = TypeVar("Judged")


def _range(
    nest: LoopNest, every: Sequence[Touched], copies: list[Path], judge: Callable[[Path, Path], Judged]
) -> tuple[Path, int, int, Judged]:
    """The outermost block in which nothing but updates touches some buffers from the first to the last statement that has a copy of the
    loop, the positions of these two, and what is judged of the updates between them."""
    places = sorted({path for one in every for path in (*one.stores, *one.reads)})
    least = max(1, *(len(one.home) for one in every), min(shared(places[0], path) for path in places))
    most = min(*(shared(copies[0], at) for at in copies), *(len(at) - 1 for at in copies))
    refused = refuse(f"expected the copies of a loop that updates {every[0].buffer} in one kernel", loop_at(nest, copies[0]))
    for depth in range(least, most + 1):
        found = sorted(at[depth] for at in copies)
        block, first, last = copies[0][:depth], found[0], found[-1]
        try:
            return block, first, last, judge((*block, first), (*block, last))
        except ScheduleError as error:
            refused = error
    raise refused


def _operation(nest: LoopNest, one: Touched, first: Path, last: Path) -> str:
    """The operation of all updates between two statements of a block. Raises `ScheduleError` if something else touches the buffer there."""
    found: dict[str, None] = {}
    for path in sorted({*one.stores, *one.reads}):
        if not first <= path[: len(first)] <= last:
            continue
        s = statement(nest, path)
        operation = operation_of(s) if isinstance(s, Store) and s.buffer == one.buffer else None
        if operation not in COMBINERS:
            raise refuse(f"expected nothing but updates of {one.buffer} by an operation without order", s)
        found.setdefault(operation)
    if len(found) != 1:
        raise refuse(f"expected updates of {one.buffer} by one operation, got {' and '.join(found)}", statement(nest, first))
    return next(iter(found))


def _iterations(nest: LoopNest, copies: list[Path]) -> tuple[Const, int]:
    """Where the copies of a loop start, and the most iterations of one."""
    low, high = math.inf, -math.inf
    for at in copies:
        loop, facts = loop_at(nest, at), Facts.at(nest, at)
        low = min(low, *(facts.interval(f)[0] for bound in facts.bounds(loop.start, False) for f in bound))
        high = max(high, min(max(facts.interval(f)[1] for f in bound) for bound in facts.bounds(loop.stop, True)))
    loop = loop_at(nest, copies[0])
    if math.isinf(low) or math.isinf(high):
        raise refuse(f"expected a loop of a known number of iterations, got {loop.index}", loop, hint="split it first")
    return const(int(low)), max(1, int(high - low))
