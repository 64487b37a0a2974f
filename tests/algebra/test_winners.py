"""Positions of winners, and other integers that are known to be small: kept, carried and compared in narrow types."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.algebra import with_narrow_winners
from tensorexpr.algebra.layouts.winners import bounds
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Define, Program
from tensorexpr.parse import parse_program
from tensorexpr.text import print_program
from tests.codegen.programs import WIDE, as_built, assert_means
from tests.random_programs import random_inputs

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


def narrowed(text: str) -> Program:
    return with_narrow_winners(parse_program(text))


def test_readers_get_what_they_got():
    program = narrowed(ARGMAX)
    text = print_program(program)
    assert "W[i]: i8[6] = i8(argmax(" in text and "i64(W[i]) == 7" in text and "i64(W[i]) == j" in text and "f32(i64(W[i]))" in text
    assert with_narrow_winners(program) == program
    inputs = random_inputs(program, 0)
    for one, other in zip(
        evaluate_program(program, inputs).values(), evaluate_program(parse_program(ARGMAX), inputs).values(), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert_means(schedule(program, WIDE))


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("condition", ["", " if x[i, k] < 2.5 or k > 30", " if k > i"], ids=["all", "data", "bounds"])
@pytest.mark.parametrize("lanes", [False, True], ids=["serial", "lanes"])
def test_winners_of_awkward_values(kind, condition, lanes):
    """The first point wins where nothing beats what an accumulator starts from, the first that counts where some are left out."""
    s = schedule(narrowed(WINNERS.format(value=f"{kind}(x[i, k] for k in range(40){condition})")), WIDE)
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
    ("value", "dtype"),
    [
        ("argmax(x[i, k] for k in range(40))", "i8"),
        ("where(i > 2, argmax(x[i, k] for k in range(40)), 127)", "i8"),
        ("where(i > 2, argmax(x[i, k] for k in range(40)), 128)", "i16"),
        ("where(i > 2, argmax(x[i, k] for k in range(40)), -32769)", "i32"),
        ("where(i > 2, argmax(x[i, k] for k in range(40)), 4294967296)", "i64"),
        ("t[i]", "i64"),
        ("t[i] * 0 + 3", "i64"),
    ],
    ids=["eight", "just", "sixteen", "negative", "large", "unknown", "computed"],
)
def test_the_least_type_that_holds_them(value, dtype):
    assert f"W[i]: {dtype}[6]" in print_program(narrowed(WINNERS.format(value=value)))


@pytest.mark.parametrize(
    "text",
    [
        ARGMAX.replace("return y, z", "return y, z, W"),
        ARGMAX.replace("x[i, 0])", "x[i, W[i]])"),
        ARGMAX.replace("x[i, 0])", "sum(x[i, k] for k in range(W[i])))"),
        ARGMAX.replace("f32[6, 40] = input", "f32[6, n] = input").replace("f32[6, 40] =", "f32[6, n] =").replace("range(40)", "range(n)")
        .replace("\nx:", "\nsizes(n)\nx:").replace("x[i, 0]", "f32(i)"),
    ],
    ids=["output", "place", "bound", "open"],
)  # fmt: skip
def test_what_stays_as_it_is(text):
    program = parse_program(text)
    assert with_narrow_winners(program) is program


def test_winners_that_steps_of_scans_read_stay_as_they_are():
    x = te.placeholder((6, 40), name="x")
    w = te.compute((6,), lambda i: te.argmax(lambda k: x[i, k], 40), name="W")
    start = te.compute((6,), lambda i: x[i, 0])
    states = te.scan(lambda t, q: te.compute((6,), lambda i: q[i] * 0.5 + te.cast(w[i], "float32"), name="n"), start, 4)
    program = te.program_of([states], [x])
    assert with_narrow_winners(program) is program


def test_the_default_schedule_keeps_winners_of_windows_in_eight_bits():
    x = te.placeholder((2, 20, 66), name="x")
    y = kernels.max_pool2d(x, kernel_size=3, stride=2)
    head = te.placeholder(y.shape, name="head")
    program = as_built(list(te.gradient(y, [x], head)), [x, head])
    text = str(lower(autoschedule(program, WIDE)))
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
