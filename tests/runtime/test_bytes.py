"""Bytes that no memory has are told with their true number: no arithmetic on them wraps around."""

from __future__ import annotations

import os

import numpy as np
import pytest

import tensorexpr as te
import tensorexpr_runtime
from tests.codegen.cuda.device import needs_compiler

HUGE = (1 << 62) + 16
"""Elements of which float32 takes 64 bytes more than 2^64."""


def stored(extent: int | te.Scalar) -> tuple[te.Tensor, list[te.Tensor]]:
    """A definition that reads an intermediate of so many elements, which stays stored in a plain schedule."""
    x = te.placeholder((4,), name="x")
    t = te.compute((extent,), lambda i: x[i % 4] * 2, name="t")
    return te.compute((4,), lambda i: t[i] + te.exp(t[i * 3]), name="y"), [x]


def test_intermediates_of_fixed_sizes() -> None:
    y, inputs = stored(HUGE)
    f = te.build(te.schedule(y, inputs=inputs))
    assert f.workspace_bytes() > 1 << 64
    with pytest.raises(
        te.ArgumentError, match="y: expected intermediate results that fit into memory, got 18,446,744,073,709,551,680 bytes"
    ):
        f(np.ones(4, np.float32))


def test_results_of_fixed_sizes() -> None:
    x = te.placeholder((4,), name="x")
    f = te.build(te.compute((HUGE, 4), lambda i, j: x[j] * 2, name="y"), [x])
    with pytest.raises(te.ArgumentError, match="result y: expected an array that fits into memory"):
        f(np.ones(4, np.float32))


def open_sizes() -> tuple[te.Tensor, list[te.Tensor]]:
    """n x n x n elements stored between two definitions."""
    n = te.dim("n")
    x = te.placeholder((n,), "int8", name="x")
    t = te.compute((n, n, n), lambda i, j, k: x[i] * x[j] + x[k], name="t")
    return te.compute((n,), lambda i: t[i, 0, 0] + te.cast(te.exp(te.cast(t[0, i, i], "float32")), "int8"), name="y"), [x]


def test_intermediates_of_open_sizes(tmp_path: os.PathLike[str]) -> None:
    y, inputs = open_sizes()
    f = te.build(te.schedule(y, inputs=inputs))
    n = 2_642_246  # its cube passes 2^64 by 2.6e12
    x = np.zeros(n, np.int8)
    with pytest.raises(te.ArgumentError, match="y: expected intermediate results that fit into memory, got 18,446,"):
        f(x)
    bundle = tensorexpr_runtime.load(te.export(tmp_path / "bundle", f=f))
    assert bundle.f.workspace_bytes(n=n) == 1 << 62 and bundle.f.workspace_bytes(n=10) == f.workspace_bytes(n=10)
    with pytest.raises((tensorexpr_runtime.ArgumentError, MemoryError)):
        bundle.f(x)


def test_extents_of_empty_arrays(tmp_path: os.PathLike[str]) -> None:
    """Such an array may have extents that no memory has: the size decided comparisons as if it were at most 2^47."""
    n = te.dim("n")
    x = te.placeholder((0, n), "int8", name="x")
    f = te.build(te.compute((20,), lambda i: te.where(n + i < (1 << 47) + 2, 1, 2), name="y"), [x])
    bundle = tensorexpr_runtime.load(te.export(tmp_path / "bundle", f=f))
    for call, error in ((f, te.ArgumentError), (bundle.f, tensorexpr_runtime.ArgumentError)):
        np.testing.assert_array_equal(call(np.zeros((0, 1 << 47), np.int8)), [1, 1, *[2] * 18])
        with pytest.raises(error, match="argument x: expected an extent of at most 2\\^47, got 281474976710656"):
            call(np.zeros((0, 1 << 48), np.int8))


@needs_compiler
def test_on_the_other_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    y, inputs = stored(HUGE)
    f = te.build(te.schedule(y, "cuda", inputs=inputs))
    with pytest.raises(te.ArgumentError, match="y: expected intermediate results that fit into memory"):
        f(f.upload(np.ones(4, np.float32)))
