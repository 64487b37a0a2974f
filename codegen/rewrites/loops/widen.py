"""The rewrite `widen`: a loop whose bounds change with a loop around it runs over the same range in each iteration, under a condition.

    for q in range(0, 56):                                       for q in range(0, 56):
        for s in range(maximum(q - 54, 0), 3):      -->              for s in range(0, 3):
            y[q] = y[q] + x[q - s + 1]                                   if s >= maximum(q - 54, 0):
                                                                             y[q] = y[q] + x[q - s + 1]

From the least of its starts to the greatest of its stops: lanes and copies may then go along the loop around, and `partition` takes the
condition away between borders. What is skipped costs a test, so that it is for loops that run nearly as often in each iteration. Where the
range itself moves on with the loops around, and no loop is named, it gets one length:

        for r in range(maximum(q - 1, 0), minimum(q + 2, 56)):      -->     for r in range(q - 1, q + 2):
                                                                                if r >= 0 and r < 56:

Always legal: nothing runs that did not, and nothing changes its place.
"""

from __future__ import annotations

from tensorexpr.codegen.lowering.context.arithmetic import add, constant, sub
from tensorexpr.codegen.nest import Block, For, LoopNest
from tensorexpr.codegen.rewrites.cuts import hull
from tensorexpr.codegen.rewrites.expressions import under
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.loops.simplify import simplified
from tensorexpr.codegen.rewrites.paths import Path, loop_at, loop_paths, rewrite_loops
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.ir import Expr, Index, apply, const
from tensorexpr.records import replace
from tensorexpr.regions import alternatives
from tensorexpr.traversal import free_names, tensors_read

MOST = 16
"""Iterations of a range that moves on."""


def widen(nest: LoopNest, loop: str, outer: str | None = None) -> LoopNest:
    """rewrite: a loop in `outer` --> one whose bounds do not change with `outer`, under a condition; a copy whose bounds do not stays.
    Without `outer`: a loop whose length changes --> one of a constant length.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> nest = parse_nest('''
    ... main(x, y)
    ... x: parameter(f32[8, 4])
    ... y: parameter(f32[8], written)
    ...
    ... def kernel_0() -> y:
    ...     for i in range(0, 8):
    ...         y[i] = 0.0
    ...         for j in range(0, minimum(i + 1, 4)):
    ...             y[i] = y[i] + x[i, j]
    ... ''')
    >>> print(widen(nest, "j", "i"))
    main(x, y)
    x: parameter(f32[8, 4])
    y: parameter(f32[8], written)
    <BLANKLINE>
    def kernel_0() -> y:
        for i in range(0, 8):
            y[i] = 0.0
            for j in range(0, 4):
                if j < minimum(i + 1, 4):
                    y[i] = y[i] + x[i, j]
    <BLANKLINE>
    """
    for path in loop_paths(nest, loop):
        if loop_at(nest, path).kind != "serial":
            raise refuse(f"expected a serial loop to widen, got {loop_at(nest, path).kind} {loop}", loop_at(nest, path), loop)

    def evened(s: For, path: Path) -> Block | None:
        facts = Facts.at(nest, path)
        if constant(sub(s.stop, s.start)) is not None:
            return None
        found = _range(s, facts)
        if found is None:
            raise refuse(f"expected a start of {loop} at most {MOST} before its stop to give it one length", s, loop)
        start, length = found
        stop = add(start, const(length))
        tests = [apply("ge", Index(loop), e) for e in alternatives(s.start, "maximum") if e != start]
        tests += [apply("lt", Index(loop), e) for e in alternatives(s.stop, "minimum") if constant(sub(e, stop)) != 0]
        return simplified((replace(s, start=start, stop=stop, body=under(tests, s.body)),), facts, ended=False)

    def widened(s: For, path: Path) -> Block | None:
        if outer not in (*free_names(s.start), *free_names(s.stop)):
            return None
        if any(map(tensors_read, (s.start, s.stop))):
            raise refuse(f"expected bounds of {loop} that depend on no data to widen it", s, loop)
        facts = Facts.at(nest, path)
        start, stop = hull(s.start, outer, facts, False), hull(s.stop, outer, facts, True)
        if start is None or stop is None:
            raise refuse(f"expected bounds of {loop} that grow evenly with {outer} to widen it", s, loop)
        tests = [apply("ge", Index(loop), s.start)] if start != s.start else []
        tests += [apply("lt", Index(loop), s.stop)] if stop != s.stop else []
        made = replace(s, start=start, stop=stop, body=under(tests, s.body))
        return simplified((made,), facts, ended=False)

    return rewrite_loops(nest, loop, evened if outer is None else widened)


def _range(s: For, facts: Facts) -> tuple[Expr, int] | None:
    """The shortest range from one of the starts of a loop that has all of its iterations: where it begins, and how long it is."""
    starts, stops = alternatives(s.start, "maximum"), alternatives(s.stop, "minimum")
    for length in range(1, MOST + 1):
        for start in starts:
            if any(facts.is_less(stop, add(start, const(length)), 0) for stop in stops):
                return start, length
    return None
