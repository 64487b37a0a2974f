"""Passes over whole definitions: their expressions simplified, what nobody reads removed, what is computed twice shared.

Passes are linear in the number of definitions and never recur over chains of them. A definition that a pass has settled
(nothing left to do) is remembered, so that running the passes to a fixpoint costs little more than running them once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from tensorexpr.ir import (
    FALSE,
    TRUE,
    Access,
    Apply,
    Axis,
    Define,
    Definition,
    Expr,
    Index,
    Program,
    Reduce,
    Scan,
    Scatter,
    Segments,
    const,
)
from tensorexpr.language.core.renaming import renamed
from tensorexpr.records import replace
from tensorexpr.rewrite import RuleSet, rewrite
from tensorexpr.simplify.domains import narrowed_scatter
from tensorexpr.simplify.expressions import Simplifier
from tensorexpr.simplify.facts.context import Context
from tensorexpr.simplify.options import STRICT, Options
from tensorexpr.simplify.rules.common import choose_branch, fold_cast
from tensorexpr.simplify.rules.common import fold_constants as fold_operation
from tensorexpr.simplify.rules.reduce import identity_value
from tensorexpr.traversal import bottom_up, children, expressions, fresh_name, map_children, map_expressions, reads, tensors_read, walk

_FOLDING = RuleSet((fold_operation, fold_cast, choose_branch))
MOST_STEPS = 20
LEAST_SHARED = 24
"""Definitions of a program from which those that are equal but for names are simplified once: few have equal ones in a short program."""


Formal = tuple[Definition, dict[str, str]] | None

_forms: WeakKeyDictionary[Definition, object] = WeakKeyDictionary()
"""`form_of` of definitions, of which each round of the simplifier changes few."""


class Settled:
    """Remembers on which definitions a pass has nothing to do, for as long as they live: a program that is gone leaves nothing here."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Definition, dict[object, None]] = WeakKeyDictionary()

    def apply(self, definition: Definition, setting: object, change: Callable[[Definition], Definition]) -> Definition:
        """The definition after `change`, repeated until nothing is left to do in this setting."""
        for _ in range(MOST_STEPS):
            if self.knows(definition, setting):
                break
            result = change(definition)
            if result == definition:
                self.enter(definition, setting)
                break
            definition = result
        return definition

    def knows(self, definition: Definition, setting: object) -> bool:
        """Whether nothing is left to do."""
        return setting in self._known.get(definition, ())

    def enter(self, definition: Definition, setting: object) -> None:
        """Remembers that nothing is left to do."""
        self._known.setdefault(definition, {})[setting] = None


def with_definitions(program: Program, definitions: Iterable[Definition]) -> Program:
    """The program with other definitions, the same object where they are the same objects."""
    found = tuple(definitions)
    if len(found) == len(program.definitions) and all(a is b for a, b in zip(found, program.definitions, strict=True)):
        return program
    return replace(program, definitions=found)


def map_definitions(
    program: Program,
    options: Options,
    settled: Settled,
    change: Callable[[Definition, Simplifier, Context], Definition],
    before: Program | None = None,
) -> Program:
    """The program with `change` applied to each definition in its context; the bodies of scans, too. Definitions that are those of a
    program `before` are left as they are.

    What decides something in derived formulas is simplified as the user's formulas are.
    """
    deciding = deciding_tensors(program.definitions) if options.derived else frozenset()

    def visit(definition: Definition, simplifier: Simplifier, context: Context) -> Definition:
        if not isinstance(definition, Scan):
            exact = any(name in deciding for name, _ in definition.results)
            return change(definition, simplifier.exact if exact else simplifier, context)
        inner = context.inside(Axis(definition.step, const(0), definition.length))
        body = tuple(visit(d, simplifier, inner) for d in definition.body)
        return definition if all(a is b for a, b in zip(body, definition.body, strict=True)) else replace(definition, body=body)

    shapes = {name: type_.shape for name, type_ in program.types.items()}
    forms: dict[object, Definition] = {}

    def run(definition: Definition) -> Definition:
        exact = tuple(name in deciding for name in names_of(definition))
        setting = (options, exact, program.sizes, tuple(shapes.get(name) for name in reads(definition)))
        if settled.knows(definition, setting):
            return definition
        formal = formal_of(definition) if len(program.definitions) >= LEAST_SHARED else None
        if formal is None or not isinstance(definition, Define):
            return alone(definition, setting, shapes, any(exact))
        given, called = formal
        key = (given, setting, tuple(node.location for node in walk(definition.value) if isinstance(node, Access)))
        if key not in forms:
            forms[key] = alone(given, setting, {name: shapes[own] for name, own in called.items()}, any(exact))
        found = forms[key]
        if found == given:
            settled.enter(definition, setting)
            return definition
        found = replace(renamed(found, called, {}), location=definition.location)
        settled.enter(found, setting)
        return found

    def alone(definition: Definition, setting: object, shapes: Mapping[str, tuple[Expr, ...]], exact: bool) -> Definition:
        simplifier: Simplifier | None = None

        def once(given: Definition) -> Definition:
            nonlocal simplifier
            if simplifier is None:
                inner = {**shapes, **_inner_shapes(definition)} if isinstance(definition, Scan) else shapes
                simplifier = Simplifier(program.sizes, options, inner)
            if isinstance(given, Scan):
                return visit(given, simplifier, simplifier.outermost)
            return change(given, simplifier.exact if exact else simplifier, simplifier.outermost)

        return settled.apply(definition, setting, once)

    left = frozenset() if before is None else frozenset(map(id, before.definitions))
    return with_definitions(program, (d if id(d) in left else run(d) for d in program.definitions))


def formal_of(definition: Definition, ordered: bool = True) -> Formal:
    """A definition in which tensors are called by their places, in the order of their names where that is `ordered`, else as they come, and
    what each of these is: layers of a model differ in names alone. None where integers are read, of which expressions are ordered by
    their text."""
    try:
        known: dict[bool, Formal] = definition._formal
    except AttributeError:
        known = {}
        object.__setattr__(definition, "_formal", known)
    if ordered not in known:
        known[ordered] = _made_formal(definition, ordered)
    return known[ordered]


def _made_formal(definition: Definition, ordered: bool) -> Formal:
    if not isinstance(definition, Define) or any(isinstance(n, Access) and n.dtype.is_integer for n in walk(definition.value)):
        return None
    names = dict.fromkeys((definition.name, *reads(definition)))
    called = {name: f"%{place:06d}" for place, name in enumerate(sorted(names) if ordered else names)}
    return replace(renamed(definition, called, {}), location=None), {formal: name for name, formal in called.items()}


def names_of(definition: Definition) -> Iterator[str]:
    """The tensors that a definition defines, those inside of a scan included."""
    yield from (name for name, _ in definition.results)
    if isinstance(definition, Scan):
        for inner in definition.body:
            yield from names_of(inner)


def deciding_tensors(definitions: Iterable[Definition]) -> frozenset[str]:
    """The tensors that conditions, subscripts, bounds and integers read, and all those that these are computed from."""
    sources: dict[str, tuple[str, ...]] = {}
    todo: list[str] = []

    def enter(definition: Definition) -> None:
        if isinstance(definition, Scan):
            for inner in definition.body:
                enter(inner)
            for name, (state, _), ends in zip(
                definition.names, definition.states, zip(definition.inits, definition.nexts, strict=True), strict=True
            ):
                sources[name] = sources[state] = ends
            todo.extend(_read_by_integers(definition.length))
            return
        for name, _ in definition.results:
            sources[name] = reads(definition)
        for expr in expressions(definition):
            todo.extend(_read_by_integers(expr))

    for definition in definitions:
        enter(definition)
    found: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo.extend(sources.get(name, ()))
    return frozenset(found)


def _read_by_integers(expr: Expr) -> Iterator[str]:
    """The tensors read inside of the parts of an expression that are no floats."""
    stack = [(expr, False)]
    while stack:
        node, inside = stack.pop()
        inside = inside or not node.dtype.is_float
        if inside and isinstance(node, Access):
            yield node.tensor
        stack.extend((child, inside) for child in children(node))


def _inner_shapes(scan: Scan) -> dict[str, tuple[Expr, ...]]:
    """The shapes of the tensors local to a scan."""
    found = {name: type_.shape for name, type_ in scan.states}
    for inner in scan.body:
        found.update((name, type_.shape) for name, type_ in inner.results)
        if isinstance(inner, Scan):
            found.update(_inner_shapes(inner))
    return found


# ----------------------------------------------------------------------------------------------------------- expressions


def fold_constants(program: Program) -> Program:
    """Replaces operations on literals, and selections by a literal condition, by their value.

    Requires: nothing. Ensures: no operation has literal operands only; every value is kept.
    """
    return with_definitions(program, (map_expressions(d, lambda e: rewrite(e, _FOLDING)) for d in program.definitions))


def drop_stop_gradients(program: Program) -> Program:
    """Takes away the marks `stop_gradient`, which have done their work when a program is compiled.

    Requires: nobody differentiates the result. Ensures: no operation is a `stop_gradient`; every value is kept.
    """

    def plain(expr: Expr) -> Expr:
        return expr.args[0] if isinstance(expr, Apply) and expr.op.name == "stop_gradient" else expr

    def visit(expr: Expr) -> Expr:
        return bottom_up(expr, plain) if any(isinstance(n, Apply) and n.op.name == "stop_gradient" for n in walk(expr)) else expr

    return with_definitions(program, (map_expressions(d, visit) for d in program.definitions))


_SIMPLE = Settled()


def simplify_indices(program: Program, before: Program | None = None, options: Options = STRICT) -> Program:
    """Simplifies every expression under its axes and guards: subscripts, bounds, conditions, and the values around them.

    Requires: definitions that are those of a program `before` are in that form. Ensures: indices are in normal form, no condition is
    decided by its context, every value is kept; shapes of definitions stay as they are.
    """
    return map_definitions(program, options, _SIMPLE, _simple, before)


def narrow_domains(program: Program, options: Options = STRICT) -> Program:
    """Makes reductions and scatters run over no more points than their conditions allow, and simplifies as `simplify_indices` does.

    Requires: nothing. Ensures: conditions over index arithmetic are bounds of axes where bounds can say them, axes that are
    determined by others are gone; every value is kept, points combine in the same order.
    """
    return map_definitions(program, replace(options, narrow=True), _SIMPLE, _simple)


def factor_reductions(program: Program, options: Options = STRICT) -> Program:
    """Moves factors that do not depend on the axes out of sums of integers; of floats where the options allow reassociation.

    Requires: nothing. Ensures: no sum of integers has a factor that is the same at all its points; every value is kept.
    """
    return map_definitions(program, replace(options, factor=True), _SIMPLE, _simple)


def _simple(definition: Definition, simplifier: Simplifier, context: Context) -> Definition:
    match definition:
        case Define():
            inner = simplifier.enter(definition.axes, context)
            if inner.is_empty():
                return definition
            value = simplifier.visit(definition.value, inner)
            return definition if value is definition.value else replace(definition, value=value)
        case Scatter():
            axes, inner = simplifier.axes(definition.axes, context)
            where = TRUE if definition.where is None else simplifier.visit(definition.where, inner)
            if where == FALSE or inner.is_empty():
                return untouched(definition)
            inner = inner.assuming([where])
            indices = tuple(simplifier.visit(e, inner, True) for e in definition.indices)
            value = simplifier.visit(definition.value, inner)
            axes = tuple(a for a in axes if a.index not in inner.fixed)
            guard = None if where == TRUE else where
            before = (*definition.axes, *definition.indices, definition.where, definition.value)
            after = (*axes, *indices, guard, value)
            if len(before) != len(after) or any(a is not b for a, b in zip(before, after, strict=True)):
                definition = replace(definition, axes=axes, indices=indices, where=guard, value=value)
            return narrowed_scatter(definition, context) if simplifier.options.narrow else definition
        case Segments():
            inner = simplifier.enter(definition.loops, context)
            if inner.is_empty():
                return definition
            where = TRUE if definition.where is None else simplifier.visit(definition.where, inner)
            keys = tuple(simplifier.visit(e, inner.assuming([where]), True) for e in definition.keys)
            guard = None if where == TRUE else where
            same = guard is definition.where and all(a is b for a, b in zip(keys, definition.keys, strict=True))
            return definition if same else replace(definition, keys=keys, where=guard)
    return definition


def untouched(scatter: Scatter) -> Define:
    """The tensor of a scatter that reaches no element: the identity of its combiner everywhere."""
    taken: set[str] = set()
    axes = tuple(Axis(fresh_name(f"i{at}", taken), const(0), stop) for at, stop in enumerate(scatter.type.shape))
    return Define(scatter.name, axes, identity_value(scatter.combine, scatter.type.dtype), scatter.location)


# --------------------------------------------------------------------------------------------------------- dead and equal


def remove_dead_definitions(program: Program) -> Program:
    """Removes definitions and constants that no output needs; in scans, states that no result in use depends on.

    Requires: nothing. Ensures: every definition is read by a later one or is an output; inputs and outputs stay.
    """
    needed = set(program.outputs)
    kept: list[Definition] = []
    for definition in reversed(program.definitions):
        if not any(name in needed for name, _ in definition.results):
            continue
        live = _live_scan(definition, needed) if isinstance(definition, Scan) else definition
        kept.append(live)
        needed.update(reads(live))
    result = with_definitions(program, reversed(kept))
    constants = tuple(c for c in program.constants if c.name in needed)
    return result if len(constants) == len(program.constants) else replace(result, constants=constants)


def _live_scan(scan: Scan, needed: set[str]) -> Scan:
    """The scan without body definitions and states that the needed results do not depend on."""
    by_state = dict(zip((name for name, _ in scan.states), range(len(scan.states)), strict=True))
    defined = {name: d for d in scan.body for name, _ in d.results}
    states = [at for at, name in enumerate(scan.names) if name in needed]
    todo = [scan.nexts[at] for at in states]
    live: set[str] = set()
    while todo:
        name = todo.pop()
        if name in live:
            continue
        live.add(name)
        if name in by_state and by_state[name] not in states:
            states.append(by_state[name])
            todo.append(scan.nexts[by_state[name]])
        if name in defined:
            todo.extend(reads(defined[name]))
    body = tuple(d for d in scan.body if any(name in live for name, _ in d.results))
    if len(states) == len(scan.states) and len(body) == len(scan.body):
        return scan
    states.sort()

    def pick(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(items[at] for at in states)

    return replace(scan, names=pick(scan.names), states=pick(scan.states), inits=pick(scan.inits), nexts=pick(scan.nexts), body=body)


def rename_reads(definition: Definition, names: dict[str, str]) -> Definition:
    """The definition reading other tensors: names on the left are read under the names on the right."""
    found = reads(definition)
    if not any(name in names for name in found):
        return definition
    if isinstance(definition, Scan):
        inits = tuple(names.get(name, name) for name in definition.inits)
        definition = replace(definition, inits=inits, body=tuple(rename_reads(d, names) for d in definition.body))

    def renamed(node: Expr) -> Expr:
        return replace(node, tensor=names[node.tensor]) if isinstance(node, Access) and node.tensor in names else node

    return definition if isinstance(definition, Scan) else map_expressions(definition, lambda e: bottom_up(e, renamed))


def share_definitions(program: Program) -> Program:
    """Computes once what several definitions compute in the same way, up to the names of indices.

    Requires: nothing. Ensures: no two definitions differ in names only; an output that equals another tensor is a copy of it.
    """
    names: dict[str, str] = {}
    first: dict[object, Definition] = {}
    kept: list[Definition] = []
    for definition in program.definitions:
        definition = rename_reads(definition, names) if names else definition
        form = _forms.get(definition)
        if form is None:
            form = _forms[definition] = form_of(definition)
        known = first.setdefault(form, definition)
        if known is definition or _is_copy(definition):
            kept.append(definition)
            continue
        for (name, type_), (other, _) in zip(definition.results, known.results, strict=True):
            if name in program.outputs:
                taken: set[str] = set()
                axes = tuple(Axis(fresh_name(f"i{at}", taken), const(0), stop) for at, stop in enumerate(type_.shape))
                value = Access(other, tuple(Index(a.index) for a in axes), type_.dtype, definition.location)
                kept.append(Define(name, axes, value, definition.location))
            names[name] = other
    return with_definitions(program, kept)


def _is_copy(definition: Definition) -> bool:
    return isinstance(definition, Define) and isinstance(definition.value, Access)


def form_of(definition: Definition) -> object:
    """What a definition computes, with its own names replaced by positions: equal and hashed for definitions that compute the same."""
    numbering = _Numbering()
    match definition:
        case Define():
            return ("define", numbering.axes(definition.axes), numbering.expr(definition.value))
        case Scatter():
            axes = numbering.axes(definition.axes)
            where = None if definition.where is None else numbering.expr(definition.where)
            indices = tuple(numbering.expr(e) for e in definition.indices)
            value = numbering.expr(definition.value)
            return ("scatter", definition.type, axes, indices, where, value, definition.combine, definition.lowering)
        case Segments():
            return _sorted_by(definition, numbering)
    locals_ = [name for name, _ in definition.states] + [name for d in definition.body for name, _ in d.results]
    numbering.index(definition.step)
    renamed = {name: f"@{at}" for at, name in enumerate(locals_)}
    body = tuple(_shape_of_local(rename_reads(d, renamed), numbering) for d in definition.body)
    types = tuple(t for _, t in definition.states)
    return ("scan", definition.length, types, definition.inits, body, tuple(renamed.get(n, n) for n in definition.nexts))


def _sorted_by(definition: Segments, numbering: _Numbering) -> object:
    batch, axes = numbering.axes(definition.batch), numbering.axes(definition.axes)
    where = None if definition.where is None else numbering.expr(definition.where)
    return ("segments", definition.extents, batch, axes, tuple(map(numbering.expr, definition.keys)), where)


def _shape_of_local(definition: Definition, outer: _Numbering) -> object:
    # Bodies see the step of the scan around them; nested scans and their own axes are numbered after it.
    if not isinstance(definition, Define | Segments):
        return definition
    inner = _Numbering(dict(outer.names))
    if isinstance(definition, Segments):
        return _sorted_by(definition, inner)
    return ("define", inner.axes(definition.axes), inner.expr(definition.value))


class _Numbering:
    """Renames indices by the order in which they are bound."""

    def __init__(self, names: dict[str, Expr] | None = None) -> None:
        self.names: dict[str, Expr] = names or {}
        self._count = len(self.names)

    def index(self, name: str) -> str:
        """The next number, for an index that is bound here."""
        fresh = f"#{self._count}"
        self._count += 1
        self.names[name] = Index(fresh)
        return fresh

    def axes(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        found = []
        for axis in axes:
            start, stop = self.expr(axis.start), self.expr(axis.stop)
            found.append(Axis(self.index(axis.index), start, stop))
        return tuple(found)

    def expr(self, expr: Expr) -> Expr:
        if isinstance(expr, Index):
            return self.names.get(expr.name, expr)
        if isinstance(expr, Reduce):
            axes = self.axes(expr.axes)
            where = None if expr.where is None else self.expr(expr.where)
            return replace(expr, axes=axes, where=where, values=tuple(self.expr(v) for v in expr.values))
        return map_children(in_order(expr), self.expr)


def in_order(expr: Expr) -> Expr:
    """A sum or product of two floats with the one first that reads the tensor with the lesser name: the same value in either order."""
    if isinstance(expr, Apply) and expr.op.name in ("add", "mul") and expr.dtype.is_float:
        first, second = expr.args
        if tensors_read(second) < tensors_read(first):
            return Apply(expr.op, (second, first))
    return expr
