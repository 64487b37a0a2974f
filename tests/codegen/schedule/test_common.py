"""What definitions compute alike becomes a definition of its own: `common`, and the rows that keep costly values by default."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Apply
from tensorexpr.language.core.programs import program_of
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tensorexpr.traversal import expressions, walk
from tests.codegen.programs import WIDE, assert_means, plain

SOFTMAX = """
x: f32[16, 40] = input()
T[i]: f32[16] = sum(exp(x[i, k]) for k in range(40))
Y[i, j]: f32[16, 40] = exp(x[i, j]) / T[i]
return Y
"""
MASKED = """
x: f32[16, 40] = input()
T[i]: f32[16] = sum(where(x[i, k] > 0.0, exp(x[i, k]), 0.0) for k in range(40))
U[i]: f32[16] = max(exp(x[i, k]) for k in range(40) if k < 30)
Y[i, j]: f32[16, 40] = exp(x[i, j]) / T[i] + U[i]
return Y
"""


def exponentials(program):
    return sum(isinstance(n, Apply) and n.op.name == "exp" for d in program.definitions for e in expressions(d) for n in walk(e))


def test_values_in_common_are_a_definition_with_loops_of_its_own():
    s = plain(SOFTMAX)
    assert s["Y"].common("T") == ("Y_exp",)
    assert s.stages == ("Y_exp", "T", "Y") and s["Y_exp"].loops == ("i", "j") and exponentials(s.state.program) == 1
    s["T"].compute_at("Y", "i")
    s["Y_exp"].compute_at("Y", "i")
    assert "Y_exp_1: local(f32[40])" in str(assert_means(s))
    again = plain(SOFTMAX)
    exec(s.as_python(), {"s": again})
    assert again == s


def test_values_under_conditions_and_of_three_definitions_are_in_common():
    s = plain(MASKED)
    assert s["U"].common("T", "Y") == ("U_exp",) and exponentials(s.state.program) == 1
    x = np.random.default_rng(0).standard_normal((16, 40)).astype(np.float32)
    x[3, 35] = np.nan
    assert_means(s, inputs={"x": x})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("exp(x[i, 39 - k])", "expected costly values that Y and T compute alike, element by element, got none"),
        ("exp(x[k % 16, k])", "expected costly values that Y and T compute alike, element by element, got none"),
        ("x[i, k] * 2.0", "expected costly values that Y and T compute alike, element by element, got none"),
    ],
)
def test_values_at_other_places_are_not_alike(other, message):
    s = plain(SOFTMAX.replace("sum(exp(x[i, k])", f"sum({other}"))
    with pytest.raises(ScheduleError, match=message):
        s["Y"].common("T")


def test_what_has_other_loops_is_refused():
    s = plain(SOFTMAX)
    with pytest.raises(ScheduleError, match="expected other definitions to have values in common with Y, got none"):
        s["Y"].common()
    s["T"].split("k", 8)
    with pytest.raises(ScheduleError, match="expected plain definitions with plain loops to have values in common, got T"):
        s["Y"].common("T")


def made(outputs):
    return autoschedule(simplify(program_of(outputs)), WIDE)


@pytest.mark.parametrize("op", [kernels.softmax, kernels.logsumexp])
def test_an_exponential_of_a_row_is_taken_once_and_a_row_of_them_is_all_that_is_kept(op):
    x = te.placeholder((64, 96), "float64", name="x")
    y = op(x, axis=-1)
    s = made([y, *te.gradient(y, [x], te.placeholder(y.shape, "float64", name="head"))])
    assert exponentials(s.state.program) == 1 and len({p.place.stage for p in s.state.stages if p.place is not None}) == 1
    nest = assert_means(s, exact=False)
    assert nest.workspace == () and len(nest.kernels) == 1


def test_values_of_rows_that_run_apart_or_are_long_are_taken_again():
    for shape, axis in (((64, 96), 0), ((16, 1 << 18), 1)):
        s = made([kernels.softmax(te.placeholder(shape, name="x"), axis=axis)])
        assert exponentials(s.state.program) == 2 and "common" not in s.as_python()
    late = SOFTMAX.replace("Y[", "M[u]: f32[1] = max(T[i] for i in range(16))\nY[", 1).replace("return", "return M,")
    s = autoschedule(parse_program(late), WIDE)
    assert exponentials(s.state.program) == 2 and assert_means(s, exact=False)


def test_a_kept_row_has_the_bits_of_what_is_computed_twice():
    x = np.random.default_rng(1).standard_normal((16, 40)).astype(np.float32)
    found = []
    for kept in (False, True):
        s = plain(SOFTMAX)
        if kept:
            s["Y"].common("T")
        s["T"].vectorize(s["T"].split("k", 8)[1])
        found.append(te.build(s)(x))
    assert np.array_equal(*found)
