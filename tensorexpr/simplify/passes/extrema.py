"""Extremes of sums are sums of extremes: what depends on other indices stands outside of a maximum or minimum.

    max(x[i] + y[j] for i for j)      -->   max(x[i] for i) + max(y[j] for j)
    z[i] = min(x[i] - y[j] for j)     -->   z[i] = x[i] - max(y[j] for j)

The distributive law of the tropical ring, which holds for rounded sums, too: these grow with each of their terms. An infinity less an
infinity is NaN wherever it stands, so the least and the greatest of the terms are asked for it. The winner is that of the terms, also where
larger terms are no longer told apart once they are added up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tensorexpr.ir import Access, Apply, Axis, Combiner, Const, Define, Definition, Expr, Program, Reduce, apply, conjunction
from tensorexpr.records import replace
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.simplify.rules.common import operands_of
from tensorexpr.simplify.rules.reduce import identity
from tensorexpr.traversal import children, free_names, has_points, map_children, substitute, walk


def take_extrema_apart(program: Program, kept: Collection[str] = ()) -> Program:
    """Takes maxima and minima of sums apart where no index is left that all terms have, also of sums that have a name (but for `kept`).

    Requires: nothing. Ensures: every value is kept, the sign of zeros apart; who reads a tensor of `kept` still reads it.
    """
    sums = {d.name: d for d in program.definitions if isinstance(d, Define) and d.name not in kept and _is_sum(d.value)}
    return with_definitions(program, (_apart(d, sums) for d in program.definitions))


def _is_sum(value: Expr) -> bool:
    """Whether a value is a sum of floats that takes nothing but reads."""
    if isinstance(value, Apply) and value.op.name in ("add", "sub") and value.dtype.is_float:
        return all(isinstance(arg, Access | Const) or _is_sum(arg) for arg in value.args)
    return False


def _apart(definition: Definition, sums: Mapping[str, Define]) -> Definition:
    if not isinstance(definition, Define) or not any(isinstance(node, Reduce) for node in walk(definition.value)):
        return definition
    value = _visited(definition.value, definition.axes, sums)
    return definition if value is definition.value else replace(definition, value=value)


def _visited(node: Expr, around: tuple[Axis, ...], sums: Mapping[str, Define]) -> Expr:
    if isinstance(node, Access) or not children(node):
        return node
    inner = (*around, *node.axes) if isinstance(node, Reduce) else around
    node = map_children(node, lambda child: _visited(child, inner, sums))
    if not isinstance(node, Reduce) or node.combiner.name not in ("max", "min") or not node.combiner.is_builtin:
        return node
    own = {axis.index for axis in node.axes}
    bounds = [bound for axis in node.axes for bound in (axis.start, axis.stop)]
    if node.where is not None or not node.dtype.is_float or any(not own.isdisjoint(free_names(bound)) for bound in bounds):
        return node
    value = node.values[0]
    if isinstance(value, Access) and value.tensor in sums:
        named = sums[value.tensor]
        value = substitute(named.value, {axis.index: at for axis, at in zip(named.axes, value.indices, strict=True)})
    guards: dict[Expr, None] = {}
    least, greatest = _ends(value, node.axes, {axis.index for axis in around}, guards)
    if not guards:
        return node
    found = end = greatest if node.combiner.name == "max" else least
    for guard in reversed(guards):
        found = found if guard == end else apply("where", apply("isnan", guard), guard, found)
    there = [apply("lt", axis.start, axis.stop) for axis in node.axes if not has_points(axis)]
    return apply("where", conjunction(there), found, identity(node)) if there else found


def _ends(value: Expr, axes: tuple[Axis, ...], around: set[str], guards: dict[Expr, None]) -> tuple[Expr, Expr]:
    """The least and the greatest of a value over the axes where it is NaN nowhere; `guards` are NaN where it is though no term is."""
    own = tuple(axis for axis in axes if axis.index in free_names(value))
    if not own:
        return value, value
    name = "sub" if operands_of(value, "sub") is not None else "add"
    sides = operands_of(value, name)
    if sides is not None:
        names, inside = {axis.index for axis in own}, dict[Expr, None]()
        one, other = (set(free_names(side)) for side in sides)
        if names.isdisjoint(one & other):
            (low, high), (least, greatest) = (_ends(side, axes, around, inside) for side in sides)
            both = all(not names.isdisjoint(side) for side in (one, other))
            outer, inner = (one, other) if names.isdisjoint(one) else (other, one)
            inner = inner.union(*(free_names(bound) for axis in own for bound in (axis.start, axis.stop)))
            if both or inside or not outer & around <= inner:  # the reduction is the same for many points around it
                least, greatest = (greatest, least) if name == "sub" else (least, greatest)
                guards |= inside | dict.fromkeys((apply(name, low, greatest), apply(name, high, least)))
                return apply(name, low, least), apply(name, high, greatest)
    least, greatest = (Reduce(Combiner(extreme), (value,), own) for extreme in ("min", "max"))
    return least, greatest
