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
from tensorexpr.ir import Access, Define, Definition, Expr, Index, Program, Scan, TensorType
from tensorexpr.records import replace
from tensorexpr.simplify.facts.sort_ranges import ranges_of
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.simplify.passes.inline.checks import Checked, Place, checked_axes, unchecked
from tensorexpr.simplify.passes.inline.places import axes_of, places_read
from tensorexpr.simplify.passes.inline.worth import (
    are_elements,
    elements_along,
    fans_out,
    few_each,
    is_copied,
    is_element,
    is_padded,
    is_worth_it,
    renames_only,
    repeats,
)
from tensorexpr.traversal import (
    bound_names,
    children,
    expressions,
    free_names,
    map_children,
    map_expressions,
    reads,
    rename_bound,
    substitute,
)

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
    inputs, scatters, scans and unknown names, and where a check would be lost (`checks`).
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
    """Those of the named plain definitions that may be inlined together: no read of them loses a check (`checks`)."""
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
    taken = {a.index for a in axes_of(definition)}
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
        loads = len(elements_along(definition)) + more.get(id(definition), 0)
        around = (
            repeats(definition, types) or (is_element(definition.value) and are_elements(places)) or fans_out(definition, places, types)
        )
        copied = len(places) == 1 and is_copied(places[0], program.outputs)
        near = copied or is_padded(definition, places, types)
        if not is_worth_it(definition, places, loads) and not near and not (around and few_each(places)):
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
