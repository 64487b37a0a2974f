"""Every second element: loads and stores of whole vectors, of which only those places are touched that are asked for."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.llvm import Machine, emit, host, nest_assembly
from tensorexpr.codegen.nest import Alloc, If, Store
from tensorexpr.ir import Access, Const, Index, apply, const
from tests.codegen.llvm.nests import buffer, loop, nest, read, run, write

i = Index("i")
TYPES = [dtypes.float32, dtypes.float64, dtypes.int32, dtypes.bool_]


def twice(shift: int = 0):
    return apply("add", apply("mul", i, const(2)), const(shift))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("lanes", [2, 4, 16])
@pytest.mark.parametrize("start", [0, 3])
def test_loads_under_a_mask(dtype, lanes, start):
    """The lanes from `start` on read a buffer that begins there and ends with the last of them."""
    start = min(start, lanes - 1)
    source, target = buffer("S", dtype, 2 * (lanes - start) - 1), buffer("T", dtype, lanes)
    inside = If(apply("ge", i, const(start)), (write(target, [i], read(source, twice(-2 * start))),))
    made = nest([source, target], [target], (loop("i", lanes, inside, kind="vectorize"),))
    assert "gather" not in emit(made, host())
    data = (np.arange(2 * (lanes - start) - 1) % 7).astype(dtype.numpy)
    got = run(made, {"S": data})["T"]
    assert np.array_equal(got[start:], data[::2])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("lanes", [2, 4, 16])
@pytest.mark.parametrize("masked", [False, True])
def test_stores_leave_what_lies_between(dtype, lanes, masked):
    source, target = buffer("S", dtype, lanes), buffer("T", dtype, 2 * lanes - 1)
    odd = buffer("U", dtype, lanes)
    put = write(target, [twice()], read(source, i))
    body = If(apply("lt", i, const(lanes - 1)), (put,)) if masked else put
    between = loop("i", lanes - 1, write(target, [twice(1)], read(odd, i)))
    last = write(target, [const(2 * lanes - 2)], read(source, const(lanes - 1)))
    made = nest([source, odd, target], [target], (between, last, loop("i", lanes, body, kind="vectorize")))
    text = emit(made, host())
    assert "scatter" not in text
    first, second = ((np.arange(lanes) % k).astype(dtype.numpy) for k in (5, 3))
    got = run(made, {"S": first, "U": second})["T"]
    assert np.array_equal(got[::2], first) and np.array_equal(got[1::2], second[: lanes - 1])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("first", [0, 1])
def test_stores_side_by_side_touch_the_lanes_of_a_mask(dtype, lanes, count, first):
    sources, target = [buffer(f"S{k}", dtype, lanes) for k in range(count)], buffer("T", dtype, lanes * count)
    clear = loop("j", lanes * count, write(target, [Index("j")], Const(dtype.numpy.type(1), dtype)))
    puts = (write(target, [apply("add", apply("mul", i, const(count)), const(k))], read(s, i)) for k, s in enumerate(sources))
    inside = If(apply("ge", i, const(first)), (If(apply("lt", i, const(lanes - 1)), tuple(puts)),))
    made = nest([*sources, target], [target], (clear, loop("i", lanes, inside, kind="vectorize")))
    assert "scatter" not in emit(made, host())
    given = {s.name: (np.arange(lanes) % (k + 2)).astype(dtype.numpy) for k, s in enumerate(sources)}
    expected = np.ones((lanes, count), dtype.numpy)
    expected[first : lanes - 1] = np.stack(list(given.values()), 1)[first : lanes - 1]
    np.testing.assert_array_equal(run(made, given)["T"].reshape(lanes, count), expected)


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("step", [0, 1, 2])
def test_loads_under_a_scalar_condition_do_not_jump(condition, step):
    """One element, neighbors, or every second element, where a size says so; else zeros."""
    lanes = 8
    at = apply("mul", i, const(step)) if step else const(3)
    source, flag, target = buffer("S", dtypes.float32, 16), buffer("F", dtypes.int64, 1), buffer("T", dtypes.float32, lanes)
    value = apply("where", apply("gt", read(flag, const(0)), const(0)), read(source, at), Const(0.5, dtypes.float32))
    made = nest([source, flag, target], [target], (loop("i", lanes, write(target, [i], value), kind="vectorize"),))
    text = emit(made, host())
    assert "yes" not in text and "gather" not in text
    data = np.arange(16, dtype=np.float32)
    got = run(made, {"S": data, "F": np.array([int(condition)])})["T"]
    taken = data[: step * lanes : step] if step else np.full(lanes, data[3])
    assert np.array_equal(got, taken if condition else np.full(lanes, np.float32(0.5)))


def test_a_fixed_mask_on_accumulators_is_hidden():
    """A choice by a mask that LLVM knows would become a shuffle; an empty instruction keeps it a mask."""
    source, target = buffer("S", dtypes.float32, 8), buffer("T", dtypes.float32, 8)
    total = buffer("A", dtypes.float32, 8, memory="local")
    added = Store("A", (i,), apply("add", Access("A", (i,), dtypes.float32), read(source, i)))
    begun = loop("i", 8, Store("A", (i,), Const(1.0, dtypes.float32)), kind="vectorize")
    masked = loop("i", 8, If(apply("lt", i, const(5)), (added,)), kind="vectorize")
    ended = loop("i", 8, write(target, [i], Access("A", (i,), dtypes.float32)), kind="vectorize")
    made = nest([source, target], [target], (Alloc(total, (begun, masked, ended)),))
    assert 'asm ""' in emit(made, host())
    data = np.arange(8, dtype=np.float32)
    assert np.array_equal(run(made, {"S": data})["T"], np.where(np.arange(8) < 5, 1 + data, 1))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("shift", "shared"), [(0, "even"), (1, "odd"), (2, "")])
def test_elements_between_come_with_the_same_vectors(dtype, shift, shared):
    """Elements at even and at odd places are halves of the same vectors, which begin at an even place; where that would leave the
    buffer, which ends with the last element that is read, the second vector ends there."""
    lanes, rows = 8, 3
    size = rows * 2 * lanes + max(0, shift - 1)
    source, target = buffer("S", dtype, size), buffer("T", dtype, rows, lanes)
    row = apply("mul", Index("row"), const(2 * lanes))
    put = write(target, [Index("row"), i], read(source, apply("add", row, twice(shift))))
    made = nest([source, target], [target], (loop("row", rows, loop("i", lanes, put, kind="vectorize")),))
    text = emit(made, host())
    orders = {name: ", ".join(f"i32 {2 * lane + odd}" for lane in range(lanes)) for name, odd in (("even", 0), ("odd", 1))}
    assert {name for name, order in orders.items() if order in text} == ({shared} if shared else set())
    data = (np.arange(size) % 7).astype(dtype.numpy)
    assert np.array_equal(run(made, {"S": data})["T"], data[shift::2].reshape(rows, lanes))


def test_both_halves_are_loaded_once():
    if host().architecture != "x86_64":
        return
    lanes = 16
    source, even, odd = (buffer(name, dtypes.float32, n) for name, n in (("S", 2 * lanes), ("E", lanes), ("O", lanes)))
    puts = [write(half, [i], read(source, twice(shift))) for shift, half in enumerate((even, odd))]
    made = nest([source, even, odd], [even, odd], (loop("i", lanes, *puts, kind="vectorize"),))
    machine = Machine("x86_64-unknown-linux-gnu", "skylake-avx512", "+avx512f,+avx512vl", 512)
    assert len(re.findall(r"vmovups\t\d*\(%r\w+\), %zmm", nest_assembly(made, machine))) == 2


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8, dtypes.bool_], ids=str)
@pytest.mark.parametrize("lane", [63, 40, 5])
@pytest.mark.parametrize("between", [False, True])
def test_every_second_of_64_bytes_one_of_which_is_a_number(dtype, lane, between):
    """LLVM did not come to an end over a shuffle of the upper half behind a number that is put into one lane of it."""
    source, target = buffer("S", dtype, 64), buffer("T", dtype, 128)
    value = apply("where", apply("ne", i, const(lane)), read(source, i), Const(0, dtype))
    stores = [write(target, [twice()], value), *([write(target, [twice(1)], read(source, i))] if between else [])]
    made = nest([source, target], [target], (loop("i", 64, *stores, kind="vectorize"),))
    data = (np.arange(64) % (2 if dtype.is_bool else 50)).astype(dtype.numpy)
    got = run(made, {"S": data})["T"]
    assert np.array_equal(got[::2], np.where(np.arange(64) != lane, data, np.zeros(64, dtype.numpy)))
    assert not between or np.array_equal(got[1::2], data)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64], ids=str)
@pytest.mark.parametrize("lanes", [2, 8, 16, 32])
@pytest.mark.parametrize("step", [3, 4, 9])
@pytest.mark.parametrize("rows", [32, 37])
def test_elements_of_short_rows(dtype, lanes, step, rows):
    """Columns of a table with rows of a few elements, in blocks of lanes of which the last is moved back: rows are loaded whole, up to
    the last element of the buffer, and never beyond."""
    source, target = buffer("S", dtype, rows, step), buffer("T", dtype, rows)
    o, columns = Index("o"), sorted({0, 1, step // 2, step - 1})
    at = apply("add", apply("minimum", apply("mul", o, const(lanes)), const(rows - lanes)), i)
    value = read(source, at, const(columns[0]))
    for weight, column in enumerate(columns[1:], 2):
        value = apply("add", value, apply("mul", Const(weight, dtype), read(source, at, const(column))))
    body = loop("i", lanes, write(target, [at], value), kind="vectorize")
    made = nest([source, target], [target], (loop("o", -(-rows // lanes), body),))
    zen = Machine("x86_64-unknown-linux-gnu", "znver4", "+avx512f,+avx512vl,+fma", 512)
    assert ("gather" not in emit(made, zen)) == (step * dtype.itemsize <= zen.spread)
    data = (np.arange(rows * step) % 13).reshape(rows, step).astype(dtype.numpy)
    for before in (False, True):
        got = run(made, {"S": data}, before=before)["T"]
        assert np.array_equal(got, sum(w * data[:, c].astype(dtype.numpy) for w, c in enumerate(columns, 1)))


def test_rows_that_begin_anywhere_are_gathered():
    """Where a row begins is not known of a place that data says: what lies before it may be another buffer."""
    source, place, target = buffer("S", dtypes.float32, 80), buffer("P", dtypes.int64, 1), buffer("T", dtypes.float32, 16)
    at = apply("add", read(place, const(0)), apply("mul", i, const(5)))
    made = nest([source, place, target], [target], (loop("i", 16, write(target, [i], read(source, at)), kind="vectorize"),))
    for start in (0, 4):
        data = np.arange(80, dtype=np.float32)
        assert np.array_equal(run(made, {"S": data, "P": np.array([start])})["T"], data[start::5])
