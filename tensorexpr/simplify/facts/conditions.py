"""Conditions in normal form: comparisons of integers decided by what is known, conjunctions without what follows from the rest.

A comparison of integers is written with positive terms on both sides and without common factors; between two forms that
mean the same (``i < 4``, ``i <= 3``) ranges are half-open as in Python when one side is a literal, else the literal is the
smaller one. A congruence reads ``x % m == r``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd

from tensorexpr import dtypes
from tensorexpr.bounds.wrapping import LIMIT, MOST_SIZE
from tensorexpr.integers import Affine, Constraint, FloorDiv, congruent, eq, ge
from tensorexpr.ir import FALSE, TRUE, Apply, Const, Expr, apply, conjunction, conjuncts, const
from tensorexpr.simplify.facts.context import COMPARISONS, Context
from tensorexpr.simplify.facts.indices import Term, add_up, quotient, reduced, summands
from tensorexpr.simplify.facts.overflow import stays_within
from tensorexpr.simplify.rules.common import reads_nothing
from tensorexpr.traversal import negate, size_names, walk

ORDER = ("lt", "le", "gt", "ge")


def decided(condition: Expr, context: Context) -> Expr | None:
    """TRUE or FALSE where what is known here decides a condition, else None."""
    known = context.truths.get(condition)
    if known is not None:
        return TRUE if known else FALSE
    if not isinstance(condition, Apply):
        return None
    if condition.op.name == "ne":
        opposite = decided(apply("eq", *condition.args), context)
        return None if opposite is None else (FALSE if opposite == TRUE else TRUE)
    if condition.op.name in _SAYS and condition.args[0].dtype.is_float:
        return _decided_beside(condition, context)
    found = context.arithmetic.constraints(condition)
    if found is None:
        return None
    if all(context.implies(c) for c in found):
        return TRUE
    return FALSE if any(context.excludes(c) for c in found) else None


_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq"}
_SAYS = {
    "lt": {"lt": True, "le": True, "gt": False, "ge": False, "eq": False},
    "gt": {"gt": True, "ge": True, "lt": False, "le": False, "eq": False},
    "eq": {"eq": True, "le": True, "ge": True, "lt": False, "gt": False},
    "le": {"gt": False},
    "ge": {"lt": False},
}
"""What one comparison says about others of the same two numbers, where it is true: neither is NaN then."""


def _known_beside(a: Expr, b: Expr, context: Context) -> Iterator[str]:
    """The comparisons of a with b that are known to be true."""
    for name, mirrored in _MIRRORED.items():
        if context.truths.get(apply(name, a, b)) or context.truths.get(apply(mirrored, b, a)):
            yield name


def _decided_beside(condition: Apply, context: Context) -> Expr | None:
    """x == y is False and x >= y True where x > y is known, for floats."""
    mirrored = context.truths.get(apply(_MIRRORED[condition.op.name], *condition.args[::-1]))
    if mirrored is not None:
        return TRUE if mirrored else FALSE
    left, right = condition.args
    for known in _known_beside(left, right, context):
        found = _SAYS[known].get(condition.op.name)
        if found is not None:
            return TRUE if found else FALSE
    return None


def known_extremum(expr: Apply, context: Context) -> Expr | None:
    """maximum(x, y) -> x, where x > y is known; maximum(x, c) -> c, where x == c is known, and likewise for minimum and <"""
    for x, y in (expr.args, expr.args[::-1]):
        for known in _known_beside(x, y, context):
            if known == "eq" and isinstance(y, Const) and y.value != 0:
                return y
            if known in ("lt", "gt"):
                return x if (known == "gt") == (expr.op.name == "maximum") else y
    return None


def normal_comparison(condition: Apply, context: Context) -> Expr:
    """The normal form of a comparison of two int64 expressions that cannot overflow; the same object if it has it already, or where the
    normal form may overflow."""
    name = condition.op.name
    left, right = (context.arithmetic.form(a) for a in condition.args)
    difference = reduced(left - right, context)
    if name in ORDER:
        difference, name = _in_rows(_cleared(difference, name, context), name, context)
    terms, constant = summands(difference, context)
    if not terms:
        constraint = COMPARISONS["eq" if name == "ne" else name](constant, 0)
        return TRUE if constraint.is_true != (name == "ne") else FALSE
    if name in ("eq", "ne"):
        result = _congruence(name, terms, constant, context) or _equality(name, terms, constant)
    else:
        result = _inequality(name, terms, constant)
    return condition if result is None or result == condition or not _stays_within(result, context) else result


def _in_rows(form: Affine, name: str, context: Context) -> tuple[Affine, str]:
    """`8*r + k < 16` is `r < 2` where 0 <= k < 8: a number is negative where its quotient is, in which what varies within a row is lost."""
    strict = form - 1 if name in ("le", "gt") else form
    found = quotient(strict, context)
    return (form, name) if found is None else (found, {"le": "lt", "gt": "ge"}.get(name, name))


def _stays_within(comparison: Expr, context: Context) -> bool:
    return not isinstance(comparison, Apply) or all(stays_within(side, context) for side in comparison.args)


def condition_of(constraint: Constraint, context: Context) -> Expr | None:
    """The comparison that says what a constraint says, in normal form; None where something in it may not fit int64."""
    result = _written(constraint, context)
    return None if result is None or not _stays_within(result, context) else result


def _written(constraint: Constraint, context: Context) -> Expr | None:
    form = constraint.expr if constraint.is_equality else _cleared(constraint.expr, "ge", context)
    terms, constant = summands(form, context)
    if not terms:
        return FALSE if constraint.is_false else TRUE
    if constraint.is_equality:
        found = _congruence("eq", terms, constant, context) or _equality("eq", terms, constant)
    else:
        found = _inequality("ge", terms, constant)
    return found


def _cleared(form: Affine, name: str, context: Context) -> Affine:
    """x//d + e >= 0 is x + d*e >= 0, and likewise for <, <=, > and for -(x//d): a comparison without the division."""
    divisions = [(atom, factor) for atom, factor in form.terms if isinstance(atom, FloorDiv)]
    for atom, factor in divisions if len(divisions) == 1 else ():
        if abs(factor) != 1:
            continue
        # As `value >= 0` or, for the upper bounds, `-value >= 0`, where the strict ones are shifted by one.
        side = 1 if name in ("ge", "gt") else -1
        value = form * side - (1 if name in ("gt", "lt") else 0)
        rest = value - Affine([(atom, factor * side)])
        divisor = atom.denominator
        if divisor * sum(abs(count) * _greatest(term, context) for term, count in rest.terms) > 4 * LIMIT:
            continue
        cleared = rest * divisor + (atom.numerator if factor * side > 0 else divisor - 1 - atom.numerator)
        return _cleared((cleared + (1 if name in ("gt", "lt") else 0)) * side, name, context)
    return form


def _greatest(term: str | FloorDiv, context: Context) -> int:
    """The greatest magnitude of what a comparison is about, where that is no number of a tensor (see `_stays_within`)."""
    low, high = context.quick_range(Affine.of(term))
    return MOST_SIZE if low is None or high is None else min(max(abs(low), abs(high)), MOST_SIZE)


def _split(terms: list[Term]) -> tuple[list[Term], list[Term]]:
    """The terms with positive coefficients, and the others negated."""
    return [t for t in terms if t[0] > 0], [(-c, e, k) for c, e, k in terms if c < 0]


def _turned(terms: list[Term]) -> bool:
    """Whether the sides are better exchanged: nothing on the left, or only sizes there and indices on the right."""
    left, right = _split(terms)
    return not left or (bool(right) and all(_is_size(t) for t in left) and not all(_is_size(t) for t in right))


def _is_size(term: Term) -> bool:
    return bool(term[2][0] >= 2)


def _divided(terms: list[Term]) -> tuple[list[Term], int]:
    common = gcd(*(c for c, _, _ in terms))
    return [(c // common, e, k) for c, e, k in terms], common


def at_border(condition: Expr, context: Context) -> Expr | None:
    """``(d + 4) % 8 < 4`` is ``d >= 4`` where 0 <= d < 8: a division with two values here, each of which decides the condition."""
    if not isinstance(condition, Apply) or condition.op.name not in COMPARISONS:
        return None
    form = context.arithmetic.form(condition.args[0]) - context.arithmetic.form(condition.args[1])
    divisions = [(atom, factor) for atom, factor in form.terms if isinstance(atom, FloorDiv)]
    if len(divisions) != 1:
        return None
    ((atom, factor),) = divisions
    low, high = context.quick_range(atom.numerator)
    if low is None or high is None or high // atom.denominator - low // atom.denominator != 1:
        return None
    below, above = low // atom.denominator, high // atom.denominator
    border = condition_of(ge(atom.numerator, above * atom.denominator), context)
    if border is None or border in (TRUE, FALSE):
        return None
    holds = []
    for value, side in ((below, negate(border)), (above, border)):
        inner = context.assuming([side])
        one = COMPARISONS[condition.op.name](form - Affine.of(atom) * factor + factor * value, 0)
        if not inner.implies(one) and not inner.excludes(one):
            return None
        holds.append(inner.implies(one))
    if holds[0] == holds[1]:
        return TRUE if holds[0] else FALSE
    return border if holds[1] else negate(border)


def _equality(name: str, terms: list[Term], constant: int) -> Expr | None:
    terms, common = _divided(terms)
    if constant % common:
        return FALSE if name == "eq" else TRUE
    constant //= common
    data = [term for term in terms if not reads_nothing(term[1])]
    if len(data) == 1 and abs(data[0][0]) == 1:  # a number that is read stands alone: `argmax == 3*i + j`
        side = -data[0][0]
        others = [(c * side, e, k) for c, e, k in terms if (c, e, k) != data[0]]
        return _compared(name, data[0][1], add_up(others, constant * side))
    if _turned(terms):
        terms, constant = [(-c, e, k) for c, e, k in terms], -constant
    left, right = _split(terms)
    return _compared(name, add_up(left, 0), add_up(right, -constant))


def _congruence(name: str, terms: list[Term], constant: int, context: Context) -> Expr | None:
    """``e % m == r`` with e without literal, where the comparison is about one remainder."""
    if len(terms) != 1 or abs(terms[0][0]) != 1:
        return None
    remainder = terms[0][1]
    if not isinstance(remainder, Apply) or remainder.op.name != "mod":
        return None
    rest = -constant * terms[0][0]
    modulus = context.arithmetic.form(remainder.args[1])
    if not modulus.is_constant:
        return None
    if not 0 <= rest < modulus.constant:
        return FALSE if name == "eq" else TRUE
    least = congruent(context.arithmetic.form(remainder.args[0]) - rest, modulus.constant)
    parts, rest = summands(least.expr, context)
    if len(parts) != 1 or abs(parts[0][0]) != 1:
        return None
    return apply(name, parts[0][1], const(-rest * parts[0][0]))


def _inequality(name: str, terms: list[Term], constant: int) -> Expr | None:
    """``P <= N + k`` or ``P >= N + k`` in the nicer of its two forms, from ``P - N + constant (name) 0``."""
    upper = name in ("lt", "le")
    if _turned(terms):
        terms, constant, upper, name = [(-c, e, k) for c, e, k in terms], -constant, not upper, {"lt": "gt", "gt": "lt"}.get(name, name)
    terms, common = _divided(terms)
    bound = -constant
    if upper:
        bound = (bound - (name == "lt")) // common
    else:
        bound = -((-bound - (name == "gt")) // common)
    left, right = _split(terms)
    if upper:
        strict = not right or abs(bound + 1) < abs(bound)
        return _compared("lt" if strict else "le", add_up(left, 0), add_up(right, bound + strict))
    strict = bool(right) and abs(bound - 1) < abs(bound)
    return _compared("gt" if strict else "ge", add_up(left, 0), add_up(right, bound - strict))


def _compared(name: str, left: Expr | None, right: Expr | None) -> Expr | None:
    return None if left is None or right is None else apply(name, left, right)


def split_extremum(condition: Expr, context: Context) -> Expr | None:
    """a < minimum(b, c) -> a < b and a < c;  a > maximum(b, c) -> a > b and a > c, and mirrored, for index arithmetic"""
    if not isinstance(condition, Apply) or condition.op.name not in ORDER:
        return None
    if not all(a.dtype is dtypes.int64 and context.arithmetic.pure(a) for a in condition.args):
        return None
    for at, other in ((1, 0), (0, 1)):
        smaller = (condition.op.name in ("lt", "le")) == (at == 1)
        side = condition.args[at]
        if isinstance(side, Apply) and side.op.name == ("minimum" if smaller else "maximum"):
            parts = [Apply(condition.op, (condition.args[other], a) if at == 1 else (a, condition.args[other])) for a in side.args]
            return apply("and", *parts)
    return None


def needed(parts: list[Expr], context: Context) -> list[Expr] | None:
    """The conditions without those that follow from the others here; None where they contradict each other.

    The most complicated ones are the first to go. Conditions that are not comparisons of integers stay.
    """
    known = {part: context.arithmetic.constraints(part) for part in parts}
    affine = [part for part in parts if known[part] is not None]
    if not affine or (len(affine) == 1 and len(parts) == 1):
        return parts
    if context.assuming(affine).is_empty():
        return None
    kept = list(parts)
    for part in sorted(affine, key=lambda p: _weight(known[p], p), reverse=True):
        others = [p for p in kept if p is not part]
        inner = context.assuming(p for p in others if known[p] is not None)
        if all(inner.implies(c) for c in known[part] or ()):
            kept = others
    return _met(kept, known, context)


def _met(parts: list[Expr], known: dict[Expr, tuple[Constraint, ...] | None], context: Context) -> list[Expr]:
    """The conditions with two bounds that leave one number as that number: ``i >= 6 and i < 7`` is ``i == 6``."""
    bounds = [(part, found[0]) for part in parts if (found := known[part]) is not None and not found[0].is_equality]
    for at, (part, one) in enumerate(bounds):
        for other, opposite in bounds[:at]:
            if one.expr + opposite.expr == Affine.of(0):
                equal = condition_of(eq(one.expr, 0), context)
                if equal is not None:
                    return [equal if p is other else p for p in parts if p is not part]
    return parts


def united(parts: list[Expr], context: Context) -> list[Expr]:
    """The alternatives without those that say less than another one: ``i < j or i > j`` is ``i != j``, ``i < 2 or i < 5`` is ``i < 5``."""
    found = list(parts)
    at = 0
    while at < len(found):
        for other in range(at):
            one = _union(found[other], found[at], context)
            if one is not None:
                found[other : other + 1] = [one]
                del found[at]
                at = -1
                break
        at += 1
    return found


def _union(first: Expr, second: Expr, context: Context) -> Expr | None:
    """One condition that says that either of two conditions on integers holds, None where none is found."""
    rows = [_rows(part, context) for part in (first, second)]
    if rows[0] is None or rows[1] is None:
        return None
    if len(rows[0]) == len(rows[1]) == 1 and not rows[0][0].is_equality and not rows[1][0].is_equality:
        between = rows[0][0].expr + rows[1][0].expr
        if between.is_constant and between.constant >= -1:
            return TRUE
        if between.is_constant and between.constant == -2:  # e >= 0 or e <= -2
            left_out = condition_of(eq(rows[0][0].expr, -1), context)
            return None if left_out is None else negate(left_out)
    return _hull(first, rows[0], second, rows[1], context)


def _rows(condition: Expr, context: Context) -> list[Constraint] | None:
    """The constraints whose conjunction a condition is, None where it is none."""
    found: list[Constraint] = []
    for part in conjuncts(condition):
        own = context.arithmetic.constraints(part) if reads_nothing(part) else None
        if own is None:
            return None
        found.extend(own)
    return found


def _hull(first: Expr, rows: list[Constraint], second: Expr, others: list[Constraint], context: Context) -> Expr | None:
    """The conjunction that holds for the points of both conditions and no others, None where there is none."""
    inside = context.assuming([first]), context.assuming([second])
    hull: dict[Expr, None] = {}
    beyond: list[Constraint] = []  # what the first condition says and the hull does not
    for own, opposite in ((_inequalities(rows), inside[1]), (_inequalities(others), inside[0])):
        for row in own:
            least = 0 if opposite.implies(row) else opposite.range(row.expr)[0]
            if least != 0 and opposite is inside[1]:
                beyond.append(row)
            condition = None if least is None else condition_of(ge(row.expr, min(least, 0)), context)
            if condition is not None and condition != TRUE:
                hull.setdefault(condition)
    for row in beyond:  # hull minus first, one disjoint part after the other, has to be in second
        if not all(context.assuming([*hull, *_failing(row, context)]).implies(other) for other in others):
            return None
        within = condition_of(row, context)
        if within is None:
            return None
        hull.setdefault(within)
    found = list(hull)[: len(hull) - len(beyond)]
    return conjunction(needed(found, context) or found)


def _failing(row: Constraint, context: Context) -> list[Expr]:
    opposite = condition_of(row.negate()[0], context)
    return [] if opposite is None else [opposite]


def _inequalities(rows: Iterable[Constraint]) -> list[Constraint]:
    return [one for row in rows for one in ((ge(row.expr, 0), ge(-row.expr, 0)) if row.is_equality else (row,))]


def _weight(constraints: tuple[Constraint, ...] | None, part: Expr) -> tuple[bool, int, int, int]:
    expr = constraints[0].expr if constraints else Affine.of(0)
    return (expr.has_division(), len(expr.terms), len(size_names(part)), sum(abs(f) for _, f in expr.terms))


def ordered(parts: list[Expr], context: Context) -> list[Expr]:
    """The conditions in order: those on outer indices first, lower bounds before upper ones, conditions that read last."""
    first: dict[Expr, int] = {}
    keys = {}
    for part in parts:
        known = context.arithmetic.constraints(part) if reads_nothing(part) else None
        if known is None or not isinstance(part, Apply):
            keys[part] = (not reads_nothing(part), len(context.depths), len(parts), 0)
            continue
        depth = min((context.depths[name] for c in known for name in c.names() if name in context.depths), default=len(context.depths))
        keys[part] = (False, depth, first.setdefault(part.args[0], len(first)), part.op.name in ("lt", "le"))
    return sorted(parts, key=lambda part: keys[part])


def joined(parts: list[Expr], original: Expr) -> Expr:
    """The conjunction of the parts, the original where nothing changed."""
    before = list(conjuncts(original))
    if len(before) == len(parts) and all(a is b for a, b in zip(before, parts, strict=True)) and _leans_left(original):
        return original
    result: Expr | None = None
    for part in parts:
        result = part if result is None else apply("and", result, part)
    return TRUE if result is None else result


def _leans_left(condition: Expr) -> bool:
    return not any(isinstance(node, Apply) and node.op.name == "and" and _is_and(node.args[1]) for node in walk(condition))


def _is_and(condition: Expr) -> bool:
    return isinstance(condition, Apply) and condition.op.name == "and"


def disjuncts(condition: Expr) -> Iterator[Expr]:
    """The conditions whose disjunction `condition` is, left to right."""
    if isinstance(condition, Apply) and condition.op.name == "or" and condition.dtype.is_bool:
        for arg in condition.args:
            yield from disjuncts(arg)
    else:
        yield condition
