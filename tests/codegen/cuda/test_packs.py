"""Neighboring elements of a thread as one access: where they are one, what stays single, and that values are the same."""

import re

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.codegen.target import H200
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tests.codegen.cuda.device import Program, needs_compiler

pytestmark = needs_compiler


def source_of(text: str, axis: str, lanes: int, **arrays: np.ndarray) -> str:
    """The text of a program whose last axis has packs; checks its values."""
    s = schedule(parse_program(text), H200)
    (name,) = s.stages
    _, lane = s[name].split(axis, lanes)
    s[name].vectorize(lane)
    loop = s[name].loops[0]
    for inner in s[name].loops[1:-1]:
        loop = s[name].fuse(loop, inner)
    s[name].parallel(loop)
    made = Program(lower(s))
    want = evaluate_program(s.program, arrays, {})
    np.testing.assert_array_equal(made(arrays)[made.nest.writes[0]], want[name])
    return made.source.text


def numbers(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_loads_and_stores_of_neighbors_are_one_access():
    text = source_of("x: f32[6, 8] = input()\ny[i, j]: f32[6, 8] = x[i, j] + x[5 - i, j]\nreturn y", "j", 4, x=numbers(6, 8))
    assert text.count("te_load(") == 2 and text.count("te_store(") == 1


@pytest.mark.parametrize(
    ("value", "loads"),
    [
        ("x[i, j] * 2.0", 1),
        ("x[i, j + 4] * 2.0", 1),
        ("x[i, j + 1] * 2.0", 0),
        ("x[i, 2 * j] * 2.0", 0),
        ("x[i, 0] * 2.0", 0),
        ("where(x[i, j] > 20.0, x[i, j + 4], 1.0)", 1),
        ("where(x[i, j] > 20.0, x[i, j], 1.0)", 1),
    ],
)
def test_what_is_not_aligned_or_not_always_read_stays_single(value, loads):
    text = source_of(f"x: f32[6, 16] = input()\ny[i, j]: f32[6, 8] = {value}\nreturn y", "j", 4, x=numbers(6, 16))
    assert text.count("te_load(") == loads and text.count("te_store(") == 1


def test_rows_that_are_no_multiple_long_have_no_packs():
    text = source_of("x: f32[6, 8] = input()\ny[j, i]: f32[8, 6] = x[i, j]\nreturn y", "i", 2, x=numbers(6, 8))
    assert "te_load(" not in text and "te_store(" in text


def open_product(dtype: str) -> Program:
    """A product of matrices of which no size is known."""
    m, k, n = te.dim("m"), te.dim("k"), te.dim("n")
    a, b = te.placeholder((m, k), dtype, name="a"), te.placeholder((k, n), dtype, name="b")
    c = te.compute((m, n), lambda i, j: te.sum(lambda q: a[i, q] * b[q, j], k), name="c")
    return Program(verify_nest(lower(autoschedule(simplify(te.program_of([c], [a, b])), H200))))


def test_rows_are_packs_however_many_there_are():
    """How many rows there are is no part of where an element lies: such loads were single ones, and no copy arrived by itself."""
    n = te.dim("n")
    x = te.placeholder((n, 16), name="x")
    s = schedule(te.program_of([te.compute((n, 16), lambda i, j: x[i, j] * 2.0, name="y")], [x]), H200)
    _, lane = s["y"].split("j", 4)
    s["y"].vectorize(lane)
    s["y"].parallel(s["y"].fuse(*s["y"].loops[:2]))
    made = Program(lower(s))
    assert made.source.text.count("te_load(") == made.source.text.count("te_store(") == 1
    for rows in (0, 1, 7):
        np.testing.assert_array_equal(made({"x": numbers(rows, 16)}, {"n": rows})["y"], numbers(rows, 16) * 2.0)


def test_elements_or_zeros_are_loaded_without_a_branch():
    """Under a branch each load waited for the one before: 524 bytes of registers were spilled, and a product took forty times as long."""
    text = open_product("bfloat16").source.text
    assert len(re.findall(r"te_load\(t\d+, &[ab]\[.*, .* < \w+\);", text)) == 4
    assert text.count("te_floordiv<uint64_t>") == text.count("te_mod<uint64_t>") == 1, "once, not at each place"


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_products_of_any_size_do_not_spill(dtype):
    for found in nvrtc.compile_text(open_product(dtype).source.text, "sm_90").resources.values():
        assert not found.spill_stores and not found.spill_loads and not found.stack


@pytest.mark.parametrize(
    ("value", "guarded"),
    [
        ("where(j <= i, 2.0 * x[i, j] * x[i, j], 0.0)", 1),
        ("where(j <= i, x[i, j] * 2.0, 0.0) + where(j <= i, x[i, j], 1.0)", 1),
        ("where(j <= i and i < 5, x[i, j], 0.0) + z[i, j]", 1),
        ("where(j <= i, x[i, j], z[i, j])", 1),
        ("where(j <= i, x[i, j], 1.0 - x[i, j])", 0),
        ("where(j <= i, x[i, j], 0.0) + where(j < i, x[i, j], 0.0)", 0),
        ("where(j <= i, where(z[i, j] > 1.0, x[i, j], 0.0), 0.0)", 1),
        ("where(j <= i, x[i, j], 0.0) + x[i, j]", 0),
        ("where(z[i, j] < 3.0, x[i, j], 0.0)", 0),
        ("where(j < 7, x[i, minimum(j, 6)], 0.0)", 0),
    ],
)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_what_is_read_under_a_test_of_indices_is_loaded_before(value, guarded, dtype):
    """One by one, each where the test holds: behind branches loads would wait for each other."""
    text = f"x: {dtype}[6, 8] = input()\nz: {dtype}[6, 8] = input()\ny[i, j]: {dtype}[6, 8] = {value}\nreturn y"
    number = parse_program(text).inputs[0].type.dtype.numpy
    made = source_of(text, "j", 4, x=(numbers(6, 8) / 64).astype(number), z=(numbers(6, 8) / 8).astype(number))
    assert made.count("] = {};") == guarded
