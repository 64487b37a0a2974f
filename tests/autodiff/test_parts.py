"""What several definitions of the same points compute is swept once, for all of them together."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.autodiff.sweep.parts import with_parts
from tensorexpr.codegen.cost import cost_of
from tensorexpr.parse import parse_program
from tensorexpr.text import print_expr
from tensorexpr.traversal import fresh_name


def slope(state, p):
    x, y, z = state
    return p[0] * (y - x), x * (p[1] - z) - y, x * y - p[2] * z


def moved(state, slopes, by):
    return tuple(s + by * k for s, k in zip(state, slopes, strict=True))


def runge_kutta(named: bool):
    """A step of the method of fourth order, over three components: written as one tuple, or its stages as tensors."""

    def solve(u, p):
        (n,) = u.shape[1:]

        def stage(f):
            return te.compute((n,), f) if named else f

        def at(stage, i):
            return tuple(s[i] for s in stage) if named else stage(i)

        def step(_, state):
            here = lambda i: tuple(s[i] for s in state)  # noqa: E731
            slopes = [stage(lambda i: slope(here(i), p))]
            for by in (0.05, 0.05, 0.1):
                last = slopes[-1]
                slopes.append(stage(lambda i, last=last, by=by: slope(moved(here(i), at(last, i), by), p)))
            weights = (0.1 / 6, 0.2 / 6, 0.2 / 6, 0.1 / 6)

            def after(i):
                found = here(i)
                for k, by in zip(slopes, weights, strict=True):
                    found = moved(found, at(k, i), by)
                return found

            return te.compute((n,), after)

        ends = te.scan(step, tuple(te.compute((n,), lambda i, c=c: u[c, i]) for c in range(3)), 3)
        return te.compute((n,), lambda i: ends[0][2, i] + ends[1][2, i] * ends[2][2, i])

    return solve


def gradient_of(solve, n):
    u, p = te.placeholder((3, n), "float64", name="u"), te.placeholder((3,), "float64", name="p")
    out = solve(u, p)
    head = te.placeholder(out.shape, "float64", name="head")
    return te.gradient(out, [u, p], head)


def test_stages_of_a_step_cost_about_as_much_as_if_they_had_names() -> None:
    """Without parts it is five times as much. What is left are values of the forward pass, written where they are read."""
    one, named = (cost_of(gradient_of(runge_kutta(kind), 100).program) for kind in (False, True))
    assert one.operations <= 2.2 * named.operations


def test_gradients_of_components_are_those_of_stages_with_names() -> None:
    rng = np.random.default_rng(0)
    ops = [te.vjp(te.op(runge_kutta(kind)), wrt=("u", "p")) for kind in (False, True)]
    for n in (0, 33):  # each is compiled for itself
        arrays = rng.standard_normal((3, n)), rng.standard_normal(3), rng.standard_normal(n)
        found, want = (op(*arrays) for op in ops)
        for mine, theirs in zip(found, want, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)


PROGRAM = """
x: f64[8] = input()
w: f64[8] = input()
a[i]: f64[8] = {a}
b[j]: f64[8] = {b}
return a, b
"""


@pytest.mark.parametrize(
    ("a", "b", "count"),
    [
        ("exp(x[i] * w[i]) + 1.0", "exp(x[j] * w[j]) * w[j]", 1),
        ("exp(x[i] * w[i])", "exp(x[j] * w[j]) * w[j]", 0),  # what the first is by itself is read
        ("x[i] + 1.0", "x[j] + 1.0 - w[j]", 0),  # one operation
        ("exp(x[i] * w[0]) + 1.0", "exp(x[j] * w[j]) * 2.0", 0),  # another value
        ("where(x[i] > 0.0, log(x[i]) * 2.0, 1.0)", "where(x[j] > 0.0, log(x[j]) * 3.0, 2.0)", 0),  # not everywhere
        ("log(x[i]) * 2.0", "where(x[j] > 0.0, log(x[j]) * 3.0, 2.0)", 1),
        ("exp(sqrt(x[i] * w[i])) + 1.0", "exp(sqrt(x[j] * w[j])) * sqrt(x[j] * w[j])", 2),
        ("sum(exp(x[k]) for k in range(8)) * x[i]", "sum(exp(x[k]) for k in range(8)) * w[j]", 0),  # inside of reductions
    ],
)
def test_parts_are_values_of_all_points_that_cost_something(a: str, b: str, count: int) -> None:
    program = parse_program(PROGRAM.format(a=a, b=b))
    taken = {"x", "w", "a", "b"}
    found = with_parts(program.definitions, ["x", "w"], (), lambda name: fresh_name(f"{name}_part", taken))
    assert len(found) == 2 + count, [print_expr(d.value) for d in found]
    if a == "exp(x[i] * w[i])":
        assert print_expr(found[1].value) == "a[j] * w[j]"


def test_what_is_not_computed_has_no_derivative() -> None:
    """A value of both branches alone stays there: its derivative at other points may be no number."""
    x = te.placeholder((4,), "float64", name="x")
    a, b = te.compute((4,), lambda i: tuple(te.where(x[i] > 0.0, te.log(x[i]) * c, 1.0) for c in (2.0, 3.0)))
    y = te.compute((4,), lambda i: a[i] * b[i])
    (x_bar,) = te.gradient(te.compute((), lambda: te.sum(lambda i: y[i], 4)), [x])
    given = np.array([-1.0, 0.0, 1.0, 2.0])
    want = np.where(given > 0, 12 * np.log(np.maximum(given, 1e-9)) / np.where(given > 0, given, 1), 0.0)
    np.testing.assert_allclose(te.evaluate(x_bar, {x: given}), want)
