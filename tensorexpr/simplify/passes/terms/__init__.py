"""Costly terms are computed once: what a reduction or a row computes again and again becomes a tensor of its own.

    c[i, j] = sum(exp(a[i, k]) * b[k, j] for k)   -->   a_exp[i, k] = exp(a[i, k]);  c[i, j] = sum(a_exp[i, k] * b[k, j] for k)

A term is a value inside a reduction that depends on fewer things than there are loops around it: on the subscripts under which it
reads elements, which are taken whole (`relu(x[h + r, w + s])` is a tensor of the shape of x), and on the indices that it needs otherwise.
One tensor serves all definitions that have the term up to names of indices. It is made where computing the term at all points of the
loops costs `STORED` more for each element than computing it once; and where it is no larger than what it reads together, or than all
inputs and outputs of the program together, or `NEAR`, whichever is most: memory grows by a factor, and pairs of many points stay in
their loops.

The tensor is computed everywhere, also where the reduction skips the term: only where each element that it reads is proved to exist, so
that no check is lost or made, and what is not read does not matter. What is marked `recompute` stays where it is.

So is a function of fewer indices than lie along the rows of a definition (`exp(a[i, j]) * exp(b[j])`); what is the same for a whole row
leaves its loop by itself.

A reduction that depends on few indices is such a term wherever it stands: it runs once for all the loops of its definition up to the
innermost that it depends on, so `y[i, j] = x[i, j] / sum(x[k, j] for k)` computes each sum for every i, and a sum that other definitions
need too is computed by each of them. Where loops stand further in that it does not depend on, as those of a sum around a maximum, it is a
tensor of its own from `ROW` operations on: its loops are then free to be lanes, as those of a definition that was written by itself. So is
one for a single place of such a loop, `where(p == 3, sum(h[i] for i), 0.0)`, and where data says which, `where(p == t[i], ...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tensorexpr.dtypes import DType
from tensorexpr.ir import Access, Apply, Axis, Define, Definition, Expr, Index, Program, Reduce, Scatter, TensorType
from tensorexpr.records import replace
from tensorexpr.rewrite import head_of
from tensorexpr.simplify.passes.amounts import cost, elements, points
from tensorexpr.simplify.passes.definitions import form_of, with_definitions
from tensorexpr.simplify.passes.inline.worth import repeats
from tensorexpr.simplify.passes.terms.found import (
    LEAST,
    REPEATED,
    Demand,
    Forms,
    Occurrence,
    Term,
    at_fixed,
    counted,
    is_marked,
    may_have,
    repeats_terms,
    term_of,
    weights_of,
)
from tensorexpr.traversal import bound_names, children, fresh_name, map_children, reads, substitute, tensors_read, walk

STORED = 64
"""What storing an element and loading it again costs beside one addition: some 12 bytes of memory at 10 GB/s on one core, a nanosecond, in
which vector lanes of float32 do that many additions."""
ROW = 16
"""Operations of a reduction from which it is a definition of its own where it stands in other loops: a vector of the widest machines."""
NEAR = 1 << 20
"""Bytes of a term that may be stored whatever it reads: half of them stay in the second cache of a core."""
BESIDE = 4
"""What a term of indices alone costs at least: a few additions are no dearer than a load, and where a loop is copied out they are
constants, such as exponents."""


def keep_terms(program: Program) -> Program:
    """Makes tensors of costly terms that reductions compute again and again, and reads them wherever they occur.

    Requires: nothing. Ensures: every value is kept bit for bit, and so is every check of an index.
    """
    types = program.types
    demands: dict[object, Demand] = {}
    weights = weights_of(program)
    forms: Forms = {}
    found = [counted(d, types, weights, demands, forms) if repeats_terms(d) else [] for d in program.definitions]
    chosen = _chosen(program, demands, found)
    if not chosen:
        return program
    taken = {*types, *program.sizes, *(n for d in program.definitions for n, _ in d.results)}
    made: dict[object, str] = {}
    definitions: list[Definition] = []

    def read(term: Term, dtype: DType) -> Access | None:
        """The element of the tensor that a term is; the first one makes it, in front of the definition that is at hand."""
        form = form_of(term.define)
        if form not in chosen:
            return None
        if form not in made:
            made[form] = fresh_name(stem_of(term.define.value), taken)
            definitions.append(named_term(term, made[form], {*program.sizes}))
        return Access(made[form], term.subscripts, dtype)

    heads = {head_of(demands[form].term.define.value) for form in chosen}
    kinds = {(head_of(demands[form].term.define.value), demands[form].cost) for form in chosen}
    for definition in program.definitions:
        if isinstance(definition, Define | Scatter) and may_have(definition, kinds):
            value = _with_reads(definition.value, definition.axes, types, heads, read)
            definition = definition if value is definition.value else replace(definition, value=value)
        definitions.append(definition)
    return with_definitions(program, definitions)


def _chosen(program: Program, demands: Mapping[object, Demand], found: Sequence[Sequence[Occurrence]]) -> set[object]:
    """The terms to be stored: larger ones first, which leave what is inside of them to be computed once in their tensor."""
    places: dict[object, list[tuple[int, Occurrence]]] = {}
    for number, occurrences in enumerate(found):
        for occurrence in occurrences:
            places.setdefault(occurrence.form, []).append((number, occurrence))
    types = program.types
    ends = bytes_of_ends(program)
    chosen: set[object] = set()
    covering: list[list[Occurrence]] = [[] for _ in found]

    def pays(demand: Demand, cost: float, points: float) -> bool:
        if (cost < BESIDE and not reads(demand.term.define)) or repeats(demand.term.define, types):
            return False  # elements of far smaller tensors side by side are written where they are read
        nested = demand.nested and cost >= ROW and cost * demand.elements >= LEAST
        return (nested or saves(cost, points, demand.elements)) and _bytes(demand.term.define.results[0][1]) <= max(
            NEAR, ends, _read(demand.term, types)
        )

    for form in sorted(places, key=lambda f: -sum(1 for _ in walk(demands[f].term.define.value))):
        demand = demands[form]
        left = [(n, o) for n, o in places[form] if not any(c.holds(o) for c in covering[n])]
        if not left:
            continue
        number, one = left[0]
        cost = demand.cost
        apart: list[Occurrence] = []
        for inner in found[number]:
            other = demands[inner.form]
            if one.holds(inner) and other.places > demand.places and not any(a.holds(inner) for a in apart):
                if pays(other, other.cost, other.points):
                    apart.append(inner)
                    cost -= other.cost  # stored for others, too
        if pays(demand, cost, sum(o.points for _, o in left)):
            chosen.add(form)
            for n, o in left:
                covering[n].append(o)
    return chosen


def pays_alone(term: Term, node: Expr, axes: Sequence[Axis], types: Mapping[str, TensorType], ends: float = 0.0) -> bool:
    """Whether a tensor of a term pays by one node alone, inside these axes, and has no more bytes than what it reads or than `ends`."""
    size, around = points(term.define.axes), points(axes)
    if around < REPEATED * size or not saves(cost(node), around, size) or any(map(is_marked, walk(node))):
        return False
    return _bytes(term.define.results[0][1]) <= max(ends, _read(term, types))


def bytes_of_ends(program: Program) -> float:
    """The bytes of all inputs and outputs of a program together."""
    types = program.types
    return sum(_bytes(types[name]) for name in (*(i.name for i in program.inputs), *program.outputs))


def saves(cost: float, computed: float, elements: float) -> bool:
    """Whether to compute a value for each element and store it costs less than to compute it at so many points."""
    return (computed - elements) * cost - STORED * elements >= LEAST


def _bytes(type_: TensorType) -> float:
    return elements(type_.shape) * type_.dtype.itemsize


def _read(term: Term, types: Mapping[str, TensorType]) -> float:
    return sum(_bytes(types[name]) for name in reads(term.define))


def stem_of(value: Expr) -> str:
    """A name for a term: the first tensor that it reads, and what is done with it."""
    tensor = next(iter(tensors_read(value)), "")
    done = value.op.name if isinstance(value, Apply) else value.combiner.name if isinstance(value, Reduce) else "term"
    return f"{tensor}_{done}" if tensor else f"term_{done}"


def named_term(term: Term, name: str, taken: set[str]) -> Define:
    """The definition of a term, its axes called as the indices are at which it is read."""
    taken = taken | set(bound_names(term.define.value))
    names = [fresh_name(e.name if isinstance(e, Index) else "i", taken) for e in term.subscripts]
    value = substitute(term.define.value, {a.index: Index(n) for a, n in zip(term.define.axes, names, strict=True)})
    return Define(name, tuple(Axis(n, a.start, a.stop) for n, a in zip(names, term.define.axes, strict=True)), value)


def _with_reads(
    value: Expr, axes: tuple[Axis, ...], types: Mapping[str, TensorType], heads: set[str], read: Callable[[Term, DType], Access | None]
) -> Expr:
    """A value that reads the tensors which are made wherever it has their terms, which are of some `heads`."""
    if isinstance(value, Access) or is_marked(value) or not children(value):
        return value
    if head_of(value) in heads and value.dtype.is_float and (term := term_of(value, axes, types)) is not None:
        access = read(term, value.dtype)
        if access is not None:
            return access
    inner = (*axes, *value.axes) if isinstance(value, Reduce) else axes
    if isinstance(value, Apply) and value.op.name == "where":
        condition, taken, _ = value.args
        known = at_fixed(taken, condition)
        found = _with_reads(known, axes, types, heads, read)
        if found is not known:
            value = replace(value, args=(condition, found, value.args[2]))
    return map_children(value, lambda child: _with_reads(child, inner, types, heads, read))
