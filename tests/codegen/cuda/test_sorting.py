"""Sort plans by many threads of a GPU: the plan of the interpreter, whatever collides and by however many digits, without a race."""

from __future__ import annotations

import numpy as np
import pytest

from tensorexpr.codegen.cuda.emit import emit
from tensorexpr.codegen.lowering import digits, lower
from tensorexpr.codegen.nest_verify import verify_nest
from tensorexpr.codegen.schedule import autoschedule
from tensorexpr.codegen.target import H200
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tests.codegen.cuda.device import Program, compiled_together, needs_compiler
from tests.codegen.lowering.test_sorting import FLAT, KEYS, PAIRS, SOME, SUMS


@pytest.fixture
def eager(monkeypatch):
    """Few points count as many, and digits have few values."""
    monkeypatch.setattr(digits, "MANY_POINTS", 8)
    monkeypatch.setattr(digits, "MOST_DIGITS", 8)
    monkeypatch.setattr(digits, "CHUNKS", (3, 7))


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
    threads = [launch.iterations[0].value if launch.cut else 1 for launch in source.launches]
    # Two digits: the sums of their counts alone are the work of one thread.
    assert sum(n == 1 for n in threads) == 2 and min(n for n in threads if n > 1) >= 256
    assert digits.digits_of(100000, 50000) == (2, 256, 390)


def test_few_points_are_sorted_by_one():
    assert digits.digits_of(100, 50) is None and digits.digits_of(1 << 20, 1000) == (1, 1024, 1024)
