"""The softmax family along one axis: stable (the row's maximum is taken out), each row held once."""

from __future__ import annotations

import tensorexpr as te
from tensorexpr.kernels.axes import along, drop, normalized


@te.op
def softmax(x, *, axis=-1):
    """`y[.., i, ..] = exp(x[i] - m) / sum_k exp(x[k] - m)`, `m = max_k x[k]` along `axis`; shape and dtype of `x`."""
    axis = normalized(axis, x)
    rows = drop(x.shape, axis)
    top = te.compute(rows, lambda *i: te.max(lambda k: x[along(i, axis, k)], x.shape[axis]), name="top")
    total = te.compute(rows, lambda *i: te.sum(lambda k: te.exp(x[along(i, axis, k)] - top[i]), x.shape[axis]), name="total")
    return te.compute(x.shape, lambda *i: te.exp(x[i] - top[drop(i, axis)]) / total[drop(i, axis)])
