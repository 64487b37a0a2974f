"""Exponentials of logarithms of sums are quotients of what was summed, which is computed once.

    l[i] = m[i] + log(sum(exp(x[i, k] - m[i]) for k));   p[i, j] = exp(x[i, j] - l[i])
    -->   e[i, j] = exp(x[i, j] - m[i]);   s[i] = sum(e[i, k] for k);   p[i, j] = e[i, j] / s[i]

A softmax that was written by its logsumexp, or as an exponential of a log_softmax. Only where the program computes the exponential without
the logarithm in any case, and where the logarithm is of a sum of exponentials, which is not negative. Rounding is less: what is divided
was rounded as a difference of x and m, the other as one of x and l.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensorexpr.ir import Access, Apply, Axis, Const, Define, Definition, Expr, Index, Program, Reduce, apply, const
from tensorexpr.records import record, replace
from tensorexpr.simplify import remove_dead_definitions
from tensorexpr.simplify.passes.sharing import Made, form_of_expression, with_reads_of
from tensorexpr.traversal import bottom_up, children, free_names, fresh_name, replaced, substitute, walk


@record
class Quotient:
    """An exponential with less in its exponent, and what it is divided by."""

    exponential: Expr
    divisors: tuple[Expr, ...]


def without_logarithms(program: Program) -> Program:
    """The program with quotients for exponentials of which a logarithm is subtracted, where the exponential without it is computed, too.

    Requires: a simplified program. Ensures: every value is kept up to rounding.
    """
    operations = {n.op.name for d in program.definitions if isinstance(d, Define) for n in walk(d.value) if isinstance(n, Apply)}
    if not {"exp", "log"} <= operations:
        return program
    taken = {*program.types, *program.sizes, *(n for d in program.definitions for n, _ in d.results)}
    given = [one for d in program.definitions for one in _apart(d, taken)]
    defined = {d.name: d for d in given if isinstance(d, Define)}
    forms: dict[Expr, int] = {}
    for at, d in enumerate(given):
        for e in walk(d.value) if isinstance(d, Define) else ():
            if _is(e, "exp"):
                forms.setdefault(form_of_expression(e)[0], at)
    made: Made = {}
    places: dict[int, list[Define]] = {}
    definitions: list[Definition] = []
    for d in given:
        if isinstance(d, Define):
            found: dict[Expr, Expr] = {}
            for e, axes in _computed(d.value, {a.index: a for a in d.axes}):
                quotient = _quotient(e, defined) if _is(e, "exp") and e not in found else None
                if quotient is None or not _fits(quotient.exponential, axes, forms, places, made, taken):
                    continue
                value = quotient.exponential
                for divisor in quotient.divisors:
                    value = apply("div", value, divisor)
                found[e] = value
            d = replace(d, value=replaced(d.value, found)) if found else d
        definitions.append(d)
    if not made:
        return program
    result: list[Definition] = []
    for at, d in enumerate(definitions):
        result += places.get(at, ())
        if isinstance(d, Define):
            value = with_reads_of(d.value, {a.index: a for a in d.axes}, made)
            d = d if value is d.value else replace(d, value=value)
        result.append(d)
    return remove_dead_definitions(replace(program, definitions=tuple(result)))


def _apart(d: Definition, taken: set[str]) -> Iterator[Definition]:
    """A definition after those of the sums of exponentials of which it takes logarithms."""
    found: dict[Expr, Expr] = {}
    ranges = {a.index: a for a in d.axes} if isinstance(d, Define) else {}
    for e in _certain(d.value) if isinstance(d, Define) else ():
        if _is(e, "log") and isinstance(e, Apply) and isinstance(e.args[0], Reduce) and _is_sum(e.args[0], {}):
            names = free_names(e.args[0])
            if e not in found and all(name in ranges and ranges[name].start == const(0) for name in names):
                one = Define(fresh_name("total", taken), tuple(ranges[name] for name in names), e.args[0])
                yield one
                found[e] = apply("log", Access(one.name, tuple(map(Index, names)), e.dtype))
    yield replace(d, value=bottom_up(d.value, lambda e: found.get(e, e))) if isinstance(d, Define) and found else d


def _fits(
    e: Expr, axes: Mapping[str, Axis], forms: Mapping[Expr, int], places: dict[int, list[Define]], made: Made, taken: set[str]
) -> bool:
    """Whether an exponential is computed somewhere else, too; then a definition of it stands in front of the first place."""
    form, names = form_of_expression(e)
    if form not in forms or any(name not in axes or axes[name].start != const(0) for name in names):
        return False
    if form not in made:
        one = Define(fresh_name("exponential", taken), tuple(axes[name] for name in names), e)
        made[form] = one, names
        places.setdefault(forms[form], []).append(one)
    return True


def _quotient(e: Expr, defined: Mapping[str, Define]) -> Quotient | None:
    """An exponential without the logarithms that are subtracted in it."""
    assert isinstance(e, Apply)
    terms = list(_terms(e.args[0], 1, defined))
    logs = [(sign, t) for sign, t in terms if sign < 0 and isinstance(t, Apply) and t.op.name == "log" and _is_sum(t.args[0], defined)]
    rest = [t for t in terms if t not in logs]
    if not logs or not rest or rest[0][0] < 0:
        return None
    exponent = rest[0][1]
    for sign, term in rest[1:]:
        exponent = apply("add" if sign > 0 else "sub", exponent, term)
    return Quotient(apply("exp", exponent), tuple(t.args[0] for _, t in logs if isinstance(t, Apply)))


def _terms(e: Expr, sign: int, defined: Mapping[str, Define]) -> Iterator[tuple[int, Expr]]:
    """What a sum adds and subtracts, also inside of the sums with logarithms that it reads."""
    if isinstance(e, Apply) and e.op.name in ("add", "sub"):
        yield from _terms(e.args[0], sign, defined)
        yield from _terms(e.args[1], sign if e.op.name == "add" else -sign, defined)
        return
    if isinstance(e, Access) and e.tensor in defined and all(isinstance(i, Index | Const) for i in e.indices):
        source = defined[e.tensor]
        own = list(_terms(source.value, sign, {}))
        if any(_is(t, "log") for _, t in own) and not any(isinstance(n, Reduce) for n in walk(source.value)):
            yield from ((s, substitute(t, {a.index: i for a, i in zip(source.axes, e.indices, strict=True)})) for s, t in own)
            return
    yield sign, e


def _certain(e: Expr) -> Iterator[Expr]:
    """What is computed for each element of a definition, and not under a condition or in a reduction."""
    yield e
    if not isinstance(e, Reduce | Access) and not _is(e, "where"):
        for child in children(e):
            yield from _certain(child)


def _computed(e: Expr, axes: Mapping[str, Axis]) -> Iterator[tuple[Expr, Mapping[str, Axis]]]:
    """As `_certain`, and what reductions over whole boxes compute; each with the axes around it."""
    for part in _certain(e):
        yield part, axes
        if isinstance(part, Reduce) and part.where is None and all(a.start == const(0) and not free_names(a.stop) for a in part.axes):
            for value in part.values:
                yield from _computed(value, {**axes, **{a.index: a for a in part.axes}})


def _is_sum(e: Expr, defined: Mapping[str, Define]) -> bool:
    """Whether a value is a sum of exponentials."""
    if isinstance(e, Access):
        return e.tensor in defined and _is_sum(defined[e.tensor].value, defined)
    return isinstance(e, Reduce) and e.combiner.name == "sum" and e.combiner.is_builtin and all(_is(v, "exp") for v in e.values)


def _is(e: Expr, name: str) -> bool:
    return isinstance(e, Apply) and e.op.name == name
