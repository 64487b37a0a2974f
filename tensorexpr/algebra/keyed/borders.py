"""Windows whose borders are repeated: a greatest or least element is one of those that there are.

    y[i] = max(x[minimum(maximum(i + a - 1, 0), n - 1)] for a in range(3))
    -->   y[i] = max(x[i + a - 1] for a in range(3) if i + a - 1 >= 0 and i + a - 1 <= n - 1)

A window in steps of one that has a place inside of the tensor meets the element at a border that it goes over, so what is repeated there
changes nothing. The simplifier makes ranges of the conditions, in which the loop over a row is the same nearly everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr.bounds import implied
from tensorexpr.ir import Apply, Axis, Const, Define, Expr, Index, Program, Reduce, apply, conjunction, const
from tensorexpr.records import replace
from tensorexpr.regions import affine_of
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.traversal import free_names, map_children, replaced, substitute, walk

BOUNDS = {"minimum": "le", "maximum": "ge"}


def without_clamps(program: Program) -> Program:
    """The program with conditions in the place of indices that stop at borders, in maxima, minima, `any` and `all`. Every value is kept."""

    def changed(d: Define) -> Define:
        value = _changed(d.value, d.axes)
        return d if value is d.value else replace(d, value=value)

    return with_definitions(program, (changed(d) if isinstance(d, Define) else d for d in program.definitions))


def _changed(e: Expr, around: tuple[Axis, ...]) -> Expr:
    e = map_children(e, lambda child: _changed(child, (*around, *e.axes) if isinstance(e, Reduce) else around))
    if isinstance(e, Reduce) and e.combiner.is_builtin and e.combiner.name in ("max", "min", "any", "all") and e.where is None:
        for axis in e.axes:
            e = _without(e, axis, around)
    return e


def _without(e: Reduce, axis: Axis, around: tuple[Axis, ...]) -> Reduce:
    """A reduction in which an axis is not clamped."""
    index, (value,) = Index(axis.index), e.values
    others = (*around, *(a for a in e.axes if a is not axis))
    if not isinstance(axis.start, Const) or not isinstance(axis.stop, Const) or axis.stop.value <= axis.start.value:
        return e
    if any(axis.index in (*free_names(a.start), *free_names(a.stop)) for a in e.axes):
        return e
    for clamped, inside, limits in _clamped(value, index):
        if axis.index in free_names(replaced(value, {clamped: const(0)})):
            continue
        ends = [substitute(inside, {axis.index: const(int(at))}) for at in (axis.start.value, axis.stop.value - 1)]
        met = [apply("or", *(apply(op, end, limit) for end in ends)) for op, limit in limits]
        met += [apply("le", *(limit for _, limit in sorted(limits, key=lambda one: one[0])))] if len(limits) == 2 else []
        if all(implied(condition, others) for condition in met):
            where = conjunction([*(() if e.where is None else (e.where,)), *(apply(op, inside, limit) for op, limit in limits)])
            return replace(e, values=(replaced(value, {clamped: inside}),), where=where)
    return e


def _clamped(value: Expr, index: Index) -> Iterator[tuple[Expr, Expr, list[tuple[str, Expr]]]]:
    """Indices that go in steps of one along an axis between limits, the outermost first: each with what it is inside, and its limits."""
    for node in walk(value):
        inside, limits = node, list[tuple[str, Expr]]()
        while isinstance(inside, Apply) and inside.op.name in BOUNDS and inside.dtype.name == "int64":
            sides = [arg for arg in inside.args if index.name in free_names(arg)]
            limit = [arg for arg in inside.args if index.name not in free_names(arg)]
            if len(sides) != 1 or len(limit) != 1:
                break
            limits.append((BOUNDS[inside.op.name], limit[0]))
            inside = sides[0]
        form = affine_of(inside) if limits and len({op for op, _ in limits}) == len(limits) else None
        if form is not None and abs(form.coefficient(index.name)) == 1:
            yield node, inside, limits
