"""The logistic regression of the examples: Newton's method finds the minimum, and derivatives are those written by hand."""

import re

import numpy as np

import tensorexpr as te
from tensorexpr.examples import logistic_regression as example


def test_newton_finds_the_minimum(capsys):
    assert example.main(["--points", "2000", "--steps", "8"]) == 0
    out = capsys.readouterr().out
    slopes = [float(slope) for slope in re.findall(r"gradient (\S+)", out)]
    assert len(slopes) == 8 and slopes[-1] < 1e-12
    assert float(re.search(r"weights off by ([\d.]+)", out)[1]) < 0.15


def test_derivatives_are_those_written_by_hand():
    x, y, w = example.made_data(50, 4, seed=3)
    v = np.random.default_rng(4).standard_normal(4)
    share = 1 / (1 + np.exp(y * (x @ w)))
    np.testing.assert_allclose(example.gradient(w, x, y), -(x.T @ (y * share)) / 50 + 1e-3 * w, rtol=1e-9)
    hessian = (x.T * (share * (1 - share))) @ x / 50 + 1e-3 * np.eye(4)
    np.testing.assert_allclose(example.curvature(w, x, y, v), hessian @ v, rtol=1e-9)
    te.check_gradient(example.loss, w, x, y)


def test_far_from_the_boundary_nothing_overflows():
    value, slope = example.value_and_gradient(np.array([30.0]), np.array([[20.0], [-20.0]]), np.array([1.0, 1.0]))
    np.testing.assert_allclose(value, 300 + 0.45, rtol=1e-12)
    np.testing.assert_allclose(slope, [10.03], rtol=1e-12)
