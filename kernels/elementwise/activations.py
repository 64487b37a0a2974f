"""Activation functions: one number in, one number out, and the gated units that split an axis in two.

Conventions at the kinks are PyTorch's, written as the branch of a `where` that holds there: `relu` has derivative 0 at 0. A NaN
stays a NaN. What could overflow stands in a branch that is taken only where it cannot.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, known, one_of
from tensorexpr.kernels.conventions.axes import along, drop, normalized
from tensorexpr.kernels.conventions.broadcasting import is_one, same


def _each(x: te.Tensor, function: Callable[[Any], Any]) -> te.Tensor:
    return te.compute(x.shape, lambda *i: function(x[i]))


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise bad(f"{name}: expected a number above 0, got {value!r}")


# ---------------------------------------------------------------------------------------------------- by pieces


@te.op
def relu(x: te.Tensor) -> te.Tensor:
    """`max(x, 0)`; derivative 0 at 0.

    >>> kernels.relu(np.array([-1.0, 0.0, 2.0]))
    array([0., 0., 2.])
    """
    return _each(x, lambda v: te.where(v <= 0, 0, v))


@te.op
def relu6(x: te.Tensor) -> te.Tensor:
    """`min(max(x, 0), 6)`; derivative 0 at both bounds.

    >>> kernels.relu6(np.array([-1.0, 3.0, 8.0]))
    array([0., 3., 6.])
    """
    return _each(x, lambda v: _bounded(v, 0, 6))


@te.op
def hardtanh(x: te.Tensor, *, min_val: Any = -1.0, max_val: float = 1.0) -> te.Tensor:
    """`x` brought into `min_val .. max_val`; derivative 0 at both bounds. `ArgumentError` unless min_val <= max_val.

    >>> kernels.hardtanh(np.array([-3.0, 0.5, 3.0]), max_val=2.0)
    array([-1. ,  0.5,  2. ])
    """
    if not min_val <= max_val:
        raise bad(f"hardtanh: expected a min_val of at most max_val, got {min_val!r} and {max_val!r}")
    return _each(x, lambda v: _bounded(v, min_val, max_val))


def _bounded(v: Any, low: float, high: float) -> te.Scalar:
    return te.where(v <= low, low, te.where(v >= high, high, v))


@te.op
def leaky_relu(x: te.Tensor, *, negative_slope: float = 0.01) -> te.Tensor:
    """`x` where it is positive, else `negative_slope * x`.

    >>> kernels.leaky_relu(np.array([-1.0, 2.0]), negative_slope=0.1)
    array([-0.1,  2. ])
    """
    return _each(x, lambda v: te.where(v > 0, v, negative_slope * v))


@te.op
def prelu(x: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """`x` where it is positive, else `weight * x`: one weight for all, or one for each channel (axis 1 of `x`, axis 0 of a vector).

    >>> kernels.prelu(np.array([[-1.0, -1.0], [2.0, 2.0]]), np.array([0.1, 0.5]))
    array([[-0.1, -0.5],
           [ 2. ,  2. ]])
    """
    if weight.ndim > 1:
        raise bad(f"prelu: expected a weight of at most 1 axis, got {weight.ndim}")
    single = weight.ndim == 0 or is_one(weight.shape[0])
    axis = 1 if x.ndim > 1 else 0
    if not single and not (x.ndim and same(weight.shape[0], x.shape[axis])):
        channels = x.shape[axis] if x.ndim else 1
        raise bad(f"prelu: expected 1 weight or {channels}, one per channel, got {weight.shape[0]}")

    def slope(i: Any) -> te.Scalar:
        return weight[()] if weight.ndim == 0 else weight[0] if single else weight[i[axis]]

    return te.compute(x.shape, lambda *i: te.where(x[i] > 0, x[i], slope(i) * x[i]))


@te.op
def threshold(x: te.Tensor, *, threshold: Any, value: Any) -> te.Tensor:
    """`x` where it is above `threshold`, else `value`.

    >>> kernels.threshold(np.array([0.5, 1.0, 2.0]), threshold=1.0, value=-5.0)
    array([-5., -5.,  2.])
    """
    return _each(x, lambda v: te.where(v <= threshold, value, v))


@te.op
def softshrink(x: te.Tensor, *, lambd: float = 0.5) -> te.Tensor:
    """`x` moved towards 0 by `lambd`, 0 where it would cross. `ArgumentError` for a negative `lambd`.

    >>> kernels.softshrink(np.array([-2.0, 0.25, 1.0]))
    array([-1.5,  0. ,  0.5])
    """
    _not_negative("lambd", lambd)
    return _each(x, lambda v: te.where(te.abs(v) <= lambd, 0, v - lambd * te.sign(v)))


@te.op
def hardshrink(x: te.Tensor, *, lambd: float = 0.5) -> te.Tensor:
    """`x` where `|x| > lambd`, else 0.

    >>> kernels.hardshrink(np.array([-2.0, 0.5, 1.0]))
    array([-2.,  0.,  1.])
    """
    return _each(x, lambda v: te.where(te.abs(v) <= lambd, 0, v))


def _not_negative(name: str, value: float) -> None:
    if not value >= 0:
        raise bad(f"{name}: expected a number of at least 0, got {value!r}")


@te.op
def hardsigmoid(x: te.Tensor) -> te.Tensor:
    """`min(max(x / 6 + 1/2, 0), 1)`; derivative 0 at both bounds.

    >>> kernels.hardsigmoid(np.array([-4.0, 0.0, 1.5, 4.0]))
    array([0.  , 0.5 , 0.75, 1.  ])
    """
    return _each(x, lambda v: te.where(v <= -3, 0, te.where(v >= 3, 1, v / 6 + 0.5)))


@te.op
def hardswish(x: te.Tensor) -> te.Tensor:
    """`x * relu6(x + 3) / 6` (Howard et al., "Searching for MobileNetV3", 2019).

    >>> kernels.hardswish(np.array([-4.0, -1.5, 3.0]))
    array([ 0.   , -0.375,  3.   ])
    """
    return _each(x, lambda v: te.where(v <= -3, 0, te.where(v >= 3, v, v * (v + 3) / 6)))


# ---------------------------------------------------------------------------------------------------- smooth


@te.op
def elu(x: te.Tensor, *, alpha: float = 1.0) -> te.Tensor:
    """`x` where it is positive, else `alpha * (exp(x) - 1)` (Clevert et al., 2015).

    >>> kernels.elu(np.array([-1.0, 2.0])).round(4)
    array([-0.6321,  2.    ])
    """
    return _each(x, lambda v: te.where(v > 0, v, alpha * te.expm1(v)))


@te.op
def celu(x: te.Tensor, *, alpha: float = 1.0) -> te.Tensor:
    """`x` where it is positive, else `alpha * (exp(x / alpha) - 1)` (Barron, 2017); `alpha` is not 0.

    >>> kernels.celu(np.array([-1.0, 2.0]), alpha=0.5).round(4)
    array([-0.4323,  2.    ])
    """
    if alpha == 0:
        raise bad("celu: expected an alpha other than 0, got 0")
    return _each(x, lambda v: te.where(v > 0, v, alpha * te.expm1(v / alpha)))


_SELU_SCALE = 1.0507009873554804934193349852946
_SELU_ALPHA = 1.6732632423543772848170429916717


@te.op
def selu(x: te.Tensor) -> te.Tensor:
    """The self-normalizing unit: `scale * elu(x, alpha)` with the constants of Klambauer et al., 2017.

    >>> kernels.selu(np.array([-1.0, 0.0, 1.0])).round(4)
    array([-1.1113,  0.    ,  1.0507])
    """
    return _each(x, lambda v: te.where(v > 0, _SELU_SCALE * v, _SELU_SCALE * _SELU_ALPHA * te.expm1(v)))


def _gelu(v: Any) -> te.Scalar:
    return 0.5 * v * (1 + te.erf(v * math.sqrt(0.5)))


@te.op
def gelu(x: te.Tensor, *, approximate: str = "none") -> te.Tensor:
    """`x` times the normal distribution function: `x/2 * (1 + erf(x / sqrt 2))` (Hendrycks & Gimpel, 2016).

    `approximate="tanh"`: `x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`.

    >>> kernels.gelu(np.array([-1.0, 0.0, 1.0])).round(4)
    array([-0.1587,  0.    ,  0.8413])
    """
    if one_of("approximate", approximate, ("none", "tanh")) == "none":
        return _each(x, _gelu)
    return _each(x, lambda v: 0.5 * v * (1 + te.tanh(math.sqrt(2 / math.pi) * v * (1 + 0.044715 * v**2))))


@te.op
def silu(x: te.Tensor) -> te.Tensor:
    """`x * sigmoid(x)`, also called swish.

    >>> kernels.silu(np.array([-1.0, 0.0, 1.0])).round(4)
    array([-0.2689,  0.    ,  0.7311])
    """
    return _each(x, lambda v: v * te.sigmoid(v))


def softplus_of(v: Any) -> te.Scalar:
    """log(1 + exp(v)) for any v."""
    return te.where(v > 0, v + te.log1p(te.exp(-v)), te.log1p(te.exp(v)))


def log_sigmoid_of(v: Any) -> te.Scalar:
    """log(sigmoid(v)) for any v."""
    return te.where(v < 0, v - te.log1p(te.exp(v)), -te.log1p(te.exp(-v)))


@te.op
def mish(x: te.Tensor) -> te.Tensor:
    """`x * tanh(log(1 + exp(x)))` (Misra, 2019).

    >>> kernels.mish(np.array([-1.0, 0.0, 1.0])).round(4)
    array([-0.3034,  0.    ,  0.8651])
    """
    return _each(x, lambda v: v * te.tanh(softplus_of(v)))


@te.op
def softplus(x: te.Tensor, *, beta: float = 1.0, threshold: float = 20.0) -> te.Tensor:
    """`log(1 + exp(beta * x)) / beta`; `x` itself where `beta * x > threshold`. `beta` is above 0.

    >>> kernels.softplus(np.array([-1.0, 0.0, 30.0])).round(4)
    array([ 0.3133,  0.6931, 30.    ])
    """
    _positive("beta", beta)
    return _each(x, lambda v: te.where(v * beta > threshold, v, softplus_of(v * beta) / beta))


@te.op
def logsigmoid(x: te.Tensor) -> te.Tensor:
    """`log(sigmoid(x)) = -log(1 + exp(-x))`, which neither overflows nor cancels.

    >>> kernels.logsigmoid(np.array([-100.0, 0.0, 100.0])).round(4)
    array([-100.    ,   -0.6931,   -0.    ])
    """
    return _each(x, log_sigmoid_of)


@te.op
def softsign(x: te.Tensor) -> te.Tensor:
    """`x / (1 + |x|)`.

    >>> kernels.softsign(np.array([-1.0, 0.0, 3.0]))
    array([-0.5 ,  0.  ,  0.75])
    """
    return _each(x, lambda v: v / (1 + te.abs(v)))


@te.op
def tanhshrink(x: te.Tensor) -> te.Tensor:
    """`x - tanh(x)`.

    >>> kernels.tanhshrink(np.array([-1.0, 0.0, 1.0])).round(4)
    array([-0.2384,  0.    ,  0.2384])
    """
    return _each(x, lambda v: v - te.tanh(v))


@te.op
def softcap(x: te.Tensor, *, cap: Any) -> te.Tensor:
    """`cap * tanh(x / cap)`: the identity near 0, within `-cap .. cap` everywhere (logit capping of Gemma 2). `cap` is above 0.

    >>> kernels.softcap(np.array([0.0, 1.0, 1000.0]), cap=30.0).round(4)
    array([ 0.    ,  0.9996, 30.    ])
    """
    _positive("cap", cap)
    return _each(x, lambda v: cap * te.tanh(v / cap))


# ---------------------------------------------------------------------------------------------------- gated units


def _gated(name: str, x: te.Tensor, axis: int, combine: Callable[[Any, Any], Any]) -> te.Tensor:
    """`combine(a, b)` of the first and the second half of `x` along `axis`."""
    axis = normalized(axis, x)
    if known(x.shape[axis]) and x.shape[axis] % 2:
        raise bad(f"{name}: expected an even extent along axis {axis}, got {x.shape[axis]}")
    half = x.shape[axis] // 2
    shape = along(drop(x.shape, axis), axis, half)
    return te.compute(shape, lambda *i: combine(x[i], x[along(drop(i, axis), axis, i[axis] + half)]))


@te.op
def glu(x: te.Tensor, *, axis: Any = -1) -> te.Tensor:
    """`a * sigmoid(b)` for the halves a, b of `x` along `axis`, whose extent is even (Dauphin et al., 2016).

    >>> kernels.glu(np.array([3.0, 5.0, 0.0, 100.0]))
    array([1.5, 5. ])
    """
    return _gated("glu", x, axis, lambda a, b: a * te.sigmoid(b))


@te.op
def reglu(x: te.Tensor, *, axis: Any = -1) -> te.Tensor:
    """`relu(a) * b` for the halves a, b of `x` along `axis`, whose extent is even (Shazeer, "GLU variants", 2020).

    >>> kernels.reglu(np.array([-1.0, 2.0, 10.0, 100.0]))
    array([  0., 200.])
    """
    return _gated("reglu", x, axis, lambda a, b: te.where(a <= 0, 0, a) * b)


@te.op
def geglu(x: te.Tensor, *, axis: Any = -1) -> te.Tensor:
    """`gelu(a) * b` for the halves a, b of `x` along `axis`, whose extent is even (Shazeer, "GLU variants", 2020).

    >>> kernels.geglu(np.array([1.0, 2.0, 10.0, 100.0])).round(4)
    array([  8.4134, 195.45  ])
    """
    return _gated("geglu", x, axis, lambda a, b: _gelu(a) * b)


@te.op
def swiglu(x: te.Tensor, *, axis: Any = -1) -> te.Tensor:
    """`silu(a) * b` for the halves a, b of `x` along `axis`, whose extent is even (Shazeer, "GLU variants", 2020).

    >>> kernels.swiglu(np.array([0.0, 1.0, 10.0, 100.0])).round(4)
    array([ 0.    , 73.1059])
    """
    return _gated("swiglu", x, axis, lambda a, b: a * te.sigmoid(a) * b)
