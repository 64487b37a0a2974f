"""Cases: minimum, maximum, abs and where in an index (`cases_of`), and `|`, `~`, `!=` in a condition (`cases_where`), split into disjoint
cases that are affine; conditions as constraints.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from tensorexpr import dtypes
from tensorexpr.integers import Affine, Constraint, eq, ge, gt, le, lt
from tensorexpr.ir import Apply, Cast, Const, Expr, Index, apply, conjuncts
from tensorexpr.records import record
from tensorexpr.regions.forms import Opaque, affine_of

MAX_CASES = 64
"""Where an expression or the guards have more cases, what would split further is left opaque, or out."""


_ZERO = Affine.of(0)


@record
class Case:
    """A part of the points, given by constraints, on which an index has an affine `value` (0 for a condition).

    `exact` is False where the constraints leave something out, so that the case may be smaller than it looks.
    """

    constraints: tuple[Constraint, ...]
    value: Affine = _ZERO
    exact: bool = True


def cases_of(expr: Expr, opaque: Opaque) -> list[Case]:
    """Disjoint cases of an integer expression; in each the value is affine over indices, sizes and opaque names."""
    if _splits(expr):
        found = _split(expr, opaque)
        if found is not None and len(found) <= MAX_CASES:
            return found
        return [Case((), Affine.of(opaque.name_of(expr)))]
    form = affine_of(expr, opaque)
    assert form is not None  # with names for what is opaque there is always one
    return [Case((), form)]


def _splits(expr: Expr) -> bool:
    if isinstance(expr, Apply):
        return expr.op.name in _SPLITTING or (expr.dtype is dtypes.int64 and any(map(_splits, expr.args)))
    if not isinstance(expr, Cast) or expr.dtype is not dtypes.int64:
        return False
    return expr.arg.dtype.is_bool or (expr.arg.dtype.is_integer and _splits(expr.arg))


_SPLITTING = ("minimum", "maximum", "abs", "sign", "where")


def _split(expr: Expr, opaque: Opaque) -> list[Case] | None:
    if isinstance(expr, Cast):
        if expr.arg.dtype.is_bool:
            return _choice(expr.arg, [Case((), Affine.of(1))], [Case((), Affine.of(0))], opaque)
        return cases_of(expr.arg, opaque)
    if not isinstance(expr, Apply):
        return None
    name = expr.op.name
    if name == "where":
        return _choice(expr.args[0], cases_of(expr.args[1], opaque), cases_of(expr.args[2], opaque), opaque)
    if name in ("abs", "sign"):
        if expr.dtype is not dtypes.int64:  # the least narrow integer is its own negative
            return None
        return [found for case in cases_of(expr.args[0], opaque) for found in _by_sign(name, case)]
    parts = [cases_of(arg, opaque) for arg in expr.args]
    if len(parts) == 2 and len(parts[0]) * len(parts[1]) > MAX_CASES:
        return None
    if name in ("minimum", "maximum"):
        found = []
        for first in parts[0]:
            for second in parts[1]:
                shared, exact = (*first.constraints, *second.constraints), first.exact and second.exact
                low, high = (first, second) if name == "minimum" else (second, first)
                found.append(Case((*shared, le(low.value, high.value)), first.value, exact))
                found.append(Case((*shared, gt(low.value, high.value)), second.value, exact))
        return [case for case in found if not any(one.is_false for one in case.constraints)]
    # An operation that is affine in its operands once each of them is: rebuilt over names that stand for the cases' values.
    found = []
    for chosen in _products(parts):
        stand = Opaque()
        values: dict[str, Affine | int | str] = {
            stand.name_of(arg): case.value for arg, case in zip(expr.args, chosen, strict=True) if not isinstance(arg, Const)
        }
        form = affine_of(Apply(expr.op, tuple(arg if isinstance(arg, Const) else Index(stand.name_of(arg)) for arg in expr.args)))
        if form is None:
            return None
        constraints = tuple(one for case in chosen for one in case.constraints)
        found.append(Case(constraints, form.substitute(values), all(case.exact for case in chosen)))
    return found


def _products(parts: list[list[Case]]) -> Iterable[tuple[Case, ...]]:
    return ((case,) for case in parts[0]) if len(parts) == 1 else ((a, b) for a in parts[0] for b in parts[1])


def _by_sign(name: str, case: Case) -> list[Case]:
    value = case.value
    if name == "abs":
        return [Case((*case.constraints, ge(value, 0)), value, case.exact), Case((*case.constraints, lt(value, 0)), -value, case.exact)]
    rows = ((gt(value, 0), 1), (eq(value, 0), 0), (lt(value, 0), -1))
    return [Case((*case.constraints, one), Affine.of(sign), case.exact) for one, sign in rows]


def _choice(condition: Expr, then: list[Case], otherwise: list[Case], opaque: Opaque) -> list[Case]:
    found = []
    for holds, branch in ((True, then), (False, otherwise)):
        for guard in cases_where(condition, opaque, holds):
            found += [Case((*guard.constraints, *case.constraints), case.value, guard.exact and case.exact) for case in branch]
    return found


_COMPARISONS = {"lt": lt, "le": le, "gt": gt, "ge": ge, "eq": eq}
_BOTH_SIDES = {"lt": ("maximum", "minimum"), "le": ("maximum", "minimum"), "gt": ("minimum", "maximum"), "ge": ("minimum", "maximum")}
_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


def cases_where(condition: Expr, opaque: Opaque, holds: bool = True) -> list[Case]:
    """Disjoint cases that make up the points at which `condition` holds (or does not); no case where it never does.

    What is not a comparison of integers is a case without constraints that is not exact.
    """
    found = _cases_where(condition, opaque, holds)
    return [Case((), _ZERO, False)] if len(found) > MAX_CASES else found


def _cases_where(condition: Expr, opaque: Opaque, holds: bool) -> list[Case]:
    if isinstance(condition, Const):
        return [Case(())] if bool(condition.value) == holds else []
    unknown = [Case((), _ZERO, False)]
    if not isinstance(condition, Apply):
        return unknown
    name, args = condition.op.name, condition.args
    if name == "invert":
        return cases_where(args[0], opaque, not holds)
    if name in ("and", "or"):
        if (name == "and") == holds:
            return _both(cases_where(args[0], opaque, holds), cases_where(args[1], opaque, holds))
        first = cases_where(args[0], opaque, holds)
        return first + _both(cases_where(args[0], opaque, not holds), cases_where(args[1], opaque, holds))
    if name == "where":
        taken = _both(cases_where(args[0], opaque, True), cases_where(args[1], opaque, holds))
        return taken + _both(cases_where(args[0], opaque, False), cases_where(args[2], opaque, holds))
    if name in ("eq", "ne", "xor") and args[0].dtype.is_bool:
        same = (name == "eq") == holds
        return [
            case
            for first in (True, False)
            for case in _both(cases_where(args[0], opaque, first), cases_where(args[1], opaque, first == same))
        ]
    if name not in _OPPOSITE or not args[0].dtype.is_integer:
        return unknown
    name = name if holds else _OPPOSITE[name]
    for side, extreme in enumerate(_BOTH_SIDES.get(name, ())):
        bounded = args[side]
        if isinstance(bounded, Apply) and bounded.op.name == extreme:  # maximum(a, b) < c says a < c and b < c
            parts = [apply(name, *(part if n == side else arg for n, arg in enumerate(args))) for part in bounded.args]
            return _both(cases_where(parts[0], opaque), cases_where(parts[1], opaque))
    found = []
    for left in cases_of(args[0], opaque):
        for right in cases_of(args[1], opaque):
            shared, exact = (*left.constraints, *right.constraints), left.exact and right.exact
            makers = (lt, gt) if name == "ne" else (_COMPARISONS[name],)
            found += [Case((*shared, make(left.value, right.value)), _ZERO, exact) for make in makers]
    return [case for case in found if not any(one.is_false for one in case.constraints)]


def _both(first: list[Case], second: list[Case]) -> list[Case]:
    return [Case((*a.constraints, *b.constraints), _ZERO, a.exact and b.exact) for a in first for b in second]


def constraints_of(condition: Expr, opaque: Opaque | None = None) -> tuple[tuple[Constraint, ...], bool]:
    """The affine conjuncts of a condition, and whether they are all of it (False: something was left out)."""
    return _plain_constraints(condition) if opaque is None else _constraints(condition, opaque, True)


@lru_cache(maxsize=1 << 13)
def _plain_constraints(condition: Expr) -> tuple[tuple[Constraint, ...], bool]:
    return _constraints(condition, Opaque(), False)


def _constraints(condition: Expr, opaque: Opaque, named: bool) -> tuple[tuple[Constraint, ...], bool]:
    """The conjuncts; unless `named`, one that mentions an opaque name is left out."""
    found: list[Constraint] = []
    exact = True
    for part in conjuncts(condition):
        cases = cases_where(part, opaque)
        if not cases:
            found.append(ge(-1, 0))
        elif len(cases) > 1 or (not named and any(name.startswith("?") for one in cases[0].constraints for name in one.names())):
            exact = False
        else:
            found += cases[0].constraints
            exact = exact and cases[0].exact
    return tuple(found), exact
