"""Indices that sizes wind around or stretch, as cases: a quotient by a size that takes few values, a product that may vanish.

`(i - 2) % n` for i < n + 4 is not affine, as n is no number; but i - 2 = q*n + r with r < n leaves q only a few values,
whatever n is, and for each of them the remainder is i - 2 - q*n. So borders by reflection, symmetry and wrapping are pieces.
Which q there are is asked of the integer set of the points; nothing is split where the sizes do not bound them.

`i * s` settles i where s is at least 1; where the stride is 0 it is 0. Only elements that exist are gathered at, so extents
of the tensor are at least 1 in all of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorexpr import dtypes
from tensorexpr.integers import Affine, Domain, ge, le, lt
from tensorexpr.ir import Apply, Axis, Expr, apply, const
from tensorexpr.regions import affine_of, domain_of, with_constraints
from tensorexpr.traversal import free_names, size_names, walk

MOST_TURNS = 8
"""A quotient with more values is not split."""

Turn = tuple[tuple[Expr, ...], dict[Expr, Expr]]
"""Conditions of a case, and what expressions are under them."""


def turns(exprs: Iterable[Expr], axes: Sequence[Axis], guards: Sequence[Expr], target: Sequence[Axis]) -> list[Turn] | None:
    """The cases of the first quotient or product among `exprs`, innermost first, that has such; None where none has."""
    exprs = tuple(exprs)
    domain: Domain | None = None
    for expr in exprs:
        for node in walk(expr):
            if not isinstance(node, Apply) or node.dtype is not dtypes.int64 or node.op.name not in ("floordiv", "mod", "mul"):
                continue
            left, right = map(affine_of, node.args)
            if left is None or right is None or left.is_constant or right.is_constant:
                continue
            if domain is None:
                domain = _points(exprs, axes, guards, target)
            found = _by_product(node, domain) if node.op.name == "mul" else _by_quotient(node, left, right, domain)
            if found is not None:
                return found
    return None


def _points(exprs: Sequence[Expr], axes: Sequence[Axis], guards: Sequence[Expr], target: Sequence[Axis]) -> Domain:
    extents = [form for axis in target if (form := affine_of(axis.stop)) is not None]
    sizes = dict.fromkeys(name for e in (*exprs, *(axis.stop for axis in target)) for name in size_names(e))
    return with_constraints(domain_of(axes, guards).domain, [ge(form, 1) for form in extents] + [ge(name, 0) for name in sizes])


def _by_quotient(node: Apply, numerator: Affine, divisor: Affine, domain: Domain) -> list[Turn] | None:
    if not with_constraints(domain, [le(divisor, 0)]).is_empty():
        return None
    values = _quotients(numerator, divisor, domain)
    if values is None:
        return None
    e, d = node.args
    found: list[Turn] = []
    for value in values:
        conditions = []
        if value > values[0]:
            conditions.append(apply("ge", e, _multiple(d, value)))
        if value < values[-1]:
            conditions.append(apply("lt", e, _multiple(d, value + 1)))
        rest = e if value == 0 else apply("sub", e, _multiple(d, value))
        found.append((tuple(conditions), {apply("floordiv", e, d): const(value), apply("mod", e, d): rest}))
    return found


def _quotients(numerator: Affine, divisor: Affine, domain: Domain) -> range | None:
    """The values of `numerator // divisor`, None where they are not known to be few."""

    def reaches(value: int) -> bool:
        return not with_constraints(domain, [ge(numerator, divisor * value)]).is_empty()

    def stays_below(value: int) -> bool:
        return not with_constraints(domain, [lt(numerator, divisor * value)]).is_empty()

    low = high = 0
    while high <= MOST_TURNS and reaches(high + 1):
        high += 1
    while low >= -MOST_TURNS and stays_below(low):
        low -= 1
    return range(low, high + 1) if high - low < MOST_TURNS else None


def _multiple(expr: Expr, factor: int) -> Expr:
    return const(0) if factor == 0 else expr if factor == 1 else apply("mul", expr, const(factor))


def _by_product(node: Apply, domain: Domain) -> list[Turn] | None:
    for stride in node.args:
        form = affine_of(stride)
        if form is None or free_names(stride):
            continue
        may_vanish = not with_constraints(domain, [le(form, 0)]).is_empty()
        if may_vanish and with_constraints(domain, [lt(form, 0)]).is_empty():
            return [((apply("ge", stride, const(1)),), {}), ((apply("le", stride, const(0)),), {node: const(0)})]
    return None
