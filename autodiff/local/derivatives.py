"""The derivative table: for each scalar operation and operand, how a small change of the operand changes the result.

A row holds one *scaling* per operand: `scaling(t, args, result)` is the expression `t * d op(args) / d arg`. The same
function serves both modes, since multiplying with a number is its own transpose: reverse mode scales the adjoint of the
result, forward mode the tangent of the operand. `result` is an expression for the value of the operation itself, so that
`exp` costs one multiplication. None stands for a derivative that is zero everywhere.

Conventions (tested): abs and sign have derivative 0 at 0; minimum and maximum give each operand half where both are
equal, nothing to an operand that is not the result; floor, ceil, round, trunc, floor division and comparisons are flat. The power
`a ** b` has derivative b * a**(b-1) by its base, and 0 there where b = 0, whatever the base; by its exponent a**b * log(a), and 0 at base 0
(NaN for a negative base, where no derivative exists). A constant exponent never meets the logarithm.
atan2 has derivatives 0 at (0, 0). sqrt, rsqrt and log follow IEEE at the edge of their domain: sqrt has the derivative infinity
at 0. docs/language.md has all of this as a table.
`where` is no row: the derivative goes to the branch that is taken, which is a guard and not a factor.

Derivatives of 16-bit floats are computed in float32, from the operands as they are, and rounded where they are stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tensorexpr.dtypes import DType, accumulator
from tensorexpr.ir import Apply, Cast, Const, Expr, apply

Scaling = Callable[[Expr, tuple[Expr, ...], Expr], Expr]


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


def _square(a: Expr) -> Expr:
    return apply("mul", a, a)


def _factor(weight: Callable[..., Expr]) -> Scaling:
    """A scaling by a weight that is a function of the operands."""
    return lambda t, args, result: times(t, weight(*args))


def _of_result(weight: Callable[[Expr], Expr]) -> Scaling:
    """A scaling by a weight that is a function of the result."""
    return lambda t, args, result: times(t, weight(result))


def _over(denominator: Callable[..., Expr]) -> Scaling:
    """A scaling by one over a function of the operands."""
    return lambda t, args, result: apply("div", t, denominator(*args))


def _pass(t: Expr, args: tuple[Expr, ...], result: Expr) -> Expr:
    return t


def _flip(t: Expr, args: tuple[Expr, ...], result: Expr) -> Expr:
    return negative(t)


def _wins(comparison: str, operand: int) -> Scaling:
    """The scaling of minimum and maximum: everything to the operand that wins, half in a tie."""

    def scaling(t: Expr, args: tuple[Expr, ...], result: Expr) -> Expr:
        mine, other = args[operand], args[1 - operand]
        half = times(t, number(0.5, t))
        tie = apply("where", apply("eq", mine, other), half, number(0, t))
        return apply("where", apply(comparison, mine, other), t, tie)

    return scaling


def _divisor(t: Expr, args: tuple[Expr, ...], result: Expr) -> Expr:
    """-(t / b) * (a / b): what the dividend gets, times the result; both are there anyway."""
    return negative(times(apply("div", t, args[1]), result))


def _modulo_divisor(t: Expr, args: tuple[Expr, ...], result: Expr) -> Expr:
    return negative(times(t, apply("floordiv", *args)))


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


def _one_plus_square(a: Expr) -> Expr:
    return apply("add", number(1, a), _square(a))


def _one_minus_square(a: Expr) -> Expr:
    return apply("sub", number(1, a), _square(a))


def _hypotenuse_squared(a: Expr, b: Expr) -> Expr:
    return apply("add", _square(a), _square(b))


def _atan2_first(t: Expr, args: tuple[Expr, ...], result: Expr) -> Expr:
    return times(t, _angular(args[1], args))


def _atan2_second(t: Expr, args: tuple[Expr, ...], result: Expr) -> Expr:
    return negative(times(t, _angular(args[0], args)))


def _angular(side: Expr, args: tuple[Expr, ...]) -> Expr:
    """A side over the square of the hypotenuse, 0 where that is 0."""
    squared = _hypotenuse_squared(*args)
    zero = number(0, squared)
    return apply("where", apply("eq", squared, zero), zero, apply("div", side, squared))


def _erf_slope(a: Expr) -> Expr:
    return times(number(2 / math.sqrt(math.pi), a), apply("exp", negative(_square(a))))


FLAT: tuple[Scaling | None, ...] = (None, None)

DERIVATIVES: dict[str, tuple[Scaling | None, ...]] = {
    "add": (_pass, _pass),
    "sub": (_pass, _flip),
    "mul": (_factor(lambda a, b: b), _factor(lambda a, b: a)),
    "div": (_over(lambda a, b: b), _divisor),
    "floordiv": FLAT,
    "mod": (_pass, _modulo_divisor),
    "pow": (_base, _exponent),
    "neg": (_flip,),
    "abs": (_factor(lambda a: apply("sign", a)),),
    "sign": (None,),
    "minimum": (_wins("lt", 0), _wins("lt", 1)),
    "maximum": (_wins("gt", 0), _wins("gt", 1)),
    "floor": (None,),
    "ceil": (None,),
    "round": (None,),
    "trunc": (None,),
    "sqrt": (lambda t, args, result: apply("div", times(t, number(0.5, t)), result),),
    "rsqrt": (_of_result(lambda r: times(number(-0.5, r), apply("mul", r, _square(r)))),),
    "exp": (_of_result(lambda r: r),),
    "exp2": (_of_result(lambda r: times(number(math.log(2), r), r)),),
    "expm1": (_of_result(lambda r: apply("add", r, number(1, r))),),
    "log": (_over(lambda a: a),),
    "log2": (_over(lambda a: times(number(math.log(2), a), a)),),
    "log1p": (_over(lambda a: apply("add", number(1, a), a)),),
    "sin": (_factor(lambda a: apply("cos", a)),),
    "cos": (_factor(lambda a: negative(apply("sin", a))),),
    "tan": (_of_result(_one_plus_square),),
    "sinh": (_factor(lambda a: apply("cosh", a)),),
    "cosh": (_factor(lambda a: apply("sinh", a)),),
    "tanh": (_of_result(_one_minus_square),),
    "asin": (_over(lambda a: apply("sqrt", _one_minus_square(a))),),
    "acos": (lambda t, args, result: negative(apply("div", t, apply("sqrt", _one_minus_square(args[0])))),),
    "atan": (_over(_one_plus_square),),
    "atan2": (_atan2_first, _atan2_second),
    "sigmoid": (_of_result(lambda r: apply("mul", r, apply("sub", number(1, r), r))),),
    "erf": (_factor(_erf_slope),),
    "stop_gradient": (None,),
    "recompute": (_pass,),
    "isnan": (None,),
    "isinf": (None,),
    "isfinite": (None,),
    "eq": FLAT,
    "ne": FLAT,
    "lt": FLAT,
    "le": FLAT,
    "gt": FLAT,
    "ge": FLAT,
}
