"""Reads beyond the border that count as zero, as those of a padded convolution: the condition says what the bounds of the tensor do."""

from __future__ import annotations

from tensorexpr.integers import Constraint, ge
from tensorexpr.ir import Access, Apply, Const, Expr, apply, const
from tensorexpr.regions import affine_of, constraints_of


def zero_beyond(expr: Expr, shape: tuple[Expr, ...] | None) -> Access | None:
    """The access `x` of `where(c, x, 0)` where c holds wherever the access is inside of a tensor of this shape: it is what a copy has
    whose elements beyond the tensor are zeros."""
    if not isinstance(expr, Apply) or expr.op.name != "where" or shape is None:
        return None
    condition, read, zero = expr.args
    if not isinstance(read, Access) or not isinstance(zero, Const) or zero.value != 0 or len(read.indices) != len(shape):
        return None
    found, exact = constraints_of(condition)
    inside: set[Constraint] = set()
    for index, extent in zip(read.indices, shape, strict=True):
        first, last = affine_of(index), affine_of(apply("sub", apply("sub", extent, const(1)), index))
        inside |= {ge(form, 0) for form in (first, last) if form is not None}
    return read if exact and found and all(c in inside for c in found) else None
