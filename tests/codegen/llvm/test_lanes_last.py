"""Local buffers: lanes lie side by side whatever axis they go along, and what fills a buffer asks for no lanes."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.llvm import compile_nest, emit, host
from tensorexpr.codegen.nest import Alloc, If, LoopNest
from tensorexpr.codegen.rewrites.lanes_last import lanes_last
from tensorexpr.ir import Const, Index, apply, const
from tests.codegen.llvm.nests import buffer, loop, nest, read, run, write

F = dtypes.float32
ZERO = Const(0.0, F)
i, j, k = Index("i"), Index("j"), Index("k")
S = buffer("s", F, 16, 4, memory="local")


def times(a, b):
    return apply("mul", const(b), a)


def tile(across) -> Alloc:
    """Sums of sixteen lanes and four copies: `across` is the element of a lane and a copy."""

    def copies(*body):
        return loop("j", 4, loop("i", 16, *body, kind="vectorize"), kind="unroll")

    x, y = buffer("X", F, 16, 8), buffer("Y", F, 16, 4)
    more = apply("add", read(S, *across), apply("mul", read(x, i, k), read(x, j, k)))
    return Alloc(
        S, (copies(write(S, across, ZERO)), loop("k", 8, copies(write(S, across, more))), copies(write(y, [i, j], read(S, *across))))
    )


def product(across) -> LoopNest:
    x, y = buffer("X", F, 16, 8), buffer("Y", F, 16, 4)
    return nest([x, y], [y], (tile(across),))


@pytest.mark.parametrize(
    "across", [(i, j), (apply("add", i, const(0)), j), (apply("sub", const(15), i), j)], ids=["even", "moved", "turned"]
)
def test_sums_across_the_rows_of_a_buffer(across):
    x = np.arange(128, dtype=np.float32).reshape(16, 8)
    assert np.array_equal(run(product(across), {"X": x})["Y"], x @ x[:4].T)


def test_lanes_go_along_the_last_axis():
    made = lanes_last(tile((i, j)))
    assert [e.value for e in made.buffer.shape] == [4, 16]
    assert "masked.gather" not in emit(nest([buffer("Y", F, 4, 16)], [buffer("Y", F, 4, 16)], (_turned(),)), host())


def _turned() -> Alloc:
    y = buffer("Y", F, 4, 16)
    filled = loop("j", 4, loop("i", 16, write(S, [i, j], Const(1.0, F)), kind="vectorize"), kind="unroll")
    return Alloc(S, (filled, loop("j", 4, loop("i", 16, write(y, [j, i], read(S, i, j)), kind="vectorize"), kind="unroll")))


@pytest.mark.parametrize(
    "index",
    [(j, i), (times(i, 2), j), (apply("sub", const(15), i), j), (i, i), (apply("floordiv", i, const(2)), j)],
    ids=["last", "every other", "backward", "diagonal", "in pairs"],
)
def test_axes_stay_where_lanes_go_otherwise(index):
    s = Alloc(S, (loop("i", 4, write(S, index, ZERO), kind="vectorize"),))
    assert lanes_last(s) is s


def test_lanes_of_a_sum_count_for_more_than_those_that_add_it_up():
    """Parts of sums of four rows, whose lanes are added up four at a time behind the loop."""

    def lanes(*body):
        return loop("j", 4, loop("i", 16, *body, kind="vectorize"), kind="unroll")

    x, y = buffer("X", F, 4, 16, 8), buffer("Y", F, 4)
    more = apply("add", read(S, i, j), read(x, j, i, k))
    halves = apply("add", read(S, const(0), j), read(S, const(1), j))
    body = (
        lanes(write(S, [i, j], ZERO)),
        loop("k", 8, lanes(write(S, [i, j], more))),
        loop("j", 4, write(y, [j], halves), kind="vectorize"),
    )
    s = Alloc(S, body)
    assert [e.value for e in lanes_last(s).buffer.shape] == [4, 16]
    data = np.arange(4 * 16 * 8, dtype=np.float32).reshape(4, 16, 8)
    assert np.array_equal(run(nest([x, y], [y], (s,)), {"X": data})["Y"], data[:, :2].sum((1, 2)))


def test_an_axis_for_each_of_two_lanes_stays():
    s = Alloc(S, (loop("i", 4, write(S, [i, const(0)], ZERO), kind="vectorize"), loop("j", 4, write(S, [j, j], ZERO), kind="vectorize")))
    assert lanes_last(s) is s


def test_axes_stay_where_an_element_is_said_by_its_position():
    s = Alloc(S, (loop("i", 4, write(S, [i, j], ZERO), kind="vectorize"), loop("k", 64, write(S, [k], ZERO))))
    assert lanes_last(s) is s


def masked(*inside):
    return loop("i", 8, If(apply("lt", i, const(5)), inside), kind="vectorize")


def test_what_fills_a_buffer_fills_all_lanes():
    r = buffer("r", F, 8, memory="local")
    x, y = buffer("X", F, 40, 5), buffer("Y", F, 5)
    body = (
        masked(write(r, [i], ZERO)),
        loop("k", 40, masked(write(r, [i], apply("add", read(r, i), read(x, k, i))))),
        masked(write(y, [i], read(r, i))),
    )
    made = nest([x, y], [y], (Alloc(r, body),))
    values = np.arange(200, dtype=np.float32).reshape(40, 5)
    assert np.array_equal(run(made, {"X": values})["Y"], values.sum(0))
    text = emit(made, host())
    assert len(re.findall(r"call void @llvm\.masked\.store", text)) == 1, "the result alone is masked"


def test_what_is_stored_later_keeps_the_lanes_that_are_off():
    r = buffer("r", F, 8, memory="local")
    y = buffer("Y", F, 8)
    body = (
        loop("i", 8, write(r, [i], Const(3.0, F)), kind="vectorize"),
        masked(write(r, [i], ZERO)),
        loop("i", 8, write(y, [i], read(r, i)), kind="vectorize"),
    )
    made = nest([y], [y], (Alloc(r, body),))
    assert run(made, {}, compiled=compile_nest(made))["Y"].tolist() == [0, 0, 0, 0, 0, 3, 3, 3]


def test_what_fills_beyond_the_end_keeps_to_its_lanes():
    r = buffer("r", F, 5, memory="local")
    y = buffer("Y", F, 5)
    body = (masked(write(r, [i], Const(2.0, F))), masked(write(y, [i], read(r, i))))
    made = nest([y], [y], (Alloc(r, body),))
    assert run(made, {})["Y"].tolist() == [2.0] * 5
