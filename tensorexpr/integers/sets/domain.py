"""Domains: the integer points of named dimensions that satisfy affine constraints, for every value of named sizes.

This file is the front of the folder: it keeps constraints in a canonical order and hands each question to the file named
after it (`emptiness`, `elimination`, `projection`, `gist`, `difference`, `loops`, `counting`, `sampling`), after the quick
answers: a constraint that is there already, an interval, a box. Semantics are those of isl: sizes are any integers unless
constrained; ``is_empty`` and ``is_subset`` speak about all their values at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tensorexpr.errors import DefinitionError
from tensorexpr.integers.counting import points as counting
from tensorexpr.integers.forms import notation
from tensorexpr.integers.forms.affine import Affine, Atom, FloorDiv, Interval
from tensorexpr.integers.forms.constraint import FALSE, AffineLike, Constraint, eq, ge, lt
from tensorexpr.integers.sets import difference, elimination, gist, inversion, loops, projection, sampling
from tensorexpr.integers.sets.loops import Bounds
from tensorexpr.integers.sets.system import System
from tensorexpr.integers.sets.union import Union
from tensorexpr.records import cached_property, record


@record(slots=False)
class Domain:
    """Integer points over `dims` under `constraints`, which may mention dims and `sizes`.

    >>> i, j = Affine.of("i"), Affine.of("j")
    >>> triangle = Domain(["i", "j"], [ge(i, 0), ge(j, i), lt(j, "n")], sizes=["n"])
    >>> print(triangle)
    [n] -> { [i, j] : i <= j < n and i >= 0 }
    >>> triangle.count(n=4), triangle.is_empty(), triangle.implies(ge("n", 1))
    (10, False, True)
    """

    dims: tuple[str, ...]
    constraints: tuple[Constraint, ...] = ()
    sizes: tuple[str, ...] = ()

    def __init__(self, dims: Sequence[str], constraints: Iterable[Constraint] = (), sizes: Sequence[str] = ()) -> None:
        names = (*dims, *sizes)
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DefinitionError(f"expected distinct names for dims and sizes, got {twice!r} twice")
        kept = _canonical(constraints)
        known = set(names)
        for one in kept:
            for name in one.names():
                if name not in known:
                    raise DefinitionError(f"expected a constraint over {', '.join(names) or 'no names'}, got the name {name!r}", term=one)
        object.__setattr__(self, "dims", tuple(dims))
        object.__setattr__(self, "constraints", kept)
        object.__setattr__(self, "sizes", tuple(sizes))

    @classmethod
    def box(cls, ranges: Mapping[str, tuple[AffineLike, AffineLike]], sizes: Sequence[str] = ()) -> Domain:
        """Half-open ranges ``lo <= name < hi``.

        >>> print(Domain.box({"i": (0, "n"), "k": (-1, 2)}, sizes=["n"]))
        [n] -> { [i, k] : 0 <= i < n and -1 <= k < 2 }
        """
        made = [one for name, (low, high) in ranges.items() for one in (ge(name, low), lt(name, high))]
        return cls(tuple(ranges), made, sizes)

    @classmethod
    def empty(cls, dims: Sequence[str], sizes: Sequence[str] = ()) -> Domain:
        """The domain without points."""
        return cls(dims, [FALSE], sizes)

    # -- the set -----------------------------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """Dims, then sizes."""
        return self.dims + self.sizes

    @cached_property
    def _system(self) -> System:
        return System(self.names, self.constraints)

    @cached_property
    def _least(self) -> dict[tuple[tuple[Atom, int], ...], int]:
        """The constant of each inequality by its terms, equalities as two: a stronger one answers `implies` at once."""
        least = {}
        for one in self.constraints:
            least[one.expr.terms] = one.expr.constant
            if one.is_equality:
                least[(-one.expr).terms] = -one.expr.constant
        return least

    @cached_property
    def _box(self) -> dict[str, Interval]:
        """The constant bounds of each name that one constraint alone gives."""
        box: dict[str, Interval] = {}
        for terms, constant in self._least.items():
            name, factor = terms[0] if len(terms) == 1 else (None, 0)
            if isinstance(name, str):
                low, high = box.get(name, (None, None))
                box[name] = (-constant, high) if factor > 0 else (low, constant)  # tight: the factor is 1 or -1
        return box

    def is_empty(self) -> bool:
        """True when there is no point for any value of the sizes."""
        return self._system.is_empty()

    def contains(self, values: Mapping[str, int]) -> bool:
        """True when the point `values` (dims and sizes) satisfies every constraint."""
        return all(one.holds(values) for one in self.constraints)

    def constrain(self, *constraints: Constraint) -> Domain:
        """The points that also satisfy `constraints`."""
        return Domain(self.dims, (*self.constraints, *constraints), self.sizes) if constraints else self

    def intersect(self, other: Domain | Iterable[Constraint]) -> Domain:
        """The points in both; `other` may speak about fewer dims, and brings its sizes."""
        if not isinstance(other, Domain):
            return self.constrain(*other)
        sizes = self._sizes_with(other)
        strange = [name for name in other.dims if name not in self.dims and name not in sizes]
        if strange:
            raise DefinitionError(f"expected a domain over {', '.join(self.dims)}, got one over {', '.join(other.dims)}", term=other)
        return Domain(self.dims, (*self.constraints, *other.constraints), sizes)

    def _sizes_with(self, other: Domain | Union) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.sizes, *(name for name in other.sizes if name not in self.dims))))

    def _check_same_dims(self, other: Domain | Union) -> None:
        if set(self.dims) != set(other.dims):
            raise DefinitionError(f"expected a set over {', '.join(self.dims)}, got one over {', '.join(other.dims)}", term=other)

    def implies(self, constraint: Constraint) -> bool:
        """True when `constraint` holds at every point.

        >>> Domain.box({"o": (0, 5), "k": (0, 3)}).implies(lt(2 * Affine.of("o") + "k", 11))
        True
        """
        if constraint.is_true:
            return True
        known = self._least.get(constraint.expr.terms)
        if known is not None and constraint.kind == ">=" and known <= constraint.expr.constant:
            return True
        low, high = constraint.expr.interval(self._box)
        if low is not None and (low >= 0 if constraint.kind == ">=" else low == 0 == high):
            return True
        return gist.implied(self._system, constraint)

    def is_subset(self, other: Domain | Union) -> bool:
        """True when `other` has every point, for every value of the sizes."""
        self._check_same_dims(other)
        if isinstance(other, Union):
            return Union(self.dims, (self,), self.sizes).is_subset(other)
        wider = self if set(other.sizes) <= set(self.names) else Domain(self.dims, self.constraints, self._sizes_with(other))
        return all(wider.implies(one) for one in other.constraints)

    def is_disjoint(self, other: Domain | Union) -> bool:
        """True when there is no common point."""
        self._check_same_dims(other)
        if isinstance(other, Union):
            return all(self.is_disjoint(piece) for piece in other.pieces)
        return self.intersect(other).is_empty()

    def is_equal(self, other: Domain | Union) -> bool:
        """True when both have the same points, for every value of the sizes (``==`` compares the constraints)."""
        if set(self.dims) != set(other.dims):
            return False
        if isinstance(other, Union):
            return other.is_equal(self)
        return self == other or (self.is_subset(other) and other.is_subset(self))

    def subtract(self, other: Domain | Union) -> Union:
        """The points that `other` does not have, in disjoint pieces."""
        self._check_same_dims(other)
        if isinstance(other, Union):
            return Union(self.dims, () if self.is_empty() else (self,), self.sizes).subtract(other)
        sizes = self._sizes_with(other)
        removed = [one for one in other.constraints if one not in self.constraints]
        pieces = difference.subtract(self.constraints, removed, self.dims + sizes)
        return Union(self.dims, tuple(Domain(self.dims, piece, sizes) for piece in pieces), sizes)

    def union(self, other: Domain | Union) -> Union:
        """The points of either, in disjoint pieces."""
        return Union(self.dims, () if self.is_empty() else (self,), self.sizes).union(other)

    # -- simpler forms -----------------------------------------------------------------------------------------------

    def gist(self, context: Domain) -> Domain:
        """Fewest constraints that, together with `context`, mean the same as this domain does together with `context`.

        >>> box = Domain.box({"i": (0, "n")}, ["n"])
        >>> print(box.gist(Domain(["i"], [ge("i", 0)], ["n"])))
        [n] -> { [i] : i < n }
        """
        sizes = self._sizes_with(context)
        kept = gist.gist(self.constraints, context.constraints, self.dims + sizes)
        return Domain(self.dims, kept, self.sizes)

    def simplified(self) -> Domain:
        """The same points with no constraint that follows from the others."""
        kept = gist.gist(self.constraints, (), self.names)
        return self if len(kept) == len(self.constraints) else Domain(self.dims, kept, self.sizes)

    def simplify(self, expr: AffineLike) -> Affine:
        """`expr` with the floor divisions that are simpler on this domain rewritten.

        >>> x = (7 * Affine.of("i") + "j") // 7
        >>> str(x), str(Domain.box({"i": (0, 4), "j": (0, 7)}).simplify(x))
        ('i + j//7', 'i')
        """
        result = Affine.of(expr)
        for atom, factor in result.terms:
            if isinstance(atom, FloorDiv):
                inner = self.simplify(atom.numerator) // atom.denominator
                for own, count in inner.terms:
                    if isinstance(own, FloorDiv):
                        low, high = self.range(Affine.of(own))
                        if low is not None and low == high:
                            inner = inner - Affine.of(own) * count + low * count
                if inner != Affine.of(atom):
                    result = result - Affine.of(atom) * factor + inner * factor
        return result

    def rename(self, names: Mapping[str, str]) -> Domain:
        """Dims and sizes renamed."""
        return Domain(
            [names.get(name, name) for name in self.dims],
            [one.substitute(names) for one in self.constraints],
            [names.get(name, name) for name in self.sizes],
        )

    def with_sizes(self, **values: int) -> Domain:
        """The domain for given values of some sizes."""
        self._check_sizes(values, complete=False)
        left = [name for name in self.sizes if name not in values]
        return Domain(self.dims, [one.substitute(values) for one in self.constraints], left)

    # -- extremes ----------------------------------------------------------------------------------------------------

    def range(self, expr: AffineLike) -> Interval:
        """The exact least and greatest value of `expr` over all points and sizes; None where unbounded.

        An empty domain has neither and gives (None, None).

        >>> Domain.box({"o": (0, 5), "k": (0, 3)}).range(2 * Affine.of("o") + "k")
        (0, 10)
        """
        value = Affine.of(expr)
        if self._is_box_around(value):
            return (None, None) if self.is_empty() else value.interval(self._box)
        return self._system.range(value) or (None, None)

    def _is_box_around(self, expr: Affine) -> bool:
        """True when interval arithmetic is exact: plain names, each bounded by constants only."""
        if expr.has_division():
            return False
        own = set(expr.names())
        return all(len(one.expr.terms) == 1 and not one.expr.has_division() for one in self.constraints if not own.isdisjoint(one.names()))

    def bounds(self, name: str, inner: Sequence[str] = ()) -> Bounds:
        """The lower and upper bounds of `name` by the other names, those in `inner` excepted."""
        return loops.bounds(self.constraints, self.names, name, inner)

    def loops(self, order: Sequence[str] | None = None, context: Domain | None = None) -> list[Bounds]:
        """Nested loops, outermost first, that visit exactly the points; see `Bounds`. `context` is known to hold.

        >>> for loop in Domain(["i", "j"], [ge("i", 0), ge("j", "i"), lt("j", "n")], ["n"]).loops(): print(loop)
        for i in range(0, n)
        for j in range(i, n)
        """
        order = self.dims if order is None else tuple(order)
        if sorted(order) != sorted(self.dims):
            raise DefinitionError(f"expected an order of the dims {', '.join(self.dims)}, got {', '.join(order)}", term=self)
        names = self.names if context is None else self.dims + self._sizes_with(context)
        return loops.nest(self.constraints, names, order, () if context is None else context.constraints)

    def defined(self, name: str, inner: Sequence[str] = ()) -> Affine | None:
        """`name` as a quasi-affine function of the other names (not of `inner`), when the constraints determine it.

        >>> flat = Domain.box({"x": (0, 28), "i": (0, 4), "j": (0, 7)}).constrain(eq("x", 7 * Affine.of("i") + "j"))
        >>> str(flat.defined("i")), str(flat.defined("j"))
        ('x//7', 'x - 7*i')
        """
        return loops.defined(self.constraints, self.names, name, inner)

    def determine(self, names: Sequence[str]) -> dict[str, Affine] | None:
        """All `names` as functions of the names not among them, None when one is not determined: the inverse of an access.

        >>> flat = Domain.box({"x": (0, 28), "i": (0, 4), "j": (0, 7)}).constrain(eq("x", 7 * Affine.of("i") + "j"))
        >>> {name: str(value) for name, value in flat.determine(["i", "j"]).items()}
        {'i': 'x//7', 'j': 'x % 7'}
        """
        return inversion.determine(self.constraints, self.names, names)

    def is_injective(self, values: Mapping[str, AffineLike]) -> bool:
        """True when no two points have the same `values` (an access that gathers each element once).

        >>> Domain.box({"o": (0, "n"), "k": (0, 3)}, ["n"]).is_injective({"x": 3 * Affine.of("o") + "k"})
        True
        """
        return inversion.is_injective(self.constraints, self.dims, self.sizes, values)

    # -- images ------------------------------------------------------------------------------------------------------

    def project_out(self, names: Iterable[str]) -> Union:
        """The exact set of the other dims' values, in disjoint pieces (constraints may carry floor divisions).

        >>> evens = Domain.box({"i": (0, 10), "x": (0, 100)}).constrain(eq("x", 2 * Affine.of("i")))
        >>> print(evens.project_out(["i"]))
        { [x] : 0 <= x < 19 and x % 2 == 0 }
        """
        removed = self._checked_dims(names)
        dims = [name for name in self.dims if name not in removed]
        found = projection.project(self.constraints, self.names, removed)
        return Union.disjoint(dims, [Domain(dims, one, self.sizes) for one in found], self.sizes)

    def hull_without(self, names: Iterable[str]) -> Domain:
        """One domain over the other dims that contains `project_out(names)`, perhaps with points more."""
        removed = self._checked_dims(names)
        dims = [name for name in self.dims if name not in removed]
        return Domain(dims, elimination.hull(self.constraints, self.names, removed), self.sizes).simplified()

    def _checked_dims(self, names: Iterable[str]) -> list[str]:
        removed = list(dict.fromkeys(names))
        for name in removed:
            if name not in self.dims:
                raise DefinitionError(f"expected a dim among {', '.join(self.dims) or 'none'}, got {name!r}", term=self)
        return removed

    def image(self, values: Mapping[str, AffineLike]) -> Union:
        """The points ``{new: value at p}`` for all points p, in disjoint pieces.

        >>> print(Domain.box({"i": (0, 4), "j": (0, 7)}).image({"x": 7 * Affine.of("i") + "j"}))
        { [x] : 0 <= x < 28 }
        """
        new = list(values)
        aside = {name: f"{name}'" for name in self.dims}  # old dims step aside, so that new ones may have their names
        links = [eq(name, Affine.of(value).substitute(aside)) for name, value in values.items()]
        moved = [one.substitute(aside) for one in self.constraints]
        return Domain([*new, *aside.values()], moved + links, self.sizes).project_out(aside.values())

    def preimage(self, values: Mapping[str, AffineLike], new_dims: Sequence[str]) -> Domain:
        """The points p over `new_dims` whose values, one for each dim, lie in this domain.

        >>> print(Domain.box({"x": (0, 10)}).preimage({"x": 2 * Affine.of("o") + "k"}, ["o", "k"]))
        { [o, k] : -2*o <= k <= 9 - 2*o }
        """
        missing = [name for name in self.dims if name not in values]
        if missing:
            raise DefinitionError(f"expected a value for every dim, got none for {missing[0]!r}", term=self)
        return Domain(new_dims, [one.substitute(values) for one in self.constraints], [name for name in self.sizes if name not in new_dims])

    # -- points ------------------------------------------------------------------------------------------------------

    def _check_sizes(self, sizes: Mapping[str, int], complete: bool = True) -> None:
        for name in sizes:
            if name not in self.sizes:
                raise DefinitionError(f"expected sizes among {', '.join(self.sizes) or 'none'}, got {name!r}", term=self)
        if complete and len(sizes) < len(self.sizes):
            missing = next(name for name in self.sizes if name not in sizes)
            raise DefinitionError(f"expected a value for every size, got none for {missing!r}", term=self)

    def count(self, **sizes: int) -> int:
        """The exact number of points for these sizes."""
        self._check_sizes(sizes)
        system = System(self.dims, [one.substitute(sizes) for one in self.constraints])
        return counting.count_points(*system.rows(), len(system.columns))

    def points(self, **sizes: int) -> Iterator[dict[str, int]]:
        """The points for these sizes as dicts of the dims, in lexicographic order.

        >>> list(Domain(["i", "j"], [ge("i", 0), lt("i", "j"), lt("j", 3)]).points())
        [{'i': 0, 'j': 1}, {'i': 0, 'j': 2}, {'i': 1, 'j': 2}]
        """
        self._check_sizes(sizes)
        constraints = [one.substitute(sizes) for one in self.constraints]
        if System(self.dims, constraints).is_empty():
            return iter(())
        return loops.visit(loops.nest(constraints, self.dims, self.dims), {})

    def sample(self, **sizes: int) -> dict[str, int] | None:
        """One point with small values, sizes included (chosen, unless given: the least that have a point), or None.

        >>> Domain.box({"i": (2, "n")}, ["n"]).sample()
        {'n': 3, 'i': 2}
        """
        self._check_sizes(sizes, complete=False)
        return sampling.sample(self.constraints, self.sizes + self.dims, sizes)

    def __str__(self) -> str:
        return notation.domain_text(self.dims, self.sizes, self.constraints)


def _canonical(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """The constraints sorted, the strongest of each direction only; FALSE alone when two contradict each other."""
    least: dict[tuple[tuple[Atom, int], ...], Constraint] = {}
    equalities: dict[Constraint, None] = {}
    for one in constraints:
        terms = one.expr.terms
        if not terms:
            if one.is_false:
                return (FALSE,)
        elif one.kind == "==":
            equalities[one] = None
        elif terms not in least or one.expr.constant < least[terms].expr.constant:
            least[terms] = one
    inequalities = []
    for terms, one in least.items():
        opposite = least.get(tuple([(atom, -factor) for atom, factor in terms]))
        room = 1 if opposite is None else one.expr.constant + opposite.expr.constant
        if room < 0:
            return (FALSE,)
        if room:
            inequalities.append(one)
        else:
            equalities[Constraint(one.expr, "==")] = None
    if not equalities:
        return tuple(sorted(inequalities, key=Constraint.sort_key))
    fixed: dict[tuple[tuple[Atom, int], ...], int] = {}
    for one in equalities:
        for expr in (one.expr, -one.expr):
            if fixed.setdefault(expr.terms, expr.constant) != expr.constant:
                return (FALSE,)
    kept = []
    for one in inequalities:  # an equality of the same direction decides an inequality
        known = fixed.get(one.expr.terms)
        if known is None:
            kept.append(one)
        elif one.expr.constant < known:
            return (FALSE,)
    return tuple(sorted([*equalities, *kept], key=Constraint.sort_key))
