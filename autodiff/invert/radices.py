"""Indices in mixed radix with symbolic radices, made affine: reshapes, blocked layouts, images stored as one axis.

Where radices are numbers, `inversion` solves everything as a lattice. Here sizes may stand as coefficients and divisors:
`(i*h + j)*w + k`, `f // w % h`, `(y + dy)*w + x + dx`. Two steps lead back to what `inversion` knows:

- A **quotient** `e // d` and its remainder are digits of e (see `numerals`).
- An **equation** `d*H + L = t`, where what is known of the unknowns (loops, digits, guards) proves that L stays among d
  consecutive values, is two: `H = t // d` and `L = t % d`, up to a shift. An equation with one unknown settles it.

What remains is affine in the unknowns, with the digits of the element as further indices of the element. Conditions on the
element are kept unless its bounds imply them. Polynomials in sizes, indices and unknowns carry all of it, every proof is one
of `tensorexpr.bounds.nonlinear`; an index that has another form is left alone (None), never turned around wrongly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tensorexpr.autodiff.invert.numerals import ONE, Numerals, Unknown, Unsuitable, below, factors_of, replaced, total
from tensorexpr.bounds.nonlinear import Poly, exact_quotient, named, number, plus, times
from tensorexpr.ir import Axis, Expr, Index, Size, apply, conjuncts, const
from tensorexpr.records import record
from tensorexpr.regions import alternatives
from tensorexpr.traversal import bottom_up, free_names, substitute

UNITS = (ONE, number(-1))
MOST_STEPS = 40


@record
class Reduced:
    """An inversion as an affine problem: `equations` (pairs of equal expressions) and `guards` over `axes` and the element.

    The indices of the element are called @0, @1, ... in all of it; `target` are the axes of the tensor and those of the
    digits of its indices. `values` gives every axis as it was over `axes` and the element, `outer` conditions on the element,
    `meaning` what the names made here stand for. `exact` says that no digit is left among `axes`, or one alone, whose bounds say all, or
    that digits took the place of whole axes.
    """

    axes: tuple[Axis, ...]
    target: tuple[Axis, ...]
    equations: tuple[tuple[Expr, Expr], ...]
    guards: tuple[Expr, ...]
    values: dict[str, Expr]
    outer: tuple[Expr, ...]
    meaning: dict[str, Expr]
    exact: bool

    def meant(self, expr: Expr) -> Expr:
        """The expression over the indices of the tensor and the sizes of the program."""
        return bottom_up(expr, lambda node: self.meaning.get(node.name, node) if isinstance(node, Index | Size) else node)


def reduce_radices(
    indices: Sequence[Expr], axes: Sequence[Axis], guards: Sequence[Expr], target: Sequence[Axis], reserved: Sequence[str]
) -> Reduced | None:
    """The reads at `indices` as an affine problem, None where they have another form."""
    try:
        return _Radices(axes, target, reserved).reduced(indices, guards)
    except Unsuitable:
        return None


@record
class _Digit:
    """Of the element: `numerator // radix` or, with `rest`, `numerator % radix`; it is below `count`."""

    numerator: Poly
    radix: Poly
    count: Poly
    rest: bool


class _Radices(Numerals):
    """The equations between the axes of a read and an element, on their way to affine ones."""

    def __init__(self, axes: Sequence[Axis], target: Sequence[Axis], reserved: Sequence[str]) -> None:
        super().__init__(axes, target, reserved)
        self.digits: list[_Digit] = []  # of the element
        self.outer: list[Expr] = []
        self.late: dict[str, tuple[Poly, Poly]] = {}  # remainders of expressions over axes that are left: numerator and divisor

    def reduced(self, indices: Sequence[Expr], guards: Sequence[Expr]) -> Reduced:
        for at, axis in enumerate(self.target):
            self._element(f"@{at}", self._read(axis.stop))
        for axis in self.axes:
            self._enter(axis)
        for guard in guards:
            for part in conjuncts(guard):
                self._restrict(part)
        for at, index in enumerate(indices):
            self.equations.append(plus(self._read(index), named(f"@{at}"), -1))
        self._write_in_digits()
        for _ in range(MOST_STEPS):
            if not (self._settle() or self._split() or self._eliminate()):
                break
        if any(self._is_nonlinear(form) or self._inside(form) & self.late.keys() for form in self.equations):
            raise Unsuitable
        return self._result()

    # -- solving -----------------------------------------------------------------------------------------------------

    def _is_nonlinear(self, form: Poly) -> bool:
        return any(set(factor) != {()} for name, factor in factors_of(form, self.free).items() if name)

    def _settle(self) -> bool:
        """Takes an equation that says what one unknown is."""
        for at, form in enumerate(self.equations):
            factors = factors_of(form, self.free)
            factors.pop("", None)
            if len(factors) > 1 or any(factor not in UNITS or name not in self.unknowns for name, factor in factors.items()):
                continue
            self.equations.pop(at)
            for name, factor in factors.items():
                self._set(name, times(plus(times(named(name), factor), form, -1), factor))
            if not factors:
                self._require(form, "eq")
            return True
        return False

    def _eliminate(self) -> bool:
        """Takes an unknown out by an equation with others, where no other way is left."""
        for at, form in enumerate(self.equations):
            if not self._is_nonlinear(form):
                continue
            for name, factor in factors_of(form, self.free).items():
                if name in self.unknowns and factor in UNITS:
                    self.equations.pop(at)
                    self._set(name, times(plus(times(named(name), factor), form, -1), factor))
                    return True
        return False

    def _replace(self, values: dict[str, Poly]) -> None:
        super()._replace(values)
        self.late = {name: (replaced(form, values), radix) for name, (form, radix) in self.late.items()}

    def _set(self, name: str, value: Poly) -> None:
        unknown = self.unknowns.pop(name)
        self.facts += unknown.facts
        self.opaque += unknown.conditions
        self.values[name] = value
        self._replace({name: value})

    def _split(self) -> bool:
        """Takes an equation apart into one for the slower digits and one for the faster ones."""
        for form in self.equations:
            factors = factors_of(form, self.free)
            right = plus({}, factors.pop("", {}), -1)
            if any(factor < 0 for monomial, factor in right.items() if any(name.startswith("@") for name in monomial)):
                right = plus({}, right, -1)
                factors = {name: plus({}, factor, -1) for name, factor in factors.items()}
            for radix in _radices(factors.values()):
                parts = self._at_radix(factors, right, radix)
                if parts is not None:
                    self.equations.remove(form)
                    self.equations += parts
                    return True
                if self._around(form, factors, right, radix):
                    return True
        return False

    def _around(self, form: Poly, factors: dict[str, Poly], right: Poly, radix: Poly) -> bool:
        """`name + others + radix * turns == right`, where one name runs over a whole radix and nobody asks for the turns.

        It is then a remainder, for all values of the others.
        """
        turns = [name for name, factor in factors.items() if exact_quotient(factor, radix) is not None]
        if (
            len(turns) != 1
            or turns[0] not in self.unknowns
            or self.unknowns[turns[0]].axis is not None
            or exact_quotient(factors[turns[0]], radix) not in UNITS
        ):
            return False
        others = [*(one for one in self.equations if one is not form), *self.guards, *self.facts, *self.values.values()]
        if any(turns[0] in monomial for other in others for monomial in other) or not self._proves(below({}, radix)):
            return False
        for name, factor in factors.items():
            unknown = self.unknowns.get(name)
            if (
                unknown is None
                or factor != ONE
                or unknown.low is None
                or unknown.high is None
                or plus(unknown.high, unknown.low, -1) != radix
            ):
                continue
            rest = total(times(plus({}, f, -1), named(n)) for n, f in factors.items() if n not in (name, turns[0]))
            numerator = plus(plus(right, rest), unknown.low, -1)
            if name in self._reached(numerator):
                continue  # a remainder of itself says nothing
            if self._inside(numerator):
                late = f"~{len(self.late)}"
                self.late[late] = numerator, radix
                self.free.add(late)
                remainder = named(late)
            else:
                remainder = self._element_digit(_Digit(numerator, radix, radix, rest=True))
            self.equations.remove(form)
            self.unknowns.pop(turns[0])
            unknown.facts = []
            self._set(name, plus(remainder, unknown.low))
            return True
        return False

    def _reached(self, form: Poly) -> set[str]:
        """What is not known in a form, and in the remainders that stand in it."""
        found: set[str] = set()
        pending = [*self._inside(form)]
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                pending += self._inside(self.late[name][0]) if name in self.late else ()
        return found

    def _at_radix(self, factors: dict[str, Poly], right: Poly, radix: Poly) -> list[Poly] | None:
        """`sum of factor * name == right` as an equation for multiples of the radix and one for what is less; None without proof."""
        if not self._proves(below({}, radix)):
            return None
        shares = {name: exact_quotient(factor, radix) for name, factor in factors.items()}
        slow = {name: share for name, share in shares.items() if share is not None}
        fast = {name: factor for name, factor in factors.items() if shares[name] is None}
        low, high = (total(times(factor, named(name)) for name, factor in part.items()) for part in (fast, slow))
        shifts = self._ends(fast, low, right, ONE)
        shift = next((shift for shift in shifts if self._proves(below(plus(low, shift, -1), radix))), None)
        if shift is None or not slow:
            return None
        right = plus(right, shift, -1)
        lower, upper = self._ends(slow, high, right, radix), self._ends(slow, high, right, radix, -1)
        if not lower or not upper:
            return None
        least = lower[0]
        numerator = plus(right, times(least, radix), -1)
        count = plus(plus(upper[0], least, -1), ONE)
        self._require(numerator)
        self._require(below(numerator, times(count, radix)))
        self._require(below({}, radix))
        quotient, rest = (self._element_digit(_Digit(numerator, radix, part, part is radix)) for part in (count, radix))
        parts = plus(plus(numerator, times(quotient, radix), -1), rest, -1)
        self.outside.assume(parts)
        self.outside.assume(plus({}, parts, -1))
        return [plus(plus(high, least, -1), quotient, -1), plus(plus(low, shift, -1), rest, -1)]

    def _ends(self, factors: dict[str, Poly], form: Poly, right: Poly, radix: Poly, side: int = 1) -> list[Poly]:
        """Lower (or, for side -1, upper) bounds of a form: by those of its unknowns, and by guards on it.

        Those come first that, times the radix, leave the fewest terms of `right`.
        """
        span = self._end(factors, side)
        found = [] if span is None else [span]
        for fact in self.guards:
            other = plus(form, fact, -side)
            if not self._inside(other):
                found.append(other)
        return sorted(found, key=lambda end: len(plus(right, times(end, radix), -1)))

    def _element_digit(self, digit: _Digit) -> Poly:
        name = f"@{len(self.target) + len(self.digits)}"
        self.digits.append(digit)
        self._element(name, digit.count)
        return named(name)

    def _end(self, factors: dict[str, Poly], side: int) -> Poly | None:
        """The least (side 1) or greatest value of a sum by the bounds of each unknown, None where one is not known."""
        end: Poly = {}
        for name, factor in factors.items():
            unknown = self.unknowns.get(name)
            if unknown is None:
                return None
            rising = self.inside.proves(factor)
            if not rising and not self.inside.proves(plus({}, factor, -1)):
                return None
            value = unknown.low if rising == (side > 0) else None if unknown.high is None else plus(unknown.high, ONE, -1)
            if value is None:
                return None
            end = plus(end, times(factor, value))
        return end

    def _proves(self, fact: Poly) -> bool:
        """Whether a fact holds wherever an element is read."""
        return self.inside.proves(fact) or (not self._inside(fact) and self.outside.proves(fact))

    def _require(self, fact: Poly, op: str = "ge") -> None:
        """A condition `fact >= 0` or `fact == 0` on the element, unless it holds at every one."""
        sides = [fact] if op == "ge" else [fact, plus({}, fact, -1)]
        if not all(map(self.outside.proves, sides)):
            self.outer.append(self._comparison(op, fact))
            for side in sides:
                self.outside.assume(side)

    # -- the result --------------------------------------------------------------------------------------------------

    def _result(self) -> Reduced:
        self._name_digits()
        values = {name: self._expression(form) for name, form in self.values.items()}
        axes = {name: self._axis(one, values) for name, one in self.unknowns.items()}
        self.guards = [replaced(form, self.values) for form in self.guards]  # reading bounds may have added some over settled axes
        for fact in (*self.guards, *self.facts):
            if not self._inside(fact):
                self._require(fact)
        guards = [substitute(guard, values) for guard in self.opaque]
        for one in self.unknowns.values():  # with what holds of the element, what the loops that are left say
            for fact in one.facts:
                self.outside.assume(fact)
        linear = not guards and not any(map(self._is_nonlinear, (*self.guards, *self.facts)))
        for fact in (*self.guards, *self.facts):
            if self._inside(fact) and not self.outside.proves(fact) and not self._keep(fact, axes, guards):
                if fact not in self.guards:
                    raise Unsuitable  # points would be visited in vain
                guards.append(self._comparison("ge", fact))
        equations = []
        for form in self.equations:
            known = factors_of(form, self.free).get("", {})
            equations.append((self._expression(plus(form, known, -1)), self._flat(plus({}, known, -1))))
        target = [Axis(axis.index, const(0), self._flat(self._read(axis.stop))) for axis in self.target]
        target += [Axis(f"digit {at}", const(0), self._flat(digit.count)) for at, digit in enumerate(self.digits)]
        late = {name: apply("mod", *map(self._expression, parts)) for name, parts in self.late.items()}

        def settled(expr: Expr) -> Expr:
            return bottom_up(expr, lambda node: settled(late[node.name]) if isinstance(node, Index) and node.name in late else node)

        determined = all(one.axis in self.axes for one in self.unknowns.values()) and not any(
            self._inside(form) for form, _ in self.late.values()
        )
        left = tuple(Axis(axis.index, settled(axis.start), settled(axis.stop)) for axis in axes.values())
        # Where a length is data, read at an axis that depends on this one, the bounds of the only one left cannot be known before it.
        alone = len(left) == 1 and linear and left[0].index not in (*free_names(left[0].start), *free_names(left[0].stop))
        return Reduced(
            left,
            tuple(target),
            tuple(equations),
            tuple(map(settled, guards)),
            {axis.index: settled(values.get(axis.index, Index(axis.index))) for axis in self.axes},
            tuple(self.outer),
            self._meaning(),
            self.plain or (not equations and not self.outer and (determined or alone)),
        )

    def _name_digits(self) -> None:
        """Gives a digit that is left the name of the axis that it is a part of, if it is the only one."""
        left = [self.stems[name] for name in self.unknowns if name in self.stems]
        for name in self.unknowns:
            stem = self.stems.get(name)
            if stem is not None and stem not in self.unknowns and left.count(stem) == 1:
                self.labels[name] = stem

    def _axis(self, unknown: Unknown, values: dict[str, Expr]) -> Axis:
        """An axis that is left, its bounds affine where that can be."""
        if unknown.axis is None:
            raise Unsuitable
        bounds = []
        for op, bound in (("maximum", unknown.axis.start), ("minimum", unknown.axis.stop)):
            parts = []
            for part in alternatives(bound, op):
                form = self._attempt(part)
                form = None if form is None else replaced(replaced(form, self.meaning), self.values)
                is_new = form is None or not self._inside(form) <= self.unknowns.keys()  # a quotient that has no digits
                parts.append(substitute(part, values) if form is None or is_new else self._flat(form))
            result = parts[0]
            for part in parts[1:]:
                result = apply(op, result, part)
            bounds.append(result)
        return Axis(self.labels.get(unknown.axis.index, unknown.axis.index), *bounds)

    def _keep(self, fact: Poly, axes: dict[str, Axis], guards: list[Expr]) -> bool:
        """Makes a condition inside an affine guard, or a bound of an axis that it is about; False where it is neither."""
        if not self._is_nonlinear(fact):
            guards.append(apply("ge", self._flat(fact), const(0)))
            return True
        factors = factors_of(fact, self.free)
        for name in reversed(axes):
            factor = factors.get(name, {})
            side = 1 if self._proves(below({}, factor)) else -1
            if side < 0 and not self._proves(below(factor, {})):
                continue
            # factor * name + rest >= 0 with a positive factor says name >= -(rest // factor), with a negative one name <= rest // -factor.
            rest = self._expression(plus(fact, times(factor, named(name)), -1), times(factor, number(side)))
            axis, digit = axes[name], self.unknowns[name]
            if side > 0:
                axes[name] = Axis(axis.index, apply("maximum", axis.start, apply("neg", rest)), axis.stop)
            else:
                stop = apply("add", rest, const(1))
                axes[name] = Axis(axis.index, axis.start, stop if digit.rough else apply("minimum", axis.stop, stop))
            return True
        return False

    def _meaning(self) -> dict[str, Expr]:
        """What the names made here stand for, over the indices of the tensor and sizes of the program."""
        meaning: dict[str, Expr] = {f"@{at}": Index(axis.index) for at, axis in enumerate(self.target)}

        def known(node: Expr) -> Expr:
            if not isinstance(node, Index | Size):
                return node
            hidden = self.hidden.get(node.name)
            return meaning.get(node.name, node) if hidden is None else bottom_up(hidden, known)

        places = {f"@{len(self.target) + at}": digit for at, digit in enumerate(self.digits)}
        for at, digit in enumerate(self.digits):
            form, divisor = digit.numerator, digit.radix
            while not digit.rest:
                place = next((place for name, place in places.items() if form == named(name)), None)
                if place is None or place.rest:
                    break
                form, divisor = place.numerator, times(place.radix, divisor)  # e // a // b = e // (a * b)
            numerator, radix = (bottom_up(self._expression(part), known) for part in (form, divisor))
            expr: Expr = apply("mod" if digit.rest else "floordiv", numerator, radix)
            meaning[f"@{len(self.target) + at}"] = meaning[f"digit {at}"] = expr
        for name, expr in self.hidden.items():
            meaning[name] = bottom_up(expr, known)
        return meaning

    def _comparison(self, op: str, fact: Poly) -> Expr:
        """`fact >= 0` or `fact == 0`, with positive factors on both sides."""
        high = {monomial: factor for monomial, factor in fact.items() if factor > 0}
        low = {monomial: -factor for monomial, factor in fact.items() if factor < 0}
        if op == "ge" and low.get(()) == 1 and len(low) > 1:
            return apply("gt", self._expression(high), self._expression(plus(low, ONE, -1)))
        return apply(op, self._expression(high), self._expression(low))

    def _flat(self, form: Poly) -> Expr:
        """A form over what is known, affine: products are sizes of their own; where unknowns are multiplied it stays as it is."""
        flat: Poly = {}
        for monomial, factor in form.items():
            if len(monomial) > 1 and self.free.isdisjoint(monomial):
                flat = plus(flat, named(self._hide(self._expression({monomial: 1}))), factor)
            else:
                flat = plus(flat, {monomial: factor})
        return self._expression(flat)


def _radices(factors: Iterable[Poly]) -> list[Poly]:
    """What an equation may be split at: its factors other than 1, the simplest first."""
    found: dict[tuple[Any, ...], Poly] = {}
    for factor in factors:
        if factor not in UNITS:
            positive = factor if all(f > 0 for f in factor.values()) or max(factor.values()) > 0 else plus({}, factor, -1)
            found[tuple(sorted(positive.items()))] = positive
    return sorted(found.values(), key=lambda form: (max(map(len, form)), len(form), sorted(form.items())))
