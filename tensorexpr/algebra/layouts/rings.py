"""Sums that go around a ring read it laid out in a row.

    y[n, i] = sum(a[n, k] * b[n, (i - k) % 101] for k in range(101))
    -->   b_row[n, p] = b[n, (p - 100) % 101]   for p in range(201)
          y[n, i] = sum(a[n, k] * b_row[n, i - k + 100] for k in range(101))

A remainder at each point keeps lanes from lying side by side, and where a sum goes around much of the ring, hardly a part of its loops can
be cut off in which there is none. A window at a border is no such sum: schedules cut its few points off.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr.algebra.layouts.slices import beyond, interval_of, range_of
from tensorexpr.ir import Access, Apply, Axis, Const, Define, Definition, Expr, Index, Program, Reduce, apply, const
from tensorexpr.records import record, replace
from tensorexpr.simplify.passes.amounts import elements, points
from tensorexpr.traversal import children, free_names, fresh_name, replaced

REUSED = 8
"""How often each element of the row is read at least: a remainder, and elements one by one, against storing one and loading it again."""
AROUND = 4
"""A sum goes around a ring where it moves by one part in so many of it at least."""
MOST_ROUNDS = 3
"""Rings that one read may go around: those of pictures and volumes."""


@record
class Ring:
    """A read around a ring: the axis of its tensor, its place before the remainder is taken, the length of the ring, and the least and the
    greatest place."""

    axis: int
    place: Expr
    length: int
    low: int
    high: int


def with_rows(program: Program) -> Program:
    """The program with the rings that sums go around as rows.

    Requires: a simplified program. Ensures: every value is kept bit for bit.
    """
    for _ in range(MOST_ROUNDS):
        found = _with_rows(program)
        if found is program:
            break
        program = found
    return program


def _with_rows(program: Program) -> Program:
    taken = {*program.types, *program.sizes}
    rows: dict[tuple[str, int, int, int, int], Define] = {}
    definitions: list[Definition] = []
    for d in program.definitions:
        rings = dict(_rings(program, d.value, d.axes, frozenset())) if isinstance(d, Define) else {}
        if isinstance(d, Define) and rings:
            moved: dict[Expr, Expr] = {}
            for access, ring in rings.items():
                key = access.tensor, ring.axis, ring.length, ring.low, ring.high
                if key not in rows:
                    rows[key] = _row(program, access, ring, fresh_name(f"{access.tensor}_row", taken))
                    definitions.append(rows[key])
                indices = list(access.indices)
                indices[ring.axis] = beyond(ring.place, -ring.low)
                moved[access] = Access(rows[key].name, tuple(indices), access.dtype, access.location)
            d = replace(d, value=replaced(d.value, moved))
        definitions.append(d)
    return replace(program, definitions=tuple(definitions)) if rows else program


def _rings(program: Program, e: Expr, axes: tuple[Axis, ...], summed: frozenset[str]) -> Iterator[tuple[Access, Ring]]:
    """The reads around rings in sums that go around them, inside of some axes of which some are `summed`."""
    if isinstance(e, Access):
        ring = next((ring for at in range(len(e.indices)) if (ring := _ring(program, e, at, axes, summed)) is not None), None)
        if ring is not None:
            yield e, ring
    if isinstance(e, Reduce):
        axes, summed = (*axes, *e.axes), summed | {axis.index for axis in e.axes}
    for child in children(e):
        yield from _rings(program, child, axes, summed)


def _ring(program: Program, e: Access, at: int, axes: tuple[Axis, ...], summed: frozenset[str]) -> Ring | None:
    """The ring that a read goes around along an axis of its tensor; None where that is none, or hardly gone around."""
    match e.indices[at]:
        case Apply(op=op, args=(place, Const(value=length))) if op.name == "mod" and e.tensor in program.types:
            ranges = {a.index: range_of(a) for a in axes}
            box, shape = interval_of(place, ranges), program.types[e.tensor].shape
            own, extent = set(free_names(place)), shape[at]
            spans = [ends[1] - ends[0] + 1 for name in own & summed if (ends := ranges.get(name)) is not None]
            if box is None or own <= summed or AROUND * max(spans, default=0) < length or not all(isinstance(n, Const) for n in shape):
                return None
            if not isinstance(extent, Const) or not 0 < int(length) <= extent.value:
                return None
            row = elements(shape) / float(extent.value) * (box[1] - box[0] + 1)
            return Ring(at, place, int(length), *box) if points(axes) >= REUSED * row else None
    return None


def _row(program: Program, access: Access, ring: Ring, name: str) -> Define:
    """The tensor of a read with a ring as a row from its least place to its greatest."""
    extents = list(program.types[access.tensor].shape)
    extents[ring.axis] = const(ring.high - ring.low + 1)
    axes = tuple(Axis(f"{name}_{at}", const(0), extent) for at, extent in enumerate(extents))
    indices: list[Expr] = [Index(axis.index) for axis in axes]
    indices[ring.axis] = apply("mod", beyond(indices[ring.axis], ring.low % ring.length), const(ring.length))
    return Define(name, axes, Access(access.tensor, tuple(indices), access.dtype))
