"""Rows of a table by number, one by one and in bags.

The gradient of the table sends heads to its rows. An index out of range, negative ones included, is an `OutOfBoundsError` (an `IndexError`)
as the kernel runs.
"""

from __future__ import annotations

from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, integral, is_int, known, one_of, ranked, shaped
from tensorexpr.kernels.rearranging.segments import counts_of, rows_of
from tensorexpr.kernels.reductions.norms import norm


def _padding(row: Any, rows: Any) -> Any:
    """A row of a table that is padding, counted from the front."""
    if not is_int(row) or (known(rows) and not -rows <= row < rows) or (row < 0 and not known(rows)):
        raise bad(f"padding_idx: expected a row of weight, between -{rows} and {rows} - 1, got {row!r}")
    return row + rows if row < 0 else row


def _table(weight: te.Tensor, input: te.Tensor, max_norm: Any, norm_type: Any, scale_grad_by_freq: bool) -> te.Tensor:
    """The rows of `weight` as they are looked up: not longer than `max_norm`, their gradients divided by how often each is read.

    Rows that are shortened pass their gradients on as they are, as in PyTorch (which shortens them in place).
    """
    still = te.stop_gradient(weight)
    if scale_grad_by_freq:
        counts = counts_of((weight.shape[0],), lambda i: (input[i],), input.shape)
        own = weight

        def shared(v: Any, d: Any) -> Any:
            return still[v, d] + (own[v, d] - still[v, d]) / te.cast(te.maximum(counts[v], 1), own.dtype)

        weight = te.compute(weight.shape, shared, name="shared")
    if max_norm is None:
        return weight
    length = te.stop_gradient(norm.function(weight, p=norm_type, axis=1))

    def short(v: Any, d: Any) -> Any:
        value = still[v, d]
        return te.where(length[v] > max_norm, value * (max_norm / (length[v] + 1e-7)), value) + (weight[v, d] - value)

    return te.compute(weight.shape, short, name="short")


@te.op
def embedding(
    input: te.Tensor,
    weight: te.Tensor,
    *,
    padding_idx: Any = None,
    max_norm: Any = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> te.Tensor:
    """`y[.., d] = weight[input[..], d]` for integers `input` of any shape and a table `weight` (V, D).

    The row `padding_idx` is read like any other, but receives no gradient. Rows longer than `max_norm` (in the norm of `norm_type`) are
    read as if they had this length. `scale_grad_by_freq` divides the gradient of a row by how often it is read. Gradients are dense
    whatever `sparse` says.

    >>> table = np.array([[0.0, 0.0], [1.0, 10.0], [2.0, 20.0]])
    >>> kernels.embedding(np.array([2, 1]), table)
    array([[ 2., 20.],
           [ 1., 10.]])
    """
    integral(input, "rows of weight")
    ranked(weight, 2)
    rows, features = weight.shape
    weight = _table(weight, input, max_norm, norm_type, scale_grad_by_freq)
    if padding_idx is None:
        return te.compute((*input.shape, features), lambda *i: weight[input[i[:-1]], i[-1]])
    padding = _padding(padding_idx, rows)
    still = te.stop_gradient(weight)

    def row(*i: Any) -> Any:
        number = input[i[:-1]]
        return te.where(number == padding, still[padding, i[-1]], weight[number, i[-1]])

    return te.compute((*input.shape, features), row)


@te.op
def embedding_bag(
    input: te.Tensor,
    weight: te.Tensor,
    offsets: te.Tensor | None = None,
    per_sample_weights: te.Tensor | None = None,
    *,
    max_norm: Any = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    include_last_offset: bool = False,
    padding_idx: Any = None,
) -> te.Tensor:
    """`y[b, d]` = the sum, mean or max over the bag b of `weight[input[t], d]`, never storing the rows; 0 for an empty bag.

    `input` (B, T): each row is a bag. Or `input` (N,) with `offsets` (B,): bag b is `offsets[b] <= t < offsets[b + 1]`, the last one
    up to N (with `include_last_offset` the last offset says where the last bag ends). `per_sample_weights`, of the shape of
    `input`, multiplies the rows of a sum. What is the row `padding_idx` is not in the bag. Other options are those of `embedding`.

    >>> table = np.array([[1.0], [2.0], [4.0]])
    >>> kernels.embedding_bag(np.array([0, 1, 2]), table, np.array([0, 2]), mode="sum")  # bags of two and of one
    array([[3.],
           [4.]])
    """
    integral(input, "rows of weight")
    ranked(input, 1, 2)
    ranked(weight, 2)
    one_of("mode", mode, ("sum", "mean", "max"))
    if (offsets is None) != (input.ndim == 2):
        raise bad(f"offsets: expected one with an input of 1 axis and none with 2, got an input of {input.ndim}")
    if per_sample_weights is not None:
        shaped(per_sample_weights, input.shape, "one weight per item")
        if mode != "sum":
            raise bad(f"per_sample_weights: expected mode 'sum', got {mode!r}")
    padding = None if padding_idx is None else _padding(padding_idx, weight.shape[0])
    weight = _table(weight, input, max_norm, norm_type, scale_grad_by_freq)

    rows = None if offsets is None else rows_of(offsets, input.shape[0], include_last_offset)
    bags = input.shape[0] if rows is None else rows[1]

    def length(b: Any) -> Any:
        return input.shape[1] if rows is None else rows[2](b)

    def item(b: Any, k: Any) -> tuple[Any, ...]:
        return (b, k) if rows is None else (rows[0](b) + k,)

    def row(b: Any, k: Any, d: Any) -> Any:
        value = weight[input[item(b, k)], d]
        return value if per_sample_weights is None else value * per_sample_weights[item(b, k)]

    def inside(b: Any) -> Any:
        """Which items of a bag count."""
        return None if padding is None else lambda k: input[item(b, k)] != padding

    def size(b: Any) -> Any:
        return length(b) if padding is None else te.sum(lambda k: te.cast(input[item(b, k)] != padding, "int64"), length(b))

    def bag(b: Any, d: Any) -> Any:
        reduction = te.max if mode == "max" else te.sum
        value = reduction(lambda k: row(b, k, d), length(b), where=inside(b))
        if mode == "max":
            return te.where(size(b) > 0, value, 0.0) if offsets is not None or padding is not None else value
        return value / te.cast(te.maximum(size(b), 1), weight.dtype) if mode == "mean" else value

    return te.compute((bags, weight.shape[1]), bag)
