"""Distances and similarities of vectors, and losses that compare them with a margin.

A hinge `max(0, v)` has derivative 1 at 0, as in PyTorch. Norms have gradient 0 at the zero vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, is_int
from tensorexpr.kernels.conventions.axes import along, drop, vector
from tensorexpr.kernels.conventions.broadcasting import at, broadcast_shape, pointwise
from tensorexpr.kernels.losses.losses import paired, reduced
from tensorexpr.kernels.reductions.norms import norm


def _hinge(value: Any) -> te.Scalar:
    return te.where(value < 0, 0, value)


@te.op
def pairwise_distance(x1: te.Tensor, x2: te.Tensor, *, p: Any = 2, eps: float = 1e-6, keepdims: bool = False) -> te.Tensor:
    """The p-norm of `x1 - x2 + eps` along the last axis, the others broadcast.

    >>> kernels.pairwise_distance(np.array([[3.0, 4.0]]), np.array([[0.0, 0.0]])).round(4)
    array([5.])
    """
    shape = broadcast_shape("pairwise_distance", x1.shape, x2.shape)
    if not shape:
        raise bad("pairwise_distance: expected vectors along the last axis, got numbers")
    apart = te.compute(shape, lambda *i: at(x1, i) - at(x2, i) + eps, name="apart")
    return norm(apart, p=p, axis=-1, keepdims=keepdims)


@te.op
def cosine_similarity(x1: te.Tensor, x2: te.Tensor, *, axis: Any = 1, eps: float = 1e-8) -> te.Tensor:
    """`x1 . x2 / (max(|x1|, eps) max(|x2|, eps))` along `axis`, the other axes broadcast; no gradient through a norm below `eps`.

    >>> kernels.cosine_similarity(np.array([[1.0, 0.0]]), np.array([[3.0, 4.0]])).round(4)
    array([0.6])
    """
    x1, x2 = vector(x1), vector(x2)
    shape = broadcast_shape("cosine_similarity", x1.shape, x2.shape)
    rank = len(shape)
    if not is_int(axis) or not -rank <= axis < rank:
        raise bad(f"cosine_similarity: expected an axis between {-rank} and {rank - 1}, got {axis!r}")
    axis %= rank
    lengths = [_length(x, shape, axis, eps) for x in (x1, x2)]

    def body(*row: Any) -> Any:
        def term(k: Any) -> Any:
            i = along(row, axis, k)
            return at(x1, i) * at(x2, i)

        place = along(row, axis, 0)
        return te.sum(term, shape[axis]) / (at(lengths[0], place) * at(lengths[1], place))

    return te.compute(drop(shape, axis), body)


def _length(x: te.Tensor, shape: Sequence[Any], axis: int, eps: float) -> te.Tensor:
    """The 2-norm along `axis` of `x` broadcast to `shape` there (and not elsewhere), at least `eps`; that axis has extent 1."""
    own = (1,) * (len(shape) - x.ndim) + tuple(x.shape)

    def squares(*i: Any) -> te.Scalar:
        return te.sum(lambda k: at(x, along(drop(i, axis), axis, k)) ** 2, shape[axis])

    total = te.compute(along(drop(own, axis), axis, 1), squares, name="squares")
    return te.compute(total.shape, lambda *i: te.where(total[i] < eps**2, eps, te.sqrt(total[i])), name="length")


@te.op
def cosine_embedding_loss(
    input1: te.Tensor, input2: te.Tensor, target: te.Tensor, *, margin: float = 0.0, reduction: str = "mean"
) -> te.Tensor:
    """`1 - cos(x1, x2)` for targets 1, `max(0, cos(x1, x2) - margin)` for -1, 0 for others; vectors along the last axis.

    >>> x, y = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [2.0, 0.0]])
    >>> kernels.cosine_embedding_loss(x, y, np.array([1, 1]), reduction="none")
    array([1., 0.])
    """
    likeness = cosine_similarity(input1, input2, axis=-1)

    def body(likeness: Any, t: Any) -> te.Scalar:
        return te.where(t == 1, 1 - likeness, te.where(t == -1, _hinge(likeness - margin), 0))

    return reduced(paired("cosine_embedding_loss", body, likeness, target), reduction)


@te.op
def hinge_embedding_loss(input: te.Tensor, target: te.Tensor, *, margin: float = 1.0, reduction: str = "mean") -> te.Tensor:
    """`input` (a distance) for targets 1, `max(0, margin - input)` for -1, and for others their sum, as in PyTorch.

    >>> kernels.hinge_embedding_loss(np.array([0.5, 0.5, 2.0]), np.array([1, -1, -1]), reduction="none")
    array([0.5, 0.5, 0. ])
    """

    def body(x: Any, t: Any) -> te.Scalar:
        return te.where(t == -1, 0, x) + te.where(t == 1, 0, _hinge(margin - x))

    return reduced(paired("hinge_embedding_loss", body, input, target), reduction)


@te.op
def margin_ranking_loss(
    input1: te.Tensor, input2: te.Tensor, target: te.Tensor, *, margin: float = 0.0, reduction: str = "mean"
) -> te.Tensor:
    """`max(0, margin - target * (input1 - input2))`: targets 1 want input1 to rank higher, -1 lower.

    >>> kernels.margin_ranking_loss(np.array([1.0, 1.0]), np.array([0.0, 2.0]), np.array([1, 1]), margin=0.5, reduction="none")
    array([0. , 1.5])
    """

    def body(a: Any, b: Any, t: Any) -> te.Scalar:
        return _hinge(margin - t * (a - b))

    return reduced(paired("margin_ranking_loss", body, input1, input2, target), reduction)


@te.op
def triplet_margin_loss(
    anchor: te.Tensor,
    positive: te.Tensor,
    negative: te.Tensor,
    *,
    margin: float = 1.0,
    p: Any = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> te.Tensor:
    """`max(0, margin + d(a, p) - d(a, n))`, d the `pairwise_distance` along the last axis (Balntas et al., 2016).

    `swap=True` takes the lesser of d(a, n) and d(p, n).

    >>> anchor, near, far = np.array([[0.0, 0.0]]), np.array([[1.0, 0.0]]), np.array([[0.0, 1.5]])
    >>> float(kernels.triplet_margin_loss(anchor, near, far).round(4))  # 1 + 1 - 1.5
    0.5
    """
    near = pairwise_distance(anchor, positive, p=p, eps=eps)
    far = pairwise_distance(anchor, negative, p=p, eps=eps)
    if swap:
        far = pointwise("triplet_margin_loss", te.minimum, far, pairwise_distance(positive, negative, p=p, eps=eps), result="far")
    loss = paired("triplet_margin_loss", lambda a, b: _hinge(margin + a - b), near, far)
    return reduced(loss, reduction)
