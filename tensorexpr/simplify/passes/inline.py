"""Inlining: the value of a definition written where it is read, without capture of index names.

`inline_definitions` does what it is told; `inline_cheap` chooses: a definition goes into its reader where no work is repeated (every
element is read at most once, or there are no more reads than elements), or where the work and what it reads are so small that repeating it
costs less than storing it. Reductions stay where they are, but for those of which few elements are read (the trace of a product), sums of a
few components that another sum reads once each (`k[i, j] = exp(-sum((x[i, e] - y[j, e])**2 for e in range(3)))` under a sum over j), the
parts of a reduction, which nothing else reads (rows of a sum over all), and those of which an output is a copy; so do outputs, the inits of
scans and whatever a scatter or a scan makes. What only rearranges elements (the windows of a convolution as rows of a matrix) goes where
its readers put together what it took apart, and what says which elements of a far smaller tensor stand where (windows side by side) to all
of its few readers, as to those that do no more themselves: what is made of them reads these elements themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from tensorexpr.errors import DefinitionError
from tensorexpr.integers import FloorDiv
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
    Scan,
    Scatter,
    Segments,
    TensorType,
    conjuncts,
)
from tensorexpr.records import replace
from tensorexpr.regions import affine_of
from tensorexpr.simplify.expressions import simplify_expr
from tensorexpr.simplify.facts.sort_ranges import ranges_of
from tensorexpr.simplify.passes.amounts import cost, elements, points
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.simplify.passes.inline_checks import Checked, Place, checked_axes, unchecked
from tensorexpr.traversal import (
    bound_names,
    children,
    expressions,
    free_names,
    map_children,
    map_expressions,
    negate,
    reads,
    rename_bound,
    substitute,
    tensors_read,
    walk,
)

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
MOST_NODES = 200
"""No definition grows beyond this many nodes by inlining."""
MOST_DEPTH = 60
"""Nor beyond this depth: everything that walks an expression does so by recursion."""
Among = Callable[[Define], bool]
"""Whether a definition may be inlined, however cheap it is."""


def inline_definitions(program: Program, names: Iterable[str]) -> Program:
    """Writes the values of the named definitions where they are read; those that are not outputs go away.

    Requires: the names are plain definitions at the top level that no scan starts from. Ensures: no definition reads the
    names; every value is kept, and every data-dependent index that is evaluated is checked as before. Raises `DefinitionError` for
    inputs, scatters, scans and unknown names, and where a check would be lost (`inline_checks`).
    """
    wanted = dict.fromkeys(names)
    table = {name: d for d in program.definitions for name, _ in d.results}
    for name in wanted:
        if not isinstance(table.get(name), Define):
            found = "no definition" if name not in table else f"a {type(table[name]).__name__.lower()}"
            raise DefinitionError(f"expected a plain definition to inline, got {found}", at=name, hint="only te.compute can be inlined")
    started = {name for d in program.definitions if isinstance(d, Scan) for name in _inits(d)}
    for name in wanted:
        if name in started:
            raise DefinitionError("expected a definition that is read by index, got the start of a scan", at=name)
    for name, place in _losing_checks(program, wanted).items():
        raise DefinitionError(
            f"expected reads of {name} that need no check of their own, got one at a place that depends on data",
            term=place.access,
            at=name,
            location=place.reader.location,
            hint="what is stored is checked where it is read; te.clip bounds an index",
        )
    return _written_in(program, wanted)


def without_lost_checks(program: Program, names: Iterable[str]) -> list[str]:
    """Those of the named plain definitions that may be inlined together: no read of them loses a check (`inline_checks`)."""
    wanted = dict.fromkeys(names)
    losing = _losing_checks(program, wanted) if wanted else {}
    return [name for name in wanted if name not in losing]


def _losing_checks(program: Program, wanted: Mapping[str, object]) -> dict[str, Place]:
    """Of the named definitions, those of which a read would lose its check, each with the place of one; the others are inlined."""
    sites, checked, ranges = places_read(program)[0], Checked(), ranges_of(program.definitions)
    losing: dict[str, Place] = {}
    for definition in program.definitions:
        if isinstance(definition, Define) and definition.name in wanted:
            axes = checked_axes(definition, program.types, checked)
            place = unchecked(definition, sites.get(definition.name, ()), axes, ranges)
            if place is None:
                checked[definition.name] = axes
            else:
                losing[definition.name] = place
    return losing


def _written_in(program: Program, wanted: Mapping[str, object]) -> Program:
    """The program with the values of `wanted` where they are read."""
    values: dict[str, Define] = {}
    kept: list[Definition] = []
    for definition in program.definitions:
        definition = _inlined(definition, values)
        if isinstance(definition, Define) and definition.name in wanted:
            values[definition.name] = definition
            if definition.name not in program.outputs:
                continue
        kept.append(definition)
    return with_definitions(program, kept)


def _inits(scan: Scan) -> list[str]:
    return [*scan.inits, *(name for d in scan.body if isinstance(d, Scan) for name in _inits(d))]


def _inlined(definition: Definition, values: dict[str, Define]) -> Definition:
    if not values or not any(name in values for name in reads(definition)):
        return definition
    if isinstance(definition, Scan):
        return replace(definition, body=tuple(_inlined(d, values) for d in definition.body))
    taken = {a.index for a in _axes(definition)}
    for e in expressions(definition):
        taken.update(bound_names(e))
        taken.update(free_names(e))

    def visit(node: Expr) -> Expr:
        node = map_children(node, visit)
        if not isinstance(node, Access) or node.tensor not in values:
            return node
        source = values[node.tensor]
        # Its own axes may have names of the reader, too; they disappear in one simultaneous substitution.
        body = rename_bound(source.value, taken)
        return substitute(body, {a.index: e for a, e in zip(source.axes, node.indices, strict=True)})

    return map_expressions(definition, visit)


def inline_cheap(program: Program, outside: Mapping[str, TensorType] | None = None, among: Among | None = None) -> Program:
    """Inlines definitions that cost nothing to compute where they are read: see this module's docstring for the choice.

    Requires: nothing (`outside` are types of further tensors that are read, `among` says which definitions may go). Ensures: every value is
    kept, so is every check of an index that is evaluated; no reduction and no expensive operation is computed more often than before.
    """
    chosen = cheap_names(program, outside, among)
    result = _written_in(program, dict.fromkeys(chosen)) if chosen else program
    types = {**(outside or {}), **result.types}
    copied = ((d.name, _copied(d, types)) for d in result.definitions if isinstance(d, Define))
    copies = {name: tensor for name, tensor in copied if tensor is not None}
    return with_definitions(result, (_started(_inlined_inside(d, types, among), copies) for d in result.definitions))


def _copied(definition: Define, types: Mapping[str, TensorType]) -> str | None:
    """The tensor that a definition is, element by element."""
    value = definition.value
    if not isinstance(value, Access) or value.tensor not in types or value.indices != tuple(Index(a.index) for a in definition.axes):
        return None
    return value.tensor if types[value.tensor].shape == tuple(a.stop for a in definition.axes) else None


def _started(definition: Definition, copies: Mapping[str, str]) -> Definition:
    """A scan that starts from a copy starts from what is copied."""
    if not isinstance(definition, Scan) or not any(name in copies for name in definition.inits):
        return definition
    inits = []
    for name in definition.inits:
        while name in copies:
            name = copies[name]
        inits.append(name)
    return replace(definition, inits=tuple(inits))


def _inlined_inside(definition: Definition, types: Mapping[str, TensorType], among: Among | None) -> Definition:
    """A scan with its body inlined by the same choice; anything else as it is."""
    if not isinstance(definition, Scan):
        return definition
    inner = Program((), (), definition.body, definition.nexts)
    body = inline_cheap(inner, {**types, **dict(definition.states)}, among).definitions
    return definition if body is inner.definitions else replace(definition, body=body)


def cheap_names(program: Program, outside: Mapping[str, TensorType] | None = None, among: Among | None = None) -> tuple[str, ...]:
    """The definitions that `inline_cheap` inlines, in order."""
    sites, fixed = places_read(program)
    types, checked, ranges = {**(outside or {}), **program.types}, Checked(), ranges_of(program.definitions)
    extent: dict[int, tuple[int, int]] = {}  # nodes and depth of each definition, with what was chosen to go into it
    more: dict[int, int] = {}  # elements that each definition reads beyond its own, for what was chosen to go into it

    def extent_of(definition: Definition) -> tuple[int, int]:
        return extent.get(id(definition)) or _nodes_and_depth(definition)

    chosen: list[str] = []
    for definition in program.definitions:
        if not isinstance(definition, Define) or definition.name in fixed or definition.name not in sites:
            continue
        if among is not None and not among(definition):
            continue
        places = sites[definition.name]
        loads = len(_elements(definition)) + more.get(id(definition), 0)
        around = (
            repeats(definition, types) or (is_element(definition.value) and _are_elements(places)) or _fans_out(definition, places, types)
        )
        copied = len(places) == 1 and _is_copied(places[0], program.outputs)
        if not _worth_inlining(definition, places, loads) and not copied and not (around and _few_each(places)):
            continue
        nodes, depth = extent_of(definition)
        grown: dict[int, tuple[int, int]] = {}
        for place in places:
            reader = id(place.reader)
            before = grown.get(reader) or extent_of(place.reader)
            grown[reader] = (before[0] + nodes, before[1] if reader in grown else before[1] + depth)
        if not renames_only(definition) and any(n > MOST_NODES or d > MOST_DEPTH for n, d in grown.values()):
            continue
        kept = checked_axes(definition, types, checked)
        if unchecked(definition, places, kept, ranges) is not None:
            continue
        extent.update(grown)
        for reader, count in Counter(reader for reader, _ in {(id(p.reader), p.access) for p in places}).items():
            more[reader] = more.get(reader, 0) + count * (loads - 1)
        checked[definition.name] = kept
        chosen.append(definition.name)
    return tuple(chosen)


def _nodes_and_depth(definition: Definition) -> tuple[int, int]:
    nodes = depth = 0
    stack = [(e, 1) for e in expressions(definition)]
    while stack:
        node, level = stack.pop()
        nodes, depth = nodes + 1, max(depth, level)
        stack.extend((child, level + 1) for child in children(node))
    return nodes, depth


def places_read(program: Program) -> tuple[dict[str, list[Place]], set[str]]:
    """Every read of each tensor, and the tensors that are read as a whole or given."""
    sites: dict[str, list[Place]] = {}
    fixed = set(program.outputs)
    for definition in program.definitions:
        _collect(definition, (), sites, fixed)
    return sites, fixed


def _collect(definition: Definition, outer: tuple[Axis, ...], sites: dict[str, list[Place]], fixed: set[str]) -> None:
    """Every read of every tensor, with the definition it stands in and the axes around it; the inits of scans are fixed."""
    if isinstance(definition, Scan):
        fixed.update(definition.inits)
        step = Axis(definition.step, Const(0, definition.length.dtype), definition.length)
        for inner in definition.body:
            _collect(inner, (*outer, step), sites, fixed)
        return

    axes = (*outer, *_axes(definition))
    match definition:
        case Define():
            parts: tuple[Expr | None, ...] = (definition.value,)
        case Segments():
            parts = (*definition.keys, definition.where)
        case _:
            parts = (*definition.indices, definition.where, definition.value)
    where = definition.where if isinstance(definition, Scatter | Segments) else None
    for e in parts:
        if e is not None:
            _collect_from(e, definition, axes, () if where is None or e is where else tuple(conjuncts(where)), sites)


def _collect_from(
    expr: Expr, definition: Definition, axes: tuple[Axis, ...], guards: tuple[Expr, ...], sites: dict[str, list[Place]]
) -> None:
    if isinstance(expr, Access):
        sites.setdefault(expr.tensor, []).append(Place(definition, expr, axes, guards))
    if isinstance(expr, Reduce):
        for axis in expr.axes:
            _collect_from(axis.start, definition, axes, guards, sites)
            _collect_from(axis.stop, definition, axes, guards, sites)
            axes = (*axes, axis)
        if expr.where is not None:
            _collect_from(expr.where, definition, axes, guards, sites)
            guards = (*guards, *conjuncts(expr.where))
        for e in expr.values:
            _collect_from(e, definition, axes, guards, sites)
        return
    if isinstance(expr, Apply) and expr.op.name == "where":
        condition, taken, otherwise = expr.args
        _collect_from(condition, definition, axes, guards, sites)
        _collect_from(taken, definition, without_fixed(axes, condition), (*guards, *conjuncts(condition)), sites)
        _collect_from(otherwise, definition, axes, (*guards, negate(condition)), sites)
        return
    for e in _parts(expr):
        _collect_from(e, definition, axes, guards, sites)


def _axes(definition: Define | Scatter | Segments) -> tuple[Axis, ...]:
    return definition.loops if isinstance(definition, Segments) else definition.axes


def fixed_by(condition: Expr) -> dict[str, Expr]:
    """The indices that a condition allows one value only, and which: `i == u * 4 + 3`."""
    found: dict[str, Expr] = {}
    for part in conjuncts(condition):
        if isinstance(part, Apply) and part.op.name == "eq":
            for one, other in (part.args, reversed(part.args)):
                if isinstance(one, Index) and one.name not in free_names(other):
                    found.setdefault(one.name, other)
                    break
    return found


def without_fixed(axes: tuple[Axis, ...], condition: Expr) -> tuple[Axis, ...]:
    """The axes without those that the condition allows one value only."""
    fixed = fixed_by(condition)
    return tuple(axis for axis in axes if axis.index not in fixed)


def _parts(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Access():
            return expr.indices
        case Apply():
            return expr.args
        case Cast():
            return (expr.arg,)
    return ()


def _elements(definition: Define) -> set[Access]:
    """The elements that a definition reads along its rows as it is written; one for each row costs nothing."""
    return {node for node in walk(definition.value) if isinstance(node, Access) and _is_along(node, definition)}


def _is_along(access: Access, definition: Define) -> bool:
    return not definition.axes or definition.axes[-1].index in free_names(access)


def _worth_inlining(definition: Define, places: list[Place], loads: int) -> bool:
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
    return cost <= CHEAP and own <= 2 and loads <= MOST_LOADS and few and not repeated


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


def _is_copied(place: Place, outputs: tuple[str, ...]) -> bool:
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
        return _is_along_axes(value)
    return isinstance(value, Const | Index)


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


def _fans_out(definition: Define, places: list[Place], types: Mapping[str, TensorType]) -> bool:
    """Whether a definition is a cheap product of smaller tensors, of which no reader reads an element again."""
    if any(isinstance(n, Reduce) for n in walk(definition.value)) or cost(definition.value) > CHEAP or not reads(definition):
        return False
    return _is_larger(definition, types, LARGER) and all(points(place.axes) <= ONCE * points(definition.axes) for place in places)


def _is_larger(definition: Define, types: Mapping[str, TensorType], times: int) -> bool:
    """Whether a definition has so many times the bytes of what it reads, which are many."""
    own = points(definition.axes) * definition.value.dtype.itemsize
    read = sum(elements(types[n].shape) * types[n].dtype.itemsize for n in reads(definition) if n in types)
    return own >= LEAST_BYTES and times * read <= own


def _few_each(places: list[Place]) -> bool:
    """Whether no reader, all of which are plain definitions, reads in many places."""
    return all(isinstance(p.reader, Define) for p in places) and max(Counter(id(p.reader) for p in places).values()) <= MOST_READS


def _are_elements(places: list[Place]) -> bool:
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
    own = {a.index for a in _axes(reader)} if not isinstance(reader, Scan) else set()
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
