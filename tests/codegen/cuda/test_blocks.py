"""Contractions as tiles of blocks of threads: which tile, the same results on a CPU, and what NVRTC makes of the text."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.planners.default import shapes_of
from tensorexpr.codegen.planners.gpu.blocks import tiles_of
from tensorexpr.codegen.schedule import Planned, schedule
from tensorexpr.codegen.schedule.decisions import Choices, Decisions
from tensorexpr.codegen.target import H200
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tests.codegen.cuda.device import Program, needs_compiler
from tests.codegen.cuda.grids import evaluated
from tests.random_programs import random_inputs

SMALL = replace(H200, cores=1)
"""A GPU for which small tensors are large."""
ARCHITECTURES = ("sm_80", "sm_90")


def matmul(m: int, n: int, k: int, dtype: str = "f32", b: str = "B[k, j]") -> str:
    shape = f"{n}, {k}" if b == "B[j, k]" else f"{k}, {n}"
    return f"""
A: {dtype}[{m}, {k}] = input()
B: {dtype}[{shape}] = input()
C[i, j]: {dtype}[{m}, {n}] = sum(A[i, k] * {b} for k in range({k}))
return C
"""


def conv(n: int, c: int, k: int, length: int, stride: int) -> str:
    out = (length - 3) // stride + 1
    return f"""
X: f32[{n}, {c}, {length}] = input()
W: f32[{k}, {c}, 3] = input()
Y[n, k, o]: f32[{n}, {k}, {out}] = sum(X[n, c, {stride} * o + r] * W[k, c, r] for c in range({c}) for r in range(3))
return Y
"""


def batched(h: int, m: int, n: int, k: int) -> str:
    return f"""
A: f32[{h}, {m}, {k}] = input()
B: f32[{h}, {n}, {k}] = input()
C[h, i, j]: f32[{h}, {m}, {n}] = sum(A[h, i, k] * B[h, j, k] for k in range({k}))
return C
"""


def stem(n: int, k: int, side: int, dtype: str = "f32", combined: str = "sum", by: str = "*") -> str:
    """The first layer of a network: few channels, so that steps go along all of a window; no row of pixels fills a tile."""
    out, read = side // 2, "X[n, c, 2 * y + r - 2, 2 * z + s - 2]"
    inside = f"2 * y + r >= 2 and 2 * y + r < {side + 2} and 2 * z + s >= 2 and 2 * z + s < {side + 2}"
    value = f"where({inside}, {read}, {dtype}(0)) {by} W[k, c, r, s]"
    return f"""
X: {dtype}[{n}, 3, {side}, {side}] = input()
W: {dtype}[{k}, 3, 5, 5] = input()
Y[n, k, y, z]: {dtype}[{n}, {k}, {out}, {out}] = {combined}({value} for c in range(3) for r in range(5) for s in range(5))
return Y
"""


PADDED = """
X: f32[20, 60] = input()
W: f32[30, 20, 3] = input()
Y[k, o]: f32[30, 60] = sum(where(o + r >= 1 and o + r < 61, X[c, o + r - 1], 0.0) * W[k, c, r] for c in range(20) for r in range(3))
return Y
"""
BIASED = """
A: f32[64, 70] = input()
B: f32[70, 64] = input()
b: f32[64] = input()
C[i, j]: f32[64, 64] = sum(A[i, k] * B[k, j] for k in range(70))
D[i, j]: f32[64, 64] = maximum(C[i, j] + b[j], 0.0)
return D
"""
# Gradients of convolutions: bounds that depend on the axes of a tile, strides whose residue classes have different bounds.
WINDOWS = """
w: f32[32, 28, 3] = input()
g: f32[32, 30] = input()
x_bar[c, q]: f32[28, 32] = sum(g[k, q - s] * w[k, c, s] for k in range(32) for s in range(maximum(q - 29, 0), minimum(q + 1, 3)))
return x_bar
"""
GRADIENT = """
w: f32[128, 128, 3] = input()
g: f32[64, 128, 1022] = input()
x_bar[n, c, q]: f32[64, 128, 1024] = sum(
    g[n, k, q - s] * w[k, c, s] for k in range(128) for s in range(maximum(q - 1021, 0), minimum(q + 1, 3))
)
return x_bar
"""
CLASSES = """
w: f32[16, 32, 3] = input()
g: f32[2, 16, 32] = input()
x_bar[n, c, q]: f32[2, 32, 63] = sum(
    g[n, k, z] * w[k, c, q - z * 2 + 1] for k in range(16) for z in range(q // 2, minimum((q + 1) // 2 + 1, 32))
)
return x_bar
"""
# The gradient of a first layer by its weights: steps along what conditions leave out at borders.
WEIGHTS = """
X: f32[3, 3, 15, 35] = input()
G: f32[3, 30, 8, 18] = input()
W_bar[k, c, r, s]: f32[30, 3, 5, 5] = sum(
    G[n, k, y, z] * X[n, c, 2 * y + r - 2, 2 * z + s - 2] for n in range(3) for y in range(8) for z in range(18)
    if 2 * y + r >= 2 and 2 * y + r < 17 and 2 * z + s >= 2 and 2 * z + s < 37
)
return W_bar
"""
THIRDS = """
w: f32[16, 28, 4] = input()
g: f32[16, 31] = input()
x_bar[c, q]: f32[28, 94] = sum(
    g[k, z] * w[k, c, q - z * 3] for k in range(16) for z in range(maximum((q - 1) // 3, 0), minimum(q // 3 + 1, 31))
)
return x_bar
"""


def planned(text: str, target=SMALL) -> Planned:
    return autoschedule(parse_program(text), target)


def is_tiled(s: Planned) -> bool:
    return any(s.state.stage(name).cached for name in s.stages)


@needs_compiler
@pytest.mark.parametrize(
    "text",
    [
        matmul(64, 64, 64), matmul(60, 90, 69), matmul(61, 31, 66, b="B[j, k]"), matmul(64, 64, 64, "f64"), matmul(32, 60, 70, "f16"),
        matmul(32, 60, 70, "bf16"), matmul(50, 32, 65, "i32"), batched(3, 60, 30, 20), conv(2, 20, 30, 106, 1), conv(1, 20, 31, 130, 2),
        PADDED, BIASED, WINDOWS, CLASSES, THIRDS, WEIGHTS, stem(2, 30, 20), stem(3, 33, 15, "f64"), stem(3, 64, 14, "i32"),
        stem(2, 30, 20, combined="max", by="+"), stem(2, 31, 18, combined="min"),
    ],
)  # fmt: skip
def test_results_are_those_of_the_interpreter(text):
    s = planned(text)
    assert is_tiled(s), s.as_python()
    inputs = random_inputs(s.program, 7)
    (want,) = evaluated(s.program, inputs).values()
    made = Program(verify_nest(lower(s)))
    for order in (0, 1, 5):
        (got,) = made(inputs, order=order).values()
        np.testing.assert_array_equal(got.astype(want.dtype), want)


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    ("text", "fused", "reads"),
    [
        (matmul(4096, 4096, 4096), 2048, 96), (matmul(1000, 1000, 1000), 512, 32), (batched(16, 512, 512, 64), 2048, 96),
        (conv(32, 64, 128, 4098, 1), 512, 32),
    ],
)  # fmt: skip
def test_operands_come_four_at_a_time_without_spills(text, fused, reads, arch):
    source = emit(verify_nest(lower(planned(text, H200))))
    made = nvrtc.compile_text(source.text, arch)
    found = made.resources[source.launches[-1].kernel]
    assert not found.spill_stores and not found.spill_loads
    # Two blocks have room beside each other.
    assert 2 * found.registers * source.launches[-1].threads[0] <= 1 << 16
    assert source.text.count("__syncthreads()") <= 4
    # A step is unrolled whole: each value that is multiplied has been read with three others.
    body = [line.strip() for line in made.ptx.splitlines()]
    assert sum(line.startswith("fma.rn.f32") for line in body) == fused
    assert not any(line.startswith("ld.shared.f32") for line in body)
    assert sum(line.startswith("ld.shared.v4") for line in body) == reads


@needs_compiler
def test_few_threads_of_many_results_compute_the_same():
    s = planned(matmul(256, 384, 16), replace(H200, cores=2))
    made = Program(verify_nest(lower(s)))
    assert made.source.launches[0].threads == (128, 1, 1)
    inputs = random_inputs(s.program, 7)
    want = np.zeros((256, 384), np.float32)
    for k in range(16):  # in the order of the interpreter, which takes seconds for so many results
        want += inputs["A"][:, k, None] * inputs["B"][k]
    for order in (0, 1, 5):
        (got,) = made(inputs, order=order).values()
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("text", "rows", "columns", "at_once"), [(matmul(8192, 8192, 64), 128, 128, 264), (matmul(8192, 8192, 64, "bf16"), 128, 256, 132)]
)
def test_blocks_that_run_at_once_lie_in_a_square(text, rows, columns, at_once):
    nest = verify_nest(lower(planned(text, H200)))
    text = emit(nest).text
    # The place of a block's results, from the one line of text that says it.
    place = next(line for line in text.splitlines() if "te_store(&C[" in line or line.strip().startswith("C[")).split("C[")[1].split("]")[0]
    names = {"thread", *re.findall(r"[ij]_[a-z_]*", place)}

    def corner(block: int) -> tuple[int, int]:
        at = eval(place.replace("/", "//"), {}, {**dict.fromkeys(names, 0), "block": block})
        return at // 8192 // rows, at % 8192 // columns

    found = [corner(block) for block in range(at_once)]
    assert len(set(found)) == at_once
    assert len({i for i, _ in found}) * rows + len({j for _, j in found}) * columns <= (8192 + 4 * rows) // 2
    assert len({corner(block) for block in range(8192 // rows * 8192 // columns)}) == 8192 // rows * 8192 // columns


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
def test_what_a_window_leaves_out_is_read_four_at_a_time_too():
    source = emit(verify_nest(lower(planned(GRADIENT, H200))))
    made = nvrtc.compile_text(source.text, "sm_80")
    found = made.resources[source.launches[-1].kernel]
    body = [line.strip() for line in made.ptx.splitlines()]
    assert not found.spill_stores and not any(line.startswith("ld.shared.f32") for line in body)
    assert sum(line.startswith("ld.shared.v4") for line in body) == 32 and sum(line.startswith("fma.rn.f32") for line in body) == 512


@pytest.mark.parametrize(("text", "count"), [(CLASSES, 2), (THIRDS, 3)])
def test_the_threads_of_a_block_have_one_residue_class(text, count):
    s = planned(text)
    made = s.as_python()
    assert f"split('q', {count}, 'guard')" in made
    # The class is the outermost axis of the grid, and bounds of loops around the steps depend on the block alone.
    fused = next(line for line in made.splitlines() if ".fuse('q_i'" in line)
    assert fused and "threadIdx" not in "".join(line for line in emit(verify_nest(lower(s))).text.splitlines() if "for (int z" in line)


def test_weights_are_read_in_whole_lines_of_a_copy():
    for n, length in ((5, 106), (1, 50)):  # each weight is read 520 times, or 48
        s = planned(conv(n, 20, 30, length, 1))
        assert ("s['Y'].stage('W', (1, 2, 0))" in s.as_python()) is (n == 5)
    text = emit(verify_nest(lower(planned(conv(32, 64, 128, 4098, 1), H200)))).text
    assert "te_copy_async<16>(&W_staged_tile" in text and "te_copy_async<4>(&W" not in text


def test_what_is_no_contraction_or_small_has_no_tiles():
    for text in (
        matmul(64, 64, 12),
        matmul(8, 64, 64),
        "X: f32[64, 64] = input()\ny[i]: f32[64] = sum(X[i, k] for k in range(64))\nreturn y",
    ):
        assert not is_tiled(planned(text))


def test_larger_tiles_are_for_larger_results():
    def first(text: str) -> str:
        s = schedule(parse_program(text), H200)
        return str(tiles_of(s, "C", shapes_of(s.program))[0])

    assert first(matmul(4096, 4096, 4096)) == "128 i, 128 j of 128 threads"
    assert first(matmul(4096, 4096, 4092)) == first(matmul(4096, 4096, 4096, "f64")) == "128 i, 128 j"
    assert first(matmul(512, 512, 512)) == "64 i, 32 j"


def test_a_tile_can_be_asked_for():
    made = Decisions(Choices({"C: tile of a block": "64 i, 64 j"}))
    s = autoschedule(parse_program(matmul(4096, 4096, 4096)), H200, made)
    assert s["C"]._stage.extent("i_i_i") == 4 and "split('i', 64, 'guard')" in s.as_python()
    plain = autoschedule(parse_program(matmul(4096, 4096, 4096)), H200, Decisions(Choices({"C: tiles of blocks": "no"})))
    assert not is_tiled(plain)


TRANSPOSED = """
x0: f32[1, 32, 3, 28] = input()
x1: f32[32, 64, 3, 3] = input()
y[n, k, p, q]: f32[1, 64, 6, 56] = sum(
    x1[c, k, 2 * r - p + 1, 2 * s - q + 1] * where(p <= r + 2 and q <= s + 27, x0[n, c, p - r, q - s], 0.0)
    for c in range(32)
    for r in range(p // 2, (p + 1) // 2 + 1)
    for s in range(q // 2, (q + 1) // 2 + 1)
)
return y
"""


@needs_compiler
def test_weights_of_a_window_that_moves_on_have_a_tile() -> None:
    """As those of a transposed convolution: the window takes back the step of the results, so that they are the same for all columns."""
    s = autoschedule(parse_program(TRANSPOSED), replace(H200, cores=4))
    made = Program(verify_nest(lower(s)))
    text = made.source.text
    assert re.search(r"float x1\w*_tile(\[\d+\])?\[16\]\[\d+\];", text) and re.search(r"x0\w*_tile", text), text
    inputs = random_inputs(s.program, 3)
    (want,) = evaluate_program(s.program, inputs).values()
    for order in (0, 5):
        (got,) = made(inputs, order=order).values()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
