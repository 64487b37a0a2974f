"""What the integers of PTX come to: counts and addresses of kernels that are written here, compiled by NVRTC, against Python."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.cuda.launch.run import launches
from tensorexpr.codegen.cuda.model.instructions import use_of
from tensorexpr.codegen.cuda.model.lanes import BUFFER_BITS, Block, Run, wrapped
from tensorexpr.codegen.cuda.model.text import Kernel, kernels_of
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.gpu_code import GpuCode
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import H200
from tensorexpr.simplify import simplify

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
SIGNATURE = 'extern "C" __global__ void k(const float *x, float *y, const long long *ids, long long n)'


def kernel(body: str) -> Kernel:
    return kernels_of(nvrtc.compile_text(f"{SIGNATURE} {{ {body} }}", "sm_90").ptx)["k"]


def run(body: str, n: int = 0, threads=(64, 1, 1), grid=(4, 1, 1), block=(1, 0, 0)) -> Run:
    return Block(kernel(body), ("x", "y", "ids"), (n,), threads, grid, block).run()


def stored(body: str, n: int = 0, **place) -> list[int]:
    """The elements of y that a block writes to, by the addresses of its stores (sectors of 32 bytes: eight elements each)."""
    found = run(body, n, **place)
    some = [s for a in found.accesses.values() if a.place == "y" for part in a.touched for s in part]
    return sorted({(int(s) * 32 - (2 << BUFFER_BITS)) // 32 for s in some})


INDEX = "int t = threadIdx.x, b = blockIdx.x;"
EXPRESSIONS = (  # C++ for the address, the same in Python: C's quotients go to zero
    ("t * 8", lambda t, b, n: t * 8),
    ("(t % 7) * 80 + b * 8", lambda t, b, n: t % 7 * 80 + b * 8),
    ("(t / 3) * 8 + (int)n * 16", lambda t, b, n: t // 3 * 8 + n * 16),
    ("((t - 30) / 7 + 10) * 8", lambda t, b, n: (int((t - 30) / 7) + 10) * 8),
    ("((t ^ 5) & 62 | 1) * 8", lambda t, b, n: (((t ^ 5) & 62) | 1) * 8),
    ("(t < 20 ? 3 * t : 100 - t) * 8", lambda t, b, n: (3 * t if t < 20 else 100 - t) * 8),
    ("max(min(t, 40), 9) * 8", lambda t, b, n: max(min(t, 40), 9) * 8),
    ("(long long)(n * t / 1000003 % 4099) * 8", lambda t, b, n: n * t // 1000003 % 4099 * 8),
    ("(int)((unsigned)(t - 10) >> 28) * 8", lambda t, b, n: ((t - 10) % 2**32 >> 28) * 8),
    ("((t << 27) / 64 + (1 << 25)) / 8 * 8", lambda t, b, n: (int(wrapped(t << 27, 32) / 64) + (1 << 25)) // 8 * 8),
)


@pytest.mark.parametrize("text, value", EXPRESSIONS, ids=[text for text, _ in EXPRESSIONS])
def test_addresses(text, value):
    for n, block in ((0, 0), (77, 3), (123_456_789, 1)):
        if "n *" in text or n < 100:
            found = stored(f"{INDEX} y[{text}] = 1.0f;", n, block=(block, 0, 0))
            assert found == sorted({value(t, block, n) // 8 for t in range(64)})


def test_ways_that_part_and_meet():
    """Threads go round a loop as often as they say: counts are those of each warp's longest."""
    found = run(
        f"{INDEX} float s = 0;\n#pragma unroll 1\nfor (int i = 0; i < t; ++i) if (i % 3 == 1) s += x[i * 1024]; y[t] = s;",
        threads=(64, 1, 1),
    )
    loads = [a for a in found.accesses.values() if a.place == "x"]
    wanted = sum(1 for warp in (32, 64) for i in range(warp - 1) if i % 3 == 1)
    assert sum(a.requests for a in loads) == wanted
    assert sum(a.units for a in loads) == wanted  # all threads of a warp read the same element


def test_threads_that_leave_and_blocks_that_are_cut():
    found = run(f"{INDEX} if (b * 64 + t >= n) return; y[b * 64 + t] = 1.0f;", n=64 + 40)
    (store,) = (a for a in found.accesses.values() if a.place == "y")
    assert store.requests == 2 and store.units == 4 + 1
    assert not run(f"{INDEX} if (b * 64 + t >= n) return; y[b * 64 + t] = 1.0f;", n=64).accesses


def test_blocks_of_threads_that_are_no_whole_warps():
    found = run(f"{INDEX} y[t] = 1.0f;", threads=(40, 1, 1))
    (store,) = found.accesses.values()
    assert store.requests == 2 and store.units == 5


def test_shared_memory_and_its_conflicts():
    for padding, times in ((0, 32), (1, 1)):
        body = (
            f"__shared__ float tile[32][32 + {padding}]; {INDEX} tile[t / 32][t % 32] = x[t]; __syncthreads(); y[t] = tile[t % 32][t / 32];"
        )
        found = run(body, threads=(1024, 1, 1))
        read = next(a for a in found.accesses.values() if a.space == "shared" and a.instruction.opcode.startswith("ld"))
        written = next(a for a in found.accesses.values() if a.space == "shared" and a.instruction.opcode.startswith("st"))
        assert read.place == "tile" and read.units == 32 * times and read.least == 32 and written.units == written.least == 32


def test_what_depends_on_data_says_so():
    assert run(f"{INDEX} y[ids[t] * 8] = 1.0f;").by_data and run(f"{INDEX} if (ids[t] > 3) y[t] = 1.0f;").by_data
    assert not run(f"{INDEX} y[t] = (float)ids[t];").by_data


# ------------------------------------------------------------------------------------------------- emitted kernels


def operations(outputs, inputs) -> float:
    """Floating-point operations of all blocks, each run."""
    code = GpuCode.of_schedule(autoschedule(simplify(te.program_of(outputs, inputs)), H200))
    made = code.compiled("sm_90")
    found, total = kernels_of(made.ptx), 0.0
    for launch, grid, scalars in launches(code.source.plan, {}):
        for place in np.ndindex(*grid):
            ran = Block(found[launch.kernel], launch.buffers, scalars, launch.threads, grid, place).run()
            total += sum(n * use_of(i.opcode).operations for n, block in zip(ran.executed, found[launch.kernel].blocks) for i in block)
    return total


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_a_product_multiplies_as_often_as_it_must(dtype):
    n, inner = 256, 96
    a, b = te.placeholder((n, inner), dtype, name="a"), te.placeholder((inner, n), dtype, name="b")
    c = te.compute((n, n), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j], inner), name="c")
    found = operations([c], [a, b])
    assert 2 * n * n * inner <= found <= 2.02 * n * n * inner


def test_every_kernel_of_some_library_comes_to_an_end():
    x, w = te.placeholder((2, 8, 20, 20), name="x"), te.placeholder((8, 8, 3, 3), name="w")
    ids, table = te.placeholder((100,), "int64", name="ids"), te.placeholder((30, 16), name="table")
    for outputs, inputs in (
        ([kernels.conv2d(x, w, padding=1)], [x, w]),
        ([kernels.softmax(table)], [table]),
        (list(te.gradient(kernels.embedding(ids, table), [table], te.placeholder((100, 16), name="h"))), None),
        ([kernels.max_pool2d(x, kernel_size=2)], [x]),
        ([te.compute((30, 16), lambda i, j: te.sin(table[i, j]) / (1.0 + te.exp(table[i, j])))], [table]),
    ):
        assert operations(outputs, inputs) >= 0


GUARDED = "float s = 0; for (int k = 0; k < 8; ++k) s += x[k] * (t + k >= 3 && t + k < 60 ? x[t + k - 3] : 0.0f); y[t] = s;"


def test_a_branch_over_a_load_is_a_predicate() -> None:
    """As machine code has it: eight loads that do not wait for each other, of the elements whose conditions hold."""
    made = kernel(f"{INDEX} {GUARDED}")
    assert len([block for block in made.blocks if block]) == 1, made.blocks
    found = Block(made, ("x", "y", "ids"), (0,), (64, 1, 1), (1, 1, 1), (0, 0, 0)).run()
    under = [a for a in found.accesses.values() if a.place == "x" and len({s for part in a.touched for s in part}) > 1]
    assert len(under) == 8


def test_a_branch_over_a_barrier_or_to_where_others_go_is_one() -> None:
    assert len(kernel(f"{INDEX} if (n > 3) {{ y[t] = x[t]; __syncthreads(); }} y[t + 64] = 1;").blocks) > 1
    assert len(kernel(f"{INDEX} for (int k = 0; k < n; ++k) y[t + k] = x[k];").blocks) > 1
