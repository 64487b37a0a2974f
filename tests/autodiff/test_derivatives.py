"""The derivative table: complete, equal to finite differences of the operations themselves, and as documented at the edges."""

import itertools
import math

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import dtypes
from tensorexpr.autodiff.local.derivatives import scalings
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Access, Const, Define, Input, Program, TensorType, apply
from tensorexpr.ops import OPS, expand
from tests.codegen.programs import as_built

F64 = dtypes.float64
FLOATING = [name for name, op in OPS.items() if op.accepts(F64) and name != "where"]
POINTS = {
    "asin": (-0.7, 0.1, 0.9),
    "acos": (-0.7, 0.1, 0.9),
    "sqrt": (0.3, 2.0),
    "rsqrt": (0.3, 2.0),
    "log": (0.3, 2.0),
    "log2": (0.3, 2.0),
    "log1p": (-0.4, 2.0),
    "pow": (0.3, 1.7, 2.4),
    "mod": (0.7, -1.8, 2.3),
    "floordiv": (0.7, -1.8, 2.3),
}


def partial(name: str, operand: int, values: tuple[float, ...], exponent: float | None = None) -> float:
    """The partial derivative of the table, evaluated by the reference interpreter."""
    args = tuple(Access(f"x{k}", (), F64) for k in range(len(values)))
    if exponent is not None:
        args = (args[0], Const(exponent, F64))
    scaling = scalings(OPS[name])[operand]
    if scaling is None:
        return 0.0
    value = scaling(Const(1.0, F64), args, apply(name, *args))
    inputs = tuple(Input(f"x{k}", TensorType((), F64)) for k in range(len(values)))
    program = Program(inputs, (), (Define("d", (), value),), ("d",))
    with np.errstate(all="ignore"):
        return float(evaluate_program(program, {f"x{k}": np.float64(v) for k, v in enumerate(values)})["d"])


def test_every_operation_on_floats_has_a_row():
    assert [name for name in FLOATING if len(scalings(OPS[name])) != OPS[name].arity] == []


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if name in FLOATING and op.result == "same" and name != "stop_gradient"])
def test_the_table_equals_finite_differences(name):
    op, step = OPS[name], 1e-6
    points = POINTS.get(name, (-1.3, 0.4, 2.1))
    for first in points:
        values = (first,) if op.arity == 1 else (first, 1.2)
        for operand in range(op.arity):
            low, high = list(values), list(values)
            low[operand] -= step
            high[operand] += step
            expected = (op.evaluate(*map(np.float64, high)) - op.evaluate(*map(np.float64, low))) / (2 * step)
            assert partial(name, operand, values) == pytest.approx(expected, rel=1e-8, abs=1e-8)


def kinked(name: str, values: tuple[float, ...]) -> bool:
    """Whether the row says that there is no unique slope at these operands."""
    text = OPS[name].kink
    operands = dict(zip("ab", map(np.float64, values), strict=False))
    with np.errstate(all="ignore"):
        return text is not None and bool(expand(text, operands, np.float64, lambda other, *args: OPS[other].evaluate(*args)))


@pytest.mark.parametrize("name", [name for name in FLOATING if name not in ("stop_gradient", "recompute")])
def test_where_differences_to_both_sides_disagree_the_row_says_so(name):
    op, step, grid = OPS[name], 2.0**-20, (-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)
    for values in itertools.product(grid, repeat=op.arity):
        for operand in range(op.arity):
            at, low, high = (
                float(op.evaluate(*(np.float64(v + by * (k == operand)) for k, v in enumerate(values)))) for by in (0.0, -step, step)
            )
            left, right = (at - low) / step, (high - at) / step
            if math.isfinite(left) and math.isfinite(right) and abs(left - right) > 0.01 * (1 + abs(left) + abs(right)):
                assert kinked(name, values), values
    assert not kinked(name, (0.3, 0.77)[: op.arity])


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if name in FLOATING and op.result == "bool"])
def test_comparisons_are_flat(name):
    assert all(scaling is None for scaling in scalings(OPS[name]))


def test_conventions_at_kinks_and_edges():
    assert partial("abs", 0, (0.0,)) == 0 and partial("sign", 0, (0.0,)) == 0
    assert partial("maximum", 0, (1.5, 1.5)) == partial("maximum", 1, (1.5, 1.5)) == 0.5
    assert partial("minimum", 0, (1.5, 1.5)) == partial("minimum", 1, (1.5, 1.5)) == 0.5
    assert partial("maximum", 0, (math.nan, 1.0)) == partial("maximum", 1, (1.0, 2.0)) - 1 == 0
    assert partial("sqrt", 0, (0.0,)) == math.inf
    assert partial("floor", 0, (2.0,)) == partial("round", 0, (0.5,)) == partial("trunc", 0, (1.0,)) == 0


@pytest.mark.parametrize("base", [-2.0, 0.0, 1.5])
@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0])
def test_power_with_a_constant_exponent_is_right_for_every_base(base, exponent):
    expected = 0.0 if exponent == 0 else exponent * base ** (exponent - 1)
    assert partial("pow", 0, (base,), exponent) == expected


def test_power_at_base_zero():
    assert partial("pow", 0, (0.0, 0.0)) == 0
    assert partial("pow", 0, (0.0, 2.0)) == 0
    assert partial("pow", 1, (0.0, 2.0)) == 0
    assert partial("pow", 1, (0.0, 0.0)) == 0
    assert math.isnan(partial("pow", 1, (-2.0, 2.0)))


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
