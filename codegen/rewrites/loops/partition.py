"""The rewrite `partition`: a loop cut into several, in which tests inside are decided. The only rewrite that copies what is inside.

    for i in range(0, n):                                    for i in range(0, 1):
        y[i] = where(i >= 1, x[i - 1], 0.0)      -->             y[i] = 0.0
                                                             for i in range(1, n):
                                                                 y[i] = x[i - 1]

It is index-set splitting (Griebl, Feautrier & Lengauer 2000), and serves all that leaves a rest: tails of splits, borders of stencils,
triangles, diagonals, unswitching. The points are given (`at`), or found: where a `condition` inside begins or ceases to hold, or all
tests inside (see `cuts`). A test of what is around the loop is made in front of it, and the loop stands twice. With `residues` = m there
is a loop over i = start + m*i' + r for each r, in which indices divided by m are no longer divided.

Iterations keep their order, so that cuts are always legal; residue classes change it, which `dependence` decides. A loop over cores,
blocks or threads stays one loop, with the pieces as branches inside; a piece of lanes or copies whose length is not known is a serial
loop. Points need not be in order, nor inside of the loop: a piece may be empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import lcm

from tensorexpr.codegen.lowering.context.arithmetic import add, constant, floordiv, maximum, minimum, mul, sub
from tensorexpr.codegen.nest import GRID, THREADS, Block, For, If, LoopNest
from tensorexpr.codegen.rewrites.cuts import Cut, cuts_of, moduli_of, parts_of, statements_of
from tensorexpr.codegen.rewrites.expressions import substituted
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.loops.order import check_any_order
from tensorexpr.codegen.rewrites.loops.simplify import decided, simplified
from tensorexpr.codegen.rewrites.paths import Path, rewrite_loops
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.ir import Expr, Index, apply, conjunction, const
from tensorexpr.records import replace
from tensorexpr.traversal import negate

MOST = 2048
"""Statements, with those that are copied out, up to which the pieces of a loop may grow where nobody says how far: of the order of what
LLVM compiles in a second."""
SHARED = ("parallel", *GRID, *THREADS)
"""Kinds of loops that stay one loop, and around which there are serial ones and blocks at most."""


def partition(
    nest: LoopNest,
    loop: str,
    at: Sequence[int | Expr] | None = None,
    condition: Expr | None = None,
    residues: int | str | None = None,
    most: int = MOST,
) -> LoopNest:
    """rewrite: a loop cut at points `at`, where a `condition` inside changes, into `residues` classes, or where any test inside does.
    With `residues` "found" there are as many classes as take all divisions of the loop's index away, or none.

    Points are numbers or expressions of what is around the loop. Pieces found for tests grow to `most` statements at most: beyond, there
    is one piece before, one between, and one behind; or none. Copies of a loop are cut each for itself.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> nest = parse_nest('''
    ... main(n, x, y)
    ... n: size
    ... x: parameter(f32[n])
    ... y: parameter(f32[n], written)
    ...
    ... def kernel_0() -> y:
    ...     for i in range(0, n):
    ...         y[i] = where(i >= 1, x[i - 1], 0.0)
    ... ''')
    >>> print(partition(nest, "i"))
    main(n, x, y)
    n: size
    x: parameter(f32[n])
    y: parameter(f32[n], written)
    <BLANKLINE>
    def kernel_0() -> y:
        for i in range(0, minimum(1, n)):
            y[i] = 0.0
        for i in range(minimum(1, n), n):
            y[i] = x[i - 1]
    <BLANKLINE>
    """
    given = [name for name, value in (("at", at), ("condition", condition), ("residues", residues)) if value is not None]
    if len(given) > 1:
        raise refuse(f"expected one of at, condition and residues, got {' and '.join(given)}", loop=loop)
    if residues not in (None, "found") and (not isinstance(residues, int) or isinstance(residues, bool) or residues < 1):
        raise refuse(f'expected a positive int or "found" as residues, got {residues!r}', loop=loop)
    if residues is not None:
        check_any_order(nest, loop, "run by residue classes")

    def cut(s: For, path: Path) -> Block | None:
        if s.call is not None:
            return None  # an instruction does all of it
        facts = Facts.at(nest, path)
        if residues is not None:
            count = residues if isinstance(residues, int) else lcm(*moduli_of(s))
            return classes(s, count, facts) if isinstance(residues, int) or (count > 1 and count * statements_of(s.body) <= most) else None
        if at is not None:
            points = [const(p) if isinstance(p, int) else p for p in at]
            return pieces(s, points, facts)
        return by_tests(s, facts, most, None if condition is None else parts_of(condition))

    return rewrite_loops(nest, loop, cut)


def by_tests(s: For, facts: Facts, most: int = MOST, only: frozenset[Expr] | None = None) -> Block | None:
    """A loop cut where tests inside change; None where that decides none, or takes too many statements."""
    cuts, fronts = cuts_of(s, facts, only)
    size = statements_of(s.body)
    if fronts and 2 * size <= most:
        test = decided(conjunction(fronts), facts)
        under = facts.under(test)
        then = by_tests(s, under, most // 2, only) or (s,)
        return (If(test, simplified(then, under, False), simplified((s,), facts.under(negate(test)), False)),)
    points = _points(s, cuts, facts, most // max(1, size))
    return pieces(s, points, facts) if points else None


def _points(s: For, cuts: Sequence[Cut], facts: Facts, pieces_: int) -> list[Expr]:
    """The points at which a loop is cut, in order, for so many pieces at most."""
    inside: list[Cut] = []
    for cut in sorted(cuts, key=lambda cut: cut.other is not None):
        if cut.other is not None and any(cut.other == before.point for before in inside):
            continue
        if not facts.is_less(cut.point, s.start, 0) and not facts.is_less(s.stop, cut.point, 0):
            inside.append(cut)
    points = list(dict.fromkeys(cut.point for cut in inside))
    if len(points) < pieces_:
        ordered = _in_order(points, facts)
        if ordered is not None:
            return ordered
    # A choice is decided as well where its test holds nowhere: from there on, or up to there, where that is all that lies inside.
    beyond = {cut for cut in inside if cut.other is not None and not cut.whole and cut.whole_at not in points}
    rising = [cut.point for cut in inside if (cut.rises and cut.whole) or (not cut.rises and cut in beyond)]
    falling = [cut.point for cut in inside if (not cut.rises and cut.whole) or (cut.rises and cut in beyond)]
    ends = []
    if rising:
        ends.append(_furthest(rising, True, facts))
    if falling:
        ends.append(_furthest(falling, False, facts))
    return ends if len(ends) < pieces_ else []


def _in_order(points: Sequence[Expr], facts: Facts) -> list[Expr] | None:
    """Points from the least on, where that is known of all of them."""
    found: list[Expr] = []
    for point in points:
        for at, other in enumerate(found):
            if facts.is_less(point, other, 0):
                found.insert(at, point)
                break
            if not facts.is_less(other, point, 0):
                return None
        else:
            found.append(point)
    return found


def _furthest(points: Sequence[Expr], greatest: bool, facts: Facts) -> Expr:
    found = points[0]
    for point in points[1:]:
        found = decided((maximum if greatest else minimum)(found, point), facts)
    return found


def pieces(s: For, points: Sequence[Expr], facts: Facts) -> Block:
    """A loop cut at points, each piece with what is decided there: one with branches where cores, blocks or threads share it."""
    if s.kind in SHARED:
        return (replace(s, body=_branches(s, points, facts)),)
    ends = [s.start]
    for point in points:
        ends.append(decided(maximum(minimum(point, s.stop), ends[-1]), facts))  # a loop that ends before it begins has empty pieces
    ends.append(s.stop)
    kinds = [s.kind if s.kind == "serial" or _are_numbers(a, b) else "serial" for a, b in pairwise(ends)]
    made = [replace(s, start=a, stop=b, kind=kind) for (a, b), kind in zip(pairwise(ends), kinds, strict=True)]
    some = [piece for piece in made if not facts.is_less(piece.stop, piece.start, 0)]
    return simplified(tuple(some or made[:1]), facts, ended=False)


def _are_numbers(*ends: Expr) -> bool:
    return all(constant(end) is not None for end in ends)


def _branches(s: For, points: Sequence[Expr], facts: Facts) -> Block:
    inner = facts.loop(s.index, s.start, s.stop)
    body: Block = ()
    for begin, end in reversed(list(pairwise((None, *points, None)))):
        first = s.start if begin is None else decided(maximum(begin, s.start), inner)
        stop = s.stop if end is None else decided(minimum(end, s.stop), inner)
        known = _behind(facts.loop(s.index, first, stop), s, points[: points.index(end)] if end is not None else points)
        here = simplified(s.body, known, ended=False)
        body = here if end is None else (If(apply("lt", Index(s.index), end), here, body),)
    return simplified(body, inner, ended=False)


def _behind(facts: Facts, s: For, points: Sequence[Expr]) -> Facts:
    for point in points:
        facts = facts.under(apply("ge", Index(s.index), point))
    return facts


def classes(s: For, count: int, facts: Facts) -> Block:
    """A loop for each residue class of the iterations, counted from its start."""
    length = sub(s.stop, s.start)
    made = []
    for residue in range(count):
        stop = floordiv(add(length, const(count - 1 - residue)), count)
        at = add(add(mul(Index(s.index), const(count)), s.start), const(residue))
        made.append(For(s.index, const(0), decided(stop, facts), substituted(s.body, {s.index: at}), s.kind))
    return simplified(tuple(made), facts, ended=False)
