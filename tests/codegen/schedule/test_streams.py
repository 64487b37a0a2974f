"""Results written past the caches: when, and that the same arrives at any alignment."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.llvm import emit
from tensorexpr.codegen.llvm.text.machine import Machine
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.schedule import autoschedule, schedule
from tensorexpr.codegen.target import Target
from tensorexpr.errors import ScheduleError
from tests.codegen.programs import by_planners, planned

TARGET = Target("cpu", 512, 32, 2, 32 << 10, 1 << 20, 64 << 20)
WIDE_MACHINE = Machine("x86_64-unknown-linux-gnu", "znver4", "+avx512f,+avx512vl", 512)


def program_of(op, *shapes, indices=None, **static):
    specs = [(shape, "float32") for shape in shapes]
    return op.trace(*specs, **static) if indices is None else op.trace(((indices,), "int64"), *specs, **static)


def streamed(op, *shapes, **static):
    return lower(autoschedule(program_of(op, *shapes, **static), TARGET)).streams


def test_large_outputs_alone():
    assert streamed(kernels.softmax, (4096, 1024)) == ("softmax",)
    assert streamed(kernels.softmax, (512, 1024)) == ()
    assert streamed(kernels.logsumexp, (4096, 1024), axis=-1) == ()  # what it writes is small
    assert len(streamed(kernels.cumsum, (4096, 4096), axis=1)) == 1
    assert streamed(kernels.matmul, (2048, 2048), (2048, 2048)) == ()


def test_a_table_read_at_indices_that_are_data_does_not_count():
    """Perhaps one row of it is read; the result of 8 MiB then stays in a cache of 16."""
    table = program_of(kernels.embedding, (50000, 128), indices=16384)
    assert lower(autoschedule(table, TARGET)).streams == ()
    assert lower(autoschedule(program_of(kernels.embedding, (50000, 128), indices=65536), TARGET)).streams == ("embedding",)


def test_what_is_read_again_stays_in_the_caches():
    x = te.placeholder((4096, 2048), name="x")
    y = te.compute((4096, 2048), lambda i, j: te.exp(x[i, j]) * te.log(x[i, j]), name="y")
    z = te.compute((2048,), lambda j: te.sum(lambda i: te.exp(y[i, j]), 4096), name="z")
    s = planned([y, z])
    with pytest.raises(ScheduleError, match="expected an output that no definition reads to write past the caches, got y"):
        s[y].stream()
    assert "y" not in lower(by_planners([y, z])).streams
    s[z].stream()
    again = schedule(s.program, s.target)
    exec(s.as_python(), {"s": again})
    assert again == s and lower(again).streams == ("z",)
    assert "z: parameter(f32[2048], written, streamed)" in str(s)
    s = planned([te.compute((8,), lambda i: x[i, 0], name="w"), z])
    s["w"].stream()
    with pytest.raises(ScheduleError, match="expected an output that no definition reads"):
        planned([z])["y"].stream()


@pytest.mark.parametrize("shape", [(40, 64), (7, 37), (33, 16), (3, 5, 48)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8"])
def test_every_alignment_gives_the_same(shape, dtype):
    """Law: an output that begins anywhere gets what it gets without streaming, and nothing around it is touched."""
    x = te.placeholder(shape, dtype, name="x")
    y = te.compute(shape, lambda *i: x[i] * 3 + 1, name="y")
    s = by_planners(y)
    s["y"].stream()
    f, plain = te.build(s, [x]), te.build(planned(y), [x])
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
        s = by_planners(output)
        s[name].stream()
        np.testing.assert_array_equal(te.build(s, [x])(data), te.build(planned(output), [x])(data), err_msg=name)


def test_sums_along_an_axis_are_written_past_the_caches_by_their_sweep():
    data = np.random.default_rng(0).standard_normal((1024, 4096), np.float32)
    f = kernels.cumsum.compile(data, axis=1)
    np.testing.assert_allclose(f(data), np.cumsum(data, 1), rtol=1e-3, atol=1e-3)


def test_stores_past_the_caches_end_with_a_fence_and_are_aligned():
    program = program_of(kernels.softmax, (4096, 1024))
    nest = lower(autoschedule(program, TARGET))
    text = emit(nest, WIDE_MACHINE)
    stores = [line for line in text.splitlines() if "!nontemporal" in line]
    assert stores and all("align 64" in line for line in stores)
    assert "call void @llvm.x86.sse.sfence()" in text and "!1 = !{i32 1}" in text
    other = emit(nest, Machine("aarch64-unknown-linux-gnu", "generic", "+neon", 128))
    assert "nontemporal" not in other and "fence" not in other
