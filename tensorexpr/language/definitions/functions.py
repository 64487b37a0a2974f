"""The scalar functions under NumPy's names: what `te.exp`, `te.where`, `te.cast` and the others build.

Each takes scalars of the language and Python or NumPy numbers, promotes as NumPy does and gives a scalar. Functions of
real numbers take integers to the floating type that NumPy takes for them (float16 for 8 bits, float32 for 16, else
float64). Rounding functions leave integers as they are.
"""

from __future__ import annotations

from typing import Any

from tensorexpr import dtypes
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
    operand,
    rounded,
    strong,
    unary,
    unary_float,
)
from tensorexpr.language.core.tensor import as_dtype


@checked()
def exp(x: Any) -> Scalar:
    """e to the power x."""
    return unary_float("exp", x)


@checked()
def exp2(x: Any) -> Scalar:
    """2 to the power x."""
    return unary_float("exp2", x)


@checked()
def expm1(x: Any) -> Scalar:
    """exp(x) - 1, accurate near 0."""
    return unary_float("expm1", x)


@checked()
def log(x: Any) -> Scalar:
    """The natural logarithm: NaN below 0, minus infinity at 0."""
    return unary_float("log", x)


@checked()
def log2(x: Any) -> Scalar:
    """The logarithm to base 2."""
    return unary_float("log2", x)


@checked()
def log1p(x: Any) -> Scalar:
    """log(1 + x), accurate near 0."""
    return unary_float("log1p", x)


@checked()
def sqrt(x: Any) -> Scalar:
    """The square root: NaN below 0."""
    return unary_float("sqrt", x)


@checked()
def rsqrt(x: Any) -> Scalar:
    """1 / sqrt(x)."""
    return unary_float("rsqrt", x)


@checked()
def sin(x: Any) -> Scalar:
    """Sine, of radians."""
    return unary_float("sin", x)


@checked()
def cos(x: Any) -> Scalar:
    """Cosine, of radians."""
    return unary_float("cos", x)


@checked()
def tan(x: Any) -> Scalar:
    """Tangent, of radians."""
    return unary_float("tan", x)


@checked()
def sinh(x: Any) -> Scalar:
    """Hyperbolic sine."""
    return unary_float("sinh", x)


@checked()
def cosh(x: Any) -> Scalar:
    """Hyperbolic cosine."""
    return unary_float("cosh", x)


@checked()
def tanh(x: Any) -> Scalar:
    """Hyperbolic tangent."""
    return unary_float("tanh", x)


@checked()
def arcsin(x: Any) -> Scalar:
    """Inverse sine, in radians."""
    return unary_float("asin", x)


@checked()
def arccos(x: Any) -> Scalar:
    """Inverse cosine, in radians."""
    return unary_float("acos", x)


@checked()
def arctan(x: Any) -> Scalar:
    """Inverse tangent, in radians."""
    return unary_float("atan", x)


@checked()
def arctan2(y: Any, x: Any) -> Scalar:
    """The angle of the point (x, y), in radians."""
    return binary_float("atan2", y, x)


@checked()
def sigmoid(x: Any) -> Scalar:
    """1 / (1 + exp(-x)), which cannot overflow."""
    return unary_float("sigmoid", x)


@checked()
def erf(x: Any) -> Scalar:
    """The error function."""
    return unary_float("erf", x)


@checked()
def abs(x: Any) -> Scalar:
    """The absolute value; the dtype stays."""
    return strong(x).__abs__()


@checked()
def sign(x: Any) -> Scalar:
    """-1, 0 or 1; the dtype stays, NaN stays NaN."""
    return unary("sign", x)


@checked()
def negative(x: Any) -> Scalar:
    """-x; the dtype stays."""
    return unary("neg", x)


@checked()
def square(x: Any) -> Scalar:
    """x * x; of a bool an int8."""
    value = strong(x)
    value = converted(value, dtypes.int8) if value.dtype.is_bool else value
    return binary("mul", value, value)


@checked()
def floor(x: Any) -> Scalar:
    """The next integer value at or below x; the dtype stays."""
    return rounded("floor", x)


@checked()
def ceil(x: Any) -> Scalar:
    """The next integer value at or above x; the dtype stays."""
    return rounded("ceil", x)


@checked()
def round(x: Any) -> Scalar:
    """The nearest integer value, halves to the even one; the dtype stays."""
    return rounded("round", x)


@checked()
def trunc(x: Any) -> Scalar:
    """The integer part; the dtype stays."""
    return rounded("trunc", x)


@checked()
def minimum(a: Any, b: Any) -> Scalar:
    """The lesser of two values; NaN if one is NaN."""
    return binary("minimum", a, b)


@checked()
def maximum(a: Any, b: Any) -> Scalar:
    """The greater of two values; NaN if one is NaN."""
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
    """a to the power b. Of an integer with a negative power, known only as it runs, the integer part; a negative literal is refused."""
    return binary("pow", a, b)


@checked()
def where(condition: Any, a: Any, b: Any) -> Scalar:
    """a where the condition holds, else b. Only the branch taken is evaluated, so the condition guards its accesses.

    `condition` is a bool scalar; a and b promote. Raises `DefinitionError` for a condition that is a number.

    >>> A = te.placeholder((2, 3), name="A")
    >>> print(te.compute((2, 3), lambda i, j: te.where(A[i, j] > 0, A[i, j], 0.0), name="relu"))
    relu[i, j]: f32[2, 3] = where(A[i, j] > 0.0, A[i, j], 0.0)
    """
    choice = strong(condition)
    pair = (operand(a), operand(b))
    dtype = common_dtype(pair)
    return build("where", choice, converted(pair[0], dtype), converted(pair[1], dtype))


@checked()
def cast(x: Any, dtype: Any) -> Scalar:
    """x in another dtype. Floats go to integers toward zero and saturate (NaN gives 0), integers wrap around, != 0 is True.

    >>> A = te.placeholder((2, 3), name="A")
    >>> te.compute((2, 3), lambda i, j: te.cast(A[i, j], "int32"), name="whole")
    whole[i, j]: i32[2, 3] = i32(A[i, j])
    """
    return converted(x, as_dtype(dtype))


@checked()
def isnan(x: Any) -> Scalar:
    """Whether x is NaN; an integer never is."""
    return _classify("isnan", x, False)


@checked()
def isinf(x: Any) -> Scalar:
    """Whether x is plus or minus infinity; an integer never is."""
    return _classify("isinf", x, False)


@checked()
def isfinite(x: Any) -> Scalar:
    """Whether x is neither infinite nor NaN; an integer always is."""
    return _classify("isfinite", x, True)


def _classify(name: str, x: Any, of_integers: bool) -> Scalar:
    value = strong(x)
    return build(name, value) if value.dtype.is_float else Scalar(TRUE if of_integers else FALSE)


def as_bool(x: Any) -> Scalar:
    """x != 0, of a bool x itself."""
    return converted(strong(x), dtypes.bool_)


@checked()
def logical_and(a: Any, b: Any) -> Scalar:
    """Whether both are true (not 0). Both are evaluated."""
    return build("and", as_bool(a), as_bool(b))


@checked()
def logical_or(a: Any, b: Any) -> Scalar:
    """Whether at least one is true (not 0). Both are evaluated."""
    return build("or", as_bool(a), as_bool(b))


@checked()
def logical_xor(a: Any, b: Any) -> Scalar:
    """Whether exactly one is true (not 0)."""
    return build("xor", as_bool(a), as_bool(b))


@checked()
def logical_not(x: Any) -> Scalar:
    """Whether x is false (0)."""
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
