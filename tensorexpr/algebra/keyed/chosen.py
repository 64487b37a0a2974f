"""A tensor that is read at one place of each row is made at those places.

    w[i, j] = f(i, j);  y[i] = w[i, t[i]] * x[i];  z = scatter({t[i]: w[i, t[i]]})   -->   v[i] = f(i, t[i]) where t[i] is in range, else 0

Derivatives of maxima are such rows, of which one point counts: where a sum over them has become that point, what it reads is left.
"""

from __future__ import annotations

from tensorexpr.algebra.keyed.keys import is_plain
from tensorexpr.bounds import PROVED, check_access
from tensorexpr.ir import Access, Axis, Const, Define, Expr, Index, Program, apply, conjunction, const
from tensorexpr.records import replace
from tensorexpr.simplify.passes.amounts import points
from tensorexpr.simplify.passes.inline.checks import Place
from tensorexpr.simplify.passes.inline.places import places_read
from tensorexpr.simplify.passes.sharing import form_of_expression
from tensorexpr.traversal import bottom_up, fresh_name, map_expressions, rename_bound, substitute, tensors_read, walk

FEWER = 4
"""How many times fewer points are read than there are, at least: what is read at places that data says is gathered."""


def with_chosen_points(program: Program) -> Program:
    """The program with tensors over the points that are read, where all reads are at one place of each row, which data says.

    Requires: nothing. Ensures: every value is kept, and so is every check of an index.
    """
    known = places_read(program)
    for d in reversed(program.definitions):
        if isinstance(d, Define) and d.name not in program.outputs and len(d.axes) > 1 and all(map(is_plain, d.axes)):
            chosen = _at_points(program, d.name, *known)
            if chosen is not program:
                program, known = chosen, places_read(chosen)
    return program


def _at_points(program: Program, tensor: str, places: dict[str, list[Place]], fixed: set[str]) -> Program:
    """The program with one tensor over the points that are read of it, of which every place is given; the same object where some reads
    are at other places."""
    read_at = places.get(tensor, [])
    if tensor in fixed or not read_at or not any(tensors_read(e) for e in read_at[0].access.indices):
        return program
    d = next(own for own in program.definitions if own.results[0][0] == tensor)
    assert isinstance(d, Define)
    found = [_points_of(place, d) for place in read_at]
    if found[0] is None or any(own is None or own[:2] != found[0][:2] for own in found):
        return program
    first = places[d.name][0]
    (_, _, axes), numbers = found[0], {id(own): at for at, own in enumerate(program.definitions)}
    if any(id(place.reader) not in numbers for place in places[d.name]) or FEWER * points(axes) > points(d.axes):
        return program
    if any(tensors_read(e) for n in walk(d.value) if isinstance(n, Access) for e in n.indices):
        return program  # with checks of its own
    taken = {*program.types, *program.sizes}
    name, names = fresh_name(f"{d.name}_chosen", taken), {axis.index for axis in axes}
    indices = dict(zip((axis.index for axis in d.axes), first.access.indices, strict=True))
    by_data = [(e, a.stop) for e, a in zip(first.access.indices, d.axes, strict=True) if tensors_read(e)]
    inside = conjunction([apply(op, e, end) for e, stop in by_data for op, end in (("ge", const(0)), ("lt", stop))])
    value = apply("where", inside, substitute(rename_bound(d.value, names), indices), Const(0, d.value.dtype))

    def read(e: Expr) -> Expr:
        return Access(name, tuple(map(Index, form_of_expression(e)[1])), e.dtype) if isinstance(e, Access) and e.tensor == d.name else e

    at = min(numbers[id(place.reader)] for place in places[d.name])
    definitions = [map_expressions(own, lambda e: bottom_up(e, read)) for own in program.definitions]
    definitions.insert(at, Define(name, axes, value, d.location))
    return replace(program, definitions=tuple(own for own in definitions if own.results[0][0] != d.name))


def _points_of(place: Place, d: Define) -> tuple[Expr, tuple[Expr, ...], tuple[Axis, ...]] | None:
    """The subscripts of a place up to names, and the axes of the points that they read; None where they read any others."""
    access, around = place.access, {axis.index: axis for axis in place.axes}
    form, names = form_of_expression(access)
    if not around.keys() >= set(names):  # one is told by a condition
        return None
    axes = tuple(around[n] for n in names)
    by_data = [e for e in access.indices if tensors_read(e)]
    plain = all(
        e in by_data or (isinstance(e, Index) and around[e.name].stop == a.stop) for e, a in zip(access.indices, d.axes, strict=True)
    )
    if not by_data or not plain or not all(map(is_plain, axes)):
        return None
    verdicts = check_access(access.indices, tuple(a.stop for a in d.axes), place.axes, place.guards)
    return (form, tuple(a.stop for a in axes), axes) if all(v is PROVED for v in verdicts) else None
