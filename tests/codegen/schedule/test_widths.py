"""Positions of winners, and other integers that are known to be small: kept, carried and compared in narrow types."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule.definitions.widths import bounds
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Define
from tensorexpr.parse import parse_program
from tests.codegen.programs import WIDE, as_built, assert_means, plain

WINNERS = """
x: f32[6, 40] = input()
t: i64[6] = input()
W[i]: i64[6] = {value}
y[i, j]: f32[6, 40] = where(W[i] == j, x[i, j], 0.0)
z[i]: f32[6] = where(W[i] == 7, f32(W[i]), x[i, 0])
return y, z
"""
ARGMAX = WINNERS.format(value="argmax(x[i, k] for k in range(40))")
AWKWARD = ([-np.inf] * 40, [np.inf] * 40, [np.nan] * 40, [-np.inf] * 39 + [np.nan], [2.0, np.nan, 3.0] * 13 + [9.0], [-0.0, 0.0] * 20)


def test_readers_get_what_they_got():
    s = plain(ARGMAX)
    s["W"].store_as("int8")
    nest = assert_means(s)
    text = str(nest)
    assert "W: workspace(i8[6])" in text and "i64(W[i]) == 7" in text and "i64(W[i]) == j" in text and "f32(i64(W[i]))" in text


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("condition", ["", " if x[i, k] < 2.5 or k > 30", " if k > i"], ids=["all", "data", "bounds"])
@pytest.mark.parametrize("lanes", [False, True], ids=["serial", "lanes"])
def test_winners_of_awkward_values(kind, condition, lanes):
    """The first point wins where nothing beats what an accumulator starts from, the first that counts where some are left out."""
    s = plain(WINNERS.format(value=f"{kind}(x[i, k] for k in range(40){condition})"))
    if lanes:
        s["W"].split("k", 16)
        s["W"].vectorize("k_i")
    s["y"].split("j", 16, "guard")
    s["y"].vectorize("j_i")
    assert_means(s, inputs={"x": np.array(AWKWARD, np.float32), "t": np.zeros(6, np.int64)})


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "bool", "float16", "float64"])
def test_winners_in_all_kinds_of_types(dtype):
    least = {"int8": -128, "int64": -(2**63), "float16": -np.inf, "float64": -np.inf}.get(dtype, 0)
    x = te.placeholder((3, 20), dtype, name="x")
    y = te.compute((3,), lambda i: te.argmax(lambda k: x[i, k], 20), name="y")
    data = np.full((3, 20), least).astype(dtype)
    data[1, 5] = data[2, 19] = 1
    np.testing.assert_array_equal(te.build(y, [x])(data), [0, 5, 19])


def test_bounds_of_integers():
    program = parse_program(
        """
x: f32[6, 40] = input()
t: i64[6] = input()
A[i]: i64[6] = where(x[i, 0] > 0.0, argmax(x[i, k] for k in range(40)), -3)
B[i]: i64[6] = argmin(x[i, k] for k in range(i + 1))
C[i]: i64[6] = argmin(x[j, k] for j in range(6) for k in range(40))
D[i]: i64[6] = t[i]
return A, B, C, D
"""
    )
    assert [bounds(d.value) for d in program.definitions if isinstance(d, Define)] == [(-3, 39), None, (0, 239), None]


@pytest.mark.parametrize(
    ("value", "dtype", "reason"),
    [
        ("argmax(x[i, k] for k in range(40))", "uint8", "expected integers of W that uint8 is known to hold, got values from 0 to 39"),
        ("where(i > 2, argmax(x[i, k] for k in range(40)), 128)", "int8", "that int8 is known to hold, got values from 0 to 128"),
        ("t[i]", "int32", "expected integers of W that int32 is known to hold, got values that are not known"),
    ],
    ids=["unsigned", "large", "unknown"],
)
def test_what_a_type_is_not_known_to_hold(value, dtype, reason):
    s = plain(WINNERS.format(value=value))
    with pytest.raises(ScheduleError, match=reason):
        s["W"].store_as(dtype)


def test_what_is_refused():
    s = plain(ARGMAX.replace("return y, z", "return y, z, W"))
    with pytest.raises(ScheduleError, match="expected a plain definition between inputs and outputs to store in another type, got W"):
        s["W"].store_as("int8")
    s = plain(ARGMAX.replace("x[i, 0])", "x[i, W[i]])"))
    with pytest.raises(
        ScheduleError, match="expected W to be computed with by plain definitions that read it, got one that reads or loops by it"
    ):
        s["W"].store_as("int8")
    s = plain(ARGMAX)
    s["y"].split("j", 4)
    with pytest.raises(ScheduleError, match="expected plain loops of W and of what reads it, got changed ones of y"):
        s["W"].store_as("int8")


def test_the_default_schedule_keeps_winners_of_windows_in_eight_bits():
    x = te.placeholder((2, 20, 66), name="x")
    y = kernels.max_pool2d(x, kernel_size=3, stride=2)
    head = te.placeholder(y.shape, name="head")
    program = as_built(list(te.gradient(y, [x], head)), [x, head])
    s = autoschedule(program, WIDE)
    assert "store_as('int8')" in s.as_python()
    text = str(lower(s))
    assert "i8[2, 9, 32]" in text and "_argmax: local(i32[" in text


def test_lanes_are_compared_in_32_bits_at_most():
    """Half as many vectors as in 64 bits; a literal is compared as it is kept."""
    x = te.placeholder((4, 64), name="x")
    y = te.compute((4, 32), lambda i, j: te.max(lambda k: x[i, 2 * j + k], 2))
    head = te.placeholder(y.shape, name="head")
    f = te.build(list(te.gradient(y, [x], head)), [x, head])
    text = f.source("llvm")
    assert "x i8>" in text and " x i64> " not in text.split("icmp eq", 1)[1].split("\n", 1)[0]
    rng = np.random.default_rng(0)
    a, h = rng.integers(0, 3, (4, 64)).astype(np.float32), rng.normal(size=(4, 32)).astype(np.float32)
    first = a.reshape(4, 32, 2).argmax(-1)
    np.testing.assert_array_equal(f(a, h)[0].reshape(4, 32, 2), np.where(first[..., None] == np.arange(2), h[..., None], 0))
