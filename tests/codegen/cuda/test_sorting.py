"""Sort plans by many threads of a GPU: the plan of the interpreter, whatever collides and by however many digits, without a race."""

from __future__ import annotations

import numpy as np
import pytest

from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.lowering.scatters import digits, sorting
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.planners.gpu import scatters as auto_gpu_scatters
from tensorexpr.codegen.target import H200
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import const
from tensorexpr.parse import parse_program
from tests.codegen.cuda.device import Program, compiled_together, needs_compiler
from tests.codegen.lowering.test_sorting import FLAT, KEYS, PAIRS, SOME, SUMS


@pytest.fixture
def eager(monkeypatch):
    """Few points count as many, digits have few values, and a thread has few points, more than once."""
    monkeypatch.setattr(digits, "MANY_POINTS", 8)
    monkeypatch.setattr(digits, "MOST_BITS", 3)
    monkeypatch.setattr(digits, "OWN", 2)
    monkeypatch.setattr(digits, "COUNTERS", 1 << 8)
    monkeypatch.setattr(digits, "MOST_CHUNKS", 3)
    monkeypatch.setattr(digits, "SCANNERS", 1 << 4)


@needs_compiler
@pytest.mark.parametrize("text", [FLAT, SOME, PAIRS, SUMS], ids=["flat", "some", "pairs", "sums"])
def test_the_plan_is_that_of_the_interpreter(text, eager):
    parts = []
    for extent in (1, 5, 9, 200, 1000):
        program = parse_program(text.format(extent))
        parts.append((extent, program, Program(verify_nest(lower(autoschedule(program, H200))), f"e{extent}_")))
    compiled_together([made for _, _, made in parts])
    for extent, program, made in parts:
        for number, keys in enumerate(KEYS.values()):
            ids = keys(extent).astype(np.int32)
            if text is SOME:
                ids[::3] = -1
            want = evaluate_program(program, {"ids": ids})
            got = made({"ids": ids}, order=number)
            for name, parameter in zip(program.outputs, made.nest.writes, strict=True):
                np.testing.assert_array_equal(got[parameter], want[name], err_msg=f"{extent} {name}")


@needs_compiler
def test_several_blocks_sort():
    """Three chunks of a thousand points, the last one cut off, digits of six bits: as points and keys are many, and of open sizes."""
    texts = {"some": SOME.replace("200", "2100").format(5000), "open": OPEN}
    programs = {name: parse_program(text) for name, text in texts.items()}
    made = {name: Program(verify_nest(lower(autoschedule(p, H200))), f"{name}_") for name, p in programs.items()}
    compiled_together(list(made.values()))
    for order, (name, run) in enumerate(made.items()):
        ids = np.random.default_rng(order).integers(-900 if name == "some" else 0, 5000, 2100).astype(np.int32)
        sizes = {} if name == "some" else {"n": 2100, "m": 5000}
        arrays = {"ids": ids} if name == "some" else {"ids": ids, "x": np.zeros(5000, np.float32)}
        want, got = evaluate_program(programs[name], arrays, sizes), run(arrays, sizes, order=order)
        for output, parameter in zip(programs[name].outputs, run.nest.writes, strict=True):
            np.testing.assert_array_equal(got[parameter], want[output])


@needs_compiler
@pytest.mark.parametrize("extent", [5, 1000])
def test_a_key_out_of_range_is_an_error_and_nothing_else_is_touched(extent, eager):
    program = parse_program(FLAT.format(extent))
    made = Program(verify_nest(lower(autoschedule(program, H200))))
    for wrong in (-1, extent, 1 << 30):
        ids = np.zeros(200, np.int32)
        ids[77] = wrong
        with pytest.raises(IndexError) as caught:
            made({"ids": ids})
        assert caught.value.args[0][1:] == (wrong, extent)


def test_many_points_are_sorted_by_many_threads():
    text = FLAT.replace("200", "100000").format(50000)
    source = emit(verify_nest(lower(autoschedule(parse_program(text), H200))))
    # Three digits of six bits: a block for each chunk but in the middle, where one goes through the counts of all.
    sorts = [(launch.iterations[0].value, launch.threads[0]) for launch in source.launches if not launch.cut]
    assert sorts == [(98, 64), (1, 1024), (98, 64)] * 3 and sizes(100000, 50000) == (const(3), 6, const(98), const(1))
    assert "te_floordiv" not in source.text and "uint64_t" not in source.text


def sizes(points: int, extent: int):
    nothing = lambda at: ("", at)  # noqa: E731
    return digits.digits_of(sorting.Sorting((), nothing, nothing, nothing, const(extent), const(points), False))


def test_few_points_are_sorted_by_one():
    assert sizes(100, 50) is None and sizes(1 << 20, 1000) == (const(2), 5, const(512), const(1))
    assert sizes(1 << 26, 1000) == (const(2), 5, const(1024), const(32))


BATCH = """
ids: i32[3, 200] = input()
offsets, order = segments[{0}](i64(ids[b, t]) for b in batch(3) for t in range(200) if ids[b, t] % 5 > 0)
return offsets, order
"""
OPEN = """
sizes(n, m)
x: f32[m] = input()
ids: i32[n] = input()
offsets, order = segments[m](i64(ids[t]) for t in range(n))
return offsets, order
"""
OPEN_BATCH = """
sizes(n, b, m)
x: f32[m] = input()
ids: i32[b, n] = input()
offsets, order = segments[m](i64(ids[r, t]) for r in batch(b) for t in range(n) if ids[r, t] >= 3)
return offsets, order
"""


@needs_compiler
def test_batches_and_open_sizes(eager):
    texts = {"batch": BATCH.format(50), "open": OPEN, "open_batch": OPEN_BATCH}
    programs = {name: parse_program(text) for name, text in texts.items()}
    made = {name: Program(verify_nest(lower(autoschedule(p, H200))), f"{name}_") for name, p in programs.items()}
    compiled_together(list(made.values()))
    rng = np.random.default_rng(3)
    for name, run in made.items():
        assert all(launch.cut or launch.threads[0] >= 16 for launch in run.source.launches), name
        for n, b, m in ((1, 1, 1), (40, 2, 5), (200, 3, 50), (0, 2, 4), (150, 3, 5000)):
            given = {"n": n, "b": b, "m": m} if name != "batch" else {}
            shape = {"batch": (3, 200), "open": (n,), "open_batch": (b, n)}[name]
            arrays = {"ids": rng.integers(0, 50 if name == "batch" else m, shape).astype(np.int32), "x": np.zeros(m, np.float32)}
            arrays = {i.name: arrays[i.name] for i in programs[name].inputs}
            of_program = {k: v for k, v in given.items() if k in programs[name].sizes}
            want = evaluate_program(programs[name], arrays, of_program)
            got = run(arrays, of_program, order=n % 3)
            for output, parameter in zip(programs[name].outputs, run.nest.writes, strict=True):
                np.testing.assert_array_equal(got[parameter], want[output], err_msg=f"{name} {n} {b} {m} {output}")


MATRIX = """
p: i64[41] = input()
cols: i64[700] = input()
v: f32[700] = input()
y: f32[40] = input()
ids: i32[600] = input()
v_bar: f32[700] = scatter({p[i] + k: y[i] * v[p[i] + k] for i in range(40) for k in range(p[i + 1] - p[i])})
x_bar: f32[50] = scatter({cols[p[i] + k]: y[i] * v[p[i] + k] for i in range(40) for k in range(p[i + 1] - p[i])})
S: f16[9, 2] = scatter({(ids[t], d): f16(v[t]) for t in range(600) for d in range(2) if i64(ids[t]) != d})
return v_bar, x_bar, S
"""


@needs_compiler
def test_scatters_in_order_by_many_threads():
    """Rows of a compressed matrix, apart and overlapping, and a table with few rows: no thread has all of the work, and no two race."""
    program = parse_program(MATRIX)
    run = Program(verify_nest(lower(autoschedule(program, H200))))
    assert all(launch.cut or launch.threads != (1, 1, 1) for launch in run.source.launches)
    rng = np.random.default_rng(5)
    for order, cuts in enumerate((np.sort(rng.integers(0, 700, 41)), rng.integers(0, 700, 41))):
        arrays = {"p": cuts, "cols": rng.integers(0, 50, 700), "ids": rng.integers(0, 9, 600).astype(np.int32)}
        arrays |= {"v": rng.integers(-2, 3, 700).astype(np.float32), "y": rng.integers(-2, 3, 40).astype(np.float32)}
        want, got = evaluate_program(program, arrays), run(arrays, order=order)
        for name, parameter in zip(program.outputs, run.nest.writes, strict=True):
            np.testing.assert_array_equal(got[parameter], want[name], err_msg=name)


GRADIENT = """
ids: i32[700] = input()
g: f32[700, 3] = input()
S: f32[9, 3] = scatter({{(ids[t], d): g[t, d] for t in range(700) for d in range(3){0}}})
return S
"""


@needs_compiler
def test_long_segments_are_many_threads_work(monkeypatch):
    """All points at one place, a few places, none: the interpreter's sums (of integers, in any order the same), and of floats the
    same bits for any order of threads; no thread adds up more than the parts of a segment and what is beside them."""
    monkeypatch.setattr(auto_gpu_scatters, "PARTS", ((4, (8, 4)),))
    texts = {"all": GRADIENT.format(""), "some": GRADIENT.format(" if ids[t] >= 0")}
    programs = {name: parse_program(text) for name, text in texts.items()}
    made = {name: Program(verify_nest(lower(autoschedule(p, H200))), f"{name}_") for name, p in programs.items()}
    compiled_together(list(made.values()))
    rng = np.random.default_rng(5)
    cases = (np.full(700, 8), np.sort(rng.integers(0, 9, 700)), rng.integers(0, 9, 700), np.repeat([3, -1, 5, -2], 175), np.full(700, -1))
    for name, run in made.items():
        assert sum("parts" in launch.kernel for launch in run.source.launches) == 2
        for order, ids in enumerate(cases[: 3 if name == "all" else 5]):
            whole = {"ids": ids.astype(np.int32), "g": rng.integers(-4, 5, (700, 3)).astype(np.float32)}
            (want,) = evaluate_program(programs[name], whole).values()
            (got,) = run(whole, order=order).values()
            np.testing.assert_array_equal(got, want)
            floats = {**whole, "g": rng.standard_normal((700, 3)).astype(np.float32)}
            assert len({next(iter(run(floats, order=k).values())).tobytes() for k in (0, 1, 5)}) == 1


def test_what_a_plan_holds_has_an_interval():
    """Places and points of a plan are computed in an int; those of a plan that is handed in may be anything, and wrap."""
    own = emit(verify_nest(lower(autoschedule(parse_program(GRADIENT.replace("700", "5000").format("")), H200)))).text
    total = own.rsplit("__global__", 1)[1]
    bodies = own.replace("k_1_o < te_maximum(te_floordiv(", "", 1)  # how often a loop runs may be below zero: divided once for a loop
    assert "uint64_t" not in own and "te_floordiv" not in bodies and "for (int p = ((int)S_offsets[i0_i1 / 3] + 63) / 64;" in total
    assert "g[(int)S_order[k_2] * 3 + i0_i1 % 3]" in total
    given = "o: i64[10] = input()\nx: f32[99] = input()\ny[v]: f32[9] = sum(x[k % 99] for k in range(o[v] + 7, o[v + 1] + 7))\nreturn y"
    assert "(int64_t)((uint64_t)o[" in emit(verify_nest(lower(autoschedule(parse_program(given), H200)))).text
