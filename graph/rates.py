"""Learning rates that change as training goes on: functions of the number of steps taken, as scalars of the language.

A rate is written once and means the same in a compiled step, where the number of steps is a variable, and on a number: `rate.at(100)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tensorexpr as te
from tensorexpr.errors import ArgumentError, user_location
from tensorexpr.language import Scalar


class Rate:
    """A learning rate: `rate(step)` is a float64 scalar of the language for an integer one, 0 at the first step; `rate.at(7)` a number."""

    def __call__(self, step: Scalar) -> Any:
        raise NotImplementedError

    def at(self, step: int) -> float:
        """The rate after so many steps, as a number."""
        count = te.constant(int(step), name="step")
        return float(te.evaluate(te.compute((), lambda: te.cast(self(count[()]), "float64")), {}))


@dataclass(frozen=True)
class Constant(Rate):
    """The same at every step."""

    rate: float

    def __call__(self, step: Scalar) -> Any:
        return self.rate


@dataclass(frozen=True)
class Steps(Rate):
    """`rate * factor ^ (step // every)`."""

    rate: float
    every: int
    factor: float = 0.1

    def __post_init__(self) -> None:
        _at_least("every", self.every, 1)

    def __call__(self, step: Scalar) -> Any:
        return self.rate * te.power(te.cast(self.factor, "float64"), te.cast(step // self.every, "float64"))


@dataclass(frozen=True)
class Cosine(Rate):
    """Half a period of a cosine from `rate` down to `final` over so many `steps`, then `final`. Loshchilov, Hutter 2017."""

    rate: float
    steps: int
    final: float = 0.0

    def __post_init__(self) -> None:
        _at_least("steps", self.steps, 1)

    def __call__(self, step: Scalar) -> Any:
        angle = te.cast(te.minimum(step, self.steps), "float64") * (math.pi / self.steps)
        return self.final + (self.rate - self.final) * 0.5 * (1.0 + te.cos(angle))


@dataclass(frozen=True)
class Warmup(Rate):
    """A line from 0 up to the first value of another rate over so many `steps` (the first step has `1 / steps` of it), then that rate."""

    steps: int
    then: Rate

    def __post_init__(self) -> None:
        _at_least("steps", self.steps, 1)

    def __call__(self, step: Scalar) -> Any:
        share = te.cast(te.minimum(step + 1, self.steps), "float64") / self.steps
        return share * self.then(te.maximum(step - self.steps, 0))


def as_rate(value: Any) -> Rate:
    """A rate, or a number as a constant one."""
    if isinstance(value, Rate):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not value >= 0:
            raise ArgumentError(f"rate: expected a number of at least 0, got {value}", location=user_location())
        return Constant(float(value))
    raise ArgumentError(
        f"rate: expected a number or a rate, got a {type(value).__name__}",
        location=user_location(),
        hint="rates are in tensorexpr.graph.rates: Constant, Steps, Cosine, Warmup",
    )


def _at_least(what: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ArgumentError(f"{what}: expected an integer of at least {least}, got {value!r}", location=user_location())
