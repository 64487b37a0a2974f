"""Data-dependent indices that are refused in the lanes of a block: the call is an IndexError, wherever threads wait for each other."""

from __future__ import annotations

import numpy as np
import pytest

from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.codegen.target import H200
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tests.codegen.cuda.device import Program, compiled_together, needs_compiler
from tests.random_programs import random_inputs

pytestmark = needs_compiler
HEAD = "ids: i32[3, 300] = input()\nA: f32[51] = input()\n"
TEXTS = {
    # In the lanes of a reduction, before shuffles and a barrier.
    "sum": "y[i]: f32[3] = sum(A[i64(ids[i, j])] for j in range(300))\nreturn y\n",
    # Under a condition, and before a loop of the lane's own.
    "guarded": "y[i]: f32[3] = max(where(j != 7, A[i64(ids[i, j])], 0.0) for j in range(300))\nreturn y\n",
    "inner": "y[i]: f32[3] = sum(sum(A[i64(ids[i, j]) + k] for k in range(2)) for j in range(300))\nreturn y\n",
    # In rows that other threads read afterwards.
    "rows": "e[i, j]: f32[3, 300] = A[i64(ids[i, j])]\ny[i, j]: f32[3, 300] = e[i, 299 - j] / sum(e[i, k] for k in range(300))\nreturn y\n",
}


def in_block(name: str, text: str) -> Program:
    program = parse_program(HEAD + text)
    if name != "rows":
        s = autoschedule(program, H200)
    else:
        s = schedule(program, H200)
        s["e"].compute_at("y", "i")
        for stage, axis in (("e", "j"), ("y", "k"), ("y", "j")):
            s[stage].vectorize(s[stage].split(axis, 64, "guard")[-1])
        s["y"].parallel("i")
    return Program(verify_nest(lower(s)), f"{name}_")


def test_a_refused_index_in_the_lanes_of_a_block():
    made = {name: in_block(name, text) for name, text in TEXTS.items()}
    compiled_together(list(made.values()))
    rng = np.random.default_rng(0)
    good, values = rng.integers(0, 50, (3, 300)).astype(np.int32), rng.integers(-3, 4, 51).astype(np.float32)
    for name, run in made.items():
        assert "_sync" in run.source.text or "te_shuffle" in run.source.text, name
        program = parse_program(HEAD + TEXTS[name])
        (want,) = evaluate_program(program, {"ids": good, "A": values}).values()
        for order in (0, 1, 5):
            (got,) = run({"ids": good, "A": values}, order=order).values()
            np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=name)
        for row, place, wrong in ((0, 0, 51), (1, 255, -1), (2, 299, 1 << 30)):
            bad = good.copy()
            bad[row, place] = wrong
            with pytest.raises(IndexError) as caught:
                run({"ids": bad, "A": values}, order=row)
            assert caught.value.args[0][2] == 51
    # What a condition leaves out is not asked for.
    bad = good.copy()
    bad[:, 7] = 99
    made["guarded"]({"ids": bad, "A": values})


BEHIND = {
    # Counts that end where the check failed say where what nothing has written is read.
    "sorted": """
ids: i32[40] = input()
g: f32[40, 6] = input()
offsets, order = segments[20](i64(ids[i]) for i in range(40))
y[p, d]: f32[20, 6] = sum(g[order[k], d] for k in range(offsets[p], offsets[p + 1]))
return y
""",
    # Rows whose ends are data that a kernel before has read under a check, with a check of their own in the lanes of a block.
    "rows": """
ids: i32[40] = input()
g: f32[600] = input()
t: i32[20] = input()
ends[i]: i64[40] = i64(t[i64(ids[i])]) % 300
z[i, j]: f32[40, 8] = f32(ends[i] + j)
y[i]: f32[40] = sum(g[k + i64(ids[39 - i])] for k in range(ends[i])) + z[i, 3]
return z, y
""",
}


def test_what_depends_on_a_kernel_whose_check_failed_does_not_run():
    """On a GPU the launches behind are under way: what a refused one has not written may be anything."""
    made = {}
    for name, text in BEHIND.items():
        s = autoschedule(parse_program(text), H200)
        made[name] = Program(verify_nest(lower(s)), "".join(w[0] for w in name.split()) + "_", on_cpu=True)
        assert "if (error->check) return;" in made[name].source.text or "__syncthreads_or(error->check" in made[name].source.text, made[
            name
        ].source.text
    compiled_together(list(made.values()))
    for name, run in made.items():
        program = parse_program(BEHIND[name])
        for seed, wrong in enumerate((-5, 400, 1 << 30)):
            inputs = random_inputs(program, seed)
            inputs["ids"] = ids = np.random.default_rng(seed).integers(0, 20, inputs["ids"].shape).astype(np.int32)
            want = evaluate_program(program, inputs)
            got = run(inputs)
            for result, expected in want.items():
                np.testing.assert_allclose(got[result], expected, rtol=1e-4, atol=1e-4, err_msg=name)
            ids[(0, len(ids) // 2, len(ids) - 1)[seed]] = wrong
            for order in (0, 1, 5):
                with pytest.raises(IndexError) as caught:
                    run(inputs, order=order)
                assert caught.value.args[0][1] == wrong


def test_what_a_refused_sort_has_not_counted_is_not_summed():
    """A sum of integers that nothing wrote may overflow, of which C says nothing."""
    program = parse_program("""
sizes(a, c)
X: f32[c, a] = input()
K: i32[a] = input()
T: f32[c - 1] = scatter({i64(K[j]): X[i, j] for i in range(c) for j in range(a)})
return T
""")
    run = Program(verify_nest(lower(autoschedule(program, H200))), "k_")
    for rows, columns in ((1, 1), (2, 70)):
        arrays = {"X": np.ones((rows, columns), np.float32), "K": np.full(columns, rows - 1, np.int32)}
        with pytest.raises(IndexError):
            run(arrays, {"a": columns, "c": rows})
