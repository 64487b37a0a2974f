"""Components that a formula tells apart by cases are tensors and terms of their own.

    t[i, c] = where(c == 1, a[i], 0.0);  y[i] = sum(where(c == 1, t[i, 1] * x[i], b[i, c]) for c in range(2))
    -->  t[i] = a[i];  y[i] = 0.0 + b[i, 0] + t[i] * x[i]

A stack of components is written with a case for each place of a short axis, and its gradient sums over the cases. Written out, each term
is one formula without tests, and what was stored for all places is stored for those that somebody reads, one behind the other. A result
that is a sum of such cases is one formula for each place, `where(c == 0, x, where(c == 1, y, z))`, so that its loops have no tests. Where
these are one formula but for the place that they read, it is written once: `where(c == 0, a[i, 0], a[i, 1])` is `a[i, c]`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr.ir import Access, Apply, Axis, Const, Define, Definition, Expr, Index, Program, Reduce, Scatter, apply
from tensorexpr.records import replace
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.simplify.pieces import one_formula
from tensorexpr.traversal import (
    bottom_up,
    bound_names,
    expressions,
    free_names,
    fresh_name,
    map_expressions,
    reads,
    substitute,
    tensors_read,
    walk,
)

MOST_CASES = 4
"""Terms that a sum is written out as: components of a vector in space, or of a pixel."""
MOST_NODES = 4000
"""Nodes of the formulas of a result for all places: some milliseconds in each round of the simplifier."""


def write_out_cases(program: Program) -> Program:
    """Writes out sums over the few places of an axis that their terms tell apart, and results whose terms do.

    Requires: nothing. Ensures: every value is kept bit for bit.
    """
    written = (map_expressions(d, _all_written_out) for d in program.definitions)
    return with_definitions(program, (_by_place(d) if isinstance(d, Define) else d for d in written))


def _by_place(definition: Define) -> Define:
    """A result as one formula for each place of a short axis that several of its terms tell apart."""
    for axis in definition.axes:
        if not isinstance(axis.start, Const) or axis.start.value != 0 or not _is_short(axis):
            continue
        if len(_terms(definition.value, axis.index)) > 1 and _stop(axis) * sum(1 for _ in walk(definition.value)) <= MOST_NODES:
            index = Index(axis.index)
            places = [Const(place, index.dtype) for place in range(_stop(axis))]
            formulas = [substitute(definition.value, {axis.index: place}) for place in places]
            value = formulas[-1]
            for place, formula in zip(places[-2::-1], formulas[-2::-1], strict=True):
                value = apply("where", apply("eq", index, place), formula, value)
            return replace(definition, value=value)
        found = _rolled(definition.value, axis)
        if found is not None:
            return replace(definition, value=found)
    return definition


def _rolled(value: Expr, axis: Axis) -> Expr | None:
    """What stands for formulas of all places of an axis, of which each is another one only by the place that it reads at."""
    formulas: list[Expr] = []
    places = [Const(place, Index(axis.index).dtype) for place in range(_stop(axis))]
    for place in places[:-1]:
        if not isinstance(value, Apply) or value.op.name != "where" or value.args[0] != apply("eq", Index(axis.index), place):
            return None
        formulas.append(value.args[1])
        value = value.args[2]
    rolled: Expr | None = formulas[0]
    for at, formula in enumerate([*formulas[1:], value], 1):
        rolled = None if rolled is None else one_formula(rolled, formula, axis.index, list(range(at)), [at])
    return None if rolled is None or axis.index in bound_names(rolled) else rolled


def _terms(value: Expr, index: str) -> list[Expr]:
    """The conditions of the terms of a sum that are there at some places of an index alone."""
    if isinstance(value, Apply) and value.op.name in ("add", "sub", "neg"):
        return [condition for part in value.args for condition in _terms(part, index)]
    if isinstance(value, Apply) and value.op.name == "where" and index in free_names(value.args[0]):
        if any(isinstance(n, Access) for n in walk(value.args[0])):
            return []  # data tells them apart
        return [value.args[0]] if any(isinstance(end, Const) for end in value.args[1:]) else []
    return []


def _all_written_out(expr: Expr) -> Expr:
    nodes = [n for n in walk(expr) if type(n) is Reduce or (type(n) is Apply and n.op.name == "where")]
    both = any(map(_has_few_places, nodes)) and any(type(n) is Apply for n in nodes)
    return bottom_up(expr, _written_out) if both else expr


def _has_few_places(node: Expr) -> bool:
    """Whether a node is a reduction over an axis of a few places."""
    return isinstance(node, Reduce) and len(node.axes) == 1 and 1 < len(_range(node.axes[0])) <= MOST_CASES


def _range(axis: Axis) -> range:
    """The places that an axis has at most, where its ends are literals, or the nearer one of a literal and another, as at borders."""
    ends = []
    for bound, nearer in ((axis.start, "maximum"), (axis.stop, "minimum")):
        limits = bound.args if isinstance(bound, Apply) and bound.op.name == nearer else (bound,)
        ends.append(next((int(limit.value) for limit in limits if isinstance(limit, Const)), None))
    start, stop = ends
    return range(0) if start is None or stop is None else range(start, stop)


def _written_out(node: Expr) -> Expr:
    if not isinstance(node, Reduce) or node.combiner.name != "sum" or not node.combiner.is_builtin or node.where is not None:
        return node
    if not _has_few_places(node) or node.dtype.bits < 32 or not node.dtype.is_float:
        return node
    (axis,), (value,) = node.axes, node.values
    if not tells_apart(value, axis.index) or tensors_read(axis.start) or tensors_read(axis.stop):
        return node
    total: Expr = Const(0, node.dtype)
    for place in _range(axis):
        at = Const(place, Index(axis.index).dtype)
        term = substitute(value, {axis.index: at})
        for bound, inside in ((axis.start, "le"), (axis.stop, "gt")):
            if not isinstance(bound, Const):
                term = apply("where", apply(inside, bound, at), term, Const(0, node.dtype))
        total = apply("add", total, term)
    return total


def tells_apart(value: Expr, index: str) -> bool:
    """Whether a value has other formulas for places of an index, told apart by where it is alone."""
    choices = [n for n in walk(value) if isinstance(n, Apply) and n.op.name == "where"]
    return any(set(free_names(n.args[0])) == {index} and not tensors_read(n.args[0]) for n in choices)


def slice_definitions(program: Program) -> Program:
    """Makes tensors of their own of the places of an axis, where it is read at literal places alone, and has cases for them.

    Requires: nothing. Ensures: every value is kept bit for bit, and every check of an index that can fail.
    """
    types = program.types
    taken = {*types, *program.sizes, *(n for d in program.definitions for n, _ in d.results)}
    places = _places(program)
    made: dict[tuple[str, int], str] = {}
    definitions: list[Definition] = []
    for definition in program.definitions:
        if not isinstance(definition, Define) or definition.name not in places:
            definitions.append(definition)
            continue
        at, values = places[definition.name]
        axis = definition.axes[at]
        for value in sorted(values):
            name = fresh_name(definition.name, taken - {definition.name} if len(values) == 1 else taken)
            made[definition.name, value] = name
            rest = (*definition.axes[:at], *definition.axes[at + 1 :])
            formula = substitute(definition.value, {axis.index: Const(value, Index(axis.index).dtype)})
            definitions.append(replace(definition, name=name, axes=rest, value=formula))
    if not made:
        return program

    def sliced(node: Expr) -> Expr:
        if isinstance(node, Access) and node.tensor in places:
            at = places[node.tensor][0]
            place = node.indices[at]
            assert isinstance(place, Const), "it is read at literal places alone"
            name = made[node.tensor, int(place.value)]
            return replace(node, tensor=name, indices=(*node.indices[:at], *node.indices[at + 1 :]))
        return node

    return with_definitions(program, (map_expressions(d, lambda e: bottom_up(e, sliced)) for d in definitions))


def _places(program: Program) -> dict[str, tuple[int, frozenset[int]]]:
    """The definitions that are read at literal places of an axis alone: which axis, and at which places."""
    readers: dict[str, list[Access]] = {}
    fixed = {*program.outputs}
    for definition in program.definitions:
        if isinstance(definition, Define | Scatter):
            for access in _accesses(definition):
                readers.setdefault(access.tensor, []).append(access)
        else:
            fixed.update(reads(definition))
    found: dict[str, tuple[int, frozenset[int]]] = {}
    for definition in program.definitions:
        if not isinstance(definition, Define) or definition.name in fixed or definition.name not in readers:
            continue
        for at, axis in enumerate(definition.axes if len(definition.axes) > 1 else ()):
            values = _literals(readers[definition.name], at) if _is_short(axis) else ()
            if values and tells_apart(definition.value, axis.index) and not _leads_data(definition):
                found[definition.name] = at, frozenset(values)
                break
    return found


def _leads_data(definition: Define) -> bool:
    """Whether data says where it reads: a check at a place that nobody reads would be lost."""
    return any(isinstance(x, Access) for n in _accesses(definition) for e in n.indices for x in walk(e))


def _accesses(definition: Define | Scatter) -> Iterator[Access]:
    for e in expressions(definition):
        yield from (n for n in walk(e) if isinstance(n, Access))


def _literals(accesses: list[Access], at: int) -> frozenset[int]:
    """The places at which an axis is read; none where one of them is no literal."""
    found = [n.indices[at] for n in accesses]
    return frozenset(int(e.value) for e in found if isinstance(e, Const)) if all(isinstance(e, Const) for e in found) else frozenset()


def _is_short(axis: Axis) -> bool:
    return 1 < _stop(axis) <= MOST_CASES


def _stop(axis: Axis) -> int:
    """How many places an axis has; none where that is not known."""
    return int(axis.stop.value) if isinstance(axis.stop, Const) else 0
