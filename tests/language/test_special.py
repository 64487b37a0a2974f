"""Functions that are made of others, beside mpmath with 40 digits: values, derivatives, special values."""

import mpmath
import numpy as np
import pytest

import tensorexpr as te

DRAW = np.random.default_rng(0)
WIDE = np.concatenate([DRAW.uniform(-20, 60, 150), DRAW.uniform(0.6, 3, 50)])
UNIT = np.concatenate([DRAW.uniform(-1, 1, 120), 1 - 10.0 ** -DRAW.uniform(1, 15, 60), 10.0 ** -DRAW.uniform(1, 12, 20)])
SIGNED = 10.0 ** DRAW.uniform(-10, 20, 200) * np.sign(DRAW.normal(size=200))
FUNCTIONS = {
    # function, reference, derivative, arguments, error in units of the last place of the larger one of the result and a floor, floor
    "erfcx": (
        lambda v: mpmath.exp(v * v) * mpmath.erfc(v),
        lambda v: 2 * v * mpmath.exp(v * v) * mpmath.erfc(v) - 2 / mpmath.sqrt(mpmath.pi),
        DRAW.uniform(-9, 26, 200),
        4,
        0,
    ),
    "erfc": (mpmath.erfc, lambda v: -2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-v * v), DRAW.uniform(-6, 26, 200), 4, 0),
    "erfinv": (mpmath.erfinv, lambda v: mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(mpmath.erfinv(v) ** 2), UNIT, 3, 0),
    "ndtr": (mpmath.ncdf, mpmath.npdf, DRAW.uniform(-30, 8, 200), 4, 0),
    "lgamma": (lambda v: mpmath.log(abs(mpmath.gamma(v))), mpmath.digamma, WIDE, 40, 1),
    "digamma": (mpmath.digamma, lambda v: mpmath.polygamma(1, v), WIDE[WIDE > 0.5], 10, 1),
    "asinh": (
        mpmath.asinh,
        lambda v: 1 / mpmath.sqrt(1 + v * v),
        10.0 ** DRAW.uniform(-10, 20, 200) * np.sign(DRAW.normal(size=200)),
        2,
        0,
    ),
    "acosh": (mpmath.acosh, lambda v: 1 / mpmath.sqrt(v * v - 1), 1 + 10.0 ** DRAW.uniform(-8, 20, 200), 2, 0),
    "atanh": (mpmath.atanh, lambda v: 1 / (1 - v * v), UNIT[np.abs(UNIT) < 1 - 1e-9], 2, 0),
    "log10": (mpmath.log10, lambda v: 1 / (v * mpmath.log(10)), 10.0 ** DRAW.uniform(-30, 30, 200), 2, 0),
}


def defined(name, x):
    """The argument and the function of it, for arrays like this one."""
    a = te.placeholder(x.shape, x.dtype.name, name="a")
    return a, te.compute(x.shape, lambda i: getattr(te, name)(a[i]), name="y")


def of(name, x):
    """Value and derivative."""
    a, y = defined(name, x)
    return te.build([y, *te.gradient(y, [a], te.constant(np.ones_like(x)))], [a])(x)


def value_of(name, x):
    """The value alone, where nobody asks for the derivative, which takes most of the time to compile."""
    a, y = defined(name, x)
    return te.build(y, [a])(x)


def errors(found, expected, kind, floor):
    """In units in the last place of the larger one of the expected value and a floor."""
    unit = float(np.finfo(kind).eps)
    least = max(floor, float(np.finfo(kind).tiny))
    return max(float(abs(mpmath.mpf(float(a)) - b) / max(abs(b), least)) / unit for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_accuracy(name):
    function, slope, x, units, floor = FUNCTIONS[name]
    with mpmath.workdps(40):
        got, derivative = of(name, x)
        exact = [mpmath.mpf(float(v)) for v in x]
        assert errors(got, map(function, exact), np.float64, floor) <= units
        slopes = [slope(v) for v in exact]
        large = max(1e-280, float(min(map(abs, slopes))))
        assert errors(derivative, slopes, np.float64, 1 if floor else large) <= 100
        narrow = x.astype(np.float32)
        if name in ("erfinv", "atanh"):
            narrow = narrow[np.abs(narrow) < 1]
        if name == "acosh":
            narrow = narrow[narrow > 1]
        got, exact = value_of(name, narrow), [mpmath.mpf(float(v)) for v in narrow]
        assert errors(got, map(function, exact), np.float32, floor) <= 0.51


@pytest.mark.parametrize(
    "name, x, expected",
    [
        ("erfc", [np.inf, -np.inf, 0.0, np.nan], [0.0, 2.0, 1.0, np.nan]),
        ("erfcx", [np.inf, -np.inf, 0.0, np.nan], [0.0, np.inf, 1.0, np.nan]),
        ("erfinv", [0.0, 1.0, -1.0, 1.5, np.nan], [0.0, np.inf, -np.inf, np.nan, np.nan]),
        ("ndtr", [np.inf, -np.inf, 0.0, np.nan], [1.0, 0.0, 0.5, np.nan]),
        ("lgamma", [0.0, -1.0, np.inf, -np.inf, np.nan], [np.inf, np.inf, np.inf, np.inf, np.nan]),
        ("digamma", [0.0, -1.0, np.inf, np.nan], [-np.inf, np.nan, np.inf, np.nan]),
        ("trigamma", [0.0, -1.0, np.inf, np.nan], [np.inf, np.inf, 0.0, np.nan]),
        ("asinh", [np.inf, -np.inf, 0.0, np.nan], [np.inf, -np.inf, 0.0, np.nan]),
        ("acosh", [1.0, 0.5, np.inf, np.nan], [0.0, np.nan, np.inf, np.nan]),
        ("atanh", [0.0, 1.0, -1.0, 2.0, np.nan], [0.0, np.inf, -np.inf, np.nan, np.nan]),
        ("log10", [1.0, 0.0, -1.0, np.inf], [0.0, -np.inf, np.nan, np.inf]),
    ],
)
def test_special_values(name, x, expected):
    np.testing.assert_array_equal(value_of(name, np.array(x)), expected)


@pytest.mark.parametrize("name", ["erfc", "erfcx", "erfinv", "ndtr", "asinh", "atanh"])
def test_slopes_at_zero(name):
    """Where the formula changes sides it has the derivative of both."""
    _, derivative = of(name, np.array([0.0, -0.0, 0.1]))
    np.testing.assert_allclose(derivative[:2], float(FUNCTIONS[name][1](mpmath.mpf(0))), rtol=1e-14)


def test_integers_go_to_floats():
    a = te.placeholder((3,), "int64", name="a")
    assert te.compute((3,), lambda i: te.lgamma(a[i])).dtype.name == "float64"
