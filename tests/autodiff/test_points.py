"""Adjoints that are 0 but at one place of each row: computed once for each row, with no loop over the others."""

import numpy as np
import pytest

import tensorexpr as te

N = te.dim("n")


def picked(rows, columns, shift):
    """The gradient of a picked element's logarithm, of values that sum to 1, where places beside the row are left out."""
    x, t = te.placeholder((rows, columns), name="x"), te.placeholder((rows,), "int64", name="t")
    e = te.compute((rows, columns), lambda i, j: te.exp(x[i, j]), name="e")
    z = te.compute((rows,), lambda i: te.sum(lambda j: e[i, j], columns), name="z")
    p = te.compute((rows, columns), lambda i, j: e[i, j] / z[i], name="p")
    y = te.compute((), lambda: te.sum(lambda i, j: te.where(t[i] + shift == j, te.log(p[i, j]), 0.0), (rows, columns)), name="y")
    return te.gradient(y, [x]), [x, t]


def test_what_takes_something_is_computed_once_for_each_row():
    text = " ".join(str(picked(4, 5, 0)[0]).split())
    assert "p_bar_at[i]: f32[4] = where(t[i] >= 0 and t[i] < 5, 1.0 / (e[i, t[i]] / z[i]), 0.0)" in text
    assert "if t[i]" not in text and text.count("for j in range(5)") == 1


@pytest.mark.parametrize("shift", [0, 3])
@pytest.mark.parametrize("extents", [(N, 5), (4, N), (N, N)])
def test_places_beside_a_row_have_none(extents, shift):
    gradient, inputs = picked(*extents, shift)
    run = te.build(list(gradient), inputs)
    for n in (0, 1, 7, 33):
        rows, columns = (n if e is N else e for e in extents)
        random = np.random.default_rng(n)
        x, t = random.standard_normal((rows, columns)).astype(np.float32), random.integers(-2, columns + 2, rows)
        share = np.exp(x) / np.exp(x).sum(1, keepdims=True)
        hot = (t[:, None] + shift == np.arange(columns)).astype(np.float32)
        np.testing.assert_allclose(run(x, t)[0], hot - share * hot.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_values_that_nobody_picks_do_not_count():
    gradient, inputs = picked(3, 4, 0)
    x, t = np.zeros((3, 4), np.float32), np.array([1, 2, 9])
    x[2] = np.nan
    (found,) = te.build(list(gradient), inputs)(x, t)
    np.testing.assert_allclose(found[:2], np.eye(4, dtype=np.float32)[[1, 2]] - 0.25, rtol=1e-6)
