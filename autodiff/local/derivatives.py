"""Derivatives of scalar operations: the slopes of the table in `tensorexpr.ops` as expressions.

A *scaling* of an operand, `scaling(t, args, result)`, is the expression `t * d op(args) / d arg`. `result` is an expression for the value
of the operation itself, so that `exp` costs one multiplication. None stands for a derivative that is zero everywhere.

The power `a ** b` has rules here: derivative b * a**(b-1) by its base, and 0 there where b = 0, whatever the base; by its exponent
a**b * log(a), and 0 at base 0 (NaN for a negative base, where no derivative exists). A constant exponent never meets the logarithm.

Derivatives of 16-bit floats are computed in float32, from the operands as they are, and rounded where they are stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, reduce

from tensorexpr.dtypes import DType, accumulator
from tensorexpr.ir import Apply, Cast, Const, Expr, apply
from tensorexpr.ops import Op, expand

Scaling = Callable[[Expr, tuple[Expr, ...], Expr], Expr]

MOST_IN_A_ROW = 64
"""Terms that are added from left to right."""


def number(value: float, like: Expr) -> Const:
    """A literal of the dtype of `like`."""
    return Const(value, like.dtype)


def is_number(expr: Expr, value: float) -> bool:
    """Whether `expr` is the literal `value` (any dtype; 0 means positive zero)."""
    return isinstance(expr, Const) and expr.value == value and not (value == 0 and math.copysign(1, expr.value) < 0)


def times(a: Expr, b: Expr) -> Expr:
    """a * b, without a factor that is the literal 1 or -1."""
    for one, other in ((a, b), (b, a)):
        if is_number(one, 1):
            return other
        if is_number(one, -1):
            return negative(other)
    return apply("mul", a, b)


def negative(a: Expr) -> Expr:
    """-a, without double negation."""
    if isinstance(a, Const):
        return Const(-a.value, a.dtype)
    if isinstance(a, Apply) and a.op.name == "neg":
        return a.args[0]
    return apply("neg", a)


def plus(a: Expr, b: Expr) -> Expr:
    """a + b; a subtraction where `b` is a negation."""
    if isinstance(b, Apply) and b.op.name == "neg":
        return apply("sub", a, b.args[0])
    return apply("add", a, b)


def added(terms: Sequence[Expr]) -> Expr:
    """The sum from left to right; of very many, as of a value that a thousand terms use, of the sums of both halves: what walks an
    expression does so by recursion."""
    if len(terms) > MOST_IN_A_ROW:
        half = len(terms) // 2
        return plus(added(terms[:half]), added(terms[half:]))
    return reduce(plus, terms)


def cast_to(expr: Expr, dtype: DType) -> Expr:
    """The expression in `dtype`, a floating type; a literal stays one."""
    if isinstance(expr, Const):
        return Const(expr.value, dtype)
    return expr if expr.dtype is dtype else Cast(dtype, expr)


def widened(expr: Expr) -> Expr:
    """The expression in the type that derivatives are computed in: float32 for 16-bit floats, which round once where they are stored."""
    return cast_to(expr, accumulator(expr.dtype))


def widened_operation(node: Apply, result: Expr) -> tuple[tuple[Expr, ...], Expr]:
    """The operands of an operation and its result as a scaling takes them: in float32 where they have 16 bits.

    The operands are those of the forward pass, so ties and kinks are decided alike; the result, which was rounded to 16 bits, is
    computed again from them.
    """
    if accumulator(node.dtype) is node.dtype:
        return node.args, result
    args = tuple(map(widened, node.args))
    return args, Apply(node.op, args)


def _base(t: Expr, args: tuple[Expr, ...], result: Expr) -> Expr:
    base, exponent = args
    if isinstance(exponent, Const):
        value = float(exponent.value)
        if value == 0:
            return number(0, t)
        if value == 1:
            return t
        lowered = base if value == 2 else apply("pow", base, number(value - 1, exponent))
        return times(t, apply("mul", exponent, lowered))
    slope = apply("mul", exponent, apply("pow", base, apply("sub", exponent, number(1, exponent))))
    return apply("where", apply("eq", exponent, number(0, exponent)), number(0, t), times(t, slope))


def _exponent(t: Expr, args: tuple[Expr, ...], result: Expr) -> Expr:
    base = args[0]
    return apply("where", apply("eq", base, number(0, base)), number(0, t), times(t, apply("mul", result, apply("log", base))))


_POWER: tuple[Scaling | None, ...] = (_base, _exponent)


@cache
def scalings(op: Op) -> tuple[Scaling | None, ...]:
    """How a small change of each operand changes the result."""
    return _POWER if op.name == "pow" else tuple(None if text is None else _scaling(text) for text in op.slopes)


def _scaling(text: str) -> Scaling:
    def scaling(t: Expr, args: tuple[Expr, ...], result: Expr) -> Expr:
        values = dict(zip("ab", args)) | {"t": t, "r": result}
        return expand(text, values, lambda value: number(value, t), _applied)

    return scaling


def _applied(name: str, *operands: Expr) -> Expr:
    if name == "mul":
        return times(*operands)
    return negative(*operands) if name == "neg" else apply(name, *operands)
