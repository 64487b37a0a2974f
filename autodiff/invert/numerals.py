"""Expressions as polynomials in indices, sizes and digits: what `radices` knows before it solves anything.

Every quotient `e // d` that occurs, with the remainder that goes with it, is written in digits of e: unknowns q and r, with
e = q*d + r and 0 <= r < d. Divisors of one e that divide each other are the places of one number. An axis that is divided is
replaced by its digits; another e gives an equation. What loops, guards and divisions say is collected in two lists of
facts: `inside`, at the points of the read, and `outside`, of an element that is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tensorexpr import dtypes
from tensorexpr.bounds import interval
from tensorexpr.bounds.nonlinear import Poly, Polynomials, exact_quotient, named, number, plus, times
from tensorexpr.ir import Access, Apply, Axis, Const, Expr, Index, Reduce, Size, apply, const
from tensorexpr.records import record
from tensorexpr.regions import alternatives
from tensorexpr.traversal import free_names, fresh_name, walk

ONE = number(1)
MOST_DEGREE = 8


class Unsuitable(Exception):
    """The indices are no mixed radix."""


@record(frozen=False)
class Unknown:
    """An axis or a digit: `low <= it < high` where these are polynomials over what is known (None: not known, or no such).

    `facts` (not negative) and `conditions` say all that its bounds say; where `high` is `rough`, others say more.
    """

    low: Poly | None
    high: Poly | None
    facts: list[Poly]
    conditions: list[Expr]
    axis: Axis | None = None
    rough: bool = False


class Numerals:
    """The axes and guards of a read, and what is divided in it, as polynomials.

    `unknowns` are the axes and digits that are to be found, `values` axes that are written in digits, `equations` forms that
    are 0, `guards` forms that are not negative, `opaque` guards of another form, `hidden` what sizes made here stand for.
    """

    def __init__(self, axes: Sequence[Axis], target: Sequence[Axis], reserved: Sequence[str]) -> None:
        self.axes, self.target = tuple(axes), tuple(target)
        self.taken = {*reserved, *(axis.index for axis in (*axes, *target))}
        self.sizes: set[str] = set()
        self.hidden: dict[str, Expr] = {}  # sizes that stand for expressions over sizes and the element
        self.free: set[str] = {axis.index for axis in axes}  # what is not known: axes, quotients, digits
        self.plain = True  # whether digits took the place of whole axes only
        self.quotients: dict[tuple[Any, ...], list[tuple[Poly, str]]] = {}  # divisors of a number, with names of the quotients
        self.unknowns: dict[str, Unknown] = {}  # axes and digits that are not settled
        self.values: dict[str, Poly] = {}  # axes and digits that are
        self.meaning: dict[str, Poly] = {}  # quotients and remainders in digits
        self.equations: list[Poly] = []
        self.guards: list[Poly] = []  # not negative
        self.facts: list[Poly] = []  # what the bounds of axes say that have a value; not negative
        self.opaque: list[Expr] = []  # guards of another form
        self.labels: dict[str, str] = {}  # names of digits in the result
        self.stems: dict[str, str] = {}  # what a digit is a part of
        self.inside = Polynomials((), (), lambda expr: interval(expr, {}))  # what holds at the points of the read
        self.outside = Polynomials((), (), lambda expr: interval(expr, {}))  # what holds of an element that is read

    # -- reading -----------------------------------------------------------------------------------------------------

    def _element(self, name: str, stop: Poly) -> None:
        self.outside.assume(named(name), name)
        self.outside.assume(below(named(name), stop))

    def _enter(self, axis: Axis) -> None:
        name = named(axis.index)
        facts: list[Poly] = []
        conditions: list[Expr] = []
        ends: list[Poly | None] = []
        for op, bound in (("maximum", axis.start), ("minimum", axis.stop)):
            parts = alternatives(bound, op)
            forms = [self._attempt(part) for part in parts]
            for part, form in zip(parts, forms, strict=True):
                if form is None:
                    conditions.append(apply("ge" if op == "maximum" else "lt", Index(axis.index), part))
                else:
                    facts.append(plus(name, form, -1) if op == "maximum" else below(name, form))
            end = forms[0] if len(forms) == 1 else None
            ends.append(None if end is None or self._inside(end) else end)
        for fact in facts:
            self.inside.assume(fact)
        if ends[0] is not None and all(factor > 0 for factor in ends[0].values()):
            self.inside.assume(name, axis.index)
        self.unknowns[axis.index] = Unknown(ends[0], ends[1], facts, conditions, axis)

    def _restrict(self, guard: Expr) -> None:
        """A guard as facts; one of another form stays as it is."""
        if isinstance(guard, Apply) and guard.op.name in ("lt", "le", "gt", "ge", "eq"):
            name = guard.op.name
            left, right = (self._attempt(arg) for arg in guard.args)
            if left is not None and right is not None:
                low, high = (left, right) if name in ("lt", "le") else (right, left)
                fact = plus(plus(high, low, -1), number(-1 if name in ("lt", "gt") else 0))
                (self.equations if name == "eq" else self.guards).append(fact)
                self.inside.assume(fact)
                return
        self.opaque.append(guard)

    def _attempt(self, expr: Expr) -> Poly | None:
        try:
            return self._read(expr)
        except Unsuitable:
            return None

    def _read(self, expr: Expr) -> Poly:
        """The polynomial of an expression, its quotients as names of their own."""
        if expr.dtype is not dtypes.int64:
            raise Unsuitable
        match expr:
            case Const():
                return number(int(expr.value))
            case Index():
                return named(expr.name)
            case Size():
                return self._size(expr.name)
            case Apply() if expr.op.name in ("add", "sub", "mul", "neg"):
                parts = [self._read(arg) for arg in expr.args]
                if expr.op.name == "neg":
                    return plus({}, parts[0], -1)
                if expr.op.name == "mul":
                    return _small(times(*parts))
                return plus(parts[0], parts[1], 1 if expr.op.name == "add" else -1)
            case Apply() if expr.op.name in ("floordiv", "mod") and free_names(expr):
                form, divisor = (self._read(arg) for arg in expr.args)
                quotient = self._quotient(form, divisor)
                return quotient if expr.op.name == "floordiv" else self._remainder(form, divisor, quotient)
        if free_names(expr) or has_data(expr) or interval(expr, {})[0] < 0:
            raise Unsuitable
        return self._size(self._hide(expr))

    def _size(self, name: str) -> Poly:
        if name not in self.sizes:
            self.sizes.add(name)
            self.inside.assume(named(name), name)
            self.outside.assume(named(name), name)
        return named(name)

    def _hide(self, expr: Expr) -> str:
        """The name of a size that stands for an expression which is not negative."""
        for name, known in self.hidden.items():
            if known == expr:
                return name
        name = f"%{len(self.hidden)}"
        self.hidden[name] = expr
        return name

    def _quotient(self, form: Poly, divisor: Poly) -> Poly:
        if self._inside(divisor) or not self._inside(form) or not self.inside.proves(below({}, divisor)):
            raise Unsuitable
        parts = self._parts(form, divisor)
        if parts is not None:
            return parts[0]
        for key, places in self.quotients.items():  # e // a // b = e // (a * b)
            for first, name in places:
                if form == named(name):
                    return self._quotient(dict(key), times(first, divisor))
        places = self.quotients.setdefault(tuple(sorted(form.items())), [])
        for known, name in places:
            if known == divisor:
                return named(name)
        name = f"/{len(self.free)}"
        self.free.add(name)
        places.append((divisor, name))
        rest = plus(form, times(named(name), divisor), -1)
        self.inside.assume(rest)
        self.inside.assume(below(rest, divisor))
        return named(name)

    def _remainder(self, form: Poly, divisor: Poly, quotient: Poly) -> Poly:
        places = self.quotients.get(tuple(sorted(form.items())), [])
        name = next((name for known, name in places if known == divisor and quotient == named(name)), None)
        rest = _small(plus(form, times(quotient, divisor), -1))
        if name is None:
            return rest
        own = f"%{name}"
        if own not in self.free:
            self.free.add(own)
            self.inside.assume(plus(named(own), rest, -1))
            self.inside.assume(plus(rest, named(own), -1))
        return named(own)

    def _parts(self, form: Poly, divisor: Poly) -> tuple[Poly, Poly] | None:
        """`form` as divisor * (the first) + (the second), where the second is proved to lie between 0 and the divisor."""
        high: Poly = {}
        for name, factor in factors_of(form, self.free).items():
            share = exact_quotient(factor, divisor)
            if share is not None:
                high = plus(high, times(share, named(name) if name else ONE))
        low = plus(form, times(high, divisor), -1)
        if not self.inside.proves(low) or not self.inside.proves(below(low, divisor)):
            return None
        if self.guards or self.equations:
            # A guard on this very quotient may be the proof: it is settled by that, so what it says about the form has to stay.
            self.guards += [fact for fact in (low, below(low, divisor)) if self._inside(fact) and fact not in self.guards]
        return high, low

    def _inside(self, form: Poly) -> set[str]:
        """The names in a form that are not known outside of the read."""
        return {name for monomial in form for name in monomial if name in self.free}

    # -- digits ------------------------------------------------------------------------------------------------------

    def _write_in_digits(self) -> None:
        """Every number that is divided as the sum of its digits, in the order in which they were met: inner ones first."""
        meaning: dict[str, Poly] = {}
        for form, places in self.quotients.items():
            for chain in _chains(places):
                digits = self._digits(replaced(dict(form), meaning | self.values), [divisor for divisor, _ in chain])
                for at, (divisor, name) in enumerate(chain):
                    meaning[name] = total(times(over(stride, divisor), digit) for stride, digit in digits[at + 1 :])
                    meaning[f"%{name}"] = total(times(stride, digit) for stride, digit in digits[: at + 1])
        # A digit that is divided itself, `t % 4 % 2`, was written in digits after it was used.
        self.meaning = {name: replaced(form, self.values) for name, form in meaning.items()}
        self._replace(self.meaning | self.values)
        for fact in self.guards if meaning else ():
            self.inside.assume(fact)

    def _digits(self, form: Poly, divisors: list[Poly]) -> list[tuple[Poly, Poly]]:
        """The digits of a number as (stride, digit), the fastest first: the remainders by the divisors, then the last quotient."""
        found: list[tuple[Poly, Poly]] = []
        stride = ONE
        while len(found) < len(divisors):
            parts = self._parts(form, over(divisors[len(found)], stride))
            if parts is None:
                break
            found.append((stride, parts[1]))
            stride, form = divisors[len(found) - 1], parts[0]
        left = [over(divisor, stride) for divisor in divisors[len(found) :]]
        fresh = self._fresh_digits(form, left) if left else [(ONE, form)]
        return found + [(times(place, stride), digit) for place, digit in fresh]

    def _fresh_digits(self, form: Poly, divisors: list[Poly]) -> list[tuple[Poly, Poly]]:
        """Unknowns for the digits of a form; they take the place of an axis that it is, or make an equation with it."""
        name = next(iter(self._inside(form)))
        axis = self.unknowns.get(name) if form == named(name) else None
        whole = divisors[-1]
        digits, high = [], None
        if axis is not None and axis.low == {} and axis.high is not None and not axis.conditions:
            high = exact_quotient(axis.high, whole)
            if high is None:
                high = self._size(self._hide(self._expression(plus(axis.high, plus(whole, ONE, -1)), whole)))
        for stride, divisor in zip([ONE, *divisors], divisors, strict=False):
            digits.append((stride, self._digit(name, {}, over(divisor, stride))))
        rough = axis is not None and high is not None and times(high, whole) != axis.high
        digits.append((whole, self._digit(name, None if high is None else {}, high, rough)))
        number_ = total(times(stride, digit) for stride, digit in digits)
        self.plain = self.plain and high is not None and not rough
        if high is None:
            self.equations.append(plus(form, number_, -1))
        else:
            assert axis is not None
            made = [next(iter(self._inside(digit))) for _, digit in digits]
            self.unknowns = {n: self.unknowns[n] for old in self.unknowns if old not in made for n in (made if old == name else [old])}
            self.values = {n: replaced(value, {name: number_}) for n, value in self.values.items()} | {name: number_}
            if rough:
                self.facts += axis.facts
            self._replace({name: number_})
        for fact in (plus(form, number_, -1), plus(number_, form, -1)):
            self.inside.assume(fact)
        return digits

    def _digit(self, stem: str, low: Poly | None, high: Poly | None, rough: bool = False) -> Poly:
        name = fresh_name(stem, self.taken)
        self.free.add(name)
        digit = named(name)
        facts = [] if high is None else [digit, below(digit, high)]
        for fact in facts:
            self.inside.assume(fact, name)
        axis = None if high is None else Axis(name, const(0), self._expression(high))
        self.unknowns[name] = Unknown(low, high, facts, [], axis, rough)
        self.stems[name] = stem
        return digit

    # -- names -------------------------------------------------------------------------------------------------------

    def _replace(self, values: dict[str, Poly]) -> None:
        self.equations = [replaced(form, values) for form in self.equations]
        self.values = {name: replaced(form, values) for name, form in self.values.items()}
        self.meaning = {name: replaced(form, values) for name, form in self.meaning.items()}
        self.guards = [replaced(form, values) for form in self.guards]
        self.facts = [replaced(form, values) for form in self.facts]
        for unknown in self.unknowns.values():
            unknown.facts = [replaced(form, values) for form in unknown.facts]

    def _expression(self, form: Poly, divisor: Poly = ONE) -> Expr:
        total: Expr | None = None
        for monomial, factor in sorted(form.items(), key=lambda item: (item[1] < 0, not item[0], item[0])):
            product: Expr | None = None
            for name in monomial:
                leaf = Size(name) if name in self.sizes or name in self.hidden else Index(self.labels.get(name, name))
                product = leaf if product is None else apply("mul", product, leaf)
            size = const(abs(factor))
            product = size if product is None else product if abs(factor) == 1 else apply("mul", product, size)
            if total is None:
                total = product if factor > 0 else apply("neg", product)
            else:
                total = apply("add" if factor > 0 else "sub", total, product)
        total = const(0) if total is None else total
        return total if divisor == ONE else apply("floordiv", total, self._expression(divisor))


# ------------------------------------------------------------------------------------------------------------ polynomials


def has_data(expr: Expr) -> bool:
    """Whether an expression is known only when the program runs, not when the sizes are."""
    return any(isinstance(node, Access | Reduce) for node in walk(expr))


def below(form: Poly, limit: Poly) -> Poly:
    """What is not negative where form < limit."""
    return plus(plus(limit, form, -1), ONE, -1)


def total(parts: Iterable[Poly]) -> Poly:
    """The sum of forms."""
    result: Poly = {}
    for part in parts:
        result = plus(result, part)
    return result


def _small(form: Poly) -> Poly:
    if any(len(monomial) > MOST_DEGREE for monomial in form):
        raise Unsuitable
    return form


def over(form: Poly, divisor: Poly) -> Poly:
    """The quotient of a place of a number by one that divides it."""
    share = exact_quotient(form, divisor)
    assert share is not None, "places of a number divide each other"
    return share


def factors_of(form: Poly, names: set[str]) -> dict[str, Poly]:
    """The factor of each of the names that occur in a form, and under "" what is without them; no product of two of them may occur."""
    found: dict[str, Poly] = {}
    for monomial, factor in form.items():
        own = [name for name in monomial if name in names]
        if len(own) > 1:
            raise Unsuitable
        name = own[0] if own else ""
        rest = tuple(n for n in monomial if n != name)
        found.setdefault(name, {})[rest] = factor
    return found


def replaced(form: Poly, values: dict[str, Poly]) -> Poly:
    """The form with names replaced by what they stand for."""
    result: Poly = {}
    for monomial, factor in form.items():
        part = number(factor)
        for name in monomial:
            part = times(part, values.get(name) if name in values else named(name))  # type: ignore[arg-type]  # a name that is in values has one
        result = plus(result, part)
    return _small(result)


def _chains(places: list[tuple[Poly, str]]) -> list[list[tuple[Poly, str]]]:
    """Divisors with their names, as chains in each of which one divides the next."""
    chains: list[list[tuple[Poly, str]]] = []
    for place in sorted(places, key=lambda p: (max(map(len, p[0])), len(p[0]), sorted(p[0].items()))):
        fitting = next((chain for chain in chains if exact_quotient(place[0], chain[-1][0]) is not None), None)
        if fitting is None:
            chains.append([place])
        else:
            fitting.append(place)
    return chains
