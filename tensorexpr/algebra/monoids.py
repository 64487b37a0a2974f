"""The monoid of a reduction: what is carried, how two neighbors combine, what a term is, and what the result is in the end."""

from __future__ import annotations

from collections.abc import Sequence

from tensorexpr import dtypes
from tensorexpr.dtypes import DType, accumulator
from tensorexpr.ir import Apply, Cast, Const, Expr, Param, Reduce, apply, const
from tensorexpr.records import record
from tensorexpr.simplify.rules.reduce import identity_value
from tensorexpr.traversal import bottom_up

OPERATIONS = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "all": "and", "any": "or"}
NOBODY = Const(-1, dtypes.int64)
"""The position of the winner among no points."""


@record
class Monoid:
    """What a reduction carries from point to point, as a tuple of scalars.

    argmax and argmin carry the value that wins and its position; 16-bit floats are added and multiplied in float32; a user's combiner
    carries its tuple. `combine` is associative; `start` is its identity.

    With `selects` a maximum or minimum is taken by a choice, the earlier one of equals, so that its derivative is that of the reduction:
    a binary maximum has a gradient by both operands where they are equal, a reduction by its first winner. `start` is then no identity:
    the first term is to be taken whatever it is.
    """

    reduction: Reduce
    selects: bool = False

    @property
    def wins(self) -> bool:
        """Whether the result is the position of a winner."""
        return self.reduction.combiner.is_builtin and self.reduction.combiner.name in ("argmax", "argmin")

    @property
    def types(self) -> tuple[DType, ...]:
        """The dtypes of what is carried."""
        found = tuple(v.dtype for v in self.reduction.values)
        if self.wins:
            return (*found, dtypes.int64)
        return (
            tuple(map(accumulator, found))
            if self.reduction.combiner.name in ("sum", "prod") and self.reduction.combiner.is_builtin
            else found
        )

    @property
    def start(self) -> tuple[Expr, ...]:
        """What is carried before the first point."""
        combiner = self.reduction.combiner
        if not combiner.is_builtin:
            return combiner.identity
        if self.wins:
            return (identity_value("max" if combiner.name == "argmax" else "min", self.types[0]), NOBODY)
        return (identity_value(combiner.name, self.types[0]),)

    def term(self, values: Sequence[Expr], position: Expr) -> tuple[Expr, ...]:
        """What one point is, by its values and its position."""
        if self.wins:
            return (values[0], position)
        return tuple(v if v.dtype is t else Cast(t, v) for v, t in zip(values, self.types, strict=True))

    def select(self, carried: Expr, term: Expr, is_first: Expr, backward: bool) -> tuple[Expr]:
        """One step of a maximum or minimum by a choice: the earlier one of equals, and the first term whatever it is."""
        name = "argmax" if self.reduction.combiner.name == "max" else "argmin"
        stays = _better(name, term, carried) if backward else apply("invert", _better(name, carried, term))
        return (apply("where", apply("and", apply("invert", is_first), stays), carried, term),)

    def combine(self, left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, ...]:
        """What two runs of points are together, the left one first."""
        combiner = self.reduction.combiner
        if self.wins:
            better = _better(combiner.name, left[0], right[0])
            nobody = (apply("lt", left[1], const(0)), apply("ge", right[1], const(0)))
            taken = apply("or", nobody[0], apply("and", nobody[1], better))
            return tuple(apply("where", taken, r, s) for s, r in zip(left, right, strict=True))
        if combiner.is_builtin:
            return (apply(OPERATIONS[combiner.name], left[0], right[0]),)
        given = dict(zip((*combiner.left, *combiner.right), (*left, *right), strict=True))
        return tuple(bottom_up(r, lambda node: given.get(node, node) if isinstance(node, Param) else node) for r in combiner.results)


def _better(name: str, best: Expr, found: Expr) -> Expr:
    """Whether a later value wins over an earlier one; the first NaN wins over all others."""
    better = apply("gt" if name == "argmax" else "lt", found, best)
    if not found.dtype.is_float:
        return better
    return apply("or", better, apply("and", _is_nan(found), apply("invert", _is_nan(best))))


def _is_nan(value: Expr) -> Apply:
    return apply("ne", value, value)
