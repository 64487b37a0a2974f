"""Scatters whose loops begin or end where others are: the loops that bounds need stand around, in every schedule."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tests.codegen.programs import planned


@pytest.mark.parametrize("combine", ["sum", "prod", "max"])
@pytest.mark.parametrize("length", [1, 2, 7, 40])
def test_a_scatter_over_a_triangle(combine: str, length: int) -> None:
    made = te.scatter((2, length), lambda i, j: ((1, j), i + j), (length, length), combine=combine, where=lambda i, j: j >= i, name="T")
    np.testing.assert_array_equal(te.build(made, [])(), te.evaluate(made, {}))


@pytest.mark.parametrize("lowering", ["atomics", "segments", None])
@pytest.mark.parametrize("length", [1, 2, 9, 70])
def test_gradients_of_sums_over_prefixes(lowering: str | None, length: int) -> None:
    x, head = (te.placeholder((length,), "float64", name=name) for name in "XH")
    sums = te.compute((length,), lambda z: te.sum(lambda q: x[q], z), name="T")
    data = np.arange(1.0, length + 1)
    (made,) = te.build(list(te.gradient([sums], [x], [head], lowering=lowering)), [x, head])(data, data)
    np.testing.assert_array_equal(made, data[::-1].cumsum()[::-1] - data)


def test_a_loop_that_ends_by_another_stays_inside() -> None:
    made = te.scatter((40,), lambda i, j: ((j,), i), (40, 40), combine="sum", where=lambda i, j: j >= i, name="T")
    s = planned(made)
    i, j = s["T"].loops
    with pytest.raises(te.ScheduleError):
        s["T"].reorder(j, i)
