"""`precision="tf32"`: what it changes on a GPU (products of float32, on request), and that nothing else changes anything."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.compile import machine_of
from tensorexpr.codegen.cuda.launch.device import current_device
from tensorexpr.codegen.gpu_code import GpuCode
from tensorexpr.codegen.tuning.records import machine_digest, machine_facts
from tests.codegen.cuda.device import gpu, needs_compiler
from tests.runtime.test_gpu_function import floats, refused

N, K = 264, 32
"""Blocks enough for half of a GPU's multiprocessors, and a tile at each end that is cut off."""


@pytest.fixture
def device(monkeypatch):
    if gpu() is None:
        monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    return current_device()


@te.op
def product(a, b):
    """`a @ b`"""
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(lambda r: a[i, r] * b[r, j], a.shape[1]), name="C")


def matmul(n=N, k=K, dtype="float32"):
    a, b = te.placeholder((n, k), dtype, name="A"), te.placeholder((k, n), dtype, name="B")
    return product(a, b), [a, b]


def rounded(x: np.ndarray) -> np.ndarray:
    """To the nearest of ten bits of fraction, in the middle away from zero, as `cvt.rna.tf32.f32`."""
    fraction, exponent = np.frexp(x.astype(np.float64))
    scaled = np.ldexp(fraction, 11)
    return np.ldexp(np.copysign(np.floor(np.abs(scaled) + 0.5), scaled), exponent - 11)


@needs_compiler
def test_products_are_those_of_rounded_factors_and_only_on_request(device):
    c, inputs = matmul()
    a, b = floats(N, K), floats(K, N)
    functions = [
        te.build(c, inputs, target="cuda"),
        te.build(c, inputs, target="cuda", precision="float32"),
        te.build(c, inputs, target="cuda", precision="tf32"),
        te.compile(c, inputs, target="cuda", precision="tf32"),
        product.compile(a, b, target="cuda", precision="tf32"),
        te.build(te.autoschedule(c, "cuda", precision="tf32"), inputs, precision="tf32"),
    ]
    default, full, *rest = (device.read(f(device.upload(a), device.upload(b))) for f in functions)
    # A traced function: what it says holds for functions inside of it.
    inner = te.function(lambda x, y: product(x, y), inline=False)
    for precision, want in (("float32", default), ("tf32", rest[0])):
        with te.device("cuda"):
            outer = te.function(lambda x, y: inner(x, y), precision=precision)
            assert np.array_equal(outer(a, b), want)
    assert np.array_equal(default, full) and functions[0].source("cuda") == functions[1].source("cuda")
    exact, size = a.astype(np.float64) @ b, np.abs(a).astype(np.float64) @ np.abs(b)
    assert (np.abs(default - exact) <= K * 2.0**-24 * size).all()
    for got in rest:
        assert got.dtype == np.float32 and not np.array_equal(got, default)
        assert (np.abs(got - rounded(a) @ rounded(b)) <= K * 2.0**-23 * size).all()
        assert (np.abs(got - exact) <= (2.0**-10 + 2.0**-22 + K * 2.0**-23) * size).all()
    assert "tf32" not in functions[0].source("cuda") and all("te_mma_tf32(" in f.source("cuda") for f in functions[2:])


@needs_compiler
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "int32"])
def test_other_types_stay_as_they_are(device, dtype):
    c, inputs = matmul(dtype=dtype)
    text = [te.build(c, inputs, target="cuda", precision=p).source("cuda") for p in ("float32", "tf32")]
    assert "tf32" not in text[1] and (dtype == "bfloat16" or text[0] == text[1])


def test_what_is_no_product_stays_as_it_is():
    x = te.placeholder((300, 300), name="x")
    y = te.compute((300,), lambda i: te.sum(lambda j: te.exp(x[i, j]), 300), name="y")
    plain, asked = (GpuCode.of_schedule(s).source.text for s in (te.autoschedule(y, "cuda", precision=p) for p in ("float32", "tf32")))
    assert plain == asked


def test_the_cpu_computes_in_full_precision():
    c, inputs = matmul(40, 50)
    a, b = floats(40, 50), floats(50, 40)
    want = te.build(c, inputs)(a, b)
    for function in (
        te.build(c, inputs, precision="tf32"),
        te.compile(c, inputs, precision="tf32"),
        product.compile(a, b, precision="tf32"),
        te.build(te.autoschedule(c, precision="tf32"), inputs, precision="tf32"),
    ):
        np.testing.assert_array_equal(function(a, b), want)


def test_code_and_records_of_the_two_are_apart():
    c, _ = matmul()
    full, tf32 = (te.autoschedule(c, "cuda", precision=p) for p in ("float32", "tf32"))
    assert full.target != tf32.target and GpuCode.of_schedule(full).source.text != GpuCode.of_schedule(tf32).source.text
    plain = te.schedule(c, "cuda", precision="tf32")
    assert plain.target == tf32.target and plain.target.precision == "tf32"
    # The loops can be the same: what a factor is rounded to is the nest's.
    assert GpuCode.of_schedule(tf32).nest.precision == "tf32" and GpuCode.of_schedule(full).nest.precision == "float32"
    machines = [machine_of("cuda"), machine_of("cuda", "float32"), machine_of("cuda", "tf32")]
    digests = [machine_digest(machine_facts(machine)) for machine in machines]
    assert digests[0] == digests[1] != digests[2]
    assert machine_of("cpu", "tf32") is machine_of("cpu")


def test_another_precision_is_refused():
    c, inputs = matmul(4, 4)
    message = "expected a precision, one of float32, tf32, got 'float16'"
    assert message in refused(te.ArgumentError, te.build, c, inputs, precision="float16")
    assert message in refused(te.ArgumentError, te.compile, c, inputs, precision="float16")
    assert message in refused(te.ArgumentError, te.schedule, c, precision="float16")
    assert message in refused(te.ArgumentError, te.autoschedule, c, "cuda", precision="float16")
    assert message in refused(te.ArgumentError, product.compile, floats(4, 4), floats(4, 4), precision="float16")
    assert message in refused(te.ArgumentError, te.function, lambda x: x, precision="float16")
    assert message in refused(te.ArgumentError, te.tune, c, inputs, precision="float16")
    assert "expected a precision, one of float32, tf32, got None" in refused(te.ArgumentError, te.build, c, inputs, precision=None)
    assert "te.build: expected a schedule for the precision 'tf32', got one for 'float32'" in refused(
        te.TargetError, te.build, te.schedule(c, "cuda"), precision="tf32"
    )
