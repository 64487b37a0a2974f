"""Normalization: values brought to mean 0 and variance 1 over some axes, or to norm 1, then scaled and shifted.

One definition serves batches, layers, groups and instances: they differ in the axes that share their statistics. The variance is
taken in two passes (the mean first, then the squares of what is left), so it neither cancels nor goes below 0. Statistics of
16-bit inputs are carried in float32. Each statistic is a tensor of its own: computed once, kept, and read by the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least, at_least_axes, bad, floating, is_int, known, product, shaped
from tensorexpr.kernels.conventions.axes import along, drop, normalized, numbers_too
from tensorexpr.kernels.reductions.norms import norm

Place = Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]
"""Indices of a statistic and of what it is taken over, to indices of the input."""


def carrier(x: te.Tensor) -> str:
    """The dtype in which statistics of `x` are carried: its own, float32 for 16-bit floats, float64 for integers."""
    own = floating(x)
    return "float32" if own.bits < 32 else own.name


def moments(x: te.Tensor, kept: Any, over: Any, place: Place) -> tuple[te.Tensor, te.Tensor]:
    """Mean and biased variance: tensors of shape `kept`, each over the extents `over`, which `place` finds in `x`."""
    wide = carrier(x)
    count = te.cast(product(over), wide)
    mean = te.compute(kept, lambda *i: te.sum(lambda *k: te.cast(x[place(i, k)], wide), over) / count, name="mean")
    var = te.compute(kept, lambda *i: te.sum(lambda *k: te.square(te.cast(x[place(i, k)], wide) - mean[i]), over) / count, name="var")
    return mean, var


def _standardized(
    x: te.Tensor, mean: te.Tensor, var: te.Tensor, scale: Callable[..., Any] | None, shift: Callable[..., Any] | None, eps: float, at: Any
) -> te.Tensor:
    """`(x - mean) / sqrt(var + eps) * scale + shift`; `at` takes the indices of `x` to those of its statistics."""
    inverse = te.compute(var.shape, lambda *i: te.rsqrt(te.cast(var[i], carrier(x)) + eps), name="inverse")

    def value(*i: Any) -> Any:
        y = (x[i] - mean[at(i)]) * inverse[at(i)]
        y = y if scale is None else y * scale(i)
        return te.cast(y if shift is None else y + shift(i), floating(x))

    return te.compute(x.shape, value)


def _per_channel(x: te.Tensor, vector: te.Tensor | None, what: str) -> Callable[..., Any] | None:
    if vector is None:
        return None
    shaped(vector, (x.shape[1],), f"one {what} per channel, axis 1 of {x.name}")
    return lambda i: vector[i[1]]


def _last_axes(x: te.Tensor, given: tuple[te.Tensor | None, ...], normalized_shape: Any) -> tuple[Any, ...]:
    """The trailing extents that are normalized: as said, or the shape of the weight, or the last axis."""
    weights = [w for w in given if w is not None]
    if normalized_shape is None:
        normalized_shape = weights[0].shape if weights else x.shape[-1:]
    trailing = (normalized_shape,) if is_int(normalized_shape) else tuple(normalized_shape)
    rank = len(trailing)
    fits = 1 <= rank <= len(x.shape) and not any(known(a, b) and a != b for a, b in zip(trailing, x.shape[-rank:], strict=False))
    if not fits:
        raise bad(f"normalized_shape: expected the last extents of {x.name}, whose shape is {x.shape}, got {trailing}")
    for weight in weights:
        shaped(weight, trailing, "the normalized shape")
    return x.shape[-rank:]


@te.op
def batch_norm(
    x: te.Tensor,
    running_mean: te.Tensor | None = None,
    running_var: te.Tensor | None = None,
    weight: te.Tensor | None = None,
    bias: te.Tensor | None = None,
    *,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> te.Tensor | tuple[te.Tensor, ...]:
    """`y[n, c, ..] = (x[n, c, ..] - mean[c]) / sqrt(var[c] + eps) * weight[c] + bias[c]` for x (N, C, ...).

    With `training` the mean and biased variance are those of the batch (over all axes but 1), and where running statistics
    are given the result is `(y, new_mean, new_var)`: `(1 - momentum) * running + momentum * batch`, the variance unbiased, as
    PyTorch updates them in place. Without `training` the running statistics are used, and must be given. All vectors are (C,).

    >>> kernels.batch_norm(np.array([[1.0, 10.0], [3.0, 10.0]]), training=True, eps=0.01).round(4)
    array([[-0.995,  0.   ],
           [ 0.995,  0.   ]])
    """
    at_least_axes("batch_norm", x, 2, "batch, channels, ...")
    if (running_mean is None) != (running_var is None):
        raise bad("batch_norm: expected running_mean and running_var together, got one of them")
    scale, shift = _per_channel(x, weight, "weight"), _per_channel(x, bias, "bias")
    _per_channel(x, running_mean, "mean")
    _per_channel(x, running_var, "variance")
    if not training:
        if running_mean is None or running_var is None:
            raise bad("batch_norm: expected running_mean and running_var, got None", "training=True takes the statistics of the batch")
        return _standardized(x, running_mean, running_var, scale, shift, eps, lambda i: (i[1],))
    over = drop(x.shape, 1)
    mean, var = moments(x, (x.shape[1],), over, lambda c, k: along(k, 1, c[0]))
    y = _standardized(x, mean, var, scale, shift, eps, lambda i: (i[1],))
    if running_mean is None or running_var is None:
        return y
    count = te.cast(product(over), carrier(x))

    def moved(old: te.Tensor, new: Callable[[Any], Any], name: str) -> te.Tensor:
        return te.compute(old.shape, lambda c: te.cast((1 - momentum) * old[c] + momentum * new(c), floating(old)), name=name)

    new_mean = moved(running_mean, lambda c: mean[c], "new_mean")
    new_var = moved(running_var, lambda c: var[c] * count / (count - 1), "new_var")
    return y, new_mean, new_var


@te.op
def layer_norm(
    x: te.Tensor, weight: te.Tensor | None = None, bias: te.Tensor | None = None, *, normalized_shape: Any = None, eps: float = 1e-5
) -> te.Tensor:
    """`y[i, j] = (x[i, j] - mean[i]) / sqrt(var[i] + eps) * weight[j] + bias[j]`, with i the leading and j the trailing axes.

    `normalized_shape`: the trailing extents (an int, or a tuple of any rank) that share a mean and biased variance; by default
    the shape of `weight` or `bias`, else the last axis. Shape and dtype of `x`. Ba, Kiros, Hinton 2016.

    >>> kernels.layer_norm(np.array([[1.0, 3.0], [10.0, 30.0]]), np.array([1.0, 2.0])).round(4)
    array([[-1.,  2.],
           [-1.,  2.]])
    """
    over = _last_axes(x, (weight, bias), normalized_shape)
    lead = len(x.shape) - len(over)
    mean, var = moments(x, x.shape[:lead], over, lambda i, k: (*i, *k))
    scale = None if weight is None else lambda i: weight[i[lead:]]
    shift = None if bias is None else lambda i: bias[i[lead:]]
    return _standardized(x, mean, var, scale, shift, eps, lambda i: i[:lead])


@te.op
def rms_norm(x: te.Tensor, weight: te.Tensor | None = None, *, normalized_shape: Any = None, eps: Any = None) -> te.Tensor:
    """`y[i, j] = x[i, j] / sqrt(mean_k x[i, k]^2 + eps) * weight[j]`, with i the leading and j the trailing axes.

    `normalized_shape` as in `layer_norm`; `eps` is the resolution of the dtype of `x` by default. Zhang, Sennrich 2019.

    >>> kernels.rms_norm(np.array([[3.0, 4.0]])).round(4)
    array([[0.8485, 1.1314]])
    """
    over = _last_axes(x, (weight,), normalized_shape)
    lead = len(x.shape) - len(over)
    wide = carrier(x)
    small = float(np.finfo(wide).eps) if eps is None else eps
    inverse = te.compute(
        x.shape[:lead],
        lambda *i: te.rsqrt(te.sum(lambda *k: te.square(te.cast(x[(*i, *k)], wide)), over) / te.cast(product(over), wide) + small),
        name="inverse",
    )

    def value(*i: Any) -> Any:
        y = x[i] * inverse[i[:lead]]
        return te.cast(y if weight is None else y * weight[i[lead:]], floating(x))

    return te.compute(x.shape, value)


@te.op
def group_norm(
    x: te.Tensor, weight: te.Tensor | None = None, bias: te.Tensor | None = None, *, num_groups: Any, eps: float = 1e-5
) -> te.Tensor:
    """Channels of x (N, C, ...) in `num_groups` equal groups, each with the other axes brought to mean 0 and variance 1.

    `y[n, c, ..] = (x[n, c, ..] - mean[n, c // (C/G)]) / sqrt(var[n, c // (C/G)] + eps) * weight[c] + bias[c]`. The channels
    must be known and a multiple of `num_groups`. Wu, He 2018.

    >>> kernels.group_norm(np.array([[1.0, 3.0, 10.0, 30.0]]), num_groups=2).round(4)
    array([[-1.,  1., -1.,  1.]])
    """
    at_least_axes("group_norm", x, 2, "batch, channels, ...")
    at_least("num_groups", num_groups, 1)
    n, channels, *rest = x.shape
    if not is_int(channels) or channels % num_groups:
        raise bad(f"num_groups: expected a divisor of the {channels} channels of {x.name}, got {num_groups}")
    size = channels // num_groups
    mean, var = moments(x, (n, num_groups), (size, *rest), lambda i, k: (i[0], i[1] * size + k[0], *k[1:]))
    scale, shift = _per_channel(x, weight, "weight"), _per_channel(x, bias, "bias")
    return _standardized(x, mean, var, scale, shift, eps, lambda i: (i[0], i[1] // size))


@te.op
def instance_norm(
    x: te.Tensor,
    running_mean: te.Tensor | None = None,
    running_var: te.Tensor | None = None,
    weight: te.Tensor | None = None,
    bias: te.Tensor | None = None,
    *,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> te.Tensor:
    """`y[n, c, ..] = (x[n, c, ..] - mean[n, c]) / sqrt(var[n, c] + eps) * weight[c] + bias[c]` for x (N, C, ...).

    Statistics are those of each channel of each item; without `use_input_stats` the running ones (C,), which must be given (and are
    not updated, whatever `momentum` is). Ulyanov, Vedaldi, Lempitsky 2016.

    >>> kernels.instance_norm(np.array([[[1.0, 3.0], [10.0, 30.0]]])).round(4)
    array([[[-1.,  1.],
            [-1.,  1.]]])
    """
    at_least_axes("instance_norm", x, 3, "batch, channels, places")
    scale, shift = _per_channel(x, weight, "weight"), _per_channel(x, bias, "bias")
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise bad("instance_norm: expected running_mean and running_var, got None", "use_input_stats=True takes those of each item")
        _per_channel(x, running_mean, "mean")
        _per_channel(x, running_var, "variance")
        return _standardized(x, running_mean, running_var, scale, shift, eps, lambda i: (i[1],))
    mean, var = moments(x, x.shape[:2], x.shape[2:], lambda i, k: (*i, *k))
    return _standardized(x, mean, var, scale, shift, eps, lambda i: i[:2])


@te.op
def local_response_norm(x: te.Tensor, *, size: Any, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> te.Tensor:
    """`y[n, c, ..] = x[n, c, ..] / (k + alpha / size * sum_d x[n, d, ..]^2)^beta`, d from `c - size // 2` to `c + (size - 1) // 2`.

    Channels beyond the first and last count as 0. Krizhevsky, Sutskever, Hinton 2012.

    >>> kernels.local_response_norm(np.array([[[1.0], [2.0]]]), size=2, alpha=2.0, beta=1.0)
    array([[[0.5       ],
            [0.33333333]]])
    """
    at_least_axes("local_response_norm", x, 3, "batch, channels, places")
    at_least("size", size, 1)

    def energy(n: Any, c: Any, *i: Any) -> Any:
        return te.sum(lambda d: te.square(x.read(n, c + d - size // 2, *i, outside=0.0)), size)

    divisor = te.compute(x.shape, lambda *i: k + alpha / size * energy(*i), name="divisor")
    return te.compute(x.shape, lambda *i: x[i] * te.power(divisor[i], -beta))


def norms(x: te.Tensor, p: float, kept: Any, over: Any, place: Place, name: str) -> te.Tensor:
    """The p-norm over the extents `over`: a tensor of shape `kept`. The gradient at a norm of 0 is 0."""
    if p == 1:
        return te.compute(kept, lambda *i: te.sum(lambda *k: te.abs(x[place(i, k)]), over), name=name)
    if p == np.inf:
        return te.compute(kept, lambda *i: te.max(lambda *k: te.abs(x[place(i, k)]), over), name=name)

    def term(value: Any) -> Any:
        return te.square(value) if p == 2 else te.power(te.abs(value), p)

    total = te.compute(kept, lambda *i: te.sum(lambda *k: term(x[place(i, k)]), over), name="total")

    def root(value: Any) -> Any:
        return te.sqrt(value) if p == 2 else te.power(value, 1 / p)

    # The root has no finite slope at 0: the branch that is not taken gives none.
    return te.compute(kept, lambda *i: te.where(total[i] > 0, root(total[i]), 0.0), name=name)


@te.op
@numbers_too
def normalize(x: te.Tensor, *, p: float = 2.0, axis: Any = 1, eps: float = 1e-12) -> te.Tensor:
    """`y[.., i, ..] = x[.., i, ..] / max(norm, eps)`, `norm = (sum_k |x[.., k, ..]|^p)^(1/p)` along `axis`; any `p` of `norm`.

    >>> kernels.normalize(np.array([[3.0, 4.0]]))
    array([[0.6, 0.8]])
    """
    axis = normalized(axis, x)
    if not isinstance(p, (int, float)):
        raise bad(f"normalize: expected a number for p, got {p!r}")
    if p > 0:
        length = norms(x, p, drop(x.shape, axis), (x.shape[axis],), lambda i, k: along(i, axis, k[0]), "length")
    else:
        length = norm.function(x, p=p, axis=axis)
    return te.compute(x.shape, lambda *i: x[i] / te.maximum(length[drop(i, axis)], eps))


@te.op
def weight_norm(v: te.Tensor, g: te.Tensor, *, axis: Any = 0) -> te.Tensor:
    """`w[.., i, ..] = g[.., i, ..] * v[.., i, ..] / |v[.., i, ..]|`: each slice of `v` at an index of `axis` has norm `g`.

    `g` has the rank of `v` and extent 1 on all axes but `axis`. Salimans, Kingma 2016.

    >>> kernels.weight_norm(np.array([[3.0, 4.0], [0.0, 2.0]]), np.array([[5.0], [1.0]]))
    array([[3., 4.],
           [0., 1.]])
    """
    axis = normalized(axis, v)
    shaped(g, [n if k == axis else 1 for k, n in enumerate(v.shape)], "one length per slice of v")
    length = norms(v, 2, (v.shape[axis],), drop(v.shape, axis), lambda i, k: along(k, axis, i[0]), "length")
    return te.compute(v.shape, lambda *i: v[i] * (g[tuple(j if k == axis else 0 for k, j in enumerate(i))] / length[i[axis]]))
