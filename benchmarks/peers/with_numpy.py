"""NumPy: what one writes with it, forward only."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    e /= e.sum(1, keepdims=True)
    return e


def _logsumexp(x: np.ndarray, axis: int) -> np.ndarray:
    top = x.max(axis)
    return np.log(np.exp(x - top[:, None]).sum(axis)) + top


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "matmul": np.matmul,
    "matmul_at": lambda a, b: a.T @ b,
    "matmul_bt": lambda a, b: a @ b.T,
    "bmm": np.matmul,
    "softmax": _softmax,
    "logsumexp": _logsumexp,
    "embedding": lambda ids, table: table[ids],
    "cumsum": np.cumsum,
    "add": np.add,
}


def has(key: str, static: dict[str, Any], gradient: bool) -> bool:
    """Whether there is a function for the workload."""
    del static
    return key in FUNCTIONS and not gradient


def candidate(key: str, static: dict[str, Any], arrays: Sequence[np.ndarray], head: np.ndarray | None) -> Callable[[], Any]:
    """The function on the arrays."""
    del head
    return functools.partial(FUNCTIONS[key], *arrays, **static)
