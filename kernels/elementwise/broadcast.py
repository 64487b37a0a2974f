"""Operations on elements of several tensors, broadcast as in NumPy; those with something to get right.

Each is stable where the formula of the textbook overflows or divides 0 by 0, and its derivative is right there too: a branch that
is taken at one point only is a function around it, not a number. Choices and the sign have no derivative.
Where a tensor may be a number, a Python number takes the dtype of the others.
"""

from __future__ import annotations

import math
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, one_of
from tensorexpr.kernels.conventions.broadcasting import at, pointwise

# ---------------------------------------------------------------------------------------------------- arithmetic


@te.op
def add(x: te.Tensor, y: te.Tensor, *, alpha: Any = 1) -> te.Tensor:
    """`x + alpha * y`.

    >>> kernels.add(np.array([1, 2]), np.array([10, 20]), alpha=2)
    array([21, 42])
    """
    return pointwise("add", lambda a, b: a + (b if alpha == 1 else alpha * b), x, y)


@te.op
def sub(x: te.Tensor, y: te.Tensor, *, alpha: Any = 1) -> te.Tensor:
    """`x - alpha * y`.

    >>> kernels.sub(np.array([10, 20]), np.array([1, 2]), alpha=2)
    array([ 8, 16])
    """
    return pointwise("sub", lambda a, b: a - (b if alpha == 1 else alpha * b), x, y)


@te.op
def mul(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`x * y`.

    >>> kernels.mul(np.array([[1], [2]]), np.array([10, 20, 30]))
    array([[10, 20, 30],
           [20, 40, 60]])
    """
    return pointwise("mul", lambda a, b: a * b, x, y)


@te.op
def rsub(x: te.Tensor, y: te.Tensor, *, alpha: Any = 1) -> te.Tensor:
    """`y - alpha * x`.

    >>> kernels.rsub(np.array([1, 2]), 10, alpha=2)
    array([8, 6])
    """
    return pointwise("rsub", lambda a, b: b - (a if alpha == 1 else alpha * a), x, y)


@te.op
def div(x: te.Tensor, y: te.Tensor, *, rounding_mode: str | None = None) -> te.Tensor:
    """`x / y`; of integers a float64. `rounding_mode` "floor" or "trunc": the integer below it, or towards 0, in the dtype of the
    operands.

    >>> kernels.div(np.array([7, -7]), 2), kernels.div(np.array([7, -7]), 2, rounding_mode="trunc")
    (array([ 3.5, -3.5]), array([ 3, -3]))
    """
    one_of("rounding_mode", rounding_mode, (None, "floor", "trunc"))
    if rounding_mode is None:
        return pointwise("div", lambda a, b: a / b, x, y)
    return pointwise("div", _floored if rounding_mode == "floor" else _truncated, x, y)


@te.op
def true_divide(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`x / y`.

    >>> kernels.true_divide(np.array([1, 2]), 4)
    array([0.25, 0.5 ])
    """
    return pointwise("true_divide", lambda a, b: a / b, x, y)


@te.op
def floor_divide(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """The integer below `x / y`, in the dtype of the operands; derivative 0.

    >>> kernels.floor_divide(np.array([7, -7]), 2)
    array([ 3, -4])
    """
    return pointwise("floor_divide", _floored, x, y)


def _floored(a: Any, b: Any) -> te.Scalar:
    """The floor of the exact quotient, which rounding may take to the next integer."""
    if not (a.dtype.is_float or b.dtype.is_float):
        return a // b
    whole = te.round((a - a % b) / b)
    return te.where((b == 0) | ~te.isfinite(a) | te.isinf(b), te.floor(a / b), whole)


def _truncated(a: Any, b: Any) -> te.Scalar:
    if a.dtype.is_float or b.dtype.is_float:
        return te.trunc(a / b)
    floor = a // b
    return te.where((floor < 0) & (floor * b != a), floor + 1, floor)


@te.op
def pow(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`x ** y`; its derivative by `y` at x = 0 is 0.

    >>> kernels.pow(np.array([1.0, 2.0, 3.0]), 2)
    array([1., 4., 9.])
    """
    return pointwise("pow", lambda a, b: a**b, x, y)


@te.op
def float_power(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`x ** y` in float64, whatever the two are.

    >>> kernels.float_power(np.array([2, 3]), -1).round(4)
    array([0.5   , 0.3333])
    """
    return pointwise("float_power", lambda a, b: te.cast(a, "float64") ** te.cast(b, "float64"), x, y)


@te.op
def remainder(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`x - floor(x / y) * y`: the remainder with the sign of `y`.

    >>> kernels.remainder(np.array([7, -7]), 3)
    array([1, 2])
    """
    return pointwise("remainder", lambda a, b: a % b, x, y)


@te.op
def divmod(x: te.Tensor, y: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """`(floor_divide, remainder)`.

    >>> kernels.divmod(np.array([7, -7]), 3)
    (array([ 2, -3]), array([1, 2]))
    """
    return floor_divide.function(x, y), remainder.function(x, y)


@te.op
def fmod(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`x - trunc(x / y) * y`: the remainder with the sign of `x`.

    >>> kernels.fmod(np.array([7, -7]), 3)
    array([ 1, -1])
    """

    def body(a: Any, b: Any) -> te.Scalar:
        rest = te.where(a < 0, -a, a) % te.abs(b)  # of derivative 1 at 0 too
        return te.where(a < 0, -rest, rest)

    return pointwise("fmod", body, x, y)


@te.op
def maximum(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """The greater of two; NaN if one is. Equal values share the gradient in halves.

    >>> kernels.maximum(np.array([1.0, np.nan]), np.array([3.0, 2.0]))
    array([ 3., nan])
    """
    return pointwise("maximum", te.maximum, x, y)


@te.op
def minimum(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """The lesser of two; NaN if one is. Equal values share the gradient in halves.

    >>> kernels.minimum(np.array([1.0, np.nan]), np.array([3.0, 2.0]))
    array([ 1., nan])
    """
    return pointwise("minimum", te.minimum, x, y)


@te.op
def atan2(y: te.Tensor, x: te.Tensor) -> te.Tensor:
    """The angle of the point (x, y), in radians.

    >>> kernels.atan2(np.array([0.0, 1.0, -1.0]), np.array([-1.0, 0.0, 0.0])).round(4)
    array([ 3.1416,  1.5708, -1.5708])
    """
    return pointwise("atan2", te.atan2, y, x)


@te.op
def where(condition: te.Tensor, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`x` where the condition (a bool) holds, else `y`; nothing of the other comes through, a NaN neither.

    >>> kernels.where(np.array([True, False]), np.array([1.0, 2.0]), np.array([10.0, 20.0]))
    array([ 1., 20.])
    """
    return pointwise("where", te.where, condition, x, y)


@te.op
def clamp(x: te.Tensor, min: te.Tensor | None = None, max: te.Tensor | None = None) -> te.Tensor:
    """`x` brought into `min .. max`, tensors or numbers, of which one may be left out; where min > max the result is max.

    The gradient goes to the one whose value it is, at a bound to `x`, as in PyTorch. A NaN in either stays.

    >>> kernels.clamp(np.array([-2, 0, 5]), -1, 3)
    array([-1,  0,  3])
    """
    if min is None and max is None:
        raise bad("clamp: expected min or max or both, got neither")

    def body(v: Any, low: Any, high: Any) -> Any:
        raised = v if low is None else te.where((v >= low) | te.isnan(v), v, low)
        return raised if high is None else te.where((raised <= high) | te.isnan(raised), raised, high)

    return pointwise("clamp", body, x, min, max)


@te.op
def clamp_min(x: te.Tensor, min: te.Tensor) -> te.Tensor:
    """`clamp` from below.

    >>> kernels.clamp_min(np.array([1, 5]), 3)
    array([3, 5])
    """
    return clamp.function(x, min, None)


@te.op
def clamp_max(x: te.Tensor, max: te.Tensor) -> te.Tensor:
    """`clamp` from above.

    >>> kernels.clamp_max(np.array([1, 5]), 3)
    array([1, 3])
    """
    return clamp.function(x, None, max)


@te.op
def heaviside(x: te.Tensor, values: te.Tensor) -> te.Tensor:
    """0 below 0, 1 above it, and `values` at 0; NaN stays. The derivative by `x` is 0.

    >>> kernels.heaviside(np.array([-1.0, 0.0, 2.0]), 0.5)
    array([0. , 0.5, 1. ])
    """
    return pointwise("heaviside", lambda v, middle: te.where(v == 0, middle, te.where(te.isnan(v), v, te.cast(v > 0, v.dtype))), x, values)


@te.op
def lerp(start: te.Tensor, end: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """`start + weight * (end - start)`.

    >>> kernels.lerp(np.array([0.0, 10.0]), np.array([1.0, 20.0]), 0.25)
    array([ 0.25, 12.5 ])
    """
    return pointwise("lerp", lambda a, b, w: a + w * (b - a), start, end, weight)


@te.op
def addcmul(x: te.Tensor, tensor1: te.Tensor, tensor2: te.Tensor, *, value: Any = 1) -> te.Tensor:
    """`x + value * tensor1 * tensor2`.

    >>> kernels.addcmul(np.array([1.0, 1.0]), np.array([2.0, 3.0]), np.array([4.0, 5.0]), value=0.5)
    array([5. , 8.5])
    """
    return pointwise("addcmul", lambda a, b, c: a + value * (b * c), x, tensor1, tensor2)


@te.op
def addcdiv(x: te.Tensor, tensor1: te.Tensor, tensor2: te.Tensor, *, value: Any = 1) -> te.Tensor:
    """`x + value * tensor1 / tensor2`.

    >>> kernels.addcdiv(np.array([1.0, 1.0]), np.array([4.0, 6.0]), np.array([2.0, 3.0]), value=0.5)
    array([2., 2.])
    """
    return pointwise("addcdiv", lambda a, b, c: a + value * (b / c), x, tensor1, tensor2)


@te.op
def copysign(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`|x|` with the sign of `y`, that of a zero included. The derivative by `x` is 0 at 0, as that of `|x|`.

    >>> kernels.copysign(np.array([1.0, -2.0]), np.array([-0.0, 3.0]))
    array([-1.,  2.])
    """

    def body(a: Any, b: Any) -> te.Scalar:
        negative = (b < 0) | ((b == 0) & (1 / b < 0))
        return te.where(negative, -te.abs(a), te.abs(a))

    return pointwise("copysign", body, x, y)


@te.op
def nan_to_num(x: te.Tensor, *, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> te.Tensor:
    """`x` with NaN and the infinities replaced: infinities by the greatest and the least finite number unless told otherwise.

    >>> kernels.nan_to_num(np.array([np.nan, np.inf, 1.0]), posinf=99.0)
    array([ 0., 99.,  1.])
    """
    if not x.dtype.is_float:
        return te.compute(x.shape, lambda *i: x[i])
    greatest = _GREATEST[x.dtype.name]
    high, low = greatest if posinf is None else posinf, -greatest if neginf is None else neginf

    def body(*i: Any) -> te.Scalar:
        v = x[i]
        return te.where(te.isnan(v), nan, te.where(v == math.inf, high, te.where(v == -math.inf, low, v)))

    return te.compute(x.shape, body)


_GREATEST = {
    "float16": (2 - 2.0**-10) * 2.0**15,
    "bfloat16": (2 - 2.0**-7) * 2.0**127,
    "float32": (2 - 2.0**-23) * 2.0**127,
    "float64": (2 - 2.0**-52) * 2.0**1023,
}

# ---------------------------------------------------------------------------------------------------- logarithms and their kin


@te.op
def hypot(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`sqrt(x^2 + y^2)` without overflow in between; gradient 0 at (0, 0).

    >>> kernels.hypot(np.array([3.0, 3e200]), np.array([4.0, 4e200]))
    array([5.e+000, 5.e+200])
    """

    # The scale cancels: nothing is differentiated through it.
    scale = te.stop_gradient(pointwise("hypot", lambda a, b: te.maximum(te.abs(a), te.abs(b)), x, y))

    def body(*i: Any) -> te.Scalar:
        s = scale[i]
        return te.where((s == 0) | te.isinf(s), s, s * te.sqrt((at(x, i) / s) ** 2 + (at(y, i) / s) ** 2))

    return te.compute(scale.shape, body)


@te.op
def xlogy(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`x * log(y)`, and 0 where x = 0 and `log(y)` is no finite number.

    >>> kernels.xlogy(np.array([0.0, 2.0]), np.array([0.0, 2.0])).round(4)
    array([0.    , 1.3863])
    """

    def body(a: Any, b: Any) -> te.Scalar:
        return te.where((a == 0) & ((b <= 0) | te.isinf(b)), 0, a * te.log(b))

    return pointwise("xlogy", body, x, y)


@te.op
def xlog1py(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`x * log(1 + y)`, and 0 where x = 0 and `log(1 + y)` is no finite number.

    >>> kernels.xlog1py(np.array([0.0, 2.0]), np.array([-1.0, 1.0])).round(4)
    array([0.    , 1.3863])
    """

    def body(a: Any, b: Any) -> te.Scalar:
        return te.where((a == 0) & ((b <= -1) | te.isinf(b)), 0, a * te.log1p(b))

    return pointwise("xlog1py", body, x, y)


@te.op
def entr(x: te.Tensor) -> te.Tensor:
    """`-x log x`, the entropy of a probability: 0 at 0, minus infinity below.

    >>> kernels.entr(np.array([0.0, 0.5, 1.0])).round(4)
    array([ 0.    ,  0.3466, -0.    ])
    """
    return te.compute(x.shape, lambda *i: te.where(x[i] == 0, 0, te.where(x[i] < 0, -math.inf, -x[i] * te.log(x[i]))))


@te.op
def logaddexp(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`log(exp(x) + exp(y))` at any magnitude.

    >>> kernels.logaddexp(np.array([0.0, -100.0]), np.array([0.0, -100.0])).round(4)
    array([  0.6931, -99.3069])
    """
    return pointwise("logaddexp", _log_add_exp, x, y)


def _log_add_exp(a: Any, b: Any) -> te.Scalar:
    larger = te.where(te.isinf(b) & (a <= b), b, b + te.log1p(te.exp(a - b)))
    return te.where(a > b, a + te.log1p(te.exp(b - a)), larger)


@te.op
def logit(x: te.Tensor, *, eps: Any = None) -> te.Tensor:
    """`log(x / (1 - x))`; with `eps` of `x` brought into `eps .. 1 - eps`, whose derivative is 0 outside.

    >>> kernels.logit(np.array([0.5, 0.75])).round(4)
    array([0.    , 1.0986])
    """
    if eps is not None and not 0 <= eps <= 0.5:
        raise bad(f"logit: expected an eps between 0 and 0.5, got {eps!r}")

    def body(*i: Any) -> te.Scalar:
        v = x[i]
        if eps is None:
            return te.log(v / (1 - v))
        inside = te.where(v < eps, eps, te.where(v > 1 - eps, 1 - eps, v))
        return te.log(inside / (1 - inside))

    return te.compute(x.shape, body)


@te.op
def sinc(x: te.Tensor) -> te.Tensor:
    """`sin(pi x) / (pi x)`, 1 at 0: near 0 by its series, so that its derivatives are right there too.

    >>> kernels.sinc(np.array([0.0, 0.5, 2.0])).round(4)
    array([ 1.    ,  0.6366, -0.    ])
    """

    def body(*i: Any) -> te.Scalar:
        angle = math.pi * x[i]
        series = 1 - angle**2 / 6 * (1 - angle**2 / 20 * (1 - angle**2 / 42))
        return te.where(te.abs(angle) < 0.02, series, te.sin(angle) / angle)

    return te.compute(x.shape, body)


# ------------------------------------------------------------------------------------------ numbers beside NaN


@te.op
def fmax(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """The greater one; of a number and NaN the number.

    >>> kernels.fmax(np.array([1.0, np.nan]), np.array([3.0, 2.0]))
    array([3., 2.])
    """
    return pointwise("fmax", lambda a, b: te.where(te.isnan(a), b, te.where(te.isnan(b), a, te.maximum(a, b))), x, y)


@te.op
def fmin(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """The lesser one; of a number and NaN the number.

    >>> kernels.fmin(np.array([1.0, np.nan]), np.array([3.0, 2.0]))
    array([1., 2.])
    """
    return pointwise("fmin", lambda a, b: te.where(te.isnan(a), b, te.where(te.isnan(b), a, te.minimum(a, b))), x, y)


@te.op
def logaddexp2(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`log2(2^x + 2^y)` at any magnitude.

    >>> kernels.logaddexp2(np.array([0.0, 100.0]), np.array([0.0, 100.0]))
    array([  1., 101.])
    """
    return pointwise("logaddexp2", lambda a, b: _log_add_exp(a * math.log(2), b * math.log(2)) * (1 / math.log(2)), x, y)
