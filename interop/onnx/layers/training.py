"""Gradients and optimizers as operators, random numbers, ensembles of trees.

Random numbers are NumPy's: those of a seed are the same in every call, without one they are new in each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from tensorexpr import language
from tensorexpr.dtypes import dtype as dtype_of
from tensorexpr.graph.trace.gradients import gradients
from tensorexpr.graph.trace.values import elementwise
from tensorexpr.interop.onnx.operators.common import number, sizes
from tensorexpr.interop.onnx.table import Known, Raw, operator
from tensorexpr.interop.onnx.values import array_of, kind_of, on_host, spend
from tensorexpr.ir import TensorType, const
from tensorexpr.language import Tensor, cast, compute, constant

_PREVIEW = "ai.onnx.preview.training"


@operator("Gradient", domain=_PREVIEW)
def _gradient(*inputs: Raw, xs: Any, y: str, zs: Any = None, scope: Any) -> Any:
    return tuple(gradients(scope.values[y], [scope.values[name] for name in xs], np.ones(sizes(scope.values[y]), np.float32)))


def _rate(rate: Tensor, step: Tensor, decay: float = 0.0) -> Any:
    value = rate[(0,) * rate.ndim]
    return value / (1 + cast(step[(0,) * step.ndim], value.dtype) * decay)


def _several(inputs: Sequence[Any], kinds: int, one: Callable[..., tuple[Tensor, ...]]) -> tuple[Any, ...]:
    """An update of several tensors: all of the first kind come before all of the second."""
    count = len(inputs) // kinds
    results = [one(*(inputs[k + count * kind] for kind in range(kinds))) for k in range(count)]
    return tuple(item for group in zip(*results, strict=True) for item in group)


@operator("Adagrad", domain=_PREVIEW)
def _adagrad(
    rate: Tensor, step: Tensor, *inputs: Tensor, decay_factor: float = 0.0, epsilon: float = 0.0, norm_coefficient: float = 0.0
) -> Any:
    def one(x: Tensor, g: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        slope = elementwise(lambda a, b: norm_coefficient * a + b, x, g)
        square = elementwise(lambda a, b: a + b * b, h, slope)
        return elementwise(lambda a, b, s: a - _rate(rate, step, decay_factor) * b / (language.sqrt(s) + epsilon), x, slope, square), square

    return _several(inputs, 3, one)


@operator("Momentum", domain=_PREVIEW)
def _momentum(rate: Tensor, step: Tensor, *inputs: Tensor, alpha: float, beta: float, mode: str, norm_coefficient: float) -> Any:
    def share(kind: Any) -> Any:
        return language.where(step[(0,) * step.ndim] == 0, cast(1, kind), cast(beta, kind))

    def one(x: Tensor, g: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        slope = elementwise(lambda a, b: norm_coefficient * a + b, x, g)
        speed = elementwise(lambda a, b: alpha * a + share(b.dtype) * b, v, slope)
        along = elementwise(lambda a, b: a + alpha * b, slope, speed) if mode == "nesterov" else speed
        return elementwise(lambda a, b: a - _rate(rate, step) * b, x, along), speed

    return _several(inputs, 3, one)


@operator("Adam", domain=_PREVIEW)
def _adam(
    rate: Tensor, step: Tensor, *inputs: Tensor, alpha: float = 0.9, beta: float = 0.999, epsilon: float = 0.0,
    norm_coefficient: float = 0.0, norm_coefficient_post: float = 0.0,
) -> Any:  # fmt: skip
    def corrected() -> Any:
        r, t = rate[(0,) * rate.ndim], step[(0,) * step.ndim]
        power = cast(t, "float32")
        return language.where(t > 0, r * language.sqrt(1 - beta**power) / (1 - alpha ** language.maximum(power, 1.0)), r)

    def one(x: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        slope = elementwise(lambda a, b: norm_coefficient * a + b, x, g)
        first = elementwise(lambda a, b: alpha * a + (1 - alpha) * b, m, slope)
        second = elementwise(lambda a, b: beta * a + (1 - beta) * b * b, v, slope)
        new = elementwise(
            lambda a, p, q: (1 - norm_coefficient_post) * (a - corrected() * p / (language.sqrt(q) + epsilon)), x, first, second
        )
        return new, first, second

    return _several(inputs, 4, one)


# -------------------------------------------------------------------------------------------------- random numbers


class _Drawn:
    """Numbers that are drawn at each call; of a seed always the same."""

    def __init__(self, draw: Callable[..., np.ndarray], seed: float | None) -> None:
        self.draw, self.seed = draw, seed

    def __call__(self, *arrays: np.ndarray) -> tuple[np.ndarray]:
        state = np.random.RandomState(None if self.seed is None else int(self.seed))
        return (self.draw(state, *arrays),)


def _drawn(name: str, draw: Callable[..., np.ndarray], seed: float | None, shape: Sequence[int], kind: Any) -> Tensor:
    spend(shape)
    types = [TensorType(tuple(map(const, shape)), dtype_of(kind))]
    found: Tensor = on_host(name, _Drawn(draw, seed), [], types)[0]
    return found


@operator("RandomNormal")
def _normal(*, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None, shape: Any) -> Any:
    kind = kind_of(dtype)
    return _drawn("RandomNormal", lambda state: state.normal(mean, scale, tuple(shape)).astype(kind), seed, shape, kind)


@operator("RandomUniform")
def _uniform(*, dtype: int = 1, high: float = 1.0, low: float = 0.0, seed: float | None = None, shape: Any) -> Any:
    kind = kind_of(dtype)
    return _drawn("RandomUniform", lambda state: state.uniform(low, high, tuple(shape)).astype(kind), seed, shape, kind)


@operator("RandomNormalLike")
def _normal_like(x: Tensor, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None) -> Any:
    kind, shape = x.dtype.numpy if dtype is None else kind_of(dtype), sizes(x)
    return _drawn("RandomNormal", lambda state: state.normal(mean, scale, shape).astype(kind), seed, shape, kind)


@operator("RandomUniformLike")
def _uniform_like(x: Tensor, *, dtype: int | None = None, high: float = 1.0, low: float = 0.0, seed: float | None = None) -> Any:
    kind, shape = x.dtype.numpy if dtype is None else kind_of(dtype), sizes(x)
    return _drawn("RandomUniform", lambda state: state.uniform(low, high, shape).astype(kind), seed, shape, kind)


@operator("Bernoulli")
def _bernoulli(x: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Any:
    kind = x.dtype if dtype is None else dtype_of(kind_of(dtype))
    shape = sizes(x)
    level = _drawn("Bernoulli", lambda state: state.uniform(0, 1, shape).astype(np.float64), seed, shape, np.float64)
    return compute(x.shape, lambda *i: cast(level[i] < cast(x[i], "float64"), kind))


@operator("Multinomial")
def _multinomial(x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> Any:
    rows, classes = sizes(x)
    level = _drawn(
        "Multinomial", lambda state: state.uniform(0, 1, (rows, sample_size)).astype(np.float64), seed, [rows, sample_size], np.float64
    )
    weight = compute((rows, classes), lambda b, k: language.exp(cast(x[b, k], "float64")), name="weight")
    total = compute((rows,), lambda b: language.sum(lambda k: weight[b, k], classes), name="total")
    before = compute((rows, classes), lambda b, k: language.sum(lambda j: weight[b, j], k + 1), name="before")

    def element(b: Any, s: Any) -> Any:
        place = language.sum(lambda k: cast(before[b, k] <= level[b, s] * total[b], "int64"), classes)
        return cast(language.minimum(place, classes - 1), dtype_of(kind_of(dtype)))

    return compute((rows, sample_size), element)


@operator("Dropout", since=12)
def _dropout(x: Tensor, ratio: Known = None, training: Known = None, *, seed: int | None = None, outputs: int) -> Any:
    share = 0.5 if ratio is None else float(number(ratio))
    if training is None or not bool(number(training)) or share == 0:
        mask = compute(x.shape, lambda *i: cast(1, "bool"))
        return (x, mask) if outputs > 1 else x
    shape = sizes(x)
    level = _drawn("Dropout", lambda state: state.uniform(0, 1, shape), seed, shape, np.float64)
    mask = compute(x.shape, lambda *i: level[i] >= share, name="mask")
    found = compute(x.shape, lambda *i: language.where(mask[i], x[i] * (1 / (1 - share)), 0))
    return (found, mask) if outputs > 1 else found


@operator("Dropout", until=12)
def _dropout_of_inference(x: Tensor, *, ratio: float = 0.5, is_test: int = 1, consumed_inputs: Any = None, outputs: int) -> Any:
    return (x, compute(x.shape, lambda *i: cast(1, "bool"))) if outputs > 1 else x


# ----------------------------------------------------------------------------------------------------------- trees


@operator("TreeEnsemble", domain="ai.onnx.ml")
def _trees(
    x: Tensor, *, aggregate_function: int = 1, leaf_targetids: Any, leaf_weights: TensorProto, membership_values: Any = None,
    n_targets: int, nodes_falseleafs: Any, nodes_falsenodeids: Any, nodes_featureids: Any, nodes_hitrates: Any = None,
    nodes_missing_value_tracks_true: Any = None, nodes_modes: TensorProto, nodes_splits: TensorProto, nodes_trueleafs: Any,
    nodes_truenodeids: Any, post_transform: int = 0, tree_roots: Any,
) -> Any:  # fmt: skip
    """Down each tree a level at each step of a scan; a leaf is a node behind the inner ones, which leads to itself."""
    count, leaves = len(nodes_featureids), len(leaf_targetids)
    modes, splits = array_of(nodes_modes), array_of(nodes_splits)
    members = [] if membership_values is None else np.split(
        m := array_of(membership_values), np.flatnonzero(np.isnan(m)) + 1)  # fmt: skip
    sets = iter([part[~np.isnan(part)] for part in members])
    widest = max((len(part) for part in members), default=1) or 1
    table = np.full((count + leaves, widest), np.nan)
    for k, mode in enumerate(modes):
        if mode == 6:
            own = next(sets)
            table[k, : len(own)] = own

    def targets(nodes: Any, is_leaf: Any) -> Tensor:
        ends = [n + count if leaf else n for n, leaf in zip(nodes, is_leaf, strict=True)]
        return constant(np.asarray([*ends, *range(count, count + leaves)], np.int64))

    yes, no = targets(nodes_truenodeids, nodes_trueleafs), targets(nodes_falsenodeids, nodes_falseleafs)
    missing = constant(np.asarray([*(nodes_missing_value_tracks_true or [0] * count), *[0] * leaves], bool))
    feature = constant(np.asarray([*nodes_featureids, *[0] * leaves], np.int64))
    kind = constant(np.asarray([*modes, *[0] * leaves], np.int64))
    split = constant(np.asarray([*splits, *[0] * leaves], x.dtype.numpy))
    members_of = constant(table.astype(x.dtype.numpy))
    rows, trees = sizes(x)[0], len(tree_roots)
    roots = constant(np.asarray(tree_roots, np.int64))

    def step(t: Any, at: Tensor) -> Tensor:
        def element(n: Any, k: Any) -> Any:
            node = at[n, k]
            value, limit, mode = x[n, feature[node]], split[node], kind[node]
            test = language.any(lambda m: members_of[node, m] == value, widest)
            for code, one in ((0, value <= limit), (1, value < limit), (2, value >= limit), (3, value > limit), (4, value == limit),
                              (5, value != limit)):  # fmt: skip
                test = language.where(mode == code, one, test)
            test = test | (missing[node] & language.isnan(value))
            return language.where(test, yes[node], no[node])

        return compute((rows, trees), element)

    depth = _depth(list(tree_roots), nodes_truenodeids, nodes_trueleafs, nodes_falsenodeids, nodes_falseleafs)
    start = compute((rows, trees), lambda n, k: roots[k])
    ends = language.scan(step, start, depth)
    weights, goals = constant(array_of(leaf_weights).astype(x.dtype.numpy)), constant(np.asarray(leaf_targetids, np.int64))

    def total(n: Any, c: Any) -> Any:
        def leaf(k: Any) -> Any:
            return language.clip(ends[depth - 1, n, k] - count, 0, leaves - 1)

        def mine(k: Any) -> Any:
            return goals[leaf(k)] == c

        if aggregate_function in (0, 1):
            found = language.sum(lambda k: language.where(mine(k), weights[leaf(k)], 0), trees)
            return found / trees if aggregate_function == 0 else found
        reduce = language.min if aggregate_function == 2 else language.max
        return language.where(language.any(mine, trees), reduce(lambda k: weights[leaf(k)], trees, where=mine), 0)

    if post_transform != 0:
        raise ValueError(f"post_transform {post_transform}")
    return compute((rows, n_targets), total)


def _depth(roots: list[int], yes: Any, yes_leaf: Any, no: Any, no_leaf: Any) -> int:
    """The longest way from a root to a leaf."""
    longest, stack = 1, [(root, 1) for root in roots]
    while stack:
        node, level = stack.pop()
        longest = max(longest, level)
        for child, leaf in ((yes[node], yes_leaf[node]), (no[node], no_leaf[node])):
            if not leaf and level <= len(yes):
                stack.append((child, level + 1))
    return longest
