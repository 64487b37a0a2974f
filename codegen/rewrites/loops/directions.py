"""The rewrites `skew` and `reverse`: a loop that begins later with every iteration of one around it, or that goes backward.

    for t in range(0, n):                           for t in range(0, n):
        for i in range(0, m):             -->           for i in range(t*2, m + t*2):
            S[t + 1, i] = ...                               S[t + 1, i - t*2] = ...

`skew` changes no order, and so is always legal; what it is for comes after. Where an iteration needs what earlier ones of the outer loop
have made beside it (a step of a stencil needs the neighbors of the step before), the two loops may not change places. Skewed by as much as
it reaches ahead, they may: `reorder` then has steps follow each other a few rows apart, and blocks of both loops are tiles of space and
time. With blocks of both skewed against each other, those that run at once are a wavefront.

`reverse` is legal where iterations may run in any order, but for what they add up: a loop that goes the other way may run with one that
makes what it needs (`merge`).
"""

from __future__ import annotations

from tensorexpr.codegen.lowering.context.arithmetic import ONE, add, mul, sub
from tensorexpr.codegen.nest import Block, For, LoopNest
from tensorexpr.codegen.rewrites.expressions import substituted
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.loops.order import check_any_order
from tensorexpr.codegen.rewrites.loops.simplify import simplified
from tensorexpr.codegen.rewrites.paths import Path, around, loop_at, loop_paths, rewrite_loops
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.ir import Index, const
from tensorexpr.records import replace


def skew(nest: LoopNest, outer: str, inner: str, factor: int) -> LoopNest:
    """rewrite: a loop inside of another one begins `factor` later with each iteration of that; its index is as much more.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> from tensorexpr.codegen.rewrites.loops.reorder import reorder
    >>> nest = parse_nest('''
    ... main(x)
    ... x: parameter(f32[4, 10], written)
    ...
    ... def kernel_0() -> x:
    ...     for t in range(0, 3):
    ...         for i in range(1, 9):
    ...             x[t + 1, i] = x[t, i - 1] + x[t, i + 1]
    ... ''')
    >>> print(reorder(skew(nest, "t", "i", 1), "i", "t"))
    main(x)
    x: parameter(f32[4, 10], written)
    <BLANKLINE>
    def kernel_0() -> x:
        for i in range(1, 11):
            for t in range(0, 3):
                if i >= t + 1 and i < t + 9:
                    x[t + 1, i - t] = x[t, i - t - 1] + x[t, i - t + 1]
    <BLANKLINE>
    """
    if not isinstance(factor, int) or isinstance(factor, bool):
        raise refuse(f"expected an int to skew {inner} by, got {factor!r}", loop=inner)
    loop_paths(nest, outer)
    made = False

    def skewed(s: For, path: Path) -> Block | None:
        nonlocal made
        if all(one.index != outer for one in around(nest, path).loops):
            return None
        if s.kind != "serial":
            raise refuse(f"expected a serial loop to skew, got {s.kind} {inner}", s, inner, "skew first")
        made = True
        later = mul(Index(outer), const(factor))
        body = substituted(s.body, {inner: sub(Index(inner), later)})
        return (replace(s, start=add(s.start, later), stop=add(s.stop, later), body=body),)

    found = rewrite_loops(nest, inner, skewed)
    if not made:
        raise refuse(f"expected a loop in {outer} to skew, got {inner}", loop_at(nest, loop_paths(nest, inner)[0]), inner)
    return found


def reverse(nest: LoopNest, loop: str) -> LoopNest:
    """rewrite: a loop goes through its iterations from the last to the first.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> nest = parse_nest('''
    ... main(n, x, y)
    ... n: size
    ... x: parameter(f32[n])
    ... y: parameter(f32[n], written)
    ...
    ... def kernel_0() -> y:
    ...     for i in range(0, n):
    ...         y[i] = x[n - 1 - i]
    ... ''')
    >>> print(reverse(nest, "i"))
    main(n, x, y)
    n: size
    x: parameter(f32[n])
    y: parameter(f32[n], written)
    <BLANKLINE>
    def kernel_0() -> y:
        for i in range(0, n):
            y[n - i - 1] = x[i]
    <BLANKLINE>
    """
    for path in loop_paths(nest, loop):
        if loop_at(nest, path).kind != "serial":
            raise refuse(f"expected a serial loop to reverse, got {loop_at(nest, path).kind} {loop}", loop_at(nest, path), loop, "first")
    check_any_order(nest, loop, "run backward", updates=True)

    def backward(s: For, path: Path) -> Block:
        body = substituted(s.body, {loop: sub(sub(add(s.start, s.stop), ONE), Index(loop))})
        return simplified((replace(s, body=body),), Facts.at(nest, path), ended=False)

    return rewrite_loops(nest, loop, backward)
