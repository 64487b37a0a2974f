"""Sums over neighbors one way and the other as one sum, in which what both compute is computed once.

The gradient of what compares each point with its neighbors has two sums at a point: over the neighbors that it looked at, and
over those that looked at it. Where the window is symmetric these are the same points, met in opposite order:

    sum(f(x[i], x[i + k - 2]) for k in range(5)) + sum(g(x[i], x[i - k + 2]) for k in range(max(i - 7, 0), min(i + 3, 5)))
    -->  sum(f(x[i], x[i + k - 2]) + where(i + k >= 2 and i + k < 10, g(x[i], x[i + k - 2]), 0) for k in range(5))

That is done where both compute the same function of the pair (an exponential, say), which is most of the work; no user wrote either
sum, so none wrote an order of their terms. For the same reason what such sums multiply by a costly value is summed before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import product

from tensorexpr.autodiff.local.derivatives import negative, plus
from tensorexpr.ir import TRUE, Access, Apply, Axis, Const, Define, Expr, Index, Reduce, apply, conjunction, const
from tensorexpr.records import replace
from tensorexpr.regions import alternatives
from tensorexpr.simplify import simplify_expr
from tensorexpr.traversal import bottom_up, children, free_names, map_children, rename_bound, substitute, walk

DEAR = 6
"""Operations of at least this cost are worth sharing: roots and what is beyond."""
MOST_AXES = 3
"""Axes of sums that are looked at: each may run either way."""

Term = tuple[int, tuple[Expr, ...]]
"""A sign and factors."""


def in_step(definition: Define, new_name: Callable[[str, str], str]) -> list[Define]:
    """The definition with sums over the same neighbors as one, and costly values factored out of its sums; behind what becomes a
    definition of its own of it."""
    terms = list(_added(definition.value))
    costly = [k for k, term in enumerate(terms) if isinstance(term, Reduce) and _is_costly(term)]
    changed: dict[int, Expr | None] = {}
    for k in costly:
        host = terms[k]
        if k in changed or not isinstance(host, Reduce) or not _is_box(host.axes):
            continue
        for other in costly:
            guest = terms[other]
            joint = _joined(host, guest, definition.axes) if isinstance(guest, Reduce) and other not in changed and other != k else None
            if joint is not None:
                changed[other], changed[k], host = None, joint, joint
    if not changed:
        return [definition]
    parts: list[Define] = []
    made = [_apart(found, definition, parts, new_name) for k, term in enumerate(terms) if (found := changed.get(k, term)) is not None]
    return [*parts, replace(definition, value=reduce(plus, made))]


def _apart(term: Expr, definition: Define, parts: list[Define], new_name: Callable[[str, str], str]) -> Expr:
    """A term with its costly values factored out: a sum for some points alone, the same at all of them, as a definition of its own:

    where(i == 0, sum(f(j, k) for k), 0) -> where(i == 0, border[j], 0)
    """
    if isinstance(term, Reduce):
        return _factored_sum(term)
    match term:
        case Apply(args=(condition, Reduce() as value, otherwise)) if term.op.name == "where" and _is_costly(value):
            value, free = _factored_sum(value), set(free_names(value))
            if free & set(free_names(condition)):
                return apply("where", condition, value, otherwise)
            axes = tuple(axis for axis in definition.axes if axis.index in free)
            parts.append(Define(new_name(definition.name, "_border"), axes, value))
            read = Access(parts[-1].name, tuple(Index(axis.index) for axis in axes), value.dtype)
            return apply("where", condition, read, otherwise)
    return term


def _is_costly(term: Reduce) -> bool:
    return _is_plain(term) and any(_dear_values(term.values[0]))


def _added(expr: Expr) -> Iterator[Expr]:
    if isinstance(expr, Apply) and expr.op.name == "add":
        yield from _added(expr.args[0])
        yield from _added(expr.args[1])
    else:
        yield expr


def _is_plain(term: Reduce) -> bool:
    return term.combiner.is_builtin and term.combiner.name == "sum" and term.where is None and term.dtype.is_float


def _is_box(axes: Sequence[Axis]) -> bool:
    return len(axes) <= MOST_AXES and all(isinstance(bound, Const) for axis in axes for bound in (axis.start, axis.stop))


def _dear_values(expr: Expr) -> Iterator[Expr]:
    """The outermost operations of an expression that cost much."""
    if isinstance(expr, Apply) and expr.dtype.is_float and expr.op.cost >= DEAR:
        yield expr
    elif not isinstance(expr, Access | Reduce):
        for child in children(expr):
            yield from _dear_values(child)


def _joined(host: Reduce, guest: Reduce, around: tuple[Axis, ...]) -> Reduce | None:
    """Both sums as one over the points of the first; None where the second has others, or computes something else there."""
    if len(host.axes) != len(guest.axes) or not all(map(_is_within, guest.axes, host.axes)):
        return None
    own = {axis.index for axis in guest.axes}
    if any(own & set(free_names(bound)) for axis in guest.axes for bound in (axis.start, axis.stop)):
        return None
    inside = (*around, *host.axes)
    renamed = rename_bound(guest, {axis.index for axis in inside})
    assert isinstance(renamed, Reduce)
    for ways in product((True, False), repeat=len(host.axes)):  # a neighbor sees the point in the opposite direction
        moved = {
            theirs.index: apply("sub", const(_number(axis.start) + _number(axis.stop) - 1), Index(axis.index))
            if back
            else Index(axis.index)
            for back, axis, theirs in zip(ways, host.axes, renamed.axes, strict=True)
        }
        guards = [
            condition
            for axis in renamed.axes
            for condition in (apply("ge", moved[axis.index], axis.start), apply("lt", moved[axis.index], axis.stop))
        ]
        condition = simplify_expr(conjunction(guards), inside)
        known = () if condition == TRUE else (condition,)
        first, second = (
            simplify_expr(value, inside, known, signed_zeros=False, derived=True)
            for value in (host.values[0], substitute(renamed.values[0], moved))
        )
        same = {_even(e): e for e in _dear_values(first)}
        theirs = {e: same.get(_even(e)) for e in _dear_values(second)}
        if theirs and None not in theirs.values():
            values = _factored(host.values[0]), _factored(_with_values(second, theirs, first))
            both = plus(values[0], apply("where", condition, values[1], Const(0, host.dtype)) if known else values[1])
            return replace(host, values=(both,))
    return None


def _with_values(expr: Expr, known: Mapping[Expr, Expr | None], host: Expr) -> Expr:
    """An expression with some values as they are known, and b - a as -(a - b) where another one has that."""
    differences = {node.args for node in walk(host) if isinstance(node, Apply) and node.op.name == "sub" and node.dtype.is_float}

    def visit(node: Expr) -> Expr:
        found = known.get(node)
        if found is not None:
            return found  # as a whole: with its differences turned around it would be another
        if isinstance(node, Apply) and node.op.name == "sub" and node.args not in differences and node.args[::-1] in differences:
            return negative(apply("sub", *map(visit, reversed(node.args))))
        return map_children(node, visit)

    return visit(expr)


def _even(expr: Expr) -> Expr:
    """The expression with differences written one way, b - a as -(a - b), and signs in front of products: all to the last bit."""

    def visit(node: Expr) -> Expr:
        if not isinstance(node, Apply) or not node.dtype.is_float:
            return node
        match node.op.name, node.args:
            case "sub", (a, b) if str(a) > str(b):
                return apply("neg", apply("sub", b, a))
            case ("neg", (Apply() as a,)) if a.op.name == "neg":
                return a.args[0]
            case ("abs", (Apply() as a,)) if a.op.name == "neg":
                return apply("abs", *a.args)
            case ("mul" | "div") as name, (a, b):
                signs = [isinstance(e, Apply) and e.op.name == "neg" for e in (a, b)]
                product = apply(name, *(e.args[0] if isinstance(e, Apply) and back else e for e, back in zip((a, b), signs, strict=True)))
                return apply("neg", product) if sum(signs) == 1 else product
        return node

    return bottom_up(expr, visit)


def _is_within(axis: Axis, frame: Axis) -> bool:
    """Whether bounds say that an axis has no points outside of a constant one."""
    starts, stops = alternatives(axis.start, "maximum"), alternatives(axis.stop, "minimum")
    low, high = (_number(bound) for bound in (frame.start, frame.stop))
    return any(isinstance(e, Const) and _number(e) >= low for e in starts) and any(
        isinstance(e, Const) and _number(e) <= high for e in stops
    )


def _number(expr: Expr) -> int:
    assert isinstance(expr, Const)
    return int(expr.value)


# --------------------------------------------------------------------------------------------------------- factors


def _factored_sum(term: Reduce) -> Reduce:
    return replace(term, values=(_factored(term.values[0]),))


def _factored(value: Expr) -> Expr:
    """e * a + e * b -> e * (a + b) for a costly e, and what is common to a and b in the same way"""
    terms = list(_terms(value, 1))
    if not any(sum(e in factors for _, factors in terms) > 1 for e in dict.fromkeys(_dear_values(value))):
        return value
    sign, made = _sum(terms)
    return made if sign > 0 else negative(made)


def _terms(value: Expr, sign: int) -> Iterator[Term]:
    match value:
        case Apply() if value.op.name in ("add", "sub"):
            yield from _terms(value.args[0], sign)
            yield from _terms(value.args[1], sign if value.op.name == "add" else -sign)
        case Apply() if value.op.name == "neg":
            yield from _terms(value.args[0], -sign)
        case _:
            own, factors = _factors(value)
            yield sign * own, factors


def _factors(value: Expr) -> Term:
    """A product as its sign and its factors, products with signs in it, too."""
    match value:
        case Apply(args=(a, b)) if value.op.name == "mul":
            (one, first), (other, second) = _factors(a), _factors(b)
            return one * other, (*first, *second)
        case Apply(args=(a,)) if value.op.name == "neg":
            sign, factors = _factors(a)
            return -sign, factors
    return 1, (value,)


def _sum(terms: Sequence[Term]) -> tuple[int, Expr]:
    """The sign and the rest of the sum of products, with the factor taken out that most terms share, costly ones first, elements of tensors
    last: `d * (e * a) + e` is one operation less than `e * (d * a) + e` where a term is an element alone."""
    shared: dict[Expr, tuple[bool, int, bool]] = {}
    for _, factors in terms:
        for factor in dict.fromkeys(factors):
            often = sum(factor in others and len(others) > 1 for _, others in terms)
            if often > 1:
                shared.setdefault(factor, (any(_dear_values(factor)), often, not isinstance(factor, Access)))
    if not shared:
        return _signed([(sign, _product(factors)) for sign, factors in terms])
    common = max(shared, key=shared.__getitem__)
    sign, inside = _sum([(sign, _without(factors, common)) for sign, factors in terms if common in factors and len(factors) > 1])
    outside = [(sign, factors) for sign, factors in terms if common not in factors or len(factors) == 1]
    made = sign, apply("mul", common, inside)
    return _signed([made, _sum(outside)]) if outside else made


def _without(factors: tuple[Expr, ...], one: Expr) -> tuple[Expr, ...]:
    at = factors.index(one)
    return (*factors[:at], *factors[at + 1 :])


def _product(factors: Sequence[Expr]) -> Expr:
    made = factors[0]
    for factor in factors[1:]:
        made = apply("mul", made, factor)
    return made


def _signed(terms: Sequence[tuple[int, Expr]]) -> tuple[int, Expr]:
    """The sum of signed terms as a sign and the rest, which begins with one that is added."""
    (lead, made), *rest = sorted(terms, key=lambda term: -term[0])
    for sign, term in rest:
        made = apply("add" if sign == lead else "sub", made, term)
    return lead, made
