"""Products of warpgroups (sm_90a): the results of the interpreter, what is found where something is missing, and the machine code."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import dtypes
from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.cuda.emitter.source import Source
from tensorexpr.codegen.cuda.nvidia import nvrtc, ptx
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.nest.text import print_nest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule.decisions import Choices, Decisions
from tensorexpr.codegen.target import H200
from tensorexpr.errors import InternalError, TargetError
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tests.codegen.cuda.device import Program, needs_compiler
from tests.codegen.cuda.grids import evaluated
from tests.codegen.cuda.test_blocks import matmul
from tests.codegen.cuda.test_products import BIASED, convolution
from tests.random_programs import random_inputs

HOPPER = H200.running("sm_90a")
SMALL = replace(HOPPER, cores=1)
"""A GPU for which small tensors are large."""
needs_nvrtc = pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
TRANSPOSED = matmul(128, 128, 128, "bf16").replace("A[i, k]", "A[k, i]")


def planned(text, target=SMALL, tile=""):
    asked = Decisions(Choices({"C: tile of warps": f"{tile} by 64 k of warpgroups"} if tile else {}))
    return autoschedule(parse_program(text), target, asked)


def integers(s):
    """Inputs that are small numbers, so that sums in any order are the same."""
    given = random_inputs(s.program, 7)
    return {name: (np.round(a.astype(np.float32) * 2) / 2).astype(a.dtype) for name, a in given.items()}


def assert_means(s, orders=(0, 1, 5)):
    """Runs a schedule in several orders of threads; gives its text."""
    inputs, made = integers(s), Program(verify_nest(lower(s)))
    (want,) = evaluated(s.program, inputs).values()
    for order in orders:
        (got,) = made(inputs, order=order).values()
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))
    return made.source.text


@needs_compiler
@pytest.mark.parametrize(
    ("text", "tile", "words"),
    [
        (matmul(128, 256, 192, "bf16"), "128 i, 256 j", ("te_group_bf16<false, true>", "[3][4][64][64]")),
        (matmul(256, 128, 128, "bf16"), "256 i, 128 j", ("te_group_bf16<false, true>", "[i_o_o_o_i][0][0][0], te_tile<32768, 1024>")),
        (matmul(100, 120, 200, "f16", b="B[j, k]"), "128 i, 128 j", ("te_group_f16<false, false>", "? 16 : 0)")),
        (matmul(61, 63, 131, "bf16"), "64 i, 64 j", ("te_group_bf16<false, true>", "__align__(1024)")),
        (TRANSPOSED, "128 i, 64 j", ("te_group_bf16<true, true>", "__align__(1024) te_bf16 A_tile[2][2][64][64]")),
        (BIASED.replace("64", "128"), "", ("te_group_bf16<",)),
    ],
    ids=["bf16", "two products of a group", "f16 with ends", "no extent is whole", "both turned", "with a bias"],
)  # fmt: skip
def test_results_are_those_of_the_interpreter(text, tile, words):
    made = assert_means(planned(text, tile=tile))
    assert "te_mma" not in made and "te_matrices" not in made
    for word in words:
        assert word in made, word


@needs_compiler
@pytest.mark.parametrize("seed", range(6))
def test_random_products(seed):
    """Extents, dtypes, tiles, and which operands lie turned, at random."""
    rng = np.random.default_rng(seed)
    rows, columns = (int(n) for n in np.array([(128, 256), (256, 128), (128, 128), (128, 64), (64, 128), (64, 64)])[seed])
    m, n, k = (int(rng.integers(low, high)) for low, high in ((rows * 3 // 4, rows + 1), (columns * 3 // 4, columns + 1), (64, 400)))
    text = matmul(m, n, k, ["f16", "bf16"][seed % 2], b=["B[j, k]", "B[k, j]"][seed // 2 % 2])
    if seed % 3 == 1:
        text = text.replace(f"[{m}, {k}]", f"[{k}, {m}]").replace("A[i, k]", "A[k, i]")
    made = assert_means(planned(text, tile=f"{rows} i, {columns} j"))
    assert "te_group_" in made and "te_mma" not in made


@needs_compiler
def test_open_extents_have_tiles_too():
    m, k, n = te.dim("m"), te.dim("k"), te.dim("n")
    a, b = te.placeholder((m, k), "bfloat16", name="a"), te.placeholder((k, n), "bfloat16", name="b")
    c = te.compute((m, n), lambda i, j: te.sum(lambda q: a[i, q] * b[q, j], k), name="c")
    made = Program(verify_nest(lower(autoschedule(simplify(te.program_of([c], [a, b])), SMALL))))
    assert "te_group_bf16<" in made.source.text
    rng, kind = np.random.default_rng(0), dtypes.bfloat16.numpy
    for sizes in ((130, 33, 129), (5, 1, 7), (3, 0, 2), (128, 256, 256)):
        first, second = rng.integers(-2, 3, (sizes[0], sizes[1])), rng.integers(-2, 3, (sizes[1], sizes[2]))
        (got,) = made({"a": first.astype(kind), "b": second.astype(kind)}, dict(zip("mkn", sizes, strict=True))).values()
        np.testing.assert_array_equal(got.astype(np.float64), (first @ second).astype(kind).astype(np.float64))


@needs_compiler
@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("which", [0, 2], ids=["forward", "by weights"])
def test_convolutions_are_products_of_panels(last, which):
    outputs, inputs = convolution(last, 1, channels=64)
    program = simplify(te.program_of([outputs[which]], inputs))
    given = {name: (np.round(a.astype(np.float32) * 2) / 2).astype(a.dtype) for name, a in random_inputs(program, 7).items()}
    made = Program(verify_nest(lower(autoschedule(program, SMALL))))
    want = te.build(outputs[which], inputs)(*(given[i.name] for i in program.inputs))
    assert "te_group_bf16<" in made.source.text and "_panel_tile[" in made.source.text and "te_mma" not in made.source.text
    for order in (0, 1):
        (got,) = made(given, order=order).values()
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


# ------------------------------------------------------------------------------------------------------------- faults


def changed(made, change):
    """A program whose text is another."""
    before, loop = made.source.text.split("for (int k_o = ")
    text = f"{before}for (int k_o = {change(loop)}"
    assert text != made.source.text
    made.source = replace(made.source, text=text)
    return made


SUMS = "*(float (*)[128])&C_sum[0][0][0][0]"
MISSING = {
    "no fence of the proxies": ("te_hand_over();", "", "by a product before thread .* has handed it over"),
    "no barrier": ("__syncthreads();", "", "reads byte .* without a barrier after|which a product under way reads"),
    "no wait for copies": ("te_copies_wait<1>();", "", "has waited for its copy"),
    "sums not handed over": (f"te_group_enter({SUMS});", "", "whose sums are still those of thread"),
    "no batch": ("te_group_commit();", "", "leaves while products of its warpgroup are under way|which a product under way reads"),
    "no wait": ("te_group_wait_before();", "", "which a product under way reads"),
    "no barrier behind the wait": ("te_group_wait_before();\n    __syncthreads();", "te_group_wait_before();", "a product under way reads"),
    "no wait for the last": (f"te_group_wait({SUMS});", "", "leaves while products of its warpgroup are under way"),
    "two descriptors": (
        "/ 128 * 128, 0)",
        "/ 128 * 128, 0) + (int)threadIdx.x % 2 * 32",
        "describe the factors of their product differently",
    ),
    "a warp elsewhere": ("te_group_bf16", "if (threadIdx.x >= 32) te_group_bf16", "that not all threads of its warpgroup reach"),
    "two products": ("te_group_bf16", "if (threadIdx.x < 32) te_group_bf16<false, true>(A);\n else te_group_bf16", "at different products"),
}
"""By name: what stands in the loop over steps, what does in its place, and what the shim says."""


@needs_compiler
@pytest.mark.parametrize("name", MISSING)
def test_what_is_missing_is_found(name):
    fault, by, found = MISSING[name]
    s = planned(matmul(128, 256, 320, "bf16"))
    made = Program(verify_nest(lower(s)), on_cpu=True)
    if name == "two products":  # one on another line
        call = re.search(r"te_group_bf16<false, true>(\(.*\));", made.source.text)
        by = by.replace("(A)", call[1])
    changed(made, lambda loop: loop.replace(fault, by, 1))
    with pytest.raises(InternalError, match=found):
        made(integers(s))


@needs_compiler
@pytest.mark.parametrize(
    ("fault", "by"),
    [
        ("te_group_bf16<false, true>", "te_group_bf16<false, false>"),
        ("te_tile<8192, 1024>", "te_tile<4096, 1024>"),
        ("te_tile<16384, 1024>", "te_tile<16384, 2048>"),
        ("[k_i ^ ", "[k_i + 8 ^ "),
        ("_tile[k_o][k_i / 64]", "_tile[(k_o + 1) % 3][k_i / 64]"),
    ],
    ids=["not turned", "patterns elsewhere", "rows elsewhere", "terms elsewhere", "no such stage"],
)
def test_a_wrong_description_gives_a_wrong_result(fault, by):
    s = planned(matmul(128, 256, 192, "bf16"))
    made, inputs = Program(verify_nest(lower(s)), on_cpu=True), integers(s)
    changed(made, lambda loop: loop.replace(fault, by))
    (want,) = evaluated(s.program, inputs).values()
    try:
        (got,) = made(inputs).values()
    except InternalError as error:
        assert "shared memory" in str(error)
    else:
        assert not np.array_equal(got.astype(np.float64), want.astype(np.float64))


# ------------------------------------------------------------------------------------------------------- what is no group


def test_others_have_none():
    text = matmul(4096, 4096, 4096, "bf16")
    for arch in ("sm_80", "sm_90", "sm_100", "sm_120"):
        made = emit(verify_nest(lower(planned(text, H200.running(arch))))).text
        assert "te_mma_bf16(" in made and "te_group" not in made and "te_hand_over" not in made
    assert H200.running("sm_90a", "sm_90").arch == "sm_90" and not H200.running("sm_90a", "sm_80").warpgroups
    for other in (matmul(4096, 4096, 4096, "f64"), matmul(4096, 4096, 4096)):
        assert "te_group" not in emit(verify_nest(lower(planned(other, HOPPER)))).text


def test_a_schedule_for_warpgroups_runs_without_them():
    """Its warps are those of products of warps, too."""
    s = planned(matmul(4096, 4096, 4096, "bf16"), HOPPER)
    nest = verify_nest(lower(s))
    assert "te_group_bf16<" in emit(nest).text and "warpgroups=True" in print_nest(nest)
    assert parse_nest(print_nest(nest)).warpgroups
    made = emit(replace(nest, warpgroups=False)).text
    assert "te_mma_bf16(" in made and "te_group" not in made


def test_descriptors_are_those_of_the_table():
    for start, lead, stride in ((0, 0, 1024), (49152, 8192, 1024), (232448 - 128, 32768, 2048)):
        made = ptx.described(start, lead, stride)
        want = (start >> 4 & 0x3FFF) | (lead >> 4) << 16 | (stride >> 4) << 32 | 1 << 62  # as `te_tile` has it
        assert made == want


# ------------------------------------------------------------------------------------------------------------ machine code


@needs_nvrtc
@pytest.mark.parametrize(
    ("text", "tile", "instruction"),
    [
        (matmul(4096, 4096, 4096, "bf16"), "", "HGMMA.64x256x16.F32.BF16"),
        (matmul(4096, 4096, 4096, "f16", b="B[j, k]"), "256 i, 128 j", "HGMMA.64x128x16.F32"),
        (matmul(4096, 4096, 4096, "bf16").replace("A[i, k]", "A[k, i]"), "128 i, 64 j", "HGMMA.64x64x16.F32.BF16"),
        (matmul(4100, 4100, 4100, "bf16"), "", "HGMMA.64x256x16.F32.BF16"),
    ],
    ids=["bf16", "f16", "turned", "with ends"],
)
def test_machine_code_multiplies_without_spills_and_without_waiting(text, tile, instruction):
    source = emit(verify_nest(lower(planned(text, HOPPER, tile))))
    made = nvrtc.compile_text(source.text, "sm_90a")
    (found,) = made.resources.values()
    assert not found.spill_stores and not found.spill_loads and not found.stack and found.registers <= 255
    # The assembler says so where it makes products wait for each other (C7510 to C7519).
    assert not re.search(r"\(C75\d\d\)|serialized", made.log), made.log
    assert source.launches[0].shared + found.shared <= HOPPER.shared_bytes
    try:
        code = made.sass()
    except TargetError:
        return
    loop = [line for line in code.splitlines() if re.search(r"HGMMA|WARPGROUP", line)]
    products = [line for line in loop if instruction in line]
    assert len(products) == len([line for line in loop if "HGMMA" in line]) > 0
    # Of the products of a step only the last is one that is waited for, when that of the next step has begun.
    assert sum("gsb0" in line for line in products) == 1
    assert [line.split("gsb0, ")[1][:3] for line in loop if "DEPBAR" in line] == ["0x1", "0x0"]


@needs_nvrtc
def test_code_for_others_is_refused():
    source = emit(verify_nest(lower(planned(matmul(4096, 4096, 4096, "bf16"), HOPPER))))
    with pytest.raises(InternalError, match="wgmma"):
        nvrtc.compile_text(Source(source.text, source.plan).text, "sm_90")
