"""A reduction that is a definition of its own, or times a number, is read where another definition computes it again.

Derivatives need values from inside the forward pass, such as the sum under a quotient, and save them as definitions; the
definition that they were taken from then reads the saved value as well. Two reductions are the same where they differ in the names
of indices and in the order of factors only; the free ones (in the order in which they occur) are the axes of the definition on one
side and indices over the same ranges on the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import count

from tensorexpr.ir import Access, Apply, Axis, Const, Define, Definition, Expr, Index, Program, Reduce
from tensorexpr.records import replace
from tensorexpr.rewrite import head_of
from tensorexpr.simplify.passes.definitions import in_order
from tensorexpr.traversal import children, map_children, reads, walk

Made = dict[Expr, tuple[Define, tuple[str, ...]]]
"""Definitions by the form of their values, each with the free indices of its value in the order of the form."""


def share_reductions(program: Program) -> Program:
    """Reads a reduction that is the whole value of one definition where another one computes it again.

    Requires: nothing. Ensures: no definition contains a reduction that is another definition, unless that one depends on it;
    every definition still comes after those it reads; every value is kept.
    """
    known: Made = {}
    for definition in program.definitions:
        if isinstance(definition, Define) and _is_reduction(definition.value):
            form, free = form_of_expression(definition.value)
            if set(free) == {axis.index for axis in definition.axes}:
                known.setdefault(form, (definition, free))
    if not known:
        return program
    table = {name: d for d in program.definitions for name, _ in d.results}
    changed: dict[str, Define] = {}

    for definition in program.definitions:
        if not isinstance(definition, Define) or not any(isinstance(n, Reduce) for n in walk(definition.value)):
            continue
        ranges = {axis.index: axis for axis in definition.axes}
        value = _with_reads(definition, definition.value, ranges, known, table, changed)
        if value is not definition.value:
            changed[definition.name] = replace(definition, value=value)
            table[definition.name] = changed[definition.name]
    if not changed:
        return program
    definitions = [changed.get(d.name, d) if isinstance(d, Define) else d for d in program.definitions]
    return replace(program, definitions=tuple(_ordered(definitions)))


def _with_reads(
    owner: Define,
    expr: Expr,
    ranges: Mapping[str, Axis],
    known: Mapping[Expr, tuple[Define, tuple[str, ...]]],
    table: Mapping[str, Definition],
    changed: Mapping[str, Define],
) -> Expr:
    if _is_reduction(expr):
        form, free = form_of_expression(expr)
        source, names = known.get(form, (None, ()))
        if source is not None and source.name != owner.name and source.name not in changed:
            by_axis = dict(zip(names, free, strict=True))
            if all(_same_range(ranges.get(by_axis[a.index]), a) for a in source.axes) and not _depends(source, owner.name, table):
                return Access(source.name, tuple(Index(by_axis[a.index]) for a in source.axes), expr.dtype, owner.location)
        ranges = {**ranges, **{axis.index: axis for axis in expr.axes}} if isinstance(expr, Reduce) else ranges
    elif not any(isinstance(child, Reduce) for child in walk(expr)):
        return expr
    return map_children(expr, lambda child: _with_reads(owner, child, ranges, known, table, changed))


def _is_reduction(e: Expr) -> bool:
    """Whether a value is a reduction, perhaps times a number."""
    if isinstance(e, Apply) and e.op.name in ("mul", "div") and isinstance(e.args[1], Const):
        e = e.args[0]
    return isinstance(e, Reduce)


def with_reads_of(expr: Expr, ranges: Mapping[str, Axis], made: Made) -> Expr:
    """An expression, inside axes of these ranges, that reads the definitions wherever it computes one of them."""
    if isinstance(expr, Access) or not children(expr):
        return expr
    if any(head_of(expr) == head_of(one.value) for one, _ in made.values()):
        form, free = form_of_expression(expr)
        source, names = made.get(form, (None, ()))
        if source is not None:
            by_axis = dict(zip(names, free, strict=True))
            if all(_same_range(ranges.get(by_axis[a.index]), a) for a in source.axes):
                return Access(source.name, tuple(Index(by_axis[a.index]) for a in source.axes), expr.dtype)
    ranges = {**ranges, **{axis.index: axis for axis in expr.axes}} if isinstance(expr, Reduce) else ranges
    return map_children(expr, lambda child: with_reads_of(child, ranges, made))


def _same_range(mine: Axis | None, axis: Axis) -> bool:
    return mine is not None and isinstance(mine.start, Const) and mine.start.value == 0 and mine.stop == axis.stop


def _depends(source: Define, name: str, table: Mapping[str, Definition]) -> bool:
    """Whether a definition reads `name`, itself or through others."""
    todo, seen = [source.name], set()
    while todo:
        current = todo.pop()
        if current == name:
            return True
        if current not in seen and current in table:
            seen.add(current)
            todo.extend(reads(table[current]))
    return False


def _ordered(definitions: list[Definition]) -> Iterator[Definition]:
    """The definitions in their order, each preceded by those that it reads."""
    owners = {name: d for d in definitions for name, _ in d.results}
    done: set[int] = set()
    for definition in definitions:
        stack = [(definition, iter(reads(definition)))]
        while stack:
            current, needed = stack[-1]
            if id(current) in done:
                stack.pop()
                continue
            below = next((owners[n] for n in needed if n in owners and id(owners[n]) not in done and owners[n] is not current), None)
            if below is not None:
                stack.append((below, iter(reads(below))))
                continue
            done.add(id(current))
            stack.pop()
            yield current


@lru_cache(maxsize=4096)
def form_of_expression(node: Expr) -> tuple[Expr, tuple[str, ...]]:
    """An expression with every index under a number, and its free indices in the order in which they occur."""
    free: dict[str, str] = {}
    return _numbered(node, {}, free, count()), tuple(free)


def _numbered(expr: Expr, bound: Mapping[str, str], free: dict[str, str], numbers: Iterator[int]) -> Expr:
    if isinstance(expr, Index):
        return Index(bound[expr.name] if expr.name in bound else free.setdefault(expr.name, f"%{len(free)}"))
    if isinstance(expr, Reduce):
        inner, axes = dict(bound), []
        for axis in expr.axes:
            start, stop = _numbered(axis.start, inner, free, numbers), _numbered(axis.stop, inner, free, numbers)
            inner[axis.index] = f"#{next(numbers)}"
            axes.append(Axis(inner[axis.index], start, stop))
        where = None if expr.where is None else _numbered(expr.where, inner, free, numbers)
        return replace(expr, axes=tuple(axes), where=where, values=tuple(_numbered(v, inner, free, numbers) for v in expr.values))
    return map_children(in_order(expr), lambda child: _numbered(child, bound, free, numbers)) if children(expr) else expr
