"""What holds at a place of a nest, and what follows from it.

Facts are loops and conditions around. A question about integers becomes one about the sign of an affine form, which is answered in three
steps, the cheapest first: by the ranges of its names; by what it is more than a form of which a loop or condition says that it is not
negative; with the index of the innermost loop in it replaced by the bound at which the form is least.

    0 <= n - 1 - (i_o*8 + i_i)  with i_i < 8, i_o < n // 8:    at i_i = 7, i_o = n // 8 - 1 it is  n % 8

Most questions have no for an answer, which takes all of these steps. So a form is looked at first at some points, values of names at
which all that is known here holds: where it is negative at one of them, there is no proof.

Bounds that are the greatest or least of several are several bounds. What is not affine (an element of a table, a product of sizes) is a
name, equal to itself. No answer is an answer: nothing is then decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Set
from math import lcm
from types import MappingProxyType

from tensorexpr import dtypes
from tensorexpr.codegen.nest import For, LoopNest, Stmt
from tensorexpr.codegen.nest.walks import buffers_written, inside
from tensorexpr.codegen.rewrites.paths import Path
from tensorexpr.integers import Affine, FloorDiv
from tensorexpr.integers.forms.affine import Interval
from tensorexpr.ir import Access, Apply, Const, Expr, Index, apply, conjuncts, integer
from tensorexpr.regions import Opaque, affine_of, expression_of, split_modulos
from tensorexpr.traversal import free_names, negate, size_names, tensors_read, walk

MOST = 6
"""Bounds of an expression that are kept."""

Bound = tuple[Affine, ...]
"""Forms of which one, the furthest, is a bound."""

Point = dict[str, int]
"""Values of names."""

POINTS = ((1, 0), (5, 2), (40, 1), (45, 2), (639, 1), (3000, 0), (3000, 1))
"""Of each point: how far above the least that it can be a size is, give or take a few, and whether an index is the first of its loop, the
middle or the last one. 639 leaves most of the usual blocks the longest rest."""

_COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")


class Facts:
    """What holds at one place. Values: `loop` and `under` make others.

    `box` has the range of each index; `floors` are forms that are not negative; `conditions` are what holds as it is written; of each of
    `denied` not all parts hold; `written` are buffers whose elements change meanwhile, of which nothing is known; `least` says how large
    sizes are at least.
    """

    def __init__(
        self, written: frozenset[str] = frozenset(), opaque: Opaque | None = None, least: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        self.written = written
        self.least = least
        self.opaque = Opaque() if opaque is None else opaque
        self.loops: tuple[tuple[str, list[Bound], list[Bound]], ...] = ()
        self.box: dict[str, Interval] = {}
        self.floors: tuple[Affine, ...] = ()
        self.conditions: frozenset[Expr] = frozenset()
        self.denied: tuple[tuple[Expr, ...], ...] = ()
        self._decided: dict[Expr, bool | None] = {}
        self._natural: dict[tuple[Affine, int | None], bool] = {}
        self._around: Facts | None = None
        self._own: tuple[Affine, ...] = ()
        self._points: list[tuple[int, Point]] | None = None
        self._at_points: dict[Affine, list[int]] = {}

    @classmethod
    def at(cls, nest: LoopNest, path: Path) -> Facts:
        """What holds where the statement at a path begins."""
        kernel = nest.kernels[path[0]]
        found, s = cls(buffers_written(kernel.body), least=dict(nest.least)), None
        for at in path[1:]:
            if isinstance(s, Stmt):
                found = found.within(s, at)
            s = inside(kernel if s is None else s)[at]
        return found

    def within(self, s: Stmt, at: int) -> Facts:
        """What holds at a position inside of a statement that stands here."""
        if isinstance(s, For):
            return self.loop(s.index, s.start, s.stop)
        condition = getattr(s, "condition", None)
        if condition is None:
            return self
        return self.under(condition if at < len(s.then) else negate(condition))  # type: ignore[attr-defined]  # what has a condition has branches

    def loop(self, index: str, start: Expr, stop: Expr) -> Facts:
        """What holds in a loop."""
        if self._changes(start) or self._changes(stop):
            return self._with((index, [], []), (), frozenset())
        below, above = self.bounds(start, False), [tuple(f - 1 for f in bound) for bound in self.bounds(stop, True)]
        # Of several bounds one at which the loop is over is none: i >= minimum(a, n) and i < n say i >= a.
        below = [self._without(bound, lambda low: any(all(self.is_natural(low - f - 1) for f in b) for b in above)) for bound in below]
        above = [self._without(bound, lambda high: any(all(self.is_natural(f - high - 1) for f in b) for b in below)) for bound in above]
        here = Affine.of(index)
        floors = [here - bound[0] for bound in below if len(bound) == 1]
        floors += [bound[0] - here for bound in above if len(bound) == 1]
        floors += [high[0] - low[0] for low in below for high in above if len(low) == len(high) == 1]
        made = self._with((index, below, above), tuple(floors), frozenset())
        low = max((min(self.interval(f)[0] for f in bound) for bound in below), default=-math.inf)
        high = min((max(self.interval(f)[1] for f in bound) for bound in above), default=math.inf)
        made.box = {**self.box, index: (None if math.isinf(low) else int(low), None if math.isinf(high) else int(high))}
        return made

    def _without(self, bound: Bound, is_over: Callable[[Affine], bool]) -> Bound:
        return bound if len(bound) == 1 else tuple(form for form in bound if not is_over(form)) or bound

    def under(self, condition: Expr) -> Facts:
        """What holds where a condition does."""
        parts = [part for part in conjuncts(condition) if not self._changes(part)]
        if not parts:
            return self
        made = self._with(None, tuple(form for part in parts for form in self._floors(part)), frozenset(parts))
        both = (part.args[0] for part in parts if isinstance(part, Apply) and part.op.name == "invert")
        made.denied += tuple(tuple(conjuncts(arg)) for arg in both if isinstance(arg, Apply) and arg.op.name == "and")
        return made

    def _with(self, loop: tuple[str, list[Bound], list[Bound]] | None, floors: tuple[Affine, ...], parts: frozenset[Expr]) -> Facts:
        made = Facts(self.written, self.opaque, self.least)
        made.loops = self.loops if loop is None else (*self.loops, loop)
        made.box = dict(self.box)
        made.floors, made.conditions, made.denied = tuple(dict.fromkeys((*self.floors, *floors))), self.conditions | parts, self.denied
        made._around, made._own = self, floors
        for form in floors:
            made._narrow(form)
        return made

    def _narrow(self, form: Affine) -> None:
        """Takes from a form of one index that it is not negative what that says of its range."""
        if len(form.terms) != 1:
            return
        ((name, factor),) = form.terms
        if not isinstance(name, str):
            return
        low, high = self._range(name)
        if factor > 0:
            least = -(form.constant // factor)
            low = least if low is None else max(low, least)
        else:
            most = form.constant // -factor
            high = most if high is None else min(high, most)
        self.box[name] = low, high

    def _changes(self, expr: Expr) -> bool:
        return any(name in self.written for name in tensors_read(expr))

    def _floors(self, part: Expr) -> Iterator[Affine]:
        """Forms that are not negative where a comparison of integers holds."""
        if not isinstance(part, Apply) or part.op.name not in ("lt", "le", "gt", "ge", "eq") or not part.args[0].dtype.is_integer:
            return
        left, right = part.args if part.op.name in ("lt", "le", "eq") else part.args[::-1]
        strict = int(part.op.name in ("lt", "gt"))
        pairs = [(left, right, strict), *([(right, left, 0)] if part.op.name == "eq" else [])]
        for small, large, by in pairs:
            for low in self.bounds(small, False):
                for high in self.bounds(large, True):
                    if len(low) == len(high) == 1:
                        yield high[0] - low[0] - by

    # ------------------------------------------------------------------------------------------------------- forms

    def form(self, expr: Expr) -> Affine:
        """The affine form of an integer, with names for what is not affine in it."""
        found = affine_of(expr, self.opaque)
        assert found is not None
        self._know(expr)
        return found

    def expression(self, form: Affine) -> Expr:
        """The expression of a form of names of this place."""
        loops = {index for index, *_ in self.loops}
        return expression_of(form, (n for n in form.names() if n not in loops), self.opaque)

    def indices_in(self, form: Affine) -> frozenset[str]:
        """The indices in a form, with those in what its names stand for."""
        hidden = self.opaque.expressions
        found = set(form.names())
        for name in form.names():
            if name in hidden:
                found.update(free_names(hidden[name]))
        return frozenset(found)

    def elements_in(self, form: Affine) -> Iterator[Access]:
        """The elements that what the names of a form stand for reads."""
        hidden = self.opaque.expressions
        for name in form.names():
            yield from (n for n in walk(hidden[name]) if isinstance(n, Access)) if name in hidden else ()

    def _know(self, expr: Expr) -> None:
        if type(expr) is Const or type(expr) is Index:  # what is asked of most
            return
        for name in size_names(expr):
            if name not in self.box:
                self.box[name] = (self.least.get(name, 0), None)
                self._learnt()
        for node in walk(expr):
            if isinstance(node, Apply) and node.op.name == "mul":
                self._know_product(node)
            if not isinstance(node, Apply) or node.op.name != "mod":
                continue
            opaque, divisor = self.opaque.names.get(node), affine_of(node.args[1])
            if opaque is not None and opaque not in self.box and divisor is not None and self.is_natural(divisor):  # 0 where that is 0
                self.box[opaque] = (0, None)
                self._own = (*self._own, divisor - Affine.of(opaque))
                self.floors = (*self.floors, self._own[-1])
                self._learnt()

    def _know_product(self, node: Apply) -> None:
        """A product is at least as large as that of the least that its factors are."""
        opaque = self.opaque.names.get(node)
        if opaque is not None and opaque not in self.box and (least := self._least(node)) is not None:
            self.box[opaque] = (least, None)
            self._learnt()

    def _least(self, expr: Expr) -> int | None:
        """The least value of a factor by the ranges of its names; None where it may be negative."""
        if isinstance(expr, Apply) and expr.op.name == "mul":
            first, second = map(self._least, expr.args)
            return None if first is None or second is None else first * second
        form = affine_of(expr, self.opaque)
        low = -math.inf if form is None else self.interval(form)[0]
        return None if low < 0 else int(low)

    def _learnt(self) -> None:
        self._natural.clear()
        self._at_points.clear()
        self._points = None

    def _range(self, name: str) -> Interval:
        return self.box.get(name, (None, None))

    def interval(self, form: Affine) -> tuple[float, float]:
        """The least and greatest value that a form can have by the ranges of its names."""
        modulos: list[tuple[Affine, int, int]] = []
        if form.has_division():
            form, modulos = split_modulos(form)
        box = {name: self._range(name) for name in form.names()}
        least, most = form.interval(box)
        below = sum(min(0, count * (divisor - 1)) for _, divisor, count in modulos)
        above = sum(max(0, count * (divisor - 1)) for _, divisor, count in modulos)
        return -math.inf if least is None else least + below, math.inf if most is None else most + above

    def is_natural(self, form: Affine, depth: int | None = None) -> bool:
        """Whether a form is known to be never negative; `depth` counts the loops whose indices may still be replaced."""
        if not form.terms:
            return form.constant >= 0
        found = self._natural.get((form, depth))
        if found is None:
            found = self._natural[form, depth] = all(value >= 0 for value in self._values(form)) and self._is_natural(form, depth)
        return found

    def is_common(self, form: Affine) -> bool:
        """Whether a form is not negative at half of the points of this place at least: at most iterations, and most sizes."""
        values = self._values(form)
        return 2 * sum(value >= 0 for value in values) >= len(values)

    def _is_natural(self, form: Affine, depth: int | None) -> bool:
        if self.interval(form)[0] >= 0:
            return True
        if not form.terms:
            return False
        names, values = set(form.names()), self._values(form)
        for floor in self.floors:
            if not names.isdisjoint(floor.names()) and all(map(int.__ge__, values, self._values(floor))):
                if self.interval(form - floor)[0] >= 0:
                    return True
        for at in reversed(range(len(self.loops) if depth is None else depth)):
            index, below, above = self.loops[at]
            if index not in names:
                continue
            factor = form.coefficient(index)
            rest = form - Affine.of(index) * factor
            if factor == 0 or index in rest.names():
                break
            ends = below if factor > 0 else above
            if any(all(self.is_natural(rest + end * factor, at) for end in bound) for bound in ends):
                return True
            break
        return form.has_division() and self.is_natural(_undivided(form), depth)

    # ------------------------------------------------------------------------------------------------------- points

    def _values(self, form: Affine) -> list[int]:
        """The values of a form at the points of this place."""
        found = self._at_points.get(form)
        if found is None:
            if self._points is None:
                self._points = self._found_points()
            found = self._at_points[form] = [self._value(form, kind, point) for kind, point in self._points]
        return found

    def _found_points(self) -> list[tuple[int, Point]]:
        """Those of the place around at which all that is known here holds, too."""
        if self._around is None:
            found: list[tuple[int, Point]] = [(kind, {}) for kind in range(len(POINTS))]
        else:
            self._around._values(Affine.of(0))
            found = [(kind, dict(point)) for kind, point in self._around._points or ()]
        if self._around is not None and len(self.loops) > len(self._around.loops):
            found = [at for at in found if self._enters(*at)]
        return [(kind, point) for kind, point in found if self._is_here(kind, point)]

    def _enters(self, kind: int, point: Point) -> bool:
        """Gives the index of the innermost loop a value at a point; whether the loop has one there."""
        index, below, above = self.loops[-1]
        low = max((min(self._value(form, kind, point) for form in bound) for bound in below), default=None)
        high = min((max(self._value(form, kind, point) for form in bound) for bound in above), default=None)
        if low is not None and high is not None and low > high:
            return False
        if low is None or high is None:
            low = high = (low or 0) if high is None else high
        point[index] = low + (high - low) * POINTS[kind][1] // 2
        return True

    def _is_here(self, kind: int, point: Point) -> bool:
        if any(self._value(form, kind, point) < 0 for form in self._own):
            return False
        ranges = ((value, *self._range(name)) for name, value in point.items())
        return all((low is None or low <= value) and (high is None or value <= high) for value, low, high in ranges)

    def _value(self, form: Affine, kind: int, point: Point) -> int:
        """The value of a form at a point, which gets one for each name that it has none for."""
        for name in form.names():
            if name not in point:
                low, high = self._range(name)
                value = (low or 0) + POINTS[kind][0] + len(point) * (kind % 3 - 1)
                point[name] = max(value if high is None else min(value, high), value if low is None else low)
        return form.evaluate(point)

    def bounds(self, expr: Expr, above: bool, inside: Set[str] | None = None) -> list[Bound]:
        """Bounds of an integer from above, or from below; the form itself is one, and of what no index of `inside` is in the only one."""
        self._know(expr)
        form = affine_of(expr)
        if form is not None:
            return [(form,)]
        found: list[Bound] = []
        if isinstance(expr, Apply) and expr.dtype is dtypes.int64 and (inside is None or not inside.isdisjoint(free_names(expr))):
            found = self._bounds_of(expr, above, inside)
        return list(dict.fromkeys([*found, (self.form(expr),)]))[:MOST]

    def _bounds_of(self, expr: Apply, above: bool, inside: Set[str] | None) -> list[Bound]:
        name, args = expr.op.name, expr.args
        if name == "neg":
            return [tuple(-f for f in bound) for bound in self.bounds(args[0], not above, inside)]
        if name in ("add", "sub"):
            other = self.bounds(args[1], above == (name == "add"), inside)
            sign = 1 if name == "add" else -1
            return [
                tuple(dict.fromkeys(a + b * sign for a in one for b in two))
                for one in self.bounds(args[0], above, inside)
                for two in other
                if len(one) * len(two) <= MOST
            ]
        if name in ("mul", "floordiv") and isinstance(args[1], Const):
            factor = integer(args[1])
            if name == "mul":
                return [tuple(f * factor for f in bound) for bound in self.bounds(args[0], above == (factor >= 0), inside)]
            return [tuple(f // factor for f in bound) for bound in self.bounds(args[0], above, inside)] if factor > 0 else []
        if name in ("minimum", "maximum"):
            first, second = self.bounds(args[0], above, inside), self.bounds(args[1], above, inside)
            if (name == "minimum") == above:
                return [*first, *second]
            return [tuple(dict.fromkeys((*a, *b))) for a in first for b in second if len(a) + len(b) <= MOST]
        if name == "mod" and isinstance(args[1], Const) and integer(args[1]) > 0:
            return [(Affine.of(integer(args[1]) - 1 if above else 0),)]
        if name == "mod" and (divisor := affine_of(args[1])) is not None and self.is_natural(divisor):
            return [(divisor if above else Affine.of(0),)]
        return []

    # --------------------------------------------------------------------------------------------------- questions

    def is_less(self, left: Expr, right: Expr, by: int = 1) -> bool:
        """Whether left + by <= right is known."""
        if type(left) is Const and type(right) is Const:
            return integer(left) + by <= integer(right)
        if self._changes(left) or self._changes(right):
            return False
        lows, highs = self.bounds(left, True), self.bounds(right, False)
        # Each of the forms of which the least bounds `right` may be above another bound of `left`.
        return any(all(any(all(self.is_natural(b - a - by) for a in low) for low in lows) for b in high) for high in highs)

    def holds(self, condition: Expr) -> bool | None:
        """Whether a condition is known to hold, or not to hold; None where neither is known."""
        if condition in self._decided:
            return self._decided[condition]
        found = self._decided[condition] = self._holds(condition)
        return found

    def _holds(self, condition: Expr) -> bool | None:
        if isinstance(condition, Const):
            return bool(condition.value)
        if condition in self.conditions:
            return True
        if negate(condition) in self.conditions:
            return False
        if not isinstance(condition, Apply):
            return None
        if self.denied:
            inside = self.under(condition)
            inside.denied = ()
            if any(all(inside.holds(part) for part in parts) for parts in self.denied):
                return False
        name, args = condition.op.name, condition.args
        if name == "invert":
            found = self.holds(args[0])
            return None if found is None else not found
        if name in ("and", "or") and condition.dtype.is_bool:
            both = [self.holds(a) for a in args]
            settled = name == "or"
            return settled if settled in both else (not settled) if both == [not settled] * 2 else None
        if name not in _COMPARED or args[0].dtype is not dtypes.int64:
            return None
        left, right = args
        if name in ("eq", "ne"):
            if self.is_less(left, right) or self.is_less(right, left):
                return name == "ne"
            return name == "eq" if self.is_less(left, right, 0) and self.is_less(right, left, 0) else None
        small, large = (left, right) if name in ("lt", "le") else (right, left)
        strict = int(name in ("lt", "gt"))
        if self.is_less(small, large, strict):
            return True
        return False if self.is_less(large, small, 1 - strict) else None

    def wrapped(self, remainder: Apply) -> Expr | None:
        """What is compared with the divisor of a remainder by what is open, to tell it: (j + e) % n is j + e % n or, from n on, so much
        less, where j is an index below n. None where it is no such remainder."""
        dividend, divisor = remainder.args
        if remainder.op.name != "mod" or isinstance(divisor, Const) or self._changes(remainder):
            return None
        form = self.form(dividend)
        for index, *_ in reversed(self.loops):
            rest = form - Affine.of(index)
            if form.coefficient(index) != 1 or index in self.indices_in(rest):
                continue
            if self.is_natural(Affine.of(index)) and self.is_less(Index(index), divisor):
                return (
                    apply("add", Index(index), apply("mod", self.expression(rest), divisor))
                    if rest.terms or rest.constant
                    else Index(index)
                )
        return None

    def constant(self, expr: Expr) -> int | None:
        """The value of an integer that is one number here."""
        if isinstance(expr, Const):
            return int(expr.value)
        low, high = self.interval(self.form(expr))
        return int(low) if low == high else None


def _undivided(form: Affine) -> Affine:
    """A form without its outer quotients that is negative wherever the given one is: a quotient is at most what is divided by so many, and
    less than one below it."""
    whole = lcm(*(atom.denominator for atom in form.atoms() if isinstance(atom, FloorDiv)))
    total = Affine.of(form.constant * whole + whole - 1)
    for atom, factor in form.terms:
        if not isinstance(atom, FloorDiv):
            total = total + Affine.of(atom) * (factor * whole)
            continue
        least = atom.numerator - (atom.denominator - 1 if factor > 0 else 0)
        total = total + least * (factor * whole // atom.denominator)
    return total
