"""Loop nests over domains: the bounds of each dimension by the outer ones, non-rectangular where the domain is.

At each level the inner dimensions are eliminated (`hull`), so a loop may run where the loops inside it turn out empty, but it
never misses a point; what the bounds cannot say (congruences, holes) comes back as guards, each at the outermost loop where
it can be decided, so that the innermost bodies run for exactly the points. A dimension with at most one value at each
iteration is recognized: two bounds ``l <= a*x <= u`` with ``u - l < a`` say ``x = u // a``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tensorexpr.errors import DefinitionError
from tensorexpr.integers.forms.affine import Affine
from tensorexpr.integers.forms.constraint import Constraint, congruent, eq
from tensorexpr.integers.sets.elimination import hull
from tensorexpr.integers.sets.gist import complexity, gist, implied
from tensorexpr.integers.sets.projection import bounds_on
from tensorexpr.integers.sets.system import System
from tensorexpr.records import record, replace


@record
class Bounds:
    """One loop: `name` runs from the greatest ``ceil(e/d)`` of `lowers` to the least ``floor(e/d)`` of `uppers`, inclusive.

    `guards` are to be tested inside this loop, before the next. With `value`, the loop runs exactly once, at that value.
    """

    name: str
    lowers: tuple[tuple[Affine, int], ...]
    uppers: tuple[tuple[Affine, int], ...]
    guards: tuple[Constraint, ...] = ()
    value: Affine | None = None

    def range(self, values: Mapping[str, int]) -> range:
        """The values at a point of the outer dimensions and sizes, guards not regarded."""
        if not self.lowers or not self.uppers:
            raise DefinitionError(f"expected bounds on both sides of {self.name}, got {self}")
        low = max(-(-expr.evaluate(values) // divisor) for expr, divisor in self.lowers)
        return range(low, min(expr.evaluate(values) // divisor for expr, divisor in self.uppers) + 1)

    def __str__(self) -> str:
        guards = f" if {' and '.join(map(str, self.guards))}" if self.guards else ""
        if self.value is not None:
            return f"{self.name} = {self.value}{guards}"
        low = _joined("max", [str(-(-expr // divisor)) for expr, divisor in self.lowers], "-inf")
        high = _joined("min", [str(expr // divisor + 1) for expr, divisor in self.uppers], "inf")
        return f"for {self.name} in range({low}, {high}){guards}"


def _joined(function: str, texts: list[str], absent: str) -> str:
    return absent if not texts else texts[0] if len(texts) == 1 else f"{function}({', '.join(texts)})"


def bounds(constraints: Sequence[Constraint], names: Sequence[str], name: str, inner: Sequence[str] = ()) -> Bounds:
    """The bounds of `name` by all names except `inner`; none of them follows from the rest of the domain."""
    shadow = hull(constraints, names, inner, (name,))
    candidates = [one for one in shadow if one.expr.coefficient(name)]
    others = [one for one in shadow if not one.expr.coefficient(name)]
    return _bounds_from(name, _needed(candidates, System(names, others)))


def _needed(candidates: list[Constraint], base: System) -> list[Constraint]:
    kept = list(candidates)
    for one in sorted(candidates, key=complexity, reverse=True):
        others = [other for other in kept if other is not one]
        if implied(base.with_constraints(others), one):
            kept = others
    return kept


def _bounds_from(name: str, candidates: Sequence[Constraint]) -> Bounds:
    _, lowers, uppers = bounds_on(sorted(candidates, key=complexity), name)
    return Bounds(name, tuple((-expr, factor) for factor, expr in lowers), tuple((expr, factor) for factor, expr in uppers))


def single_value(candidates: Sequence[Constraint], name: str) -> tuple[Affine, Constraint | None] | None:
    """``(value, condition)`` when two constraints leave at most one value of `name`, and one exactly under `condition`."""
    _, lowers, uppers = bounds_on(candidates, name)
    best = None
    for factor, low in lowers:
        for other, high in uppers:
            room = low + high
            if factor != other or not room.is_constant or room.constant >= factor:
                continue
            whole = room.constant == factor - 1
            rank = (not whole, len(high.terms), factor, high.sort_key())
            if best is None or rank < best[0]:
                value = high // factor
                condition = None if whole else congruent(high, factor) if room.constant == 0 else Constraint(value * factor + low, ">=")
                best = (rank, value, condition)
    return None if best is None else best[1:]


def defined(constraints: Sequence[Constraint], names: Sequence[str], name: str, inner: Sequence[str] = ()) -> Affine | None:
    """`name` as a quasi-affine function of the names other than `inner`, where the constraints determine it.

    A function of fewer names, by the bounds of the others, is preferred to an exact division.
    """
    shadow = hull(constraints, names, inner, (name,))
    candidates = [one for one in shadow if one.expr.coefficient(name)]
    found = single_value(candidates, name)
    if found is not None and found[1] is None:
        return found[0]
    linked = [other for one in candidates for other in one.names() if other != name]
    for other in dict.fromkeys(linked):
        smaller = hull(constraints, names, [*inner, other], (name,))
        without = single_value([one for one in smaller if one.expr.coefficient(name)], name)
        if without is not None:
            return without[0]
    return None if found is None else found[0]


def nest(constraints: Sequence[Constraint], names: Sequence[str], order: Sequence[str], context: Sequence[Constraint] = ()) -> list[Bounds]:
    """The loops of `order`, outermost first, over the points of `constraints`; `context` is known to hold.

    >>> from tensorexpr.integers.forms.constraint import ge, lt
    >>> x, i, j = map(Affine.of, "xij")
    >>> flat = [eq(x, 7 * i + j), ge(j, 0), lt(j, 7), ge(i, 0), lt(i, 4)]
    >>> for loop in nest(flat, ["x", "i", "j"], ["x", "i", "j"]): print(loop)
    for x in range(0, 28)
    i = x//7
    j = x - 7*i
    """
    known = list(context)
    guards: list[Constraint] = []
    loops: list[Bounds] = []
    if System(names, [*constraints, *known]).is_empty():
        return [Bounds(name, ((Affine(), 1),), ((Affine.of(-1), 1),)) for name in order]
    for level, name in enumerate(order):
        shadow = hull([*constraints, *known], names, order[level + 1 :], (name,))
        candidates = [one for one in shadow if one.expr.coefficient(name) and one not in known]
        found = single_value([one for one in shadow if one.expr.coefficient(name)], name)
        if found is not None:
            value, condition = found
            loops.append(Bounds(name, ((value, 1),), ((value, 1),), (), value))
            known.append(eq(name, value))
            if condition is not None:
                known.append(condition)
                guards.append(condition)
        else:
            needed = _needed(candidates, System(names, known))
            loops.append(_bounds_from(name, needed))
            known += needed
    return _with_guards(loops, guards + gist(constraints, known, names))


def _with_guards(loops: list[Bounds], guards: list[Constraint]) -> list[Bounds]:
    """Each guard, with determined dimensions replaced by their values, at the first loop after which it can be decided."""
    position = {loop.name: level for level, loop in enumerate(loops)}
    placed: list[list[Constraint]] = [[] for _ in loops]
    for guard in guards:
        for loop in reversed(loops):
            if loop.value is not None:
                guard = guard.substitute({loop.name: loop.value})
        if loops and not guard.is_true:
            at = max((position[name] for name in guard.names() if name in position), default=0)
            if guard not in placed[at]:
                placed[at].append(guard)
    return [replace(loop, guards=tuple(own)) if own else loop for loop, own in zip(loops, placed, strict=True)]


def visit(loops: Sequence[Bounds], values: dict[str, int]) -> Iterator[dict[str, int]]:
    """The points that a loop nest visits, in its order, each as a new dict that begins with `values`."""
    if not loops:
        yield dict(values)
        return
    loop = loops[0]
    for value in loop.range(values):
        values[loop.name] = value
        if all(guard.holds(values) for guard in loop.guards):
            yield from visit(loops[1:], values)
    values.pop(loop.name, None)
