"""The primitive `cache`: which part of a tensor is copied in a loop, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.lowering.stage.caching import LARGEST
from tensorexpr.codegen.nest import Alloc
from tensorexpr.codegen.schedule import Planned, schedule
from tensorexpr.errors import ScheduleError
from tensorexpr.parse import parse_program
from tests.codegen.programs import MATMUL, WIDE, assert_means, statements, tile
from tests.codegen.schedule.test_staging import CHECKED, STEPS

GPU = replace(WIDE, name="gpu", kind="cuda")
CONV = """
X: f32[3, 40] = input()
w: f32[5, 3, 3] = input()
Y[k, o]: f32[5, 19] = sum(X[c, 2 * o + i] * w[k, c, i] for c in range(3) for i in range(3))
return Y
"""
PADDED = """
X: f32[40] = input()
w: f32[3] = input()
Y[o]: f32[40] = sum(where(o + i >= 1 and o + i < 41, X[o + i - 1], 0.0) * w[i] for i in range(3))
return Y
"""
SIZES = """
sizes(n)
A: f32[n, 8] = input()
B: f32[8, 12] = input()
C[i, j]: f32[n, 12] = sum(A[i, k] * B[k, j] for k in range(8))
return C
"""


def tiles(s: Planned, **sizes: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the copies by name, in a nest that computes the same."""
    nest = assert_means(s, **sizes)
    found = [b.buffer for b in statements(nest.kernels) if isinstance(b, Alloc)]
    return {b.name: tuple(int(e.value) for e in b.shape) for b in found if "_tile" in b.name or "_next" in b.name}


def of(text: str, target=WIDE) -> Planned:
    return schedule(parse_program(text), target)


def test_a_tile_of_each_operand():
    s = of(MATMUL)
    tile(s["C"], "i", "j", (4, 8))
    s["C"].split("k", 2)
    s["C"].reorder("i_o", "j_o", "k_o", "k_i", "i_i", "j_i")
    s["C"].cache("A", "k_o", (1, 0))
    s["C"].cache("B", "k_o", (0, 1))
    assert tiles(s) == {"A_tile": (2, 4), "B_tile": (2, 8)}
    assert "A_tile[x1, x0] = A[i_o * 4 + x0, k_o * 2 + x1]" in str(s)


def test_a_rest_of_the_loop_itself_is_read_where_it_is():
    s = of(MATMUL)
    s["C"].split("i", 5)
    s["C"].split("k", 3)
    s["C"].reorder("i_o", "k_o", "k_i", "i_i", "j")
    s["C"].cache("A", "k_o", (0, 1))
    assert sorted(tiles(s).values()) == [(2, 3), (5, 3)]


def test_a_window_is_copied_once():
    s = of(CONV)
    s["Y"].split("o", 8, "guard")
    s["Y"].reorder("o_o", "k", "c", "i", "o_i")
    s["Y"].cache("X", "o_o", (0, 1))
    assert tiles(s) == {"X_tile": (3, 17)}


def test_what_lies_beyond_the_ends_is_not_read():
    s = of(PADDED)
    s["Y"].split("o", 16, "guard")
    s["Y"].cache("X", "o_o", (0,))
    assert tiles(s) == {"X_tile": (18,)}
    assert "if o_o * 16 + x0 - 1 >= 0 and o_o * 16 + x0 - 1 < 40:" in str(s)


@pytest.mark.parametrize("n", [0, 1, 4, 9])
def test_sizes_that_are_known_only_at_run_time(n):
    s = of(SIZES)
    s["C"].split("i", 4, "guard")
    s["C"].reorder("i_o", "k", "i_i", "j")
    s["C"].cache("A", "i_o", (1, 0))
    assert tiles(s, n=n) == {"A_tile": (8, 4)}


def test_threads_copy_together_and_load_ahead():
    text = MATMUL.replace("12", "16").replace("40", "64").replace("8", "32")
    s = of(text, GPU)
    tile(s["C"], "i", "j", (8, 32))
    s["C"].split("i_i", 2)
    s["C"].split("j_i", 2)
    s["C"].split("k", 8)
    s["C"].reorder("i_o", "j_o", "k_o", "k_i", "i_i_i", "j_i_i", "i_i_o", "j_i_o")
    s["C"].fuse("i_i_o", "j_i_o")
    s["C"].vectorize("i_i_o_j_i_o")
    s["C"].cache("A", "k_o", (1, 0))
    s["C"].cache("B", "k_o", (0, 1))
    # Rows of B lie in their tile as they do in B: the next two are filled while one is read. Those of A are turned around in registers.
    assert tiles(s) == {"A_next": (1, 4, 64), "A_tile": (8, 8), "B_tile": (3, 8, 32)}
    for line in ("if k_o + 1 < 4:", "if ahead(k_o + 2 < 4):", "B_tile[(k_o + 2) % 3, ", "B_tile[k_o % 3, "):
        assert line in str(s)


def test_large_parts_are_read_where_they_are():
    text = "X: f32[100, 100] = input()\ny[i]: f32[100] = sum(X[i, k] for k in range(100))\nreturn y"
    s = of(text)
    s["y"].split("i", 100)
    s["y"].cache("X", "i_o", (0, 1))
    assert LARGEST < 100 * 100 * 4 and tiles(s) == {}


def test_python_rebuilds_it_and_a_second_call_replaces_the_first():
    s = of(MATMUL)
    s["C"].cache("A", "i", (0, 1))
    s["C"].cache("A", "i", (1, 0))
    again = of(MATMUL)
    exec(s.as_python(), {"s": again})
    assert again == s and s["C"]._stage.cached == (("i", "A", (1, 0), False),)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (MATMUL, "s['C'].cache('A', 'q', (0, 1))", "expected a loop of C to cache A in, got 'q'"),
        (MATMUL, "s['C'].cache('X', 'i', (0, 1))", "expected a tensor that C reads to cache, got 'X'"),
        (MATMUL, "s['C'].cache('A', 'i', (0, 0))", "expected each axis of A once in its copy, 0 to 1, got (0, 0)"),
        (MATMUL, "s['C'].cache('A', 'i', (0, 1)); s['C'].split('i', 2)", "expected a serial loop to cache A in, got i, split or fused"),
        (MATMUL, "s['C'].vectorize('j'); s['C'].cache('A', 'j', (0, 1))", "expected a serial loop to cache A in, got j, marked vectorize"),
        (CHECKED, "s['C'].cache('A', 'i', (0, 1))",
         "expected reads of A with affine indices to cache it, got one that depends on data or is no sum"),
        (STEPS, "s['g'].cache('X', 'i', (0, 1))", "expected a plain definition outside of scans to cache a tensor for, got g"),
    ],
)  # fmt: skip
def test_what_is_refused(text, code, message):
    with pytest.raises(ScheduleError) as caught:
        exec(code, {"s": of(text)})
    assert message in str(caught.value)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("tail", ["stride", "guard"])
def test_a_loop_that_may_not_run_makes_no_element_certain(tail, n):
    """X[0] is read where n > 0 alone: the loop inside is empty where the tensor is."""
    s = of("sizes(n)\nX: f32[n] = input()\nY[i]: f32[n] = X[i] * X[0]\nreturn Y")
    s["Y"].split("i", 3, tail)
    if tail == "stride":
        s["Y"].reorder("i_i", "i_o")
    s["Y"].cache("X", s["Y"].loops[0], (0,))
    assert_means(s, n=n)
    te.build(s)(np.ones(n, np.float32))
