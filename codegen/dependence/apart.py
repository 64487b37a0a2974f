"""Iterations of one loop that touch different elements, shown of all accesses of a buffer at once, or by bounds of each.

`Taken`: in one dimension every index is the same multiple c of the loop (or of a quotient of it, then of what that leaves), plus the same
outer terms, plus a rest narrower than c. `Reach`: each iteration reaches beyond the one before in some dimension, by affine bounds without
the loops inside of it; so it says something of blocks at open sizes, for which no set is made.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorexpr.codegen.facts.forms import Bound
from tensorexpr.codegen.facts.places import Loop, Touch
from tensorexpr.codegen.facts.questions import Questions
from tensorexpr.codegen.facts.scope import mentioned
from tensorexpr.integers import Affine
from tensorexpr.integers.forms.affine import Atom
from tensorexpr.ir import Const, Expr, Index, apply, const
from tensorexpr.records import record
from tensorexpr.regions import Opaque, affine_of

ONE = const(1)


def inner_indices(loop: Loop, touch: Touch) -> tuple[str, ...]:
    """The indices of the loop and of those inside of it."""
    return tuple(other.statement.index for other in touch.loops[touch.loops.index(loop) :])


@record
class _Terms:
    """An index in one dimension: the terms that depend on a loop, those that do not change in it, and how far the rest ranges."""

    own: list[tuple[Atom, int]]
    around: list[tuple[Atom, int]]
    least: float
    greatest: float


class Taken:
    """The indices of what is touched in a loop, each taken apart once."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self._opaque = Opaque()
        self._inside: dict[tuple[Loop, ...], frozenset[str]] = {}
        self._terms: dict[tuple[Touch, int], _Terms | None] = {}

    def inside(self, touch: Touch) -> frozenset[str]:
        """The indices of the loops inside of the loop that are around a touch."""
        found = self._inside.get(touch.loops)
        if found is None:
            index, *inner = inner_indices(self.loop, touch)
            found = self._inside[touch.loops] = frozenset(inner) - {index}
        return found

    def apart(self, touches: Sequence[Touch]) -> bool:
        """Whether different iterations reach different places, one term of the loop's index found equal after the other."""
        if len({len(touch.indices) for touch in touches}) != 1:
            return False
        left = [found for dim in range(len(touches[0].indices)) if (found := self._of_all(dim, touches)) is not None]
        equal: set[Atom] = set()
        while left:
            rest = []
            for terms in left:
                unknown = [(atom, factor) for atom, factor in terms.own if atom not in equal]
                if len(unknown) == 1 and terms.greatest - terms.least < abs(unknown[0][1]):
                    equal.add(unknown[0][0])
                elif unknown:
                    rest.append(terms)
            if self.loop.statement.index in equal:
                return True
            if len(rest) == len(left):
                return False
            left = rest
        return False

    def beyond(self, first: Touch, second: Touch) -> bool:
        """Whether what lies between two touches in one dimension is more than the loop goes through."""
        start, stop = self.loop.statement.start, self.loop.statement.stop
        if not (isinstance(start, Const) and isinstance(stop, Const)) or len(first.indices) != len(second.indices):
            return False
        for dim in range(len(first.indices)):
            one, other = self._of_one(dim, first), self._of_one(dim, second)
            if one is None or other is None or one.own != other.own or one.around != other.around:
                continue
            if len(one.own) == 1 and one.own[0][0] == self.loop.statement.index:
                reach = abs(one.own[0][1]) * int(stop.value - start.value)
                if one.least - other.greatest >= reach or other.least - one.greatest >= reach:
                    return True
        return False

    def _of_all(self, dim: int, touches: Sequence[Touch]) -> _Terms | None:
        """The terms in one dimension, where all touches have the same of the loop."""
        shared: _Terms | None = None
        least, greatest = float("inf"), float("-inf")
        for touch in touches:
            found = self._of_one(dim, touch)
            if found is None or (shared is not None and (found.own != shared.own or found.around != shared.around)):
                return None
            shared = found
            least, greatest = min(least, found.least), max(greatest, found.greatest)
        return None if shared is None else _Terms(shared.own, shared.around, least, greatest)

    def _of_one(self, dim: int, touch: Touch) -> _Terms | None:
        key = touch, dim
        if key not in self._terms:
            self._terms[key] = self._made(dim, touch)
        return self._terms[key]

    def _made(self, dim: int, touch: Touch) -> _Terms | None:
        """The terms of one index, where the loop has some."""
        index, inner, opaque = self.loop.statement.index, self.inside(touch), self._opaque
        form = affine_of(touch.indices[dim], opaque)
        assert form is not None
        if opaque.names:
            names = form.names()
            if any(not _is_around(expr, inner | {index}, self.loop) for expr, name in opaque.names.items() if name in names):
                return None
        own: list[tuple[Atom, int]] = []
        around: list[tuple[Atom, int]] = []
        rest: list[tuple[Atom, int]] = []
        for term in form.terms:
            atom = term[0]
            if isinstance(atom, str):
                (own if atom == index else rest if atom in inner else around).append(term)
                continue
            names = atom.numerator.names()
            if index in names and not inner.isdisjoint(names):
                return None
            (own if index in names else around if inner.isdisjoint(names) else rest).append(term)
        if not own:
            return None
        low, high = _range(Affine(rest, form.constant), touch) if rest else (form.constant, form.constant)
        return _Terms(own, around, low, high)


def _is_around(expr: Expr, inner: frozenset[str], loop: Loop) -> bool:
    """Whether a value is the same in all iterations."""
    names, reads = mentioned((expr,))
    return names.isdisjoint(inner) and reads.isdisjoint(loop.writes)


def _range(form: Affine, touch: Touch) -> tuple[float, float]:
    box = {}
    for name in form.names():
        low, high = touch.scope.range_of(name)
        box[name] = (None if low == float("-inf") else int(low), None if high == float("inf") else int(high))
    low_, high_ = form.interval(box)
    return float("-inf") if low_ is None else low_, float("inf") if high_ is None else high_


class Reach:
    """How far the iterations of a loop reach in each dimension: those after one are beyond it where the least index of the next one is."""

    def __init__(self, taken: Taken, questions: Questions) -> None:
        self.taken, self.loop, self.questions = taken, taken.loop, questions
        loop = taken.loop
        index = Index(loop.statement.index)
        self.next = Affine.of(index.name) + 1
        self.forms = questions.forms(loop.scope.where(apply("lt", apply("add", index, ONE), loop.statement.stop)))
        self._found: dict[Touch, list[tuple[list[Bound], list[Bound]]]] = {}
        self._answers: dict[tuple[Bound, Bound], bool] = {}

    def is_apart(self, first: Touch, second: Touch) -> bool:
        """Whether two touches never meet in different iterations, for in some dimension each is beyond the other in later ones."""
        if len(first.indices) != len(second.indices):
            return False
        return self.questions.shown(
            lambda: any(
                self._is_beyond(later, before) and self._is_beyond(after, earlier)
                for (after, before), (later, earlier) in zip(self._ends(first), self._ends(second), strict=True)
            )
        )

    def _is_beyond(self, lows: list[Bound], highs: list[Bound]) -> bool:
        return any(self._follows(low, high) for low in lows for high in highs)

    def _follows(self, low: Bound, high: Bound) -> bool:
        """Whether the least index of the next iteration is greater than the greatest of one."""
        if (low, high) not in self._answers:
            own = self.loop.statement.index
            there = [form.substitute({own: self.next}) for form in low]
            self._answers[low, high] = all(self.forms.is_natural(a + b - 1, self.forms.loops) for a in there for b in high)
        return self._answers[low, high]

    def _ends(self, touch: Touch) -> list[tuple[list[Bound], list[Bound]]]:
        """Bounds from below of each index, and of what is left of it when it is negative, without the loops inside: those of the index
        never fall from one iteration to the next."""
        if touch not in self._found:
            inner = self.taken.inside(touch)
            forms = self.questions.forms(touch.scope)
            loops = [fact for fact in forms.loops if fact.axis is not None and fact.axis.index in inner]
            self._found[touch] = []
            for index in touch.indices:
                lows = forms.least(forms.bounds(index, False), loops)
                highs = forms.least([tuple(-form for form in bound) for bound in forms.bounds(index, True)], loops)
                kept = [bound for bound in lows if all(map(self._rises, bound))]
                self._found[touch].append((_without(kept, inner), _without(highs, inner)))
        return self._found[touch]

    def _rises(self, form: Affine) -> bool:
        own = self.loop.statement.index
        factor = form.coefficient(own)
        return factor >= 0 and own not in (form - Affine.of(own) * factor).names()


def _without(bounds: list[Bound], names: frozenset[str]) -> list[Bound]:
    return [bound for bound in bounds if all(names.isdisjoint(form.names()) for form in bound)]
