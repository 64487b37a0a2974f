"""`lowering="atomics"` on a GPU: a thread per point, each update in one piece, the sum of the interpreter whatever collides."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.codegen.target import H200, Target
from tensorexpr.errors import ScheduleError
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tests.codegen.cuda.device import Program, compiled_together, needs_compiler

COMBINES = ("sum", "prod", "max", "min")
DTYPES = ("f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
TEXT = """
ids: i64[300] = input()
v: {0}[300] = input()
S: {0}[7] = scatter({{ids[t]: v[t] for t in range(300)}}, combine="{1}", lowering="atomics")
return S
"""


def made(dtype: str, combine: str) -> Program:
    return Program(verify_nest(lower(autoschedule(parse_program(TEXT.format(dtype, combine)), H200))), f"{dtype}_{combine}_")


@pytest.fixture(scope="module")
def updates() -> dict[tuple[str, str], Program]:
    found = {(dtype, combine): made(dtype, combine) for dtype in DTYPES for combine in COMBINES}
    return found


@needs_compiler
def test_every_dtype_by_every_combiner(updates):
    compiled_together(list(updates.values()))
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 6, 300)  # the last element is nobody's
    for number, ((dtype, combine), run) in enumerate(updates.items()):
        program = parse_program(TEXT.format(dtype, combine))
        type_ = program.inputs[1].type.dtype
        # Sums and products that are exact in any order; extremes of anything, a NaN among them.
        values = {"sum": rng.integers(0, 3, 300), "prod": rng.choice([1, -1] if type_.is_signed or type_.is_float else [1, 3], 300)}
        data = values.get(combine, rng.integers(0, 100, 300)).astype(type_.numpy)
        if type_.is_float and combine in ("max", "min"):
            data[5] = np.nan
        want = evaluate_program(program, {"ids": ids, "v": data})["S"]
        got = run({"ids": ids, "v": data}, order=number % 5)["S"]
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64), err_msg=f"{dtype} {combine}")


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
def test_updates_are_instructions_of_the_machine(updates):
    compiled = nvrtc.compile_text("\n".join(p.source.text for p in updates.values()), "sm_80")
    assert not any(r.spill_stores or r.stack for r in compiled.resources.values())
    bodies = {
        text.split("(", 1)[0].split("_k")[0].strip(): text for text in compiled.ptx.split(".visible .entry")[1:] if "_k1_S" in text[:30]
    }
    for dtype, words in {"f32": "add.f32", "f64": "add.f64", "i32": "add.u32", "i64": "add.u64"}.items():
        assert any(f"{word}.global.{words}" in bodies[f"{dtype}_sum"] for word in ("red", "atom")), bodies[f"{dtype}_sum"]
    assert "max.s64" in bodies["i64_max"] and "atom.global.cas.b32" in bodies["f32_max"] and "atom.global.cas.b64" in bodies["f64_prod"]


def test_all_points_are_threads():
    w, ids, g = te.placeholder((1000, 64), name="w"), te.placeholder((500,), "int64", name="ids"), te.placeholder((500, 64), name="g")
    rows = te.compute((500, 64), lambda t, d: w[ids[t], d], name="rows")
    program = simplify(te.program_of(list(te.gradient(rows, [w], g, lowering="atomics")), [ids, g]))
    s = autoschedule(program, H200)
    run = Program(verify_nest(lower(s)))
    assert [int(launch.iterations[0].value) for launch in run.source.launches] == [64000, 32000]
    assert "te_atomic_add<float>(&w_bar[" in run.source.text and "w_bar: parameter(f32[1000, 64], written, atomic)" in str(run.nest)


def test_in_order_none_of_it_may_run_side_by_side():
    text = TEXT.format("f32", "sum")
    for program, target in ((parse_program(text.replace("atomics", "segments")), H200), (parse_program(text), Target("test"))):
        s = schedule(program, target)
        with pytest.raises(ScheduleError, match="expected iterations that touch different elements to run in parallel, got t"):
            s["S"].parallel("t")
