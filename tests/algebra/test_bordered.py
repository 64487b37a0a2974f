"""Tensors that are others in a border, read around a place: the values of the border, at any size of what stands in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.language import program_of
from tensorexpr.simplify import simplify
from tensorexpr.text import print_program

EXTENTS = (0, 1, 7, 33)
Bordered = Callable[[te.Tensor, Any, Any], te.Tensor]


def _around(x: te.Tensor, n: Any, m: Any) -> te.Tensor:
    return te.compute((n + 2, m + 2), lambda i, j: x[(i + n - 1) % n, (j + m - 1) % m])


def _edge(x: te.Tensor, n: Any, m: Any) -> te.Tensor:
    return te.compute((n + 2, m + 2), lambda i, j: x[te.clip(i - 1, 0, n - 1), te.clip(j - 1, 0, m - 1)])


def _zero(x: te.Tensor, n: Any, m: Any) -> te.Tensor:
    return te.compute((n + 2, m + 2), lambda i, j: te.where((i > 0) & (i <= n) & (j > 0) & (j <= m), x[i - 1, j - 1], 0.0))


@pytest.mark.parametrize(("bordered", "mode"), [(_around, "wrap"), (_edge, "edge"), (_zero, "constant")])
def test_neighbours_in_a_border_of_open_size(bordered: Bordered, mode: Literal["wrap", "edge", "constant"]) -> None:
    n, m = te.dim("n"), te.dim("m")
    x = te.placeholder((n, m), "float64", name="x")
    y = bordered(x, n, m)
    out = te.compute((n, m), lambda i, j: y[i + 2, j + 1] + 2 * y[i, j + 1] + y[i + 1, j + 2] - y[i + 1, j] * 4)
    assert print_program(simplify(program_of([out], [x]))).count("f64[") == 2  # the border is no tensor
    head = te.placeholder((n, m), "float64", name="head")
    function, gradient = te.build([out], [x]), te.build([*te.gradient(out, [x], head)], [x, head])
    rng = np.random.default_rng(0)
    for shape in ((a, b) for a in EXTENTS for b in EXTENTS):
        if mode != "constant" and 0 in shape:
            continue
        values, other, seed = (rng.integers(-8, 9, shape).astype(np.float64) for _ in range(3))
        np.testing.assert_array_equal(function(values)[0], _neighbours(np.pad(values, 1, mode)))
        if 0 not in shape:
            found = (np.asarray(gradient(values, seed)[0]) * other).sum()
            assert found == (seed * _neighbours(np.pad(other, 1, mode))).sum()


def _neighbours(y: np.ndarray) -> np.ndarray:
    return y[2:, 1:-1] + 2 * y[:-2, 1:-1] + y[1:-1, 2:] - y[1:-1, :-2] * 4
