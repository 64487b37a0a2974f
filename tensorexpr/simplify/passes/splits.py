"""Axes of reductions that are several in one are several.

    max(x[2 * y + t // 2, 2 * z + t % 2] for t in range(4))   -->   max(x[2 * y + t_o, 2 * z + t_i] for t_o in range(2) for t_i in range(2))

A window or a row of several places is written with one index that is taken apart where something is read. Points come in the same order.
An axis is split where that leaves fewer divisions; what reads it whole then reads at rows and places in them.
"""

from __future__ import annotations

from tensorexpr.ir import Access, Apply, Axis, Const, Define, Definition, Expr, Index, Program, Reduce, apply, const
from tensorexpr.records import replace
from tensorexpr.simplify.expressions import simplify_expr
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.traversal import bound_names, children, free_names, fresh_name, map_children, substitute, walk


def split_reductions(program: Program, wholly: bool = False) -> Program:
    """The program with axes of their own for rows and places in them, where reductions take an index apart; `wholly` where all reads do.

    Requires: nothing. Ensures: every value is kept bit for bit.
    """
    return with_definitions(program, (_split(d, wholly) for d in program.definitions))


def _split(definition: Definition, wholly: bool) -> Definition:
    if not isinstance(definition, Define) or not any(isinstance(n, Reduce) and _rows(n) for n in walk(definition.value)):
        return definition
    taken = {*free_names(definition.value), *bound_names(definition.value), *(a.index for a in definition.axes)}
    value = _visit(definition.value, definition.axes, taken, wholly)
    return definition if value is definition.value else replace(definition, value=value)


def _visit(node: Expr, around: tuple[Axis, ...], taken: set[str], wholly: bool) -> Expr:
    if isinstance(node, Access) or not children(node):
        return node
    inner = (*around, *node.axes) if isinstance(node, Reduce) else around
    node = map_children(node, lambda child: _visit(child, inner, taken, wholly))
    if isinstance(node, Reduce):
        for name, length in _rows(node):
            if wholly and any(isinstance(n, Access) and Index(name) in n.indices for v in node.values for n in walk(v)):
                continue
            found = _in_two(node, name, length, around, taken)
            if _divisions(found) < _divisions(node):
                return found
    return node


def _rows(node: Reduce) -> list[tuple[str, int]]:
    """Axes of a reduction that are divided, each with the length of its rows."""
    extents = {a.index: int(a.stop.value) for a in node.axes if a.start == const(0) and isinstance(a.stop, Const)}
    found: dict[tuple[str, int], None] = {}
    for e in (*node.values, *(() if node.where is None else (node.where,))):
        for n in walk(e):
            if isinstance(n, Apply) and n.op.name in ("floordiv", "mod") and isinstance(n.args[0], Index) and isinstance(n.args[1], Const):
                name, length = n.args[0].name, int(n.args[1].value)
                if 1 < length < extents.get(name, 0) and extents[name] % length == 0:
                    found[name, length] = None
    return list(found)


def _in_two(node: Reduce, name: str, length: int, around: tuple[Axis, ...], taken: set[str]) -> Reduce:
    """A reduction with an axis for the rows of one of its axes, and one for the places in them."""
    rows, places = fresh_name(f"{name}_o", taken), fresh_name(f"{name}_i", taken)
    at = {name: apply("add", apply("mul", Index(rows), const(length)), Index(places))}
    axes: list[Axis] = []
    for axis in node.axes:
        if axis.index == name:
            assert isinstance(axis.stop, Const)
            axes += [Axis(rows, const(0), const(int(axis.stop.value) // length)), Axis(places, const(0), const(length))]
        else:
            axes.append(Axis(axis.index, substitute(axis.start, at), substitute(axis.stop, at)))
    where = None if node.where is None else substitute(node.where, at)
    found = replace(node, axes=tuple(axes), where=where, values=tuple(substitute(v, at) for v in node.values))
    simple = simplify_expr(found, around)
    return simple if isinstance(simple, Reduce) else found


def _divisions(e: Expr) -> int:
    return sum(isinstance(n, Apply) and n.op.name in ("floordiv", "mod") and not n.dtype.is_float for n in walk(e))
