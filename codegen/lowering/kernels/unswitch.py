"""Tests that do not change along a loop, made once in front of it: the loop twice, without them where all of them hold, and as it was.

    for c: for n_i in unroll(8):                       if z + s >= 1 and z + s < 57:
        acc[n_i] += where(z + s >= 1 and          -->      for c: for n_i in unroll(8): acc[n_i] += x[n_i, z + s - 1, c] * w[s, c]
            z + s < 57, x[n_i, z + s - 1, c],          else:
            0.0) * w[s, c]                                 for c: for n_i in unroll(8): acc[n_i] += 0.0 * w[s, c]

The innermost loop of a convolution runs without masks and branches then. Of the points of unrolled and vectorized loops
inside, the one at which a comparison is hardest to meet stands for all. Tests that change along the loop, but are the same for all
that is copied out in an iteration, are made once at its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from math import prod

from tensorexpr.codegen.lowering.context.arithmetic import constant, normal, reads_data
from tensorexpr.codegen.nest import LANES, Alloc, Block, Check, For, If, Stmt, Store
from tensorexpr.codegen.nest.walks import inside, iterations, range_of, stores_in, with_blocks
from tensorexpr.integers import Affine
from tensorexpr.ir import TRUE, Apply, Const, Expr, apply, conjunction, conjuncts, const
from tensorexpr.records import replace
from tensorexpr.regions import Opaque, affine_of, expression_of
from tensorexpr.traversal import bottom_up, free_names, size_names, walk

Ranges = dict[str, tuple[int, int]]
"""First and last value of the indices of loops."""
FALSE = Const(False, TRUE.dtype)


MOST_POINTS = 64
"""Points of loops inside up to which each is looked at."""
MANY = 16
"""Copies of a body from which on it is worth standing twice."""
FEW = 4
"""A test stays inside where it is open at one point of so many, or fewer."""


def unswitched(block: Block, around: Ranges | None = None, floors: tuple[Affine, ...] = ()) -> Block:
    """The statements with tests in front of the innermost serial loops along which they do not change.

    `around` are the ranges of loops that the statements stand in, as far as they are known, `floors` forms that are not negative there.
    """
    return tuple(made for s in block for made in _statement(s, around or {}, floors))


def _statement(s: Stmt, around: Ranges, floors: tuple[Affine, ...]) -> Block:
    if isinstance(s, For) and s.kind == "serial" and is_innermost(s.body):
        return _loop(s, around, floors)
    if isinstance(s, If):
        then = (*floors, *_floors(conjuncts(s.condition)))
        fails = (*floors, *(form * -1 - 1 for form in _floors((s.condition,))))
        return (replace(s, then=unswitched(s.then, around, then), otherwise=unswitched(s.otherwise, around, fails)),)
    if isinstance(s, For):
        known, name = range_of(s), s.index
        around = around if known is None else {**around, name: known}
        floors = tuple(form for form in floors if name not in form.names())
    return (with_blocks(s, lambda block: unswitched(block, around, floors)),)


def is_innermost(body: Block) -> bool:
    """Whether there are loops inside, all of them copied out or in lanes, and nothing that may stand only once."""
    return any(isinstance(s, For) for s in body) and all(_is_plain(s) for s in body)


def _is_plain(s: Stmt) -> bool:
    if isinstance(s, For) and s.kind not in (*LANES, "unroll"):
        return False
    return not isinstance(s, Alloc | Check) and all(map(_is_plain, inside(s)))


def _loop(s: For, around: Ranges, floors: tuple[Affine, ...]) -> Block:
    found: dict[Expr, Expr] = {}
    for condition, inner, _ in conditions_in(s.body, {}):
        for part in conjuncts(condition):
            if part not in found and s.index not in free_names(part) and not reads_data(part):
                test = _settled(hardest(part, inner), floors)
                if test is not None and test != FALSE and not _is_open_at_few(part, inner, around):
                    found[part] = test
    needed = tuple(dict.fromkeys(c for c in found.values() if c != TRUE))
    if not found:
        return (_with_tests_in_front(s),)
    fast = _with_tests_in_front(replace(s, body=assumed(s.body, frozenset(found))))
    if not needed:
        return (fast,)
    # Where tests are the same at all points inside, it is known in the other case that together they do not hold.
    same = all(any(part == test or _same(part, test) for test in needed) for part in found)
    slow = refuted(s.body, frozenset(found)) if same else s.body
    return (If(conjunction(needed), (fast,), (_with_tests_in_front(replace(s, body=slow)),) if slow else ()),)


def _with_tests_in_front(s: For) -> For:
    """The loop with what its iterations test at each of many points alike tested once: the body twice."""
    if prod(_copies(s.body)) < MANY:
        return s
    found: dict[Expr, Expr] = {}
    for condition, inner, _ in conditions_in(s.body, {}):
        for part in conjuncts(condition):
            test = None if reads_data(part) or set(free_names(part)) & set(inner) else hardest(part, {})
            if test is not None and not isinstance(test, Const):
                found[part] = test
    if not found:
        return s
    known = frozenset(found)
    holds = If(conjunction(tuple(dict.fromkeys(found.values()))), assumed(s.body, known), _rolled(refuted(s.body, known)))
    return replace(s, body=(holds,))


def _rolled(body: Block) -> Block:
    """The statements with loops that are copied out, and choose no element that is stored to, as loops again: little runs here."""
    made: list[Stmt] = []
    for s in body:
        if isinstance(s, For) and s.kind == "unroll" and not any(s.index in free_names(i) for x in stores_in(s.body) for i in x.indices):
            s = replace(s, kind="serial")
        made.append(replace(s, body=_rolled(s.body)) if isinstance(s, For) else s)
    return tuple(made)


def _copies(body: Block) -> Iterator[int]:
    """How many copies are made of what a loop has inside, by the loops that are copied out."""
    for s in body:
        if isinstance(s, For) and s.kind == "unroll":
            count = iterations(s)
            yield 1 if count is None else count
            yield from _copies(s.body)


def conditions_in(body: Block, inner: Ranges) -> Iterator[tuple[Expr, Ranges, frozenset[str]]]:
    """The conditions in statements of loops that are copied out or in lanes, with the ranges of these, and their names."""
    for s in body:
        match s:
            case For():
                known = range_of(s)
                if known is not None:
                    yield from conditions_in(s.body, {**inner, s.index: known})
            case If():
                yield s.condition, inner, frozenset(inner)
                yield from conditions_in((*s.then, *s.otherwise), inner)
            case Store():
                for node in (n for e in (*s.indices, s.value) for n in walk(e)):
                    if isinstance(node, Apply) and node.op.name == "where":
                        yield node.args[0], inner, frozenset(inner)


def hardest(condition: Expr, ranges: Ranges) -> Expr | None:
    """A comparison at the point of some loops at which it holds last; None where that cannot be said."""
    if isinstance(condition, Const):
        return condition
    form = positive_part(condition)
    if form is None:
        return None
    least, opaque, strict = form
    for name, (first, last) in ranges.items():
        factor = least.coefficient(name)
        least = least + Affine.of(name) * -factor + factor * (first if factor > 0 else last)
    difference = normal(expression_of(least, size_names(condition), opaque))
    if set(free_names(difference)) & set(ranges):
        return None
    value = constant(difference)
    if value is not None:
        return Const(value > 0 if strict else value >= 0, TRUE.dtype)
    return apply("gt" if strict else "ge", difference, const(0))


def _is_open_at_few(condition: Expr, inner: Ranges, around: Ranges) -> bool:
    """Whether a comparison is known to hold at almost all points of the loops inside, from the ranges of those around."""
    differing = {n: r for n, r in inner.items() if n in free_names(condition)}
    count = prod(last - first + 1 for first, last in differing.values())
    if not FEW <= count <= MOST_POINTS:
        return False
    others = {n: r for n, r in around.items() if n not in differing}
    points = product(*(range(first, last + 1) for first, last in differing.values()))
    open_ = sum(hardest(condition, {**others, **{n: (at, at) for n, at in zip(differing, point)}}) != TRUE for point in points)
    return open_ * FEW <= count


def positive_part(condition: Expr) -> tuple[Affine, Opaque, bool] | None:
    """What is positive, or not negative, where a comparison holds; whether it has to be positive."""
    if not (isinstance(condition, Apply) and condition.op.name in ("lt", "le", "gt", "ge")):
        return None
    left, right = condition.args if condition.op.name in ("lt", "le") else reversed(condition.args)
    if not (left.dtype.is_integer and right.dtype.is_integer):
        return None
    opaque = Opaque()
    small, large = affine_of(left, opaque), affine_of(right, opaque)
    return None if small is None or large is None else (large - small, opaque, condition.op.name in ("lt", "gt"))


def _same(part: Expr, test: Expr) -> bool:
    """Whether a comparison is another one written differently."""
    return hardest(part, {}) == test


def assumed(body: Block, known: frozenset[Expr]) -> Block:
    """The statements where some comparisons hold, which decide tests that say the same and the indices that are held between bounds."""
    floors = _floors(sorted(known, key=str))
    return _with_tests(body, lambda expr: conjunction([c for c in conjuncts(expr) if c not in known]), lambda node: _decided(node, floors))


def _settled(test: Expr | None, floors: Sequence[Affine]) -> Expr | None:
    """A comparison as what it is known to be where forms are not negative."""
    for form in _floors((test,)) if test is not None else ():
        for decided, more in ((TRUE, form), (FALSE, form * -1 - 1)):
            if any((more - floor).is_constant and (more - floor).constant >= 0 for floor in floors):
                return decided
    return test


def _floors(known: Iterable[Expr]) -> list[Affine]:
    """Forms that are not negative where comparisons hold."""
    found = [form for form in map(positive_part, known) if form is not None and not form[1].names]
    return [least - int(strict) for least, _, strict in found]


def _decided(node: Expr, floors: Sequence[Affine]) -> Expr:
    """A minimum or maximum of indices as the one of them that it is known to be."""
    if not isinstance(node, Apply) or node.op.name not in ("minimum", "maximum") or not node.dtype.is_integer or not floors:
        return node
    first, second = map(affine_of, node.args)
    if first is None or second is None:
        return node
    more = first - second if node.op.name == "maximum" else second - first
    for arg, above in zip(node.args, (more, more * -1), strict=True):
        if any((above - floor).is_constant and (above - floor).constant >= 0 for floor in floors):
            return arg
    return node


def refuted(body: Block, known: frozenset[Expr]) -> Block:
    """The statements where some comparisons do not hold together."""
    return _with_tests(body, lambda expr: FALSE if known <= set(conjuncts(expr)) else expr)


def _with_tests(body: Block, condition: Callable[[Expr], Expr], decided: Callable[[Expr], Expr] = lambda node: node) -> Block:
    """The statements with conditions replaced, and what they decide left out."""

    def visit(node: Expr) -> Expr:
        node = decided(node)
        if isinstance(node, Apply) and node.op.name == "where":
            rest = condition(node.args[0])
            return apply("where", rest, *node.args[1:]) if not isinstance(rest, Const) else node.args[1 if rest.value else 2]
        return node

    made: list[Stmt] = []
    for s in body:
        match s:
            case For():
                inside = _with_tests(s.body, condition, decided)
                made.extend((replace(s, body=inside),) if inside else ())
            case Alloc():
                made.append(replace(s, body=_with_tests(s.body, condition, decided)))
            case If():
                rest = condition(s.condition)
                then, otherwise = _with_tests(s.then, condition, decided), _with_tests(s.otherwise, condition, decided)
                if isinstance(rest, Const):
                    made.extend(then if rest.value else otherwise)
                elif then or otherwise:
                    made.append(If(rest, then, otherwise))
            case Store():
                made.append(replace(s, indices=tuple(bottom_up(e, visit) for e in s.indices), value=bottom_up(s.value, visit)))
            case _:
                made.append(s)
    return tuple(made)
