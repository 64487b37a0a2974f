"""Proofs that accesses stay in bounds, over the integer set of the loops and guards around them.

`check_access` gives one verdict per axis of an access: `PROVED`; `OutOfBounds` with concrete indices at which it happens;
or `UNKNOWN`, where the index depends on data, or on sizes in a way that only empty tensors break: lowering then emits a
check at run time. Quick answers come first (an index that is a loop over just that extent, interval arithmetic), then
the exact integer set in cases, then products of sizes (`nonlinear`) and enumeration of small loops for what is not affine.
Results are cached.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from tensorexpr import dtypes
from tensorexpr.bounds.enumeration import NotEnumerable, each_of, enumerate_points, evaluate_on
from tensorexpr.bounds.nonlinear import Polynomials
from tensorexpr.integers import Affine, Domain, DomainTooComplex, ge, lt
from tensorexpr.ir import Apply, Axis, Cast, Const, Expr, Index, Size, const, greatest_size
from tensorexpr.records import cached_property, record
from tensorexpr.regions import Case, Opaque, Region, cases_of, cases_where, regions_of, with_constraints
from tensorexpr.regions.domains import mentions_opaque

Interval = tuple[float, float]
"""Least and greatest value, infinite where there is no bound."""

_WHOLE: Interval = (-math.inf, math.inf)


@record
class Proved:
    """The index is in range wherever the access is evaluated."""


@record
class Unknown:
    """Neither proved nor refuted when written: to be checked as the program runs."""


@record
class OutOfBounds:
    """The index leaves its range: `at` is a point (indices and sizes) where it does, `value` the index there, `extent`
    the extent there, `least` and `greatest` its range over all points as text (None where unknown)."""

    at: tuple[tuple[str, int], ...]
    value: int
    extent: int
    least: str | None
    greatest: str | None


Verdict = Proved | Unknown | OutOfBounds
PROVED, UNKNOWN = Proved(), Unknown()


@lru_cache(maxsize=8192)
def check_access(
    indices: tuple[Expr, ...], shape: tuple[Expr, ...], axes: tuple[Axis, ...], guards: tuple[Expr, ...] = ()
) -> tuple[Verdict, ...]:
    """A verdict per axis on an access with these indices to a tensor of this shape, under `axes` and `guards`.

    The axes are outermost first; later ones may use earlier ones. Guards are bool expressions that hold where the access
    is evaluated.
    """
    return tuple(_check(index, extent, axes, guards) for index, extent in zip(indices, shape, strict=True))


def implied(condition: Expr, axes: tuple[Axis, ...], guards: tuple[Expr, ...] = ()) -> bool:
    """Whether a condition provably holds at every point of the axes at which the guards hold."""
    if isinstance(condition, Const):
        return bool(condition.value)
    if isinstance(condition, Apply) and condition.op.name in _QUICK and not condition.args[0].dtype.is_bool:
        ranges = axis_ranges(axes)
        first, second = (interval(arg, ranges) for arg in condition.args)
        if _QUICK[condition.op.name](first, second):
            return True
    try:
        prover = _Prover(axes, guards)
        cases = cases_where(condition, prover.opaque, False)
        if all(prover.narrowed(region, case).is_empty() for case in cases for region in prover.regions):
            return True
        return prover.nonlinear and prover.polynomials.holds(condition)
    except DomainTooComplex:
        return False


def is_empty(axes: tuple[Axis, ...], guards: tuple[Expr, ...] = ()) -> bool:
    """Whether the axes provably have no point at which the guards hold, whatever the sizes are."""
    try:
        return not any(not region.domain.is_empty() for region in _Prover(axes, guards).regions)
    except DomainTooComplex:
        return False


_QUICK = {
    "lt": lambda a, b: a[1] < b[0],
    "le": lambda a, b: a[1] <= b[0],
    "gt": lambda a, b: a[0] > b[1],
    "ge": lambda a, b: a[0] >= b[1],
}


def _check(index: Expr, extent: Expr, axes: tuple[Axis, ...], guards: tuple[Expr, ...]) -> Verdict:
    if isinstance(index, Index) and any(a.index == index.name and a.stop == extent and a.start == const(0) for a in axes):
        return PROVED
    low, high = interval(index, axis_ranges(axes))
    if low >= 0 and high < interval(extent, {})[0]:
        return PROVED
    try:
        return _Prover(axes, guards).check(index, extent)
    except DomainTooComplex:
        return UNKNOWN


@lru_cache(maxsize=1024)
def axis_ranges(axes: tuple[Axis, ...]) -> dict[str, Interval]:
    """The values that each index can take, by interval arithmetic."""
    ranges: dict[str, Interval] = {}
    for axis in axes:
        ranges[axis.index] = (interval(axis.start, ranges)[0], interval(axis.stop, ranges)[1] - 1)
    return ranges


# ------------------------------------------------------------------------------------------------------- intervals


def interval(expr: Expr, ranges: dict[str, Interval]) -> Interval:
    """The values that a number can take where the indices are in `ranges` (sizes are at least 0); a float may be NaN as well."""
    match expr:
        case Const():
            value = float("nan") if expr.dtype.is_bool else expr.value
            return (value, value) if value == value else _WHOLE
        case Index():
            return ranges.get(expr.name, _WHOLE)
        case Cast():
            return _cast_interval(expr, ranges)
        case Apply():
            found = _apply_interval(expr, ranges)
            if expr.dtype.is_float or expr.dtype is dtypes.int64:
                return found
            own = interval_of_type(expr)
            return found if own[0] <= found[0] and found[1] <= own[1] else own  # narrow integers wrap around
    return interval_of_type(expr)


def interval_of_type(expr: Expr) -> Interval:
    """The values that a number can take by its type alone (a size is at least 0)."""
    if expr.dtype.is_integer and expr.dtype is not dtypes.int64:
        return (expr.dtype.least, expr.dtype.greatest)
    return (0, _most(expr.name)) if isinstance(expr, Size) else _WHOLE


def _most(size: str) -> float:
    most = greatest_size(size)
    return math.inf if most is None else most


def _cast_interval(expr: Cast, ranges: dict[str, Interval]) -> Interval:
    if expr.arg.dtype.is_bool:
        return (0, 1)
    low, high = interval(expr.arg, ranges)
    if expr.dtype.is_float:
        # Rounding is monotonic, but need not keep a bound that the narrower type cannot represent.
        return (low, high) if expr.arg.dtype.is_float and expr.arg.dtype.bits < expr.dtype.bits else _WHOLE
    if expr.arg.dtype.is_float:  # toward zero, saturating; NaN gives 0
        low, high = min(0, low), max(0, high)
        low, high = (low if math.isinf(low) else math.trunc(low)), (high if math.isinf(high) else math.trunc(high))
    own = (expr.dtype.least, expr.dtype.greatest)
    if own[0] <= low and high <= own[1]:
        return (low, high)
    saturates = expr.arg.dtype.is_float or (expr.dtype is dtypes.int64 and expr.arg.dtype is not dtypes.uint64)
    return (max(own[0], low), min(own[1], high)) if saturates else own


def _apply_interval(expr: Apply, ranges: dict[str, Interval]) -> Interval:
    name = expr.op.name
    if name == "where":
        return _hull(interval(expr.args[1], ranges), interval(expr.args[2], ranges))
    if name not in _INTERVALS:
        return _WHOLE
    if expr.dtype.is_float and name not in ("minimum", "maximum", "floor", "ceil", "round", "trunc", "neg", "abs"):
        return _WHOLE
    return interval_of_operation(name, [interval(arg, ranges) for arg in expr.args])


def interval_of_operation(name: str, operands: Sequence[Interval]) -> Interval:
    """The values of an operation on integers of any size, by the values of its operands."""
    return _INTERVALS[name](*operands) if name in _INTERVALS else _WHOLE


def _hull(a: Interval, b: Interval) -> Interval:
    return min(a[0], b[0]), max(a[1], b[1])


def _product(a: Interval, b: Interval) -> Interval:
    ends = [0 if x == 0 or y == 0 else x * y for x in a for y in b]
    return min(ends), max(ends)


def _quotient(a: Interval, b: Interval) -> Interval:
    if b[0] != b[1] or not 0 < b[0] < math.inf:
        return (min(a[0], 0), max(a[1], 0)) if b[0] >= 0 else _WHOLE  # a zero divisor gives 0
    return tuple(x if math.isinf(x) else x // b[0] for x in a)  # type: ignore[return-value]  # of a pair comes a pair


def _remainder(a: Interval, b: Interval) -> Interval:
    if b[0] < 0:
        return _WHOLE
    if a[0] >= 0 and a[1] < b[0]:
        return a
    return (0, max(b[1] - 1, 0))  # a zero divisor gives 0


def _each(function: Callable[[float], int], a: Interval) -> Interval:
    low, high = a
    return low if math.isinf(low) else function(low), high if math.isinf(high) else function(high)


def _bitand(a: Interval, b: Interval) -> Interval:
    limits = [x[1] for x in (a, b) if x[0] >= 0]
    return (0, min(limits)) if limits else _WHOLE


def _bits(a: Interval, b: Interval) -> Interval:
    """Of `|` and `^`: no bit above those of the operands."""
    high = max(a[1], b[1])
    if min(a[0], b[0]) < 0 or math.isinf(high):
        return _WHOLE
    return (0, (1 << int(high).bit_length()) - 1)


def _left(a: Interval, b: Interval) -> Interval:
    if b[0] < 0 or b[1] > 62 or math.isinf(a[0]) or math.isinf(a[1]):
        return _WHOLE
    ends = [int(x) << int(y) for x in a for y in b]
    return min(ends), max(ends)


def _right(a: Interval, b: Interval) -> Interval:
    if b[0] < 0 or b[1] > 62:
        return _WHOLE
    ends = [x if math.isinf(x) else int(x) >> int(y) for x in a for y in b]
    return min(ends), max(ends)


_INTERVALS: dict[str, Callable[..., Interval]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _product,
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (0 if a[0] <= 0 <= a[1] else min(abs(a[0]), abs(a[1])), max(abs(a[0]), abs(a[1]))),
    "sign": lambda a: (-1 if a[0] < 0 else 0, 1 if a[1] > 0 else 0),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "floordiv": _quotient,
    "mod": _remainder,
    "and": _bitand,
    "or": _bits,
    "xor": _bits,
    "shift_left": _left,
    "shift_right": _right,
    "floor": lambda a: _each(math.floor, a),
    "ceil": lambda a: _each(math.ceil, a),
    "round": lambda a: _each(round, a),
    "trunc": lambda a: _each(math.trunc, a),
}


# ---------------------------------------------------------------------------------------------------------- proofs


class _Prover:
    """The regions of some axes and guards, made once for all questions about them."""

    def __init__(self, axes: tuple[Axis, ...], guards: tuple[Expr, ...]) -> None:
        self.axes, self.guards = axes, guards
        self.opaque = Opaque()
        self.ranges = axis_ranges(axes)
        self.regions = regions_of(axes, guards, self.opaque)

    def narrowed(self, region: Region, *cases: Case) -> Domain:
        """The points of the region in all the cases, with what is known of every name: sizes and opaque values."""
        constraints = [one for case in cases for one in case.constraints]
        domain = with_constraints(region.domain, constraints, [name for case in cases for name in case.value.names()])
        hidden = self.opaque.expressions
        facts = []
        for name in domain.sizes:
            low, high = interval(hidden[name], self.ranges) if name in hidden else (0, _most(name))
            facts += [] if math.isinf(low) else [ge(name, int(low))]
            facts += [] if math.isinf(high) else [lt(name, int(high) + 1)]
        return with_constraints(domain, facts)

    def check(self, index: Expr, extent: Expr) -> Verdict:
        """The verdict on an index that must lie in range(extent)."""
        violations: list[tuple[Domain, Affine, bool]] = []
        for value in cases_of(index, self.opaque):
            for limit in cases_of(extent, self.opaque):
                for region in self.regions:
                    domain = self.narrowed(region, value, limit)
                    exact = region.exact and value.exact and limit.exact
                    for right, wrong in (
                        (ge(value.value, 0), lt(value.value, 0)),
                        (lt(value.value, limit.value), ge(value.value, limit.value)),
                    ):
                        if not domain.implies(right):
                            violations.append((with_constraints(domain, (wrong,)), value.value, exact))
        if not violations:
            return PROVED
        certain = [(domain, value) for domain, value, exact in violations if exact and not mentions_opaque(domain)]
        found = self._refuted(certain, index, extent)
        if found is not None:
            return found
        return PROVED if self.nonlinear and self.polynomials.within(index, extent) else self._enumerated(index, extent)

    @property
    def nonlinear(self) -> bool:
        """Whether products or quotients of names occur."""
        return any(isinstance(e, Apply) and e.op.name in ("mul", "floordiv", "mod") for e in self.opaque.names)

    @cached_property
    def polynomials(self) -> Polynomials:
        """The same loops and guards for proofs about products."""
        return Polynomials(self.axes, self.guards, lambda expr: interval(expr, self.ranges))

    def _refuted(self, violations: list[tuple[Domain, Affine]], index: Expr, extent: Expr) -> OutOfBounds | None:
        """Out of bounds, at the first violation that does not take an empty tensor."""
        for domain, value in violations:
            point = with_constraints(domain, [ge(size, 1) for size in domain.sizes]).sample()
            if point is None or not all(dtypes.int64.least <= value <= dtypes.int64.greatest for value in point.values()):
                continue
            places = [(self.narrowed(region, case), case.value) for case in cases_of(index, self.opaque) for region in self.regions]
            least, greatest = _span([place for place in places if not place[0].is_empty()])
            limit = int(evaluate_on(extent, {name: np.int64(v) for name, v in point.items()}))
            return OutOfBounds(tuple(sorted(point.items(), key=self._order)), value.evaluate(point), limit, least, greatest)
        return None

    def _order(self, item: tuple[str, int]) -> tuple[int, str]:
        names = [axis.index for axis in self.axes]
        return (names.index(item[0]) if item[0] in names else len(names), item[0])

    def _enumerated(self, index: Expr, extent: Expr) -> Verdict:
        """The verdict by visiting every point, where there are few and neither sizes nor data are involved."""
        try:
            points = enumerate_points(self.axes, self.guards)
            values, limits = (each_of(expr, points.values, points.count) for expr in (index, extent))
        except NotEnumerable:
            return UNKNOWN
        wrong = (values < 0) | (values >= limits)
        if not wrong.any():
            return PROVED
        at = int(np.argmax(wrong))
        point = tuple((axis.index, int(points.values[axis.index][at])) for axis in self.axes)
        return OutOfBounds(point, int(values[at]), int(limits[at]), str(values.min()), str(values.max()))


def _span(places: list[tuple[Domain, Affine]]) -> tuple[str | None, str | None]:
    """The least and the greatest of some values as text: numbers, or where there is one value, in terms of the sizes."""
    ranges = [domain.range(value) for domain, value in places]
    lows, highs = [low for low, _ in ranges if low is not None], [high for _, high in ranges if high is not None]
    least = str(min(lows)) if len(lows) == len(ranges) else None
    greatest = str(max(highs)) if len(highs) == len(ranges) else None
    if len(places) == 1 and (least is None or greatest is None):
        ((domain, value),) = places
        try:
            bounds = domain.image({"": value})
        except DomainTooComplex:
            return least, greatest
        if len(bounds.pieces) == 1:
            limits = bounds.pieces[0].bounds("")
            least = least or _only([-(-expr // divisor) for expr, divisor in limits.lowers])
            greatest = greatest or _only([expr // divisor for expr, divisor in limits.uppers])
    return least, greatest


def _only(values: list[Affine]) -> str | None:
    return str(values[0]) if len(values) == 1 else None
