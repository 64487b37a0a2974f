"""Which terms of a reduction are the same for many results: its terms by fewer indices, and the bounds of one axis by all of them.

A reduction computes, for every point z of the loops around it, a combination of terms v(z, k) over the k of a polyhedron. The
subscripts of v are affine forms; a loop index e that they all leave out, or leave out after a shift of another index
(``x[j + k]`` with ``k' = j + k``), does not matter for the terms: it is *free*. The constraints of the polyhedron that mention
both the axis `along` and a free index are the facets that move with it. Upper ones alone make prefixes of one sequence, lower
ones alone suffixes, one of each at a constant distance a window.

This is the first half of Gautam & Rajopadhye, Simplifying Reductions (POPL 2006): the share space is found for unit vectors with at
most one shift each, and of the labels of facets only those are used that need no inverse (ADD and INVARIANT).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tensorexpr import dtypes
from tensorexpr.integers import Affine, Constraint, Domain
from tensorexpr.ir import Axis, Expr, Reduce, conjuncts
from tensorexpr.records import record, replace
from tensorexpr.regions import Opaque, affine_of, alternatives, bound_constraints, cases_where, domain_of, with_constraints
from tensorexpr.traversal import children, free_names, tensors_read

ORDERED = ("argmax", "argmin")
"""Built-in reductions whose result depends on the order of the points."""


@record
class Site:
    """A reduction where it stands: the loops around it that its terms or bounds depend on, and conditions that hold there.

    `factor` is what every term of a sum is multiplied by beside what the reduction says: the same for all terms of a result.
    """

    reduction: Reduce
    axes: tuple[Axis, ...]
    guards: tuple[Expr, ...]
    factor: Expr | None = None

    @property
    def keeps_order(self) -> bool:
        """Whether points may not change places: a user's combiner is associative and no more."""
        return not self.reduction.combiner.is_builtin or self.reduction.combiner.name in ORDERED


@record
class Shared:
    """The terms of a reduction as a table over `kept` and `along`, and what each result takes of it.

    A point of the table has the terms of all points z with the same value of ``q + shifts[q]`` for each q of `kept` and `along`; its
    terms are combined over `inner` axes, its rows over `outer` ones. `lowers` and `uppers` are the bounds of `along`, inclusive,
    in the names of the table and the free ones; `base` are its facets that do not move, `others` those about neither `along` nor
    `inner`, in the indices as they were written. `table` has all points of the
    table that some result needs (the whole of each window), `points` all terms of the reduction as it was written.
    """

    site: Site
    along: str
    inner: tuple[Axis, ...]
    outer: tuple[Axis, ...]
    conditions: tuple[Expr, ...]
    staying: tuple[Expr, ...]
    kept: tuple[str, ...]
    free: tuple[str, ...]
    shifts: Mapping[str, Affine]
    lowers: tuple[Affine, ...]
    uppers: tuple[Affine, ...]
    moving: tuple[bool, bool]
    base: tuple[Constraint, ...]
    others: tuple[Constraint, ...]
    points: Domain
    table: Domain
    opaque: Opaque

    def original(self, form: Affine) -> Affine:
        """A form over the table and the free names by the indices as they were written."""
        return form.substitute({name: Affine.of(name) + shift for name, shift in self.shifts.items()})

    def width(self) -> int | None:
        """How many points every result takes, where that is one number and both bounds move."""
        lows, highs = (self.moved(side) for side in (self.lowers, self.uppers))
        if len(lows) != 1 or len(highs) != 1:
            return None
        room = highs[0] - lows[0]
        return room.constant + 1 if room.is_constant else None

    def moved(self, bounds: Iterable[Affine]) -> list[Affine]:
        """Those of some bounds that depend on free indices."""
        return [form for form in bounds if not set(self.free).isdisjoint(form.names())]


def sharings(site: Site) -> Iterator[Shared]:
    """The ways to see the terms of a reduction as a table of fewer indices, along each of its axes."""
    for along in site.reduction.axes:
        whole = _Analysis(site, along.index).run(frozenset())
        if whole is None:
            continue
        if whole.moving != (True, True) or whole.width() is not None:
            yield whole
            continue
        for side in (whole.lowers, whole.uppers):
            fixed = frozenset(n for form in whole.moved(side) for n in form.names())
            part = _Analysis(site, along.index).run(fixed)
            if part is not None and part.moving != (True, True):
                yield part


class _Analysis:
    def __init__(self, site: Site, along: str) -> None:
        self.site = site
        self.along = along
        self.opaque = Opaque()
        self.reduction = site.reduction
        self.own = [axis.index for axis in self.reduction.axes]
        self.facets: list[Constraint] = []
        self.conditions: list[Expr] = []
        self.affine: list[Expr] = []

    def run(self, fixed: frozenset[str]) -> Shared | None:
        """The terms along the axis; indices in `fixed` are not free."""
        if not self._read_domain():
            return None
        at = self.own.index(self.along)
        outer = set(self.own[:at]) if self.site.keeps_order else set()
        while True:
            found = self._along(fixed, frozenset(outer))
            if not isinstance(found, frozenset):
                break
            if self.site.keeps_order or not found - outer:
                return None
            outer |= found
        return found

    def _read_domain(self) -> bool:
        """The constraints of the axes and conditions of the reduction: whether each bound is one."""
        for axis in self.reduction.axes:
            # A stop that is never below the start says no more than without that: there is nothing in between.
            stops = [s for s in alternatives(axis.stop, "maximum") if s != axis.start]
            axis = replace(axis, stop=stops[0]) if len(stops) == 1 else axis
            found, whole = bound_constraints(axis.index, axis, self.opaque)
            if not whole:
                return False
            self.facets += found
        for part in conjuncts(self.reduction.where):
            cases = cases_where(part, self.opaque)
            if len(cases) > 1:
                points = self._points()
                cases = [c for c in cases if not with_constraints(points, c.constraints).is_empty()]
            if len(cases) == 1 and cases[0].exact and not self._hides_indices(cases[0].constraints):
                self.affine.append(part)
                self.facets += cases[0].constraints
            else:
                self.conditions.append(part)
        return not self._hides_indices(self.facets)

    def _hides_indices(self, constraints: Iterable[Constraint]) -> bool:
        hidden = self.opaque.expressions
        return any(not _of_sizes(hidden[n]) for c in constraints for n in c.names() if n in hidden)

    def _along(self, fixed: frozenset[str], outer: frozenset[str]) -> Shared | frozenset[str] | None:
        """What is shared with these axes outside; the axes that have to go outside; or nothing."""
        inner = [n for n in self.own if n not in outer and n != self.along]
        around = [axis.index for axis in self.site.axes]
        names = [*around, *(n for n in self.own if n in outer)]
        kept, free, shifts = self._free(names, fixed)
        if not free:
            return None
        moved = {q: Affine.of(q) - shift for q, shift in shifts.items()}
        facets = [c.substitute(moved) for c in self.facets]
        outwards = {n for c in facets if not set(free).isdisjoint(c.names()) for n in c.names() if n in inner}
        if outwards:
            return frozenset(outwards)
        lowers, uppers, base = [], [], []
        moving = [False, False]
        for c in facets:
            if self.along not in c.names() or not set(inner).isdisjoint(c.names()):
                continue
            factor = c.expr.coefficient(self.along)
            rest = c.expr - Affine.of(self.along) * factor
            if c.is_equality or self.along in rest.names():
                return None
            moves = not set(free).isdisjoint(c.names())
            if not moves:
                base.append(c)
            moving[factor < 0] |= moves
            if factor > 0:
                lowers.append(-(rest // factor))
            else:
                uppers.append(rest // -factor)
        if not any(moving) or not lowers or not uppers:
            return None
        points = self._points()
        dims = [n for n in points.dims if n not in kept and n != self.along]
        # Windows stay whole where facets that stand still would clip them: beyond those the table has positions without terms.
        dropped = base if all(moving) else ()
        turned = [c.substitute(moved) for c in points.constraints]
        moved_points = Domain(points.dims, [c for c in turned if c not in dropped], points.sizes)
        outside = {self.along, *inner}
        waiting = [part for part in self.affine if not set(inner).isdisjoint(free_names(part))]
        axes = self.reduction.axes
        return Shared(
            self.site,
            self.along,
            tuple(a for a in axes if a.index in inner),
            tuple(a for a in axes if a.index in outer),
            (*waiting, *(part for part in self.conditions if not outside.isdisjoint(free_names(part)))),
            tuple(part for part in conjuncts(self.reduction.where) if outside.isdisjoint(free_names(part))),
            tuple(kept),
            tuple(free),
            shifts,
            tuple(dict.fromkeys(lowers)),
            tuple(dict.fromkeys(uppers)),
            (moving[0], moving[1]),
            tuple(base),
            tuple(c for c in self.facets if outside.isdisjoint(c.names())),
            points,
            moved_points.hull_without(dims),
            self.opaque,
        )

    def _free(self, names: Sequence[str], fixed: frozenset[str]) -> tuple[list[str], list[str], dict[str, Affine]]:
        """The names that terms depend on, those that they do not, and what is added to which names for that."""
        outside = {self.along, *(n for n in self.own if n not in names)}
        terms = (*self.reduction.values, *(c for c in self.conditions if not outside.isdisjoint(free_names(c))))
        rows = [dict(row) for row in dict.fromkeys(_forms(terms, frozenset((*names, self.along))))]
        free: list[str] = []
        shifts: dict[str, Affine] = {}
        for name in reversed(names):
            if name in fixed or name in shifts:
                continue
            if not any(row.get(name) for row in rows):
                free.append(name)
                continue
            for pivot in (self.along, *names):
                factor = None if pivot == name or pivot in free else _ratio(rows, name, pivot)
                if factor is not None:
                    shifts[pivot] = shifts.get(pivot, Affine.of(0)) + Affine.of(name) * factor
                    rows = [{n: f for n, f in row.items() if n != name} for row in rows]
                    free.append(name)
                    break
        used = {n for row in rows for n in row} | {n for c in self.facets for n in c.names()}
        return [n for n in names if n not in free and n in used], free, shifts

    def _points(self) -> Domain:
        """The points of the reduction, as far as they are affine."""
        around = domain_of((*self.site.axes, *self.reduction.axes), self.site.guards).domain
        known = [c for c in around.constraints if not any(n.startswith("?") for n in c.names())]
        found = [*known, *self.facets]
        sizes = dict.fromkeys(n for c in found for n in c.names() if n not in around.dims)
        return Domain(around.dims, found, tuple(sizes))


def _of_sizes(expr: Expr) -> bool:
    return not free_names(expr) and not tensors_read(expr)


def _forms(exprs: Iterable[Expr], names: frozenset[str]) -> Iterator[tuple[tuple[str, int], ...]]:
    """The coefficients of some names in every index arithmetic in expressions, taken apart where it divides."""
    stack = list(exprs)
    while stack:
        node = stack.pop()
        form = affine_of(node) if node.dtype is dtypes.int64 else None
        if form is not None and not form.has_division():
            row = tuple((n, f) for n, f in form.terms if isinstance(n, str) and n in names)
            if row:
                yield row
        else:
            stack.extend(children(node))


def _ratio(rows: Sequence[Mapping[str, int]], name: str, pivot: str) -> int | None:
    """The number c with row[name] = c * row[pivot] in every row, where it is a whole one."""
    found = {(row.get(name, 0), row.get(pivot, 0)) for row in rows} - {(0, 0)}
    ratios = {divmod(a, b) if b else (0, 1) for a, b in found}
    if len(ratios) != 1:
        return None
    ((factor, rest),) = ratios
    return None if rest else factor
