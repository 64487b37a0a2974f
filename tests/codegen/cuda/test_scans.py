"""Scans in parts: the values of the interpreter without races at lengths that leave tails, and no thread that goes along a long line."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from tensorexpr.codegen.auto.search.memory import lowered
from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.nest_proofs import prove
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import H200
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Program as Definitions
from tensorexpr.ir import integer
from tensorexpr.parse import parse_program
from tensorexpr.simplify import simplify
from tests.codegen.cuda.device import Program, needs_compiler
from tests.random_programs import random_inputs

SMALL = replace(H200, cores=1)


def scan(
    shape: str, loops: str, element: str, step: str = "state[{i}] + x[{at}]", start: str = "0.0", dtype: str = "f32", read: int = 70
) -> str:
    """A scan of x over its axis `t`, whose entries are read as `y` has them."""
    lines, i = f"[{loops}]" if loops else "", loops or "()"
    extents = ", ".join(e for e in shape.split(", ") if e != "T")
    type_ = f"{dtype}[{extents}]" if extents else dtype
    shape = shape.replace("T", str(read))
    return f"""
x: {dtype}[{shape}] = input()
start{lines}: {type_} = {start}
for t in range({read}):
    state: {type_} = state(start)
    now{lines}: {type_} = {step.format(i=i, at=element)}
    s[t] = state = now
y[{element.replace(" ", "").replace(",", ", ")}]: {dtype}[{shape}] = s[{"t" if not loops else "t, " + loops}]
return y
"""


ROWS = {
    "one line": scan("T", "", "t", read=9000),
    "rows": scan("3, T", "i", "i, t", read=2000),
    "rows of one block": scan("5, T", "i", "i, t", read=333),
    "short rows": scan("40, T", "i", "i, t", read=70),
    "products": scan("2, T", "i", "i, t", "state[{i}] * x[{at}]", "1.0", read=1000),
    "extremes": scan("2, T", "i", "i, t", "maximum(x[{at}], state[{i}])", "-2.0", read=5000),
    "integers": scan("2, T", "i", "i, t", dtype="i64", start="0", read=4500),
    "doubles": scan("T", "", "t", dtype="f64", read=8000),
    "columns": scan("T, 7", "i", "t, i", read=1000),
    "columns of columns": scan("2, T, 5", "i, j", "i, t, j", read=701),
    "backwards": scan("3, T", "i", "i, t", "state[{i}] + x[i, 8191 - t] * 2.0", read=8192),
}


def planned(text: str) -> tuple[Definitions, Program]:
    s = autoschedule(simplify(parse_program(text)), SMALL)
    nest = verify_nest(lowered(s))
    assert prove(nest, launched=True).refuted == ()
    return s.program, Program(nest)


@needs_compiler
@pytest.mark.parametrize("name", ROWS)
def test_results_are_those_of_the_interpreter(name: str) -> None:
    program, made = planned(ROWS[name])
    inputs = random_inputs(program, 3)
    if name == "products":
        inputs = {"x": 1 + inputs["x"] / 100}
    want = evaluate_program(program, inputs)
    for order in (0, 1, 5):
        for output, array in made(inputs, order=order).items():
            np.testing.assert_allclose(array, want[output], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", ROWS)
def test_long_lines_are_of_many_threads(name: str) -> None:
    _, made = planned(ROWS[name])
    for launch in made.source.launches:
        assert prod(integer(e) for e in launch.iterations) * (1 if launch.cut else prod(launch.threads)) >= 64, launch


SPECIAL = np.float32([1.0, -0.0, np.inf, 2.0, -np.inf, 5.0, np.nan, 1.0])


@needs_compiler
@pytest.mark.parametrize("at", [0, 70, 4500, 8992])
def test_numbers_that_are_not_finite_reach_what_is_behind_them_alone(at: int) -> None:
    program, made = planned(ROWS["one line"])
    x = np.ones(9000, np.float32)
    x[at : at + 8] = SPECIAL
    (found,) = made({"x": x}).values()
    np.testing.assert_array_equal(found, evaluate_program(program, {"x": x})["y"])


@needs_compiler
def test_what_only_begins_as_a_sum_stays_one_line() -> None:
    """A step that reads the state twice, or stores over what it reads, is none of these."""
    program, made = planned(scan("3, T", "i", "i, t", "state[{i}] + x[{at}] * state[{i}]", "1.0", read=100))
    inputs = {"x": random_inputs(program, 1)["x"] / 100}
    (found,) = made(inputs).values()
    np.testing.assert_allclose(found, evaluate_program(program, inputs)["y"], rtol=1e-5)
    assert len(emit(made.nest).launches) == 1
