"""Reductions over boxes of neighbours go an axis at a time: what a row of the box gives is shared by all boxes that it is in.

    y[i, j] = sum(x[i + p, j + q] for p in range(7) for q in range(7))
    -->   r[i, v] = sum(x[i + p, v] for p in range(7));   y[i, j] = sum(r[i, j + q] for q in range(7))

Seven terms and seven, for forty-nine. One axis stays where terms read it at one place of a tensor, `j + q` here, and say nothing else of
its index or of those that it is added to. The order of sums changes, as it does in any schedule; extremes are kept bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

from tensorexpr.algebra.keyed.keys import sums_evaluated
from tensorexpr.bounds import PROVED, check_access
from tensorexpr.ir import Access, Axis, Define, Definition, Expr, Index, Program, Reduce, apply, const
from tensorexpr.records import record, replace
from tensorexpr.simplify.facts.indices import factors_of
from tensorexpr.simplify.passes.amounts import cost, points
from tensorexpr.traversal import bottom_up, free_names, fresh_name, has_points, read_occurrences, replaced, signed_terms, tensors_read, walk

GAIN = 2.0
"""How many times fewer operations it has to take: what rows give is stored and loaded, and a kernel of its own."""
STORED = 2.0
"""What an element costs that is stored and loaded, in operations."""
COMBINERS = ("sum", "prod", "max", "min", "all", "any")
Term = tuple[int, list[Expr], Reduce]
"""Whether a sum is added to those before it, 1, or subtracted, -1, what is a factor of it as a whole, and the sum."""
Shapes = Mapping[str, tuple[Expr, ...]]


def with_boxes_apart(program: Program) -> Program:
    """The program with reductions over boxes of neighbours as reductions along one axis after the other.

    Requires: a simplified program. Ensures: what is read is in bounds, provably; every value is kept up to the order of sums and products
    of floats, and for the place where a factor that all terms share is multiplied in.
    """
    shapes = {name: type_.shape for name, type_ in program.types.items()}
    taken = {*program.types, *program.sizes, *(n for d in program.definitions for n, _ in d.results)}
    definitions: list[Definition] = []
    for d in program.definitions:
        left: list[Definition] = [d]
        while left:
            first = left.pop()
            apart = _apart(first, shapes, taken) if isinstance(first, Define) else None
            if apart is None:
                definitions.append(first)
                continue
            left += apart[::-1]
            shapes[apart[0].name] = apart[0].results[0][1].shape
    return program if len(definitions) == len(program.definitions) else replace(program, definitions=tuple(definitions))


@record
class _Way:
    """An axis that stays, the place where terms read it, the extent there, and the indices that it is added to."""

    axis: Axis
    place: Expr
    extent: Expr
    moving: frozenset[str]


def _apart(d: Define, shapes: Shapes, taken: set[str]) -> tuple[Define, Define] | None:
    """What rows of boxes give, and the definition that reads it; None where it has no boxes, or none pays."""
    for e in sums_evaluated(d.value):
        if len(e.axes) > 1 and e.combiner.name in COMBINERS and e.combiner.is_builtin and e.where is None:
            terms = _in_terms(d, e)
            for at, (sign, common, one) in enumerate(terms):
                made = next((m for way in _ways(d, one, shapes) if (m := _made(d, one, way, shapes, taken)) is not None), None)
                if made is not None:
                    terms[at] = (sign, common, made[1])
                    value = reduce(_added, terms[1:], _times(terms[0]))
                    return made[0], replace(d, value=replaced(d.value, {e: value}))
    return None


def _in_terms(d: Define, e: Reduce) -> list[Term]:
    """The way to write a reduction as sums of reductions: itself, without a factor that all terms share, or an addend at a time, which
    are all products but for one: a difference of two that are not rounded may be far smaller than these, and exact. Where there may be no
    terms a factor stays with them, as it may be infinite."""
    if e.combiner.name != "sum" or not e.dtype.is_float or not all(_has_points(a, (*d.axes, *e.axes[:n])) for n, a in enumerate(e.axes)):
        return [(1, [], e)]
    addends = list(signed_terms(e.values[0]))
    if len(addends) > 1 and sum(len(list(factors_of(one))) < 2 for _, one in addends) < 2 and addends[0][0] > 0:
        return [(sign, *_without_common(replace(e, values=(one,)))) for sign, one in addends]
    return [(1, *_without_common(e))]


def _has_points(axis: Axis, around: tuple[Axis, ...]) -> bool:
    """Whether an axis from 0 on is never empty: its start is an index below its end."""
    return has_points(axis) or all(verdict is PROVED for verdict in check_access((axis.start,), (axis.stop,), around, ()))


def _times(term: Term) -> Expr:
    found: Expr = term[2]
    for factor in term[1]:
        found = apply("mul", found, factor)
    return found


def _added(before: Expr, term: Term) -> Expr:
    return apply("add" if term[0] > 0 else "sub", before, _times(term))


def _without_common(e: Reduce) -> tuple[list[Expr], Reduce]:
    """The factors that all terms of a sum share, and the sum without them."""
    bound, factors = {a.index for a in e.axes}, list(factors_of(e.values[0]))
    common = [factor for factor in factors if bound.isdisjoint(free_names(factor))]
    own = [factor for factor in factors if factor not in common]
    return (common, replace(e, values=(reduce(lambda a, b: apply("mul", a, b), own),))) if common and own else ([], e)


def _ways(d: Define, e: Reduce, shapes: Shapes) -> Iterator[_Way]:
    data, value = {a.index for a in d.axes}, e.values[0]
    for axis in reversed(e.axes):
        others = [a for a in e.axes if a is not axis]
        places = {(i, shapes[x.tensor][at]) for x in _reads(value) for at, i in enumerate(x.indices) if axis.index in free_names(i)}
        if len(places) != 1:
            continue
        ((place, extent),) = places
        moving = frozenset(free_names(place)) & data
        bounds = {n for a in others for end in (a.start, a.stop) for n in free_names(end)}
        inside = {a.index for a in others}
        if not moving or tensors_read(place) or not (bounds.isdisjoint({*moving, axis.index}) and inside.isdisjoint(free_names(place))):
            continue
        if inside.isdisjoint({*free_names(axis.start), *free_names(axis.stop)}):
            left = free_names(_with(value, place, const(0)))
            if axis.index not in left and moving.isdisjoint(left):
                yield _Way(axis, place, extent, moving)


def _reads(e: Expr) -> list[Access]:
    return [x for x in walk(e) if isinstance(x, Access)]


def _with(e: Expr, place: Expr, index: Expr) -> Expr:
    """An expression whose elements at a place are those at an index."""

    def put(x: Expr) -> Expr:
        if isinstance(x, Access) and place in x.indices:
            return replace(x, indices=tuple(index if i == place else i for i in x.indices))
        return x

    return bottom_up(e, put)


def _made(d: Define, e: Reduce, way: _Way, shapes: Shapes, taken: set[str]) -> tuple[Define, Reduce] | None:
    others, value = tuple(a for a in e.axes if a is not way.axis), e.values[0]
    names = {*free_names(value), *(n for a in others for end in (a.start, a.stop) for n in free_names(end))}
    own = tuple(a for a in d.axes if a.index in names and a.index not in way.moving)
    if any(free_names(a.stop) or a.start != const(0) for a in d.axes):
        return None
    known = set(taken)
    name = fresh_name(f"{d.name}_rows", known)
    along = Axis(fresh_name(f"{name}_at", known), const(0), way.extent)
    last = d.axes[-1].index in way.moving
    axes = (*own, along) if last else (*(a for a in own[:-1]), along, *own[-1:])
    term = _with(value, way.place, Index(along.index))
    rows = Define(name, axes, replace(e, axes=others, values=(term,)), d.location)
    one = cost(value) + len(_reads(value)) + 1
    before = points((*d.axes, *e.axes)) * one
    after = points((*axes, *others)) * one + points(axes) * STORED + points((*d.axes, way.axis)) * STORED
    if after * GAIN > before or not _is_within(rows, (*axes, *others), shapes):
        return None
    taken |= known
    read = Access(name, tuple(way.place if a is along else Index(a.index) for a in axes), e.dtype)
    return rows, replace(e, axes=(way.axis,), values=(read,))


def _is_within(d: Define, axes: tuple[Axis, ...], shapes: Shapes) -> bool:
    """Whether all that a definition reads is in bounds, whatever the sizes are."""
    assert isinstance(d.value, Reduce)
    return all(
        verdict is PROVED
        for access, around, guards in read_occurrences(d.value.values[0], axes)
        for verdict in check_access(access.indices, shapes[access.tensor], around, guards)
    )
