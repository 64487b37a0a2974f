"""Inverting accesses: names as functions of the other names, where a domain determines them.

The equalities are solved as one linear system over the wanted names (`solve_parametric`), which leaves free integers along
its kernel; bounds that leave each of them one value, ``l <= a*t <= u`` with ``u - l < a``, make it ``t = u // a``. This finds
mixed-radix inverses (``x = 7*i + j`` gives ``i = x//7``) and those of strided, dilated windows alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorexpr.integers.forms.affine import Affine
from tensorexpr.integers.forms.constraint import AffineLike, Constraint, eq, ge
from tensorexpr.integers.sets.elimination import hull
from tensorexpr.integers.sets.loops import single_value
from tensorexpr.integers.sets.parametric import solve_parametric
from tensorexpr.integers.sets.system import System


def determine(constraints: Sequence[Constraint], names: Sequence[str], wanted: Sequence[str]) -> dict[str, Affine] | None:
    """The values of `wanted` by the other names at every point, or None when bounds leave one of them open.

    >>> from tensorexpr.integers.forms.constraint import lt
    >>> window = [eq("i", 3 * Affine.of("o") + 2 * Affine.of("k")), ge("k", 0), lt("k", 3)]      # kernel 3, stride 3, dilation 2
    >>> [str(value) for value in determine(window, ["i", "o", "k"], ["o", "k"]).values()]
    ['i - 2*((i + 2)//3)', '2 - (i + 2) % 3']
    """
    linear = [one for one in constraints if one.is_equality and _is_linear_in(one, wanted)]
    matrix = [[one.expr.coefficient(name) for name in wanted] for one in linear]
    right = [Affine({name: one.expr.coefficient(name) for name in wanted}) - one.expr for one in linear]
    solution = solve_parametric(matrix, right, len(wanted))
    if solution is None:
        return None
    free = [f"'{at}" for at in range(len(solution.kernel))]  # no user's name begins with a quote
    values = dict(zip(wanted, solution.values(free), strict=True))
    outer = [name for name in names if name not in values]
    known = [*(one.substitute(values) for one in constraints), *solution.congruences]
    found: dict[str, Affine] = {}
    while len(found) < len(free):
        undecided = [name for name in free if name not in found]
        for name in undecided:
            others = [other for other in undecided if other != name]
            shadow = hull(known, [*outer, *free], others, (name,))
            one_value = single_value([one for one in shadow if one.expr.coefficient(name)], name)
            if one_value is not None:
                found[name] = one_value[0].substitute(found)
                known = [one.substitute(found) for one in known]
                break
        else:
            return None
    return {name: value.substitute(found) for name, value in values.items()}


def _is_linear_in(constraint: Constraint, wanted: Sequence[str]) -> bool:
    """True when some wanted name occurs, and none inside a floor division."""
    terms = constraint.expr.terms
    inside = {name for atom, _ in terms if not isinstance(atom, str) for name in atom.numerator.names()}
    return inside.isdisjoint(wanted) and any(atom in wanted for atom, _ in terms)


def is_injective(constraints: Sequence[Constraint], dims: Sequence[str], sizes: Sequence[str], values: Mapping[str, AffineLike]) -> bool:
    """True when no two points have the same `values`, for any sizes."""
    twins = {name: f"{name}'" for name in dims}
    doubled = [*constraints, *(one.substitute(twins) for one in constraints)]
    doubled += [eq(value, Affine.of(value).substitute(twins)) for value in values.values()]
    system = System([*dims, *twins.values(), *sizes], doubled)
    return all(system.with_constraints([ge(name, Affine.of(twin) + 1)]).is_empty() for name, twin in twins.items())
