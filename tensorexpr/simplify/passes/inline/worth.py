"""Whether a definition costs less where it is read than stored: what it computes and reads, and how often that would be repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tensorexpr.integers import FloorDiv
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Define, Definition, Expr, Index, Reduce, Scan, TensorType, const
from tensorexpr.regions import affine_of
from tensorexpr.simplify.expressions import simplify_expr
from tensorexpr.simplify.passes.amounts import cost, elements, points
from tensorexpr.simplify.passes.inline.checks import Place
from tensorexpr.simplify.passes.inline.places import axes_of, fixed_by
from tensorexpr.traversal import free_names, reads, rename_bound, substitute, tensors_read, walk

CHEAP = 4
"""Definitions of at most this cost (see `Op.cost`) may be computed again at every read."""
MOST_READS = 4
"""A cheap definition is kept where more definitions than this read it, or one of them in more places; what only renames is never."""
MOST_LOADS = 2
"""A cheap definition is kept where it reads more elements than this, with those of what goes into it: each layer of a network adds to the
sum of all before it, which each layer reads."""
FEW = 4
"""Points of a reduction that goes where it is read, inside another one: components of a vector in space, whose sum takes no loop."""
READ = 0.25
"""Elements of a reduction that are read, of all of them, up to which each is computed where it is read."""
ONCE = 1.5
"""Points of loops for each element that count as one read of each: borders count as if there were none."""
FAR_LARGER = 4
"""How many times larger a definition is than what it reads that says which elements stand where."""
LARGER = 2
"""How many times larger one is that is cheap: to store and to load it costs more than to compute it where it is read."""
LEAST_BYTES = 1 << 14
"""Smaller ones are kept: they stay in the first cache."""


def elements_along(definition: Define) -> set[Access]:
    """The elements that a definition reads along its rows as it is written; one for each row costs nothing."""
    return {node for node in walk(definition.value) if isinstance(node, Access) and _is_along(node, definition)}


def _is_along(access: Access, definition: Define) -> bool:
    return not definition.axes or definition.axes[-1].index in free_names(access)


def is_worth_it(definition: Define, places: list[Place], loads: int) -> bool:
    """Whether to write a definition, which with what goes into it reads so many elements, where it is read."""
    if any(isinstance(node, Reduce) for node in walk(definition.value)):
        if _reads_few(definition, places):
            return True
        return len(places) == 1 and any(joins(definition, places[0]) for joins in (_is_part, _is_summed_away, _sums_in_order))
    if renames_only(definition) or (_rearranges(definition) and all(_in_order(definition, place) for place in places)):
        return True
    cost = 1 if is_element(definition.value) else sum(node.op.cost for node in walk(definition.value) if isinstance(node, Apply))
    own = sum(isinstance(node, Access) and _is_along(node, definition) for node in walk(definition.value))
    if len(places) == 1 and _reads_each_once(places[0].access, places[0].axes):
        return True
    elements, points = _points(definition.axes), [_points(place.axes) for place in places]
    if elements is not None and None not in points and sum(n for n in points if n is not None) <= elements:
        return True
    repeated = any(_reduced_again(place.reader, place.access, place.axes) for place in places)
    elements_of: dict[int, set[Access]] = {}
    for place in places:
        elements_of.setdefault(id(place.reader), set()).add(place.access)
    few = max([len(elements_of), *map(len, elements_of.values())]) <= MOST_READS
    if few and _is_point(definition, places):
        return True
    return cost <= CHEAP and own <= 2 and loads <= MOST_LOADS and few and not repeated


def _is_point(definition: Define, places: list[Place]) -> bool:
    """Whether a definition is a cheap value where its condition allows an axis one place, else 0, and sums over that axis read it, which
    have one term then."""
    value = definition.value
    if not isinstance(value, Apply) or value.op.name != "where" or value.args[2] != Const(0, value.dtype):
        return False
    along = definition.axes[-1].index if definition.axes else ""
    fixed = fixed_by(value.args[0])
    if sum(n.op.cost for n in walk(value.args[1]) if isinstance(n, Apply) and along in free_names(n)) > CHEAP or not fixed:
        return False
    summed = [_sums_over(place, {at for at, axis in enumerate(definition.axes) if axis.index in fixed}) for place in places]
    return any(summed) and all(one or _reads_each_once(p.access, p.axes) for one, p in zip(summed, places, strict=True))


def _sums_over(place: Place, axes: set[int]) -> bool:
    """Whether a reduction goes along one of some axes of what a place reads."""
    own = {axis.index for axis in axes_of(place.reader)} if isinstance(place.reader, Define) else set(free_names(place.access))
    return any(isinstance(e, Index) and at in axes and e.name not in own for at, e in enumerate(place.access.indices))


def _reads_few(definition: Define, places: list[Place]) -> bool:
    """Whether one place reads few elements of all, as the trace of a product does: no more than `READ` of them."""
    elements, points = _points(definition.axes), _points(places[0].axes) if len(places) == 1 else None
    return elements is not None and points is not None and 0 < points <= READ * elements


def _is_summed_away(definition: Define, place: Place) -> bool:
    """Whether a reduction reads each element once, of which each takes sums of a few points itself."""
    inner = [node for node in walk(definition.value) if isinstance(node, Reduce)]
    short = all((_points(node.axes) or FEW + 1) <= FEW and node.combiner.is_builtin for node in inner)
    inside = isinstance(place.reader, Define) and len(place.axes) > len(place.reader.axes)
    return short and inside and _reads_each_once(place.access, place.axes)


def _is_part(definition: Define, place: Place) -> bool:
    """Whether a reduction adds up what the definition is, parts of the same reduction up to literal factors, each part once."""
    part = without_literals(definition.value)
    if not isinstance(part, Reduce) or part.where is not None or not part.combiner.is_builtin:
        return False
    if part.combiner.name == "sum" and part.dtype.is_float and part.dtype.bits < 32:
        return False  # parts of 16 bits are rounded one by one
    if part is not definition.value and part.combiner.name != "sum":
        return False
    if any(free_names(bound) for axis in part.axes for bound in (axis.start, axis.stop)):
        return False
    if not isinstance(place.reader, Define) or points(place.axes) > points(definition.axes):
        return False
    wholes = (node for node in walk(place.reader.value) if isinstance(node, Reduce) and node.combiner == part.combiner)
    return any((without_literals if part.combiner.name == "sum" else _itself)(node.values[0]) == place.access for node in wholes)


def is_copied(place: Place, outputs: tuple[str, ...]) -> bool:
    """Whether an output is a copy of elements of the definition, of each at most once: in another order, or without a border."""
    if not isinstance(place.reader, Define) or place.reader.name not in outputs or place.reader.value != place.access:
        return False
    names = [name for e in place.access.indices if (form := affine_of(e)) is not None for name, _ in form.terms]
    return _is_along_axes(place.access) and sorted(map(str, names)) == sorted(axis.index for axis in place.axes)


def _itself(expr: Expr) -> Expr:
    return expr


def without_literals(expr: Expr) -> Expr:
    """What an expression multiplies by literals, and divides by them."""
    while isinstance(expr, Apply) and expr.op.name in ("mul", "div") and isinstance(expr.args[1], Const):
        expr = expr.args[0]
    return expr


def _points(axes: tuple[Axis, ...]) -> int | None:
    """How many points axes of literal bounds have, None for others."""
    count = 1
    for axis in axes:
        if not isinstance(axis.start, Const) or not isinstance(axis.stop, Const):
            return None
        count *= max(int(axis.stop.value) - int(axis.start.value), 0)
    return count


def renames_only(definition: Define) -> bool:
    """Whether the value is a literal, an index or one element of a tensor, its axes in any order and direction."""
    value = definition.value
    while isinstance(value, Cast) or (isinstance(value, Apply) and value.op.name == "stop_gradient"):
        value = value.arg if isinstance(value, Cast) else value.args[0]
    if isinstance(value, Access):
        return _is_along_axes(value) or _is_view(value, definition.axes)
    return isinstance(value, Const | Index)


def _is_view(access: Access, axes: tuple[Axis, ...]) -> bool:
    """Whether the axes are all digits of subscripts, each once, that of the lowest place in steps of one: a tensor in another shape."""
    extents = {axis.index: int(axis.stop.value) for axis in axes if axis.start == const(0) and isinstance(axis.stop, Const)}
    seen: list[str] = []
    for form in map(affine_of, access.indices):
        place = 1
        for name, count in sorted(form.terms, key=lambda term: term[1]) if form is not None and form.constant == 0 else ():
            if count != place or name not in extents:
                return False
            seen.append(str(name))
            place *= extents[str(name)]
    return sorted(seen) == sorted(axis.index for axis in axes)


def _is_along_axes(access: Access) -> bool:
    """Whether each subscript goes along one axis in steps of one, either way, or stays. Rows of an axis are tensors: blocks of products
    go over them."""
    forms = [affine_of(e) for e in access.indices]
    return all(form is not None and (not form.terms or (len(form.terms) == 1 and _is_plain(form.terms[0]))) for form in forms)


def _is_plain(term: tuple[str | FloorDiv, int]) -> bool:
    return isinstance(term[0], str) and abs(term[1]) == 1


def _rearranges(definition: Define) -> bool:
    """Whether the value is one element of a tensor at subscripts that divide: rows taken apart, windows behind one another."""
    return (
        isinstance(definition.value, Access) and tensors_read(definition.value) == (definition.value.tensor,) and _divides(definition.value)
    )


def _divides(e: Expr) -> bool:
    return any(isinstance(n, Apply) and n.op.name in ("floordiv", "mod") and n.dtype.is_integer for n in walk(e))


def _sums_in_order(definition: Define, place: Place) -> bool:
    """Whether a sum whose terms stand at subscripts that divide is read about once, by a sum that puts together what was divided."""
    value = definition.value
    if not isinstance(value, Reduce) or value.where is not None or not _divides(value):
        return False
    if (
        not isinstance(place.reader, Define)
        or len(place.axes) == len(place.reader.axes)
        or points(place.axes) > ONCE * points(definition.axes)
    ):
        return False
    taken = {axis.index for axis in place.axes}
    found = substitute(rename_bound(value, taken), {a.index: e for a, e in zip(definition.axes, place.access.indices, strict=True)})
    return not _divides(simplify_expr(found, place.axes, place.guards))


def repeats(definition: Define, types: Mapping[str, TensorType]) -> bool:
    """Whether a definition only says which elements of far smaller tensors stand where."""
    return is_element(definition.value) and _is_larger(definition, types, FAR_LARGER)


def fans_out(definition: Define, places: list[Place], types: Mapping[str, TensorType]) -> bool:
    """Whether a definition is a cheap product of smaller tensors, of which no reader reads an element again."""
    if any(isinstance(n, Reduce) for n in walk(definition.value)) or cost(definition.value) > CHEAP or not reads(definition):
        return False
    return _is_larger(definition, types, LARGER) and all(points(place.axes) <= ONCE * points(definition.axes) for place in places)


def is_padded(definition: Define, places: list[Place], types: Mapping[str, TensorType]) -> bool:
    """Whether a definition is a smaller tensor in a border of a literal, or of elements from its other end or its edge, of which no reader
    reads an element but from around its place: conditions on places are those of loops, or of a border of them."""
    read = {node for node in walk(definition.value) if isinstance(node, Access)}
    if not is_element(definition.value) or len(read) != 1:
        return False
    (element,) = read
    if element.tensor not in types or not (_is_along_axes(element) or _is_bordered(element)):
        return False
    whole = points(definition.axes) <= ONCE * elements(types[element.tensor].shape)
    return whole and all(isinstance(p.reader, Define) and _moves_along(p.access, p.axes) for p in places)


def _is_bordered(access: Access) -> bool:
    """Whether each subscript is an index of its own, shifted, wrapped around or kept inside."""
    named = [set(free_names(e)) for e in access.indices]
    inside = (node for e in access.indices for node in walk(e) if isinstance(node, Apply))
    apart = sum(map(len, named)) == len(set[str]().union(*named)) and all(len(names) <= 1 for names in named)
    return apart and all(node.op.name in ("add", "sub", "mod", "minimum", "maximum") for node in inside)


def _moves_along(access: Access, axes: tuple[Axis, ...]) -> bool:
    """Whether all loops around a read move it: what is read again is read from near by."""
    return {axis.index for axis in axes} <= set(free_names(access))


def _is_larger(definition: Define, types: Mapping[str, TensorType], times: int) -> bool:
    """Whether a definition has so many times the bytes of what it reads, which are many."""
    own = points(definition.axes) * definition.value.dtype.itemsize
    read = sum(elements(types[n].shape) * types[n].dtype.itemsize for n in reads(definition) if n in types)
    return own >= LEAST_BYTES and times * read <= own


def few_each(places: list[Place]) -> bool:
    """Whether no reader, all of which are plain definitions, reads in many places."""
    return all(isinstance(p.reader, Define) for p in places) and max(Counter(id(p.reader) for p in places).values()) <= MOST_READS


def are_elements(places: list[Place]) -> bool:
    """Whether all readers only say which elements stand where, too."""
    return all(isinstance(p.reader, Define) and is_element(p.reader.value) for p in places)


def is_element(value: Expr) -> bool:
    """Whether a value is an element of a tensor at a place known before, or one or a literal by conditions on indices."""
    if isinstance(value, Apply) and value.op.name == "where":
        condition, *values = value.args
        return not tensors_read(condition) and any(map(is_element, values)) and all(isinstance(v, Const) or is_element(v) for v in values)
    return isinstance(value, Access) and tensors_read(value) == (value.tensor,)


def _in_order(definition: Define, place: Place) -> bool:
    """Whether a place, which puts together what was divided, reads the element at subscripts that are affine."""
    value = substitute(definition.value, {a.index: e for a, e in zip(definition.axes, place.access.indices, strict=True)})
    found = simplify_expr(value, place.axes, place.guards)
    forms = [affine_of(e) for e in found.indices] if isinstance(found, Access) else [None]
    return all(form is not None and not form.has_division() for form in forms)


def _reads_each_once(access: Access, axes: tuple[Axis, ...]) -> bool:
    """Whether different points of the axes read different elements: every axis is a subscript by itself."""
    return _plain(access).issuperset(axis.index for axis in axes)


def _reduced_again(reader: Definition, access: Access, axes: tuple[Axis, ...]) -> bool:
    """Whether a reduction in the reader reads the same element many times, as a matrix product does."""
    own = {a.index for a in axes_of(reader)} if not isinstance(reader, Scan) else set()
    inner = [axis.index for axis in axes if axis.index not in own]
    return bool(inner) and not _reads_each_once(access, axes)


def _plain(access: Access) -> set[str]:
    """The indices that are subscripts by themselves, perhaps shifted by a literal."""
    found = set()
    for e in access.indices:
        if isinstance(e, Apply) and e.op.name in ("add", "sub") and isinstance(e.args[1], Const):
            e = e.args[0]
        if isinstance(e, Index):
            found.add(e.name)
    return found
