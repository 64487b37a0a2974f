"""The scalar functions under NumPy's names: what `te.exp`, `te.where`, `te.cast` and the others build.

Each takes scalars of the language and Python or NumPy numbers, promotes as NumPy does and gives a scalar. Functions of
real numbers take integers to the floating type that NumPy takes for them (float16 for 8 bits, float32 for 16, else
float64). Rounding functions leave integers as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tensorexpr import dtypes, ops
from tensorexpr.errors import DefinitionError, user_location
from tensorexpr.hints import checked
from tensorexpr.ir import FALSE, TRUE
from tensorexpr.language.core.scalar import (
    Scalar,
    binary,
    binary_float,
    build,
    common_dtype,
    converted,
    is_strong,
    operand,
    rounded,
    strong,
    unary,
    unary_float,
)
from tensorexpr.language.core.tensor import as_dtype

__all__ = [
    "abs", "acos", "arccos", "arcsin", "arctan", "arctan2", "asin", "atan", "atan2", "cast", "ceil", "clip", "cos", "cosh", "erf", "exp",
    "exp2", "expm1", "floor", "isfinite", "isinf", "isnan", "log", "log1p", "log2", "logical_and", "logical_not", "logical_or",
    "logical_xor", "maximum", "minimum", "negative", "power", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "square", "tan",
    "tanh", "trunc", "where",
]  # fmt: skip
"""What `tensorexpr` hands on: a function that is added here is public by its name in this list."""

F = TypeVar("F", bound=Callable[..., Scalar])


def made_of(formula: str, slopes: Sequence[str | None], *, kink: str | None = None, cost: int = 8) -> Callable[[F], F]:
    """Decorates the function of an operation that is made of others, whose name and operands, a and b, are those of the `formula`.

    It adds the row of the operation to `ops.OPS`: all emitters write the formula, which is computed in one precision and rounded once.
    `slopes`, `kink` and `cost` are as in every row.
    """

    def decorated(function: F) -> F:
        name, arity = function.__name__, len(slopes)
        ops.OPS[name] = ops.made_of(name, arity, formula, slopes=tuple(slopes), kink=kink, cost=cost)
        return function

    return decorated


@checked()
def exp(x: Any) -> Scalar:
    """e to the power x.

    >>> te.evaluate(te.compute((3,), lambda i: te.exp(i))).round(4)
    array([1.    , 2.7183, 7.3891])
    """
    return unary_float("exp", x)


@checked()
def exp2(x: Any) -> Scalar:
    """2 to the power x.

    >>> te.evaluate(te.compute((3,), lambda i: te.exp2(i))).round(4)
    array([1., 2., 4.])
    """
    return unary_float("exp2", x)


@checked()
def expm1(x: Any) -> Scalar:
    """exp(x) - 1, accurate near 0.

    >>> te.evaluate(te.compute((3,), lambda i: te.expm1(i))).round(4)
    array([0.    , 1.7183, 6.3891])
    """
    return unary_float("expm1", x)


@checked()
def log(x: Any) -> Scalar:
    """The natural logarithm: NaN below 0, minus infinity at 0.

    >>> te.evaluate(te.compute((3,), lambda i: te.log(i + 1))).round(4)
    array([0.    , 0.6931, 1.0986])
    """
    return unary_float("log", x)


@checked()
def log2(x: Any) -> Scalar:
    """The logarithm to base 2.

    >>> te.evaluate(te.compute((3,), lambda i: te.log2(i + 1))).round(4)
    array([0.   , 1.   , 1.585])
    """
    return unary_float("log2", x)


@checked()
def log1p(x: Any) -> Scalar:
    """log(1 + x), accurate near 0.

    >>> te.evaluate(te.compute((3,), lambda i: te.log1p(i))).round(4)
    array([0.    , 0.6931, 1.0986])
    """
    return unary_float("log1p", x)


@checked()
def sqrt(x: Any) -> Scalar:
    """The square root: NaN below 0.

    >>> te.evaluate(te.compute((3,), lambda i: te.sqrt(i))).round(4)
    array([0.    , 1.    , 1.4142])
    """
    return unary_float("sqrt", x)


@checked()
def rsqrt(x: Any) -> Scalar:
    """1 / sqrt(x).

    >>> te.evaluate(te.compute((3,), lambda i: te.rsqrt(i + 1))).round(4)
    array([1.    , 0.7071, 0.5774])
    """
    return unary_float("rsqrt", x)


@checked()
def sin(x: Any) -> Scalar:
    """Sine, of radians.

    >>> te.evaluate(te.compute((3,), lambda i: te.sin(i))).round(4)
    array([0.    , 0.8415, 0.9093])
    """
    return unary_float("sin", x)


@checked()
def cos(x: Any) -> Scalar:
    """Cosine, of radians.

    >>> te.evaluate(te.compute((3,), lambda i: te.cos(i))).round(4)
    array([ 1.    ,  0.5403, -0.4161])
    """
    return unary_float("cos", x)


@checked()
def tan(x: Any) -> Scalar:
    """Tangent, of radians.

    >>> te.evaluate(te.compute((3,), lambda i: te.tan(i))).round(4)
    array([ 0.    ,  1.5574, -2.185 ])
    """
    return unary_float("tan", x)


@checked()
def sinh(x: Any) -> Scalar:
    """Hyperbolic sine.

    >>> te.evaluate(te.compute((3,), lambda i: te.sinh(i))).round(4)
    array([0.    , 1.1752, 3.6269])
    """
    return unary_float("sinh", x)


@checked()
def cosh(x: Any) -> Scalar:
    """Hyperbolic cosine.

    >>> te.evaluate(te.compute((3,), lambda i: te.cosh(i))).round(4)
    array([1.    , 1.5431, 3.7622])
    """
    return unary_float("cosh", x)


@checked()
def tanh(x: Any) -> Scalar:
    """Hyperbolic tangent.

    >>> te.evaluate(te.compute((3,), lambda i: te.tanh(i))).round(4)
    array([0.    , 0.7616, 0.964 ])
    """
    return unary_float("tanh", x)


@checked()
def arcsin(x: Any) -> Scalar:
    """Inverse sine, in radians.

    >>> te.evaluate(te.compute((3,), lambda i: te.arcsin(i - 1))).round(4)
    array([-1.5708,  0.    ,  1.5708])
    """
    return unary_float("asin", x)


@checked()
def arccos(x: Any) -> Scalar:
    """Inverse cosine, in radians.

    >>> te.evaluate(te.compute((3,), lambda i: te.arccos(i - 1))).round(4)
    array([3.1416, 1.5708, 0.    ])
    """
    return unary_float("acos", x)


@checked()
def arctan(x: Any) -> Scalar:
    """Inverse tangent, in radians.

    >>> te.evaluate(te.compute((3,), lambda i: te.arctan(i))).round(4)
    array([0.    , 0.7854, 1.1071])
    """
    return unary_float("atan", x)


@checked()
def arctan2(y: Any, x: Any) -> Scalar:
    """The angle of the point (x, y), in radians.

    >>> te.evaluate(te.compute((3,), lambda i: te.arctan2(i, 1))).round(4)
    array([0.    , 0.7854, 1.1071])
    """
    return binary_float("atan2", y, x)


@checked()
def sigmoid(x: Any) -> Scalar:
    """1 / (1 + exp(-x)), which cannot overflow.

    >>> te.evaluate(te.compute((3,), lambda i: te.sigmoid(i))).round(4)
    array([0.5   , 0.7311, 0.8808])
    """
    return unary_float("sigmoid", x)


@checked()
def erf(x: Any) -> Scalar:
    """The error function.

    >>> te.evaluate(te.compute((3,), lambda i: te.erf(i))).round(4)
    array([0.    , 0.8427, 0.9953])
    """
    return unary_float("erf", x)


@checked()
def abs(x: Any) -> Scalar:
    """The absolute value; the dtype stays.

    >>> te.evaluate(te.compute((3,), lambda i: te.abs(i - 1)))
    array([1, 0, 1])
    """
    return strong(x).__abs__()


@checked()
def sign(x: Any) -> Scalar:
    """-1, 0 or 1; the dtype stays, NaN stays NaN.

    >>> te.evaluate(te.compute((3,), lambda i: te.sign(i - 1)))
    array([-1,  0,  1])
    """
    return unary("sign", x)


@checked()
def negative(x: Any) -> Scalar:
    """-x; the dtype stays.

    >>> te.evaluate(te.compute((3,), lambda i: te.negative(i - 1)))
    array([ 1,  0, -1])
    """
    return unary("neg", x)


@checked()
def square(x: Any) -> Scalar:
    """x * x; of a bool an int8.

    >>> te.evaluate(te.compute((3,), lambda i: te.square(i))).round(4)
    array([0, 1, 4])
    """
    value = strong(x)
    value = converted(value, dtypes.int8) if value.dtype.is_bool else value
    return binary("mul", value, value)


@checked()
def floor(x: Any) -> Scalar:
    """The next integer value at or below x; the dtype stays.

    >>> te.evaluate(te.compute((3,), lambda i: te.floor(i / 2 - 0.5)))
    array([-1.,  0.,  0.])
    """
    return rounded("floor", x)


@checked()
def ceil(x: Any) -> Scalar:
    """The next integer value at or above x; the dtype stays.

    >>> te.evaluate(te.compute((3,), lambda i: te.ceil(i / 2 - 0.5)))
    array([-0.,  0.,  1.])
    """
    return rounded("ceil", x)


@checked()
def round(x: Any) -> Scalar:
    """The nearest integer value, halves to the even one; the dtype stays.

    >>> te.evaluate(te.compute((3,), lambda i: te.round(i / 2 - 0.5)))
    array([-0.,  0.,  0.])
    """
    return rounded("round", x)


@checked()
def trunc(x: Any) -> Scalar:
    """The integer part; the dtype stays.

    >>> te.evaluate(te.compute((3,), lambda i: te.trunc(i / 2 - 0.5)))
    array([-0.,  0.,  0.])
    """
    return rounded("trunc", x)


@checked()
def minimum(a: Any, b: Any) -> Scalar:
    """The lesser of two values; NaN if one is NaN.

    >>> te.evaluate(te.compute((3,), lambda i: te.minimum(i, 1)))
    array([0, 1, 1])
    """
    return binary("minimum", a, b)


@checked()
def maximum(a: Any, b: Any) -> Scalar:
    """The greater of two values; NaN if one is NaN.

    >>> te.evaluate(te.compute((3,), lambda i: te.maximum(i, 1)))
    array([1, 1, 2])
    """
    return binary("maximum", a, b)


@checked()
def clip(x: Any, low: Any = None, high: Any = None) -> Scalar:
    """x brought into low <= x <= high; None leaves that side open. Where low > high the result is high.

    >>> A = te.placeholder((2, 3), name="A")
    >>> print(te.compute((2, 3), lambda i, j: te.clip(A[i, j], 0.0, 6.0), name="relu6"))
    relu6[i, j]: f32[2, 3] = minimum(maximum(A[i, j], 0.0), 6.0)
    """
    result = strong(x) if low is None else maximum(x, low)
    return result if high is None else minimum(result, high)


@checked()
def power(a: Any, b: Any) -> Scalar:
    """a to the power b. Of an integer with a negative power, known only as it runs, the integer part; a negative literal is refused.

    >>> te.evaluate(te.compute((3,), lambda i: te.power(i, 2)))
    array([0, 1, 4])
    """
    return binary("pow", a, b)


@checked()
def where(condition: Any, a: Any, b: Any) -> Scalar:
    """a where the condition holds, else b. Only the branch taken is evaluated, so the condition guards its accesses.

    `condition` is a bool scalar; a and b promote. A choice of two Python floats is weak as they are: times a float32 it is a float32.
    Raises `DefinitionError` for a condition that is a number.

    >>> A = te.placeholder((2, 3), name="A")
    >>> print(te.compute((2, 3), lambda i, j: te.where(A[i, j] > 0, A[i, j], 0.0), name="relu"))
    relu[i, j]: f32[2, 3] = where(A[i, j] > 0.0, A[i, j], 0.0)
    """
    choice = strong(condition)
    pair = (operand(a), operand(b))
    dtype = common_dtype(pair)
    made = build("where", choice, converted(pair[0], dtype), converted(pair[1], dtype))
    return made if any(map(is_strong, pair)) or not dtype.is_float else Scalar(made.expr, made.sources, weak=True)


@checked()
def cast(x: Any, dtype: Any) -> Scalar:
    """x in another dtype. Floats go to integers toward zero and saturate (NaN gives 0), integers wrap around, != 0 is True.

    >>> A = te.placeholder((2, 3), name="A")
    >>> te.compute((2, 3), lambda i, j: te.cast(A[i, j], "int32"), name="whole")
    whole[i, j]: i32[2, 3] = i32(A[i, j])
    """
    if isinstance(dtype, Scalar):
        message = f"te.cast: expected a dtype behind the scalar, got {dtype}"
        raise DefinitionError(message, location=user_location(), hint=f"te.cast({dtype}, {x!r})")
    return converted(x, as_dtype(dtype))


@checked()
def isnan(x: Any) -> Scalar:
    """Whether x is NaN; an integer never is.

    >>> te.evaluate(te.compute((3,), lambda i: te.isnan(te.sqrt(i - 1))))
    array([ True, False, False])
    """
    return _classify("isnan", x, False)


@checked()
def isinf(x: Any) -> Scalar:
    """Whether x is plus or minus infinity; an integer never is.

    >>> te.evaluate(te.compute((3,), lambda i: te.isinf(te.log(i))))
    array([ True, False, False])
    """
    return _classify("isinf", x, False)


@checked()
def isfinite(x: Any) -> Scalar:
    """Whether x is neither infinite nor NaN; an integer always is.

    >>> te.evaluate(te.compute((3,), lambda i: te.isfinite(te.log(i))))
    array([False,  True,  True])
    """
    return _classify("isfinite", x, True)


def _classify(name: str, x: Any, of_integers: bool) -> Scalar:
    value = strong(x)
    return build(name, value) if value.dtype.is_float else Scalar(TRUE if of_integers else FALSE)


def as_bool(x: Any) -> Scalar:
    """x != 0, of a bool x itself."""
    return converted(strong(x), dtypes.bool_)


@checked()
def logical_and(a: Any, b: Any) -> Scalar:
    """Whether both are true (not 0). Both are evaluated.

    >>> te.evaluate(te.compute((3,), lambda i: te.logical_and(i > 0, i < 2)))
    array([False,  True, False])
    """
    return build("and", as_bool(a), as_bool(b))


@checked()
def logical_or(a: Any, b: Any) -> Scalar:
    """Whether at least one is true (not 0). Both are evaluated.

    >>> te.evaluate(te.compute((3,), lambda i: te.logical_or(i > 0, i < 2)))
    array([ True,  True,  True])
    """
    return build("or", as_bool(a), as_bool(b))


@checked()
def logical_xor(a: Any, b: Any) -> Scalar:
    """Whether exactly one is true (not 0).

    >>> te.evaluate(te.compute((3,), lambda i: te.logical_xor(i > 0, i < 2)))
    array([ True, False,  True])
    """
    return build("xor", as_bool(a), as_bool(b))


@checked()
def logical_not(x: Any) -> Scalar:
    """Whether x is false (0).

    >>> te.evaluate(te.compute((3,), lambda i: te.logical_not(i > 0)))
    array([ True, False, False])
    """
    return build("invert", as_bool(x))


def condition(value: Any, what: str) -> Scalar:
    """A bool scalar. Raises `DefinitionError` for a number, which `where` could silently misread."""
    found = strong(value)
    if not found.dtype.is_bool:
        raise DefinitionError(
            f"{what}: expected a bool condition, got {found.dtype.name}",
            term=repr(found),
            location=user_location(),
            hint="compare with something: x != 0",
        )
    return found


asin, acos, atan, atan2 = arcsin, arccos, arctan, arctan2
