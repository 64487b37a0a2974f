"""How placeholders are initialised: recorded where they are declared, done when a context is asked to (`context.initialize(seed)`).

An initial value is a number, an array of the placeholder's shape, or a function `(generator, shape) -> array`; the functions
here make such functions. Values are cast to the placeholder's dtype. Every placeholder draws from a generator of its own, made of
the seed and its name, so its values depend neither on the other placeholders nor on their order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorexpr.dtypes import DType
from tensorexpr.errors import ArgumentError, DefinitionError, user_location

Initial = Callable[[np.random.Generator, tuple[int, ...]], Any]


def zeros(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Zeros."""
    return np.zeros(shape)


def ones(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Ones."""
    return np.ones(shape)


def uniform(low: float = 0.0, high: float = 1.0) -> Initial:
    """Independent values, uniform in low <= x < high."""
    return lambda generator, shape: generator.uniform(low, high, shape)


def normal(mean: float = 0.0, deviation: float = 1.0) -> Initial:
    """Independent values, normal with this mean and standard deviation."""
    return lambda generator, shape: generator.normal(mean, deviation, shape)


def checked(initial: Any, what: str) -> Any:
    """The initial value, if it is one. Raises `DefinitionError` if not."""
    if initial is None or callable(initial) or isinstance(initial, bool | int | float | np.generic | np.ndarray):
        return initial
    raise DefinitionError(
        f"{what}: expected a number, an array or a function of generator and shape as initial value, got a {type(initial).__name__}",
        location=user_location(),
        hint="initial=te.initial.uniform(-0.1, 0.1)",
    )


def initial_array(initial: Any, name: str, shape: tuple[int, ...], dtype: DType, seed: int) -> np.ndarray:
    """A new array as `initial` says. Raises `ArgumentError` where it gives another shape."""
    if callable(initial):
        drawn = hashlib.sha256(name.encode()).digest()
        initial = initial(np.random.default_rng([seed, *np.frombuffer(drawn[:16], "<u4").tolist()]), shape)
    values = np.asarray(initial)
    if values.shape not in (shape, ()):
        raise ArgumentError(
            f"{name}: expected an initial value of shape {list(shape)}, got one of shape {list(values.shape)}", location=user_location()
        )
    made = np.empty(shape, dtype.numpy)
    made[...] = values.astype(dtype.numpy)
    return made


__all__ = ["normal", "ones", "uniform", "zeros"]
