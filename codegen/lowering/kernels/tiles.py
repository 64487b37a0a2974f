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
from tensorexpr.codegen.nest import LANES, Block, For
from tensorexpr.codegen.nest.walks import inside, map_expressions, map_statements, range_of
from tensorexpr.ir import TRUE, Expr, Index, conjuncts, const
from tensorexpr.records import replace
from tensorexpr.traversal import free_names

MOST_TILES = 128
"""Iterations of a loop up to which the places are looked for where a test begins or ceases to hold."""
BORDER = 2
"""Iterations at either end that a border may have."""


def cut_at_borders(block: Block) -> Block:
    """The statements with loops cut where tests inside of them begin or cease to hold."""
    return map_statements(block, lambda s: _loop(s) if isinstance(s, For) and s.kind == "serial" and not is_innermost(s.body) else None)


def _loop(s: For) -> Block:
    start, stop = constant(s.start), constant(s.stop)
    tests = {} if start is None or stop is None or not 2 <= stop - start <= MOST_TILES else _tests(s)
    if not tests or start is None or stop is None:
        return (replace(s, body=cut_at_borders(s.body)),)
    holds = [all(_holds(test, {s.index: const(at)}, ranges) for test, ranges in tests.items()) for at in range(start, stop)]
    if True in holds:
        before, after = holds.index(True), holds[::-1].index(True)
    else:
        before, after = len(holds), 0
    if not all(holds[before : len(holds) - after]) or max(before, after) > BORDER:
        return (replace(s, body=cut_at_borders(s.body)),)

    def at_border(first: int, last: int) -> Block:
        return tuple(made for at in range(first, last) for made in placed(s.body, s.index, at))

    middle = replace(s, start=const(start + before), stop=const(stop - after), body=cut_at_borders(assumed(s.body, frozenset(tests))))
    return (
        *at_border(start, start + before),
        *((middle,) if start + before < stop - after else ()),
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
        known, own = ranges, copied
        if isinstance(s, For):
            range_ = range_of(s)
            known = ranges if range_ is None else {**ranges, s.index: range_}
            own = copied | {s.index} if s.kind in (*LANES, "unroll") else copied
        if isinstance(s, For) and s.kind == "serial" and is_innermost(s.body):
            for condition, inner, names in conditions_in(s.body, {}):
                yield condition, {**known, **inner}, copied | names
        else:
            yield from _conditions(inside(s), known, own)


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
    return map_expressions(body, lambda e: _at(e, values))
