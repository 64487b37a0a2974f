"""Domains of loops and guards: `domain_of` makes the integer set of a nest of axes and guards; guards that are no conjunction of affine
constraints are left out (the set is then an over-approximation, and says so). `regions_of` keeps those too, as several disjoint sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tensorexpr.integers import Affine, Constraint, Domain, ge, lt
from tensorexpr.ir import Apply, Axis, Expr, conjuncts
from tensorexpr.records import record
from tensorexpr.regions.cases import MAX_CASES, Case, cases_where
from tensorexpr.regions.forms import Opaque, affine_of
from tensorexpr.traversal import size_names


@record
class Region:
    """An integer set over loop indices: `domain`, whether it is `exact` (else it contains the true set), its opaque names."""

    domain: Domain
    exact: bool
    opaque: Opaque


def bound_constraints(index: str, axis: Axis, opaque: Opaque | None = None) -> tuple[tuple[Constraint, ...], bool]:
    """`start <= index < stop` as constraints; a maximum of starts and a minimum of stops give one each."""
    name = Affine.of(index)
    found: list[Constraint] = []
    exact = True
    for start in alternatives(axis.start, "maximum"):
        form = affine_of(start, opaque)
        if form is None:
            exact = False
        else:
            found.append(ge(name, form))
    for stop in alternatives(axis.stop, "minimum"):
        form = affine_of(stop, opaque)
        if form is None:
            exact = False
        else:
            found.append(lt(name, form))
    return tuple(found), exact


def alternatives(expr: Expr, op: str) -> list[Expr]:
    """The bounds of which `expr` is the maximum or minimum: its operands where it is that operation, else itself."""
    if isinstance(expr, Apply) and expr.op.name == op:
        return [e for arg in expr.args for e in alternatives(arg, op)]
    return [expr]


def domain_of(axes: Iterable[Axis], guards: Iterable[Expr] = (), opaque: Opaque | None = None) -> Region:
    """The points of the axes at which all guards hold.

    Sizes are non-negative parameters of the domain; so are opaque names, which may stand for anything. A guard with
    several cases counts where only one of them has points (`i != 0` for i >= 0). What is not affine is left out, and the
    region is then not exact.
    """
    hidden = Opaque() if opaque is None else opaque
    domain, exact, several = _conjunction(tuple(axes), tuple(guards), hidden)
    for cases in several:
        left = [case for case in cases if not with_constraints(domain, case.constraints).is_empty()]
        if len(left) == 1:
            domain = with_constraints(domain, left[0].constraints)
        elif not left:
            domain = Domain.empty(domain.dims, domain.sizes)
        exact = exact and len(left) <= 1 and all(case.exact for case in left)
    return Region(domain, exact and not mentions_opaque(domain), hidden)


def regions_of(axes: Iterable[Axis], guards: Iterable[Expr] = (), opaque: Opaque | None = None) -> list[Region]:
    """The points of the axes at which all guards hold, in disjoint regions (where there are several, none is empty); see `domain_of`."""
    hidden = Opaque() if opaque is None else opaque
    domain, exact, several = _conjunction(tuple(axes), tuple(guards), hidden)
    found = [(domain, exact)]
    for cases in several:
        if len(found) * len(cases) > MAX_CASES:
            found = [(domain, False) for domain, _ in found]
            continue
        split = [(with_constraints(domain, case.constraints), exact and case.exact) for domain, exact in found for case in cases]
        found = [(domain, exact) for domain, exact in split if not domain.is_empty()]
    return [Region(domain, exact and not mentions_opaque(domain), hidden) for domain, exact in found]


def _conjunction(axes: tuple[Axis, ...], guards: tuple[Expr, ...], opaque: Opaque) -> tuple[Domain, bool, list[list[Case]]]:
    """The domain of the axes and of those guards that have one case, whether it leaves something out, and the other guards' cases."""
    constraints: list[Constraint] = []
    exact = True
    several: list[list[Case]] = []
    for axis in axes:
        found, whole = bound_constraints(axis.index, axis, opaque)
        constraints.extend(found)
        exact = exact and whole
    for guard in guards:
        for part in conjuncts(guard):
            cases = cases_where(part, opaque)
            if len(cases) == 1:
                constraints.extend(cases[0].constraints)
                exact = exact and cases[0].exact
            else:
                several.append(cases)
    sizes = dict.fromkeys(n for e in bounds_and_guards(axes, guards) for n in size_names(e))
    constraints.extend(ge(size, 0) for size in sizes)
    return with_constraints(Domain([axis.index for axis in axes], (), sizes=tuple(sizes)), constraints), exact, several


def with_constraints(domain: Domain, constraints: Iterable[Constraint], names: Iterable[str] = ()) -> Domain:
    """The domain under more constraints; names that it does not know yet, in them or in `names`, become sizes."""
    constraints = tuple(constraints)
    known = set(domain.names)
    mentioned = (*(name for one in constraints for name in one.names()), *names)
    new = dict.fromkeys(name for name in mentioned if name not in known)
    if not constraints and not new:
        return domain
    return Domain(domain.dims, (*domain.constraints, *constraints), (*domain.sizes, *new))


def mentions_opaque(domain: Domain) -> bool:
    """Whether a domain knows of values that are no expressions of indices and sizes."""
    return any(name.startswith("?") for name in domain.sizes)


def bounds_and_guards(axes: Iterable[Axis], guards: Iterable[Expr]) -> Iterator[Expr]:
    """The bounds of axes, and conditions."""
    for axis in axes:
        yield axis.start
        yield axis.stop
    yield from guards
