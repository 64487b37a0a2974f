"""Samples of the library, and random programs: both stand in the tests of the repository, which are not installed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tensorexpr.benchmarks.samples.sample import Given, Sample
from tensorexpr.errors import ArgumentError


def from_checkout(module: str, what: str) -> Any:
    """A module of the tests. Raises `ArgumentError`, in the name of `what`, where the repository is not there."""
    root = Path(__file__).resolve().parent.parent.parent
    if not (root / "tests" / "kernels" / "table").is_dir():
        raise ArgumentError(
            f"bench {what}: expected a checkout of the repository, got an installed package",
            hint="clone it, and install it with pip install -e .",
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return importlib.import_module(module)


def library(what: str) -> list[Sample]:
    """The rows of the case table that are about speed: not those about single values (infinities, kinks), which are given as they are."""
    cases = from_checkout("tests.kernels.table", what).ALL
    return [
        Sample(case.name, case.op, tuple(map(_given, case.inputs)), case.static, case.differentiable, case.torch, 1e-3)
        for case in cases
        if not any(isinstance(data, np.ndarray) and data.dtype.kind == "f" for data in _values(case.inputs))
    ]


def _given(item: Any) -> Any:
    if item is None:
        return None
    if isinstance(item, tuple) and item and not isinstance(item[0], int):
        return tuple(map(_given, item))
    return Given(item) if isinstance(item, tuple) else Given(item.shape, item.values)


def _values(tree: Any) -> list[Any]:
    if isinstance(tree, tuple):
        return [value for item in tree for value in _values(item)]
    return [getattr(tree, "values", None)]
