"""The pass: reductions whose terms many results share become reads of running tables, where a count of operations says that it pays.

In the steps of a scan as well: a prefix maximum of each row of an alignment is a scan in the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, reduce
from math import prod

from tensorexpr.algebra.counts import OPEN, counted
from tensorexpr.algebra.monoids import Monoid
from tensorexpr.algebra.sharing import Shared, Site, sharings
from tensorexpr.algebra.tables import MOST_STEPS, Shapes, Tables
from tensorexpr.bounds import interval
from tensorexpr.integers.solving.effort import DomainTooComplex, at_most
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Define, Definition, Expr, Program, Reduce, Scan, apply, conjuncts, const
from tensorexpr.records import replace
from tensorexpr.rewrite.passes import run_passes
from tensorexpr.simplify import simplify
from tensorexpr.simplify.passes.inline.worth import without_literals
from tensorexpr.traversal import free_names, map_children, negate, walk

MOST_ROUNDS = 8
"""A reduction over a box of n axes takes n rounds, one for each axis."""
MOST_COPIES = 2
"""A table may have so many times the elements that its terms read, or that the definition has."""

EXACT = {"where", "neg", "abs", "minimum", "maximum"}
"""Operations that round nothing."""


def with_recurrences(program: Program) -> Program:
    """A simplified program with reductions over prefixes, suffixes and wide windows as running tables, simplified again.

    The same object where there are none. Every value is kept but for the order in which floats are added and multiplied, and for the
    place where a factor that all terms of a sum share is multiplied in; integers, comparisons and what is undefined stay as they are.
    """
    for _ in range(MOST_ROUNDS):
        before = program
        program = run_passes(program, [share_terms])
        if program is before:
            break
        program = simplify(program)
    return program


def share_terms(program: Program) -> Program:
    """Replaces each reduction along one axis whose terms do not depend on what moves its bounds by reads of a table along that axis; a sum
    over a triangle of products that come apart, too.

    Requires: a simplified program, so that conditions over index arithmetic are bounds. Ensures: what is read is in bounds, provably;
    every value is kept up to the order of sums and products of floats.
    """
    if not any(map(_reduces, program.definitions)):
        return program
    return _Sharing(program).run()


def _reduces(definition: Definition) -> bool:
    if isinstance(definition, Scan):
        return any(map(_reduces, definition.body))
    return isinstance(definition, Define) and any(isinstance(n, Reduce) for n in walk(definition.value))


class _Sharing:
    def __init__(self, program: Program) -> None:
        self.program = program
        types = program.types
        self.shapes = {name: type_.shape for name, type_ in types.items()}
        self.taken = {*types, *program.sizes, *(n for d in program.definitions for n in _local(d))}
        self.sources = {name: d for d in program.definitions for name, _ in d.results}
        self.made: list[Definition] = []
        self.steps: tuple[Axis, ...] = ()
        self.owner: Define

    def run(self) -> Program:
        found = self.shared(self.program.definitions)
        same = found is self.program.definitions
        return self.program if same else replace(self.program, definitions=found)

    def shared(self, definitions: tuple[Definition, ...]) -> tuple[Definition, ...]:
        """Definitions with their reductions replaced, the tables in front of those that read them; in a scan, of each step."""
        found: list[Definition] = []
        for definition in definitions:
            if isinstance(definition, Scan) and _reduces(definition):
                inner = dict(definition.states), *(dict(d.results) for d in definition.body)
                self.shapes |= {name: type_.shape for types in inner for name, type_ in types.items()}
                self.sources |= {name: d for d in definition.body for name, _ in d.results}
                around, self.steps = self.steps, (*self.steps, Axis(definition.step, const(0), definition.length))
                body, self.steps = self.shared(definition.body), around
                definition = definition if body is definition.body else replace(definition, body=body)
            elif isinstance(definition, Define) and _reduces(definition):
                self.made, self.owner = [], definition
                value = self.visit(definition.value, definition.axes, ())
                found += self.made
                definition = definition if value is definition.value else replace(definition, value=value)
            found.append(definition)
        same = len(found) == len(definitions) and all(a is b for a, b in zip(found, definitions, strict=True))
        return definitions if same else tuple(found)

    def visit(self, expr: Expr, axes: tuple[Axis, ...], guards: tuple[Expr, ...]) -> Expr:
        """An expression with its reductions replaced, those inside others first."""
        if isinstance(expr, Reduce):
            inner, holding = (*axes, *expr.axes), (*guards, *conjuncts(expr.where))
            values = tuple(self.visit(v, inner, holding) for v in expr.values)
            if any(a is not b for a, b in zip(values, expr.values, strict=True)):
                return replace(expr, values=values)
            return self.reduction(expr, axes, guards)
        if isinstance(expr, Apply) and expr.op.name == "where":
            condition, taken, otherwise = expr.args
            parts = (
                self.visit(condition, axes, guards),
                self.visit(taken, axes, (*guards, *conjuncts(condition))),
                self.visit(otherwise, axes, (*guards, negate(condition))),
            )
            return expr if all(a is b for a, b in zip(parts, expr.args, strict=True)) else Apply(expr.op, parts)
        return map_children(expr, lambda child: self.visit(child, axes, guards))

    def reduction(self, expr: Reduce, axes: tuple[Axis, ...], guards: tuple[Expr, ...]) -> Expr:
        """A reduction as reads of tables; itself where none can be made or none pays."""
        if expr.combiner.name in ("argmax", "argmin") and len(expr.axes) > 1:
            return expr  # the position is one among all points
        steps = {step.index for step in self.steps}  # tables have one shape in all of them
        if any(not steps.isdisjoint(free_names(e)) for a in expr.axes for e in (a.start, a.stop, *conjuncts(expr.where))):
            return expr
        guards = tuple(g for g in guards if steps.isdisjoint(free_names(g)))
        extents = tuple(axis.stop for axis in self.owner.axes)
        for way in ways(expr, axes, guards, self.shapes, extents):
            if all(way.moving) and expr.combiner.name in ("argmax", "argmin"):
                continue  # two winners to compare where the position is read, which may be often
            taken = set(self.taken)
            tables = Tables(way, Monoid(way.site.reduction), self.shapes, self.owner.name, taken, self.owner.location, self.steps)
            found = tables.result()
            if found is not None:
                self.made += tables.definitions
                self.taken, self.shapes = taken, tables.shapes
                return found
        return self.apart(expr, axes, guards) or expr

    def apart(self, expr: Reduce, axes: tuple[Axis, ...], guards: tuple[Expr, ...]) -> Expr | None:
        """A sum along an axis whose bounds others move, of addends that are products that come apart, as their sums one by one:

            sum(a[t] * x[k] + c[t] for t for k in range(t + 1))   -->   sum(a[t] * prefix[t] + c[t] * (t + 1) for t)

        None where an addend has no table, or where two of them have no rounding of their own: ``x[k] - m[t]`` of two inputs may be far
        smaller than these, and exact. Next to a product its rounding error is as large as that of the sums.
        """
        if expr.combiner.name != "sum" or not expr.combiner.is_builtin or expr.where is not None or not expr.dtype.is_float:
            return None
        for axis in reversed(expr.axes):
            others = tuple(a for a in expr.axes if a is not axis)
            moved = {*free_names(axis.start), *free_names(axis.stop)}
            moves = {name for a in others for name in (*free_names(a.start), *free_names(a.stop))}
            if axis.index in moves or moved.isdisjoint(a.index for a in (*axes, *others)):
                continue
            parts = tuple(_addends(expr.values[0]))
            for addends in [(("add", expr.values[0]),), *([parts] if sum(not self.is_rounded(e) for _, e in parts) < 2 else [])]:
                before = list(self.made), self.taken, self.shapes
                value = self._one_by_one(replace(expr, axes=(axis,)), addends, (*axes, *others), guards)
                if value is not None:
                    some = apply("lt", axis.start, axis.stop)  # a factor of no points may be infinite
                    value = apply("where", some, value, Const(0, expr.dtype))
                    return replace(expr, values=(value,), axes=others) if others else value
                self.made, self.taken, self.shapes = before
        return None

    def is_rounded(self, value: Expr) -> bool:
        """Whether a number has a rounding error of its own, as what is read has not."""
        value = without_literals(value)
        if isinstance(value, Access):
            source = self.sources.get(value.tensor)
            return isinstance(source, Scan) or (isinstance(source, Define) and self.is_rounded(source.value))
        if isinstance(value, Apply) and value.op.name in EXACT:
            return all(map(self.is_rounded, value.args[1:] if value.op.name == "where" else value.args))
        return value.combiner.name == "sum" if isinstance(value, Reduce) else isinstance(value, Apply) and value.dtype.is_float

    def _one_by_one(
        self, expr: Reduce, addends: tuple[tuple[str, Expr], ...], axes: tuple[Axis, ...], guards: tuple[Expr, ...]
    ) -> Expr | None:
        """The sum over one axis of some addends, each a product with what a table has, or with the number of points; None where one has
        none, and of a single one that does not come apart."""
        (axis,) = expr.axes
        value: Expr | None = None
        for op, addend in addends:
            loose, rest = _apart(addend, lambda factor: axis.index not in free_names(factor))
            if len(addends) == 1 and not loose:
                return None
            inner = expr if rest is None else replace(expr, values=(rest,))
            points = apply("maximum", apply("sub", axis.stop, axis.start), const(0))
            found = Cast(expr.dtype, points) if rest is None else self.reduction(inner, axes, guards)
            if found is inner:
                return None
            found = _product([*loose, found])
            value = apply(op, value, found) if value is not None else found if op == "add" else apply("neg", found)
        return value


def ways(expr: Reduce, axes: tuple[Axis, ...], guards: tuple[Expr, ...], shapes: Shapes, extents: tuple[Expr, ...]) -> Iterator[Shared]:
    """The ways to share the terms of a reduction that pay, the best first; it stands in a definition of some `extents`.

    Tables have at most `MOST_COPIES` times the elements of the largest tensor that the reduction reads or its definition makes.
    """
    needed, around = set(free_names(expr)), []
    for axis in reversed(axes):
        if axis.index in needed:
            around.append(axis)
            needed |= {*free_names(axis.start), *free_names(axis.stop)}
    holding = tuple(g for g in guards if needed.issuperset(free_names(g)))
    read = [shapes[n.tensor] for v in expr.values for n in walk(v) if isinstance(n, Access)]
    most = MOST_COPIES * max(_elements(shape) for shape in (extents, *read))
    for site in _sites(Site(expr, tuple(reversed(around)), holding)):
        try:
            with at_most(MOST_STEPS):
                found = [(count.shared, way) for way in sharings(site) if (count := counted(way)).pays and count.points <= most]
        except DomainTooComplex:
            return
        yield from (way for _, way in sorted(found, key=lambda one: one[0]))


def _sites(site: Site) -> Iterator[Site]:
    """A reduction as it is, and a sum without the factors that are the same for all of its terms."""
    yield site
    reduction = site.reduction
    if reduction.combiner.name != "sum" or not reduction.combiner.is_builtin:
        return
    own = {axis.index for axis in reduction.axes}
    loose, rest = _apart(reduction.values[0], lambda factor: own.isdisjoint(free_names(factor)))
    if loose and rest is not None:
        yield Site(replace(reduction, values=(rest,)), site.axes, site.guards, _product(loose))


def _apart(value: Expr, is_loose: Callable[[Expr], bool]) -> tuple[list[Expr], Expr | None]:
    """The loose factors of a term, and what is left of it (None for 1); of a sum those that all addends have."""
    if is_loose(value):
        return [value], None
    if not isinstance(value, Apply) or not value.dtype.is_float:
        return [], value
    name = value.op.name
    if name == "mul":
        (first, left), (second, right) = (_apart(arg, is_loose) for arg in value.args)
        rest = right if left is None else left if right is None else apply("mul", left, right)
        return first + second, rest
    if name == "neg":
        found, rest = _apart(value.args[0], is_loose)
        return found, None if rest is None else apply("neg", rest)
    if name in ("add", "sub"):
        (first, left), (second, right) = (_apart(arg, is_loose) for arg in value.args)
        common = [f for f in first if f in second and first.count(f) == second.count(f) == 1]
        if common and left is not None and right is not None:
            parts = [_product([*(f for f in own if f not in common), rest]) for own, rest in ((first, left), (second, right))]
            return common, apply(name, *parts)
    return [], value


def _addends(value: Expr, op: str = "add") -> Iterator[tuple[str, Expr]]:
    """What a value adds up, each with the operation by which it enters, `add` or `sub`."""
    if isinstance(value, Apply) and value.op.name in ("add", "sub", "neg"):
        turned = "sub" if op == "add" else "add"
        yield from _addends(value.args[0], turned if value.op.name == "neg" else op)
        for other in value.args[1:]:
            yield from _addends(other, turned if value.op.name == "sub" else op)
    else:
        yield op, value


def _product(factors: list[Expr]) -> Expr:
    return reduce(partial(apply, "mul"), factors)


def _elements(shape: tuple[Expr, ...]) -> int:
    return prod(max(0, int(e.value)) if isinstance(e, Const) else _about(e) for e in shape)


def _about(extent: Expr) -> int:
    high = interval(extent, {})[1]
    return int(high) if high < OPEN else OPEN


def _local(definition: Definition) -> Iterator[str]:
    """The names inside of a scan."""
    if isinstance(definition, Scan):
        yield from (name for name, _ in definition.states)
        for inner in definition.body:
            yield from (name for name, _ in inner.results)
            yield from _local(inner)
