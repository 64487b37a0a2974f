"""Losses over classes: a score per class (axis 1; axis 0 of a vector), a target that is a class, or a number per class.

Log probabilities are `x - m - log sum exp(x - m)`, so scores of any size are fine. The score of the target class is read where it is;
in the gradient each score asks whether it is that of the target, in the same pass that writes the rest. A class out of range is an
`IndexError` as the program runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, known, one_of
from tensorexpr.kernels.conventions.axes import along, drop, vector
from tensorexpr.kernels.conventions.broadcasting import at, broadcast_shape, same
from tensorexpr.kernels.elementwise.activations import log_sigmoid_of
from tensorexpr.kernels.losses.losses import REDUCTIONS, reduced
from tensorexpr.kernels.reductions.reductions import Fold, like, over, shift, wide


def _picked(x: te.Tensor, target: te.Tensor, axis: int, ignore: int | None = None) -> te.Tensor:
    """`x` at the target class of each place, 0 where the target is to be ignored."""

    def body(*row: Any) -> te.Scalar:
        value = x[along(row, axis, target[row])]
        return value if ignore is None else te.where(target[row] == ignore, 0, value)

    return te.compute(target.shape, body, name="picked")


def _class_axis(name: str, x: te.Tensor) -> int:
    if not x.ndim:
        raise bad(f"{name}: expected an input of at least 1 axis (classes), got 0")
    return 1 if x.ndim > 1 else 0


def _targets(name: str, x: te.Tensor, target: te.Tensor, axis: int) -> None:
    rows = drop(x.shape, axis)
    if not target.dtype.is_integer:
        raise bad(f"{name}: expected a target of integers (classes), got {target.dtype.name}")
    if target.ndim != len(rows) or not all(map(same, target.shape, rows)):
        raise bad(f"{name}: expected a target of shape {rows}, one class per place, got {target.shape}")


def _weights(name: str, x: te.Tensor, weight: te.Tensor | None, axis: int) -> None:
    if weight is not None and (weight.ndim != 1 or not same(weight.shape[0], x.shape[axis])):
        raise bad(f"{name}: expected a weight of shape ({x.shape[axis]},), one per class, got {weight.shape}")


def _averaged(loss: te.Tensor, weights: Callable[[Any], Any], reduction: str) -> te.Tensor:
    """The sum of `loss` over that of `weights(place)`, or as `reduced` says."""
    if reduction != "mean":
        return reduced(loss, reduction)
    fold = Fold(loss, None)

    def body() -> Any:
        total = fold.over(te.sum, (), lambda i: wide(loss[i])) / fold.over(te.sum, (), lambda i: wide(weights(i)))
        return like(total, loss)

    return te.compute((), body)


@te.op
def nll_loss(
    input: te.Tensor, target: te.Tensor, weight: te.Tensor | None = None, *, ignore_index: Any = -100, reduction: str = "mean"
) -> te.Tensor:
    """`-weight[t] * input[n, t]` at the target class t of log probabilities: classes on axis 1 (axis 0 of a vector).

    Targets equal to `ignore_index` count nothing; the mean is over the weights of the others.

    >>> log_p = np.log(np.array([[0.5, 0.5], [0.25, 0.75]]))
    >>> kernels.nll_loss(log_p, np.array([0, 0]), reduction="none").round(4)
    array([0.6931, 1.3863])
    """
    axis = _class_axis("nll_loss", input)
    _targets("nll_loss", input, target, axis)
    _weights("nll_loss", input, weight, axis)
    one_of("reduction", reduction, REDUCTIONS)
    counted = _counted(target, weight, input, ignore_index)
    picked = _picked(input, target, axis, ignore_index)
    loss = te.compute(target.shape, lambda *i: -picked[i] if weight is None else -counted(i) * picked[i], name="loss")
    return _averaged(loss, counted, reduction)


def _counted(target: te.Tensor, weight: te.Tensor | None, x: te.Tensor, ignore: int) -> Callable[[Any], Any]:
    """What a place counts: the weight of its class, 1 without weights; 0 where it is ignored."""
    return lambda i: te.where(target[i] == ignore, 0, te.cast(1, x.dtype) if weight is None else weight[target[i]])


@te.op
def cross_entropy(
    input: te.Tensor,
    target: te.Tensor,
    weight: te.Tensor | None = None,
    *,
    ignore_index: Any = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> te.Tensor:
    """The cross-entropy of softmax(input) from the target: classes on axis 1 (axis 0 of a vector), any axes after.

    A target of integers has the shape without that axis: the loss of a place is `-w[t] log p[t]`; with smoothing s it is
    `-(1 - s) w[t] log p[t] - s / C sum_c w[c] log p[c]`. Targets equal to `ignore_index` count nothing; the mean is over the weights
    `w[t]` of the others. A floating target has the shape of `input`, a probability for each class: `-sum_c w[c] q[c] log p[c]`, with
    `q = (1 - s) target + s / C`; the mean is over all places.

    >>> logits = np.array([[0.0, 0.0], [0.0, 100.0]])  # two items, two classes
    >>> kernels.cross_entropy(logits, np.array([0, 1]), reduction="none").round(4)
    array([0.6931, 0.    ])
    """
    axis = _class_axis("cross_entropy", input)
    _weights("cross_entropy", input, weight, axis)
    one_of("reduction", reduction, REDUCTIONS)
    if not 0 <= label_smoothing <= 1:
        raise bad(f"cross_entropy: expected a label_smoothing between 0 and 1, got {label_smoothing!r}")
    smoothing, classes = float(label_smoothing), input.shape[axis]
    fold = Fold(input, axis)
    top = shift(input, fold)
    total = te.compute(fold.rows, lambda *r: te.log(fold.over(te.sum, r, lambda i: te.exp(wide(input[i]) - top[r]))), name="total")

    def surprise(i: Any) -> Any:
        """-log p of a class at a place."""
        row = fold.row(i)
        return total[row] - (wide(input[i]) - top[row])

    def heavy(value: Any, i: Any) -> Any:
        return value if weight is None else weight[i[axis]] * value

    if target.dtype.is_float:
        if target.ndim != input.ndim or not all(map(same, target.shape, input.shape)):
            hint = "a target of floats has a probability for each class; one of labels has integers"
            raise bad(f"cross_entropy: expected probabilities of shape {input.shape}, got {target.shape}", hint)

        def expected(i: Any) -> Any:
            share = (1 - smoothing) * target[i] + over(te.cast(smoothing, input.dtype), classes) if smoothing else target[i]
            return heavy(share * surprise(i), i)

        loss = te.compute(fold.rows, lambda *r: like(fold.over(te.sum, r, expected), input), name="loss")
        return reduced(loss, reduction)

    _targets("cross_entropy", input, target, axis)
    counted = _counted(target, weight, input, ignore_index)
    picked = _picked(input, target, axis, ignore_index)

    def body(*r: Any) -> Any:
        value = total[r] - (wide(picked[r]) - top[r])
        value = value if weight is None else weight[target[r]] * value
        if smoothing:
            spread = fold.over(te.sum, r, lambda i: heavy(surprise(i), i))
            value = (1 - smoothing) * value + over(smoothing * spread, classes)
        return like(te.where(target[r] == ignore_index, 0, value), input)

    return _averaged(te.compute(fold.rows, body, name="loss"), counted, reduction)


@te.op
def multi_margin_loss(
    input: te.Tensor, target: te.Tensor, weight: te.Tensor | None = None, *, p: Any = 1, margin: float = 1.0, reduction: str = "mean"
) -> te.Tensor:
    """`sum over c != t of max(0, margin - x[t] + x[c])^p * weight[t] / C` for scores x of the classes and the target class t.

    Scores of one axis with a target of one are a batch of one, as in PyTorch.

    >>> float(kernels.multi_margin_loss(np.array([[0.5, 1.0, 0.0]]), np.array([1])).round(4))  # class 0 is 0.5 too near, of 3 classes
    0.1667
    """
    if input.ndim < 2:
        input = vector(input)
        if target.ndim == 1:
            input = te.compute((1, *input.shape), lambda _, c, x=input: x[c])
    axis = _class_axis("multi_margin_loss", input)
    if input.ndim > 2:
        raise bad(f"multi_margin_loss: expected an input of 1 or 2 axes, got {input.ndim}")
    if known(input.shape[axis]) and input.shape[axis] == 0:
        raise bad("multi_margin_loss: expected at least one class, got none")
    one_of("p", p, (1, 2))
    _targets("multi_margin_loss", input, target, axis)
    _weights("multi_margin_loss", input, weight, axis)
    picked = _picked(input, target, axis)
    fold = Fold(input, axis)

    def body(*r: Any) -> Any:
        def short(i: Any) -> te.Scalar:
            gap = margin - picked[r] + input[i]
            return te.where((gap <= 0) | (i[axis] == target[r]), 0, gap if p == 1 else gap**2)

        value = over(fold.over(te.sum, r, short), input.shape[axis])
        return value if weight is None else weight[target[r]] * value

    return reduced(te.compute(fold.rows, body, name="loss"), reduction)


@te.op
def multilabel_margin_loss(input: te.Tensor, target: te.Tensor, *, reduction: str = "mean") -> te.Tensor:
    """`sum over j, c of max(0, 1 - x[t[j]] + x[c]) / C`, t the classes of `target` before its first -1, c all others.

    >>> kernels.multilabel_margin_loss(np.array([[1.5, 2.0, 0.0, 0.0]]), np.array([[1, -1, 0, 0]]))  # 0.5 too near, of 4 classes
    array(0.125)
    """
    input, target = vector(input), vector(target)
    axis = _class_axis("multilabel_margin_loss", input)
    if input.ndim > 2 or target.ndim != input.ndim or not all(map(same, input.shape, target.shape)) or not target.dtype.is_integer:
        raise bad(
            f"multilabel_margin_loss: expected an input of 1 or 2 axes and a target of integers of its shape, "
            f"got {input.shape} and {target.dtype.name} {target.shape}"
        )
    size = input.shape[axis]

    def meant(*i: Any) -> te.Scalar:
        """Whether the target has not ended there."""
        return te.all(lambda k: target[along(drop(i, axis), axis, k)] >= 0, i[axis] + 1)

    valid = te.compute(target.shape, meant, name="valid")

    def among(*i: Any) -> te.Scalar:
        """Whether a class is one of the targets."""
        row = drop(i, axis)
        return te.any(lambda j: valid[along(row, axis, j)] & (target[along(row, axis, j)] == i[axis]), size)

    chosen = te.compute(input.shape, among, name="chosen")

    def body(*r: Any) -> te.Scalar:
        def short(j: Any, c: Any) -> te.Scalar:
            place = along(r, axis, j)
            gap = 1 - input[along(r, axis, target[place])] + input[along(r, axis, c)]
            return te.where(gap <= 0, 0, gap)

        def counts(j: Any, c: Any) -> te.Scalar:
            return valid[along(r, axis, j)] & ~chosen[along(r, axis, c)]

        return over(te.sum(short, (size, size), where=counts), size)

    return reduced(te.compute(drop(input.shape, axis), body, name="loss"), reduction)


@te.op
def multilabel_soft_margin_loss(
    input: te.Tensor, target: te.Tensor, weight: te.Tensor | None = None, *, reduction: str = "mean"
) -> te.Tensor:
    """`-mean_c w[c] (t log s(x) + (1 - t) log s(-x))` over the last axis, s the sigmoid, targets t 0 or 1.

    >>> float(kernels.multilabel_soft_margin_loss(np.array([[0.0, 100.0]]), np.array([[1.0, 1.0]])).round(4))
    0.3466
    """
    if not input.ndim:
        raise bad("multilabel_soft_margin_loss: expected an input of at least 1 axis, got 0")
    shapes = [x.shape for x in (input, target, weight) if x is not None]
    *rows, size = broadcast_shape("multilabel_soft_margin_loss", *shapes)

    def body(*r: Any) -> te.Scalar:
        def one(c: Any) -> Any:
            x, t = at(input, (*r, c)), te.cast(at(target, (*r, c)), input.dtype)
            value = (1 - t) * x - log_sigmoid_of(x)
            return value if weight is None else at(weight, (*r, c)) * value

        return over(te.sum(one, size), size)

    return reduced(te.compute(tuple(rows), body, name="loss"), reduction)


@te.op
def dice_loss(input: te.Tensor, target: te.Tensor, *, smooth: float = 1.0, reduction: str = "mean") -> te.Tensor:
    """`1 - (2 sum x t + smooth) / (sum x + sum t + smooth)` of each item of the batch (axis 0), probabilities x and targets t
    (Milletari, Navab & Ahmadi, 2016).

    >>> float(kernels.dice_loss(np.array([[1.0, 1.0, 0.0, 0.0]]), np.array([[1.0, 0.0, 0.0, 0.0]]), smooth=0.0).round(4))
    0.3333
    """
    if input.ndim < 2 or target.ndim != input.ndim or not all(map(same, input.shape, target.shape)):
        raise bad(f"dice_loss: expected an input of at least 2 axes and a target of its shape, got {input.shape} and {target.shape}")
    fold = Fold(input, tuple(range(1, input.ndim)))

    def body(*r: Any) -> te.Scalar:
        both = fold.over(te.sum, r, lambda i: input[i] * te.cast(target[i], input.dtype))
        return 1 - (2 * both + smooth) / (fold.over(te.sum, r, lambda i: input[i] + te.cast(target[i], input.dtype)) + smooth)

    return reduced(te.compute(fold.rows, body, name="loss"), reduction)
