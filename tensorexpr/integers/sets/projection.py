"""Exact projection: the integer points that some integer values of the removed names complete.

The shadow of integer points has holes, so the answer is a list of alternatives whose constraints may carry floor divisions.

1. `reduce_system` removes what can be removed without loss; most projections of a program end here.
2. An equality ``a*x + e == 0`` that no change of variables makes unit leaves the congruence ``e % a == 0``, and the other
   constraints are multiplied by a.
3. For the last name x, with bounds ``l_i <= a_i*x`` and ``b_j*x <= u_j``, an integer exists exactly where every lower bound
   rounded up is at most every upper bound: ``l_i <= a_i*(u_j // b_j)``. One alternative, no splitting.
4. With several names left, one is removed by its dark shadow and the splinters between dark and real shadow; when the two
   shadows have the same integer points, one alternative remains.

Source: W. Pugh, The Omega test (1991), section 2.3, for 4; 3 is the definition of floor and ceiling.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tensorexpr.integers.forms.affine import Affine
from tensorexpr.integers.forms.constraint import Constraint, congruent
from tensorexpr.integers.sets.elimination import constraints_of, eliminated_columns, irredundant
from tensorexpr.integers.sets.system import System
from tensorexpr.integers.solving.effort import DomainTooComplex
from tensorexpr.integers.solving.linear_algebra import hermite_normal_form, lll, transpose
from tensorexpr.integers.solving.reduction import reduce_system
from tensorexpr.records import record

_MOST_PIECES = 2000
_MANY_ROWS = 16

Conjunction = list[Constraint]
_Bound = tuple[int, Affine]  # (a, e): the constraint a*x + e >= 0, a of either sign


@record
class _Pair:
    """A lower and an upper bound of one name x: ``a*x + lower >= 0`` and ``-b*x + upper >= 0``, with a, b > 0."""

    a: int
    lower: Affine
    b: int
    upper: Affine

    @property
    def real(self) -> Constraint:
        """A rational x fits between."""
        return Constraint(self.upper * self.a + self.lower * self.b, ">=")

    @property
    def dark(self) -> Constraint:
        """So much room that an integer fits between."""
        return Constraint(self.upper * self.a + self.lower * self.b - (self.a - 1) * (self.b - 1), ">=")

    @property
    def rounded(self) -> Constraint:
        """An integer fits between, exactly: one bound rounded to an integer satisfies the other."""
        if self.b <= self.a:
            return Constraint((self.upper // self.b) * self.a + self.lower, ">=")
        return Constraint((self.lower // self.a) * self.b + self.upper, ">=")

    def is_wide_on(self, shadow: System) -> bool:
        """True when real and dark are the same for the integer points of `shadow`, where real holds."""
        return self.a == 1 or self.b == 1 or shadow.with_constraints(self.dark.negate()).is_empty()


def project(constraints: Sequence[Constraint], names: Sequence[str], removed: Collection[str]) -> list[Conjunction]:
    """Alternatives (perhaps overlapping, none empty) that together are exactly the projection.

    >>> from tensorexpr.integers.forms.constraint import eq, ge, le
    >>> alternatives = project([eq("x", 3 * Affine.of("i")), ge("i", 0), le("i", 9)], ["x", "i"], ["i"])
    >>> [[str(c) for c in conjunction] for conjunction in alternatives]
    [['x % 3 == 0', 'x >= 0', 'x <= 27']]
    """
    outer = [name for name in names if name not in removed]
    return _Projector(outer).project(list(constraints), [name for name in names if name in removed])


class _Projector:
    """Carries the outer names, the count of pieces against the cap, and fresh names for changed variables."""

    def __init__(self, outer: list[str]) -> None:
        self._outer = outer
        self._pieces = 0
        self._fresh = 0

    def _new_name(self) -> str:
        self._fresh += 1
        return f"'{self._fresh}"  # no user's name begins with a quote

    def project(self, constraints: Conjunction, removed: list[str]) -> list[Conjunction]:
        system = System([*self._outer, *removed], constraints)
        if system.is_empty():
            return []
        gone = eliminated_columns(system, removed)
        reduced = reduce_system(*system.rows(), keep=frozenset(set(range(1, len(system.columns) + 1)) - set(gone)))
        if reduced is None:
            return []
        equalities, rows = reduced
        if len(rows) > _MANY_ROWS:
            rows = irredundant(rows)
        atoms = system.atoms()
        inner: list[str] = []
        for at in gone:
            if any(row[at] for row in (*equalities, *rows)):
                inner.append(self._new_name())
                atoms[at - 1] = inner[-1]
        exact = constraints_of(equalities, atoms, "==")
        bounds = constraints_of(rows, atoms)
        if not inner:
            return [exact + bounds]
        stuck = next((one for one in exact if any(one.expr.coefficient(name) for name in inner)), None)
        if stuck is not None:
            return self._use_equality(stuck, [one for one in (*exact, *bounds) if one is not stuck], inner)
        if len(inner) == 1:
            return [_round(exact + bounds, inner[0], self._outer)]
        return self._split(exact + bounds, inner)

    def _use_equality(self, stuck: Constraint, others: Conjunction, inner: list[str]) -> list[Conjunction]:
        """Removes the one inner name of ``a*x + e == 0``: ``e % a == 0``, and ``|a|`` times everything else."""
        name = next(name for name in inner if stuck.expr.coefficient(name))
        factor = stuck.expr.coefficient(name)
        rest = stuck.expr - Affine({name: factor})
        size, sign = abs(factor), 1 if factor > 0 else -1
        changed = [congruent(rest, size)]
        for one in others:
            own = one.expr.coefficient(name)
            changed.append(Constraint((one.expr - Affine({name: own})) * size - rest * (own * sign), one.kind) if own else one)
        return self.project(changed, [other for other in inner if other != name])

    def _split(self, constraints: Conjunction, inner: list[str]) -> list[Conjunction]:
        constraints, inner = self._shorten(constraints, inner)
        if len(inner) == 1:
            return self.project(constraints, inner)
        name = min(inner, key=lambda name: _roughness(constraints, name))
        rest = [other for other in inner if other != name]
        free, pairs = _pairs(constraints, name)
        real = free + [pair.real for pair in pairs]
        shadow = System([*self._outer, *rest], real)
        thin = [pair for pair in pairs if not pair.is_wide_on(shadow)]
        if not thin:
            return self.project(real, rest)
        pieces = self.project(real + [pair.dark for pair in thin], rest)
        for on_bound in min((_splinters(thin, name, side) for side in (1, -1)), key=len):
            self._pieces += 1
            if self._pieces > _MOST_PIECES:
                raise DomainTooComplex(
                    f"expected a projection of at most {_MOST_PIECES} pieces, got more",
                    hint="coefficients this large have no small description; keep the names as dimensions",
                )
            pieces += self.project([*constraints, on_bound], inner)
        return pieces

    def _shorten(self, constraints: Conjunction, inner: list[str]) -> tuple[Conjunction, list[str]]:
        """The inner names replaced by fewer or by ones with shorter columns, by a unimodular change of variables."""
        columns = [[one.expr.coefficient(name) for name in inner] for one in constraints]
        lattice, _ = hermite_normal_form(transpose(columns))
        basis = lll([line for line in lattice if any(line)])
        fresh = [self._new_name() for _ in basis]
        changed = []
        for at, one in enumerate(constraints):
            rest = one.expr - Affine(dict(zip(inner, columns[at], strict=True)))
            own = Affine([(name, column[at]) for name, column in zip(fresh, basis, strict=True)])
            changed.append(Constraint(rest + own, one.kind))
        return changed, fresh


def bounds_on(constraints: Sequence[Constraint], name: str) -> tuple[Conjunction, list[_Bound], list[_Bound]]:
    """``(without name, lowers, uppers)``: a lower (a, e) says ``a*name + e >= 0``, an upper ``-a*name + e >= 0``, a > 0."""
    free: Conjunction = []
    lowers: list[_Bound] = []
    uppers: list[_Bound] = []
    for one in constraints:
        factor = one.expr.coefficient(name)
        if not factor:
            free.append(one)
            continue
        rest = one.expr - Affine({name: factor})
        if factor > 0 or one.is_equality:
            lowers.append((abs(factor), rest if factor > 0 else -rest))
        if factor < 0 or one.is_equality:
            uppers.append((abs(factor), rest if factor < 0 else -rest))
    return free, lowers, uppers


def _pairs(constraints: Conjunction, name: str) -> tuple[Conjunction, list[_Pair]]:
    """The constraints without `name`, and each lower bound of it with each upper bound."""
    free, lowers, uppers = bounds_on(constraints, name)
    return free, [_Pair(a, lower, b, upper) for a, lower in lowers for b, upper in uppers]


def _roughness(constraints: Conjunction, name: str) -> int:
    """How far the elimination of `name` may be from exact; 0 when it is."""
    _, lowers, uppers = bounds_on(constraints, name)
    return sum((a - 1) * (b - 1) for a, _ in lowers for b, _ in uppers)


def _splinters(thin: list[_Pair], name: str, side: int) -> Conjunction:
    """Equalities of which one holds at an integer `name` that fits one of the pairs `thin` where it is not dark.

    Between ``lower <= a*x`` and ``b*x <= upper`` there is room for less than ``a*b - a - b``, so x is that near to the bound.
    """
    widest: dict[_Bound, int] = {}
    for pair in thin:
        bound, other = ((pair.a, pair.lower), pair.b) if side > 0 else ((pair.b, pair.upper), pair.a)
        widest[bound] = max(widest.get(bound, 0), other)
    return [
        Constraint(Affine({name: side * factor}) + rest - excess, "==")
        for (factor, rest), other in widest.items()
        for excess in range((factor * other - factor - other) // other + 1)
    ]


def _round(constraints: Conjunction, name: str, outer: list[str]) -> Conjunction:
    """The projection without the one inner name: for each pair of bounds, lower <= upper after rounding."""
    free, pairs = _pairs(constraints, name)
    shadow = System(outer, free + [pair.real for pair in pairs])
    result = free + [pair.real if pair.is_wide_on(shadow) else pair.rounded for pair in pairs]
    return list(dict.fromkeys(one for one in result if not one.is_true))
