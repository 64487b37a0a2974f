"""Factors out of sums: what does not depend on the axes is multiplied once.

Exact for integers, which form a ring modulo 2**bits. Floats round differently, so they move only where reassociation is
allowed; a minus sign moves where the sign of zeros does not matter, and in derived formulas literals.
"""

from __future__ import annotations

from tensorexpr.ir import Apply, Expr, Reduce, apply
from tensorexpr.records import replace
from tensorexpr.simplify.facts.context import Context
from tensorexpr.simplify.options import Options
from tensorexpr.simplify.rules.floats import is_moderate
from tensorexpr.traversal import free_names


def factored(expr: Reduce, context: Context, options: Options) -> Expr:
    """sum(c * e) -> c * sum(e);  sum(-e) -> -sum(e), and sum(e / c) -> sum(e) / c where reassociation is allowed"""
    if expr.combiner.name != "sum" or not expr.combiner.is_builtin or not isinstance(expr.values[0], Apply):
        return expr
    value = expr.values[0]
    name = value.op.name
    if value.dtype.is_float and options.derived and name in ("mul", "div") and is_moderate(value.args[1]):
        return apply(name, replace(expr, values=value.args[:1]), value.args[1])
    if value.dtype.is_float and not options.reassociate and (options.signed_zeros or name != "neg"):
        return expr
    if name == "neg":
        return apply("neg", replace(expr, values=value.args))
    own = {axis.index for axis in expr.axes}

    def free(part: Expr) -> bool:
        return own.isdisjoint(free_names(part)) and context.harmless(part)

    if name == "mul":
        for factor, rest in (value.args, value.args[::-1]):
            if free(factor):
                return apply("mul", replace(expr, values=(rest,)), factor)
    if name == "div" and free(value.args[1]):
        return apply("div", replace(expr, values=value.args[:1]), value.args[1])
    return expr
