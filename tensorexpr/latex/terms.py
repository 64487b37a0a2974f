"""The parts that formulas are made of: signed terms of sums, factors of products, the last value of a range.

What `tensorexpr.latex` writes is rearranged here as one would write it: a sign goes in front, a minus in a product becomes that
of the product, `stop - 1` is worked out.
"""

from __future__ import annotations

from tensorexpr.ir import Apply, Const, Expr, Reduce, apply, const
from tensorexpr.records import replace


def _is(expr: Expr, *names: str) -> bool:
    return isinstance(expr, Apply) and expr.op.name in names


def terms_of(expr: Expr) -> list[tuple[str, Expr]]:
    """The terms of a sum with their signs, left to right; a sum on the right is one term."""
    found = []
    while isinstance(expr, Apply) and expr.op.name in ("add", "sub"):
        sign = "+" if expr.op.name == "add" else "-"
        found.append(signed(sign, expr.args[1]))
        expr = expr.args[0]
    found.append(signed("+", expr))
    return found[::-1]


def signed(sign: str, term: Expr) -> tuple[str, Expr]:
    """A term with the sign that it has itself taken out (not that of a quotient rounded up)."""
    opposite = {"+": "-", "-": "+"}[sign]
    match term:
        case Const(value) if not term.dtype.is_bool and value < 0:
            return opposite, Const(-value, term.dtype)
        case Apply(op, (inner,)) if op.name == "neg" and not _is(inner, "floordiv"):
            return signed(opposite, inner)
        case Apply(op, (left, right)) if op.name == "mul":
            for factor, other in ((left, right), (right, left)):
                inner_sign, inner = signed(sign, factor)
                if inner is not factor:
                    return inner_sign, other if isinstance(inner, Const) and inner.value == 1 else Apply(op, (inner, other))
        case Apply(op, (above, below)) if op.name == "div":
            if isinstance(below, Const) and below.value < 0:
                return opposite, Apply(op, (above, Const(-below.value, below.dtype)))
            inner_sign, inner = signed(sign, above)
            return inner_sign, term if inner is above else Apply(op, (inner, below))
        case Reduce(combiner, (value,)) if combiner.name == "sum":
            inner_sign, inner = signed(sign, value)
            return inner_sign, term if inner is value else replace(term, values=(inner,))
    return sign, term


def factors_of(expr: Expr) -> list[Expr]:
    """The factors of a product, left to right."""
    return _leaves(expr, "mul")


def flattened(expr: Apply) -> list[Expr]:
    """The operands of minima in a minimum, of maxima in a maximum."""
    return _leaves(expr, expr.op.name)


def _leaves(expr: Expr, name: str) -> list[Expr]:
    found, stack = [], [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, Apply) and node.op.name == name:
            stack.extend(reversed(node.args))
        else:
            found.append(node)
    return found


def negated(expr: Expr) -> Expr:
    """Minus an integer expression, the sign taken as far in as it goes."""
    match expr:
        case Const(value):
            return Const(-value, expr.dtype)
        case Apply(op, (inner,)) if op.name == "neg":
            return inner
        case Apply(op, (left, right)) if op.name == "add":
            return Apply(op, (negated(left), negated(right)))
        case Apply(op, (left, right)) if op.name == "sub":
            return Apply(op, (right, left))
        case Apply(op, (left, right)) if op.name == "mul" and isinstance(right, Const):
            return Apply(op, (left, negated(right)))
    return apply("neg", expr)


def before(stop: Expr) -> Expr:
    """stop - 1, the last value of an index, in the form in which one writes it."""
    match stop:
        case Const(value):
            return const(int(value) - 1)
        case Apply(op, args) if op.name in ("minimum", "maximum"):
            return Apply(op, tuple(map(before, args)))
        case Apply(op, (left, Const(value))) if op.name in ("add", "sub"):
            offset = (int(value) if op.name == "add" else -int(value)) - 1
            return left if offset == 0 else apply("add", left, const(offset))
    return apply("sub", stop, const(1))
