"""Where an index lies while loops run through a block: bounds of integer expressions, in the ends of the block.

Bounds are affine forms in `BEGIN` and `END`, the ends of a block of units (0 <= BEGIN < END <= units), or numbers where the block is
given. All are sound: an expression never leaves them. `Bounds` has the loops; `Bounds.of` gives the least and the greatest value, None
where nothing is known. Minimum, maximum and absolute value, which borders are made of, keep the form that moves with the block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tensorexpr.integers import Affine, FloorDiv
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Expr, Index, conjuncts
from tensorexpr.regions import affine_of
from tensorexpr.traversal import walk

BEGIN, END = "begin", "end"
Form = Affine | None
Interval = tuple[Form, Form]
"""The least and the greatest value, both included."""

WHOLE: Interval = (None, None)


class NotDivisible(Exception):
    """A block has to begin at multiples of more units than it does: `factor` times as many."""

    def __init__(self, factor: int) -> None:
        super().__init__(factor)
        self.factor = factor


class Bounds:
    """The loops around an expression, and `units`, the number of units that a block is taken from.

    `data(access)` bounds what an access reads, where something is known of it.
    """

    def __init__(
        self,
        loops: Mapping[str, Interval],
        units: int,
        data: Callable[[Access], Interval] = lambda _: WHOLE,
        limits: Mapping[str, tuple[int, int]] | None = None,
        twin: Bounds | None = None,
        still: bool = False,
    ) -> None:
        self.loops = dict(loops)
        self.units = units
        self.data = data
        self.limits = dict(limits or {})
        """What conditions say of loops that move with the block."""
        self.still = still
        if twin is None and not still and any(form is not None and not form.is_constant for ends in loops.values() for form in ends):
            twin = Bounds(loops, units, data, limits, still=True)
        self.twin = twin
        """The same loops, of two bounds of a loop inside them always the one that does not move."""

    def inside(self, axis: Axis, restricted: Interval | None = None) -> Bounds:
        """These loops and one more inside them, perhaps over a part of its range."""
        low, high = self.of(axis.start)[0], self.of(axis.stop)[1]
        high = None if high is None else high - 1
        if restricted is not None:
            low = self.any_low(low, restricted[0])
            high = self.any_high(high, restricted[1])
        twin = None if self.twin is None else self.twin.inside(axis, restricted)
        return Bounds({**self.loops, axis.index: (low, high)}, self.units, self.data, self.limits, twin, self.still)

    def where(self, condition: Expr) -> Bounds | None:
        """These loops where a condition holds; None where it holds nowhere."""
        loops, limits = dict(self.loops), dict(self.limits)
        for part in conjuncts(condition):
            found = _limit(part)
            if found is None or found[0] not in loops:
                continue
            name, least, greatest = found
            low, high = loops[name]
            if low is None or high is None:
                continue
            if low.is_constant and high.is_constant:
                low = low if least is None else Affine.of(max(low.constant, least))
                high = high if greatest is None else Affine.of(min(high.constant, greatest))
                if low.constant > high.constant:
                    return None
                loops[name] = low, high
            else:
                known = limits.get(name) or (self._ends(low)[0], self._ends(high)[1])
                limits[name] = (
                    known[0] if least is None else max(known[0], least), known[1] if greatest is None else min(known[1], greatest)
                )  # fmt: skip
        twin = None if self.twin is None else self.twin.where(condition)
        return Bounds(loops, self.units, self.data, limits, twin, self.still)

    @property
    def limited(self) -> Bounds | None:
        """These loops, with numbers for those that conditions limit; None where there are none."""
        if not self.limits:
            return None
        loops = {name: (Affine.of(low), Affine.of(high)) for name, (low, high) in self.limits.items()}
        return Bounds({**self.loops, **loops}, self.units, self.data, still=True)

    def beside(self, interval: Interval, step: int | None) -> Interval:
        """An interval of numbers in terms of the block, where a condition keeps a loop near it: `step` elements for a unit."""
        low, high = interval
        if low is None or high is None or not (low.is_constant and high.is_constant):
            return interval
        for name, (least, greatest) in self.limits.items():
            begin, end = self.loops[name]
            if begin is None or end is None or not (_moves(begin, BEGIN) and _moves(end, END)):
                continue
            pace = begin.coefficient(BEGIN)
            if (step or pace) % pace == 0:
                ratio = (step or pace) // pace
                return begin * ratio + (low.constant - greatest * ratio), end * ratio + (high.constant - least * ratio)
        return interval

    # ------------------------------------------------------------------------------------------------- expressions

    def of(self, expr: Expr) -> Interval:
        """The least and the greatest value of an integer expression."""
        match expr:
            case Const():
                return Affine.of(int(expr.value)), Affine.of(int(expr.value))
            case Index():
                return self.loops.get(expr.name, WHOLE)
            case Cast() if expr.dtype.is_integer and expr.arg.dtype.is_integer:
                return self.of(expr.arg)
            case Access():
                return self.data(expr)
            case Apply() if expr.dtype.is_integer:
                form = None if any(isinstance(node, Apply) and node.op.name == "mod" for node in walk(expr)) else affine_of(expr)
                found = WHOLE if form is None else self._of_form(form)
                return self._of_operation(expr) if None in found else found
        return WHOLE

    def _of_form(self, form: Affine) -> Interval:
        low: Form = Affine.of(form.constant)
        high: Form = low
        for atom, factor in form.terms:
            least, greatest = self._divided(atom) if isinstance(atom, FloorDiv) else self.loops.get(atom, WHOLE)
            if factor < 0:
                least, greatest = greatest, least
            low = None if low is None or least is None else low + least * factor
            high = None if high is None or greatest is None else high + greatest * factor
        return low, high

    def _divided(self, atom: FloorDiv) -> Interval:
        low, high = self._of_form(atom.numerator)
        return self._over(low, atom.denominator), self._over(high, atom.denominator)

    def _over(self, form: Form, divisor: int) -> Form:
        if form is None:
            return None
        found = form // divisor
        left = [atom for atom, _ in found.terms if isinstance(atom, FloorDiv)]
        if left:
            raise NotDivisible(left[0].denominator)
        return found

    def _of_operation(self, expr: Apply) -> Interval:
        name = expr.op.name
        if name == "where":
            a, b = self.of(expr.args[1]), self.of(expr.args[2])
            return self.low_of_both(a[0], b[0]), self.high_of_both(a[1], b[1])
        args = [self.of(arg) for arg in expr.args]
        if name == "neg":
            return _negated(args[0])
        if name == "abs":
            negative = _negated(args[0])
            return self.any_low(args[0][0], negative[0]), self.high_of_both(args[0][1], negative[1])
        if name == "maximum":
            return self.any_low(args[0][0], args[1][0]), self.high_of_both(args[0][1], args[1][1])
        if name == "minimum":
            return self.low_of_both(args[0][0], args[1][0]), self.any_high(args[0][1], args[1][1])
        if name in ("add", "sub"):
            a, b = args[0], _negated(args[1]) if name == "sub" else args[1]
            return _sum(a[0], b[0]), _sum(a[1], b[1])
        divisor = expr.args[-1]
        if isinstance(divisor, Const) and int(divisor.value) > 0:
            number, (low, high) = int(divisor.value), args[0]
            if name == "mul":
                return None if low is None else low * number, None if high is None else high * number
            if name == "floordiv":
                return self._over(low, number), self._over(high, number)
            if name == "mod":
                if low is not None and high is not None and low.is_constant and high.is_constant:
                    turn = low.constant // number * number
                    if high.constant < turn + number:
                        return low - turn, high - turn
                return Affine.of(0), Affine.of(number - 1)
        return WHOLE

    # --------------------------------------------------------------------------------------------------- two forms

    def _ends(self, form: Affine) -> tuple[int, int]:
        """The least and the greatest value of a form over all blocks."""
        ranges = {BEGIN: (0, max(self.units - 1, 0)), END: (1, max(self.units, 1))}
        low, high = form.interval(ranges)
        assert low is not None and high is not None
        return low, high

    def any_low(self, a: Form, b: Form) -> Form:
        """A lower bound of what has both as lower bounds: the better one, or the one that moves."""
        if a is None or b is None:
            return b if a is None else a
        if (a - b).is_constant:
            return a if (a - b).constant >= 0 else b
        return b if _moves(b, BEGIN) != self.still and _moves(a, BEGIN) == self.still else a

    def any_high(self, a: Form, b: Form) -> Form:
        """An upper bound of what has both as upper bounds."""
        if a is None or b is None:
            return b if a is None else a
        if (a - b).is_constant:
            return a if (a - b).constant <= 0 else b
        return b if _moves(b, END) != self.still and _moves(a, END) == self.still else a

    def low_of_both(self, a: Form, b: Form) -> Form:
        """A lower bound of the lesser of two values with these lower bounds."""
        if a is None or b is None:
            return None
        if (a - b).is_constant:
            return a if (a - b).constant <= 0 else b
        if not _moves(a, BEGIN):
            a, b = b, a
        if not _moves(a, BEGIN):
            return Affine.of(min(self._ends(a)[0], self._ends(b)[0]))
        # b >= its least value, which a is no more than if it is lowered by what it is above at its last block
        return a - max(0, self._ends(a)[1] - self._ends(b)[0])

    def high_of_both(self, a: Form, b: Form) -> Form:
        """An upper bound of the greater of two values with these upper bounds."""
        if a is None or b is None:
            return None
        if (a - b).is_constant:
            return a if (a - b).constant >= 0 else b
        if not _moves(a, END):
            a, b = b, a
        if not _moves(a, END):
            return Affine.of(max(self._ends(a)[1], self._ends(b)[1]))
        return a + max(0, self._ends(b)[1] - self._ends(a)[0])


def _limit(condition: Expr) -> tuple[str, int | None, int | None] | None:
    """The least and the greatest value that a comparison leaves to an index."""
    if (
        not isinstance(condition, Apply)
        or condition.op.name not in ("lt", "le", "gt", "ge", "eq")
        or not condition.args[0].dtype.is_integer
    ):
        return None
    left, right = (affine_of(arg) for arg in condition.args)
    if left is None or right is None:
        return None
    form = left - right
    if len(form.terms) != 1:
        return None
    (name, factor), number = form.terms[0], -form.constant  # factor * name OP number
    if not isinstance(name, str):
        return None
    relation = condition.op.name
    if factor < 0:
        factor, number = -factor, -number
        relation = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.get(relation, relation)
    least = None if relation in ("lt", "le") else -(-number // factor) if relation != "gt" else number // factor + 1
    greatest = None if relation in ("gt", "ge") else number // factor if relation != "lt" else -(-number // factor) - 1
    return name, least, greatest


def _moves(form: Affine, name: str) -> bool:
    """Whether a form is a positive multiple of an end of the block, and a constant."""
    return form.atoms() == (name,) and form.coefficient(name) > 0


def _negated(interval: Interval) -> Interval:
    low, high = interval
    return None if high is None else -high, None if low is None else -low


def _sum(a: Form, b: Form) -> Form:
    return None if a is None or b is None else a + b
