"""Rows fetched ahead: when, what is refused, and that nothing but time changes."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.llvm import emit
from tensorexpr.codegen.llvm.text.machine import Machine
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.schedule import autoschedule, schedule
from tensorexpr.codegen.schedule.auto_memory import segment_lengths
from tensorexpr.codegen.schedule.work import total_work
from tensorexpr.codegen.target import Target
from tensorexpr.errors import ScheduleError
from tests.codegen.programs import WIDE, by_planners, planned
from tests.codegen.schedule.test_laws import assert_same_meaning
from tests.random_programs import random_program
from tests.seeds import share_of

TARGET = Target("cpu", 512, 32, 2, 32 << 10, 1 << 20, 64 << 20)


def ahead(op, *shapes, **static):
    return dict(lower(autoschedule(op.trace(*((shape, "float32") for shape in shapes), **static), TARGET)).ahead)


def test_rows_that_are_passed_over_again_alone():
    assert ahead(kernels.softmax, (4096, 1024)) == {"x": 1024}
    assert ahead(kernels.layer_norm, (4096, 1024), (1024,), (1024,)) == {"x": 1024}
    assert ahead(kernels.softmax, (512, 1024)) == {}  # near anyway
    assert ahead(kernels.softmax, (65536, 64)) == {}  # rows so short that the processor sees to them
    assert ahead(kernels.softmax, (256, 65536)) == {}  # a row alone fills the first cache
    assert ahead(kernels.relu, (4096, 1024)) == {}  # one pass


def test_streams_that_much_is_computed_on():
    assert ahead(kernels.gelu, (4096, 8192)) == {"x": 1024}  # 4096 bytes
    assert ahead(kernels.relu, (4096, 8192)) == {}  # loads are under way early enough
    assert ahead(kernels.gelu, (64, 8192)) == {}  # near anyway
    x, y = te.placeholder((4096, 8192), name="x"), te.placeholder((8192, 4096), name="y")
    mixed = te.compute((4096, 8192), lambda i, j: te.exp(te.erf(x[i, j])) * y[j, i], name="mixed")
    text = by_planners(mixed, inputs=[x, y]).as_python()
    assert ".prefetch('x', 'j_o', " in text and ".prefetch('y'" not in text  # columns are no stream


def test_blocks_of_an_axis_are_rows():
    x = te.placeholder((64, 96), name="x")
    y = te.compute((64, 96), lambda i, j: te.exp(x[i, j]), name="y")
    s = planned(y)
    outer, inner = s[y].split("j", 32)
    blocks, _ = s[y].split(outer, 2, "guard")
    for loop, rows, distance in ((inner, 3, 3), (blocks, 2, 128), ("i", 2, 192)):
        s[y].prefetch("x", loop, rows)
        assert f"x: parameter(f32[64, 96], prefetched={distance})" in str(s)
        again = planned(y)
        exec(s.as_python(), {"s": again})
        assert str(again) == str(s)
    with pytest.raises(ScheduleError, match="expected at least one row to fetch ahead, got 0"):
        s[y].prefetch("x", "i", 0)
    fused = planned(y)
    name = fused[y].fuse("i", "j")
    with pytest.raises(ScheduleError, match="expected a loop of y over rows of x of constant length, got i_j"):
        fused[y].prefetch("x", name)


def test_each_pass_fetches():
    program = kernels.softmax.trace(((4096, 1024), "float32"))
    s = autoschedule(program, TARGET)
    text = emit(lower(s), Machine("x86_64-unknown-linux-gnu", "znver4", "+avx512f", 512))
    assert text.count("call void @llvm.prefetch.p0") == 5  # the lines of a vector of 64 for the maximum, of one of 16 for the exponentials
    assert len(re.findall(r"@llvm.prefetch.p0\(ptr %\w+, i32 0, i32 2, i32 1\)", text)) == 5  # to the second cache: the first is in use
    assert "x: parameter(f32[4096, 1024], prefetched=1024)" in str(s)
    again = schedule(s.program, TARGET)
    exec(s.as_python(), {"s": again})
    assert again == s


def test_what_is_no_row_of_an_input_is_refused():
    x = te.placeholder((64, 32), name="x")
    y = te.compute((64, 32), lambda i, j: x[i, j] * 2.0, name="y")
    z = te.compute((64, 32), lambda i, j: te.exp(y[i, j]) + x[63 - i, j], name="z")
    s = planned([y, z])
    with pytest.raises(ScheduleError, match="expected an input to fetch ahead, got y"):
        s[z].prefetch("y", "i")
    with pytest.raises(ScheduleError, match="expected a loop of z over rows of x of constant length, got i"):
        s[z].prefetch("x", "i")
    s[y].split("i", 8)
    with pytest.raises(ScheduleError, match="expected a loop of y over rows of x of constant length, got i"):
        s[y].prefetch("x", "i")
    classes = planned(y)
    classes[y].split("i", 8, "stride")
    with pytest.raises(ScheduleError, match="expected a loop of y over rows of x of constant length, got i_o"):
        classes[y].prefetch("x", "i_o")


def test_the_last_rows_reach_beyond_the_array_without_touching_it():
    data = np.random.default_rng(0).standard_normal((64, 1024), np.float32)
    x = te.placeholder(data.shape, name="x")
    y = kernels.softmax(x)
    s = by_planners(y)
    s[y].prefetch("x", s[y].loops[0])
    np.testing.assert_array_equal(te.build(s, [x])(data), te.build(by_planners(y), [x])(data))


def test_random_programs_keep_their_meaning():
    """Law: wherever it is allowed, it changes nothing."""
    done = 0
    for seed in share_of(range(120)):
        s = schedule(random_program(seed), WIDE)
        for name, tensor in product(s.stages, (i.name for i in s.program.inputs)):
            for loop in s[name].loops:
                before = s.copy()
                try:
                    s[name].prefetch(tensor, loop)
                    done += 1
                except ScheduleError:
                    assert s == before
        if lower(s).ahead:
            assert_same_meaning(s, seed)
    assert done > 10


def test_what_a_sort_plan_leads_to_is_fetched_ahead():
    rows = te.placeholder((3000, 128), name="rows")
    ids = te.placeholder((2500,), "int64", name="ids")
    head = te.placeholder((2500, 128), name="head")
    picked = te.compute((2500, 128), lambda i, j: rows[ids[i], j], name="picked")
    program = te.program_of(list(te.gradient(picked, [rows], head)), [ids, head])
    s = autoschedule(program, TARGET)
    assert "s['rows_bar'].prefetch('rows_order', 'k', 8)" in s.as_python()
    assert ", prefetched=8, within=" in str(s)
    rng = np.random.default_rng(0)
    arrays = rng.integers(0, 3000, 2500), rng.standard_normal((2500, 128), np.float32)
    again = schedule(s.program, TARGET)
    exec(s.as_python().replace("s['rows_bar'].prefetch('rows_order', 'k', 8)\n", ""), {"s": again})
    np.testing.assert_array_equal(te.build(s, [ids, head])(*arrays)[0], te.build(again, [ids, head])(*arrays)[0])
    with pytest.raises(ScheduleError, match="expected an input to fetch ahead, got rows_offsets"):
        s["rows_bar"].prefetch("rows_offsets", "k")


def test_what_indices_lead_to_is_fetched_ahead():
    """Rows of a table that lie anywhere; not near ones, nor short ones. The last is asked for again, a wrong index is refused as before."""

    def text(rows: int, width: int) -> str:
        table, ids = te.placeholder((rows, width), name="table"), te.placeholder((300,), "int64", name="ids")
        return autoschedule(te.program_of([kernels.embedding(ids, table)], [ids, table]), TARGET).as_python()

    assert "s['embedding'].prefetch('ids', 'i0', 8)\ns['embedding'].unroll('i1_o')" in text(3000, 128)
    assert "prefetch" not in text(1000, 128) and "prefetch" not in text(30000, 64)
    assert "prefetch('ids', 'i0')" in text(3000, 2048) and "unroll" not in text(3000, 2048)
    data, places = np.random.default_rng(0).standard_normal((5000, 128), np.float32), np.random.default_rng(1).integers(0, 5000, 300)
    np.testing.assert_array_equal(kernels.embedding(places, data), data[places])
    places[299] = 5000
    with pytest.raises(IndexError):
        kernels.embedding(places, data)


def test_the_work_on_segments_counts_their_points():
    x = te.placeholder((100, 8), name="x")
    ids = te.placeholder((400,), "int64", name="ids")
    y = te.compute((400, 8), lambda i, j: x[ids[i], j], name="y")
    head = te.placeholder((400, 8), name="head")
    s = schedule(te.program_of(list(te.gradient(y, [x], head)), [ids, head]), TARGET)
    assert segment_lengths(s, "x_bar") == {"k": 4}
    assert total_work(s.state.stage("x_bar").parts, {"k": 4}) < total_work(s.state.stage("x_bar").parts) // 16
