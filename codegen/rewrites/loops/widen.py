"""The rewrite `widen`: a loop whose bounds change with a loop around it runs over the same range in each iteration, under a condition.

    for q in range(0, 56):                                       for q in range(0, 56):
        for s in range(maximum(q - 54, 0), 3):      -->              for s in range(0, 3):
            y[q] = y[q] + x[q - s + 1]                                   if s >= maximum(q - 54, 0):
                                                                             y[q] = y[q] + x[q - s + 1]

From the least of its starts to the greatest of its stops: lanes and copies may then go along the loop around, and `partition` takes the
condition away between borders. What is skipped costs a test, so that it is for loops that run nearly as often in each iteration. Always
legal: nothing runs that did not, and nothing changes its place.
"""

from __future__ import annotations

from tensorexpr.codegen.nest import Block, For, LoopNest
from tensorexpr.codegen.rewrites.cuts import hull
from tensorexpr.codegen.rewrites.expressions import under
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.loops.simplify import simplified
from tensorexpr.codegen.rewrites.paths import Path, loop_at, loop_paths, rewrite_loops
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.ir import Index, apply
from tensorexpr.records import replace
from tensorexpr.traversal import free_names, tensors_read


def widen(nest: LoopNest, loop: str, outer: str) -> LoopNest:
    """rewrite: a loop in `outer` --> one whose bounds do not change with `outer`, under a condition; a copy whose bounds do not stays.

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

    return rewrite_loops(nest, loop, widened)
