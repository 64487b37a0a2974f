"""Kernels that need constants alone are run once, when code is linked: the same results, no copy in a call, on disk and in profiles too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen import executable
from tensorexpr.codegen.compiled.function import CompiledFunction
from tensorexpr.codegen.llvm import compile_nest
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.nest.early import taken_apart
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.nest.verify import verify_nest

ROWS, INNER, COLUMNS = 24, 96, 200


def product(rows: int, seed: int = 0) -> tuple[CompiledFunction, np.ndarray]:
    """A product of few rows with a constant matrix, whose panels are worth a copy."""
    w = np.random.default_rng(seed).normal(size=(INNER, COLUMNS)).astype(np.float32)
    x = te.placeholder((rows, INNER), name="x")
    c = te.constant(w, name="w")
    y = te.compute((rows, COLUMNS), lambda i, j: te.sum(lambda k: x[i, k] * c[k, j], INNER), name="y")
    return te.build(y, [x]), w


def early_names(nest: LoopNest) -> list[str]:
    first = taken_apart(nest).early
    return [] if first is None else [kernel.name for kernel in first.kernels]


@pytest.mark.parametrize("rows", [7, ROWS, 65])
def test_products_with_a_constant_read_panels_that_are_made_once(rows: int) -> None:
    f, w = product(rows)
    first, rest = taken_apart(f.nest)
    assert first is not None and [k.name for k in first.kernels] == ["w_staged"]
    assert [k.name for k in rest.kernels] == ["y"]
    assert "w_staged" in [c.name for c in rest.constants]
    verify_nest(first), verify_nest(rest)
    assert f.workspace_bytes() == 0
    x = np.random.default_rng(1).normal(size=(rows, INNER)).astype(np.float32)
    np.testing.assert_allclose(f(x), x.astype(np.float64) @ w, rtol=1e-4, atol=1e-4)
    whole = compile_nest(f.nest)  # as it is printed and proved: every kernel in a call
    block, y = np.zeros(whole.workspace_size(()) + 64, np.uint8), np.empty((rows, COLUMNS), np.float32)
    whole([x.ctypes.data, y.ctypes.data], (), -(-block.ctypes.data // 64) * 64)
    np.testing.assert_array_equal(f(x), y)


def test_functions_of_one_program_share_what_is_made() -> None:
    (f, _), (g, _), (h, _) = product(ROWS), product(ROWS), product(ROWS, seed=1)
    assert f.constants["w_staged"] is g.constants["w_staged"]
    assert f.constants["w_staged"] is not h.constants["w_staged"]
    assert f.constants["w_staged"].ctypes.data % 64 == 0 and not f.constants["w_staged"].flags.writeable


def test_code_on_disk_makes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSOREXPR_CACHE_DIR", str(tmp_path))
    x = np.random.default_rng(2).normal(size=(11, INNER)).astype(np.float32)
    wanted = product(11)[0](x)
    executable._executables.clear()
    monkeypatch.setattr(executable, "nest_code", None)  # nothing is compiled again
    f, _ = product(11)
    np.testing.assert_array_equal(f(x), wanted)


def test_profiles_have_the_kernels_of_a_call() -> None:
    f, _ = product(ROWS)
    found = f.profile(np.zeros((ROWS, INNER), np.float32), seconds=0.01)
    assert [row.name for row in found.kernels] == ["y"]


TEXT = """
main(x, y)
x: parameter(f32[8])
y: parameter(f32[8], written)
w: constant(f32[8]) = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
a: workspace(f32[8])
b: workspace(f32[8])
c: workspace(f32[8])
d: workspace(f32[8])

def kernel_0() -> a:
    for i in range(0, 8):
        a[i] = w[7 - i]

def kernel_1() -> b:
    for i in range(0, 8):
        b[i] = a[i] * 2.0

def kernel_2() -> c:
    for i in range(0, 8):
        c[i] = x[i] + w[i]

def kernel_3() -> d:
    for i in range(0, 4):
        d[i] = w[i]

def kernel_4() -> d:
    for i in range(4, 8):
        d[i] = x[i]

def kernel_5() -> y:
    for i in range(0, 8):
        y[i] = b[i] + c[i] + d[i]
"""


def test_what_a_call_writes_too_is_not_made_once() -> None:
    first, rest = taken_apart(parse_nest(TEXT))
    assert first is not None
    assert [k.name for k in first.kernels] == ["a", "b"] and first.writes == ("b",) and [b.name for b in first.workspace] == ["a"]
    assert [k.name for k in rest.kernels] == ["c", "d", "d", "y"] and [b.name for b in rest.workspace] == ["c", "d"]
    verify_nest(first), verify_nest(rest)


def test_nothing_is_made_once_without_constants() -> None:
    nest = parse_nest(TEXT.replace("w: constant(f32[8]) = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]", "").replace("w[", "x["))
    assert taken_apart(nest) == (None, nest)
