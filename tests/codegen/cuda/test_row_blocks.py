"""Rows and sums over rows in one pass, by the search on a GPU: right on the shim without races, and in as few launches as said."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.auto.search import blocks, faster_on_gpu, joining
from tensorexpr.codegen.auto.search.blocks import one_pass
from tensorexpr.codegen.auto.search.memory import lowered
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.nest import For
from tensorexpr.codegen.nest.interpret import run_nest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.rewrites.paths import walk_kernel
from tensorexpr.codegen.target import H200
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Program, integer
from tensorexpr.parse import parse_program
from tensorexpr.records import replace
from tensorexpr.simplify import simplify
from tests.codegen.cuda.device import Program as Made
from tests.codegen.cuda.device import compiled_together, needs_compiler
from tests.random_programs import random_inputs
from tests.seeds import share_of

SMALL = replace(H200, cores=2)
"""Four blocks of rows."""


def layer_norm(rows: int, columns: int, dtype: str = "float32") -> Program:
    x, g = (te.placeholder((rows, columns), dtype, name=name) for name in "xg")
    w, b = (te.placeholder((columns,), dtype, name=name) for name in "wb")
    y = kernels.layer_norm(x, w, b)
    return simplify(te.program_of([y, *te.gradient(y, [x, w, b], g)], [x, w, b, g]))


def rms_norm(rows: int, columns: int, dtype: str = "float32") -> Program:
    x, g = (te.placeholder((rows, columns), dtype, name=name) for name in "xg")
    w = te.placeholder((columns,), dtype, name="w")
    y = kernels.rms_norm(x, w)
    return simplify(te.program_of(te.gradient(y, [x, w], g), [x, w, g]))


SUMS = """
x: {dtype}[70, 260] = input()
top[i]: {dtype}[70] = max(x[i, j] for j in range(260))
scaled[i, j]: {dtype}[70, 260] = exp(x[i, j] - top[i])
each[j]: {dtype}[260] = sum(scaled[i, j] for i in range(70))
best[j]: {dtype}[260] = max(x[i, j] * top[i] for i in range(70))
whole[()]: {dtype}[()] = sum(scaled[i, j] * x[i, j] for i in range(70) for j in range(260))
return scaled, each, best, whole
"""
"""Columns by a sum and by a maximum, and a sum of all, beside what is computed of rows."""

PROGRAMS = {
    "whole": lambda dtype: layer_norm(32, 512, dtype),
    "rows are left": lambda dtype: layer_norm(33, 512, dtype),
    "lanes are left": lambda dtype: layer_norm(36, 1032, dtype),
    "one by one": lambda dtype: layer_norm(41, 515, dtype),
    "rms": lambda dtype: rms_norm(65, 300, dtype),
    "sums": lambda dtype: simplify(parse_program(SUMS.format(dtype={"float32": "f32", "float64": "f64"}[dtype]))),
}


@needs_compiler
def test_results_are_those_of_the_interpreter() -> None:
    programs = {name: make("float32") for name, make in PROGRAMS.items()} | {"bf16": layer_norm(32, 1024, "bfloat16")}
    made = {}
    for number, (name, program) in enumerate(programs.items()):
        found = one_pass(program, SMALL)
        assert found is not None, name
        assert prove(verify_nest(found.nest), launched=True).refuted == (), name
        made[name] = Made(found.nest, f"p{number}_")
    compiled_together(list(made.values()))
    for name, program in programs.items():
        inputs = random_inputs(program, 3)
        wide = layer_norm(32, 1024, "float64") if name == "bf16" else PROGRAMS[name]("float64")
        want = evaluate_program(wide, {key: np.asarray(array, np.float64) for key, array in inputs.items()})
        for order in (0, 5):
            got = made[name](inputs, order=order)
            for output, array in want.items():
                bound = (2e-2 if name == "bf16" else 5e-6) * max(1.0, float(np.abs(array).max()))
                np.testing.assert_allclose(got[output].astype(np.float64), array, rtol=0, atol=bound, err_msg=f"{name}: {output}")


def random_rows(seed: int) -> Program:
    """Definitions of rows, of their elements and of sums over them, in any order, each of some before it."""
    draw = random.Random(seed)
    n, m = draw.randint(2, 9), draw.randint(2, 11)
    rows, elements, lines = ["r"], ["x", "y"], [f"x: f64[{n}, {m}] = input()", f"y: f64[{n}, {m}] = input()", f"r: f64[{n}] = input()"]
    lines += [f"w: f64[{m}] = input()"]
    made = []

    def term() -> str:
        a, b = (draw.choice((f"{draw.choice(elements)}[i, j]", f"{draw.choice(rows)}[i]", "w[j]")) for _ in range(2))
        return draw.choice((f"{a} * {b}", f"({a} + {b})", f"maximum({a}, {b})", f"where(j < {draw.randint(1, m)}, {a}, {b})"))

    for number in range(draw.randint(2, 6)):
        name, word = f"t{number}", draw.choice(("sum", "sum", "max"))
        match draw.choice(("row", "row", "element", "column", "column", "whole")):
            case "row":
                lines.append(f"{name}[i]: f64[{n}] = {word}({term()} for j in range({m}))")
                rows.append(name)
            case "element":
                lines.append(f"{name}[i, j]: f64[{n}, {m}] = {term()}")
                elements.append(name)
            case "column":
                lines.append(f"{name}[j]: f64[{m}] = {word}({term()} for i in range({n}))")
            case "whole":
                lines.append(f"{name}[()]: f64[()] = {word}({term()} for i in range({n}) for j in range({m}))")
        made.append(name)
    kept = [name for name in made if draw.random() < 0.7] or made[-1:]
    return simplify(parse_program("\n".join([*lines, f"return {', '.join(kept)}", ""])))


def test_random_rows_and_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """At small sizes, where blocks and lanes leave rests of any length; naively run, which no stray access gets past."""
    for room, name, least in ((joining, "LEAST_POINTS", 1), (joining, "LEAST_APART", 2), (joining, "FEWER", 1), (blocks, "LEAST_ROWS", 1)):
        monkeypatch.setattr(room, name, least)
    monkeypatch.setattr(blocks, "LEAST_LANES", 1)
    found = 0
    for seed in share_of(range(150)):
        monkeypatch.setattr(blocks, "MOST_LANES", random.Random(seed).choice((2, 4, 8)))
        program = random_rows(seed)
        made = one_pass(program, replace(H200, cores=1 + seed % 2))
        if made is None:
            continue
        found += 1
        assert prove(verify_nest(made.nest), launched=True).refuted == (), seed
        inputs = random_inputs(program, seed)
        want, got = evaluate_program(program, inputs), run_nest(made.nest, inputs)
        for name, array in want.items():
            np.testing.assert_allclose(got[name], array, rtol=1e-9, atol=1e-9 * max(1.0, float(np.abs(array).max())), err_msg=str(seed))
    assert found > len(share_of(range(150))) // 6


def test_a_norm_with_its_gradients_is_one_pass_on_a_large_gpu() -> None:
    program = layer_norm(16384, 8192)
    found = faster_on_gpu(program, lowered(autoschedule(program, H200)), H200)
    assert found is not None
    assert len(found.nest.kernels) == 3  # the others add up what the blocks give
    (blocks,) = [s for _, s in walk_kernel(found.nest, 0) if isinstance(s, For) and s.kind == "parallel"]
    assert integer(blocks.stop) == 256
    text = emit(verify_nest(found.nest)).text
    assert text.count("&x[") == text.count("&g[") == 1, "a row is read once"


def test_rows_of_any_length_are_read_once_and_their_sums_are_shuffled() -> None:
    found = one_pass(layer_norm(16384, 777), H200)
    assert found is not None
    first, *others = emit(verify_nest(found.nest)).text.split('extern "C"')[1:]
    assert "te_shuffle_down" in first and first.count("__syncthreads();") <= 8, "combined by halves in shared memory"
    for name in "xg":  # three whole parts and what is left: each is held when it is read first, for all later sums
        loads = [line for line in first.splitlines() if f" {name}[" in line]
        assert sum(f"{name}_row" in line.split("=")[0] for line in loads) == 2, loads
    assert all("#pragma unroll" in other and "i < 777" not in other for other in others), "loads of parts wait for each other"


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
@pytest.mark.parametrize("columns", [777, 8192])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_sums_of_a_block_are_in_registers(arch: str, columns: int) -> None:
    found = one_pass(layer_norm(16384, columns), H200)
    assert found is not None
    made = nvrtc.compile_text(emit(verify_nest(found.nest)).text, arch)
    assert all(not r.spill_stores and not r.stack and r.shared < 8192 for r in made.resources.values())


@pytest.mark.parametrize(
    "program",
    [
        lambda: layer_norm(16384, 24),  # rows that a warp takes
        lambda: layer_norm(64, 8192),  # fewer rows than multiprocessors
        lambda: layer_norm(4096, 1 << 16),  # sums that registers do not hold
        lambda: simplify(parse_program("x: f32[512, 512] = input()\ny[i, j]: f32[512, 512] = x[j, i] * 2.0\nreturn y\n")),
    ],
)
def test_what_is_no_such_pass_is_left_to_the_planners(program) -> None:
    assert one_pass(program(), H200) is None
