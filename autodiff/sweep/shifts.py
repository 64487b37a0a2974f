"""What the outputs do not depend on is not differentiated: a softmax takes its greatest element off, and any other shift would do.

    m[i] = max(x[i, j] for j)                    p[i, j] = exp(x[i, j] - m[i])              p with m + d is p times exp(-d)
    s[i] = sum(p[i, j] for j)                    y[i, j] = p[i, j] / s[i]                   so is s, and y is what it was

A tensor that is added to the argument of an exponential is a *shift* where the derivative of every output by it is zero, as an identity
and not by its values. Then nothing is sent to it: neither its adjoint, a difference of equal sums, nor places of greatest elements are
computed. What changes with a shift is followed to where it cancels. Each value is

    (ADDED, c, at)     the value plus c times the shift at the indices `at`
    (SCALED, c, at)    the value times exp(c times the shift), or exp2 of it
    FIXED              the same
    None               something else

by the rules of calculus that reverse mode itself has: conditions, comparisons and integers have no derivative, a maximum has that of its
winner.

What a scatter makes is one element for each place that it sends to: softmaxes over segments are as those over rows.

A maximum that is written in the exponential, and not by a name, is a shift as well: all that are equal up to names are one. Reverse mode
then takes them as constants, wherever they stand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from math import isfinite
from typing import NamedTuple

from tensorexpr.dtypes import float64
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Define, Definition, Expr, Index, Program, Reduce, Scatter, const
from tensorexpr.simplify.passes.definitions import form_of
from tensorexpr.traversal import expressions, free_names, reads, substitute, walk

ADDED, SCALED = "added", "scaled"


class Change(NamedTuple):
    """How a value changes with the shift at some indices."""

    kind: str
    by: Fraction
    at: tuple[Expr, ...]


FIXED = Change("", Fraction(0), ())
ANY = Change("zero", Fraction(0), ())
"""Zero, which is itself times anything."""


def shifts(program: Program, outputs: Collection[str], active: Collection[str], given: Collection[str]) -> set[str]:
    """The active tensors of a program by which the derivative of every output is zero. What is `given` has a rule of its own or is asked
    for by itself."""
    seen = dict.fromkeys(e.tensor for e in _candidates(program, given) if isinstance(e, Access) and e.tensor in active)
    needs = [set(reads(d)) for d in program.definitions] if seen else []
    return {name for name in seen if name not in given and _cancels(name, program, needs, outputs, given)}


def written_shifts(program: Program, outputs: Collection[str], given: Collection[str]) -> frozenset[object]:
    """The forms of maxima and minima, written where they are read, by which the derivative of every output is zero."""
    forms = dict.fromkeys(extreme_form(e) for e in _candidates(program, given) if is_extreme(e))
    if not forms:
        return frozenset()
    places: dict[object, dict[Expr, Change]] = {}
    for d in program.definitions:
        for e in (node for value in expressions(d) for node in walk(value) if is_extreme(node)):
            at = tuple(Index(name) for name in free_names(e))
            places.setdefault(extreme_form(e), {})[e] = Change(ADDED, Fraction(1), at)
    needs = [set(reads(d)) for d in program.definitions]
    return frozenset(form for form in forms if _all_fixed(program, 0, {}, needs, outputs, given, places[form]))


def is_extreme(e: Expr) -> bool:
    """Whether an expression is a maximum or a minimum of floats over some range, perhaps with a number beside it."""
    if isinstance(e, Apply) and e.op.name in ("maximum", "minimum"):
        return isinstance(e.args[1], Const) and is_extreme(e.args[0])
    return isinstance(e, Reduce) and e.dtype.is_float and e.combiner.name in ("max", "min")


def extreme_form(e: Expr) -> object:
    """A reduction up to the names of its indices."""
    return form_of(Define("", tuple(Axis(name, const(0), const(1)) for name in free_names(e)), e))


def _candidates(program: Program, given: Collection[str]) -> Iterator[Expr]:
    """What is added to arguments of exponentials, in definitions without a rule."""
    defined = {d.name: d.value for d in program.definitions if isinstance(d, Define) and d.name not in given}
    sent = (d.value for d in program.definitions if isinstance(d, Scatter) and d.name not in given)
    for value in (*defined.values(), *sent):
        yield from _added(value, defined)


def _added(value: Expr, defined: Mapping[str, Expr]) -> Iterator[Expr]:
    """The elements of tensors, maxima and minima that are added to arguments of exponentials, there or in what is `defined` before."""
    for node in walk(value):
        if isinstance(node, Apply) and node.op.name in _EXPONENTIALS:
            left, within = [node.args[0]], dict(defined)
            while left:
                term = left.pop()
                if isinstance(term, Apply) and term.op.name in ("add", "sub", "neg", "mul", "where"):
                    left += term.args
                elif (isinstance(term, Access) and term.dtype.is_float) or is_extreme(term):
                    yield term
                    if isinstance(term, Access) and term.tensor in within:
                        left.append(within.pop(term.tensor))


def _cancels(shift: str, program: Program, needs: Sequence[set[str]], outputs: Collection[str], given: Collection[str]) -> bool:
    """Whether no output changes with a shift."""
    home = next((n for n, d in enumerate(program.definitions) if isinstance(d, (Define, Scatter)) and d.name == shift), None)
    if home is None or shift in outputs:
        return False
    changed = {shift: Change(ADDED, Fraction(1), tuple(map(Index, _own_indices(program.definitions[home]))))}
    return _all_fixed(program, home + 1, changed, needs, outputs, given, {})


def _own_indices(d: Definition) -> tuple[str, ...]:
    """The names by which the elements of a tensor are told: those of its axes; a scatter has none of its own."""
    return (
        tuple(a.index for a in d.axes)
        if isinstance(d, Define)
        else tuple(f"{d.results[0][0]}.{k}" for k in range(len(d.results[0][1].shape)))
    )


def _all_fixed(
    program: Program,
    first: int,
    changed: dict[str, Change],
    needs: Sequence[set[str]],
    outputs: Collection[str],
    given: Collection[str],
    places: Mapping[Expr, Change],
) -> bool:
    """Whether no output changes, from the `first` definition on, with what is `changed` already and what changes in some `places`."""
    names = {d.name: _own_indices(d) for d in program.definitions if isinstance(d, (Define, Scatter))}
    for number in range(first, len(program.definitions)):
        d = program.definitions[number]
        if needs[number].isdisjoint(changed) and not (places and any(e in places for value in expressions(d) for e in walk(value))):
            continue
        found = _of_definition(d, changed, names, given, places)
        if found == FIXED:
            continue
        if found is None or not isinstance(d, (Define, Scatter)) or d.name in outputs:
            return False
        changed[d.name] = found
    return True


def _of_definition(
    d: Definition,
    changed: Mapping[str, Change],
    names: Mapping[str, tuple[str, ...]],
    given: Collection[str],
    places: Mapping[Expr, Change],
) -> Change | None:
    """How the result of a definition changes, at its own indices."""
    if not all(type_.dtype.is_float for _, type_ in d.results):
        return FIXED
    if not isinstance(d, (Define, Scatter)) or d.name in given:
        return None
    found = _Values(changed, names, places).of(d.value)
    if found is None or found in (FIXED, ANY):
        return found and FIXED
    return found if isinstance(d, Define) else _sent(d, found)


def _sent(d: Scatter, found: Change) -> Change | None:
    """How what a scatter makes changes, at its own indices: as all that meets at a place changes alike."""
    own = dict(zip(d.indices, map(Index, _own_indices(d)), strict=True))
    base = len(found.at) - (found.at[-1:] == _BASE)
    if d.combine not in ("max", "min") and not (d.combine == "sum" and found.kind == SCALED):
        return None
    if any(not isinstance(e, Const) and e not in own for e in found.at[:base]):
        return None
    return found._replace(at=(*(own.get(e, e) for e in found.at[:base]), *found.at[base:]))


class _Values:
    """How the values of one definition change."""

    def __init__(self, changed: Mapping[str, Change], names: Mapping[str, tuple[str, ...]], places: Mapping[Expr, Change]) -> None:
        self.changed, self.names = changed, names
        self.known: dict[Expr, Change | None] = {**places}

    def of(self, e: Expr) -> Change | None:
        """How one value changes; equal ones are asked once."""
        if e not in self.known:
            self.known[e] = self._of(e)
        return self.known[e]

    def _of(self, e: Expr) -> Change | None:
        match e:
            case Const():
                return ANY if e.value == 0 else FIXED
            case Access():
                return self._read(e)
            case Cast():
                return self.of(e.arg) if e.dtype.is_float and e.arg.dtype.is_float else FIXED
            case Reduce():
                return self._reduced(e)
            case Apply():
                return self._applied(e)
        return FIXED

    def _read(self, e: Access) -> Change | None:
        found = self.changed.get(e.tensor, FIXED)
        if not found.at:
            return found
        at = dict(zip(self.names[e.tensor], e.indices, strict=True))
        return found._replace(at=tuple(substitute(index, at) for index in found.at))

    def _reduced(self, e: Reduce) -> Change | None:
        if not e.dtype.is_float:
            return FIXED
        if not e.combiner.is_builtin:
            return FIXED if all(self.of(value) in (FIXED, ANY) for value in e.values) else None
        found = self.of(e.values[0])
        if found in (FIXED, ANY) or found is None:
            return found
        bound = {axis.index for axis in e.axes}
        if any(not bound.isdisjoint(free_names(index)) for index in found.at):
            return None
        return found if e.combiner.name in ("max", "min") or (e.combiner.name == "sum" and found.kind == SCALED) else None

    def _applied(self, e: Apply) -> Change | None:
        name = e.op.name
        if not e.dtype.is_float or name == "stop_gradient":
            return FIXED
        args = e.args[1:] if name == "where" else e.args
        found = [self.of(arg) for arg in args]
        if any(one is None for one in found):
            return None
        own = [one for one in found if one is not None]
        if all(one in (FIXED, ANY) for one in own):
            return ANY if name in _ZERO_OF_ZEROS and all(one == ANY for one in own) else FIXED
        match name:
            case "add" | "sub":
                return _sum(own[0], own[1] if name == "add" else _times(own[1], Fraction(-1)))
            case "where" | "maximum" | "minimum":
                return _alike(own[0], own[1])
            case "mul" | "div":
                return _product(e, own)
            case "neg":
                return own[0] if own[0].kind == SCALED else _times(own[0], Fraction(-1))
            case "recompute":
                return own[0]
            case "exp" | "exp2":
                base = _BASE if name == "exp2" else ()
                return own[0]._replace(kind=SCALED, at=(*own[0].at, *base)) if own[0].kind == ADDED else None
            case "log" | "log2":
                if own[0].kind != SCALED or (own[0].at[-1:] == _BASE) != (name == "log2"):
                    return None
                return own[0]._replace(kind=ADDED, at=own[0].at[:-1] if name == "log2" else own[0].at)
            case "abs":
                return own[0] if own[0].kind == SCALED else None
            case "sqrt" | "rsqrt":
                half = Fraction(1 if name == "sqrt" else -1, 2)
                return _times(own[0], half) if own[0].kind == SCALED else None
            case "pow":
                power = e.args[1]
                if own[0].kind == SCALED and isinstance(power, Const) and isfinite(power.value):
                    return _times(own[0], Fraction(power.value))
        return None


_EXPONENTIALS = ("exp", "exp2")
_BASE = (Const(2.0, float64),)
"""Stands behind the indices of a shift by powers of two, which are no powers of e."""
_ZERO_OF_ZEROS = ("add", "sub", "mul", "where", "maximum", "minimum", "neg", "abs")


def _times(change: Change, factor: Fraction) -> Change:
    if change in (FIXED, ANY):
        return change
    by = change.by * factor
    return change._replace(by=by) if by else FIXED


def _sum(a: Change, b: Change) -> Change | None:
    """Of a sum: what is added adds up, what is scaled by the same stays so."""
    if SCALED in (a.kind, b.kind):
        return _alike(a, b)
    fixed = [one for one in (a, b) if one not in (FIXED, ANY)]
    if len(fixed) == 1:
        return fixed[0]
    if a.at != b.at:
        return None
    return a._replace(by=a.by + b.by) if a.by + b.by else FIXED


def _alike(a: Change, b: Change) -> Change | None:
    """Of one of two values: where they change alike, or one is zero and the other scaled."""
    for one, other in ((a, b), (b, a)):
        if one == ANY and other.kind == SCALED:
            return other
    return a if a == b else None


def _product(e: Apply, own: Sequence[Change]) -> Change | None:
    """Of a product or quotient: factors multiply, a number is a factor of what is added."""
    a, b = own
    if ADDED in (a.kind, b.kind):
        number = e.args[1] if a.kind == ADDED else e.args[0]
        change = a if a.kind == ADDED else b
        if not isinstance(number, Const) or not isfinite(number.value) or not number.value or (e.op.name == "div" and change is b):
            return None
        return _times(change, Fraction(number.value) if e.op.name == "mul" else 1 / Fraction(number.value))
    if e.op.name == "div":
        b = _times(b, Fraction(-1))
    if ANY in (a, b):
        return ANY if e.op.name == "mul" or a == ANY else None
    if FIXED in (a, b):
        return b if a == FIXED else a
    if a.at != b.at:
        return None
    return a._replace(by=a.by + b.by) if a.by + b.by else FIXED
