"""Sums of products with 0 and 1 are sums over the points that have a 1; so are those with 0 and what is the same for all points.

    t[s, d] = sum(where(key[i] == s, 1.0, 0.0) * x[i, d] for i in range(n))   -->   t[s, d] = sum(x[i, d] for i in range(n) if key[i] == s)

    c[i, j] = sum(x[i, k] * where(k <= j, 1 / (j + 1), 0.0) for k)   -->   c[i, j] = sum(x[i, k] for k if k <= j) * (1 / (j + 1))

    y[i, k] = sum(where(j <= i, a[i, j], 0.0) * x[j, k] for j)       -->   y[i, k] = sum(a[i, j] * x[j, k] for j in range(i + 1))

A mask or a one-hot row is a product at every point; what is chosen is looked for by key, read at its place, or shared by prefixes. A
product with 0 is NaN where the other factor is not finite. So the points that are not finite are looked for, too: the least and the
greatest of what the condition compares, among them, tell whether one has a 0. These loops have no turn where all is finite. All is where
the sums are, if each point is in one: then these are looked at, which are fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from math import isfinite, nan

from tensorexpr.algebra.keyed.keys import is_plain, sums_evaluated
from tensorexpr.bounds.accesses import Interval, axis_ranges, interval, interval_of_operation
from tensorexpr.dtypes import int64
from tensorexpr.ir import (
    Access,
    Apply,
    Axis,
    Cast,
    Combiner,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Program,
    Reduce,
    apply,
    conjunction,
    conjuncts,
    const,
)
from tensorexpr.records import record, replace
from tensorexpr.simplify import simplify_expr
from tensorexpr.simplify.facts.indices import factors_of
from tensorexpr.simplify.passes.amounts import part_of, points
from tensorexpr.traversal import bottom_up, free_names, fresh_name, negate, substitute, tensors_read, walk

GAIN = 8
"""How many results go through the same points at least: what looking for those that are not finite costs is one of them."""
MOST = 0.6
"""The largest part of all points that a mask with values of its own may let through: a triangle of 256 x 256 times 128 columns takes
0.52 of the time of the whole square."""
LARGEST, SMALLEST = 1e30, 1e-6
"""Numbers below the first are finite in float32 whatever rounding does, and no divisor above the second is rounded to 0."""
FLIPPED = {"eq": "eq", "le": "ge", "ge": "le", "lt": "gt", "gt": "lt"}
"""Comparisons with their sides exchanged."""


@record
class Chosen:
    """A sum of a product with a mask: what else it multiplies, each with the axes around it that its points have, what the mask is in place
    of 1 (None for 1), and its conditions as (comparison, side of the points, side of the results)."""

    rests: tuple[tuple[Expr, tuple[Axis, ...]], ...]
    scale: Expr | None
    conditions: tuple[tuple[str, Expr, Expr], ...]

    @property
    def rest(self) -> Expr:
        return _product([rest for rest, _ in self.rests])


def without_masks(program: Program) -> Program:
    """The program with conditions for factors that are 0 or 1, where many results go through the same points.

    Requires: a simplified program. Ensures: every value is kept, up to rounding where a mask is not 0 and 1.
    """
    masks = {d.name: d for d in program.definitions if isinstance(d, Define) and _is_mask_of_points(d)}
    masks |= {d.name: d for d in program.definitions if isinstance(d, Define) and _is_masked(d, masks)}
    taken = {*program.types, *program.sizes}
    definitions: list[Definition] = []
    for d in program.definitions:
        if isinstance(d, Define):
            found: dict[Expr, Expr] = {}
            for e in sums_evaluated(d.value):
                chosen = _chosen(e, d.axes, masks) if e not in found else None
                if chosen is not None:
                    made, found[e] = _without(e, chosen, d, taken)
                    definitions += made
            d = replace(d, value=bottom_up(d.value, lambda e, found=found: found.get(e, e))) if found else d  # type: ignore[misc]  # mypy has no type for a lambda with a default
        definitions.append(d)
    return program if len(definitions) == len(program.definitions) else replace(program, definitions=tuple(definitions))


def _mask(e: Expr, masks: Mapping[str, Define]) -> tuple[Expr, Expr | None] | None:
    """The condition under which a factor is something else than 0, and what it is then (None for 1)."""
    if isinstance(e, Access) and e.tensor in masks and all(isinstance(i, Index | Const) for i in e.indices):
        source = masks[e.tensor]
        own = _mask(source.value, {})
        if own is None:
            return None
        at = {a.index: i for a, i in zip(source.axes, e.indices, strict=True)}
        return substitute(own[0], at), None if own[1] is None else substitute(own[1], at)
    if isinstance(e, Cast) and e.arg.dtype.is_bool:
        return e.arg, None
    if isinstance(e, Apply) and e.op.name in ("mul", "div") and isinstance(e.args[1], Const) and SMALLEST < e.args[1].value < LARGEST:
        inner = _mask(e.args[0], masks)
        return inner and (inner[0], apply(e.op.name, Const(1, e.dtype) if inner[1] is None else inner[1], e.args[1]))
    if isinstance(e, Apply) and e.op.name == "where":
        for condition, inside, outside in ((e.args[0], *e.args[1:]), (negate(e.args[0]), *reversed(e.args[1:]))):
            if isinstance(outside, Const) and outside.value == 0:
                return condition, None if isinstance(inside, Const) and inside.value == 1 else inside
    return None


def _factors(e: Expr, masks: Mapping[str, Define]) -> Iterator[Expr]:
    """A factor, or those of the product with a mask that it reads."""
    source = masks.get(e.tensor) if isinstance(e, Access) else None
    if isinstance(e, Access) and source is not None and _mask(source.value, {}) is None:
        at = {a.index: i for a, i in zip(source.axes, e.indices, strict=True)}
        yield from (substitute(factor, at) for factor in factors_of(source.value))
    else:
        yield e


def _is_masked(d: Define, masks: Mapping[str, Define]) -> bool:
    """Whether a tensor is the product of what is read at its own indices with a mask over them."""
    factors = list(factors_of(d.value))
    if len(factors) < 2 or not all(map(is_plain, d.axes)) or any(isinstance(n, Reduce) for n in walk(d.value)):
        return False
    plain = all(isinstance(i, Index | Const) for n in walk(d.value) if isinstance(n, Access) for i in n.indices)
    return plain and any(_mask(factor, masks) is not None for factor in factors)


def _is_mask_of_points(d: Define) -> bool:
    """Whether a tensor is 0 or something else, by what is read at its own indices."""
    found = _mask(d.value, {})
    if found is None or not all(map(is_plain, d.axes)) or any(isinstance(n, Reduce) for n in walk(d.value)):
        return False
    reads = (n for part in found if part is not None for n in walk(part) if isinstance(n, Access))
    return all(isinstance(i, Index | Const) for n in reads for i in n.indices)


def _chosen(e: Reduce, around: tuple[Axis, ...], masks: Mapping[str, Define]) -> Chosen | None:
    """How a sum in a definition of these axes multiplies with a mask; None where it does not, or where that costs less."""
    if e.combiner.name != "sum" or not e.combiner.is_builtin or e.where is not None or e.dtype.bits < 32:
        return None
    if any(isinstance(n, Reduce) for n in walk(e.values[0])) or not all(map(is_plain, (*around, *e.axes))):
        return None
    factors = [factor for one in factors_of(e.values[0]) for factor in _factors(one, masks)]
    own, outer = {a.index for a in e.axes}, {a.index: a for a in around}
    for at, factor in enumerate(factors):
        others = [*factors[:at], *factors[at + 1 :]]
        mask = _mask(factor, masks) if others else None
        if mask is None:
            continue
        condition, scale = mask
        read = scale is not None and bool(tensors_read(scale))
        if scale is not None and not read and own.isdisjoint(free_names(scale)) and not _is_finite(scale, around):
            continue  # a sum over no points times what is infinite is NaN, one of products over no points is 0
        sides = [_sides(part, own) for part in conjuncts(condition)]
        conditions = tuple(side for side in sides if side is not None)
        if len(conditions) < len(sides):
            continue
        compared = {n for _, a, _ in conditions for n in free_names(a)}
        inside = set() if scale is None or read else {*free_names(scale)}
        used = {*free_names(_product(others)), *compared, *(inside if not own.isdisjoint(inside) else ())} - own
        results = {n for _, _, b in conditions for n in free_names(b)} - used
        if used | results <= outer.keys():
            if points([outer[n] for n in sorted(results)]) >= GAIN and (not read or _is_shorter(e, conditions, around)):
                return Chosen(((_product(others), tuple(a for a in around if a.index in used)),), scale, conditions)
            each = [{*free_names(other), *compared} - own for other in others]
            every = {n for n in free_names(e) if n in outer}
            if (scale is None or read) and all(points([outer[n] for n in sorted(every - names)]) >= GAIN for names in each):
                if _is_shorter(e, conditions, around):
                    axes = (tuple(a for a in around if a.index in names) for names in each)
                    return Chosen(tuple(zip(others, axes, strict=True)), scale, conditions)
    return None


def _is_shorter(e: Reduce, conditions: tuple[tuple[str, Expr, Expr], ...], around: tuple[Axis, ...]) -> bool:
    """Whether conditions leave ranges of a sum, of half of its points at most: what a product with a mask of its own gains, which nobody
    shares."""
    parts = tuple(apply(op, a, b) for op, a, b in conditions)
    if any(tensors_read(part) for part in parts) or part_of(parts, (*around, *e.axes)) > MOST:
        return False
    ranges = simplify_expr(replace(e, where=conjunction(parts)), around, narrow=True)
    return not any(isinstance(n, Reduce) and n.where is not None for n in walk(ranges))


def _is_finite(scale: Expr, around: tuple[Axis, ...]) -> bool:
    """Whether a number that is made of indices is finite at all of them, by interval arithmetic."""
    bounds = _bounds(scale, axis_ranges(around))
    return bounds is not None and max(map(abs, bounds)) < LARGEST


def _bounds(e: Expr, ranges: dict[str, Interval]) -> Interval | None:
    """The values of a number that is made of indices, up to rounding; None where these are not known, or a divisor may be next to 0."""
    if e.dtype.is_integer:
        low, high = interval(e, ranges)
        return max(low, -(2.0**64)), min(high, 2.0**64)
    if isinstance(e, Const):
        return (float(e.value),) * 2 if isfinite(e.value) else None
    if isinstance(e, Cast):
        return (0, 1) if e.arg.dtype.is_bool else _bounds(e.arg, ranges)
    if not isinstance(e, Apply) or e.op.name not in ("add", "sub", "mul", "div", "neg"):
        return None
    parts = [_bounds(arg, ranges) for arg in e.args]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    if e.op.name != "div":
        return interval_of_operation(e.op.name, known)
    (low, high), (least, greatest) = known
    if least <= SMALLEST and greatest >= -SMALLEST:
        return None
    ends = [x / y for x in (low, high) for y in (least, greatest)]
    return min(ends), max(ends)


def _sides(condition: Expr, own: set[str]) -> tuple[str, Expr, Expr] | None:
    """A comparison with what depends on the indices of a sum on its left, and what does not on its right."""
    if not isinstance(condition, Apply) or condition.op.name not in FLIPPED or condition.args[0].dtype is not int64:
        return None
    left, right = condition.args
    if own.isdisjoint(free_names(right)) and not own.isdisjoint(free_names(left)):
        return condition.op.name, left, right
    if own.isdisjoint(free_names(left)) and not own.isdisjoint(free_names(right)):
        return FLIPPED[condition.op.name], right, left
    return None


def _without(e: Reduce, chosen: Chosen, d: Define, taken: set[str]) -> tuple[list[Definition], Expr]:
    """What tells where a product with 0 is NaN, and the sum without its mask."""
    scale, value = chosen.scale, chosen.rest
    if scale is not None and (tensors_read(scale) or not {a.index for a in e.axes}.isdisjoint(free_names(scale))):
        value, scale = apply("mul", value, scale), None
    found: Expr = replace(e, values=(value,), where=conjunction([apply(op, a, b) for op, a, b in chosen.conditions]))
    first, made, are_finite, beyond = e.axes[0], list[Definition](), list[Expr](), list[Expr]()
    results = tuple(a for a in d.axes if a.index in free_names(found))
    summed = None
    if not e.dtype.is_integer and len(chosen.rests) == 1 and _are_all_chosen(chosen, (*chosen.rests[0][1], *e.axes), d.axes):
        if points(results) < points((*chosen.rests[0][1], *e.axes)):
            made.append(Define(fresh_name(f"{d.name}_chosen", taken), results, found))
            found = summed = Access(made[0].results[0][0], tuple(Index(a.index) for a in results), e.dtype)
    if scale is not None:
        found = apply("mul", found, scale)
    if e.dtype.is_integer:
        return [], found
    for rest, around in chosen.rests:
        largest, turns = fresh_name(f"{d.name}_largest", taken), fresh_name(f"{d.name}_turns", taken)
        looked_at = (rest, (*around, *e.axes)) if summed is None else (summed, results)
        size = Reduce(Combiner("max"), (apply("abs", looked_at[0]),), looked_at[1], None)
        is_finite = apply("isfinite", Access(largest, (), e.dtype))
        are_finite.append(is_finite)
        made += [Define(largest, (), size), Define(turns, (), apply("where", is_finite, const(0), first.stop))]
        axes = (replace(first, stop=apply("minimum", Access(turns, (), int64), first.stop)), *e.axes[1:])
        at = tuple(Index(a.index) for a in around)
        for op, a, b in chosen.conditions:
            for combiner, comparison in (("min", {"eq": "lt", "ge": "lt", "gt": "le"}), ("max", {"eq": "gt", "le": "gt", "lt": "ge"})):
                if op in comparison:
                    end = fresh_name(f"{d.name}_{combiner}", taken)
                    made.append(Define(end, around, Reduce(Combiner(combiner), (a,), axes, negate(apply("isfinite", rest)))))
                    beyond.append(apply(comparison[op], Access(end, at, int64), b))
    zero, unchosen = Const(0, e.dtype), reduce(partial(apply, "or"), beyond)
    found = apply("add", found, apply("where", conjunction(are_finite), zero, apply("where", unchosen, Const(nan, e.dtype), zero)))
    return made, found


def _are_all_chosen(chosen: Chosen, axes: Sequence[Axis], around: Sequence[Axis]) -> bool:
    """Whether each point of these axes is in the sum of some result: what it is compared with is an index of results, which takes that
    value."""
    if len(chosen.conditions) != 1:
        return False
    op, a, b = chosen.conditions[0]
    axis = next((axis for axis in around if b == Index(axis.index) and axis not in axes), None)
    if axis is None or tensors_read(a) or not isinstance(axis.stop, Const) or not all(isinstance(own.stop, Const) for own in axes):
        return False
    low, high = interval(a, axis_ranges(axes))
    last = int(axis.stop.value) - 1
    return {"eq": low >= 0 and high <= last, "le": high <= last, "lt": high < last, "ge": low >= 0, "gt": low > 0}[op]


def _product(factors: Sequence[Expr]) -> Expr:
    return reduce(partial(apply, "mul"), factors)
