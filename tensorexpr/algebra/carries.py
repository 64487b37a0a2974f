"""Combiners whose components are sums, products and extremes, some of them weighted by another one: reductions of their own.

    (m, s) = reduce((m, s), (n, t) -> (p, s * exp(m - p) + t * exp(n - p)) with p = maximum(m, n), (-1e30, 0), (x[j], y[j]) for j)
    -->   M = maximum(max(x[j] for j), -1e30);   S = sum(y[j] * exp(x[j] - M) for j)

A component is *own* where it is combined with itself alone, by an operation of a built-in reduction. It is *carried* along an own one, a
maximum, where both sides are weighted with the exponential of what the maximum rises by. Such weights multiply along any order of
combining, exp(a - b) * exp(b - c) = exp(a - c), so each term has met its whole weight, exp(x[j] - M), in the end. What is written in one
pass and in two then is one program, which is differentiated, tiled and fused as such. Rounding is that of another order, rather less
of it: a term is scaled once. Where a maximum begins at no number and meets no number first, exp(-inf + inf) is NaN in some orders of
combining; such a NaN may go.
"""

from __future__ import annotations

from math import inf

from tensorexpr.algebra.monoids import OPERATIONS
from tensorexpr.ir import Apply, Combiner, Const, Expr, Program, Reduce, apply
from tensorexpr.records import replace
from tensorexpr.simplify.passes.definitions import with_definitions
from tensorexpr.simplify.rules.reduce import identity_value
from tensorexpr.traversal import bottom_up, bound_names, free_names, map_expressions, rename_bound

BUILT_IN = {operation: name for name, operation in OPERATIONS.items()}


def without_carries(program: Program) -> Program:
    """The program with built-in reductions for combiners whose components are own or carried; the same object where there are none.

    Requires: nothing. Ensures: integers and maxima keep every value, sums and products of floats up to rounding.
    """
    return with_definitions(program, (map_expressions(d, lambda e: bottom_up(e, _parted)) for d in program.definitions))


def _parted(node: Expr) -> Expr:
    """A component of a combiner's result by reductions of its own."""
    if not isinstance(node, Reduce) or node.combiner.is_builtin or any(value.dtype.bits < 32 for value in node.values):
        return node
    components = range(len(node.values))
    own = {k: name for k in components if (name := _own(node.combiner, k)) is not None}
    along = {k: m for k in components if k not in own and (m := _along(node, k, own)) is not None}
    if len(own) + len(along) < len(node.values):
        return node
    at = node.component
    if at in own:
        return _whole(node, at, own[at])
    greatest = _whole(node, along[at], "max")
    taken = {*bound_names(node), *free_names(node)}
    weight = apply("exp", apply("sub", node.values[along[at]], rename_bound(greatest, taken)))
    return replace(node, combiner=Combiner("sum"), values=(apply("mul", node.values[at], weight),), component=0)


def _whole(node: Reduce, at: int, name: str) -> Expr:
    """An own component: a built-in reduction, and what a reduction over nothing gives."""
    value, start = node.values[at], node.combiner.identity[at]
    found = replace(node, combiner=Combiner(name), values=(value,), component=0)
    return found if start == identity_value(name, value.dtype) else apply(OPERATIONS[name], found, start)


def _own(combiner: Combiner, at: int) -> str | None:
    """The built-in reduction by which a component is combined with itself alone."""
    result, sides = combiner.results[at], {combiner.left[at], combiner.right[at]}
    if isinstance(result, Apply) and len(result.args) == 2 and set(result.args) == sides:
        return BUILT_IN.get(result.op.name)
    return None


def _along(node: Reduce, at: int, own: dict[int, str]) -> int | None:
    """The maximum along which a component is carried from nothing."""
    combiner, result = node.combiner, node.combiner.results[at]
    if not isinstance(result, Apply) or result.op.name != "add" or combiner.identity[at] != Const(0, result.dtype):
        return None
    for m, name in own.items():
        if name == "max" and node.values[m].dtype is result.dtype and _is_below(combiner.identity[m]):
            sides = (combiner.left, combiner.right)
            wanted = [{side[at], apply("exp", apply("sub", side[m], combiner.results[m]))} for side in sides]
            found = [set(part.args) if isinstance(part, Apply) and part.op.name == "mul" else set() for part in result.args]
            if all(one in found for one in wanted):
                return m
    return None


def _is_below(start: Expr) -> bool:
    """Whether a maximum may begin there: nothing, weighted with how far that is below another number, is nothing."""
    return isinstance(start, Const) and float(start.value) < inf
