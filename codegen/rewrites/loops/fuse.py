"""The rewrite `fuse`: a loop and the one right inside of it as one loop.

    for i in range(0, n):                   for i_j in range(0, n*8):
        for j in range(0, 8):     -->           y[i_j // 8, i_j % 8] = ...
            y[i, j] = ...

Legal where the inner bounds do not depend on the outer loop, for the order stays. What is asked of indices between the two is asked in each
iteration of the one. Where the outer loop has more inside, it is taken apart first (`distribute`); a copy without the inner loop, such as
a tail, stays as it is. A parallel loop stays parallel, where iterations of the inner one may run in any order as well.
"""

from __future__ import annotations

from tensorexpr.codegen.dependence import dependences
from tensorexpr.codegen.lowering.context.arithmetic import ZERO, add, constant, floordiv, maximum, mul, sub
from tensorexpr.codegen.nest import Block, For, If, LoopNest
from tensorexpr.codegen.rewrites.expressions import substituted, under
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.loops.distribute import NotAlone, distributed
from tensorexpr.codegen.rewrites.loops.order import check_any_order
from tensorexpr.codegen.rewrites.loops.simplify import decided, simplified
from tensorexpr.codegen.rewrites.names import chosen
from tensorexpr.codegen.rewrites.paths import Path, loop_at, loop_paths, put, rewrite_loops
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.ir import Expr, Index, apply
from tensorexpr.traversal import free_names, tensors_read


def fuse(nest: LoopNest, outer: str, inner: str, name: str | None = None) -> LoopNest:
    """rewrite: [..., i, j, ...] --> [..., i_j, ...]. `name` is that of the new loop; without it `i_j`, or what follows where that is taken.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> nest = parse_nest('''
    ... main(n, x, y)
    ... n: size
    ... x: parameter(f32[n, 8])
    ... y: parameter(f32[n, 8], written)
    ...
    ... def kernel_0() -> y:
    ...     for i in range(0, n):
    ...         for j in range(0, 8):
    ...             y[i, j] = x[i, j]
    ... ''')
    >>> print(fuse(nest, "i", "j"))
    main(n, x, y)
    n: size
    x: parameter(f32[n, 8])
    y: parameter(f32[n, 8], written)
    <BLANKLINE>
    def kernel_0() -> y:
        for i_j in range(0, n * 8):
            y[i_j // 8, i_j % 8] = x[i_j // 8, i_j % 8]
    <BLANKLINE>
    """
    loop_paths(nest, inner)
    (made,) = chosen(nest, None if name is None else (name,), f"{outer}_{inner}")
    nest = _apart(nest, outer, inner)
    fused = False

    def together(s: For, path: Path) -> Block | None:
        nonlocal fused
        tests, body = _asked(s.body)
        if len(body) != 1 or not isinstance(body[0], For) or body[0].index != inner:
            return None
        fused = True
        if s.kind == "parallel":
            check_any_order(nest, inner, "run in parallel")
        return _together(s, tests, body[0], made, Facts.at(nest, path))

    result = rewrite_loops(nest, outer, together)
    if not fused:
        s = loop_at(nest, loop_paths(nest, outer)[0])
        inside = [child.index for child in s.body if isinstance(child, For)]
        got = f"the loop{'' if len(inside) == 1 else 's'} {' and '.join(inside)} there" if inside else "none there"
        raise refuse(f"expected {inner} right inside of {outer}, got {got}", s, outer, "reorder first")
    return result


def _apart(nest: LoopNest, outer: str, inner: str) -> LoopNest:
    """The nest with loops that have more than the inner one inside taken apart around it, where they can."""
    for path in reversed(loop_paths(nest, outer)):
        s = loop_at(nest, path)
        if len(s.body) > 1 and any(isinstance(one, For) and one.index == inner for one in s.body):
            try:
                block = distributed(s, Facts.at(nest, path), dependences(nest), inner)
            except NotAlone:
                continue
            nest = put(nest, path, block)
    return nest


def _asked(block: Block) -> tuple[tuple[Expr, ...], Block]:
    """The conditions on indices that stand around all of a block, and what they stand around."""
    found: tuple[Expr, ...] = ()
    while len(block) == 1 and isinstance(s := block[0], If) and not s.otherwise and not tensors_read(s.condition):
        found, block = (*found, s.condition), s.then
    return found, block


def _together(s: For, tests: tuple[Expr, ...], inner: For, name: str, facts: Facts) -> Block:
    if s.kind not in ("serial", "parallel") or inner.kind != "serial":
        other = s if s.kind not in ("serial", "parallel") else inner
        raise refuse(f"expected serial loops, got {other.kind} {other.index}", other, other.index, "fuse first")
    if s.index in (*free_names(inner.start), *free_names(inner.stop)):
        raise refuse(f"expected bounds of {inner.index} that do not depend on {s.index}", inner, inner.index, "reorder first")
    outer_length, inner_length = _length(s, facts), _length(inner, facts)
    place = Index(name)
    width = constant(inner_length)
    if width is not None and width > 0:
        high, low = floordiv(place, width), sub(place, mul(floordiv(place, width), inner_length))
    else:
        high, low = apply("floordiv", place, inner_length), apply("mod", place, inner_length)
    body = substituted(under(tests, inner.body), {s.index: add(high, s.start), inner.index: add(low, inner.start)})
    total = apply("mul", outer_length, inner_length) if width is None else mul(outer_length, inner_length)
    return simplified((For(name, ZERO, total, body, s.kind),), facts, ended=False)


def _length(s: For, facts: Facts) -> Expr:
    """The number of iterations of a loop, 0 where it ends before it begins."""
    length = decided(sub(s.stop, s.start), facts)
    return length if facts.is_less(s.start, s.stop, 0) else maximum(length, ZERO)
