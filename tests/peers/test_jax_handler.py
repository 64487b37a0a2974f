"""The handlers for XLA: layouts against the header that jaxlib ships, how long kernels live, what is refused. Skipped without JAX."""

from __future__ import annotations

import gc
import re
import time
import weakref

import numpy as np
import pytest

import tensorexpr as te

jax = pytest.importorskip("jax", reason="JAX is not installed (make test-peers installs it)")

from tensorexpr.interop.jax import as_jax, handler  # noqa: E402
from tensorexpr.interop.jax.abi import CODES, DTYPES, LAYOUT, MAJOR, MINOR, SIZES  # noqa: E402
from tensorexpr.interop.jax.handler import handlers  # noqa: E402
from tensorexpr.interop.jax.handler_text import TARGET  # noqa: E402
from tests.peers.xla import Header  # noqa: E402

# ---------------------------------------------------------------------------------------------------- layouts


@pytest.fixture(scope="module")
def header():
    return Header.shipped()


def test_layouts_are_those_of_the_header_that_jaxlib_ships(header):
    assert {path: header.offset(path) for path in LAYOUT} == LAYOUT
    # The size that a struct says it has ends with its last field.
    sizes = {}
    for name in SIZES:
        field, kind = header.structs[name][-1]
        sizes[name] = header.offset(f"{name}.{field}") + header.size(kind)[0]
    assert sizes == SIZES


def test_numbers_are_those_of_the_header(header):
    assert {name: header.values[f"XLA_FFI_Error_Code_{name}"] for name in CODES} == CODES
    assert {name: header.values[f"XLA_FFI_DataType_{xla}"] for name, (xla, _) in DTYPES.items()} == {n: c for n, (_, c) in DTYPES.items()}
    assert {LAYOUT[path] for path in LAYOUT if path.endswith("_Args.ctx")} == {LAYOUT["XLA_FFI_State_Get_Args.ctx"]}
    assert header.version[0] == MAJOR and header.version[1] >= MINOR
    assert header.values["XLA_FFI_Extension_Metadata"] == 1 and header.values["XLA_FFI_ExecutionStage_INSTANTIATE"] == 0


# ---------------------------------------------------------------------------------------------------- lives


def scaled(factor):
    @te.op
    def scale(x):
        # A workspace: the sums are read twice, at other places.
        n, m = x.shape
        sums = te.compute((n,), lambda i: te.sum(lambda j: te.exp(x[i, j] * factor), m))
        return te.compute((n, m), lambda i, j: x[i, j] / sums[i] + sums[n - 1 - i])

    return scale


def collected(at_most=0, seconds=30.0):
    """Open records, after everything that can go has gone.

    XLA's threads may hold an executable for a moment after its results are ready, so this looks again for up to
    `seconds`, until there are `at_most` or fewer.
    """
    end = time.monotonic() + seconds
    while True:
        jax.clear_caches()
        for _ in range(3):
            gc.collect()
        if handlers().open <= at_most or time.monotonic() > end:
            return handlers().open
        time.sleep(0.05)


def test_kernels_go_with_the_programs_that_use_them():
    x = jax.numpy.ones((5, 7))
    before = collected(seconds=0.5)
    dead = []
    for k in range(12):
        op = scaled(1.0 + k)
        function = jax.jit(as_jax(op))
        function(x).block_until_ready()
        dead += [weakref.ref(op), weakref.ref(function)]
        del op, function
    assert collected(before) <= before
    assert all(reference() is None for reference in dead)


def test_a_program_of_xla_outlives_everything_in_python():
    x = jax.numpy.asarray(np.random.default_rng(0).standard_normal((5, 7)))
    op = scaled(0.5)
    expected = np.asarray(as_jax(op)(x))
    compiled = jax.jit(as_jax(op)).lower(x).compile()
    before = collected(seconds=0.5)
    del op
    assert collected(before) <= before
    for _ in range(20):
        te.op(lambda x: te.compute(x.shape, lambda *i: x[i] + 1.0)).compile(np.ones(3))  # memory given back is used again
        np.testing.assert_array_equal(compiled(x), expected)
    del compiled


def test_equal_kernels_share_a_record():
    x = jax.numpy.ones((5, 7))
    first, second = jax.jit(as_jax(scaled(3.0))), jax.jit(as_jax(scaled(3.0)))
    before = handlers().open
    first(x)
    once = handlers().open
    second(x)
    assert once == before + 1 and handlers().open == once


NUMBERS = "tensorexpr: expected the numbers of arguments and results of the kernel, got other ones"
ELSEWHERE = "tensorexpr: expected a kernel that this process has compiled, got a program made elsewhere: trace and lower it here first"


def test_programs_made_elsewhere_are_refused():
    handlers()  # known to JAX, whatever ran before
    x = jax.numpy.ones((5, 7))
    call = jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct(x.shape, x.dtype))
    with pytest.raises(jax.errors.JaxRuntimeError, match=ELSEWHERE):
        call(x, kernel=np.int64(1))
    with pytest.raises(jax.errors.JaxRuntimeError, match="expected a kernel that this process has compiled"):
        call(x)
    function = jax.jit(as_jax(scaled(7.5)))
    expected = function(x)
    number = int(re.search(r"kernel = (-?\d+)", function.lower(x).as_text())[1])
    with pytest.raises(jax.errors.JaxRuntimeError, match=NUMBERS):
        call(x, x, kernel=np.int64(number))
    np.testing.assert_array_equal(call(x, kernel=np.int64(number)), expected)


def test_a_workspace_that_no_memory_is_left_for_is_an_error():
    x = jax.numpy.ones((5, 7))
    function = jax.jit(as_jax(scaled(8.5)))
    number = int(re.search(r"kernel = (-?\d+)", function.lower(x).as_text())[1])
    compiled = function.lower(x).compile()
    record, _ = handlers()._open_records[number]
    size = record[handlers().record.index("workspace")]
    record[handlers().record.index("workspace")] = 2**62
    message = "tensorexpr: expected memory for a workspace of %lld bytes, got none"
    try:
        with pytest.raises(jax.errors.JaxRuntimeError, match=message.replace("%lld", str(2**62))):
            compiled(x)
    finally:
        record[handlers().record.index("workspace")] = size
    assert compiled(x).shape == x.shape


def test_an_old_jax_is_refused(monkeypatch):
    monkeypatch.setattr(jax, "__version_info__", (0, 4, 38))
    monkeypatch.setattr(jax, "__version__", "0.4.38")
    with pytest.raises(te.TargetError, match=r"tensorexpr.interop.jax: expected jax 0.10 or newer, got 0.4.38"):
        handler.Handlers("cpu", "", (), {}, {}, register=False)
