"""The primitive `part`: long segments of a sort plan taken apart at fixed places, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned, schedule
from tensorexpr.codegen.target import H200
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import integer
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tests.codegen.programs import WIDE, assert_means, plain, visits

TABLE = """
ids: i32[90] = input()
v: {dtype}[90, 2] = input()
S: {dtype}[7, 2] = scatter({{(ids[t], d): v[t, d] for t in range(90) for d in range(2){where}}}{combine})
return S
"""
TWO_KEYS = """
a: i32[60] = input()
b: i32[60] = input()
v: f32[60] = input()
S: f32[3, 4] = scatter({(a[t], b[t]): v[t] for t in range(60)})
return S
"""
OPEN = """
sizes(n, m)
ids: i32[n] = input()
v: f32[n] = input()
S: f32[m] = scatter({ids[t]: v[t] for t in range(n)})
return S
"""


def table(dtype: str = "f32", combine: str = "", where: str = "") -> str:
    return TABLE.format(dtype=dtype, combine=combine and f', combine="{combine}"', where=where)


def parted(text: str, *lengths: int) -> Planned:
    s = plain(text)
    s["S"].sort()
    s["S"].part("k", *lengths)
    return s


KEYS = {"equal": lambda n, m: np.full(n, m - 1), "one by one": lambda n, m: np.arange(n) % m, "runs": lambda n, m: np.arange(n) * m // n}


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("lengths", [(4,), (7, 3), (2, 2, 2), (90,), (100,)])
def test_results_are_those_of_the_interpreter(keys, lengths):
    ids = KEYS[keys](90, 7).astype(np.int32)
    v = np.arange(180, dtype=np.float32).reshape(90, 2) % 9 - 4
    assert_means(parted(table(), *lengths), inputs={"ids": ids, "v": v})


@pytest.mark.parametrize(("dtype", "combine"), [("i32", "prod"), ("f64", "max"), ("u8", "min"), ("f16", "")])
def test_combiners_and_points_without_a_key(dtype, combine):
    s = parted(table(dtype, combine, " if ids[t] > 0"), 4, 3)
    ids = np.repeat([-3, 0, 2, 6, -1], 18).astype(np.int32)  # what has no key is out of bounds
    v = (np.arange(180).reshape(90, 2) % 3).astype(s.program.inputs[1].type.dtype.numpy)
    assert_means(s, inputs={"ids": ids, "v": v})


def test_two_keys_and_open_sizes():
    rng = np.random.default_rng(1)
    v = rng.integers(-3, 4, 60).astype(np.float32)
    for a in (np.zeros(60), rng.integers(0, 3, 60)):
        assert_means(parted(TWO_KEYS, 8), inputs={"a": a.astype(np.int32), "b": np.repeat([0, 1, 2, 3], 15).astype(np.int32), "v": v})
    for n, m in ((0, 2), (3, 1), (60, 1), (60, 5)):
        assert_means(parted(OPEN, 4, 2), n=n, m=m, inputs={"ids": np.arange(n, dtype=np.int32) % m, "v": np.ones(n, np.float32)})


def test_no_check_is_needed_and_each_point_is_added_once():
    s = parted(table(), 8)
    nest = assert_means(s, inputs={"ids": np.zeros(90, np.int32), "v": np.ones((90, 2), np.float32)})
    assert {site.definition for site in nest.checks} == {"S_offsets"}
    seen = visits(nest, {"ids": np.zeros(90, np.int32), "v": np.ones((90, 2), np.float32)})
    # 11 parts of 8 points, two left: for each of two columns.
    assert (seen["i"], seen.get("k_1", 0)) == (2 * 88, 0) and seen["k_2"] == 2 * 2


def test_chains_of_additions_are_short_by_default():
    """A table's gradient by 2^20 indices: at most 63 + 63 + 256 + 63 + 63 additions one after the other, whatever the indices."""
    table, ids = te.placeholder((5, 64), name="table"), te.placeholder((1 << 20,), "int64", name="ids")
    y = te.compute((1 << 20, 64), lambda t, d: table[ids[t], d], name="y")
    g = te.placeholder(y.shape, name="g")
    s = autoschedule(simplify(te.program_of(list(te.gradient(y, [table], g)), [table, ids, g])), H200)
    shapes = {name: tuple(map(integer, type_.shape)) for name, type_ in s.state.program.types.items()}
    assert "part('k', 64, 64)" in s.as_python()
    assert shapes["table_bar_parts"] == (1 << 14, 64) and shapes["table_bar_parts_1"] == (1 << 8, 64)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (table(), "s['S'].part('t', 4)", "expected a plain definition outside of scans to part its segments, got S"),
        (table(), "s['S'].sort(); s['S'].part('i0', 4)",
         "expected a reduction of S over a segment of a sort plan, whose values do not depend on which, got i0"),
        (table(), "s['S'].sort(); s['S'].part('k', 1)", "expected lengths of parts of at least 2, got 1"),
        (table(), "s['S'].sort(); s['S'].part('k')", "expected lengths of parts of at least 2, got none"),
        (table(), "s['S'].sort(); s['S'].parallel('i0'); s['S'].part('k', 4)",
         "expected plain loops of S to part its segments, got changed ones"),
    ],
)  # fmt: skip
def test_what_is_refused(text, code, message):
    with pytest.raises(ScheduleError) as caught:
        exec(code, {"s": schedule(parse_program(text), WIDE)})
    assert message in str(caught.value)
