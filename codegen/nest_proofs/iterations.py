"""Which iterations of a store may have written what is read: its indices are those of the read.

Equation by equation, one unknown after the other: digits by quotient and remainder, and for what the indices leave open the least and the
greatest value that is possible. A solution is a guess that is checked by who asks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from tensorexpr.codegen.dependence.pairs import renamed
from tensorexpr.codegen.facts.places import Loop
from tensorexpr.integers import Affine, FloorDiv
from tensorexpr.integers.forms.affine import Atom
from tensorexpr.ir import Apply, Const, Expr, integer
from tensorexpr.regions import affine_of, alternatives

MOST_CHOICES = 8


def solutions(
    equations: Sequence[Affine], own: tuple[Loop, ...], names: dict[str, str], carried: Loop | None
) -> Iterator[dict[str, Affine]]:
    """Iterations of a store that may write what is read: each unknown as a form over the read's names."""
    unknown = {names[loop.statement.index]: loop for loop in own}
    quotients: dict[FloorDiv, str] = {}
    todo = [_flattened(equation, unknown, quotients) for equation in equations]
    known: dict[str, Affine] = {}
    changed = True
    while changed and todo:
        changed = False
        for equation in list(todo):
            form = equation.substitute(known)
            mine = [name for name in form.names() if name not in known and (name in unknown or name in quotients.values())]
            found = _digits(form, mine, unknown) if mine else {}
            if found is not None:
                known.update(found)
                todo.remove(equation)
                changed = True
    open_ = [name for name in unknown if name not in known]
    choices = [_choices(name, unknown, names, known, quotients, carried) for name in open_]
    if math.prod(map(len, choices)) > MOST_CHOICES:
        choices = [found[:1] for found in choices]
    for chosen in itertools.product(*choices):
        solution = {name: form for name, form in (*known.items(), *zip(open_, chosen, strict=True)) if name in unknown}
        for _ in solution:  # an unknown's value may be given by another's
            solution = {name: form.substitute(solution) for name, form in solution.items()}
        if not any(name in unknown for form in solution.values() for name in form.names()):
            yield solution


def _choices(
    name: str,
    unknown: Mapping[str, Loop],
    names: dict[str, str],
    known: Mapping[str, Affine],
    quotients: dict[FloorDiv, str],
    carried: Loop | None,
) -> list[Affine]:
    """Values to try of an unknown that the indices leave open: the least and the greatest that is possible."""
    loop = unknown[name]
    part = next((q for q, symbol in quotients.items() if q.numerator == Affine.of(name) and symbol in known), None)
    if part is not None:
        least = known[quotients[part]] * part.denominator
        return [least, least + (part.denominator - 1)]
    start, stop = (affine_of(renamed(e, names, frozenset())) for e in (loop.statement.start, _if_it_runs(loop.statement.stop)))
    if loop is carried:
        stop = Affine.of(loop.statement.index)
    greatest = _greatest(name, unknown, names, known)
    found = [greatest, start, None if stop is None else stop - 1]
    return list(dict.fromkeys(form for form in found if form is not None))[: 2 if greatest is not None else 3]


def _if_it_runs(stop: Expr) -> Expr:
    """The bound of a loop where it does: of one that a condition may leave empty the other branch."""
    return stop.args[1] if isinstance(stop, Apply) and stop.op.name == "where" else stop


def _greatest(name: str, unknown: Mapping[str, Loop], names: dict[str, str], known: Mapping[str, Affine]) -> Affine | None:
    """The greatest value of an unknown at which the loops inside of it, whose indices are known, have begun."""
    for inner, loop in unknown.items():
        if inner == name or inner not in known:
            continue
        for start in alternatives(loop.statement.start, "maximum"):
            form = affine_of(renamed(start, names, frozenset()))
            if form is None or name not in form.names():
                continue
            room, divisor = known[inner] - form.substitute(known), 1
            quotient = next((atom for atom in room.atoms() if isinstance(atom, FloorDiv) and name in atom.numerator.names()), None)
            if quotient is not None and room.coefficient(quotient) == -1:  # (a u + b) // d <= e means a u + b <= d e + d - 1
                divisor = quotient.denominator
                room = (room + Affine.of(quotient)) * divisor + divisor - 1 - quotient.numerator
            factor = -room.coefficient(name)
            rest = room + Affine.of(name) * factor
            if factor > 0 and name not in rest.names():
                return rest // factor
    return None


def _flattened(form: Affine, unknown: Mapping[str, Loop], quotients: dict[FloorDiv, str]) -> Affine:
    """A form in which quotients of unknowns are unknowns of their own."""
    terms: list[tuple[Atom, int]] = []
    for atom, factor in form.terms:
        if isinstance(atom, FloorDiv) and not set(atom.numerator.names()).isdisjoint(unknown):
            atom = quotients.setdefault(atom, f"quotient {len(quotients)}")
        terms.append((atom, factor))
    return Affine(terms, form.constant)


def _digits(form: Affine, mine: list[str], unknown: Mapping[str, Loop]) -> dict[str, Affine] | None:
    """The unknowns of `form == 0` as digits of what is left of it, the greatest factors first; None where they are no digits."""
    factors = {name: form.coefficient(name) for name in mine}
    if not all(factors.values()) or any(isinstance(atom, FloorDiv) and set(atom.numerator.names()) & set(mine) for atom, _ in form.terms):
        return None
    if all(factor < 0 for factor in factors.values()):
        form, factors = -form, {name: -factor for name, factor in factors.items()}
    if any(factor < 0 for factor in factors.values()):
        return None
    rest = -Affine([(atom, factor) for atom, factor in form.terms if atom not in factors], form.constant)
    order = sorted(mine, key=lambda name: -factors[name])
    least = Affine.of(0)
    for name in order[1:]:
        loop = unknown.get(name)
        if loop is None or not isinstance(loop.statement.start, Const):
            return None
        least = least + factors[name] * integer(loop.statement.start)
    found: dict[str, Affine] = {}
    for at, name in enumerate(order):
        found[name] = (rest - least) // factors[name]
        rest = rest - found[name] * factors[name]
        if at + 1 < len(order):
            least = least - factors[order[at + 1]] * integer(unknown[order[at + 1]].statement.start)
    return found
