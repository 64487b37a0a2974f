"""Losses between numbers and between distributions, with PyTorch's names and `reduction="mean"`, `"sum"` or `"none"`.

Each is a function of one pair of elements, stable at any magnitude, then reduced; tensors broadcast. All arguments that are tensors
have gradients, targets too. Losses over classes are in `classification`, those over vectors in `margins`, sequences in `ctc`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, one_of
from tensorexpr.kernels.conventions.broadcasting import pointwise, same
from tensorexpr.kernels.elementwise.activations import log_sigmoid_of
from tensorexpr.kernels.reductions.reductions import mean, over, sum

REDUCTIONS = ("mean", "sum", "none")


def reduced(loss: te.Tensor, reduction: str) -> te.Tensor:
    """The mean or the sum of all elements, or the tensor itself; `ArgumentError` for another word."""
    if one_of("reduction", reduction, REDUCTIONS) == "none":
        return loss
    return mean(loss) if reduction == "mean" else sum(loss)


def paired(name: str, body: Callable[..., Any], input: te.Tensor, *others: te.Tensor | None) -> te.Tensor:
    """The loss of each element, all tensors broadcast; targets of integers or bools count as numbers of the input's dtype."""

    def real(value: Any) -> Any:
        return value if value is None or value.dtype.is_float else te.cast(value, input.dtype)

    return pointwise(name, lambda x, *rest: body(x, *map(real, rest)), input, *others, result="loss")


# ---------------------------------------------------------------------------------------------------- distances of numbers


@te.op
def mse_loss(input: te.Tensor, target: te.Tensor, *, reduction: str = "mean") -> te.Tensor:
    """`(input - target)^2`.

    >>> kernels.mse_loss(np.array([1.0, 5.0]), np.array([2.0, 2.0]))
    array(5.)
    """
    return reduced(paired("mse_loss", lambda x, y: (x - y) ** 2, input, target), reduction)


@te.op
def l1_loss(input: te.Tensor, target: te.Tensor, *, reduction: str = "mean") -> te.Tensor:
    """`|input - target|`; derivative 0 where they are equal.

    >>> kernels.l1_loss(np.array([1.0, 5.0]), np.array([2.0, 2.0]))
    array(2.)
    """
    return reduced(paired("l1_loss", lambda x, y: te.abs(x - y), input, target), reduction)


@te.op
def smooth_l1_loss(input: te.Tensor, target: te.Tensor, *, beta: float = 1.0, reduction: str = "mean") -> te.Tensor:
    """`d^2 / (2 beta)` where `d = |input - target| < beta`, else `d - beta / 2` (Girshick, 2015); beta 0 is the L1 loss.

    >>> kernels.smooth_l1_loss(np.array([0.5, 3.0]), np.array([0.0, 0.0]), reduction="none")
    array([0.125, 2.5  ])
    """
    if not beta >= 0:
        raise bad(f"smooth_l1_loss: expected a beta of at least 0, got {beta!r}")

    def body(x: Any, y: Any) -> te.Scalar:
        apart = te.abs(x - y)
        return te.where(apart < beta, (x - y) ** 2 * (0.5 / beta), apart - 0.5 * beta) if beta else apart

    return reduced(paired("smooth_l1_loss", body, input, target), reduction)


@te.op
def huber_loss(input: te.Tensor, target: te.Tensor, *, delta: float = 1.0, reduction: str = "mean") -> te.Tensor:
    """`d^2 / 2` where `d = |input - target| <= delta`, else `delta * (d - delta / 2)` (Huber, 1964); `delta` is above 0.

    >>> kernels.huber_loss(np.array([0.5, 3.0]), np.array([0.0, 0.0]), reduction="none")
    array([0.125, 2.5  ])
    """
    if not delta > 0:
        raise bad(f"huber_loss: expected a delta above 0, got {delta!r}")

    def body(x: Any, y: Any) -> te.Scalar:
        apart = te.abs(x - y)
        return te.where(apart <= delta, 0.5 * (x - y) ** 2, delta * (apart - 0.5 * delta))

    return reduced(paired("huber_loss", body, input, target), reduction)


# ---------------------------------------------------------------------------------------------------- binary targets


def _weighted(value: Any, weight: Any) -> Any:
    return value if weight is None else value * weight


@te.op
def binary_cross_entropy(input: te.Tensor, target: te.Tensor, weight: te.Tensor | None = None, *, reduction: str = "mean") -> te.Tensor:
    """`-(t log x + (1 - t) log(1 - x))` of probabilities; logarithms end at -100, as in PyTorch, so that 0 and 1 give finite losses.

    From logits, `binary_cross_entropy_with_logits` is accurate where this cannot be.

    >>> kernels.binary_cross_entropy(np.array([0.5, 1.0]), np.array([1.0, 1.0]), reduction="none").round(4)
    array([ 0.6931, -0.    ])
    """

    def body(x: Any, t: Any, w: Any) -> Any:
        yes, no = te.log(x), te.log1p(-x)
        return _weighted(-(t * te.where(yes < -100, -100, yes) + (1 - t) * te.where(no < -100, -100, no)), w)

    return reduced(paired("binary_cross_entropy", body, input, target, weight), reduction)


@te.op
def binary_cross_entropy_with_logits(
    input: te.Tensor, target: te.Tensor, weight: te.Tensor | None = None, pos_weight: te.Tensor | None = None, *, reduction: str = "mean"
) -> te.Tensor:
    """`-(p t log s + (1 - t) log(1 - s))`, `s = sigmoid(input)`, p = `pos_weight` (1 where it is left out), times `weight`.

    >>> kernels.binary_cross_entropy_with_logits(np.array([0.0, -100.0]), np.array([1.0, 1.0]), reduction="none").round(4)
    array([  0.6931, 100.    ])
    """

    def body(x: Any, t: Any, w: Any, p: Any) -> Any:
        missed = log_sigmoid_of(x)
        return _weighted((1 - t) * x - (missed if p is None else (1 + (p - 1) * t) * missed), w)

    loss = paired("binary_cross_entropy_with_logits", body, input, target, weight, pos_weight)
    return reduced(loss, reduction)


@te.op
def sigmoid_focal_loss(
    input: te.Tensor, target: te.Tensor, *, alpha: float = 0.25, gamma: float = 2.0, reduction: str = "none"
) -> te.Tensor:
    """`a (1 - q)^gamma` times the binary cross-entropy of logits, q the probability of what the target says (Lin et al., 2017).

    `a` is `alpha` for targets of 1 and `1 - alpha` for those of 0; `alpha=None` leaves it out.

    >>> kernels.sigmoid_focal_loss(np.array([0.0, 5.0]), np.array([1.0, 1.0])).round(4)  # what is clear counts little
    array([0.0433, 0.    ])
    """
    if alpha is not None and not 0 <= alpha <= 1:
        raise bad(f"sigmoid_focal_loss: expected an alpha between 0 and 1, or None, got {alpha!r}")

    def body(x: Any, t: Any) -> Any:
        entropy = (1 - t) * x - log_sigmoid_of(x)
        probability = te.sigmoid(x)
        missed = probability * (1 - t) + (1 - probability) * t
        loss = entropy if gamma == 0 else entropy * missed**gamma
        return loss if alpha is None else loss * (alpha * t + (1 - alpha) * (1 - t))

    return reduced(paired("sigmoid_focal_loss", body, input, target), reduction)


@te.op
def soft_margin_loss(input: te.Tensor, target: te.Tensor, *, reduction: str = "mean") -> te.Tensor:
    """`log(1 + exp(-target * input))` for targets 1 and -1, at any magnitude.

    >>> kernels.soft_margin_loss(np.array([0.0, 100.0]), np.array([1.0, -1.0]), reduction="none").round(4)
    array([  0.6931, 100.    ])
    """
    return reduced(paired("soft_margin_loss", lambda x, t: -log_sigmoid_of(t * x), input, target), reduction)


# ---------------------------------------------------------------------------------------------------- likelihoods


@te.op
def kl_div(input: te.Tensor, target: te.Tensor, *, log_target: bool = False, reduction: str = "mean") -> te.Tensor:
    """`t (log t - input)`, the divergence of log probabilities `input` from probabilities t (`log_target=True`: from `exp(target)`).

    0 where t is 0. `reduction="batchmean"` divides the sum by the first extent: the divergence as it is defined.

    >>> p, q = np.array([0.5, 0.5]), np.array([0.25, 0.75])
    >>> float(kernels.kl_div(np.log(q), p, reduction="sum").round(4))
    0.1438
    """
    one_of("reduction", reduction, (*REDUCTIONS, "batchmean"))

    def body(x: Any, t: Any) -> te.Scalar:
        if log_target:
            return te.exp(t) * (t - x)
        return te.where(t == 0, 0, t * te.log(t)) - t * x

    loss = paired("kl_div", body, input, target)
    if reduction != "batchmean":
        return reduced(loss, reduction)
    if not loss.ndim:
        raise bad("kl_div: expected a batch along axis 0 for the reduction 'batchmean', got a number")
    return te.compute((), lambda: over(te.sum(lambda *i: loss[i], loss.shape), loss.shape[0]))


@te.op
def poisson_nll_loss(
    input: te.Tensor, target: te.Tensor, *, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
) -> te.Tensor:
    """`exp(input) - target * input`; for `log_input=False` `input - target * log(input + eps)`.

    `full=True` adds Stirling's `t log t - t + log(2 pi t) / 2` for targets above 1.

    >>> kernels.poisson_nll_loss(np.array([0.0, 0.0]), np.array([0.0, 2.0]), reduction="none")
    array([1., 1.])
    """

    def body(x: Any, t: Any) -> te.Scalar:
        loss = te.exp(x) - t * x if log_input else x - t * te.log(x + eps)
        if full:
            loss = loss + te.where(t > 1, t * te.log(t) - t + 0.5 * te.log(2 * math.pi * t), 0)
        return loss

    return reduced(paired("poisson_nll_loss", body, input, target), reduction)


@te.op
def gaussian_nll_loss(
    input: te.Tensor, target: te.Tensor, var: te.Tensor, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> te.Tensor:
    """`(log v + (input - target)^2 / v) / 2`, v = `var` but at least `eps` (no gradient to `var` below); `full=True` adds log(2 pi) / 2.

    `var` broadcasts to `input`, or has its shape without the last axis.

    >>> kernels.gaussian_nll_loss(np.array([1.0, 2.0]), np.array([1.0, 4.0]), np.array([1.0, 1.0]), reduction="none")
    array([0., 2.])
    """
    if not eps > 0:
        raise bad(f"gaussian_nll_loss: expected an eps above 0, got {eps!r}")
    if var.ndim == input.ndim - 1 and all(map(same, var.shape, input.shape)):
        spread = te.compute((*var.shape, 1), lambda *i: var[i[:-1]])
    else:
        spread = var

    def body(x: Any, t: Any, v: Any) -> te.Scalar:
        v = te.where(v < eps, eps, v)
        loss = 0.5 * (te.log(v) + (x - t) ** 2 / v)
        return loss + 0.5 * math.log(2 * math.pi) if full else loss

    return reduced(paired("gaussian_nll_loss", body, input, target, spread), reduction)
