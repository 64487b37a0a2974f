"""Barriers are no part of a nest: the emitter places them. One that is taken out is seen by the checker wherever it may cost a value."""

import re
from dataclasses import replace

import numpy as np

from tensorexpr.codegen.cuda.host import HostKernels
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest_verify import verify_nest
from tensorexpr.codegen.schedule import autoschedule
from tensorexpr.codegen.target import H200
from tensorexpr.errors import InternalError
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tests.codegen.cuda.device import Program, needs_compiler
from tests.codegen.cuda.test_warps import rows
from tests.random_programs import random_inputs

SOFTMAX = """
X: f32[5, 700] = input()
m[i]: f32[5] = max(X[i, k] for k in range(700))
e[i, j]: f32[5, 700] = exp(X[i, j] - m[i])
s[i]: f32[5] = sum(e[i, k] for k in range(700))
Y[i, j]: f32[5, 700] = e[i, j] / s[i]
return Y
"""
LARGEST = """
X: f32[3, 900] = input()
Y[i]: i64[3] = argmax(X[i, k] for k in range(900))
return Y
"""
BARRIER = re.compile(r"__sync(threads|warp)\([^)]*\);")
ORDERS = (0, 1, 5)


def without_each_barrier():
    """Schedules and programs with one of their barriers taken out."""
    made = {"softmax": autoschedule(parse_program(SOFTMAX), H200), "largest": autoschedule(parse_program(LARGEST), H200)}
    made["rows"] = rows(("i", "block.x"))
    for name, s in made.items():
        nest = verify_nest(lower(s))
        for number in range(len(BARRIER.findall(Program(nest).source.text))):
            one = Program(nest, f"{name}{number}_", on_cpu=True)
            at = list(BARRIER.finditer(one.source.text))[number]
            one.source = replace(one.source, text=one.source.text[: at.start()] + one.source.text[at.end() :])
            yield f"{name} {number}", s, one


def is_seen(one, inputs):
    for order in ORDERS:
        try:
            one(inputs, order=order)
        except InternalError as error:
            assert "of shared memory" in str(error)
            return True
    return False


def agrees(s, one, inputs):
    want = evaluate_program(s.program, inputs)
    found = [one(inputs, order=order) for order in ORDERS]
    return all(np.allclose(got[name], want[name], rtol=1e-2, atol=1e-2) for got in found for name in s.program.outputs)


@needs_compiler
def test_a_lost_barrier_that_may_cost_a_value_is_seen():
    cases = list(without_each_barrier())
    checked, plain = (HostKernels(*(one.source for _, _, one in cases), checked=looks) for looks in (True, False))
    seen, wrong = set(), set()
    for name, s, one in cases:
        inputs = random_inputs(s.program, 7)
        one._kernels = checked
        seen |= {name} if is_seen(one, inputs) else set()
        one._kernels = plain
        wrong |= set() if agrees(s, one, inputs) else {name}
    assert wrong <= seen and len(wrong) >= 3 and len(seen) >= 4, (sorted(wrong), sorted(seen))
