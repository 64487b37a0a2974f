"""Index arithmetic in normal form: equal indices become equal, readable expressions.

An expression goes to its quasi-affine form and back. On the way floor divisions are reduced by the ranges of what stands
in them (``(7*i + j)//7`` is ``i`` where ``0 <= j < 7``), also by symbolic divisors (``(i*n + j)//n``). Coming back, positive
terms stand first, outer indices before inner ones, sizes after indices, the literal last; ``e - m*(e//m)`` reads ``e % m``.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import Any

from tensorexpr import dtypes
from tensorexpr.integers import Affine, FloorDiv, ge, lt
from tensorexpr.ir import Apply, Cast, Const, Expr, Index, Size, apply, const
from tensorexpr.regions import signed_sum
from tensorexpr.regions.forms import times
from tensorexpr.simplify.facts.context import Context
from tensorexpr.simplify.facts.overflow import stays_within
from tensorexpr.traversal import free_names

INT64_LIMIT = 1 << 63

Term = tuple[int, Expr, tuple[Any, ...]]
"""A summand as (coefficient, expression, sort key)."""


def normal_index(expr: Expr, context: Context, whole: bool = False) -> Expr:
    """The normal form of an int64 expression that does not overflow; the same object where it has that form already, or where the normal
    form may overflow. With `whole` sums and products may: in a subscript the number modulo 2**64 that is in bounds is the one."""
    form = reduced(context.arithmetic.form(expr), context)
    result = _written(form, context)
    if result is None or result == expr:
        return expr
    changed = _parts(result) ^ _parts(expr) if whole else {result}
    return result if all(stays_within(part, context) for part in changed) else expr


def _parts(expr: Expr) -> set[Expr]:
    """What a sum or product is made of, as far as it is more than an element, an index or a number."""
    if not isinstance(expr, Apply):
        return set()
    if expr.op.name not in ("add", "sub", "mul", "neg"):
        return {expr}
    return {part for arg in expr.args for part in _parts(arg)}


# ------------------------------------------------------------------------------------------------ expressions of forms


def expression(form: Affine, context: Context) -> Expr | None:
    """The expression of a form, None where something in it may not fit int64."""
    result = _written(form, context)
    return None if result is None or not stays_within(result, context) else result


def _written(form: Affine, context: Context) -> Expr | None:
    """The expression of a form, None where a literal does not fit int64."""
    terms, constant = summands(form, context)
    return add_up(terms, constant)


def add_up(terms: list[Term], constant: int) -> Expr | None:
    """The sum of the terms and the constant; terms with a positive coefficient stand first."""
    if abs(constant) >= INT64_LIMIT or any(abs(c) >= INT64_LIMIT for c, _, _ in terms):
        return None
    ordered = sorted(terms, key=lambda t: (t[0] < 0, t[2]))
    positive = [times(e, c) for c, e, _ in ordered if c > 0]
    negative = [times(e, -c) for c, e, _ in ordered if c < 0]
    return signed_sum(positive, negative, constant)


def summands(form: Affine, context: Context) -> tuple[list[Term], int]:
    """The terms of a form as they are to be read, and the constant; remainders are gathered from their two parts."""
    factors = dict(form.terms)
    constant = form.constant
    terms: list[Term] = []
    divisions = sorted((a for a in factors if isinstance(a, FloorDiv)), key=lambda a: -a.denominator)
    # e - e//m*m is e % m, before -e + e//m*m is -(e % m), before 3*e - 5*(e//2) is e % 2 * 3 + e//2.
    for take in (_rising_remainder, _falling_remainder, _rest_of_division):
        for atom in divisions:
            found = take(atom, factors, constant)
            if found is None:
                continue
            dividend, modulus, count, constant = found
            if count < 0 and constant == -count * (modulus - 1):
                dividend, count, constant = Affine.of(modulus - 1) - dividend, -count, 0  # m - 1 - e % m is (m - 1 - e) % m
            if 2 * dividend.constant > modulus:
                dividend = dividend - modulus  # (i - 1) % 12, where (i + 11) % 12 is the same
            inner = _written(dividend, context)
            assert inner is not None  # its numbers are below the modulus
            terms.append((count, apply("mod", inner, const(modulus)), _key(dividend, context, f"%{modulus}")))
    for factor, dividend in _symbolic_remainders(factors, context):
        inside, offset = summands(dividend, context)
        terms += [(factor * count, term, key) for count, term, key in inside]
        constant += factor * offset
    for own in divisions:
        factor = factors[own]
        if factor:
            factors[own] = 0
            key = _atom_key(own, context)
            numerator, constant = _taken_in(own, factor, factors, constant)
            terms.append((factor, _division(numerator, own.denominator, context), key))
    terms += [(factor, _atom(own, context), _atom_key(own, context)) for own, factor in factors.items() if factor]
    return terms, constant


def _taken_in(atom: FloorDiv, factor: int, factors: dict[str | FloorDiv, int], constant: int) -> tuple[Affine, int]:
    """The dividend with what stands beside the division and fits into it, and the constant that is left.

    ``p + (3*p + 4)//5`` reads ``(8*p + 4)//5``, and ``(e + 1)//2 - 1`` reads ``(e - 1)//2``, where the number inside does not grow.
    """
    numerator, divisor = atom.numerator, atom.denominator
    for name in numerator.names():
        beside = factors.get(name, 0)
        if beside and beside % factor == 0 and beside // factor * numerator.coefficient(name) > 0:
            numerator = numerator + Affine({name: beside // factor * divisor})
            factors[name] = 0
    if constant:
        count, left = divmod(constant, factor)
        inner = numerator.constant + count * divisor
        if not left and abs(inner) <= abs(numerator.constant):
            return numerator + count * divisor, 0
    return numerator, constant


def _symbolic_remainders(factors: dict[str | FloorDiv, int], context: Context) -> list[tuple[int, Affine]]:
    """``e % d + e // d * d`` is ``e`` for a symbolic divisor d that is known to be positive: factors and e, taken out of `factors`."""
    found: list[tuple[int, Affine]] = []
    hidden = {name: context.arithmetic.opaque.expression(name) for name in factors if isinstance(name, str)}
    products = {name: list(factors_of(expr)) for name, expr in hidden.items() if isinstance(expr, Apply) and expr.op.name == "mul"}
    for name, expr in hidden.items():
        if not isinstance(expr, Apply) or expr.op.name != "mod" or not factors[name]:
            continue
        dividend, divisor = expr.args
        whole = [apply("floordiv", dividend, divisor), *factors_of(divisor)]
        for other, parts in products.items():
            if (
                factors[other] == factors[name]
                and _without(parts, whole) == []
                and context.implies(ge(context.arithmetic.form(divisor), 1))
            ):
                found.append((factors[name], context.arithmetic.form(dividend)))
                factors[name] = factors[other] = 0
    return found


def _rising_remainder(atom: FloorDiv, factors: dict[str | FloorDiv, int], constant: int) -> tuple[Affine, int, int, int] | None:
    return _remainder(atom, factors, constant, True)


def _falling_remainder(atom: FloorDiv, factors: dict[str | FloorDiv, int], constant: int) -> tuple[Affine, int, int, int] | None:
    return _remainder(atom, factors, constant, False)


def _rest_of_division(atom: FloorDiv, factors: dict[str | FloorDiv, int], constant: int) -> tuple[Affine, int, int, int] | None:
    """As `_remainder`, where the dividend goes whole and less of the quotient is left."""
    dividend, factor = atom.numerator, factors[atom]
    name, value = dividend.terms[0] if dividend.terms else ("", 0)
    count, left = divmod(factors.get(name, 0), value) if value else (0, 1)
    if not factor or left or not count or any(factors.get(own, 0) != count * number for own, number in dividend.terms):
        return None
    if abs(factor + count * atom.denominator) >= abs(factor):
        return None
    for own, _ in dividend.terms:
        factors[own] = 0
    factors[atom] = factor + count * atom.denominator
    return dividend, atom.denominator, count, constant - count * dividend.constant


def _remainder(atom: FloorDiv, factors: dict[str | FloorDiv, int], constant: int, rising: bool) -> tuple[Affine, int, int, int] | None:
    """Takes one ``count * (dividend % modulus)`` out of `factors`: dividend, modulus, count and the constant that is left.

    `rising` asks for a positive count, else it is negative.
    """
    factor = factors[atom]
    if not factor or (factor < 0) != rising:
        return None
    inner = [a.denominator for a in factors if isinstance(a, FloorDiv) and atom.denominator % a.denominator == 0]
    for divisor in dict.fromkeys([1, *sorted(inner)]):
        modulus = atom.denominator // divisor
        if modulus == 1 or factor % modulus:
            continue
        dividend = atom.numerator // divisor  # (e//a)//b = e//(a*b)
        if dividend // modulus != Affine.of(atom):
            continue
        count = -factor // modulus
        needed = [(own, count * value) for own, value in dividend.terms]
        if all(factors.get(own, 0) * value > 0 and abs(factors[own]) >= abs(value) for own, value in needed):
            for own, value in needed:
                factors[own] -= value
            factors[atom] = 0
            return dividend, modulus, count, constant - count * dividend.constant
    return None


def _atom(atom: str | FloorDiv, context: Context) -> Expr:
    if isinstance(atom, FloorDiv):
        return _division(atom.numerator, atom.denominator, context)
    hidden = context.arithmetic.opaque.expression(atom)
    if hidden is not None:  # of a comparison of narrower integers, where it is one of them
        return hidden if hidden.dtype is dtypes.int64 else Cast(dtypes.int64, hidden)
    return Size(atom) if atom in context.arithmetic.sizes else Index(atom)


def _division(numerator: Affine, divisor: int, context: Context) -> Expr:
    inner = _written(numerator, context)
    assert inner is not None  # coefficients inside a floor division are below its divisor, or below those beside it
    return apply("floordiv", inner, const(divisor))


def _atom_key(atom: str | FloorDiv, context: Context) -> tuple[Any, ...]:
    """Orders atoms: indices from the outside in, opaque expressions by their outermost index, sizes; divisions after their dividend."""
    if isinstance(atom, FloorDiv):
        return _key(atom.numerator, context, f"/{atom.denominator}")
    depths = context.depths
    if atom in depths:
        return (0, depths[atom], "", "")
    if atom in context.arithmetic.sizes:
        return (2, context.arithmetic.sizes.index(atom), "", "")
    hidden = context.arithmetic.opaque.expression(atom)
    if hidden is not None:
        inside = [depths[n] for n in free_names(hidden) if n in depths]
        return (0, min(inside), atom, "") if inside else (2, len(context.arithmetic.sizes), atom, "")
    return (1, 0, atom, "")


def _key(form: Affine, context: Context, suffix: str) -> tuple[Any, ...]:
    leading = min((_atom_key(a, context) for a in form.atoms()), default=(3, 0, "", ""))
    return (*leading[:3], f"{leading[3]}{suffix} {form}")


# ---------------------------------------------------------------------------------------------- divisions by their ranges


def reduced(form: Affine, context: Context) -> Affine:
    """The form with floor divisions replaced by what they are in this context."""
    while True:
        for atom, factor in form.terms:
            if not isinstance(atom, FloorDiv):
                continue
            quotient = _quotient(atom, context)
            if quotient is not None:
                form = form - Affine.of(atom) * factor + quotient * factor
                break
            known = _without_known(form, atom, factor, context)
            if known is not None:
                form = known
                break
        else:
            return form


def _without_known(form: Affine, atom: FloorDiv, factor: int, context: Context) -> Affine | None:
    """``s % 2 + 1`` is 1 where ``s % 2 == 0`` is known: the form without a division, by an equality that has it."""
    for one in context.constraints:
        if one.is_equality and set(one.names()) <= set(form.names()):
            own = dict(one.expr.terms).get(atom)
            if own and factor % own == 0:
                found = form - one.expr * (factor // own)
                if len(found.terms) < len(form.terms) and _divisions(found) < _divisions(form):  # else they could go on forever
                    return found
    return None


def _divisions(form: Affine) -> int:
    """The floor divisions of a form, those inside of others included."""
    return sum(1 + _divisions(atom.numerator) for atom in form.atoms() if isinstance(atom, FloorDiv))


def _quotient(atom: FloorDiv, context: Context) -> Affine | None:
    numerator, divisor = reduced(atom.numerator, context), atom.denominator
    if numerator != atom.numerator:
        return numerator // divisor
    block = _block(numerator, divisor, context)
    if block is not None:
        return Affine.of(block)
    for common in _common_divisors(numerator, divisor):
        rows = _rows(numerator, common, context)
        if rows is not None:
            return rows // (divisor // common)
    return None


def quotient(form: Affine, context: Context) -> Affine | None:
    """A form with fewer terms that is negative where `form` is: the rows that it counts, the greatest first, and what is within one."""
    divisors = sorted({abs(factor) for _, factor in form.terms if abs(factor) > 1}, reverse=True)
    return next((rows for divisor in divisors if (rows := _rows(form, divisor, context)) is not None), None)


def _rows(form: Affine, length: int, context: Context) -> Affine | None:
    """``form // length`` where what is no multiple of it is within one row here."""
    whole = Affine([(a, f) for a, f in form.terms if f % length == 0])
    rest = form - whole
    if not whole.terms or not rest.terms:
        return None
    block = _block(rest, length, context)
    return None if block is None else (whole // length) + block


def _block(form: Affine, divisor: int, context: Context) -> int | None:
    """The value of ``form // divisor`` where it is one number here."""
    low, high = context.quick_range(form)
    if low is None or high is None or low // divisor != high // divisor:
        low, high = context.quotient_range(form, divisor)
    else:
        low, high = low // divisor, high // divisor
    return low if low == high else None


def _common_divisors(form: Affine, divisor: int) -> list[int]:
    """The divisors of `divisor`, greatest first, that divide some of the coefficients and not all."""
    found: dict[int, None] = {}
    for _, factor in form.terms:
        for other in [divisor, *found]:
            common = gcd(factor, other)
            if common > 1:
                found[common] = None
    return sorted(found, reverse=True)


# ---------------------------------------------------------------------------------------------------- symbolic products


def factors_of(expr: Expr) -> Iterator[Expr]:
    """The factors of a product, left to right."""
    stack = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, Apply) and node.op.name == "mul":
            stack += reversed(node.args)
        else:
            yield node


def product(factors: list[Expr], context: Context) -> Expr:
    """The product in normal order: indices from the outside in, then other factors, then sizes, the literal last."""
    count = 1
    kept: list[Expr] = []
    for factor in factors:
        if isinstance(factor, Const):
            count *= int(factor.value)
        else:
            kept.append(factor)
    kept.sort(key=lambda e: _key(context.arithmetic.form(e), context, ""))
    if not kept or count == 0:
        return const(count)
    result = kept[0]
    for factor in kept[1:]:
        result = apply("mul", result, factor)
    return times(result, count)


def multiply(left: Expr, right: Expr, context: Context, whole: bool = False) -> Expr:
    """The product of two expressions neither of which is a literal; a sum over indices is multiplied out, one of sizes is not."""
    for one, other in ((left, right), (right, left)):
        terms, constant = summands(context.arithmetic.form(one), context)
        if (len(terms) > 1 or (terms and constant)) and free_names(one):
            total = Affine.of(0)
            for count, term, _ in sorted(terms, key=lambda t: t[2]):
                total = total + context.arithmetic.form(multiply(term, other, context, whole)) * count
            total = total + context.arithmetic.form(other) * constant
            result = _written(total, context) if whole else expression(total, context)
            return apply("mul", left, right) if result is None else result
    return product([*factors_of(left), *factors_of(right)], context)


def divide(dividend: Expr, divisor: Expr, context: Context, whole: bool = False) -> tuple[Expr, Expr] | None:
    """Quotient and remainder by a symbolic divisor, where what is not a multiple of it lies between 0 and the divisor.

    ``(i*n + j)//n = i`` and ``(i*n + j) % n = j`` where ``0 <= j < n``; the divisor may be a product.
    """
    arithmetic = context.arithmetic
    wanted = list(factors_of(divisor))
    terms, constant = summands(arithmetic.form(dividend), context)
    quotient, rest = Affine.of(0), Affine.of(constant)
    for count, term, _ in terms:
        others = _without(list(factors_of(term)), wanted)
        if others is None:
            rest = rest + arithmetic.form(term) * count
        else:
            quotient = quotient + arithmetic.form(product(others, context)) * count
    if not _below(rest, wanted, context):
        return None
    made = _written if whole else expression
    first, second = made(reduced(quotient, context), context), made(reduced(rest, context), context)
    return None if first is None or second is None else (first, second)


def _without(factors: list[Expr], removed: list[Expr]) -> list[Expr] | None:
    left = list(factors)
    for factor in removed:
        if factor not in left:
            return None
        left.remove(factor)
    return left


def _below(form: Affine, factors: list[Expr], context: Context) -> bool:
    """Whether ``0 <= form < product of the factors`` is known here."""
    arithmetic = context.arithmetic
    whole = arithmetic.form(product(list(factors), context))
    if context.implies(ge(form, 0)) and context.implies(lt(form, whole)):
        return True
    if len(factors) == 1:
        return False
    # j*m + k < n*m where 0 <= k < m and 0 <= j < n.
    for at, factor in enumerate(factors):
        terms, constant = summands(form, context)
        high, low = Affine.of(0), Affine.of(constant)
        for count, term, _ in terms:
            left = _without(list(factors_of(term)), [factor])
            if left is None:
                low = low + arithmetic.form(term) * count
            else:
                high = high + arithmetic.form(product(left, context)) * count
        others = factors[:at] + factors[at + 1 :]
        for shift in (0, 1):  # k*m + m - 1 is m*(k + 1) - 1 and m*k + (m - 1)
            inner = low + arithmetic.form(factor) * shift
            if high.terms and _below(inner, [factor], context) and _below(high - shift, others, context):
                return True
    return False
