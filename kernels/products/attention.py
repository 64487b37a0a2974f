"""Attention: rows of scores, their softmax, and the mean of values under it.

One definition serves all: it is given which columns a row looks at (all, or a band that moves with the row), which of them count
(a mask, causality, the border), and what is added to the scores. What does not count is never computed: affine conditions
become the bounds of loops. Scores are kept in the shape rows x columns (rows x window for a band), never more. The row's maximum
is a shift that cancels, so no gradient is taken of it. A row of which nothing counts gives zeros, as PyTorch's does, and passes
no gradient. Scores and sums of 16-bit inputs are carried in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least, at_least_axes, bad, floating, is_int, known, same_extent, shaped
from tensorexpr.kernels.conventions.broadcasting import at, broadcast_shape
from tensorexpr.kernels.reductions.normalization import carrier


def _check(query: te.Tensor, key: te.Tensor, value: te.Tensor, groups: bool) -> int:
    """The number of query heads for each head of keys (1 without `groups`); the shapes fit."""
    for x in (query, key, value):
        at_least_axes("attention", x, 2, "..., rows, features")
        if len(x.shape) != len(query.shape):
            raise bad(f"attention: expected query, key and value of one rank, got {query.shape}, {key.shape} and {value.shape}")
    same_extent("features of key", key.shape[-1], query.shape[-1])
    same_extent("rows of value", value.shape[-2], key.shape[-2])
    shared = len(query.shape) - 3 if groups else len(query.shape) - 2
    for axis in range(max(shared, 0)):
        same_extent(f"axis {axis} of key", key.shape[axis], query.shape[axis])
    for axis in range(len(query.shape) - 2):
        same_extent(f"axis {axis} of value", value.shape[axis], key.shape[axis])
    if not groups:
        return 1
    at_least_axes("enable_gqa", query, 3, "heads, rows, features")
    heads, fewer = query.shape[-3], key.shape[-3]
    if not is_int(heads) or not is_int(fewer) or fewer == 0 or heads % fewer:
        raise bad(f"enable_gqa: expected a number of query heads that is a multiple of the {fewer} key heads, got {heads}")
    return heads // fewer


def _attend(
    query: te.Tensor,
    key: te.Tensor,
    value: te.Tensor,
    *,
    scale: float | None,
    width: Any = None,
    column: Callable[[Any, Any], Any] = lambda i, j: j,
    counts: Callable[[tuple[Any, ...], Any, Any], Any] | None = None,
    added: Callable[[tuple[Any, ...], Any, Any], Any] | None = None,
    groups: bool = False,
    empty: Any = False,
) -> te.Tensor:
    """`y[b, i] = sum_j softmax_j(scale * q[b, i] . k[b, j] + added(b, i, j)) v[b, j]` over those j for which `counts(b, i, j)`.

    Row i looks at the columns `column(i, d)` for d below `width` (all columns by default). `empty`: a row may have none that counts.
    """
    group = _check(query, key, value, groups)
    wide = carrier(query)
    *batch, rows, features = query.shape
    width = key.shape[-2] if width is None else width

    def theirs(b: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*b[:-1], b[-1] // group) if group > 1 else b

    def factor() -> Any:
        if scale is not None:
            return scale
        return 1 / math.sqrt(features) if is_int(features) else te.rsqrt(te.cast(features, wide))

    def where(b: tuple[Any, ...], i: Any, d: Any) -> Any:
        return None if counts is None else counts(b, i, column(i, d))

    def guarded(b: tuple[Any, ...], i: Any, d: Any, term: Callable[[], Any]) -> Any:
        holds = where(b, i, d)
        return term() if holds is None else te.where(holds, term(), 0.0)

    def dot(b: tuple[Any, ...], i: Any, j: Any) -> Any:
        products = te.sum(lambda e: te.cast(query[(*b, i, e)], wide) * te.cast(key[(*theirs(b), j, e)], wide), features)
        return products * factor() if added is None else products * factor() + te.cast(added(b, i, j), wide)

    def over(reduction: Callable[..., Any], term: Callable[[Any], Any], b: tuple[Any, ...], i: Any) -> Any:
        return reduction(term, width, where=None if counts is None else lambda d: where(b, i, d))

    grid, lines = (*batch, rows, width), (*batch, rows)
    score = te.compute(grid, lambda *x: guarded(x[:-2], x[-2], x[-1], lambda: dot(x[:-2], x[-2], column(x[-2], x[-1]))), name="score")
    greatest = te.compute(lines, lambda *x: over(te.max, lambda d: score[(*x, d)], x[:-1], x[-1]), name="greatest")
    # A row of nothing but minus infinities still has a finite shift.
    top = te.stop_gradient(
        te.compute(lines, lambda *x: te.where(greatest[x] == -math.inf, 0.0, greatest[x]), name="top") if empty else greatest
    )
    weight = te.compute(grid, lambda *x: guarded(x[:-2], x[-2], x[-1], lambda: te.exp(score[x] - top[x[:-1]])), name="weight")
    total = te.compute(lines, lambda *x: over(te.sum, lambda d: weight[(*x, d)], x[:-1], x[-1]), name="total")

    def mean(*x: Any) -> Any:
        b, i, c = x[:-2], x[-2], x[-1]
        values = over(te.sum, lambda d: weight[(*b, i, d)] * te.cast(value[(*theirs(b), column(i, d), c)], wide), b, i)
        shared = te.where(total[(*b, i)] > 0, values / total[(*b, i)], 0.0) if empty else values / total[(*b, i)]
        return te.cast(shared, floating(query))

    return te.compute((*lines, value.shape[-1]), mean)


def _causal(b: tuple[Any, ...], i: Any, j: Any) -> Any:
    return j <= i


@te.op
def scaled_dot_product_attention(
    query: te.Tensor,
    key: te.Tensor,
    value: te.Tensor,
    attn_mask: te.Tensor | None = None,
    *,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
    dropout_p: float = 0.0,
) -> te.Tensor:
    """`y[.., i, c] = sum_j p[.., i, j] value[.., j, c]`, `p = softmax_j(scale * sum_e query[.., i, e] key[.., j, e] + mask[.., i, j])`.

    query (..., L, E), key (..., S, E), value (..., S, C); y (..., L, C). Batches are broadcast. `attn_mask` broadcasts to (..., L, S): a
    bool says who counts, a float is added. `is_causal`: only columns j <= i count (with a mask: both must hold). `scale` is 1 / sqrt(E)
    by default. `enable_gqa`: axis -3 of query has a multiple of the heads of key and value; head h reads theirs at h // multiple.
    A row of which nothing counts is 0 and passes no gradient. `dropout_p` has to be 0. Vaswani et al. 2017; Ainslie et al. 2023.

    >>> q, k = np.array([[1.0, 0.0]]), np.array([[100.0, 0.0], [0.0, 100.0]])
    >>> kernels.scaled_dot_product_attention(q, k, np.array([[1.0, 2.0], [3.0, 4.0]]))  # the first key fits
    array([[1., 2.]])
    """
    if dropout_p != 0:
        raise bad(
            f"scaled_dot_product_attention: expected a dropout_p of 0, got {dropout_p!r}",
            "an op draws no random numbers: drop with a te.Generator in a te.function",
        )
    if not enable_gqa:
        batch = broadcast_shape("scaled_dot_product_attention", query.shape[:-2], key.shape[:-2], value.shape[:-2])
        query, key, value = (
            x if x.shape[:-2] == batch else te.compute((*batch, *x.shape[-2:]), lambda *i, x=x: at(x, i)) for x in (query, key, value)
        )
    counts: Any = _causal if is_causal else None
    added: Any = None
    if attn_mask is not None:
        full = (*query.shape[:-1], key.shape[-2])
        aligned = full[len(full) - attn_mask.ndim :] if attn_mask.ndim <= len(full) else ()
        if len(aligned) != attn_mask.ndim or any(known(a, b) and a not in (1, b) for a, b in zip(attn_mask.shape, aligned, strict=True)):
            raise bad(f"attn_mask: expected a shape that broadcasts to {full}, got {attn_mask.shape}")
        if attn_mask.dtype.is_bool:

            def shown(b: tuple[Any, ...], i: Any, j: Any) -> Any:
                return (j <= i) & at(attn_mask, (*b, i, j)) if is_causal else at(attn_mask, (*b, i, j))

            counts = shown
        else:

            def bias(b: tuple[Any, ...], i: Any, j: Any) -> Any:
                return at(attn_mask, (*b, i, j))

            added = bias

    empty = attn_mask is not None or not known(key.shape[-2]) or key.shape[-2] == 0
    return _attend(query, key, value, scale=scale, counts=counts, added=added, groups=enable_gqa, empty=empty)


@te.op
def relative_position_attention(
    query: te.Tensor, key: te.Tensor, value: te.Tensor, bias: te.Tensor, *, is_causal: bool = False, scale: Any = None
) -> te.Tensor:
    """Attention with a learned bias for each head and distance: `bias[h, i - j + S - 1]` is added to the score of row i and column j.

    query (..., H, L, E), key (..., H, S, E), value (..., H, S, C), bias (H, L + S - 1); otherwise as `scaled_dot_product_attention`.
    Shaw, Uszkoreit, Vaswani 2018; Raffel et al. 2020.

    >>> q = k = np.zeros((2, 3))
    >>> v = np.array([[1.0], [5.0]])
    >>> bias = np.array([0.0, 0.0, np.log(3.0)])  # of distances -1, 0, 1
    >>> kernels.relative_position_attention(q[None, None], k[None, None], v[None, None], bias[None])
    array([[[[3.],
             [2.]]]])
    """
    at_least_axes("relative_position_attention", query, 3, "heads, rows, features")
    columns = key.shape[-2]
    shaped(bias, (query.shape[-3], query.shape[-2] + columns - 1), "one bias per head and distance")

    def added(b: tuple[Any, ...], i: Any, j: Any) -> Any:
        return bias[b[-1], i - j + (columns - 1)]

    return _attend(query, key, value, scale=scale, counts=_causal if is_causal else None, added=added)


@te.op
def alibi_attention(
    query: te.Tensor, key: te.Tensor, value: te.Tensor, slopes: te.Tensor, *, is_causal: bool = True, scale: Any = None
) -> te.Tensor:
    """Attention with linear biases: `-slopes[h] * |i - j|` is added to the score of row i and column j; `slopes` (H,).

    query (..., H, L, E), key (..., H, S, E), value (..., H, S, C). Press, Smith, Lewis 2022.

    >>> q = k = np.zeros((1, 3, 2))  # one head, three positions; equal scores
    >>> v = np.array([[[0.0], [1.0], [2.0]]])
    >>> kernels.alibi_attention(q, k, v, np.array([1.0])).round(4)  # the nearer the heavier
    array([[[0.    ],
            [0.7311],
            [1.5752]]])
    """
    at_least_axes("alibi_attention", query, 3, "heads, rows, features")
    shaped(slopes, query.shape[-3:-2], "one slope per head")

    def added(b: tuple[Any, ...], i: Any, j: Any) -> Any:
        return -(slopes[b[-1]] * te.cast(te.abs(i - j), floating(slopes)))

    return _attend(query, key, value, scale=scale, counts=_causal if is_causal else None, added=added)


@te.op
def sliding_window_attention(
    query: te.Tensor, key: te.Tensor, value: te.Tensor, *, left: Any, right: Any = 0, scale: Any = None, enable_gqa: bool = False
) -> te.Tensor:
    """Attention in a band: row i looks at the columns from `i - left` to `i + right` that there are.

    Shapes as in `scaled_dot_product_attention`; only the L * (left + 1 + right) scores of the band are computed and kept, so time and
    memory are linear in the rows. Beltagy, Peters, Cohan 2020 (Longformer); Jiang et al. 2023 (Mistral: `right=0`).

    >>> q = k = np.zeros((4, 2))
    >>> v = np.array([[0.0], [2.0], [4.0], [6.0]])
    >>> kernels.sliding_window_attention(q, k, v, left=1)  # each with the one before
    array([[0.],
           [1.],
           [3.],
           [5.]])
    """
    at_least("left", left, 0)
    at_least("right", right, 0)
    rows, columns = query.shape[-2], key.shape[-2]
    return _attend(
        query, key, value, scale=scale, groups=enable_gqa, width=left + 1 + right, column=lambda i, d: i + d - left,
        counts=lambda b, i, j: (j >= 0) & (j < columns),
        empty=not known(rows, columns) or columns == 0 or rows - 1 - left > columns - 1,
    )  # fmt: skip


@te.op
def linear_attention(query: te.Tensor, key: te.Tensor, value: te.Tensor, *, is_causal: bool = False, eps: float = 1e-6) -> te.Tensor:
    """`y[.., i, c] = sum_e f(q[i, e]) s[e, c] / (sum_e f(q[i, e]) z[e] + eps)`.

    `s[e, c] = sum_j f(k[j, e]) v[j, c]`, `z[e] = sum_j f(k[j, e])`, `f(x) = elu(x) + 1`. Time linear in the rows. `is_causal`: the
    sums go over j <= i, carried from row to row (L == S). Shapes as in `scaled_dot_product_attention`. Katharopoulos et al. 2020.

    >>> q = k = np.ones((2, 3))
    >>> kernels.linear_attention(q, k, np.array([[1.0], [3.0]])).round(4)  # equal weights: the mean
    array([[2.],
           [2.]])
    """
    _check(query, key, value, False)
    *batch, rows, features = query.shape
    columns, channels = value.shape[-2:]

    def positive(name: str, x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: te.where(x[i] > 0, x[i] + 1.0, te.exp(te.minimum(x[i], 0.0))), name=name)

    q, k = positive("q", query), positive("k", key)
    if not is_causal:
        z = te.compute((*batch, features), lambda *x: te.sum(lambda j: k[(*x[:-1], j, x[-1])], columns), name="z")
        norm = te.compute((*batch, rows), lambda *x: te.sum(lambda e: q[(*x, e)] * z[(*x[:-1], e)], features) + eps, name="norm")
        s = te.compute(
            (*batch, features, channels),
            lambda *x: te.sum(lambda j: k[(*x[:-2], j, x[-2])] * value[(*x[:-2], j, x[-1])], columns),
            name="s",
        )
        return te.compute(
            (*batch, rows, channels),
            lambda *x: te.sum(lambda e: q[(*x[:-1], e)] * s[(*x[:-2], e, x[-1])], features) / norm[x[:-1]],
        )
    same_extent("rows of key", columns, rows, "causal attention is within one sequence")
    zero = te.cast(0, query.dtype)
    start = (
        te.compute((*batch, features, channels), lambda *x: zero, name="s_start"),
        te.compute((*batch, features), lambda *x: zero, name="z_start"),
        te.compute((*batch, channels), lambda *x: zero, name="y_start"),
    )

    def step(t: Any, state: tuple[te.Tensor, ...]) -> tuple[te.Tensor, ...]:
        s_old, z_old, _ = state
        s = te.compute(s_old.shape, lambda *x: s_old[x] + k[(*x[:-2], t, x[-2])] * value[(*x[:-2], t, x[-1])], name="s")
        z = te.compute(z_old.shape, lambda *x: z_old[x] + k[(*x[:-1], t, x[-1])], name="z")
        norm = te.compute(tuple(batch), lambda *b: te.sum(lambda e: q[(*b, t, e)] * z[(*b, e)], features) + eps, name="norm")
        y = te.compute(
            (*batch, channels), lambda *x: te.sum(lambda e: q[(*x[:-1], t, e)] * s[(*x[:-1], e, x[-1])], features) / norm[x[:-1]], name="y"
        )
        return s, z, y

    _, _, steps = te.scan(step, start, rows, name=("s_steps", "z_steps", "y_steps"))
    return te.compute((*batch, rows, channels), lambda *x: steps[(x[-2], *x[:-2], x[-1])])


@te.op
def rotary_embedding(x: te.Tensor, *, base: float = 10000.0, interleaved: bool = False, offset: Any = 0) -> te.Tensor:
    """Pairs of features of x (..., T, D) turned by an angle that grows with the position: `(t + offset) * base^(-2 k / D)` for pair k.

    A pair is (k, k + D/2), or (2k, 2k + 1) if `interleaved`; (a, b) becomes (a cos - b sin, a sin + b cos). D must be known
    and even. Angles are computed in float64. Su et al. 2021.

    >>> kernels.rotary_embedding(np.array([[1.0, 0.0], [1.0, 0.0]])).round(4)  # position t turns by t radians
    array([[1.    , 0.    ],
           [0.5403, 0.8415]])
    """
    at_least_axes("rotary_embedding", x, 2, "..., positions, features")
    *_, positions, features = x.shape
    if not is_int(features) or features % 2:
        raise bad(f"rotary_embedding: expected a known, even number of features on the last axis of {x.name}, got {features}")
    half = features // 2
    frequency = te.constant(float(base) ** (-2.0 * np.arange(half) / features), name="frequency")

    def table(function: Callable[[Any], Any], name: str) -> te.Tensor:
        return te.compute((positions, half), lambda t, k: te.cast(function((t + offset) * frequency[k]), floating(x)), name=name)

    cosine, sine = table(te.cos, "cosine"), table(te.sin, "sine")

    def turned(*i: Any) -> Any:
        *b, t, d = i
        if interleaved:
            pair, second, other = d // 2, d % 2 == 1, d + 1 - 2 * (d % 2)
        else:
            pair, second, other = d % half, d >= half, (d + half) % features
        opposite = x[(*b, t, other)] * sine[t, pair]
        return x[i] * cosine[t, pair] + te.where(second, opposite, -opposite)

    return te.compute(x.shape, turned)
