"""Barriers are no part of a nest: the emitter places them. One that is taken out is seen by the checker wherever it may cost a value."""

import re
from dataclasses import replace

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.auto.search.memory import lowered as lower
from tensorexpr.codegen.cuda.host import HostKernels
from tensorexpr.codegen.nest import Alloc, Block, For
from tensorexpr.codegen.nest.interpret import run_nest
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.target import H200
from tensorexpr.errors import InternalError
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Const, Expr, Index, apply, const
from tensorexpr.parse import parse_program
from tests.codegen.cuda.device import Program, needs_compiler
from tests.codegen.cuda.test_warps import rows
from tests.codegen.llvm.nests import buffer, loop, nest, read, write
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


T, V, K, BLOCK = Index("t"), Index("v"), Index("k"), Index("b")
X, Y = (buffer(name, dtypes.float32, 2, 4, 256) for name in "XY")
S = buffer("S", dtypes.float32, 256, memory="local")
OWN = apply("add", apply("mul", T, const(4)), V)


def of_threads(*body) -> For:
    return loop("t", 64, loop("v", 4, *body, kind="vectorize"), kind="thread.x")


def filled(step: Expr) -> For:
    """Copies of neighbors to shared memory, which arrive by themselves."""
    return of_threads(write(S, [OWN], read(X, BLOCK, step, OWN)))


def taken(step: Expr, place: Expr) -> For:
    return of_threads(write(Y, [BLOCK, step, OWN], apply("add", read(S, place), Const(1.0, dtypes.float32))))


CLEARED = of_threads(write(S, [OWN], Const(0.0, dtypes.float32)))
OTHER = apply("sub", const(255), OWN)
LAST = const(3)


@pytest.mark.parametrize(
    "body",
    [
        (loop("k", 4, filled(K), taken(K, OWN)),),
        (loop("k", 4, filled(K), taken(K, OTHER)),),
        (filled(LAST), taken(LAST, OWN)),
        (CLEARED, loop("k", 4, taken(K, OTHER), filled(K)), taken(LAST, OTHER)),
        (CLEARED, loop("k", 4, taken(K, OWN), filled(K)), taken(LAST, OWN)),
        (CLEARED, loop("k", 4, taken(K, OTHER), loop("s", 2, filled(K))), taken(LAST, OTHER)),
        (filled(LAST), loop("k", 4, taken(K, OTHER), filled(K)), taken(LAST, OWN)),
    ],
    ids=["own", "others", "once", "carried", "own carried", "carried from inside", "filled before"],
)
@needs_compiler
def test_copies_that_the_next_iteration_reads_are_waited_for(body: Block) -> None:
    """Barriers that stand before the first copy in the text, and behind it as the loop runs; copies that only their thread reads."""
    made = verify_nest(nest([X, Y], [Y], (loop("b", 2, Alloc(S, body), kind="block.x"),)))
    data = {"X": np.random.default_rng(0).random((2, 4, 256), np.float32)}
    expected = run_nest(made, data, {})["Y"]
    run = Program(made, on_cpu=True)
    assert "te_copy_async<16>" in run.source.text
    for order in ORDERS:
        found = run(data, order=order)["Y"]
        written = ~np.isnan(found)
        np.testing.assert_array_equal(found[written], expected[written])
        assert written[:, 3].all()
