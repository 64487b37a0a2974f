"""Loops over tiles cut where tests inside begin or cease to hold: tiles inside run without them, those at a border by themselves.

    for z_o in range(4):                                        z_o = 0: the tests, with z_o known
      for s in range(3): for c: for z_i in unroll(14):    -->   for z_o in range(1, 3): no tests
        if z_o*14 + z_i + s - 1 >= 0 and ... < 56: ...          z_o = 3: the tests, with z_o known

With z_o = 0, it is known of most points of the tile whether they count. Only tests that differ between points of unrolled or
vectorized loops, in the innermost loop, are worth the code; others are made in front of that (see `unswitch`).
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr.codegen.lowering.context.arithmetic import constant, reads_data, substituted
from tensorexpr.codegen.lowering.kernels.unswitch import Ranges, assumed, conditions_in, hardest, is_innermost
from tensorexpr.codegen.nest import LANES, Alloc, Block, Check, For, If, Stmt, Store
from tensorexpr.ir import TRUE, Expr, Index, conjuncts, const
from tensorexpr.records import replace
from tensorexpr.traversal import free_names

MOST_TILES = 128
"""Iterations of a loop up to which the places are looked for where a test begins or ceases to hold."""
BORDER = 2
"""Iterations at either end that a border may have."""


def cut_at_borders(block: Block) -> Block:
    """The statements with loops cut where tests inside of them begin or cease to hold."""
    return tuple(made for s in block for made in _statement(s))


def _statement(s: Stmt) -> Block:
    match s:
        case For() if s.kind == "serial" and not is_innermost(s.body):
            return _loop(s)
        case For() | Alloc():
            return (replace(s, body=_block(s.body)),)
        case If():
            return (replace(s, then=_block(s.then), otherwise=_block(s.otherwise)),)
    return (s,)


def _block(body: Block) -> Block:
    return tuple(made for s in body for made in _statement(s))


def _loop(s: For) -> Block:
    start, stop = constant(s.start), constant(s.stop)
    tests = {} if start is None or stop is None or not 2 <= stop - start <= MOST_TILES else _tests(s)
    if not tests or start is None or stop is None:
        return (replace(s, body=_block(s.body)),)
    holds = [all(_holds(test, {s.index: const(at)}, ranges) for test, ranges in tests.items()) for at in range(start, stop)]
    if True in holds:
        before, after = holds.index(True), holds[::-1].index(True)
    else:
        before, after = len(holds), 0
    if not all(holds[before : len(holds) - after]) or max(before, after) > BORDER:
        return (replace(s, body=_block(s.body)),)

    def at_border(first: int, last: int) -> Block:
        return tuple(made for at in range(first, last) for made in placed(s.body, s.index, at))

    inside = replace(s, start=const(start + before), stop=const(stop - after), body=_block(assumed(s.body, frozenset(tests))))
    return (
        *at_border(start, start + before),
        *((inside,) if start + before < stop - after else ()),
        *at_border(stop - after, stop),
    )


def _tests(s: For) -> dict[Expr, Ranges]:
    """The comparisons in innermost loops that a loop decides, together with loops inside some of which are copied out or lanes."""
    return {
        part: ranges
        for condition, ranges, copied in _conditions(s.body, {}, frozenset())
        for part in conjuncts(condition)
        if s.index in (names := set(free_names(part))) and names & copied and names <= {s.index, *ranges} and not reads_data(part)
    }


def _conditions(body: Block, ranges: Ranges, copied: frozenset[str]) -> Iterator[tuple[Expr, Ranges, frozenset[str]]]:
    """Conditions in innermost loops, with the ranges of the loops around them here, and which of these are copied out or lanes."""
    for s in body:
        match s:
            case For():
                start, stop = constant(s.start), constant(s.stop)
                known = {**ranges, s.index: (start, stop - 1)} if start is not None and stop is not None and start < stop else ranges
                if s.kind == "serial" and is_innermost(s.body):
                    for condition, inner, inside in conditions_in(s.body, {}):
                        yield condition, {**known, **inner}, copied | inside
                else:
                    yield from _conditions(s.body, known, copied | {s.index} if s.kind in (*LANES, "unroll") else copied)
            case If():
                yield from _conditions((*s.then, *s.otherwise), ranges, copied)
            case Alloc():
                yield from _conditions(s.body, ranges, copied)


def _holds(test: Expr, values: dict[str, Expr], ranges: Ranges) -> bool:
    """Whether a comparison certainly holds at all points of the loops inside, with some indices known."""
    return hardest(_at(test, values), ranges) == TRUE


def _at(expr: Expr, values: dict[str, Expr]) -> Expr:
    return substituted(expr, lambda name: values.get(name, Index(name)), lambda parameter: parameter, lambda access: access)


def placed(body: Block, index: str, at: int) -> Block:
    """The statements of one iteration of a loop."""
    return resolved(body, {index: const(at)})


def resolved(body: Block, values: dict[str, Expr]) -> Block:
    """The statements with some indices known."""
    made: list[Stmt] = []
    for s in body:
        match s:
            case For():
                made.append(replace(s, start=_at(s.start, values), stop=_at(s.stop, values), body=resolved(s.body, values)))
            case If():
                condition = _at(s.condition, values)
                made.append(replace(s, condition=condition, then=resolved(s.then, values), otherwise=resolved(s.otherwise, values)))
            case Alloc():
                made.append(replace(s, body=resolved(s.body, values)))
            case Store():
                made.append(replace(s, indices=tuple(_at(e, values) for e in s.indices), value=_at(s.value, values)))
            case Check():
                made.append(replace(s, index=_at(s.index, values), extent=_at(s.extent, values)))
    return tuple(made)
