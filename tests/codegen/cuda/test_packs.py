"""Neighboring elements of a thread as one access: where they are one, what stays single, and that values are the same."""

import numpy as np
import pytest

from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.schedule import schedule
from tensorexpr.codegen.target import H200
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
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
