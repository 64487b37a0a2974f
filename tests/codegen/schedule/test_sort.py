"""The primitive `sort`: a scatter as a plan and a gather gives the same, whatever collides, also along rows whose length is data."""

from __future__ import annotations

import random
from contextlib import suppress

import numpy as np
import pytest

from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import schedule
from tensorexpr.codegen.target import H200
from tensorexpr.errors import OutOfBoundsError, ScheduleError
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Define, Scatter, Segments
from tensorexpr.parse import parse_program
from tests.codegen.programs import WIDE, assert_means, outputs
from tests.codegen.schedule.test_laws import assert_same_meaning
from tests.codegen.schedule.test_own import POINTERS
from tests.random_programs import random_program
from tests.random_programs.schedules import shuffled
from tests.seeds import share_of

MATRIX = """
p: i64[8] = input()
cols: i64[30] = input()
v: f64[30] = input()
y: f64[7, 3] = input()
S: {0}[6, 3] = scatter(
    {{(cols[p[i] + k], d): {0}(v[p[i] + k] * y[i, d]) for i in range(7) for k in range(p[i + 1] - p[i]) for d in range(3) if i != 2}},
    combine="{1}",
)
return S
"""
BY_COLUMNS = """
ids: i64[4, 40] = input()
v: f32[4, 40] = input()
S: f32[4, 2, 5] = scatter(
    {(ids[a, t] % 4, d, ids[a, t] % 5): v[a, t] + f32(d) for a in range(1, 4) for d in range(2) for t in range(40) if d + a < 4}
)
return S
"""


def given(name: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    v, y = (rng.integers(-4, 5, shape).astype(np.float64) for shape in (30, (7, 3)))
    return {"p": np.array(POINTERS[name]), "cols": rng.integers(0, 6, 30), "v": v, "y": y}


@pytest.mark.parametrize("name", list(POINTERS))
@pytest.mark.parametrize(("dtype", "combine"), [("f64", "sum"), ("f16", "sum"), ("f32", "max")])
def test_rows_by_data_go_by_their_places(name, dtype, combine):
    s = schedule(parse_program(MATRIX.format(dtype, combine)), WIDE)
    assert s["S"].sort() == ("S_places", "S_met", "S_offsets")
    arrays = given(name)
    met = [k for i in range(7) if i != 2 for k in range(*POINTERS[name][i : i + 2])]
    arrays["cols"][[k for k in range(30) if k not in met]] = 77  # what no row has is nobody's error
    want = evaluate_program(s.program, arrays, {})["S"]
    np.testing.assert_array_equal(outputs(lower(s), s.program, arrays, {})["S"], want)
    if met:
        arrays["cols"][met[0]] = 6
        with pytest.raises(OutOfBoundsError, match="6"):
            outputs(lower(s), s.program, arrays, {})


def test_axes_by_themselves_stay_and_points_without_one_are_left_out():
    s = schedule(parse_program(BY_COLUMNS), WIDE)
    assert s["S"].sort() == ("S_offsets",) and s["S"].loops == ("i0", "i1", "i2", "k")
    rng = np.random.default_rng(0)
    arrays = {"ids": rng.integers(0, 99, (4, 40)), "v": rng.integers(0, 9, (4, 40)).astype(np.float32)}
    want = evaluate_program(s.program, arrays, {})["S"]
    np.testing.assert_array_equal(outputs(lower(s), s.program, arrays, {})["S"], want)
    again = schedule(s.program, WIDE)
    exec(s.as_python(), {"s": again})
    assert again == s


@pytest.mark.parametrize("block", share_of(range(3)))
def test_random_scatters(block):
    done = 0
    for seed in range(7000 + 60 * block, 7060 + 60 * block):
        s = schedule(random_program(seed), WIDE)
        for definition in s.program.definitions:
            if isinstance(definition, Scatter):
                with suppress(ScheduleError):
                    s[definition.name].sort()
                    done += 1
        if any(isinstance(d, Segments) for d in s.state.program.definitions) and done % 2:
            assert_same_meaning(shuffled(s, random.Random(seed), 3), seed)
        elif done:
            assert_same_meaning(s, seed)
    assert done > 0


def test_what_is_refused():
    def refused(text: str, message: str, change: str | None = None) -> None:
        s = schedule(parse_program(text), WIDE)
        if change is not None:
            s["S"].split(change, 2)
        with pytest.raises(ScheduleError) as caught:
            s["S"].sort()
        assert message in str(caught.value)

    refused("x: f32[3] = input()\nS[i]: f32[3] = x[i]\nreturn S\n", "expected a scatter outside of scans to sort, got S")
    text = "x: f32[9] = input()\nids: i64[9] = input()\nS: f32[4] = scatter({ids[t]: x[t] for t in range(9)})\nreturn S\n"
    refused(text, "expected plain loops of S to sort it, got changed ones", "t")
    own = "x: f32[9] = input()\nS: f32[9] = scatter({t: x[t] for t in range(9)})\nreturn S\n"
    refused(own, "expected an index of S that is no axis by itself to sort by, got none")
    far = MATRIX.format("f64", "sum").replace("cols[p[i] + k]", "cols[p[i] + k] + i")
    refused(far, "expected points known before they run, or known to the key by a place alone, to sort S, got others")


def test_a_gpu_sorts_where_few_threads_could_add_side_by_side():
    few = "x: f32[5000] = input()\nids: i64[5000] = input()\nS: f32[40] = scatter({ids[t]: x[t] for t in range(5000)})\nreturn S\n"
    assert isinstance(autoschedule(parse_program(few), H200).state.program.definitions[-1], Define)
    assert isinstance(autoschedule(parse_program(few.replace("5000", "50")), H200).state.program.definitions[-1], Scatter)
    wide = few.replace("f32[5000]", "f32[5000, 65536]").replace("f32[40]", "f32[40, 65536]")
    wide = wide.replace("{ids[t]: x[t] for t in range(5000)}", "{(ids[t], d): x[t, d] for t in range(5000) for d in range(65536)}")
    assert isinstance(autoschedule(parse_program(wide), H200).state.program.definitions[-1], Scatter)


def test_segments_of_one_point_on_a_gpu():
    program = parse_program(
        "X: f32[1] = input()\nO, P = segments[1](0 for () in [()] if X[0] > 0.0)\n"
        "T[i]: f32[1] = sum(X[P[k]] for k in range(O[i], O[i + 1]))\nreturn T"
    )
    assert_means(autoschedule(program, H200))
