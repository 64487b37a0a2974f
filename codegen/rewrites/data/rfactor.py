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
"""

from __future__ import annotations

import math

from tensorexpr.codegen.dependence import operation_of
from tensorexpr.codegen.lowering.arithmetic import add, constant, sub
from tensorexpr.codegen.nest import Alloc, Buffer, For, LoopNest, Stmt, Store
from tensorexpr.codegen.rewrites.data.places import Touched, apart, by_axes, declared, shared, touched
from tensorexpr.codegen.rewrites.expressions import map_accesses
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import Path, loop_at, loop_paths, put, statement
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.errors import ScheduleError
from tensorexpr.interpret import identity_of
from tensorexpr.ir import Access, Const, Expr, Index, apply, const
from tensorexpr.records import replace

COMBINERS = {"add": "sum", "mul": "prod", "maximum": "max", "minimum": "min", "and": "all", "or": "any"}
"""The reduction of each operation, which knows what it starts from."""


def rfactor(nest: LoopNest, buffer: str, loop: str, name: str | None = None) -> LoopNest:
    """The nest with updates of a buffer in the copies of a loop made in parts, an element for each iteration, combined behind them.

    `name` is that of the parts, a local buffer. Raises `ScheduleError` where no update stands in the loop, its length is not known, the
    operation has no order of its own, or something else touches the buffer in between.

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
    copies = loop_paths(nest, loop)
    made = nest
    name = name or fresh(nest, f"{buffer}_parts")[0]
    count = 0
    for one in reversed(touched(nest, buffer)):
        mine = [at for at in copies if any(path[: len(at)] == at and path != at for path in one.stores)]
        if mine:
            made = _parted(made, one, mine, name)
            count += 1
    if not count:
        raise refuse(f"expected a loop that updates {buffer}, got {loop}", loop_at(nest, copies[0]), loop)
    return apart(made)


def _parted(nest: LoopNest, one: Touched, copies: list[Path], name: str) -> LoopNest:
    """The nest with the updates of one declaration of a buffer in parts."""
    buffer = declared(nest, one)
    block, first, last, operation = _range(nest, one, copies)
    start, length = _iterations(nest, copies)
    loop = loop_at(nest, copies[0])
    index, *others = fresh(nest, loop.index, *(f"{loop.index}_{axis}" for axis in range(len(buffer.shape))))
    if any(constant(extent) is None for extent in buffer.shape):
        raise refuse(f"expected a buffer of constant shape to keep in parts, got {buffer.name}", loop)
    parts = Buffer(name, buffer.dtype, (const(length), *buffer.shape), "local")

    def moved(access: Access) -> Access:
        if access.tensor != buffer.name:
            return access
        return Access(name, (sub(Index(loop.index), start), *by_axes(buffer, access).indices), access.dtype)

    for path in sorted(copies, reverse=True):
        own = loop_at(nest, path)
        nest = put(nest, path, (replace(own, body=map_accesses(own.body, moved)),))
    at = tuple(Index(other) for other in others)
    here, kept = Access(name, (Index(index), *at), buffer.dtype), Access(buffer.name, at, buffer.dtype)
    identity = Const(identity_of(COMBINERS[operation], buffer.dtype), buffer.dtype)
    axes = list(zip(others, buffer.shape, strict=True))
    begin = _over([(index, const(length)), *axes], Store(name, here.indices, identity))
    end: list[Stmt] = []
    left = length
    while left > 1:
        half = left // 2
        other = Access(name, (add(Index(index), const(left - half)), *at), buffer.dtype)
        end.append(_over([(index, const(half)), *axes], Store(name, here.indices, apply(operation, here, other))))
        left -= half
    one_left = Access(name, (const(0), *at), buffer.dtype)
    end.append(_over(axes, Store(buffer.name, kept.indices, apply(operation, kept, one_left))))
    between = tuple(statement(nest, (*block, position)) for position in range(first, last + 1))
    for position in range(last, first, -1):
        nest = put(nest, (*block, position), ())
    return put(nest, (*block, first), (Alloc(parts, (begin, *between, *end)),))


def _over(axes: list[tuple[str, Expr]], s: Stmt) -> Stmt:
    for index, extent in reversed(axes):
        s = For(index, const(0), extent, (s,))
    return s


def _range(nest: LoopNest, one: Touched, copies: list[Path]) -> tuple[Path, int, int, str]:
    """The outermost block in which nothing but updates touches the buffer from the first to the last statement that has a copy of the loop,
    the positions of these two, and the operation of the updates."""
    every = sorted({*one.stores, *one.reads})
    least = max(1, len(one.home), min(shared(every[0], path) for path in every))
    most = min(*(shared(copies[0], at) for at in copies), *(len(at) - 1 for at in copies))
    refused = refuse(f"expected the copies of a loop that updates {one.buffer} in one kernel", loop_at(nest, copies[0]))
    for depth in range(least, most + 1):
        places = sorted(at[depth] for at in copies)
        block, first, last = copies[0][:depth], places[0], places[-1]
        try:
            return block, first, last, _operation(nest, one, (*block, first), (*block, last))
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
