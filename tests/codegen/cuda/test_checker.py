"""The checker of kernels on a CPU: every planted fault is found and named, and kernels without are left in peace.

Each fault is a kernel of its own in one text, so that a C++ compiler is called once; and whatever barrier is taken out of a kernel that we
emit, the checker misses it.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.emitter.source import Launch, Source
from tensorexpr.codegen.cuda.host import HostKernels, Memory, compiler
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import H200
from tensorexpr.errors import InternalError
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Const
from tensorexpr.parse import parse_program
from tests.codegen.cuda.device import Program
from tests.random_programs import random_inputs

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run CUDA kernels on the CPU")

HEAD = 'extern "C" __global__ void __launch_bounds__(64) {name}(const float *__restrict__ x, float *__restrict__ y) {{'
BODIES = {
    # What is right.
    "good_shuffles": """
  te_bf16 half = te_to_bf16(x[threadIdx.x]);
  y[blockIdx.x * 64 + threadIdx.x] = te_f32(te_shuffle_from(half, 31)) + te_shuffle_down(x[threadIdx.x], 31);""",
    "good_rows": """
  __shared__ float row[64];
  row[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = row[63 - threadIdx.x];""",
    "good_warps": """
  __shared__ float row[64];
  row[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  y[blockIdx.x * 64 + threadIdx.x] = row[threadIdx.x ^ 1];
  __syncwarp();
  row[threadIdx.x ^ 2] = 0.0f;""",
    "good_rows_of_warps": """
  __shared__ float row[2][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int k = 0; k < 2; ++k) {
    row[warp][lane] = x[threadIdx.x];
    __syncwarp();
    y[blockIdx.x * 64 + threadIdx.x] = row[warp][0] + row[warp][31];
    __syncwarp();
  }""",
    "good_copies": """
  __shared__ __align__(16) float row[2][64];
  if (threadIdx.x < 16) te_copy_async<16>(&row[0][threadIdx.x * 4], &x[threadIdx.x * 4]);
  te_copies_commit();
  if (threadIdx.x < 16) te_copy_async<16>(&row[1][threadIdx.x * 4], &x[threadIdx.x * 4]);
  te_copies_commit();
  te_copies_wait<1>();
  __syncthreads();
  float first = row[0][63 - threadIdx.x];
  te_copies_wait<0>();
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = first + row[1][63 - threadIdx.x];""",
    "good_arena": """
  float (&row)[64] = te_arena<float[64]>(128);
  row[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = row[63 - threadIdx.x];""",
    "good_atomics": """
  atomicAdd(&y[0], 1.0f);""",
    "good_but_not_set": """
  float sum;
  y[blockIdx.x * 64 + threadIdx.x] = sum + x[threadIdx.x];""",
    # Shared memory that a launch asks for.
    "in_the_arena": """
  float (&row)[64] = te_arena<float[64]>(128);
  row[threadIdx.x] = x[threadIdx.x];
  y[blockIdx.x * 64 + threadIdx.x] = row[63 - threadIdx.x];""",
    "behind_the_arena": """
  float (&row)[65] = te_arena<float[65]>(128);
  row[threadIdx.x + 1] = x[threadIdx.x];""",
    "a_part_of_the_arena": """
  float (&row)[64] = te_arena<float[64]>(0);
  y[blockIdx.x * 64 + threadIdx.x] = row[threadIdx.x];""",
    # A barrier that is missing.
    "before_reading": """
  __shared__ float row[64];
  row[threadIdx.x] = x[threadIdx.x];
  y[blockIdx.x * 64 + threadIdx.x] = row[63 - threadIdx.x];""",
    "before_writing_again": """
  __shared__ float row[64];
  for (int k = 0; k < 2; ++k) {
    row[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[blockIdx.x * 64 + threadIdx.x] = row[63 - threadIdx.x];
  }""",
    "of_the_block_not_the_warp": """
  __shared__ float row[64];
  row[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  y[blockIdx.x * 64 + threadIdx.x] = row[63 - threadIdx.x];""",
    "of_rows_that_a_warp_has_read": """
  __shared__ float row[2][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int k = 0; k < 2; ++k) {
    row[warp][lane] = x[threadIdx.x];
    __syncwarp();
    y[blockIdx.x * 64 + threadIdx.x] = row[warp][0] + row[warp][31];
  }""",
    "of_rows_that_another_warp_has_read": """
  __shared__ float row[32];
  if (threadIdx.x < 32) row[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = row[0];
  __syncwarp();
  if (threadIdx.x < 32) row[threadIdx.x] = 0.0f;""",
    "of_the_warp": """
  __shared__ float row[64];
  row[threadIdx.x] = x[threadIdx.x];
  y[blockIdx.x * 64 + threadIdx.x] = row[threadIdx.x ^ 1];""",
    "shuffles_order_nothing": """
  __shared__ float row[64];
  row[threadIdx.x] = x[threadIdx.x];
  float z = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
  y[blockIdx.x * 64 + threadIdx.x] = z + row[threadIdx.x ^ 1];""",
    "two_writers": """
  __shared__ float row[64];
  row[threadIdx.x / 2] = x[threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = row[threadIdx.x / 4];""",
    "in_global_memory": """
  y[blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x];
  y[blockIdx.x * 64 + 63 - threadIdx.x] += 1.0f;""",
    # Blocks that meet.
    "blocks_write_the_same": """
  y[threadIdx.x] = x[threadIdx.x];""",
    "blocks_add_without_atomics": """
  if (threadIdx.x == 0) y[0] = y[0] + 1.0f;""",
    "a_block_reads_what_another_writes": """
  if (blockIdx.x == 0) y[threadIdx.x] = x[threadIdx.x];
  else y[64 + threadIdx.x] = y[threadIdx.x];""",
    "atomics_beside_plain_writes": """
  if (blockIdx.x == 0 && threadIdx.x == 0) y[0] = 1.0f;
  else atomicAdd(&y[0], 1.0f);""",
    # What nothing has been written to.
    "a_column_of_shared_memory": """
  __shared__ float row[65];
  row[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = row[threadIdx.x + 1];""",
    "what_an_earlier_block_left": """
  __shared__ float row[64];
  if (blockIdx.x == 0) row[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = row[63 - threadIdx.x];""",
    "a_result": """
  y[blockIdx.x * 64 + threadIdx.x] += x[threadIdx.x];""",
    # Beyond the ends.
    "behind_an_input": """
  y[blockIdx.x * 64 + threadIdx.x] = x[threadIdx.x + 1];""",
    "before_an_input": """
  y[blockIdx.x * 64 + threadIdx.x] = x[(int)threadIdx.x - 1];""",
    "behind_a_result": """
  y[blockIdx.x * 64 + threadIdx.x + 1] = x[threadIdx.x];""",
    "packs_behind_an_input": """
  float t[4];
  te_load(t, &x[threadIdx.x * 4]);
  y[blockIdx.x * 64 + threadIdx.x] = t[0];""",
    "beyond_a_row_of_shared_memory": """
  __shared__ float tile[2][64];
  int k = (int)threadIdx.x + 1;
  tile[0][k] = x[threadIdx.x];""",
    "beyond_all_shared_memory": """
  __shared__ float row[64];
  float *far = row + (1 << 16);
  far[threadIdx.x] = x[threadIdx.x];""",
    # Others.
    "writes_an_input": """
  const_cast<float *>(x)[threadIdx.x] = 1.0f;""",
    "not_aligned": """
  float t[4];
  te_load(t, &x[threadIdx.x % 4 + 1]);
  y[blockIdx.x * 64 + threadIdx.x] = t[0];""",
    "an_index_of_32_bits_overflows": """
  int big = 2147483600 + (int)threadIdx.x;
  int next = big + 40;
  y[blockIdx.x * 64 + threadIdx.x] = x[next > 0 ? 0 : 1];""",
    "a_barrier_not_all_reach": """
  if (threadIdx.x < 32) __syncthreads();
  else { y[threadIdx.x] = 1.0f; __syncthreads(); }""",
    "a_meeting_not_all_reach": """
  if (threadIdx.x % 32 < 16) __syncwarp();""",
    "a_shuffle_in_half_a_warp": """
  if (threadIdx.x % 32 < 16) y[blockIdx.x * 64 + threadIdx.x] = te_shuffle_down(x[threadIdx.x], 8);""",
    "shuffles_in_one_warp_for_two": """
  __shared__ float row[64];
  if (threadIdx.x < 32) row[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = te_shuffle_from(row[threadIdx.x], 0);""",
    # Asynchronous copies.
    "no_wait": """
  __shared__ __align__(16) float row[64];
  if (threadIdx.x < 16) te_copy_async<16>(&row[threadIdx.x * 4], &x[threadIdx.x * 4]);
  te_copies_commit();
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = row[63 - threadIdx.x];
  te_copies_wait<0>();""",
    "a_wait_too_lax": """
  __shared__ __align__(16) float row[64];
  if (threadIdx.x < 16) te_copy_async<16>(&row[threadIdx.x * 4], &x[threadIdx.x * 4]);
  te_copies_commit();
  te_copies_wait<1>();
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = row[63 - threadIdx.x];
  te_copies_wait<0>();""",
    "a_wait_without_a_barrier": """
  __shared__ __align__(16) float row[64];
  if (threadIdx.x < 16) te_copy_async<16>(&row[threadIdx.x * 4], &x[threadIdx.x * 4]);
  te_copies_commit();
  te_copies_wait<0>();
  y[blockIdx.x * 64 + threadIdx.x] = row[63 - threadIdx.x];""",
    "copied_over_what_is_read": """
  __shared__ __align__(16) float row[64];
  row[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = row[63 - threadIdx.x];
  if (threadIdx.x < 16) te_copy_async<16>(&row[threadIdx.x * 4], &x[threadIdx.x * 4]);
  te_copies_commit();
  te_copies_wait<0>();""",
    "nobody_waits": """
  __shared__ __align__(16) float row[64];
  if (threadIdx.x < 16) te_copy_async<16>(&row[threadIdx.x * 4], &x[threadIdx.x * 4]);""",
    "a_copy_not_aligned": """
  __shared__ __align__(16) float row[65];
  te_copy_async<16>(&row[1], &x[0]);
  te_copies_wait<0>();""",
}  # fmt: skip
FOUND = {
    "in_the_arena": "of shared memory, which nothing has been written to",
    "behind_the_arena": "behind the end of shared memory",
    "a_part_of_the_arena": "of shared memory, which nothing has been written to",
    "before_reading": "of shared memory, which nothing has been written to",
    "before_writing_again": "of shared memory without a barrier after thread",
    "of_the_block_not_the_warp": "of shared memory without a barrier after",
    "of_rows_that_a_warp_has_read": "of shared memory without a barrier after",
    "of_rows_that_another_warp_has_read": "of shared memory without a barrier after other threads read",
    "of_the_warp": "of shared memory, which nothing has been written to",
    "shuffles_order_nothing": "of shared memory without a barrier after",
    "two_writers": "without a barrier after thread",
    "in_global_memory": "reads y[63], which nothing has been written to",
    "blocks_write_the_same": "writes y[0] without a barrier after thread 0 of another block wrote it",
    "blocks_add_without_atomics": "y[0] without a barrier after thread 0 of another block",
    "a_block_reads_what_another_writes": "of another block",
    "atomics_beside_plain_writes": "y[0] without a barrier after",
    "a_column_of_shared_memory": "of shared memory, which nothing has been written to",
    "what_an_earlier_block_left": "of shared memory, which nothing has been written to",
    "a_result": "reads y[0], which nothing has been written to",
    "behind_an_input": "reads 4 bytes 0 bytes behind the end of x",
    "before_an_input": "reads 4 bytes 4 bytes before the start of x",
    "behind_a_result": "writes 4 bytes 0 bytes behind the end of y",
    "packs_behind_an_input": "bytes behind the end of x",
    "beyond_a_row_of_shared_memory": "an index outside of one axis of an array",
    "beyond_all_shared_memory": "behind the end of shared memory",
    "writes_an_input": "writes to an input, x[0]",
    "not_aligned": "an access of 16 bytes at an address that is no multiple of them",
    "an_index_of_32_bits_overflows": "an integer sum that overflows",
    "a_barrier_not_all_reach": "threads of one block wait at different barriers",
    "a_meeting_not_all_reach": "is not there",
    "a_shuffle_in_half_a_warp": "is not there",
    "shuffles_in_one_warp_for_two": "of shared memory, which nothing has been written to",
    "no_wait": "before thread 15 has waited for its copy",
    "a_wait_too_lax": "before thread 15 has waited for its copy",
    "a_wait_without_a_barrier": "of shared memory, which nothing has been written to",
    "copied_over_what_is_read": "of shared memory without a barrier after thread",
    "nobody_waits": "leaves while copies of its own are under way",
    "a_copy_not_aligned": "an access of 16 bytes at an address that is no multiple of them",
}
BLOCKS = 3


def launch_of(name: str) -> Launch:
    asked = 128 + 64 * 4 if "arena" in name else 0
    return Launch(name, ("x", "y"), (), False, (64, 1, 1), (Const(BLOCKS, dtypes.int64),), False, asked)


@pytest.fixture(scope="module")
def kernels() -> HostKernels:
    text = "\n".join(HEAD.format(name=name) + body + "\n}" for name, body in BODIES.items())
    plan = tuple(launch_of(name) for name in BODIES)
    return HostKernels(Source(text, plan), checked=True)


def checked(kernels: HostKernels, name: str, order: int, late: bool) -> np.ndarray:
    """The result of a kernel."""
    floats = np.zeros(4096, np.float32)
    x, y = floats[4 * 16 : 4 * 16 + 64], floats[2048 : 2048 + 64 * BLOCKS]
    places = [int(a.ctypes.data) + (-int(floats.ctypes.data) % 16) for a in (x, y)]
    filled = name in ("good_atomics", "blocks_add_without_atomics", "atomics_beside_plain_writes")
    kernels.watch([Memory("x", places[0], x.nbytes, 4, True, False), Memory("y", places[1], y.nbytes, 4, filled, True)])
    kernels.launch(launch_of(name), (BLOCKS, 1, 1), places, order, late)
    return y


@pytest.mark.parametrize("name", [name for name in BODIES if name.startswith("good_")])
def test_what_is_right_is_left_in_peace(kernels, name):
    for order in (0, 1, 7):
        for late in (False, True):
            checked(kernels, name, order, late)


@pytest.mark.parametrize("name", list(FOUND))
def test_planted_faults_are_found(kernels, name):
    for order, late in ((0, True), (1, False), (5, True)):
        with pytest.raises(InternalError) as caught:
            checked(kernels, name, order, late)
        if order == 0:
            assert FOUND[name] in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("blocks", "threads", "asked", "message"),
    [
        ((1, 1 << 16, 1), (64, 1, 1), 0, "more blocks than a grid has"),
        ((1, 1, 1 << 16), (64, 1, 1), 0, "more blocks than a grid has"),
        ((1 << 31, 1, 1), (64, 1, 1), 0, "more blocks than a grid has"),
        ((1, 1, 1), (1, 1, 65), 0, "more threads than a block has"),
        ((1, 1, 1), (32, 33, 1), 0, "more threads than a block has"),
        ((1, 1, 1), (64, 1, 1), (227 << 10) + 1, "more shared memory than a block has"),
    ],
)
def test_what_no_gpu_launches_is_found(kernels, blocks, threads, asked, message):
    launch = replace(launch_of("good_rows"), threads=threads, shared=asked)
    with pytest.raises(InternalError, match=message):
        kernels.launch(launch, blocks, [0, 0])


def test_every_fault_is_asked_for():
    assert set(FOUND) == {name for name in BODIES if not name.startswith("good_")}


def test_the_line_is_quoted(kernels):
    with pytest.raises(InternalError) as caught:
        checked(kernels, "before_reading", 0, True)
    assert "row[63 - threadIdx.x];" in str(caught.value) and "line " in str(caught.value)


def test_what_a_thread_has_not_set_is_no_number_that_is_likely(kernels):
    y = checked(kernels, "good_but_not_set", 0, True)
    assert (np.abs(y) > 1e30).all()


# --------------------------------------------------------------------------------------------- of our own emitter

PROGRAMS = {
    "softmax": """
x: f32[3, 300] = input()
m[i]: f32[3] = max(x[i, j] for j in range(300))
e[i, j]: f32[3, 300] = exp(x[i, j] - m[i])
t[i]: f32[3] = sum(e[i, j] for j in range(300))
y[i, j]: f32[3, 300] = e[i, j] / t[i]
return y
""",
    "tile": """
A: f32[32, 70] = input()
B: f32[70, 32] = input()
C[i, j]: f32[32, 32] = sum(A[i, k] * B[k, j] for k in range(70))
return C
""",
}


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_no_barrier_can_be_taken_out(name):
    s = autoschedule(parse_program(PROGRAMS[name]), replace(H200, cores=1))
    whole = Program(verify_nest(lower(s)))
    lines, (launch,) = whole.source.text.splitlines(), whole.source.launches
    barriers = [k for k, line in enumerate(lines) if line.strip() in ("__syncthreads();", "__syncwarp();")]
    texts, launches = [], []
    barriers = barriers[:: -(-len(barriers) // 7)]
    for number, barrier in enumerate([None, *barriers]):
        kept = "\n".join(line for k, line in enumerate(lines) if k != barrier)
        launches.append(replace(launch, kernel=f"v{number}"))
        texts.append(kept.replace(f" {launch.kernel}(", f" v{number}("))
    kernels = HostKernels(Source("\n".join(texts), tuple(launches)), checked=True)
    inputs, wrong = random_inputs(s.program, 3), []
    for one in launches:
        part = Program(whole.nest)
        part.source, part._kernels = Source("", (one,)), kernels
        try:
            part(inputs)
        except InternalError as error:
            assert "of shared memory" in str(error)
            wrong.append(one)
    # A few stand where two ways to them meet, of which one alone needs them.
    assert wrong and launches[0] not in wrong and len(wrong) >= len(barriers) - 2


FAULTS: dict[str, tuple[str, str]] = {
    "no barrier": (r"__syncthreads\(\);", ""),
    "a barrier of the warp": (r"__syncthreads\(\);", "__syncwarp();"),
    "a barrier that half of a block meets": (r"__syncthreads\(\);", "if (threadIdx.x < 32) __syncthreads();"),
    "a neighbor in shared memory": (r"(= \w+_lanes)\[lane", r"\1[1 + lane"),
    "another row of a tile": (r"(\w+_at)\[([^\]]*)\]\[([^\]]*)\]\[", r"\1[\2][\3 + 1]["),
    "a neighbor in an input": (r"\b([xAB])\[(?!\d+\])", r"\1[1 + "),
    "a neighbor in the result": (r"([sC])\[(\w[^\]]*)\] =", r"\1[\2 + 1] ="),
    "no wait": (r"te_copies_wait\w*(<\d+>)?\(\);", ""),
    "a wait too lax": (r"te_copies_wait_all\(\);", "te_copies_wait<1>();"),
    "no test for the last": (r"if \((\w+) < (\d+)\) \{", r"if (\1 >= 0) {"),
    "one too many": (r"if \((\w+) < (\d+)\) \{", r"if (\1 <= \2) {"),
    "one too few": (r"if \((\w+) < (\d+)\) \{", r"if (\1 + 1 < \2) {"),
    "all write": (r"if \(threadIdx\.x == 0\) ", ""),
    "a step too far": (r"(for \(int (?!part)\w+ = [^;]+; \w+) <", r"\1 <="),
    "lanes too near": (r"te_shuffle_down\((.*), 16\)", r"te_shuffle_down(\1, 8)"),
    "another lane's sum": (r"te_shuffle_from\((.*), 0\)", r"te_shuffle_from(\1, 3)"),
    "set to something else": (r"= 0\.0f;", "= 1.0f;"),
    "no zeros beyond the border": (r", [^,;]+ \? (\d+) : 0\);", r", \1);"),
    "blocks that overlap": (r"\(int\)blockIdx\.x", "(int)(blockIdx.x / 2)"),
    "half a warp": (r"(\w+ = te_shuffle_down)", r"if (threadIdx.x < 16) \1"),
}
MUTATED = {
    "row": "x: f32[3, 9, 31] = input()\ns[i]: f32[3] = sum(x[i, h, k] * x[i, h, k] for h in range(9) for k in range(31))\nreturn s",
    "tile": PROGRAMS["tile"],
}


@pytest.mark.parametrize("name", list(MUTATED))
def test_faults_in_kernels_of_ours_are_found(name):
    """By the checker, or because the result is wrong."""
    s = autoschedule(parse_program(MUTATED[name]), replace(H200, cores=1))
    whole = Program(verify_nest(lower(s)))
    text, (launch,) = whole.source.text, whole.source.launches
    changed = {fault: re.sub(*how, text, count=1) for fault, how in FAULTS.items()}
    changed = {"none": text, **{fault: made for fault, made in changed.items() if made != text}}
    launches = {fault: replace(launch, kernel=f"v{number}") for number, fault in enumerate(changed)}
    texts = [made.replace(f" {launch.kernel}(", f" {launches[fault].kernel}(") for fault, made in changed.items()]
    kernels = HostKernels(Source("\n".join(texts), tuple(launches.values())), checked=True)
    inputs = random_inputs(s.program, 3)
    (want,) = evaluate_program(s.program, inputs).values()
    missed = []
    for fault, one in launches.items():
        part = Program(whole.nest)
        part.source, part._kernels = Source("", (one,)), kernels
        try:
            (got,) = part(inputs).values()
        except InternalError:
            continue
        if np.allclose(got, want, rtol=1e-4, atol=1e-4):
            missed.append(fault)
    assert missed == ["none"] and len(changed) >= 8
