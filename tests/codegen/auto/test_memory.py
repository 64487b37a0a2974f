"""What goes past the caches and what is asked for ahead: when, and that nothing but time changes."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.search.memory import in_and_out, lowered
from tensorexpr.codegen.llvm import emit
from tensorexpr.codegen.llvm.text.machine import Machine
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import Target
from tensorexpr.ir import Program
from tests.codegen.test_batches import products

TARGET = Target("cpu", 512, 32, 2, 32 << 10, 1 << 20, 64 << 20)
WIDE_MACHINE = Machine("x86_64-unknown-linux-gnu", "znver4", "+avx512f,+avx512vl", 512)


def nest_of(op, *shapes, **static) -> LoopNest:
    return lowered(autoschedule(op.trace(*((shape, "float32") for shape in shapes), **static), TARGET))


def ahead(op, *shapes, **static):
    return dict(nest_of(op, *shapes, **static).ahead)


def streamed(op, *shapes, **static):
    return nest_of(op, *shapes, **static).streams


def embedding(rows: int, width: int, indices: int) -> Program:
    return kernels.embedding.trace(((indices,), "int64"), ((rows, width), "float32"))


def test_large_outputs_alone_go_past_the_caches():
    assert streamed(kernels.softmax, (4096, 1024)) == ("softmax",)
    assert streamed(kernels.softmax, (512, 1024)) == ()
    assert streamed(kernels.logsumexp, (4096, 1024), axis=-1) == ()  # what it writes is small
    assert len(streamed(kernels.cumsum, (4096, 4096), axis=1)) == 1  # tiles that are turned around are whole lines
    assert streamed(kernels.matmul, (2048, 2048), (2048, 2048)) == ()


def test_a_table_read_at_indices_that_are_data_does_not_count():
    """Perhaps one row of it is read; the result of 8 MiB then stays in a cache of 16."""
    assert lowered(autoschedule(embedding(50000, 128, 16384), TARGET)).streams == ()
    assert lowered(autoschedule(embedding(50000, 128, 65536), TARGET)).streams == ("embedding",)


def test_what_is_read_again_stays_in_the_caches():
    x = te.placeholder((4096, 2048), name="x")
    y = te.compute((4096, 2048), lambda i, j: te.exp(x[i, j]) * te.log(x[i, j]), name="y")
    z = te.compute((2048,), lambda j: te.sum(lambda i: te.exp(y[i, j]), 4096), name="z")
    assert "y" not in lowered(autoschedule(te.program_of([y, z], [x]), TARGET)).streams


def test_results_across_the_lanes_stay_in_the_caches():
    """16 rows of 4 in lanes along the rows are turned around and stored in parts, which past the caches would each be a line."""
    assert lowered(autoschedule(te.program_of(*products((200000, 4, 16, 4))), TARGET)).streams == ("matmul", "x_bar")


def test_lines_with_gaps_stay_in_the_caches():
    """Every second element is stored under a mask, which nothing writes past the caches."""
    text = """
main(x, y)
x: parameter(f32[4096, 1024])
y: parameter(f32[4096, 2048], written)

def kernel_0() -> y:
    for i in range(0, 4096):
        for j in range(0, 64):
            for k in vectorize(range(0, 16)):
                y[i, k * 2 + j * 32] = x[i, k + j * 16]
{rest}
"""
    caches = TARGET.l1_bytes, TARGET.l2_bytes, TARGET.last_level
    beside = "                y[i, k * 2 + j * 32 + 1] = 0.0"
    behind = "            for m in vectorize(range(0, 16)):\n                y[i, m * 2 + j * 32 + 1] = 0.0"
    together, apart = (in_and_out(Candidate(parse_nest(text.format(rest=rest))), caches) for rest in (beside, behind))
    assert together.nest.streams == ("y",) and apart.nest.streams == ()


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
    assert [*dict(lowered(autoschedule(te.program_of([mixed], [x, y]), TARGET)).ahead)] == ["x"]  # columns are no stream


def test_each_pass_fetches():
    text = emit(nest_of(kernels.softmax, (4096, 1024)), WIDE_MACHINE)
    assert text.count("call void @llvm.prefetch.p0") == 5  # the lines of a vector of 64 for the maximum, of one of 16 for the exponentials
    assert len(re.findall(r"@llvm.prefetch.p0\(ptr %\w+, i32 0, i32 2, i32 1\)", text)) == 5  # to the second cache: the first is in use


def test_the_last_rows_reach_beyond_the_array_without_touching_it():
    data = np.random.default_rng(0).standard_normal((64, 1024), np.float32)
    x = te.placeholder(data.shape, name="x")
    y = kernels.softmax(x)
    s, plain = te.schedule(y), te.schedule(y)
    name = s.stages[0]
    s[name].prefetch("x", s[name].loops[0])
    assert "x: parameter(f32[64, 1024], prefetched=1024)" in str(s)
    np.testing.assert_array_equal(te.build(s, [x])(data), te.build(plain, [x])(data))


def test_what_a_sort_plan_leads_to_is_fetched_ahead():
    rows = te.placeholder((3000, 128), name="rows")
    ids = te.placeholder((2500,), "int64", name="ids")
    head = te.placeholder((2500, 128), name="head")
    picked = te.compute((2500, 128), lambda i, j: rows[ids[i], j], name="picked")
    s = autoschedule(te.program_of(list(te.gradient(picked, [rows], head)), [ids, head]), TARGET)
    assert dict(lowered(s).ahead) == {"rows_order": 8}
    short = te.placeholder((30000,), "int64", name="short")  # ten rows of each: the processor has asked for most of them by itself
    many = te.compute((30000, 128), lambda i, j: rows[short[i], j], name="many")
    wide = te.placeholder((30000, 128), name="wide")
    s = autoschedule(te.program_of(list(te.gradient(many, [rows], wide)), [short, wide]), TARGET)
    assert "rows_order" not in dict(lowered(s).ahead)


def test_what_indices_lead_to_is_fetched_ahead():
    """Rows of a table that lie anywhere; not near ones, nor short ones. The last is asked for again, a wrong index is refused as before."""

    def found(rows: int, width: int) -> tuple[dict[str, int], int]:
        nest = lowered(autoschedule(embedding(rows, width, 300), TARGET))
        return dict(nest.ahead), str(nest).count("unroll")

    (ids,) = {*found(3000, 128)[0]}
    assert found(3000, 128) == ({ids: 8}, 1)  # copied out
    assert found(1000, 128)[0] == {} and found(30000, 64)[0] == {}
    assert found(3000, 2048) == ({ids: 1}, 0)
    data, places = np.random.default_rng(0).standard_normal((5000, 128), np.float32), np.random.default_rng(1).integers(0, 5000, 300)
    np.testing.assert_array_equal(kernels.embedding(places, data), data[places])
    places[299] = 5000
    with pytest.raises(IndexError):
        kernels.embedding(places, data)


@pytest.mark.parametrize("shape", [(40, 64), (7, 37), (33, 16), (3, 5, 48)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8"])
def test_every_alignment_gives_the_same(shape, dtype):
    """Law: an output that begins anywhere gets what it gets without streaming, and nothing around it is touched."""
    x = te.placeholder(shape, dtype, name="x")
    y = te.compute(shape, lambda *i: x[i] * 3 + 1, name="y")
    s = te.schedule(y)
    _, inner = s["y"].split(s["y"].loops[-1], 16)
    s["y"].vectorize(inner)
    s["y"].stream()
    f, plain = te.build(s, [x]), te.build(te.schedule(y), [x])
    data = np.random.default_rng(0).integers(-20, 20, shape).astype(dtype)
    want = plain(data)
    np.testing.assert_array_equal(f(data), want)
    block = np.empty(want.size + 200, want.dtype)
    for offset in range(0, 70, 3):
        block[:] = 77
        out = block[offset : offset + want.size].reshape(shape)
        f(data, out=out)
        np.testing.assert_array_equal(out, want)
        assert (block[:offset] == 77).all() and (block[offset + want.size :] == 77).all()


def test_reversed_interleaved_and_turned_stores():
    x = te.placeholder((64, 96), name="x")
    outputs = {
        "reversed": te.compute((64, 96), lambda i, j: x[i, 95 - j], name="reversed"),
        "turned": te.compute((96, 64), lambda j, i: x[i, j], name="turned"),
        "every": te.compute((64, 192), lambda i, j: te.where(j % 2 == 0, x[i, j // 2], -x[i, j // 2]), name="every"),
    }
    data = np.random.default_rng(0).standard_normal((64, 96), np.float32)
    for name, output in outputs.items():
        s = te.schedule(output)
        s[name].vectorize(s[name].split(s[name].loops[-1], 16)[1])
        s[name].stream()
        np.testing.assert_array_equal(te.build(s, [x])(data), te.build(te.schedule(output), [x])(data), err_msg=name)


def test_sums_along_an_axis_are_written_past_the_caches_by_their_sweep():
    data = np.random.default_rng(0).standard_normal((1024, 4096), np.float32)
    f = kernels.cumsum.compile(data, axis=1)
    np.testing.assert_allclose(f(data), np.cumsum(data, 1), rtol=1e-3, atol=1e-3)


def test_stores_past_the_caches_end_with_a_fence_and_are_aligned():
    nest = nest_of(kernels.softmax, (4096, 1024))
    text = emit(nest, WIDE_MACHINE)
    stores = [line for line in text.splitlines() if "!nontemporal" in line]
    assert stores and all("align 64" in line for line in stores)
    assert "call void @llvm.x86.sse.sfence()" in text and "!1 = !{i32 1}" in text
    other = emit(nest, Machine("aarch64-unknown-linux-gnu", "generic", "+neon", 128))
    assert "nontemporal" not in other and "fence" not in other


def test_vectors_of_all_lengths_go_past_the_caches_or_none():
    """A row of 56 ends with half a vector: that half alone, past the caches, would leave lines of which the rest goes through them."""
    text = emit(
        parse_nest(
            """main(y, x)
y: parameter(f32[512, 64], written, streamed)
x: parameter(f32[512, 64])

def kernel_0() -> y:
    for i in range(0, 512):
        for j in vectorize(range(0, 16)):
            y[i, j] = x[i, j]
        for j in vectorize(range(0, 8)):
            y[i, j + 56] = x[i, j + 56]
"""
        ),
        WIDE_MACHINE,
    )
    assert "align 32, !nontemporal" in text and "align 64, !nontemporal" in text
    assert {line.rsplit(", ", 1)[1] for line in text.splitlines() if "= and i64" in line} == {"63"}
