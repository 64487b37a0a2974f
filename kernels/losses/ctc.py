"""The loss of connectionist temporal classification: a recurrence over time, in log space, by `te.scan`.

The target with blanks between and around its labels is a chain of 2 S + 1 states; a path stays, moves on by one, or skips a blank
between different labels. `alpha[t, n, s]` is the log probability of all paths that are in state s at time t:

    alpha[t, n, s] = log(sum of exp(alpha[t-1, n, s - k]) for the moves k) + log_probs[t, n, label[n, s]]

Its gradient, the backward recurrence of the paper, is derived like that of any scan (Graves et al., 2006).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, integral, is_int, known, one_of
from tensorexpr.kernels.conventions.broadcasting import same
from tensorexpr.kernels.losses.losses import REDUCTIONS, reduced


def _checked(log_probs: te.Tensor, targets: te.Tensor, lengths: Sequence[te.Tensor], blank: Any) -> None:
    if log_probs.ndim != 3:
        raise bad(f"ctc_loss: expected log_probs of 3 axes (time, batch, classes), got {log_probs.ndim}")
    _, batch, classes = log_probs.shape
    if targets.ndim != 2 or not same(targets.shape[0], batch):
        raise bad(f"ctc_loss: expected targets of shape ({batch}, S), one row per item of the batch, got {targets.shape}")
    for tensor in (targets, *lengths):
        integral(tensor, "labels and lengths of ctc_loss")
    for tensor in lengths:
        if tensor.ndim != 1 or not same(tensor.shape[0], batch):
            raise bad(f"ctc_loss: expected {tensor.name} of shape ({batch},), got {tensor.shape}")
    if not is_int(blank) or blank < 0 or (known(classes) and blank >= classes):
        raise bad(f"ctc_loss: expected a blank that is one of the {classes} classes, got {blank!r}")


def _log_sum(values: Sequence[te.Tensor]) -> te.Tensor:
    """`log sum exp` of tensors of one shape, minus infinity where all are; nothing is differentiated through the maximum."""

    def greatest(*i: Any) -> Any:
        top = values[0][i]
        for value in values[1:]:
            top = te.maximum(top, value[i])
        return top

    shape = values[0].shape
    top = te.stop_gradient(te.compute(shape, greatest, name="top"))

    def body(*i: Any) -> te.Scalar:
        total = te.exp(values[0][i] - top[i])
        for value in values[1:]:
            total = total + te.exp(value[i] - top[i])
        return te.where(top[i] == -math.inf, -math.inf, top[i] + te.log(total))

    return te.compute(shape, body, name="total")


@te.op
def ctc_loss(
    log_probs: te.Tensor,
    targets: te.Tensor,
    input_lengths: te.Tensor,
    target_lengths: te.Tensor,
    *,
    blank: Any = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> te.Tensor:
    """Minus the log probability of each target, over all its alignments to the first `input_lengths[n]` steps.

    `log_probs[t, n, c]` are log probabilities of the classes, `targets[n, s]` labels of which `target_lengths[n]` count.
    `reduction="mean"` divides by the target lengths (at least 1) before the mean over the batch, as in PyTorch. A target that
    does not fit has an infinite loss; with `zero_infinity` a loss of 0 without gradient.

    PyTorch's gradient by `log_probs` is that of a log_softmax before it, this one is that of the function; behind a `log_softmax` they
    are equal.

    >>> log_probs = np.log(np.full((2, 1, 2), 0.5))  # two steps, blank and one letter
    >>> float(kernels.ctc_loss(log_probs, np.array([[1]]), np.array([2]), np.array([1])).round(4))  # three of four paths
    0.2877
    """
    _checked(log_probs, targets, (input_lengths, target_lengths), blank)
    one_of("reduction", reduction, REDUCTIONS)
    times, batch, _ = log_probs.shape
    dtype = log_probs.dtype
    states = 2 * targets.shape[1] + 1

    def label(n: Any, s: Any) -> te.Scalar:
        return te.where(s % 2 == 1, te.cast(targets.read(n, s // 2, outside=blank), "int64"), blank)

    labels = te.compute((batch, states), label, name="labels")

    def emitted(t: Any, n: Any, s: Any) -> te.Scalar:
        return te.where(s <= 2 * target_lengths[n], log_probs[t, n, labels[n, s]], te.cast(-math.inf, dtype))

    emission = te.compute((times, batch, states), emitted, name="emission")
    skips = te.compute(
        (batch, states),
        lambda n, s: (s % 2 == 1) & (s >= 2) & (labels[n, s] != labels.read(n, s - 2, outside=blank)),
        name="skips",
    )

    def step(t: Any, alpha: te.Tensor) -> te.Tensor:
        moved = te.compute(alpha.shape, lambda n, s: alpha.read(n, s - 1, outside=-math.inf), name="moved")
        skipped = te.compute(
            alpha.shape, lambda n, s: te.where(skips[n, s], alpha.read(n, s - 2, outside=-math.inf), -math.inf), name="skipped"
        )
        total = _log_sum((alpha, moved, skipped))
        return te.compute(
            alpha.shape, lambda n, s: te.where(t < input_lengths[n], total[n, s] + emission[t, n, s], alpha[n, s]), name="alpha"
        )

    start = te.compute((batch, states), lambda n, s: te.where(s == 0, te.cast(0, dtype), te.cast(-math.inf, dtype)), name="start")
    alpha = te.scan(step, start, times, name="alpha")

    def last(back: int) -> te.Tensor:
        """The probability of ending in the last state but `back`; the last steps repeat the state where a sequence ended."""

        def body(n: Any) -> Any:
            place = 2 * target_lengths[n] - back
            return te.max(lambda s: alpha[times - 1, n, s], states, where=lambda s: s == place)

        return te.compute((batch,), body, name="last")

    total = _log_sum((last(0), last(1)))

    def scaled(n: Any) -> Any:
        value = -total[n]
        if zero_infinity:
            value = te.where(total[n] == -math.inf, 0, value)
        return value / te.cast(te.maximum(target_lengths[n], 1), dtype) if reduction == "mean" else value

    return reduced(te.compute((batch,), scaled, name="loss"), reduction)
