"""What a part of a nest touches of a buffer, for given indices of the loops around it: a box, by projection.

    for i in range(0, n):
        for k in range(0, 3):
            y[i] = y[i] + x[2 * i + k]         of x, for a given i: 2 * i <= d < 2 * i + 3, and every element of it

The set of all indices of an access and of the element that it touches is projected onto the element and what is given (Fourier and Motzkin,
with Pugh's dark shadows where it must be exact); the box of several accesses is the hull of theirs. No access leaves its buffer, so neither
does a box. Data in an index stands for itself where its arguments are given, and for its range elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import reduce

from tensorexpr.codegen.facts.forms import Bound
from tensorexpr.codegen.facts.places import Touch
from tensorexpr.codegen.facts.questions import STEPS, Questions
from tensorexpr.codegen.facts.scope import Scope, mentioned_in
from tensorexpr.integers import Affine, Domain, DomainTooComplex, Union, at_most, eq, ge, lt
from tensorexpr.ir import Const, Expr, apply, const
from tensorexpr.records import record
from tensorexpr.regions import Opaque, affine_of, expression_of

ZERO = const(0)
MOST_PIECES = 16
"""Sets of which a region is made; where there are more the whole buffer is taken."""
MORE_STEPS = 4
"""A region takes so many times the steps of a question."""

End = tuple[Expr, ...]
"""The end of a box: the least of some expressions where it is the one above, the greatest where it is the one below."""


@record
class Region:
    """The elements of a buffer from `low` on and below `high` in each dimension, as int64 expressions over what is given.

    `is_exact`: each of them is touched, wherever the loops and conditions around hold; else some may not be. `widths` are numbers that no
    extent of the box exceeds, None where there is none. Where nothing runs the box may be anything, `high` below `low` too.
    """

    box: tuple[tuple[Expr, Expr], ...]
    is_exact: bool
    widths: tuple[int | None, ...]

    @property
    def extents(self) -> tuple[Expr, ...]:
        """How far the box reaches in each dimension."""
        return tuple(_less(high, low) for low, high in self.box)


def region_of(touches: Sequence[Touch], fixed: Collection[str], around: Scope, questions: Questions) -> Region | None:
    """The box of what some accesses of one buffer touch, with the indices in `fixed` given; None where none of them ever runs. `around` is
    what is known of what is given."""
    ranks = {len(touch.indices) for touch in touches}
    if not touches:
        return None
    if len(ranks) == 1:
        try:
            with at_most(MORE_STEPS * STEPS):
                return _Projection(touches, fixed, around, questions).region()
        except (DomainTooComplex, _TooMany):
            pass
    shape = touches[0].home.buffer.shape
    return Region(tuple((ZERO, extent) for extent in shape), False, tuple(int(e.value) if isinstance(e, Const) else None for e in shape))


class _TooMany(Exception):
    """More cases or sets than anybody waits for."""


class _Projection:
    def __init__(self, touches: Sequence[Touch], fixed: Collection[str], around: Scope, questions: Questions) -> None:
        self.touches, self.fixed, self.around, self.questions = touches, fixed, around, questions
        self.forms = questions.forms(around)
        self.elements = [f"element {axis}" for axis in range(len(touches[0].indices))]

    def region(self) -> Region | None:
        sets: list[Domain] = []
        lows: list[list[End]] = [[] for _ in self.elements]
        highs: list[list[End]] = [[] for _ in self.elements]
        for touch in self.touches:
            own = [one for one in self._sets(touch) if not one.is_empty()]
            sets += [one for one in own if one not in sets]
            if len(sets) > MOST_PIECES:
                raise _TooMany
            for axis in range(len(self.elements) if own else 0):
                low, high = self._ends(touch, axis, own)
                lows[axis] += low
                highs[axis] += high
        if not sets:
            return None
        far = [(self._furthest(low, False), self._furthest(high, True)) for low, high in zip(lows, highs, strict=True)]
        box = tuple((_folded("minimum", "maximum", low), _folded("maximum", "minimum", high)) for low, high in far)
        return Region(box, self._is_exact(box, sets), tuple(_width(low, high) for low, high in far))

    def _sets(self, touch: Touch) -> Iterator[Domain]:
        """The indices of an access and its elements, as disjoint sets."""
        questions, scope = self.questions, touch.scope
        shape = [affine_of(extent, questions.opaque) for extent in touch.shape]
        places = list(questions.cases_of_all(touch.indices))
        if not places:
            raise _TooMany
        for domain in questions.regions(scope.facts, scope):
            for cases in places:
                found = questions.narrowed(domain, cases, scope)
                links = [eq(name, case.value) for name, case in zip(self.elements, cases, strict=True)]
                for name, case, extent in zip(self.elements, cases, shape, strict=True):
                    links += [one for value in (Affine.of(name), case.value) for one in (ge(value, 0), lt(value, extent or value + 1))]
                names = dict.fromkeys((*found.dims, *self.elements, *(n for one in links for n in one.names())))
                yield Domain(tuple(names), (*found.constraints, *links))

    def _is_given(self, name: str) -> bool:
        """Whether a name is a size, a fixed index, or made of those."""
        hidden = self.questions.opaque.expressions.get(name)
        if hidden is None:
            return name in self.fixed or name in self.questions.sizes
        names, reads = mentioned_in(hidden)
        return all(map(self._is_given, names)) and reads.isdisjoint(self._written)

    @property
    def _written(self) -> frozenset[str]:
        inner = [loop for touch in self.touches for loop in touch.loops if loop.statement.index not in self.fixed]
        return frozenset().union(*(loop.writes for loop in inner))

    def _ends(self, touch: Touch, axis: int, sets: Sequence[Domain]) -> tuple[list[End], list[End]]:
        """The least elements of an access in one dimension, and those behind the greatest, by projection of its sets; by its forms where
        these are nearer, for minima and maxima have several sets."""
        bounds = [self._bounds(one, self.elements[axis], axis) for one in sets]
        lows, highs = [low for low, _ in bounds], [high for _, high in bounds]
        if len(sets) == 1:
            return lows, highs
        forms = self.questions.forms(touch.scope)
        inner = [f for f in forms.loops if f.axis is not None and not self._is_given(f.axis.index)]
        below, above = (forms.bounds(touch.indices[axis], side) for side in (False, True))
        nearer = self._alternatives(forms.least(below, inner), False)
        closer = self._alternatives(forms.least([tuple(-form for form in bound) for bound in above], inner), True)
        return self._nearer(lows, nearer, False), self._nearer(highs, closer, True)

    def _nearer(self, ends: list[End], others: list[End], above: bool) -> list[End]:
        """Those of two lists of ends that are known to be nearer, else the first."""
        is_within = bool(others) and all(any(self._covers(end, other, above) for end in ends) for other in others)
        return others if is_within else ends

    def _alternatives(self, bounds: Sequence[Bound], above: bool) -> list[End]:
        """Ends of which the furthest is one, by bounds from below (negative ones `above`) that all hold."""
        given = [bound for bound in bounds if all(self._is_given(name) for form in bound for name in form.names())]
        if not given:
            return []
        shared = [bound[0] for bound in given if len(bound) == 1]
        least = min(given, key=len)
        return [self._end([1 - e if above else e for e in dict.fromkeys((form, *shared))], above) for form in least]

    def _bounds(self, found: Domain, name: str, axis: int) -> tuple[End, End]:
        """The same of one set, by projection."""
        bounds = found.bounds(name, [other for other in found.dims if other != name and not self._is_given(other)])
        low = self._end([-(-form // divisor) for form, divisor in bounds.lowers], False)
        high = self._end([form // divisor + 1 for form, divisor in bounds.uppers], True)
        return low or (const(0),), high or (self.touches[0].shape[axis],)

    def _end(self, forms: Sequence[Affine], above: bool) -> End:
        exprs = dict.fromkeys(expression_of(form, self.questions.sizes, self.questions.opaque) for form in forms)
        kept: list[Expr] = []
        for expr in exprs:  # of several that hold the furthest inside says all
            if not any(self._reaches(expr, other, above) for other in kept):
                kept = [other for other in kept if not self._reaches(other, expr, above)] + [expr]
        return tuple(kept)

    def _furthest(self, ends: Sequence[End], above: bool) -> list[End]:
        """The ends of which one is the end of the box around all."""
        kept: list[End] = []
        for end in dict.fromkeys(ends):
            if not any(self._covers(other, end, above) for other in kept):
                kept = [other for other in kept if not self._covers(end, other, above)] + [end]
        return kept

    def _covers(self, outer: End, inner: End, above: bool) -> bool:
        """Whether an end is at least as far out as another one, wherever that is."""
        return all(any(self._reaches(one, other, above) for other in inner) for one in outer)

    def _reaches(self, outer: Expr, inner: Expr, above: bool) -> bool:
        return outer == inner or (self.forms.is_less(inner, outer, 0) if above else self.forms.is_less(outer, inner, 0))

    def _is_exact(self, box: Sequence[tuple[Expr, Expr]], sets: Sequence[Domain]) -> bool:
        """Whether every element of the box is in one of the sets."""
        questions = self.questions
        images = []
        for one in sets:
            hidden = [n for n in one.dims if n not in self.elements and not self._is_given(n)]
            if any(n.startswith("?") for n in hidden):
                return False
            images.append(one.project_out(hidden))
        corners = list(questions.cases_of_all([end for pair in box for end in pair]))
        for domain in questions.regions(self.around.facts, self.around):
            for cases in corners:
                found = questions.narrowed(domain, cases, self.around)
                ends = [case.value for case in cases]
                inside = [c for at, n in enumerate(self.elements) for c in (ge(n, ends[2 * at]), lt(n, ends[2 * at + 1]))]
                names = dict.fromkeys((*found.dims, *self.elements, *(n for image in images for n in image.dims)))
                names.update(dict.fromkeys(n for one in inside for n in one.names()))
                left = Union(tuple(names), (Domain(tuple(names), (*found.constraints, *inside)),))
                for image in images:
                    for piece in image.pieces:
                        left = left.subtract(Domain(tuple(names), piece.constraints))
                if not left.is_empty():
                    return False
        return bool(corners)  # none where there are many


def _folded(outer: str, inner: str, ends: Sequence[End]) -> Expr:
    return reduce(lambda a, b: apply(outer, a, b), [reduce(lambda a, b: apply(inner, a, b), end) for end in ends])


def _width(lows: Sequence[End], highs: Sequence[End]) -> int | None:
    """A number that the box around some ends is no wider than."""
    widest = 0
    for low in lows:
        for high in highs:
            rooms = [_less(b, a) for a in low for b in high]
            numbers = [int(room.value) for room in rooms if isinstance(room, Const)]
            if not numbers:
                return None
            widest = max(widest, min(numbers))
    return widest


def _less(high: Expr, low: Expr) -> Expr:
    """The difference of two integers, a number where it is one."""
    opaque = Opaque()
    one, other = affine_of(high, opaque), affine_of(low, opaque)
    assert one is not None and other is not None
    if (one - other).is_constant:
        return const((one - other).constant)
    return high if low == ZERO else apply("sub", high, low)
