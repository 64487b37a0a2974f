"""What costly terms there are in a program, and at how many points each is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count
from math import prod
from typing import TypeGuard
from weakref import WeakKeyDictionary

from tensorexpr.bounds import PROVED, check_access
from tensorexpr.ir import Access, Apply, Axis, Const, Define, Definition, Expr, Index, Program, Reduce, Scatter, TensorType, const, integer
from tensorexpr.language.core.renaming import Renaming
from tensorexpr.records import record, replace
from tensorexpr.rewrite import head_of
from tensorexpr.simplify.passes.amounts import cost_over, lengths, parts, points
from tensorexpr.simplify.passes.definitions import form_of, formal_of
from tensorexpr.simplify.passes.inline.places import fixed_by, without_fixed
from tensorexpr.simplify.rules.floats import FUNCTION
from tensorexpr.traversal import (
    bound_names,
    children,
    free_names,
    map_children,
    read_occurrences,
    reads,
    substitute,
    tensors_read,
    walk,
)

REPEATED = 2
"""How often each element of a term is computed at least."""
LEAST = 1 << 14
"""Operations saved below which a tensor more is not worth its loops: about a microsecond."""


@record
class Term:
    """A value as a tensor: its definition over axes `%0`, `%1`, ..., and the subscripts at which it is read."""

    define: Define
    subscripts: tuple[Expr, ...]


@record(frozen=False)
class Demand:
    """What is known of a term, by one of its occurrences: the elements of the tensor, what one costs, in how many places it stands, and at
    how many points it is computed in all of them."""

    term: Term
    elements: float
    cost: float
    places: int = 0
    points: float = 0.0
    nested: bool = False
    """Whether it is a reduction in a loop that it does not depend on, at a single place of it or at all."""


@record
class Occurrence:
    """A term in a definition: its form, the nodes of a walk that it covers, and at how many points it is computed."""

    form: object
    first: int
    last: int
    points: float

    def holds(self, other: Occurrence) -> bool:
        """Whether another occurrence stands inside."""
        return self.first < other.first and other.last < self.last


def repeats_terms(definition: Definition) -> TypeGuard[Define | Scatter]:
    """Whether a definition may compute a term again and again: in a reduction, or a function of fewer indices than lie along its rows."""
    if not isinstance(definition, Define | Scatter):
        return False
    if any(isinstance(n, Reduce) for n in walk(definition.value)):
        return True
    names = [axis.index for axis in definition.axes]
    functions = (n for n in walk(definition.value) if isinstance(n, Apply) and n.dtype.is_float and n.op.cost >= FUNCTION)
    return len(names) > 1 and any(names[-1] in (own := free_names(n)) and not set(names) <= set(own) for n in functions)


Kind = tuple[str, float]
"""What terms of one form have in common, and what is known without their form: the operation, and what they cost."""


Sum = tuple[Kind, frozenset[str]]
"""What equal reductions have in common: their kind and the tensors that they read."""


@record
class Weights:
    """What terms of each kind cost in a definition, or in a program, and how often each sum stands there."""

    kinds: dict[Kind, float]
    sums: Counter[Sum]


_weights: WeakKeyDictionary[Definition, Weights] = WeakKeyDictionary()


Found = list[tuple[Occurrence, Demand]]
Forms = dict[object, tuple[dict[str, str], Found]]
"""Occurrences in the first of the definitions of one form, for types of what they read and the kinds that are looked at, and what it calls
the tensors of the form."""


_found: WeakKeyDictionary[Definition, tuple[tuple[TensorType | None, ...], set[Kind], set[Kind], Found]] = WeakKeyDictionary()
"""Occurrences in definitions, for types of what they read and the kinds that are looked at: the simplifier asks again after each round."""


def weights_of(program: Program) -> Weights:
    """The kinds of terms of which some may pay: all that stand in the program are together `LEAST` operations at least. Of most programs
    that are small, none is. And all sums."""
    spent = Weights({}, Counter())
    for definition in program.definitions:
        if not repeats_terms(definition):
            continue
        own = _weights_of(definition)
        spent.sums.update(own.sums)
        for kind, operations in own.kinds.items():
            spent.kinds[kind] = spent.kinds.get(kind, 0.0) + operations
    return Weights({kind: operations for kind, operations in spent.kinds.items() if operations >= LEAST}, spent.sums)


def _weights_of(definition: Define | Scatter) -> Weights:
    """What stands in a definition. Asked for each time: what is known of an equal definition goes when that one does."""
    weights = _weights.get(definition)
    if weights is None:
        weights = _weights[definition] = Weights({}, Counter())
        _weigh(definition.value, definition.axes, prod(max(n, 1.0) for n in lengths(definition.axes).values()), weights)
    return weights


def may_have(definition: Define | Scatter, kinds: set[Kind]) -> bool:
    """Whether a definition may have terms of these kinds. What is computed under a condition costs less where that fixes an index."""
    weights = _weights_of(definition).kinds
    return not kinds.isdisjoint(weights) or any(head == "where" for head, _ in weights)


def _weigh(node: Expr, axes: tuple[Axis, ...], around: float, weights: Weights) -> float:
    """What a node costs, as `cost` has it. Adds what it costs at all points around it, or more, and so for each one inside of it."""
    turns = 1.0
    if isinstance(node, Reduce):
        alone = lengths(node.axes)
        axes = (*axes, *node.axes)
        within = lengths(axes)  # bounds that depend on what is around
        turns = prod(max(alone[axis.index], within[axis.index], 1.0) for axis in node.axes)
    own = cost_over(node, sum(_weigh(part, axes, around * turns, weights) for part in parts(node)))
    if isinstance(node, Apply | Reduce):
        kind = (head_of(node), own)
        weights.kinds[kind] = weights.kinds.get(kind, 0.0) + around * own
        if isinstance(node, Reduce):
            weights.sums[kind, frozenset(tensors_read(node))] += 1
    return own


def counted(
    definition: Define | Scatter, types: Mapping[str, TensorType], program: Weights, demands: dict[object, Demand], forms: Forms
) -> list[Occurrence]:
    """The terms of these kinds inside the reductions of a definition and those that hold reductions, each counted in `demands`; larger ones
    before those inside of them. What is found in one definition is so in all that differ from it in names of tensors, by `forms`."""
    own = _weights_of(definition)
    looked_at = program.kinds.keys() & own.kinds.keys()
    if not looked_at:
        return []
    lone = {kind for kind, _ in own.sums} - {one[0] for one in own.sums if program.sums[one] > 1}
    read = tuple(types.get(name) for name in reads(definition))
    known = _found.get(definition)
    if known is None or known[:3] != (read, looked_at, lone):
        known = _found[definition] = (read, looked_at, lone, _by_form(definition, types, looked_at, lone, forms))
    for occurrence, one in known[3]:
        demand = demands.get(occurrence.form)
        if demand is None:
            demand = demands[occurrence.form] = replace(one)
        demand.points += occurrence.points
        demand.places += 1
        demand.nested |= one.nested
    return [occurrence for occurrence, _ in known[3]]


def _by_form(definition: Define | Scatter, types: Mapping[str, TensorType], kinds: set[Kind], lone: set[Kind], forms: Forms) -> Found:
    formal = formal_of(definition, ordered=False)
    given, called = (definition, {}) if formal is None else formal
    if not called or not isinstance(given, Define):
        return list(_occurrences(definition, types, kinds, lone))
    own = {place: types[name] for place, name in called.items() if name in types}
    key = (given, frozenset(kinds), frozenset(lone), tuple(own.items()))
    if key not in forms:
        forms[key] = called, list(_occurrences(definition, types, kinds, lone))
        return forms[key][1]
    first, found = forms[key]
    rename = Renaming({name: called[place] for place, name in first.items()}, {})
    made: Found = []
    for occurrence, demand in found:
        term = replace(demand.term, define=replace(demand.term.define, value=rename(demand.term.define.value)))
        made.append((replace(occurrence, form=form_of(term.define)), replace(demand, term=term)))
    return made


def _occurrences(
    definition: Define | Scatter, types: Mapping[str, TensorType], kinds: set[Kind], lone: set[Kind]
) -> Iterator[tuple[Occurrence, Demand]]:
    """The occurrences of terms of some kinds in a definition, with what is known of its term; sums of `lone` kinds stand nowhere else."""
    counting = _Counting(definition.value, types, kinds, lone)
    return counting.visit(definition.value, definition.axes, definition.axes[-1:], frozenset())


class _Counting:
    """Counts the terms of one definition. No functions inside of a function: those that call themselves hold themselves and all that they
    have found, and only the collector of cycles frees that."""

    def __init__(self, value: Expr, types: Mapping[str, TensorType], kinds: set[Kind], lone: set[Kind]) -> None:
        self.types = types
        self.kinds, self.lone = kinds, lone
        self.number = count()
        self.about: dict[int, About] = {}
        _enter(value, self.about)
        self.guarded = any((isinstance(n, Reduce) and n.where is not None) or head_of(n) == "where" for n in walk(value))
        self.changed: list[Expr] = []  # what `about` knows by identity lives as long
        self.computed: dict[object, float] = {}
        """A reduction that stands in several places of a definition is computed once for all."""
        self.terms: dict[tuple[Expr, tuple[Axis, ...], int], tuple[object, Term] | None] = {}
        """What stands in several places is the same term in all of them."""

    def visit(
        self, node: Expr, axes: tuple[Axis, ...], loop: tuple[Axis, ...], reduced: frozenset[str]
    ) -> Iterator[tuple[Occurrence, Demand]]:
        """The occurrences in a node inside of a loop, computed at the points of these axes, some of which are those of reductions."""
        first = next(self.number)
        if isinstance(node, Access) or is_marked(node):
            return
        inside: list[tuple[Occurrence, Demand]] = []
        if isinstance(node, Reduce):
            free = self.about[id(node)].free  # a reduction is computed once for the indices that it depends on
            around = (*(axis for axis in axes if axis.index in free), *node.axes)
            around = around if node.where is None else without_fixed(around, node.where)
            for value in node.values:
                inside += self.visit(value, around, node.axes[-1:], reduced | {axis.index for axis in node.axes})
        elif isinstance(node, Apply) and node.op.name == "where":
            condition, taken, otherwise = node.args
            inside += self.visit(condition, axes, loop, reduced)
            if (known := at_fixed(taken, condition)) is not taken:
                _enter(known, self.about)
                self.changed.append(known)
            inside += self.visit(known, without_fixed(axes, condition), loop, reduced)
            inside += self.visit(otherwise, axes, loop, reduced)
        else:
            for child in children(node):
                inside += self.visit(child, axes, loop, reduced)
        about = self.about[id(node)]
        kind = (head_of(node), about.cost)
        if kind not in self.kinds:
            yield from inside
            return
        if not self.guarded and all(axis.index in about.free and _is_whole(axis) for axis in axes):
            # As many elements as there are points: none is computed again, but where the sum stands elsewhere, too.
            inner = not about.free.isdisjoint(reduced)
            if (kind in self.lone and not about.digits) if isinstance(node, Reduce) else (inner and about.plain):
                yield from inside
                return
        own = self._demand(node, axes, loop, reduced, about)
        if own is not None:
            form, demand, around_it = own
            yield Occurrence(form, first, next(self.number), around_it), demand
        yield from inside

    def _demand(
        self, node: Expr, axes: tuple[Axis, ...], loop: tuple[Axis, ...], reduced: frozenset[str], about: About
    ) -> tuple[object, Demand, float] | None:
        """The form of a node that may be a term, what is known of it, and at how many points it is computed where it stands, beside those
        that are counted already."""
        if not isinstance(node, Apply | Reduce) or not node.dtype.is_float or about.marked:
            return None
        fixed, nested = about.free.isdisjoint(reduced), False
        if isinstance(node, Reduce):
            nested = any(a.index not in about.free and lengths((*axes, a))[a.index] > 1 for a in loop)
        if fixed:  # the same in all turns of the reduction: no loop need compute it again, but rows and those around the loop that moves it
            along = bool(loop) and loop[-1].index in about.free and not all(axis.index in about.free for axis in axes)
            if not about.reduces and not (along and about.cost >= FUNCTION):
                return None
            fixed = about.reduces
        if fixed:
            last = max((at for at, axis in enumerate(axes) if axis.index in about.free), default=-1)
            axes = axes[: last + 1]
        around, least = points(axes), 1 if fixed or isinstance(node, Reduce) else REPEATED  # other places may need a sum, too
        key = (node, axes, least)
        if key not in self.terms:
            term = term_of(node, axes, self.types, lambda size: around >= least * size)
            self.terms[key] = None if term is None else (form_of(term.define), term)
        known = self.terms[key]
        if known is None:
            return None
        form, found = known
        if {e.name for e in found.subscripts if isinstance(e, Index)}.issuperset(axis.index for axis in axes):
            around = min(around, points(found.define.axes))  # each point has an element of its own: a condition leaves out the others
        if fixed:
            counted = self.computed.get(form, 0.0)
            around, self.computed[form] = max(around - counted, 0.0), max(around, counted)
        return form, Demand(found, points(found.define.axes), about.cost, nested=nested), around


def _is_whole(axis: Axis) -> bool:
    """Whether an axis begins at 0 and has an extent that is known."""
    return axis.start == const(0) and isinstance(axis.stop, Const)


@record
class About:
    """What stands in a node: its free indices, whether a reduction does, whether something marked `recompute` does, whether all subscripts
    are indices or literals, and whether digits of an index do; and what it costs."""

    free: frozenset[str]
    reduces: bool
    marked: bool
    plain: bool
    digits: bool
    cost: float


def _enter(node: Expr, found: dict[int, About]) -> About:
    """Enters what stands in a node and in those inside of it, by identity."""
    known = found.get(id(node))
    if known is not None:
        return known
    free: frozenset[str] = frozenset((node.name,)) if isinstance(node, Index) else frozenset()
    reduces, marked = isinstance(node, Reduce), is_marked(node)
    plain = not isinstance(node, Access) or all(isinstance(e, Index | Const) for e in node.indices)
    digits = isinstance(node, Apply) and node.op.name in ("floordiv", "mod")
    for child in children(node):
        below = _enter(child, found)
        free, reduces, marked = free | below.free, reduces or below.reduces, marked or below.marked
        plain, digits = plain and below.plain, digits or below.digits
    if isinstance(node, Reduce):
        free = frozenset(free_names(node))  # bounds may use names that the reduction binds further on
    found[id(node)] = About(free, reduces, marked, plain, digits, cost_over(node, sum(found[id(part)].cost for part in parts(node))))
    return found[id(node)]


def at_fixed(taken: Expr, condition: Expr) -> Expr:
    """What is computed under a condition, with the only values that it allows for these indices inside of reductions: sums for one row of
    `where(t[i] == j, sum(f(x[i, k], x[i, j]) for k), 0.0)` depend on i alone."""
    fixed = fixed_by(condition)
    return _in_reductions(taken, fixed, {n for e in fixed.values() for n in free_names(e)}) if fixed else taken


def _in_reductions(node: Expr, fixed: Mapping[str, Expr], names: set[str]) -> Expr:
    if isinstance(node, Reduce):
        return node if fixed.keys().isdisjoint(free_names(node)) or not names.isdisjoint(bound_names(node)) else substitute(node, fixed)
    return node if isinstance(node, Access) else map_children(node, lambda child: _in_reductions(child, fixed, names))


def is_marked(node: Expr) -> bool:
    return isinstance(node, Apply) and node.op.name == "recompute"


def term_of(
    node: Expr, axes: Sequence[Axis], types: Mapping[str, TensorType], fits: Callable[[float], bool] = lambda size: True
) -> Term | None:
    """A node, inside these axes, as a tensor that can be computed everywhere; None where there is none, or it does not have a number of
    elements that `fits`."""
    if any(isinstance(n, Access) and n.tensor not in types for n in walk(node)):
        return None
    large: list[Mapping[Expr, Expr]] = []  # neither terms nor proofs are made for what is too large in any case
    for whole in (True, False):
        keys = _keys(node, axes, types, whole)
        if keys is None:
            continue
        if not fits(points(_axes(keys.values()))):
            large.append(keys)
            continue
        found = _over(node, keys)
        if found is None:
            continue
        if any(t is not None and all_exist(t.define.value, t.define.axes, types) for t in (_over(node, other) for other in large)):
            return None
        if all_exist(found.define.value, found.define.axes, types):
            return found
    return None


def _axes(extents: Iterable[Expr]) -> tuple[Axis, ...]:
    """Axes of a term with these extents."""
    return tuple([Axis(f"%{at}", const(0), extent) for at, extent in enumerate(extents)])


def _keys(node: Expr, axes: Sequence[Axis], types: Mapping[str, TensorType], whole: bool) -> dict[Expr, Expr] | None:
    """What a node depends on, each with its extent: with `whole` the subscripts of what it always reads, else its free indices."""
    ranges = {axis.index: axis for axis in axes}
    found: dict[Expr, Expr] = {}
    needed: dict[str, dict[Expr, None]] = {}
    if not whole and not any(isinstance(n, Reduce) for n in walk(node)):
        needed = {name: {Index(name): None} for name in free_names(node)}
    elif whole and not _certain(node, types, found):
        return None
    else:
        _beside(node, frozenset(), found, needed)
    for name, ways in needed.items():
        axis = ranges.get(name)
        if axis is None or axis.start != const(0) or any(isinstance(n, Access | Index) for n in walk(axis.stop)):
            return None
        (way,) = ways if len(ways) == 1 and isinstance(axis.stop, Const) else (Index(name),)
        if isinstance(way, Apply):  # the same for all that differ in the other digit alone
            extent, step = integer(axis.stop), integer(way.args[1])
            found[way] = const(min(extent, step) if way.op.name == "mod" else -(-extent // step))
        else:
            found[way] = axis.stop
    return found if found or isinstance(node, Reduce) else None


def _certain(expr: Expr, types: Mapping[str, TensorType], found: dict[Expr, Expr]) -> bool:
    """Collects the subscripts of the elements that are read whenever a node is computed; says whether their extents agree."""
    if isinstance(expr, Access):
        shape = types[expr.tensor].shape
        return all(found.setdefault(e, extent) == extent for e, extent in zip(expr.indices, shape, strict=True) if free_names(e))
    if isinstance(expr, Apply) and expr.op.name == "where":
        return _certain(expr.args[0], types, found)
    return isinstance(expr, Reduce) or all(_certain(child, types, found) for child in children(expr))


def _beside(expr: Expr, bound: frozenset[str], found: Mapping[Expr, Expr], needed: dict[str, dict[Expr, None]]) -> None:
    """Collects the free indices that stand beside the subscripts that were found, each with the ways in which it stands there: by itself,
    or as one of its digits, `i // 8` or `i % 8`."""
    if isinstance(expr, Apply) and expr.op.name in ("floordiv", "mod"):
        index, step = expr.args
        if isinstance(index, Index) and isinstance(step, Const) and step.value > 0 and index.name not in bound and expr not in found:
            needed.setdefault(index.name, {}).setdefault(expr)
            return
    if isinstance(expr, Index) and expr.name not in bound and expr not in found:
        needed.setdefault(expr.name, {}).setdefault(expr)
    inner = bound | {axis.index for axis in expr.axes} if isinstance(expr, Reduce) else bound
    for child in children(expr):
        if not (isinstance(expr, Access) and child in found):
            _beside(child, inner, found, needed)


def _over(node: Expr, keys: Mapping[Expr, Expr]) -> Term | None:
    """The node over its keys, those of the element with most of them first and in its order; None where an index is left."""
    accesses = [n for n in walk(node) if isinstance(n, Access)]
    accesses.sort(key=lambda access: -sum(subscript in keys for subscript in access.indices))
    order = list(dict.fromkeys([*(e for access in accesses for e in access.indices if e in keys), *keys]))
    names: dict[Expr, Expr] = {key: Index(f"%{at}") for at, key in enumerate(order)}
    value = _under(node, names)  # what a reduction inside binds has a name of its own, which no key has
    axes = _axes([keys[key] for key in order])
    return Term(Define("", axes, value), tuple(order)) if {a.index for a in axes}.issuperset(free_names(value)) else None


def _under(expr: Expr, names: Mapping[Expr, Expr]) -> Expr:
    """An expression with others for some of its parts."""
    return names.get(expr) or map_children(expr, lambda child: _under(child, names))


def all_exist(value: Expr, axes: tuple[Axis, ...], types: Mapping[str, TensorType]) -> bool:
    """Whether each element that a value reads exists at all points of these axes."""
    called = {name: str(place) for place, name in enumerate(tensors_read(value))}  # layers of a model differ in names alone
    return _all_exist(axes, Renaming(called, {})(value), tuple(types[name].shape for name in called))


@lru_cache(4096)
def _all_exist(axes: tuple[Axis, ...], value: Expr, shapes: tuple[tuple[Expr, ...], ...]) -> bool:
    """As `all_exist`, which asks for equal terms at every place where they stand, and again in each round of the simplifier."""
    return all(
        verdict is PROVED
        for access, around, guards in read_occurrences(value, axes)
        for verdict in check_access(access.indices, shapes[int(access.tensor)], around, guards)
    )
