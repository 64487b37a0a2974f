"""Tensors on the way lie as those around them do: the last axis is the one along which they are computed and read.

    e[j, i] = exp(x[i, j] - m[j]);   y[i, j] = e[j, i] / t[j]   -->   e[i, j] = exp(x[i, j] - m[j]);   y[i, j] = e[i, j] / t[j]

Who turns a tensor around, computes with it and turns the result back says nothing with the order of the axes in between. A tensor is
turned where all that its elements are computed from and all that reads it go along one other axis of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr.ir import Access, Define, Definition, Expr, Index, Program, Reduce, const
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, children, free_names, map_expressions, reads, walk

ROW = -1
"""A reduction along the rows of a tensor, which counts where its reader has no element of it along its own last axis."""


def with_axes_turned(program: Program) -> Program:
    """The program with intermediate tensors whose last axis is the one that what they read, and what reads them, go along.

    Requires: a simplified program. Ensures: every value is kept bit for bit.
    """
    fixed = {*program.outputs, *(name for d in program.definitions if not isinstance(d, Define) for name in reads(d))}
    defined = [d for d in program.definitions if isinstance(d, Define)]
    ways: dict[str, set[int | None]] = {d.name: set(_along_sources(d)) for d in defined if _can_turn(d) and d.name not in fixed}
    if not ways:
        return program
    along: set[str] = set()
    for d in defined:
        found = list(_along_readers(d.value, d.axes[-1].index if d.axes else "", frozenset()))
        named = {name for name, way in found if way is not None and way != ROW}
        for name, way in found:
            if name in ways and not (way == ROW and name in named):
                ways[name].add(None if way == ROW else way)
        along |= named
    turned: dict[str, int] = {}
    for d in defined:
        if d.name in along and len(ways.get(d.name, ())) == 1:
            (at,) = ways[d.name]
            if at is not None and at < len(d.axes) - 1:
                turned[d.name] = at
    if not turned:
        return program

    def moved(e: Expr) -> Expr:
        if isinstance(e, Access) and e.tensor in turned:
            at = turned[e.tensor]
            return replace(e, indices=(*e.indices[:at], *e.indices[at + 1 :], e.indices[at]))
        return e

    definitions: list[Definition] = []
    for definition in program.definitions:
        definition = map_expressions(definition, lambda e: bottom_up(e, moved))
        if isinstance(definition, Define) and definition.name in turned:
            at, axes = turned[definition.name], definition.axes
            definition = replace(definition, axes=(*axes[:at], *axes[at + 1 :], axes[at]))
        definitions.append(definition)
    return replace(program, definitions=tuple(definitions))


def _can_turn(d: Define) -> bool:
    """Whether a definition has several axes, each of an extent of its own."""
    return len(d.axes) > 1 and all(a.start == const(0) and not free_names(a.stop) for a in d.axes)


def _along_sources(d: Define) -> Iterator[int | None]:
    """The axes along which a definition reads rows of tensors."""
    places = {a.index: at for at, a in enumerate(d.axes)}
    for e in walk(d.value):
        if isinstance(e, Access) and len(e.indices) > 1 and isinstance(e.indices[-1], Index) and e.indices[-1].name in places:
            yield places[e.indices[-1].name]


def _along_readers(e: Expr, lanes: str, reduced: frozenset[str]) -> Iterator[tuple[str, int | None]]:
    """What is read, with the axis of it that goes along the last axis of its reader; `ROW` where a reduction goes along its rows,
    None where something else than an index does."""
    if isinstance(e, Access):
        at = next((at for at, index in enumerate(e.indices) if index == Index(lanes)), None)
        last = e.indices[-1] if e.indices else None
        if at is not None:
            yield e.tensor, at
        elif not isinstance(last, Index):
            yield e.tensor, None
        elif last.name in reduced:
            yield e.tensor, ROW
    reduced = reduced | {a.index for a in e.axes} if isinstance(e, Reduce) else reduced
    for child in children(e):
        yield from _along_readers(child, lanes, reduced)
