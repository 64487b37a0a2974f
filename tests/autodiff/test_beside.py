"""Products of what is read beside them (`autodiff.beside`): written there, where a function is computed for every read."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.autodiff.sweep import beside
from tests.codegen.programs import as_built

N = 24
RNG = np.random.default_rng(20261123)


def mean(x, weight):
    """A mean over neighbors, weighted by how alike they are, as a quotient of two sums."""
    (n,) = x.shape

    def pair(i, k):
        return weight(x.read(i + k - 2, outside="clamp") - x[i])

    total = te.compute((n,), lambda i: te.sum(lambda k: pair(i, k), 5), name="total")
    return te.compute((n,), lambda i: te.sum(lambda k: pair(i, k) * x.read(i + k - 2, outside="clamp"), 5) / total[i], name="y")


@te.op
def smooth(x):
    return mean(x, lambda d: te.exp(-d * d))


def derived(weight):
    x, head = te.placeholder((N,), "float64", name="x"), te.placeholder((N,), "float64", name="head")
    y = mean(x, weight)
    gradient = te.gradient(y, [x], head)
    return gradient, str(as_built([y, *gradient], [x, head]))


def test_the_divisor_gets_what_the_dividend_gets_times_the_result():
    a, b, h = (te.placeholder((4,), name=name) for name in "abh")
    y = te.compute((4,), lambda i: a[i] / b[i], name="y")
    assert "b_bar[i]: f32[4] = -(h[i] / b[i] * y[i])" in str(as_built([y, *te.gradient(y, [a, b], h)], [a, b, h]))


@pytest.mark.parametrize("a", [0.0, 1.0, np.inf])
@pytest.mark.parametrize("b", [0.0, -2.0, np.inf])
@pytest.mark.parametrize("t", [0.0, 3.0, np.inf])
def test_a_quotient_at_zero_and_infinity(a, b, t):
    """As -(t * (a / b / b)): the same numbers, infinities and NaN."""
    x, y, head = (te.placeholder((), "float64", name=name) for name in "xyh")
    quotient = te.compute((), lambda: x[()] / y[()], name="q")
    with np.errstate(all="ignore"):
        a, b, t = np.float64(a), np.float64(b), np.float64(t)
        (found,) = te.evaluate(list(te.gradient(quotient, [y], head)), {x: a, y: b, head: t})
        np.testing.assert_array_equal(found, -(t * (a / b / b)))


def test_the_product_is_written_beside_an_exponential():
    gradient, program = derived(lambda d: te.exp(-d * d))
    assert "y_bar" in program and "total_bar" not in program
    assert any(d.name == "total_bar" for d in gradient.reverse.workspace.definitions), "for who asks for it"


def test_it_is_kept_where_no_function_is_computed():
    assert "total_bar" in derived(lambda d: d * d + 1.0)[1]


def test_the_gradient_is_the_same_and_has_one_of_its_own():
    x, head = RNG.standard_normal((2, N))
    te.check_gradient(smooth, x)
    derivative = te.vjp(smooth)

    @te.op
    def once(x, head):
        (found,) = derivative(x, head)
        return found

    te.check_gradient(once, x, head)


def test_definitions_are_not_compared_in_pairs(monkeypatch):
    """Each one is looked up by what it computes, among those before it: a chain of 2,000 stages took 40 s."""
    renamed = []
    monkeypatch.setattr(beside, "substitute", lambda *given, made=beside.substitute: renamed.append(given) or made(*given))
    x = te.placeholder((2,), "float64", name="x")
    t = x
    for _ in range(100):
        t = te.compute((2,), lambda i, s=t: s[1 - i] * 1.001, name="t")
    te.gradient(t, [x], head=te.placeholder((2,), "float64", name="H"))
    assert 90 <= len(renamed) < 200
