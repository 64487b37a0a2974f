"""Values that take functions are computed in lanes before they are sent one by one.

    t = scatter({key[i]: exp(x[i] - m[key[i]])})   -->   v[i] = exp(x[i] - m[key[i]]);  t = scatter({key[i]: v[i]})

Points whose keys may be equal are sent one after the other, each with its function; a definition has lanes. What computes the same later
on reads it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorexpr.ir import Access, Axis, Define, Definition, Expr, Index, Program, Reduce, Scatter, const
from tensorexpr.records import replace
from tensorexpr.rewrite import head_of
from tensorexpr.simplify.passes.amounts import cost
from tensorexpr.simplify.passes.sharing import form_of_expression
from tensorexpr.traversal import children, free_names, fresh_name, map_children, tensors_read

FUNCTION = 12
"""What a function costs at least, in additions (`Op.cost`): with sixteen lanes less than storing and loading what it gives."""


def with_sent_values(program: Program) -> Program:
    """The program with definitions for costly values that scatters send point by point.

    Requires: a simplified program. Ensures: every value is kept, and each is computed at the same points or at some of them.
    """
    taken = {*program.types, *program.sizes, *(n for d in program.definitions for n, _ in d.results)}
    made: dict[Expr, tuple[Define, tuple[str, ...]]] = {}
    definitions: list[Definition] = []
    for d in program.definitions:
        if isinstance(d, Scatter) and _goes_one_by_one(d) and cost(d.value) >= FUNCTION:
            form, names = form_of_expression(d.value)
            if form not in made and set(names) == {a.index for a in d.axes}:
                made[form] = Define(fresh_name(f"{d.name}_sent", taken), d.axes, d.value, d.location), names
                definitions.append(made[form][0])
        if made and isinstance(d, Define | Scatter):
            value = _with_reads(d.value, {a.index: a for a in d.axes}, made)
            d = d if value is d.value else replace(d, value=value)
        definitions.append(d)
    return program if not made else replace(program, definitions=tuple(definitions))


def _with_reads(expr: Expr, ranges: Mapping[str, Axis], made: Mapping[Expr, tuple[Define, tuple[str, ...]]]) -> Expr:
    """An expression that reads the values that are made where it computes one of them."""
    if isinstance(expr, Access) or not children(expr):
        return expr
    if any(head_of(expr) == head_of(one.value) for one, _ in made.values()):
        form, free = form_of_expression(expr)
        source, names = made.get(form, (None, ()))
        if source is not None:
            index = dict(zip(names, free, strict=True))
            if all((mine := ranges.get(index[a.index])) is not None and (mine.start, mine.stop) == (a.start, a.stop) for a in source.axes):
                return Access(source.name, tuple(Index(index[a.index]) for a in source.axes), expr.dtype)
    ranges = {**ranges, **{axis.index: axis for axis in expr.axes}} if isinstance(expr, Reduce) else ranges
    return map_children(expr, lambda child: _with_reads(child, ranges, made))


def _goes_one_by_one(d: Scatter) -> bool:
    """Whether a scatter, over all points of a box, sends none of them by rows."""
    return bool(d.axes) and d.where is None and all(map(_is_whole, d.axes)) and Index(d.axes[-1].index) not in d.indices


def _is_whole(axis: Axis) -> bool:
    return axis.start == const(0) and not free_names(axis.stop) and not tensors_read(axis.stop)
