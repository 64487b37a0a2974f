"""Random numbers: a generator is a seed and a counter, and the counter is a variable.

A draw is index notation on both: element k of a draw is a hash of (seed, counter + k), so draws fuse with what uses them, are the same on
every device and with any number of threads, and have the order of side effects because the counter has. The hash is the 32-bit mixer
of murmur3's end applied in three rounds; it is not for cryptography.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorexpr import language as te
from tensorexpr.errors import ArgumentError, user_location
from tensorexpr.graph.modules.variable import Variable
from tensorexpr.graph.trace.tracing import current
from tensorexpr.hints import Offering, checked
from tensorexpr.language import Tensor, compute, constant
from tensorexpr.op import op

_TWO_PI = 2.0 * math.pi


class Generator(Offering):
    """A source of random numbers: `te.Generator(seed)`. `state` is the variable that counts what was drawn.

    >>> noise = te.Generator(0)
    >>> @te.function
    ... def draw(x):
    ...     return noise.uniform((2,)) + x
    >>> draw(np.float64(0.0)).shape
    (2,)
    """

    offered = ("normal", "seed", "state", "uniform")

    @checked()
    def __init__(self, seed: int, *, name: str = "generator") -> None:
        if not isinstance(seed, int | np.integer):
            raise ArgumentError(f"te.Generator: expected an integer as seed, got {seed!r}", location=user_location())
        self.seed = int(seed) & 0xFFFFFFFF
        self.state = Variable(np.uint32(0), name=name, trainable=False)

    def __repr__(self) -> str:
        return f"<generator {self.state.name} of seed {self.seed}>"

    def uniform(self, shape: tuple[int, ...]) -> Any:
        """float32 numbers from 0 up to 1, exclusive."""
        return self._draw(_uniform, shape, 1)

    def normal(self, shape: tuple[int, ...]) -> Any:
        """float32 numbers of the normal distribution with mean 0 and deviation 1."""
        return self._draw(_normal, shape, 2)

    def _draw(self, drawn: Any, shape: tuple[int, ...], width: int) -> Any:
        if not isinstance(shape, tuple | list) or not all(isinstance(e, int | np.integer) and e >= 0 for e in shape):
            raise ArgumentError(
                f"te.Generator: expected a shape of integers of at least 0, got {shape!r}", location=user_location(), hint="(2, 3)"
            )
        shape = tuple(map(int, shape))
        start = self.state.read()
        self.state.assign_add(math.prod(shape) * width)
        if current() is None:
            return drawn(start, shape=shape, seed=self.seed)
        return drawn(start if isinstance(start, Tensor) else constant(start), shape=shape, seed=self.seed)


def mixed(x: Any) -> Any:
    """murmur3's finalizer: a bijection of 32 bits in which every bit of the result depends on every bit of `x`."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def _bits(start: Tensor, place: Any, seed: int) -> Any:
    x = mixed(start[()] + te.cast(place, "uint32") + np.uint32(0x9E3779B9))
    return mixed(mixed(x ^ np.uint32(seed)) + np.uint32(seed >> 1 ^ 0x7F4A7C15))


def unit(bits: Any) -> Any:
    """The upper 24 bits as a float32 from 0 up to 1."""
    return te.cast(bits >> np.uint32(8), "float32") * np.float32(2.0**-24)


def place_of(indices: tuple[Any, ...], shape: tuple[Any, ...]) -> Any:
    place: Any = 0
    for index, extent in zip(indices, shape, strict=True):
        place = place * extent + index
    return te.cast(place, "int64")


@op
def _uniform(start: Any, *, shape: tuple[int, ...], seed: int) -> Any:
    return compute(shape, lambda *i: unit(_bits(start, place_of(i, shape), seed)))


@op
def _normal(start: Any, *, shape: tuple[int, ...], seed: int) -> Any:
    """Box and Muller's transform of two uniform numbers, the first one above 0."""

    def element(*i: Any) -> Any:
        first, second = (unit(_bits(start, place_of(i, shape) * 2 + k, seed)) for k in (0, 1))
        return te.sqrt(np.float32(-2) * te.log(first + np.float32(2.0**-25))) * te.cos(np.float32(_TWO_PI) * second)

    return compute(shape, element)
