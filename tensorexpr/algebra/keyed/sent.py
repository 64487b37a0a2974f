"""Values that take functions are computed in lanes before they are sent one by one, and so are keys.

    t = scatter({key[i]: exp(x[i] - m[key[i]])})   -->   v[i] = exp(x[i] - m[key[i]]);  t = scatter({key[i]: v[i]})

Points whose keys may be equal are sent one after the other, each with its function; a definition has lanes. What computes the same later
on reads it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr.algebra.keyed.keys import is_plain
from tensorexpr.ir import Access, Cast, Const, Define, Definition, Expr, Index, Program, Scatter, apply
from tensorexpr.records import replace
from tensorexpr.simplify.passes.amounts import cost
from tensorexpr.simplify.passes.sharing import Made, form_of_expression, with_reads_of
from tensorexpr.traversal import fresh_name, walk

FUNCTION = 12
"""What a function costs at least, in additions (`Op.cost`): with sixteen lanes less than storing and loading what it gives."""
KEY = 1
"""The same of a number that floats are made: what is out of range, and NaN, take tests of their own, one for all lanes."""


def with_sent_values(program: Program) -> Program:
    """The program with definitions for costly values that scatters send point by point.

    Requires: a simplified program. Ensures: every value is kept, and each is computed at the same points or at some of them.
    """
    taken = {*program.types, *program.sizes, *(n for d in program.definitions for n, _ in d.results)}
    made: Made = {}
    definitions: list[Definition] = []
    for d in program.definitions:
        if isinstance(d, Scatter) and _goes_one_by_one(d):
            value = d.value if d.where is None else apply("where", d.where, d.value, Const(0, d.value.dtype))
            for e, stem in [*((e, "key") for e in _costly_numbers(d)), *([(value, "sent")] if cost(d.value) >= FUNCTION else [])]:
                form, names = form_of_expression(e)
                if form not in made and set(names) == {a.index for a in d.axes}:
                    made[form] = Define(fresh_name(f"{d.name}_{stem}", taken), d.axes, e, d.location), names
                    definitions.append(made[form][0])
            axes = {a.index: a for a in d.axes}
            if made:
                d = replace(d, indices=tuple(with_reads_of(i, axes, made) for i in d.indices))
            if d.where is not None and form_of_expression(value)[0] in made:
                d = replace(d, value=with_reads_of(value, axes, made))
        if made and isinstance(d, Define | Scatter):
            value = with_reads_of(d.value, {a.index: a for a in d.axes}, made)
            d = d if value is d.value else replace(d, value=value)
        definitions.append(d)
    return program if not made else replace(program, definitions=tuple(definitions))


def sent_apart(program: Program) -> frozenset[str]:
    """The definitions of costly values that scatters send point by point: they are computed in lanes, not where they are sent."""
    made = (d for d in program.definitions if isinstance(d, Define))
    costly = {d.name for d in made if cost(d.value) >= (KEY if isinstance(d.value, Cast) and d.value.dtype.is_integer else FUNCTION)}
    sent = (
        e for d in program.definitions if isinstance(d, Scatter) and _goes_one_by_one(d) for i in (d.value, *d.indices) for e in walk(i)
    )
    return frozenset(e.tensor for e in sent if isinstance(e, Access) and e.tensor in costly)


def _costly_numbers(d: Scatter) -> Iterator[Expr]:
    """The whole numbers in the keys of a scatter that floats are computed for; what holds them in their range stays with the key."""
    for e in (e for i in d.indices for e in walk(i)):
        if isinstance(e, Cast) and e.dtype.is_integer and e.arg.dtype.is_float and cost(e) >= KEY:
            yield e


def _goes_one_by_one(d: Scatter) -> bool:
    """Whether a scatter, over points of a box, sends none of them by rows."""
    return bool(d.axes) and all(map(is_plain, d.axes)) and Index(d.axes[-1].index) not in d.indices
