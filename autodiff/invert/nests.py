"""The loops over the integer points of a gather: in which order, and over which unknowns.

What is left free of a read runs in loops whose bounds are exact, so that the innermost body runs once for each read. A loop
around may still go around in vain: where the loop inside is empty. That depends on the order of the loops and, where they run
over a lattice, on its basis: of a reduced one `x[2*i + 2*j + 3*r]` may run over i + j first, which some r do not allow. Where
rounds are in vain, other orders are tried, then the bases in echelon form for each choice of axes (the first loop settles the
first axis, the second loop the second one). Others do without vain rounds, or the first choice stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, permutations

from tensorexpr.integers import (
    Affine,
    Bounds,
    Constraint,
    Domain,
    DomainTooComplex,
    at_most,
    eq,
    ge,
    gt,
    hermite_normal_form,
    le,
)
from tensorexpr.records import replace

MOST_STEPS = 30_000
"""Steps of the solver in search of loops without vain rounds; when they are used up, the first choice stays."""
MOST_ORDERS = 12
"""Orders of loops, and bases, that are tried."""


def without_vain_rounds(
    bounds: list[Bounds], solved: Mapping[str, Affine], domain: Domain, order: Sequence[str], context: Domain
) -> tuple[dict[str, Affine], list[Bounds]]:
    """Loops over the points of `domain` in which none goes around in vain, where some are found, and what they make of its unknowns.

    `bounds` are the loops in `order`, which stay where they are good or nothing better is found; `solved` are the axes that
    the unknowns determine.
    """
    best: tuple[dict[str, Affine], list[Bounds]] = ({}, bounds)
    try:
        with at_most(MOST_STEPS):
            if not _in_vain(bounds, domain, context):
                return best
            # How often a read winds around, which few values answer, before the loops that it then bounds: these else run over all.
            turns = [name for name in order if name.startswith("#")]
            others = [name for name in order if name not in turns]
            axes = [name for name in order if name[0] not in "#$"]
            parameters = [name for name in order if name not in axes]
            steps = {name: max((abs(form.coefficient(name)) for form in solved.values()), default=0) for name in order}
            falling = tuple(sorted(order, key=lambda name: -steps[name]))  # the digits of an index from the first
            first = [(*turns, *others), (*turns, *reversed(others)), falling]
            orders = dict.fromkeys([*first, *islice(permutations(order), MOST_ORDERS)])
            changes = (
                (move, one)
                for move in islice(_echelons(solved, parameters), MOST_ORDERS)
                for one in dict.fromkeys([(*axes, *parameters), (*parameters, *axes)])
            )
            for at, (move, candidate) in enumerate(chain((({}, one) for one in orders), changes)):
                moved = Domain(domain.dims, [row.substitute(move) for row in domain.constraints], domain.sizes) if move else domain
                found = nest(moved, list(candidate), context, False)
                if found is not None and turns and at == 0:
                    best = ({}, found)
                if found is not None and not _in_vain(found, moved, context):
                    return move, found
    except DomainTooComplex:
        pass
    return best


def _echelons(solved: Mapping[str, Affine], parameters: list[str]) -> Iterator[dict[str, Affine]]:
    """Unknowns that are no axes in terms of those of a basis in echelon form, for one choice of leading axes after another."""
    if len(parameters) < 2:
        return
    columns = {name: column for name, form in solved.items() if any(column := [form.coefficient(p) for p in parameters])}
    seen: set[tuple[tuple[int, ...], ...]] = set()
    for first in permutations(columns, len(parameters)):
        names = dict.fromkeys((*first, *columns))
        matrix = [[columns[name][at] for name in names] for at in range(len(parameters))]
        _, u = hermite_normal_form(matrix)
        key = tuple(map(tuple, u))
        if key not in seen:
            seen.add(key)
            yield {p: Affine([(new, u[row][at]) for row, new in enumerate(parameters)]) for at, p in enumerate(parameters)}


def determined_first(domain: Domain, context: Domain) -> list[str]:
    """The free unknowns, those that the element determines before the others."""
    whole = domain.intersect(context)
    order: list[str] = []
    left = list(domain.dims)
    while True:
        for name in left:
            value = whole.defined(name, [other for other in left if other != name])
            if value is not None and not set(value.names()) & set(left):
                order.append(name)
                left.remove(name)
                break
        else:
            return order + left


def as_constraints(loop: Bounds) -> list[Constraint]:
    """What holds inside a loop."""
    if loop.value is not None:
        return [eq(loop.name, loop.value)]
    lowers = [ge(Affine.of(loop.name) * factor, bound) for bound, factor in loop.lowers]
    return lowers + [le(Affine.of(loop.name) * factor, bound) for bound, factor in loop.uppers]


def nest(domain: Domain, order: list[str], context: Domain, open_ended: bool) -> list[Bounds] | None:
    """Loops over the free unknowns with guards on the element alone, None where there is no point."""
    if not order:
        return []
    if domain.intersect(context).is_empty():
        return None
    loops = domain.loops(order, context)
    own = set(order)
    if open_ended or all(own.isdisjoint(guard.names()) for loop in loops for guard in loop.guards):
        return loops
    # A condition inside the loops would be visited in vain: write all of it as bounds.
    whole = domain.intersect(context)
    loops = [whole.bounds(name, order[level + 1 :]) for level, name in enumerate(order)]
    # These bounds rely on what the element must satisfy to be read at all.
    element = Domain((), whole.hull_without(order).constraints, whole.sizes).gist(context)
    return [replace(loops[0], guards=element.constraints), *loops[1:]]


def _in_vain(bounds: Sequence[Bounds], domain: Domain, context: Domain) -> bool:
    """Whether a loop can be empty at some iterations of a loop around it (and not at an element as a whole)."""
    guards = [guard for loop in bounds for guard in loop.guards]  # tested at the element, before all loops
    around = Domain([loop.name for loop in bounds], [*context.constraints, *guards], domain.sizes)
    running: set[str] = set()
    for loop in bounds:
        if loop.value is None:
            for low, factor in loop.lowers:
                for high, divisor in loop.uppers:
                    if not running.isdisjoint((*low.names(), *high.names())):
                        if not around.constrain(gt(-(-low // factor), high // divisor)).is_empty():
                            return True
            running.add(loop.name)
        around = around.constrain(*as_constraints(loop))
    return False
