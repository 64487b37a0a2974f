"""Layers: modules that hold the variables of an operation and call it.

There is nothing in them that a user's module could not do. Variables are made in the constructor, from a `numpy.random.Generator` that
the caller gives, in PyTorch's layout and with its initial distributions; a layer without random values takes none. Randomness in a
forward pass comes from an explicit key: the same key gives the same numbers, everywhere and at every thread count.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.errors import ArgumentError, user_location
from tensorexpr.graph.modules.module import Module
from tensorexpr.graph.modules.random import mixed, place_of, unit
from tensorexpr.graph.modules.variable import Variable


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> np.ndarray:
    bound = 1 / math.sqrt(fan_in)
    return rng.uniform(-bound, bound, shape).astype(np.float32)


class Linear(Module):
    """`y[.., o] = sum_k x[.., k] * weight[o, k] + bias[o]`: `kernels.linear`."""

    def __init__(self, inputs: int, outputs: int, rng: np.random.Generator, *, bias: bool = True, name: str | None = None) -> None:
        super().__init__(name)
        with self.name_scope:
            self.weight = Variable(_uniform(rng, (outputs, inputs), inputs), name="weight")
            self.bias = Variable(_uniform(rng, (outputs,), inputs), name="bias") if bias else None

    @Module.with_name_scope
    def __call__(self, x: Any) -> Any:
        return kernels.linear(x, self.weight) if self.bias is None else kernels.linear(x, self.weight, self.bias)


class Conv2d(Module):
    """`kernels.conv2d` with weight (K, C, kernel, kernel) and bias (K,): x (N, C, H, W)."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        rng: np.random.Generator,
        *,
        stride: int = 1,
        padding: int = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self.stride, self.padding = stride, padding
        fan_in = inputs * kernel * kernel
        with self.name_scope:
            self.weight = Variable(_uniform(rng, (outputs, inputs, kernel, kernel), fan_in), name="weight")
            self.bias = Variable(_uniform(rng, (outputs,), fan_in), name="bias")

    @Module.with_name_scope
    def __call__(self, x: Any) -> Any:
        return kernels.conv2d(x, self.weight, self.bias, stride=self.stride, padding=self.padding)


class Embedding(Module):
    """`y[.., d] = weight[input[..], d]`: rows of a table, by number."""

    def __init__(self, rows: int, features: int, rng: np.random.Generator, *, name: str | None = None) -> None:
        super().__init__(name)
        with self.name_scope:
            self.weight = Variable(rng.standard_normal((rows, features)).astype(np.float32), name="weight")

    @Module.with_name_scope
    def __call__(self, input: Any) -> Any:
        return kernels.embedding(input, self.weight)


class LayerNorm(Module):
    """`kernels.layer_norm` over the last axis, with weight and bias."""

    def __init__(self, features: int, *, eps: float = 1e-5, name: str | None = None) -> None:
        super().__init__(name)
        self.eps = eps
        with self.name_scope:
            self.weight = Variable(np.ones(features, np.float32), name="weight")
            self.bias = Variable(np.zeros(features, np.float32), name="bias")

    @Module.with_name_scope
    def __call__(self, x: Any) -> Any:
        return kernels.layer_norm(x, self.weight, self.bias, eps=self.eps)


class Attention(Module):
    """Self-attention with several heads: x (B, T, features) to the same shape, a row looking at earlier rows only if `causal`."""

    def __init__(self, features: int, heads: int, rng: np.random.Generator, *, causal: bool = False, name: str | None = None) -> None:
        super().__init__(name)
        if features % heads:
            raise ArgumentError(f"heads: expected a divisor of the {features} features, got {heads}", location=user_location())
        self.heads, self.causal = heads, causal
        with self.name_scope:
            self.inputs = Linear(features, 3 * features, rng, name="inputs")
            self.outputs = Linear(features, features, rng, name="outputs")

    @Module.with_name_scope
    def __call__(self, x: Any) -> Any:
        return self.outputs(merged(kernels.scaled_dot_product_attention(*split(self.inputs(x), heads=self.heads), is_causal=self.causal)))


@te.op
def split(x: te.Tensor, *, heads: int) -> tuple[te.Tensor, ...]:
    """Query, key and value (B, heads, T, E) from x (B, T, 3 * heads * E)."""
    b, t, features = x.shape
    each = features // (3 * heads)
    return tuple(
        te.compute((b, heads, t, each), lambda n, h, i, e, part=part: x[n, i, (part * heads + h) * each + e], name=name)
        for part, name in enumerate(("query", "key", "value"))
    )


@te.op
def merged(x: te.Tensor) -> te.Tensor:
    """x (B, heads, T, E) as (B, T, heads * E)."""
    b, heads, t, each = x.shape
    return te.compute((b, t, heads * each), lambda n, i, f: x[n, f // each, i, f % each])


class Dropout(Module):
    """Leaves out elements with probability `p`, and scales the rest by `1 / (1 - p)`: `dropout(x, key)`. `p` of 0 changes nothing."""

    def __init__(self, p: float, *, name: str | None = None) -> None:
        super().__init__(name)
        if not 0 <= p < 1:
            raise ArgumentError(f"p: expected a probability from 0 to below 1, got {p}", location=user_location())
        self.p = p

    @Module.with_name_scope
    def __call__(self, x: Any, key: Any) -> Any:
        return dropout(x, key, p=self.p) if self.p else x


@te.op
def dropout(x: te.Tensor, key: te.Tensor, *, p: float) -> te.Tensor:
    """`y[i] = x[i] / (1 - p)` where `uniform(key, i) >= p`, else 0; `key` is a scalar integer. What is left out is never stored."""

    def value(*i: Any) -> Any:
        kept = uniform(key[()], place_of(i, x.shape)) >= p
        return te.where(kept, x[i] * te.cast(1 / (1 - p), x.dtype), te.cast(0, x.dtype))

    return te.compute(x.shape, value)


def uniform(key: Any, place: Any) -> Any:
    """A float32 in [0, 1) that depends on an integer key and an integer place alone."""
    return unit(mixed(mixed(te.cast(place, "uint32") + np.uint32(0x9E3779B9)) + mixed(te.cast(key, "uint32"))))
