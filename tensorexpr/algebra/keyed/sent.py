"""Values that take functions are computed in lanes before they are sent one by one, and so are keys, and which points are sent.

    t = scatter({key[i]: exp(x[i] - m[key[i]])})   -->   v[i] = exp(x[i] - m[key[i]]);  t = scatter({key[i]: v[i]})

Points whose keys may be equal are sent one after the other, each with its function; a definition has lanes. It has the axes that its value
depends on: neighbours of a place that goes to four of them (i32(floor(x[i])) + p for p in range(2)) share one number. Short axes are in
front, where lanes lie side by side along a long one. What computes the same later on reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tensorexpr.algebra.keyed.keys import is_plain
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Define, Definition, Expr, Index, Program, Reduce, Scatter, apply
from tensorexpr.records import replace
from tensorexpr.simplify.passes.amounts import cost
from tensorexpr.simplify.passes.sharing import Made, form_of_expression, with_reads_of
from tensorexpr.simplify.passes.terms.found import all_exist
from tensorexpr.traversal import children, fresh_name, put_term, walk

FUNCTION = 12
"""What a function costs at least, in additions (`Op.cost`): with sixteen lanes less than storing and loading what it gives."""
SHORT = 8
"""Elements of an axis that no lanes go along."""
KEY = 1
"""The same of a number that floats are made: what is out of range, and NaN, take tests of their own, one for all lanes."""

ELEMENTS = 4
"""Elements of which a number is made, that lanes load at once."""


def with_sent_values(program: Program) -> Program:
    """The program with definitions for costly values that scatters send point by point.

    Requires: a simplified program. Ensures: every value is kept, and each is computed where it was, at some of these points, or, if all
    that it reads exists there, at points that are not sent as well.
    """
    types = program.types
    taken = {*types, *program.sizes, *(n for d in program.definitions for n, _ in d.results)}
    made: Made = {}
    definitions: list[Definition] = []
    for d in program.definitions:
        if isinstance(d, Scatter) and _goes_one_by_one(d):
            ranges = {a.index: a for a in d.axes}
            for e in _costly_numbers(d.indices):
                anywhere = form_of_expression(e)[0] in made or all_exist(e, d.axes, types)
                term = e if anywhere else _where_sent(d, e)
                definitions += _made(d, "key", term, made, taken)
                found = with_reads_of(term, ranges, made)
                if isinstance(found, Access):
                    d = replace(d, indices=tuple(put_term(i, e, found) for i in d.indices))
            if d.where is not None:
                kept = with_reads_of(d.where, ranges, made)
                if cost(kept) >= FUNCTION:
                    definitions += _made(d, "kept", kept, made, taken)
                d = replace(d, where=with_reads_of(kept, ranges, made))
            if cost(d.value) >= FUNCTION:
                value = _where_sent(d, with_reads_of(d.value, ranges, made))
                definitions += _made(d, "sent", value, made, taken)
                found = with_reads_of(value, ranges, made)
                d = replace(d, value=found) if isinstance(found, Access) else d
        if made and isinstance(d, Define | Scatter):
            value = with_reads_of(d.value, {a.index: a for a in d.axes}, made)
            d = d if value is d.value else replace(d, value=value)
        definitions.append(d)
    return program if not made else replace(program, definitions=tuple(definitions))


def _where_sent(d: Scatter, e: Expr) -> Expr:
    """What is computed for all points, of which some are not sent: what they read may be out of bounds."""
    return e if d.where is None else apply("where", d.where, e, Const(0, e.dtype))


def _made(d: Scatter, stem: str, e: Expr, made: Made, taken: set[str]) -> Iterator[Define]:
    """The definition of what a scatter computes, where there is none yet and its points are known to be points of the scatter."""
    form, names = form_of_expression(e)
    axes = _axes_of(d, names)
    if form not in made and axes:
        made[form] = Define(fresh_name(f"{d.name}_{stem}", taken), axes, e, d.location), names
        yield made[form][0]


def sent_apart(program: Program) -> frozenset[str]:
    """The definitions of costly values that scatters send point by point: they are computed in lanes, not where they are sent."""
    made = (d for d in program.definitions if isinstance(d, Define))
    costly = {d.name for d in made if cost(d.value) >= FUNCTION or (d.value.dtype.is_integer and any(map(_is_costly, walk(d.value))))}
    sent = (
        e for d in program.definitions if isinstance(d, Scatter) and _goes_one_by_one(d) for i in (d.value, *d.indices) for e in walk(i)
    )
    return frozenset(e.tensor for e in sent if isinstance(e, Access) and e.tensor in costly)


def _axes_of(d: Scatter, names: tuple[str, ...]) -> tuple[Axis, ...]:
    """The axes of a definition of what depends on these indices, none where others may be empty, so that it is not computed at all."""
    if not set(names) <= {a.index for a in d.axes} or any(a.index not in names and not _most(a) for a in d.axes):
        return ()
    own = tuple(a for a in d.axes if a.index in names)
    short = tuple(a for a in own if 0 < _most(a) <= SHORT)
    return own if len(short) == len(own) else (*short, *(a for a in own if a not in short))


def _most(axis: Axis) -> int:
    """The elements of an axis of known extent, 0 of others."""
    return int(axis.stop.value) if isinstance(axis.stop, Const) else 0


def _costly_numbers(keys: Iterable[Expr]) -> list[Expr]:
    """The whole numbers in the keys of a scatter that floats, or many elements, are computed for; what holds them in their range stays
    with the key. A choice is one of them where a branch has one: what it reads may be out of bounds elsewhere."""
    found: list[Expr] = []
    pending = list(keys)[::-1]
    while pending:
        e = pending.pop()
        choice = isinstance(e, Apply) and e.op.name == "where"
        if _is_costly(e) or (choice and e.dtype.is_integer and any(map(_is_costly, walk(e)))):
            found.append(e)
        elif not isinstance(e, Reduce):
            pending.extend(reversed(e.args[:1] if isinstance(e, Apply) and choice else children(e)))
    return list(dict.fromkeys(found))


def _is_costly(e: Expr) -> bool:
    """Whether a whole number is computed of floats, or of many elements. What has an axis as a term keeps its rows."""
    if isinstance(e, Cast):
        return e.dtype.is_integer and e.arg.dtype.is_float and cost(e) >= KEY
    made = isinstance(e, Apply) and e.op.name in ("add", "sub", "mul") and e.dtype.is_integer
    return made and sum(isinstance(n, Access) for n in walk(e)) >= ELEMENTS and not _has_axis(e)


def _has_axis(e: Expr) -> bool:
    """Whether an index stands in an expression outside of what is read, or another expression has axes of its own."""
    return isinstance(e, Index | Reduce) or (not isinstance(e, Access) and any(map(_has_axis, children(e))))


def _goes_one_by_one(d: Scatter) -> bool:
    """Whether a scatter, over points of a box, sends none of them by rows."""
    return bool(d.axes) and all(map(is_plain, d.axes)) and Index(d.axes[-1].index) not in d.indices
