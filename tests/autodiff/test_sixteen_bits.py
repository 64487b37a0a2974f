"""Gradients and tangents of 16-bit floats are computed in float32 and round once where they are stored, in scans too.

The error against float64 (of the same 16-bit data) is measured in roundings: half a unit in the last place of the greatest
element. One is the least that storing the result costs.
"""

import numpy as np
import pytest

import tensorexpr as te

ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
ROWS, COLUMNS = 3, 48
FEW = 20
"""Columns of what has a sum in each term of a sum."""


def definitions(dtype):
    x, w = te.placeholder((ROWS, COLUMNS), dtype, name="x"), te.placeholder((COLUMNS, 8), dtype, name="w")
    start = te.compute((ROWS,), lambda i: te.cast(0, dtype))

    def mean(i):
        return te.sum(lambda k: x[i, k], FEW) / FEW

    def network(t, s):
        return te.compute((ROWS,), lambda i: te.tanh(s[i] * 0.75 + x[i, t] * w[t, 0]))

    made = {
        "matmul": te.compute((ROWS, 8), lambda i, j: te.sum(lambda k: x[i, k] * w[k, j], COLUMNS), name="y"),
        "convolution": te.compute((ROWS, COLUMNS - 4), lambda i, p: te.sum(lambda k: x[i, p + k] * w[k, 0], 5), name="y"),
        "log-sum-exp": te.compute((ROWS,), lambda i: te.log(te.sum(lambda k: te.exp(x[i, k]), COLUMNS)), name="y"),
        "layer norm": te.compute(
            (ROWS, FEW),
            lambda i, j: (x[i, j] - mean(i)) * te.rsqrt(te.sum(lambda k: (x[i, k] - mean(i)) ** 2, FEW) / FEW + 1e-3),
            name="y",
        ),
        "norm": te.compute((ROWS,), lambda i: te.sqrt(te.sum(lambda k: x[i, k] ** 2, COLUMNS)), name="y"),
        "many reads": te.compute(
            (ROWS, COLUMNS), lambda i, j: x[i, j] * x[i, COLUMNS - 1 - j] + te.sin(x[ROWS - 1 - i, j]) + x[0, j] + x[i, 0], name="y"
        ),
        "saturated": te.compute((ROWS, COLUMNS), lambda i, j: te.tanh(x[i, j] * 3.0) + te.sigmoid(x[i, j] * 4.0), name="y"),
        "cumulative sum": te.scan(lambda t, s: te.compute((ROWS,), lambda i: s[i] + x[i, t]), start, COLUMNS),
        "recurrent network": te.scan(network, start, COLUMNS),
        "with checkpoints": te.scan(network, start, COLUMNS, checkpoint=8),
        "fold": te.compute((ROWS,), lambda i: te.reduce(lambda a, b: a + b, 0.0, lambda k: x[i, k] * x[i, k], COLUMNS), name="y"),
    }
    return (x, w), made


NAMES = tuple(definitions("float64")[1])


def roundings(found, expected, dtype):
    scale = np.abs(expected).max()
    return float(np.abs(np.asarray(found, np.float64) - expected).max() / scale / ROUNDING[dtype]) if scale else 0.0


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("name", NAMES)
def test_errors_are_of_the_order_of_one_rounding(name, dtype):
    rng = np.random.default_rng(70)
    (x, w), made = definitions(dtype)
    (x64, w64), exact = definitions("float64")
    y, y64 = made[name], exact[name]
    data = [rng.standard_normal(t.shape).astype(te.dtype(dtype).numpy) for t in (x, w, y, x, w)]
    wide = [array.astype(np.float64) for array in data]
    head, head64 = te.placeholder(y.shape, dtype, name="H"), te.placeholder(y.shape, "float64", name="H")
    dots, dots64 = ([te.placeholder(t.shape, t.dtype, name=f"{t.name}_dot") for t in pair] for pair in ((x, w), (x64, w64)))
    gradient = te.gradient(y, [x, w], head)
    assert all(g.dtype.name == dtype for g in gradient) and te.jvp(y, [x, w], dots).dtype.name == dtype
    expected = te.evaluate(list(te.gradient(y64, [x64, w64], head64)), dict(zip((x64, w64, head64), wide[:3], strict=True)))
    tangent = te.evaluate(te.jvp(y64, [x64, w64], dots64), dict(zip((x64, w64, *dots64), (*wide[:2], *wide[3:]), strict=True)))
    found = te.build([*gradient, te.jvp(y, [x, w], dots)], [x, w, head, *dots])(*data)
    # The operands of the forward pass are rounded themselves: those of an exponential or a hyperbolic tangent count in full.
    limit = 3.0 if name in ("log-sum-exp", "saturated", "recurrent network", "with checkpoints") else 1.5
    # The tangent of a layer norm is itself times 1 / sqrt(variance), which the forward pass rounds as a sum, a quotient, a sum and a root:
    # to the first order 3/2 + 1, one for the difference from the mean, one where the tangent is stored.
    limits = (limit, limit, 4.5 if name == "layer norm" else limit)
    for value, wanted, most in zip(found, (*expected, tangent), limits, strict=True):
        assert roundings(value, wanted, dtype) <= most


@pytest.mark.parametrize("dtype", ROUNDING)
def test_parts_of_a_definition_have_adjoints_in_float32(dtype):
    """What is rounded is what the program stores: not the adjoints of sums that stand inside of one definition."""
    (x, _), made = definitions(dtype)
    gradient = te.gradient(made["layer norm"], x, te.placeholder((ROWS, FEW), dtype, name="H")).program
    assert {t.dtype.name for d in gradient.definitions for name, t in d.results if name.endswith("_bar") and name != "x_bar"} == {"float32"}


def test_what_would_overflow_or_vanish_in_sixteen_bits():
    x = te.placeholder((2,), "float16", name="x")
    ones = te.constant(np.ones(2, np.float16))
    angle = te.compute((2,), lambda i: te.atan2(x[i], x[1 - i]), name="angle")  # x*x + y*y is beyond float16
    np.testing.assert_allclose(te.evaluate(te.gradient(angle, x, ones)[0], {x: np.array([300, 400], np.float16)}), 0.0, atol=1e-6)
    single = te.compute((), lambda: te.atan2(x[0], x[1]))
    value = te.evaluate(te.gradient(single, x)[0], {x: np.array([300, 400], np.float16)})
    np.testing.assert_allclose(value.astype(float), np.array([400, -300]) / 250000, rtol=1e-3)
    small = te.compute((), lambda: te.rsqrt(x[0]) * x[1])  # its cube is beyond float16, times 2**-10 it is not
    value = te.evaluate(te.gradient(small, x)[0], {x: np.array([2.0**-12, 2.0**-10], np.float16)})
    assert value[0] == -(2.0**-1) * 2.0**18 * 2.0**-10


def test_ties_are_those_of_the_forward_pass():
    """Values that are equal once they are rounded are equal for the gradient, too."""
    x = te.placeholder((2,), "float16", name="x")
    data = np.array([2048.0, 2048.0], np.float16)
    y = te.compute((), lambda: te.maximum(x[0] + 0.5, x[1]))
    np.testing.assert_array_equal(te.evaluate(te.gradient(y, x)[0], {x: data}), [0.5, 0.5])
    top = te.compute((), lambda: te.max(lambda k: x[k] + te.cast(k, "float16") * 0.25, 2))
    np.testing.assert_array_equal(te.evaluate(te.gradient(top, x)[0], {x: data}), [1.0, 0.0])


@pytest.mark.parametrize("dtype", ROUNDING)
def test_orders_and_modes_agree(dtype):
    x, v = te.placeholder((8,), dtype, name="x"), te.placeholder((8,), dtype, name="v")
    f = te.compute((), lambda: te.sum(lambda i: te.exp(te.sin(x[i])) * x[7 - i], 8))
    slope = te.gradient(f, x)[0]
    rng = np.random.default_rng(71)
    data = {t: rng.standard_normal(8).astype(te.dtype(dtype).numpy) for t in (x, v)}
    ways = [te.gradient(slope, x, v)[0], te.jvp(slope, x, v), te.gradient(te.jvp(f, x, v), x)[0]]
    values = [te.evaluate(way, data).astype(float) for way in ways]
    for value in values[1:]:
        assert roundings(value, values[0], dtype) <= 4.0
