"""Terms of a sum that are equal under conditions which exclude each other: one term under one condition.

``where(i < j, e, 0) + where(i > j, e, 0)`` is ``where(i != j, e, 0)``. Reads that are affine by cases are turned around by them; cases in
which an element receives the same are not worth telling apart. Only in derived formulas: terms may be added in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tensorexpr.ir import Apply, Const, Expr, apply
from tensorexpr.simplify.facts.conditions import disjuncts
from tensorexpr.simplify.facts.context import Context
from tensorexpr.simplify.rules.common import reads_nothing

Term = tuple[int, Expr]
"""A sign, and what is added or subtracted."""


def with_joint_pieces(expr: Apply, context: Context) -> Expr:
    """where(c, e, 0) + a + where(d, e, 0) -> where(c or d, e, 0) + a, where c and d exclude each other; the same object where there is none

    Both sides are settled by themselves already, so that only pairs with one term on either side are looked at.
    """
    added = list(_terms(expr.args[1], -1 if expr.op.name == "sub" else 1))
    if not any(_is_piece(term) for _, term in added):
        return expr
    terms = list(_terms(expr.args[0], 1))
    left: list[Term] = []
    for sign, term in added:
        at = next((k for k, (own, other) in enumerate(terms) if own == sign and _fit(other, term, context)), None)
        if at is None:
            left.append((sign, term))
        else:
            known = terms[at][1]
            assert isinstance(known, Apply) and isinstance(term, Apply)
            terms[at] = sign, apply("where", apply("or", known.args[0], term.args[0]), *known.args[1:])
    if len(left) == len(added):
        return expr
    result = terms[0][1]
    for sign, term in (*terms[1:], *left):
        result = apply("add" if sign > 0 else "sub", result, term)
    return result


def _terms(expr: Expr, sign: int) -> Iterator[Term]:
    if isinstance(expr, Apply) and expr.op.name in ("add", "sub"):
        yield from _terms(expr.args[0], sign)
        yield from _terms(expr.args[1], sign if expr.op.name == "add" else -sign)
    else:
        yield sign, expr


def _is_piece(term: Expr) -> bool:
    if not isinstance(term, Apply) or term.op.name != "where":
        return False
    condition, _, otherwise = term.args
    return isinstance(otherwise, Const) and otherwise.value == 0 and reads_nothing(condition)


def _fit(first: Expr, second: Expr, context: Context) -> bool:
    if not _is_piece(first) or not _is_piece(second):
        return False
    assert isinstance(first, Apply) and isinstance(second, Apply)
    if first.args[1:] != second.args[1:]:
        return False
    pairs = product(disjuncts(first.args[0]), disjuncts(second.args[0]))
    return all(context.assuming(pair).is_empty() for pair in pairs)
