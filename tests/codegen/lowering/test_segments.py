"""Sort plans compiled: the interpreter's results, checks where data decide and none where the plan is the program's own."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.errors import OutOfBoundsError, ScheduleError
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program

HEAD = "sizes(n)\nids: i32[3, n] = input()\nx: f64[n, 4] = input()\n"
PLANS = {
    "flat": "o, r = segments[6](i64(ids[b, t]) for b in range(3) for t in range(n))",
    "batch": "o, r = segments[6](i64(ids[b, t]) for b in batch(3) for t in range(n))",
    "several keys": "o, r = segments[3, n, 6]((2 - b, t, i64(ids[b, t])) for b in range(3) for t in range(n))",
    "where": "o, r = segments[6](i64(ids[b, t]) for b in range(3) for t in range(n) if x[t, b] > 0.0 and ids[b, t] != 2)",
    "batch where": "o, r = segments[7](i64(ids[b, t]) + 1 for b in batch(3) for t in range(n) if t % 2 == b % 2)",
    "reduction": "o, r = segments[4](argmax(x[t, k] for k in range(4)) for t in range(n) if any(x[t, k] > 1.0 for k in range(4)))",
    "one": "o, r = segments[1](0 for t in range(n))",
    "single": "o, r = segments[4]((3) for () in [()])",
}


def arrays(n: int, seed: int = 0, collide: bool = False) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    ids = np.full((3, n), 2) if collide else rng.integers(0, 6, (3, n))
    return {"ids": ids.astype(np.int32), "x": rng.integers(-3, 4, (n, 4)).astype(float)}


def outputs(program, data):
    return te.build(autoschedule(program), None)(*data.values())


@pytest.mark.parametrize("n", [0, 1, 7, 40])
@pytest.mark.parametrize("name", PLANS)
def test_compiled_plans_are_those_of_the_interpreter(name, n):
    program = parse_program(f"{HEAD}{PLANS[name]}\nreturn o, r")
    for data in (arrays(n), arrays(n, collide=True)):
        for found, expected in zip(outputs(program, data), evaluate_program(program, data).values(), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_reads_through_a_plan_of_the_program_need_no_check():
    program = parse_program(
        HEAD + "o, r = segments[6](i64(ids[b, t]) for b in range(3) for t in range(n))\n"
        "y[v, d]: f64[6, 4] = sum(x[r[k] % n, d] * f64(r[k] // n) for k in range(o[v], o[v + 1]))\nreturn y"
    )
    compiled = te.build(autoschedule(program), None)
    assert [site.access for site in compiled.nest.checks] == ["o[i64(ids[b, t])]"]
    data = arrays(9)
    np.testing.assert_array_equal(compiled(*data.values())[0], evaluate_program(program, data)["y"])
    data["ids"][1, 3] = 6
    with pytest.raises(OutOfBoundsError) as caught:
        compiled(*data.values())
    assert str(caught.value).splitlines()[0] == "o: expected an index of o from 0 to 5, got 6"


def test_a_plan_that_is_handed_in_is_checked():
    program = parse_program(
        "o: i64[4] = input()\nr: i64[5] = input()\nx: f64[5] = input()\n"
        "y[v]: f64[3] = sum(x[r[k]] for k in range(o[v], o[v + 1]))\nreturn y"
    )
    compiled = te.build(autoschedule(program), None)
    assert [site.access for site in compiled.nest.checks] == ["r[k]", "x[r[k]]"]
    with pytest.raises(OutOfBoundsError):
        compiled(np.array([0, 2, 2, 6]), np.arange(5), np.ones(5))


def test_a_plan_inside_a_scan_is_made_in_each_step():
    program = parse_program(
        "ids: i64[5, 6] = input()\ns0: f64[4] = input()\nw: f64[5, 6] = input()\n"
        "for t in range(5):\n"
        "    s: f64[4] = state(s0)\n"
        "    o, r = segments[4](ids[t, i] for i in range(6) if s[ids[t, i]] >= 0.0)\n"
        "    g[v]: f64[4] = s[v] + sum(w[t, r[k]] for k in range(o[v], o[v + 1]))\n"
        "    S[t] = s = g\n"
        "return S"
    )
    rng = np.random.default_rng(1)
    data = {"ids": rng.integers(0, 4, (5, 6)), "s0": np.zeros(4), "w": rng.integers(-3, 4, (5, 6)).astype(float)}
    np.testing.assert_array_equal(outputs(program, data)[0], evaluate_program(program, data)["S"])


def test_what_a_schedule_may_do_with_a_plan():
    program = parse_program(HEAD + PLANS["batch"] + "\ny[i]: i64[n] = r[0, i]\nreturn o, r, y")
    s = schedule(program)
    s["o"].parallel("b")
    s["o"].split("t", 4)
    data = arrays(11)
    for found, expected in zip(te.build(s, None)(*data.values()), evaluate_program(program, data).values(), strict=True):
        np.testing.assert_array_equal(found, expected)
    flat = schedule(parse_program(HEAD + PLANS["flat"] + "\ny[i]: i64[n] = r[i]\nreturn o, r, y"))
    with pytest.raises(
        ScheduleError, match="expected iterations that touch different elements to run in parallel, got b: two may touch one"
    ):
        flat["o"].parallel("b")
    with pytest.raises(ScheduleError, match="expected a plain definition to compute inside another, got a segments"):
        flat["o"].compute_at("y", "i")
