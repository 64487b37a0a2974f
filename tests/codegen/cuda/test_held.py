"""Rows that a block goes through several times are read once, neighbors at once; and what may not be held is read again."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import dtypes, kernels
from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.block.held import with_rows
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.nest import Alloc, Block, Buffer, If, Stmt
from tensorexpr.codegen.nest.interpret import run_nest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.target import H200
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Const, Expr, Index, Program, apply, const, integer
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tests.codegen.cuda.device import Program as Made
from tests.codegen.cuda.device import compiled_together, needs_compiler
from tests.codegen.llvm.nests import buffer, loop, nest, read, write
from tests.random_programs import random_inputs
from tests.seeds import share_of


def softmax(rows: int, columns: int, dtype: str = "float32") -> Program:
    x, g = te.placeholder((rows, columns), dtype, name="x"), te.placeholder((rows, columns), dtype, name="g")
    y = kernels.softmax(x)
    return simplify(te.program_of([y, *te.gradient(y, [x], g)], [x, g]))


def text_of(s: Planned) -> str:
    return emit(verify_nest(lower(s))).text


NORM = """
x: f32[1, {0}] = input()
m[i]: f32[1] = sum(x[i, j] for j in range({0})) / {0}.0
v[i]: f32[1] = sum((x[i, k] - m[i]) * (x[i, k] - m[i]) for k in range({0})) / {0}.0
y[i, l]: f32[1, {0}] = (x[i, l] - m[i]) * rsqrt(v[i] + 1.0)
return y
"""
SHIFTED = """
x: f32[1, 2049] = input()
m[i]: f32[1] = max(x[i, j] for j in range(2048))
y[i, l]: f32[1, 2048] = x[i, l + 1] - m[i]
return y
"""


@needs_compiler
def test_results_are_those_of_the_interpreter():
    programs = {
        "whole": softmax(2, 1024),
        "part_of_the_lanes": softmax(1, 1000),
        "bf16": softmax(1, 2048, "bfloat16"),
        "norm": parse_program(NORM.format(1536)),
        "shifted": parse_program(SHIFTED),
    }
    made = {name: Made(verify_nest(lower(autoschedule(p, H200))), f"{name}_") for name, p in programs.items()}
    compiled_together(list(made.values()))
    for word, program in programs.items():
        inputs = random_inputs(program, 7)
        want = evaluate_program(program, inputs)
        for order in (0, 5):
            got = made[word](inputs, order=order)
            for name, array in want.items():
                tolerance = 1e-5 if array.dtype == np.float32 else 2e-2
                np.testing.assert_allclose(got[name].astype(np.float64), array.astype(np.float64), rtol=tolerance, atol=tolerance)


def test_every_array_is_gone_through_once():
    text = text_of(autoschedule(softmax(16384, 8192), H200))
    assert text.count("te_load(") == text.count("te_store(") == 2 and text.count("&x[") == text.count("&g[") == 1
    assert "float x_row[8][4];" in text and "float g_row[8][4];" in text


def test_what_is_shifted_or_too_long_is_read_again():
    shifted = text_of(autoschedule(parse_program(SHIFTED), H200))
    assert "x_row" not in shifted and "te_load" not in shifted
    long = text_of(autoschedule(softmax(16384, 1 << 15), H200))
    assert "x_row" not in long and "te_load" in long


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC to compile CUDA kernels")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_rows_are_in_registers(arch):
    made = nvrtc.compile_text(text_of(autoschedule(softmax(16384, 8192), H200)), arch)
    (found,) = made.resources.values()
    assert not found.spill_stores and not found.stack and found.registers <= 128
    lines = [line.strip() for line in made.ptx.splitlines()]
    for word in ("ld.global", "st.global"):
        assert sum(line.startswith(word) for line in lines) == sum(line.startswith(word) and ".v4" in line for line in lines) == 16


L, N = Index("l"), Index("n")
TYPES = (dtypes.float32, dtypes.bfloat16, dtypes.int32, dtypes.float64, dtypes.int8)


def rows_of(draw: random.Random, dtype: dtypes.DType) -> tuple[list[Buffer], list[Buffer], Block]:
    """Inputs, results and statements of a block of threads: loops over the same few rows, some written, some read under conditions."""
    lanes, parts = draw.choice((32, 33, 64)), draw.choice((1, 2, 3))
    end = draw.randint(1, lanes - 1)
    x = buffer("x", dtype, parts * lanes + 1)
    short, wide = buffer("short", dtype, parts, end), buffer("wide", dtype, 2, parts, lanes)
    marks, changed = buffer("marks", dtypes.bool_, parts, lanes), buffer("changed", dtype, parts, lanes)
    top = buffer("top", dtype, lanes, memory="local")
    made, results = list[Stmt](), [changed]
    clear = loop("l", lanes, write(top, [L], Const(2, dtype)), kind="vectorize")

    def value(outer: Expr, lane: Expr, inner: Expr) -> Expr:
        at = apply("add", apply("mul", outer, const(lanes)), lane)
        below, zero = apply("lt", lane, const(end)), Const(0, dtype)
        return draw.choice(
            (
                read(x, at),
                read(x, at),
                read(x, apply("add", at, const(1))),
                read(wide, inner, outer, lane),
                apply("where", below, read(short, outer, lane), zero),
                apply("where", read(marks, outer, lane), read(x, at), zero),
                read(changed, outer, lane),
                read(top, lane),
            )
        )

    def chain() -> Stmt:
        outer, lane = Index(draw.choice("om")), Index(draw.choice("lj"))
        twice = draw.random() < 0.2
        inner: Expr = N if twice else const(draw.choice((0, 1)))
        if draw.random() < 0.4:
            name, where = top, [lane]
        elif draw.random() < 0.2:
            name, where = changed, [outer, lane]
        else:
            name, where = buffer(f"y{len(results)}", dtype, parts, lanes), [outer, lane]
            results.append(name)
        old = read(name, *where) if name is top or name is changed else Const(1, dtype)
        body: Block = (write(name, where, apply("maximum", old, apply("maximum", value(outer, lane, inner), value(outer, lane, inner)))),)
        if draw.random() < 0.4:
            test = draw.choice((read(marks, outer, lane), apply("lt", lane, const(end))))
            guarded = write(
                name, where, apply("where", apply("lt", lane, const(end)), read(short, outer, apply("minimum", lane, const(end - 1))), old)
            )
            body = draw.choice(((*body, If(test, (guarded,))), (*body, If(test, body))))
        nested: Stmt = loop(lane.name, lanes, *body, kind="vectorize")
        nested = loop("n", 2, nested) if twice else nested
        nested = loop(outer.name, parts, nested, kind=draw.choice(("serial", "unroll")))
        return If(apply("lt", const(parts), const(draw.choice((0, 9)))), (nested,)) if draw.random() < 0.15 else nested

    for _ in range(draw.randint(2, 5)):
        made.append(draw.choice(made) if made and draw.random() < 0.1 else chain())
    if draw.random() < 0.4:
        made = [*made[:1], loop("r", 2, *made[1:])]
    # Every result is written once before; an element that is written by data alone keeps that.
    fill = [loop("s", parts, loop("l", lanes, write(y, [Index("s"), L], Const(3, dtype)), kind="vectorize")) for y in results]
    return [x, short, wide, marks], results, (*fill, Alloc(top, (clear, *made)))


def test_what_is_held_is_what_is_read() -> None:
    """Blocks of threads with rows held, beside those as they were, run by the naive interpreter, which no stray read gets past."""
    held = 0
    for seed in share_of(range(120)):
        draw = random.Random(seed)
        dtype = draw.choice(TYPES)
        inputs, results, body = rows_of(draw, dtype)
        buffers = {b.name: b for b in (*inputs, *results)}
        made = with_rows(body, buffers, {*buffers, "top"})
        held += made is not body
        generator = np.random.default_rng(seed)
        shapes = {b.name: tuple(integer(e) for e in b.shape) for b in inputs}
        types = {b.name: b.dtype for b in inputs}
        arrays = {
            n: generator.integers(0, 2 if types[n].is_bool else 99, prod(s)).reshape(s).astype(types[n].numpy) for n, s in shapes.items()
        }
        want = run_nest(nest([*inputs, *results], results, body), arrays)
        got = run_nest(verify_nest(nest([*inputs, *results], results, made)), arrays)
        for name, array in want.items():
            assert got[name].tobytes() == array.tobytes(), (seed, name)
    assert held > 6
