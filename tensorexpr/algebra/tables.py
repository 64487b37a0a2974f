"""Tables of running reductions, and what each result reads of them.

A table along an axis is a `Scan`: one step per position, for every point of the kept indices at once. Prefixes are the entries of a
forward table, suffixes those of a backward one. A window of w points is the end of one block of w positions and the beginning of the
next: a backward and a forward table that start again at every multiple of w, and one combination (van Herk 1992, Gil & Werman
1993). Points keep their order, so that any associative combiner will do; a running sum is in the order of its points, and no term
is ever taken away again. Positions outside the facets that stand still leave what is carried as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tensorexpr.algebra.monoids import Monoid
from tensorexpr.algebra.sharing import Shared
from tensorexpr.bounds import Proved, check_access
from tensorexpr.errors import Location
from tensorexpr.integers import Affine, Constraint, Domain
from tensorexpr.integers.sets.loops import Bounds
from tensorexpr.integers.solving.effort import DomainTooComplex, at_most
from tensorexpr.ir import (
    TRUE,
    Access,
    Axis,
    Cast,
    Const,
    Define,
    Definition,
    Expr,
    Index,
    Reduce,
    Scan,
    TensorType,
    apply,
    conjunction,
    conjuncts,
    const,
    counted,
)
from tensorexpr.records import replace
from tensorexpr.regions import expression_of
from tensorexpr.traversal import free_names, fresh_name, read_occurrences, substitute, walk

MOST_STEPS = 40_000
"""Steps of the solver (`integers.effort`) that sharing the terms of one reduction may take, and again making its tables."""
Shapes = Mapping[str, tuple[Expr, ...]]


class Tables:
    """The definitions that replace one reduction, made for one way of sharing its terms."""

    def __init__(
        self,
        shared: Shared,
        monoid: Monoid,
        shapes: Shapes,
        stem: str,
        taken: set[str],
        location: Location | None,
        steps: tuple[Axis, ...] = (),
    ) -> None:
        self.shared = shared
        self.steps = steps  # of scans that the tables are made in
        self.reduction = shared.site.reduction
        self.monoid = monoid
        self.shapes = dict(shapes)
        self.stem = stem
        self.taken = taken
        self.location = location
        self.definitions: list[Definition] = []
        self.low: dict[str, Expr] = {}
        self.high: dict[str, Expr] = {}
        self.ends: dict[str, Expr] = {}
        self.extents: dict[str, Expr] = {}
        self.stored: dict[Expr, str] = {}
        self.box: list[Constraint] = []
        self.sizes = shared.table.sizes

    # -------------------------------------------------------------------------------------------------------- the box

    def find_box(self) -> bool:
        """The least box over sizes around the table; whether it is bounded."""
        names = self.shared.table.dims
        for name in names:
            hull = self.shared.table.hull_without([n for n in names if n != name])
            bounds = hull.bounds(name)
            if not bounds.lowers or not bounds.uppers:
                return False
            lows, highs = [-(-e // d) for e, d in bounds.lowers], [e // d for e, d in bounds.uppers]
            self.low[name], self.high[name] = self._extreme("maximum", lows), self._extreme("minimum", highs)
            self.ends[name] = self._extreme("minimum", [high - low + 1 for high in highs for low in lows])
            self.extents[name] = counted(self.ends[name])
            self.box += _as_constraints(bounds)
        return True

    def _extreme(self, op: str, forms: Sequence[Affine]) -> Expr:
        found = [self.expression(f) for f in forms]
        result = found[0]
        for other in found[1:]:
            result = apply(op, result, other)
        return result

    def expression(self, form: Affine) -> Expr:
        return expression_of(form, self.sizes, self.shared.opaque)

    # ------------------------------------------------------------------------------------------------------ the terms

    def _at(self, backward: bool) -> dict[str, Expr]:
        """The indices of the terms by those of the table: what is free does not matter."""
        along = self.shared.along
        here: dict[str, Expr] = {n: const(0) for n in self.shared.free}
        here.update({n: _sum(Index(n), self.low[n]) for n in self.shared.kept})
        here[along] = _minus(self.high[along], Index(along)) if backward else _sum(Index(along), self.low[along])
        return here

    @property
    def axes(self) -> tuple[Axis, ...]:
        return tuple(Axis(n, const(0), self.extents[n]) for n in self.shared.kept)

    def _terms(self, backward: bool, mask: tuple[Constraint, ...]) -> tuple[Expr, tuple[Expr, ...]] | None:
        """Where there is a term, and its values, read from definitions if they are reductions; None where a read is not proved."""
        reduction = self.reduction
        apart = bool(self.shared.inner) or any(isinstance(n, Reduce) for v in reduction.values for n in walk(v))
        here = self._at(backward and not apart)
        condition = conjunction(substitute(self._condition(c), here) for c in mask)
        values = tuple(substitute(v, here) for v in reduction.values)
        where = conjunction(substitute(c, here) for c in self.shared.conditions)
        loops = (Axis(self.shared.along, const(0), self.extents[self.shared.along]), *self.axes)
        if self.shared.inner:
            inner = tuple(Axis(a.index, substitute(a.start, here), substitute(a.stop, here)) for a in self.shared.inner)
            values = self.monoid.term(values, const(0))
            guard = None if where == TRUE else where
            values = tuple(Reduce(reduction.combiner, values, inner, guard, at) for at in range(len(values)))
        else:
            condition = conjunction([condition, where])
        # What is in a loop is below its end, also where that may be below zero.
        if not self.in_bounds((condition, *values), tuple(replace(a, stop=self.ends[a.index]) for a in loops), tuple(conjuncts(condition))):
            return None
        if not apart:
            return condition, values
        start = (Const(0, v.dtype) for v in values) if self.monoid.wins else self.monoid.start
        there = self._at(backward)
        present = conjunction(
            substitute(c, there) for c in (*map(self._condition, mask), *(() if self.shared.inner else self.shared.conditions))
        )
        return present, tuple(self._stored(v, s, condition, loops, backward) for v, s in zip(values, start, strict=True))

    def in_bounds(self, exprs: Iterable[Expr], loops: tuple[Axis, ...], guards: tuple[Expr, ...]) -> bool:
        """Whether every read in expressions is in bounds, provably."""
        reads = (read for expr in exprs for read in read_occurrences(expr, (*self.steps, *loops), guards))
        verdicts = (v for r in reads for v in check_access(r.access.indices, self.shapes[r.access.tensor], r.axes, r.guards))
        return all(isinstance(v, Proved) for v in verdicts)

    def _stored(self, value: Expr, start: Expr, condition: Expr, loops: tuple[Axis, ...], backward: bool) -> Expr:
        """A term read from a definition of its own, which tables in both directions share."""
        if condition != TRUE:
            value = apply("where", condition, value, Cast(value.dtype, start) if start.dtype is not value.dtype else start)
        name = self.stored.get(value)
        if name is None:
            name = self.stored[value] = fresh_name(f"{self.stem}_terms", self.taken)
            self.definitions.append(Define(name, loops, value, self.location))
            self.shapes[name] = tuple(a.stop for a in loops)
        along, *others = (Index(a.index) for a in loops)
        position = _minus(self.end, along) if backward else along
        return Access(name, (position, *others), value.dtype)

    @property
    def end(self) -> Expr:
        """The last position of the tables."""
        return _minus(self.high[self.shared.along], self.low[self.shared.along])

    def _condition(self, constraint: Constraint) -> Expr:
        return apply("eq" if constraint.is_equality else "ge", self.expression(constraint.expr), const(0))

    def table(self, backward: bool, block: int | None = None) -> tuple[str, ...] | None:
        """The names of the tables along the axis; with `block` they start again at multiples of it. None where reads are not proved."""
        exact = self.shared.table
        box = Domain(exact.dims, self.box, exact.sizes)
        count = len(self.definitions)
        needed = Domain(exact.dims, self.shared.base, exact.sizes)
        for mask in (needed.gist(box), exact.intersect(needed).gist(box)):
            found = self._terms(backward, mask.constraints)
            if found is not None:
                break
            del self.definitions[count:]
        else:
            return None
        condition, values = found
        along, axes = self.shared.along, self.axes
        position = _minus(self.end, Index(along)) if backward else Index(along)
        term = self.monoid.term(values, position)
        states, inits, nexts, body = [], [], [], []
        here = tuple(Index(a.index) for a in axes)
        shape = tuple(a.stop for a in axes)
        names = []
        for dtype, start in zip(self.monoid.types, self.monoid.start, strict=True):
            inits.append(fresh_name(f"{self.stem}_start", self.taken))
            self.definitions.append(Define(inits[-1], axes, start, self.location))
            states.append((fresh_name(f"{self.stem}_state", self.taken), TensorType(shape, dtype)))
            nexts.append(fresh_name(f"{self.stem}_next", self.taken))
            names.append(fresh_name(f"{self.stem}_{'suffix' if backward else 'prefix'}", self.taken))
        carried: tuple[Expr, ...] = tuple(Access(n, here, t.dtype) for n, t in states)
        if block is not None:
            fresh = apply("eq", apply("mod", position, const(block)), const(block - 1 if backward else 0))
            carried = tuple(apply("where", fresh, s, c) for s, c in zip(self.monoid.start, carried, strict=True))
        if self.monoid.selects:
            extreme = self._extreme("minimum", self.shared.uppers) if backward else self._extreme("maximum", self.shared.lowers)
            is_first = substitute(apply("eq", Index(along), extreme), self._at(backward))
            together: tuple[Expr, ...] = self.monoid.select(carried[0], term[0], is_first, backward)
        else:
            together = self.monoid.combine(term, carried) if backward else self.monoid.combine(carried, term)
        for name, value, old in zip(nexts, together, carried, strict=True):
            body.append(Define(name, axes, value if condition == TRUE else apply("where", condition, value, old), self.location))
        length = self.extents[along]
        self.definitions.append(Scan(tuple(names), length, along, tuple(states), tuple(inits), tuple(body), tuple(nexts), self.location))
        self.shapes.update({n: (self.extents[along], *shape) for n in names})
        return tuple(names)

    # -------------------------------------------------------------------------------------------------------- results

    def read(self, names: Sequence[str], position: Expr) -> tuple[Expr, ...]:
        """What is carried at a position of a table, for the result at the indices as they were written."""
        places = [_minus(self.expression(self.shared.original(Affine.of(n))), self.low[n]) for n in self.shared.kept]
        return tuple(Access(n, (position, *places), t) for n, t in zip(names, self.monoid.types, strict=True))

    def _place(self, op: str, forms: Sequence[Affine]) -> Expr:
        """The greatest or the least of some bounds, as a position of a forward table."""
        return _minus(self._extreme(op, [self.shared.original(f) for f in forms]), self.low[self.shared.along])

    def nonempty(self) -> Expr:
        """Whether a result has points."""
        original = self.shared.original
        if all(self.shared.moving):  # a window that facets leave nothing of has no terms in the table
            return conjunction(map(self._condition, self.shared.others))
        ordered = (
            apply("le", self.expression(original(low)), self.expression(original(high)))
            for low in self.shared.lowers
            for high in self.shared.uppers
        )
        return conjunction([*map(self._condition, self.shared.others), *ordered])

    def result(self) -> Expr | None:
        """The reduction as an expression over tables; None where they have no box, or a read is not proved to be in bounds."""
        found = self.results()
        return None if found is None else found[self.reduction.component]

    def results(self) -> tuple[Expr, ...] | None:
        """All components of the reduction, as `result` gives one; None, too, where that takes more than `MOST_STEPS` of the solver."""
        try:
            with at_most(MOST_STEPS):
                return self._results()
        except DomainTooComplex:
            return None

    def _results(self) -> tuple[Expr, ...] | None:
        if not self.find_box() or (self.monoid.selects and self.shared.conditions):  # under a condition no term is known to be the first
            return None
        if self.shared.moving == (False, True):
            names = self.table(backward=False)
            taken = None if names is None else self.read(names, self._place("minimum", self.shared.uppers))
        elif self.shared.moving == (True, False):
            names = self.table(backward=True)
            taken = None if names is None else self.read(names, _minus(self.end, self._place("maximum", self.shared.lowers)))
        else:
            taken = self._window()
        if taken is None:
            return None
        found, site = self._finished(taken), self.shared.site
        return found if self.in_bounds(found, site.axes, site.guards) else None

    def _window(self) -> tuple[Expr, ...] | None:
        width = self.shared.width()
        assert width is not None
        ahead, behind = self.table(False, width), self.table(True, width)
        if ahead is None or behind is None:
            return None
        first = self._place("maximum", self.shared.moved(self.shared.lowers))
        last = self._place("minimum", self.shared.moved(self.shared.uppers))
        left, right = self.read(behind, _minus(self.end, first)), self.read(ahead, last)
        both = self.monoid.combine(left, right)
        whole = apply("eq", apply("mod", first, const(width)), const(0))
        return tuple(apply("where", whole, r, b) for r, b in zip(right, both, strict=True))

    def _outer_axes(self) -> tuple[Axis, ...]:
        """The outer axes, without their dependence on the others."""
        shared = self.shared
        axes: list[Axis] = []
        inside = {shared.along, *(a.index for a in shared.inner)}
        for axis in shared.outer:
            if not inside.isdisjoint((*free_names(axis.start), *free_names(axis.stop))):
                known = {*(a.index for a in shared.site.axes), *(a.index for a in axes), axis.index}
                bounds = shared.points.hull_without([n for n in shared.points.dims if n not in known]).bounds(axis.index)
                start = self._extreme("maximum", [-(-e // d) for e, d in bounds.lowers])
                axis = Axis(axis.index, start, self._extreme("minimum", [e // d + 1 for e, d in bounds.uppers]))
            axes.append(axis)
        return tuple(axes)

    def _finished(self, taken: tuple[Expr, ...]) -> tuple[Expr, ...]:
        reduction, shared = self.reduction, self.shared
        guard = self.nonempty()
        staying = shared.staying
        if not shared.outer:
            guard, staying = conjunction([*staying, guard]), ()
        if self.monoid.wins:
            (axis,) = reduction.axes
            back = self.expression(Affine.of(0) - shared.shifts.get(axis.index, Affine.of(0)))
            place = _minus(_sum(_sum(taken[1], self.low[axis.index]), back), axis.start)
            return (apply("where", guard, apply("where", apply("ge", taken[1], const(0)), place, const(0)), const(0)),)
        if shared.site.factor is not None:
            factor = shared.site.factor
            taken = (apply("mul", factor if factor.dtype is taken[0].dtype else Cast(taken[0].dtype, factor), taken[0]),)
        values: tuple[Expr, ...] = tuple(apply("where", guard, v, start) for v, start in zip(taken, self.monoid.start, strict=True))
        if shared.outer:
            where = conjunction(staying) if staying else None
            axes = self._outer_axes()
            values = tuple(Reduce(reduction.combiner, values, axes, where, at) for at in range(len(values)))
        return tuple(v if v.dtype is r.dtype else Cast(r.dtype, v) for v, r in zip(values, reduction.values, strict=True))


def _as_constraints(bounds: Bounds) -> list[Constraint]:
    name = Affine.of(bounds.name)
    lows = [Constraint(name * d - e, ">=") for e, d in bounds.lowers]
    return [*lows, *(Constraint(e - name * d, ">=") for e, d in bounds.uppers)]


def _sum(a: Expr, b: Expr) -> Expr:
    return a if b == const(0) else apply("add", a, b)


def _minus(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return const(int(a.value) - int(b.value))
    return a if b == const(0) else apply("sub", a, b)
