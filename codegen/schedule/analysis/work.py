"""Rough amounts of work: scalar operations of a definition, for what is worth running in parallel or computing again; contractions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from tensorexpr.bounds import Interval, interval
from tensorexpr.codegen.memo import remembered
from tensorexpr.codegen.schedule.analysis.reductions import Group, Parts
from tensorexpr.codegen.schedule.analysis.state import State
from tensorexpr.codegen.schedule.analysis.windows import alternatives
from tensorexpr.ir import Access, Apply, Axis, Const, Expr, Index, Reduce, TensorType, apply, integer
from tensorexpr.regions import affine_of
from tensorexpr.traversal import children, read_occurrences, tensors_read, walk

UNKNOWN_EXTENT = 256
"""What an extent counts that is known only at run time."""
PARALLEL_WORK, CHUNKS_PER_CORE = 20_000, 4
"""Operations below which waking other cores costs more than it saves, and iterations for each core from which on a loop needs no other."""
ENOUGH_ROWS = 8
"""Rows that a loop on all cores of a CPU should have."""


def operations(expr: Expr) -> int:
    """The cost of evaluating an expression once, its reductions left out; index arithmetic counts little."""
    return sum(n.op.cost for n in walk(expr) if isinstance(n, Apply)) + 1


def arithmetic(expr: Expr) -> int:
    """The cost of what is computed with elements: as `operations`, without subscripts and conditions on indices alone."""
    match expr:
        case Access():
            return 0
        case Apply() if expr.op.name == "where" and not tensors_read(expr.args[0]):
            return arithmetic(expr.args[1]) + arithmetic(expr.args[2])
        case Apply():
            return expr.op.cost + sum(map(arithmetic, expr.args))
    return sum(map(arithmetic, children(expr)))


def has_reduction(expr: Expr) -> bool:
    return any(isinstance(n, Reduce) for n in walk(expr))


def lengths(parts: Parts) -> dict[str, int]:
    """About how many iterations every axis has: its greatest width over the ranges of the loops around, where that is known.

    At least one: what is empty is planned as if it were not, since planners divide by lengths, and any schedule of it takes no time.
    """
    return dict(_lengths_of(parts))


@remembered
def _lengths_of(parts: Parts) -> dict[str, int]:
    found: dict[str, int] = {}
    ranges: dict[str, Interval] = {}
    for axis in (*parts.axes, *(a for g in reversed(parts.groups) for a in g.axes)):
        starts = [interval(e, ranges) for e in alternatives(axis.start, "maximum")]
        stops = [interval(e, ranges) for e in alternatives(axis.stop, "minimum")]
        ranges[axis.index] = (max(low for low, _ in starts), max(0.0, min(high for _, high in stops) - 1))
        widths = [length(axis)] if length(axis) != UNKNOWN_EXTENT else []
        widths += [int(width) for e in _differences(axis) if math.isfinite(width := _greatest(e, ranges))]
        found[axis.index] = max(1, min(widths, default=UNKNOWN_EXTENT))
    return found


def _greatest(expr: Expr, ranges: Mapping[str, Interval]) -> float:
    """The greatest value of an expression over some ranges; as a//d is between (a - d + 1)/d and a/d, (q + 1)//2 - q//2 is at most 1."""
    exact = interval(expr, dict(ranges))[1]
    form = affine_of(expr)
    if form is None or not form.has_division():
        return exact
    slopes: dict[str, Fraction] = {}
    high = Fraction(form.constant)
    for atom, factor in form.terms:
        if isinstance(atom, str):
            slopes[atom] = slopes.get(atom, Fraction(0)) + factor
        elif atom.numerator.has_division():
            return exact
        else:
            for name, own in atom.numerator.terms:
                slopes[str(name)] = slopes.get(str(name), Fraction(0)) + Fraction(factor * own, atom.denominator)
            slack = 0 if factor > 0 else 1 - atom.denominator
            high += Fraction(factor * (atom.numerator.constant + slack), atom.denominator)
    for name, slope in slopes.items():
        end = ranges.get(name, (-math.inf, math.inf))[1 if slope > 0 else 0]
        if slope and math.isinf(end):
            return exact
        high += slope * int(end) if slope else 0
    return min(exact, math.floor(high))


def _differences(axis: Axis) -> list[Expr]:
    return [apply("sub", b, a) for a in alternatives(axis.start, "maximum") for b in alternatives(axis.stop, "minimum")]


def length(axis: Axis) -> int:
    """About how many iterations an axis has, by itself: the least of its constant widths, if there is one; at least one (see `lengths`)."""
    best = None
    for start in alternatives(axis.start, "maximum"):
        for stop in alternatives(axis.stop, "minimum"):
            low, high = affine_of(start), affine_of(stop)
            if low is not None and high is not None and (high - low).is_constant:
                width = max(1, (high - low).constant)
                best = width if best is None else min(best, width)
    return UNKNOWN_EXTENT if best is None else best


def group_work(parts: Parts, group: Group, known: Mapping[str, int]) -> int:
    """Operations of a group for one evaluation of it, without groups inside."""
    return math.prod(known[a.index] for a in group.axes) * sum(operations(v) for m in group.members for v in m.values)


@remembered
def total_work(parts: Parts) -> int:
    """Operations of a definition over all of its points."""
    known = lengths(parts)
    total = math.prod(known[a.index] for a in parts.axes) * sum(operations(v) for v in parts.values)
    for group in parts.groups:
        total += math.prod(known[n] for n in group.depends if n in known) * group_work(parts, group, known)
    return total


def bytes_of(type_: TensorType) -> int:
    """Bytes of a tensor, 0 where its extents are open."""
    if not all(isinstance(extent, Const) for extent in type_.shape):
        return 0
    return type_.dtype.itemsize * math.prod(map(integer, type_.shape))


def is_contraction(state: State, name: str) -> bool:
    """Whether a definition sums products over axes along which some operand repeats, so that tiles pay."""
    return _is_contraction(state.stage(name).parts)


@remembered
def _is_contraction(parts: Parts) -> bool:
    for group in parts.groups:
        again = False
        for member in group.members:
            for value in member.values:
                for access, _, _ in read_occurrences(value, ()):
                    used = {n.name for i in access.indices for n in walk(i) if isinstance(n, Index)}
                    long = [a for a in parts.axes if a.index in group.depends and a.index not in used and length(a) > 1]
                    if long and used & set(group.indices):
                        again = True
        if again and not any(_streams(a, {*group.depends, *group.indices}) for m in group.members for v in m.values for a in _reads_of(v)):
            return True
    return False


def _reads_of(value: Expr) -> list[Access]:
    return [access for access, _, _ in read_occurrences(value, ())]


def _streams(access: Access, names: set[str]) -> bool:
    """Whether an access asks for a different element at every point: what bounds the reduction then is how fast these come."""
    found = [i.name for i in access.indices if isinstance(i, Index)]
    return len(found) == len(access.indices) and names <= set(found)
