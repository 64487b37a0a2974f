"""Divisions under conditions in loops that LLVM sees: quotients that the loop does not change are those of the iterations that divide.

The vectorizer of LLVM 22.1 gives the lanes of such a loop what the first lane has of a value computed of such a quotient, also where that
lane is off and divided nothing; the loops say that they are not to be vectorized. A place that is wrong is beyond a protected page.
"""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.llvm import compile_nest
from tensorexpr.codegen.llvm.emitter.module import emit
from tensorexpr.codegen.nest import If
from tensorexpr.codegen.nest.interpret import run_nest
from tensorexpr.ir import Expr, Index, Size, apply, const
from tests.codegen.llvm.below import machines
from tests.codegen.llvm.nests import buffer, loop, nest, read, run, write
from tests.seeds import share_of

i, j, n = Index("i"), Index("j"), Size("n")
ROWS, WIDTH = 10, 7


def case(rng: random.Random):
    """T[i, j] of an element of X in a row that is a quotient or remainder, times a number, where a condition on j or on data holds."""
    dtype = rng.choice((dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64))
    X = buffer("X", dtype, apply("add", apply("mul", n, const(WIDTH * 3)), const(WIDTH * 3)))
    K = buffer("K", dtypes.int64, n)
    T = buffer("T", dtype, ROWS, n)
    divisor = rng.choice((n, n, read(K, 0), apply("add", i, const(1))))
    left = rng.choice((i, i, apply("mul", i, const(rng.choice((-1, 3)))), apply("sub", i, n), apply("add", i, n)))
    quotient: Expr = apply(rng.choice(("mod", "mod", "floordiv")), left, divisor)
    row = apply("minimum", apply("maximum", quotient, const(0)), n) if rng.random() < 0.7 else apply("mod", apply("abs", quotient), n)
    scale = rng.choice((1, WIDTH, WIDTH, 3 * WIDTH))
    place = apply("add", apply("mul", row, const(scale)), const(rng.randrange(WIDTH)))
    conditions = [
        apply("ge", j, i),
        apply("lt", j, apply("mul", i, const(2))),
        apply("eq", apply("mod", j, const(3)), const(1)),
        apply("gt", read(K, j), const(4)),
        apply("or", apply("ge", j, i), apply("le", j, const(5))),
    ]
    found = read(X, place)
    if rng.random() < 0.3:
        found = apply("where", rng.choice(conditions), found, const(1, dtype))
    if rng.random() < 0.3:
        found = apply("add", found, read(X, apply("add", row, const(1))))
    condition = rng.choice(conditions)
    if rng.random() < 0.5:
        body = write(T, (i, j), apply("where", condition, found, const(0, dtype)))
    else:
        body = If(condition, (write(T, (i, j), found),), (write(T, (i, j), const(0, dtype)),))
    return nest((X, K, T), (T,), (loop("i", ROWS, loop("j", n, body)),), sizes=("n",)), dtype


@pytest.mark.parametrize("block", share_of(range(9)))
def test_quotients_that_a_loop_does_not_change(block):
    for seed in range(block * 12, block * 12 + 12):
        rng = random.Random(seed)
        made, dtype = case(rng)
        for machine in machines() if seed % 4 == 0 else machines()[:1]:
            function = compile_nest(made, machine)
            for size in (1, rng.choice((2, 5, 16, 17)), rng.choice((32, 33, 70))):
                draw = np.random.default_rng(seed)
                data = draw.integers(0, 100, size * WIDTH * 3 + WIDTH * 3).astype(dtype.numpy)
                arrays = {"X": data, "K": draw.integers(1, 9, size)}
                want = run_nest(made, arrays, {"n": size})["T"]
                for before in (False, True):
                    found = run(made, arrays, {"n": size}, before, function)["T"]
                    np.testing.assert_array_equal(found, want, err_msg=f"{machine.cpu}, n = {size}\n{made}")


@pytest.mark.parametrize("block", share_of(range(3)))
def test_loops_with_a_division_and_a_branch_stay_as_they_are(block):
    for seed in range(block * 20, block * 20 + 20):
        text = emit(case(random.Random(seed))[0], machines()[0])
        bodies = re.split(r"\n(?=[\w.]+:\n)", text)
        ends = [k for k, body in enumerate(bodies) if "loop" in body.rpartition("\n")[2] and "br i1" in body.rpartition("\n")[2]]
        divides = any(re.search(r" = [su](div|rem) i64 \S+, %", body) for body in bodies)
        marked = [k for k in ends if bodies[k].rstrip().endswith("!llvm.loop !2")]
        assert not divides or marked, text
        assert bool(marked) == ('"llvm.loop.vectorize.enable", i1 false' in text)
