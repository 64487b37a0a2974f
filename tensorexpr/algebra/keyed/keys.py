"""Reductions over the points that have a key, for each key, send each point to its key.

    t[s, d] = sum(x[i, d] * y[s] for i in range(n) if key[i] == s)   -->   t = scatter({(key[i], d): x[i, d] * y[key[i]]}) for keys in range

A reduction goes over all points for every key, and finds each of them once: there the key is a point's own. Points come in the same order
for each key, so sums add up in the same order. It pays where there are more keys than a machine has lanes: points are sent one by one, or
by rows where another index stands behind the key, and compared many at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tensorexpr.dtypes import int64
from tensorexpr.ir import (
    Access,
    Apply,
    Axis,
    Cast,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Program,
    Reduce,
    Scatter,
    TensorType,
    apply,
    conjunction,
    conjuncts,
    const,
)
from tensorexpr.records import record, replace
from tensorexpr.simplify import simplify_indices
from tensorexpr.simplify.passes.terms.found import all_exist
from tensorexpr.simplify.rules.reduce import identity_value
from tensorexpr.traversal import bottom_up, children, free_names, fresh_name, signed_terms, substitute, tensors_read, walk

KEYS = 64
"""Keys from which it pays to send each point: four vectors of float32 in the time of a load, an addition and a store that wait for each
other."""
KEYS_OF_ROWS = 8
"""Keys from which it pays to send rows, whose elements are many at a time in both forms."""


@record
class Keyed:
    """A reduction over the points that have a key, as a scatter: its axes, shape, indices, value and condition, and how it is read."""

    axes: tuple[Axis, ...]
    shape: tuple[Expr, ...]
    indices: tuple[Expr, ...]
    value: Expr
    where: Expr
    read: tuple[Expr, ...]


def with_sums_by_key(program: Program) -> Program:
    """The program with scatters for reductions that look for the points of each key.

    Requires: a simplified program. Ensures: every value is kept; what is read is read at the same points.
    """
    taken = {*program.types, *program.sizes, *(n for d in program.definitions for n, _ in d.results)}
    definitions: list[Definition] = []
    for d in program.definitions:
        definitions += _parts(d, program.types, taken) if isinstance(d, Define) else (d,)
    same = all(a is b for a, b in zip(definitions, program.definitions, strict=False)) and len(definitions) == len(program.definitions)
    return program if same else simplify_indices(replace(program, definitions=tuple(definitions)))


def _parts(d: Define, types: Mapping[str, TensorType], taken: set[str]) -> Iterator[Definition]:
    """A definition after the scatters that it reads; the scatter that it is. A scatter has no choices around it, and what they leave out
    may read beyond a border (fuzz seed 3100000036)."""
    found: dict[Expr, Expr] = {}
    everywhere = set(sums_evaluated(d.value))
    for e in sums_outside(d.value):
        keyed = _keyed(e, d.axes) if e not in found else None
        if keyed is None or not (e in everywhere or all_exist(e, d.axes, types)):
            continue
        whole = e is d.value and keyed.read == tuple(Index(a.index) for a in d.axes)
        name = d.name if whole else fresh_name(f"{d.name}_keys", taken)
        type_ = TensorType(keyed.shape, e.dtype)
        sent = Scatter(name, type_, keyed.axes, keyed.indices, keyed.value, keyed.where, e.combiner.name, location=d.location)
        yield sent
        if whole:
            return
        found[e] = Access(name, keyed.read, e.dtype)
    yield replace(d, value=bottom_up(d.value, lambda e: found.get(e, e))) if found else d


def sums_outside(value: Expr) -> Iterator[Reduce]:
    """The reductions of a value that stand in no other one, each object once."""
    return _sums_reached(value, lambda e: () if isinstance(e, Reduce | Access) else children(e))


def sums_evaluated(value: Expr) -> Iterator[Reduce]:
    """The reductions that are evaluated at every point of a definition, each object once."""
    return _sums_reached(value, _always)


def _always(e: Expr) -> tuple[Expr, ...]:
    """The parts that are evaluated whenever a node is."""
    if isinstance(e, Apply):
        return e.args[:1] if e.op.name == "where" else e.args
    return (e.arg,) if isinstance(e, Cast) else ()


def _sums_reached(value: Expr, parts: Callable[[Expr], tuple[Expr, ...]]) -> Iterator[Reduce]:
    """The reductions that are reached through some parts of nodes, in the order of the text. No generator inside of another: each would
    hand on all that is below it, in a time that grows with the depth of a term."""
    if not any(isinstance(e, Reduce) for e in walk(value)):
        return
    met: set[int] = set()
    pending = [value]
    while pending:
        e = pending.pop()
        if id(e) not in met:
            met.add(id(e))
            if isinstance(e, Reduce):
                yield e
            pending.extend(reversed(parts(e)))


def _keyed(e: Reduce, around: tuple[Axis, ...]) -> Keyed | None:
    """How a reduction in a definition of these axes looks for the points of a key; None where it does not, or where that costs less."""
    if e.where is None or not e.combiner.is_builtin or e.combiner.name not in ("sum", "prod", "max", "min") or e.dtype.bits < 32:
        return None
    if any(isinstance(n, Reduce) for v in (*e.values, e.where) for n in walk(v)) or not all(map(is_plain, (*around, *e.axes))):
        return None
    own = {axis.index for axis in e.axes}
    conditions = list(conjuncts(e.where))
    for at, condition in enumerate(conditions):
        for axis, key in _equal(condition):
            place = next((k for k, a in enumerate(around) if a.index == axis), None)
            if place is None or not tensors_read(key) or own.isdisjoint(free_names(key)) or axis in free_names(key):
                continue
            before, after = conditions[:at], conditions[at + 1 :]
            moved = any(axis in free_names(part) for part in (*before, *after, *e.values))
            rest = [substitute(part, {axis: key}) for part in (*before, *after)]
            value = substitute(e.values[0], {axis: key})
            used = {n for part in (key, *rest, value) for n in free_names(part)}
            outer, behind = ([a for a in axes if a.index in used] for axes in (around[:place], around[place + 1 :]))
            if not _pays(around[place], behind) or not used <= {a.index for a in (*outer, *e.axes, *behind)}:
                continue
            inside = [apply("ge", key, const(0)), apply("lt", key, around[place].stop)]
            if moved and rest:  # what is read at the key is read only where there is one
                value = apply("where", conjunction(rest), value, identity_value(e.combiner.name, e.dtype))
                where = conjunction(inside)
            else:
                where = conjunction([*before, *inside, *after])
            own_axes = (*outer, around[place], *behind)
            read = tuple(Index(a.index) for a in own_axes)
            indices = tuple(key if a.index == axis else Index(a.index) for a in own_axes)
            return Keyed((*outer, *e.axes, *behind), tuple(a.stop for a in own_axes), indices, value, where, read)
    return None


def _equal(condition: Expr) -> Iterator[tuple[str, Expr]]:
    """The indices that a condition says are equal to something else."""
    if isinstance(condition, Apply) and condition.op.name == "eq" and condition.args[0].dtype is int64:
        left, right = condition.args
        terms = [*signed_terms(left, 1), *signed_terms(right, -1)]
        for sign, term in terms:
            if isinstance(term, Index) and sum(term == other for _, other in terms) == 1:
                added = [e for s, e in terms if s != sign]
                key = added[0] if added else const(0)
                for e in added[1:]:
                    key = apply("add", key, e)
                for s, e in terms:
                    key = apply("sub", key, e) if s == sign and e != term else key
                yield term.name, key


def is_plain(axis: Axis) -> bool:
    """Whether an axis begins at 0 and has an extent of its own."""
    return axis.start == const(0) and not free_names(axis.stop) and not tensors_read(axis.stop)


def _pays(keys: Axis, behind: list[Axis]) -> bool:
    rows = bool(behind) and isinstance(behind[-1].stop, Const) and int(behind[-1].stop.value) >= KEYS_OF_ROWS
    return not isinstance(keys.stop, Const) or int(keys.stop.value) >= (KEYS_OF_ROWS if rows else KEYS)
