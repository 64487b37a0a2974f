"""Scatter into gather: all the points at which a read meets a given element, as loops with exact bounds.

A read `X[a(v)]` at the points v of a set D is turned around: for an element x of X, the points are the integer solutions of
`a(v) = x` in D. Floor divisions in indices and guards become unknowns of their own (`q = e // c` is `0 <= e - c*q < c`), so that
everything is linear. Equations with an unknown of coefficient 1 or -1 are solved by substitution, which keeps the names the
user wrote; what is left is solved as a lattice (a particular solution, a short kernel basis, congruences on x). The free
unknowns become reduction axes bounded by `max` of ceilings and `min` of floors, or a single value where only one is
possible; conditions on x alone become guards outside. The innermost body runs exactly once for each read; `nests` chooses the
loops so that those around it do not run in vain, as far as it finds such.

None is the answer where an index is not affine; see `pieces` for what can be split before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd

from tensorexpr.autodiff.invert.conditions import condition_of
from tensorexpr.autodiff.invert.nests import as_constraints, determined_first, nest, without_vain_rounds
from tensorexpr.autodiff.invert.radices import reduce_radices
from tensorexpr.integers import (
    Affine,
    Bounds,
    Constraint,
    Domain,
    DomainTooComplex,
    FloorDiv,
    congruent,
    ge,
    le,
    lt,
    solve_parametric,
)
from tensorexpr.ir import Axis, Const, Expr, Index, apply, const
from tensorexpr.records import field, record, replace
from tensorexpr.regions import affine_of, bound_constraints, constraints_of, expression_of
from tensorexpr.traversal import free_names, fresh_name, size_names, substitute

DATA = "~"
"""Before the number of a value that is given at each element, of which nothing is known."""


@record(eq=False)
class Gather:
    """Where an element is read from: each original index as an expression over the element's indices and `axes`.

    `outer` are conditions on the element alone, `inner` conditions inside the axes (the guards that are not affine).
    """

    values: dict[str, Expr]
    axes: tuple[Axis, ...]
    outer: tuple[Expr, ...]
    inner: tuple[Expr, ...]
    lowering: str
    points: Points | None = field(default=None, repr=False)


@record
class Points:
    """The points of a gather as an integer set: indices of the element and loops under affine `constraints`.

    `solved` are the axes that the others determine. Only gathers without conditions on data have one.
    """

    system: _System
    solved: dict[str, Affine]
    free: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    write: Callable[[Affine], Expr]
    lowering: str | None

    def over(self, constraints: Sequence[Constraint]) -> Gather | None:
        """The gather with the same equations over other points, None where there is none."""
        return self.system.over(self.solved, list(self.free), list(constraints), self.lowering)

    @property
    def known(self) -> list[Constraint]:
        """What holds for the element and the sizes anyway."""
        return self.system.known()

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of the element's indices and of sizes."""
        return self.system.parameters

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of all axes of the read, `solved` and free."""
        return self.system.unknowns


def invert(
    indices: Sequence[Expr],
    axes: Sequence[Axis],
    guards: Sequence[Expr],
    target: Sequence[Axis],
    lowering: str | None = None,
    reserved: Sequence[str] = (),
) -> tuple[Gather, ...] | None:
    """The gather at the elements `target` of the reads at `indices` for all points of `axes` where `guards` hold.

    None where an index is not affine or a loop would have no bound, empty where nothing is ever read. `lowering` replaces the
    name that is found; no new index has a name in `reserved`.
    """
    plain = _permutation(indices, axes, guards, target, reserved)
    if plain is not None:
        return (plain,)
    forms = [affine_of(index) for index in indices]
    if any(form is None for form in forms) or any(affine_of(axis.stop) is None for axis in target):
        found = _reshape(indices, axes, guards, target, reserved)
        return None if found is None else tuple(replace(one, lowering=lowering or one.lowering) for one in found)
    system = _System(axes, target, reserved, (*indices, *guards))
    for form, axis in zip(forms, target, strict=True):
        assert form is not None
        system.equate(form, system.target_name(axis))
    for guard in guards:
        system.restrict(guard)
    divided = any(form is not None and form.has_division() for form in forms)
    digits = _reshape(indices, axes, guards, target, reserved, exact=True) if divided else None
    try:
        gather = system.solve(lowering)
    except (_Endless, DomainTooComplex) as error:
        if digits is None and isinstance(error, DomainTooComplex):
            raise
        return digits
    if gather is None:
        return ()
    if digits is not None:  # a nicer form of the same points
        return tuple(replace(one, lowering=lowering or one.lowering, points=gather.points) for one in digits)
    return (gather,)


class _Endless(Exception):
    """A loop over a free unknown that only data bounds, through an axis that is no loop any more."""


def _permutation(
    indices: Sequence[Expr], axes: Sequence[Axis], guards: Sequence[Expr], target: Sequence[Axis], reserved: Sequence[str]
) -> Gather | None:
    """The quick case: every index is an axis of its own that runs over the whole extent, and no guard is affine."""
    own = {axis.index: axis for axis in axes}
    values: dict[str, Expr] = {}
    for index, axis in zip(indices, target, strict=True):
        if not isinstance(index, Index) or index.name in values or index.name not in own:
            return None
        source = own[index.name]
        if source.start != const(0) or source.stop != axis.stop:
            return None
        values[index.name] = Index(axis.index)
    if any(constraints_of(guard)[0] for guard in guards):
        return None
    return _with_other_axes(values, (), axes, guards, target, reserved, "substitute")


def _reshape(
    indices: Sequence[Expr],
    axes: Sequence[Axis],
    guards: Sequence[Expr],
    target: Sequence[Axis],
    reserved: Sequence[str],
    exact: bool = False,
) -> tuple[Gather, ...] | None:
    """The gather by digits, where sizes may be coefficients, divisors and factors of extents; None where the indices are no mixed radix.

    With `exact` only where the element settles all digits, or every axis that is divided is all of its digits.
    """
    reduced = reduce_radices(indices, axes, guards, target, reserved)
    if reduced is None or (exact and not reduced.exact):
        return None
    system = _System(reduced.axes, reduced.target, reserved, [*reduced.guards, *(e for pair in reduced.equations for e in pair)])
    for left, right in reduced.equations:
        form, value = affine_of(left), affine_of(right)
        if form is None or value is None:
            return None
        system.equate(form, value)
    for guard in reduced.guards:
        system.restrict(guard)
    gather = system.solve(None)
    if gather is None:
        return ()
    values = {name: reduced.meant(substitute(value, gather.values)) for name, value in reduced.values.items()}
    loops = tuple(Axis(axis.index, reduced.meant(axis.start), reduced.meant(axis.stop)) for axis in gather.axes)
    outer, inner = (tuple(map(reduced.meant, part)) for part in ((*reduced.outer, *gather.outer), gather.inner))
    whole = gather.lowering in ("substitute", "reshape")
    return (Gather(values, loops, outer, inner, "reshape" if whole else "lattice"),)


def _with_other_axes(
    values: dict[str, Expr],
    outer: tuple[Expr, ...],
    axes: Sequence[Axis],
    guards: Sequence[Expr],
    target: Sequence[Axis],
    reserved: Sequence[str],
    lowering: str,
) -> Gather:
    """A gather in which every axis that the element does not determine runs as before, and the guards are tested."""
    taken = {*reserved, *(axis.index for axis in target)}
    loops = []
    for axis in axes:
        if axis.index not in values:
            name = fresh_name(axis.index, taken)
            loops.append(Axis(name, substitute(axis.start, values), substitute(axis.stop, values)))
            values[axis.index] = Index(name)
    return Gather(values, tuple(loops), outer, tuple(substitute(guard, values) for guard in guards), lowering)


class _System:
    """The linear system of one read: unknowns, equations, constraints, and what could not be made linear.

    `read` are the expressions that it will be given: sizes in them are known before the names that are bound around."""

    def __init__(self, axes: Sequence[Axis], target: Sequence[Axis], reserved: Sequence[str], read: Sequence[Expr]) -> None:
        self._axes = tuple(axes)
        self._target = tuple(target)
        self._reserved = set(reserved)
        self._given: dict[str, None] = {}
        self._target_names = {axis.index: f"@{d}" for d, axis in enumerate(target)}
        self._unknowns = [axis.index for axis in axes]
        self._quotients: dict[FloorDiv, str] = {}
        self._equations: list[Affine] = []
        self._constraints: list[Constraint] = []
        self._opaque: list[Expr] = []
        self._raw: dict[str, Axis] = {}
        self._simple = True
        self._lattice = False
        mentioned = [*read, *(e for axis in (*axes, *target) for e in (axis.start, axis.stop))]
        self._sizes = dict.fromkeys(name for e in mentioned for name in size_names(e))
        for axis in axes:
            found, exact = bound_constraints(axis.index, axis)
            for constraint in found:
                self._add(constraint)
            if not exact:
                self._raw[axis.index] = axis

    def target_name(self, axis: Axis) -> Affine:
        """The name of an index of the element inside the system."""
        return Affine.of(self._target_names[axis.index])

    # -- making it linear --------------------------------------------------------------------------------------------

    def equate(self, form: Affine, value: Affine) -> None:
        """Adds the equation `form == value` of one axis of the tensor."""
        unknown = [(name, factor) for name, factor in form.terms if name in self._unknowns]
        used = {name for equation in self._equations for name in equation.names()}
        if form.has_division() or len(unknown) > 1 or any(abs(factor) != 1 or name in used for name, factor in unknown):
            self._simple = False
        self._equations.append(self._flat(form) - value)

    def restrict(self, guard: Expr) -> None:
        """Adds a condition; what is not affine stays a condition to be tested."""
        found, exact = constraints_of(guard)
        for constraint in found:
            self._add(constraint)
        if not exact:
            self._opaque.append(guard)

    def _add(self, constraint: Constraint) -> None:
        if constraint.is_equality:
            self._equations.append(self._flat(constraint.expr))
            return
        divisions = [(atom, factor) for atom, factor in constraint.expr.terms if isinstance(atom, FloorDiv) and atom not in self._quotients]
        if len(divisions) == 1 and abs(divisions[0][1]) == 1:
            # e//d + r >= 0 says e + d*r >= 0; r - e//d >= 0 says d*r + d - 1 - e >= 0: no unknown is needed for the quotient.
            atom, factor = divisions[0]
            rest = constraint.expr - Affine.of(atom) * factor
            scaled = rest * atom.denominator
            self._add(ge(scaled + atom.numerator, 0) if factor > 0 else ge(scaled + (atom.denominator - 1) - atom.numerator, 0))
            return
        self._constraints.append(ge(self._flat(constraint.expr), 0))

    def _flat(self, form: Affine) -> Affine:
        """`form` with every floor division replaced by an unknown."""
        result = form
        for atom, factor in form.terms:
            if isinstance(atom, str) and atom not in self._unknowns and atom not in self._sizes and not atom.startswith("@"):
                self._given.setdefault(atom)  # an index bound around the definition: the step of a scan
            if isinstance(atom, FloorDiv):
                result = result + (Affine.of(self._quotient(atom)) - Affine.of(atom)) * factor
        return result

    def _quotient(self, atom: FloorDiv) -> str:
        name = self._quotients.get(atom)
        if name is None:
            numerator = self._flat(atom.numerator)
            name = f"#{len(self._quotients)}"
            self._quotients[atom] = name
            self._unknowns.append(name)
            rest = numerator - Affine.of(name) * atom.denominator
            self._constraints += [ge(rest, 0), le(rest, atom.denominator - 1)]
        return name

    # -- solving -----------------------------------------------------------------------------------------------------

    def solve(self, lowering: str | None) -> Gather | None:
        """The gather, None where the system has no solution."""
        solved, left, conditions = self._substitutions()
        parameters: list[str] = []
        if any(any(name in self._unknowns for name in equation.names()) for equation in left):
            names = [n for n in self._unknowns if any(equation.coefficient(n) for equation in left)]
            rows = [[equation.coefficient(name) for name in names] for equation in left]
            right = [Affine(zip(names, row, strict=True)) - equation for row, equation in zip(rows, left, strict=True)]
            solution = solve_parametric(rows, right)
            if solution is None:
                return None
            self._lattice = True
            parameters = [f"${k}" for k in range(len(solution.kernel))]
            found = dict(zip(names, solution.values(parameters), strict=True))
            solved = {name: value.substitute(found) for name, value in solved.items()} | found
            conditions += solution.congruences
        else:
            conditions += [Constraint(equation, "==") for equation in left]
        if any(condition.is_false for condition in conditions):
            return None
        free = [name for name in self._unknowns if name not in solved] + parameters
        conditions = [condition for condition in conditions if not condition.is_true]
        return self.over(solved, free, conditions + [constraint.substitute(solved) for constraint in self._constraints], lowering)

    def _substitutions(self) -> tuple[dict[str, Affine], list[Affine], list[Constraint]]:
        """Unknowns solved by equations in which they have the coefficient 1 or -1, the equations that are left, congruences.

        A common factor of the unknowns of an equation is divided out first, which leaves a congruence.
        """
        solved: dict[str, Affine] = {}
        conditions: list[Constraint] = []
        left = list(self._equations)
        while True:
            for at, equation in enumerate(left):
                own = [(name, equation.coefficient(name)) for name in self._unknowns if equation.coefficient(name)]
                common = gcd(*(factor for _, factor in own))
                if common > 1:
                    rest = equation - Affine(own)
                    conditions.append(congruent(rest, common))
                    equation = Affine([(name, factor // common) for name, factor in own]) - (-rest) // common
                    left[at] = equation
                pivot = next((name for name, _ in own if abs(equation.coefficient(name)) == 1), None)
                if pivot is not None:
                    break
            else:
                return solved, left, conditions
            factor = equation.coefficient(pivot)
            value = (Affine.of(pivot) * factor - equation) * factor
            move = {pivot: value}
            solved = {name: form.substitute(move) for name, form in solved.items()} | {pivot: value}
            left = [other.substitute(move) for k, other in enumerate(left) if k != at]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the element's indices inside the system, of sizes, and of what is bound around."""
        return (*self._target_names.values(), *self._sizes, *self._given)

    @property
    def unknowns(self) -> tuple[str, ...]:
        """The names of the axes."""
        return tuple(axis.index for axis in self._axes)

    def known(self) -> list[Constraint]:
        """The bounds of the element's indices and of sizes."""
        known = [ge(name, 0) for name in (*self._sizes, *self._given) if not name.startswith(DATA)]
        for axis, name in zip(self._target, self._target_names.values(), strict=True):
            limit = affine_of(axis.stop)
            assert limit is not None
            known += [ge(name, 0), lt(name, limit)]
        return known

    def over(self, solved: dict[str, Affine], free: list[str], constraints: list[Constraint], lowering: str | None) -> Gather | None:
        """The gather over the points of `constraints`, in which the axes `solved` are replaced; None where there is none."""
        sizes, known = self.parameters, self.known()
        loose = set(free)
        conditions = [row for row in constraints if loose.isdisjoint(row.names())]
        rows = [row for row in constraints if not loose.isdisjoint(row.names())]
        context = Domain((), known, sizes)
        if Domain((), [*known, *conditions], sizes).is_empty():
            return None
        outer = list(Domain((), conditions, sizes).gist(context).constraints)
        context = context.constrain(*outer)
        domain = Domain(free, rows, sizes)
        order = determined_first(domain, context) if self._quotients else free
        order = [name for name in order if name not in self._raw] + [name for name in order if name in self._raw]
        bounds = nest(domain, order, context, bool(self._raw))
        if bounds is not None and len(order) > 1 and not self._raw:
            move, bounds = without_vain_rounds(bounds, solved, domain, order, context)
            if move:
                solved = {name: form.substitute(move) for name, form in solved.items()}
                rows = [row.substitute(move) for row in rows]
                domain = Domain(free, rows, sizes)
        if bounds is None:
            return None
        guards = [guard for loop in bounds for guard in loop.guards]
        outer += [guard for guard in guards if loose.isdisjoint(guard.names())]
        late = [guard for guard in guards if not loose.isdisjoint(guard.names())]  # loops around ends that are data are not exact
        inside = domain.intersect(context).constrain(*outer) if order else context.constrain(*outer)
        gather, write = self._gather(solved, bounds, outer, late, inside, lowering)
        if self._raw or self._opaque or not loose <= set(self.unknowns):
            return gather
        axes = {name: value for name, value in solved.items() if name in self.unknowns}
        return replace(gather, points=Points(self, axes, tuple(free), (*conditions, *rows), write, lowering))

    def _gather(
        self,
        solved: dict[str, Affine],
        bounds: list[Bounds],
        outer: list[Constraint],
        late: list[Constraint],
        inside: Domain,
        lowering: str | None,
    ) -> tuple[Gather, Callable[[Affine], Expr]]:
        single = {loop.name for loop in bounds if loop.value is not None}
        loops = [loop for loop in bounds if loop.value is None]
        taken = {axis.index for axis in self._target} | self._reserved | set(self._sizes) | set(self._given)
        final = {name: index for index, name in self._target_names.items()}
        for loop in loops:
            stem = loop.name if loop.name in self._original else "t" if loop.name.startswith("$") else "q"
            final[loop.name] = fresh_name(stem, taken)
        # Bounds are evaluated also where the loops further in are empty: they may be simplified by what is known around them alone.
        determined: dict[str, Affine] = {}
        around = Domain([loop.name for loop in bounds], [*self.known(), *outer], self.parameters)
        for loop in bounds:
            if loop.value is not None:
                determined[loop.name] = around.simplify(loop.value.substitute(determined))
            around = around.constrain(*as_constraints(loop))

        def write(form: Affine) -> Expr:
            return expression_of(form.substitute(determined).rename(final), self._sizes)

        values = {}
        for axis in self._axes:
            form = solved.get(axis.index, Affine.of(axis.index)).substitute(determined)
            values[axis.index] = write(inside.simplify(form))
        axes = []
        tested = [
            condition_of(guard, write) for guard in dict.fromkeys(late)
        ]  # and ends that are data of loops further in, or of the loop itself
        for at, loop in enumerate(loops):
            unbound = {final[other.name] for other in loops[at:]}
            start = _extreme("maximum", [write(-(-e // d)) for e, d in loop.lowers])
            stop = _extreme("minimum", [write(e // d + 1) for e, d in loop.uppers])
            raw = self._raw.get(loop.name)
            if raw is not None:
                firsts, lasts = _opaque_bounds(raw.start, "maximum", values), _opaque_bounds(raw.stop, "minimum", values)
                tested += [apply("ge", Index(final[loop.name]), e) for e in firsts if not unbound.isdisjoint(free_names(e))]
                tested += [apply("lt", Index(final[loop.name]), e) for e in lasts if not unbound.isdisjoint(free_names(e))]
                firsts, lasts = ([e for e in ends if unbound.isdisjoint(free_names(e))] for ends in (firsts, lasts))
                start = _extreme("maximum", ([] if start is None else [start]) + firsts)
                stop = _extreme("minimum", ([] if stop is None else [stop]) + lasts)
            if start is None or stop is None:
                raise _Endless
            axes.append(Axis(final[loop.name], start, stop))
        inner = [*tested, *(substitute(guard, values) for guard in self._opaque)]
        for name, axis in self._raw.items():
            if name in solved or name in single:
                inner.append(apply("ge", values[name], substitute(axis.start, values)))
                inner.append(apply("lt", values[name], substitute(axis.stop, values)))
        guards = tuple(condition_of(guard, write) for guard in dict.fromkeys(outer))
        return Gather(values, tuple(axes), guards, tuple(inner), lowering or self._tier(solved, loops, outer)), write

    @property
    def _original(self) -> set[str]:
        return {axis.index for axis in self._axes}

    def _tier(self, solved: dict[str, Affine], loops: list[Bounds], outer: list[Constraint]) -> str:
        if self._simple:
            return "substitute"
        if any(guard.expr.has_division() for guard in outer):
            return "residues"  # elements of some residue classes are read: a schedule gives each class a loop of its own
        running = {loop.name for loop in loops}
        fixed = running.isdisjoint(name for equation in self._equations for name in equation.names())
        whole = not self._lattice and not any(guard.is_equality for guard in outer)
        return "reshape" if fixed and whole else "lattice"


def _extreme(op: str, candidates: list[Expr]) -> Expr | None:
    """The maximum or minimum of all candidates."""
    distinct = list(dict.fromkeys(candidates))
    if not distinct:
        return None
    result = distinct[0]
    for other in distinct[1:]:
        if isinstance(result, Const) and isinstance(other, Const):
            result = const((max if op == "maximum" else min)(int(result.value), int(other.value)))
        else:
            result = apply(op, result, other)
    return result


def _opaque_bounds(bound: Expr, op: str, values: dict[str, Expr]) -> list[Expr]:
    """The alternatives of a bound that are not affine, over the new indices."""
    parts = list(bound.args) if getattr(bound, "op", None) is not None and bound.op.name == op else [bound]  # type: ignore[attr-defined]  # what has an op is an Apply
    return [substitute(part, values) for part in parts if affine_of(part) is None]
