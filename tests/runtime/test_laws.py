"""Laws over random programs: compiled code gives the interpreter's values, bit for bit where the program is exact, touches
nothing outside its arrays, and does not depend on the number of threads."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from tensorexpr.codegen.compile import build_program
from tensorexpr.interpret import evaluate_program
from tensorexpr.parse import parse_program
from tests.random_programs import assert_agrees, meaning, random_inputs, random_program
from tests.runtime.pages import guarded_copy
from tests.seeds import share_of

SEEDS = share_of(range(60))


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    """Equal bits, but for NaNs (any is as good as another) and the sign of zero."""
    return found.dtype == expected.dtype and np.array_equal(found, expected, equal_nan=found.dtype.kind in "fV")


@pytest.mark.parametrize("seed", SEEDS)
def test_compiled_code_gives_the_interpreters_values(seed):
    program = random_program(seed)
    function = build_program(program)
    for variant in range(2 if program.sizes else 1):
        inputs = random_inputs(program, 1000 * seed + variant)
        expected = meaning(program, inputs)
        if expected is None:
            continue
        # Arrays that end, or begin, at a protected page: a stray access ends the test.
        for at_end in (True, False):
            arrays = [guarded_copy(inputs[i.name], at_end) for i in program.inputs]
            shapes = zip(program.outputs, (np.shape(expected[name].value) for name in program.outputs), strict=True)
            out = tuple(guarded_copy(np.zeros(shape, program.types[name].dtype.numpy), at_end) for name, shape in shapes)
            assert_agrees(program, dict(zip(program.outputs, function(*arrays, out=out), strict=True)), expected, seed)


# What random programs once found, reduced: a reduction before loops that may be empty, with a bound by another loop; bounds by
# an axis whose own bounds depend on a data loop.
FOUND = (
    """
sizes(n)
H: f64[4] = input()
N: f64[n] = input()
Y: f64[4] = scatter({(i,): prod(H[k] for k in range(4)) for i in range(4) for j in range(n) if j + i <= 1}, combine="sum")
return Y
""",
    """
Y[p]: f64[2] = sum(1.0 for i in range(p, p + 2) for l in range(i))
return Y
""",
)


@pytest.mark.parametrize("text", FOUND)
def test_reduced_programs(text):
    program = parse_program(text.lstrip())
    for sizes in ({"n": n} for n in (0, 1, 3)):
        inputs = random_inputs(program, 0, sizes=sizes)
        (result,) = build_program(program)(*(inputs[i.name] for i in program.inputs))
        assert same(result, evaluate_program(program, inputs)[program.outputs[0]])


@pytest.mark.parametrize("seed", share_of(range(20)))
def test_inexact_programs_agree_to_rounding(seed):
    program = random_program(seed + 500, floats_only=True)
    inputs = random_inputs(program, seed, exact=False)
    expected = meaning(program, inputs)
    if expected is not None:
        found = build_program(program)(*(inputs[i.name] for i in program.inputs))
        assert_agrees(program, dict(zip(program.outputs, found, strict=True)), expected, seed)


_DIGEST = """
import hashlib, sys
from tensorexpr.codegen.compile import build_program
from tests.random_programs import random_inputs, random_program, random_sizes
from tests.runtime.threaded import large_results
digest = hashlib.sha256()
for seed in range(8):
    program = random_program(seed + 900, without=("data", "zero"))
    inputs = random_inputs(program, seed, exact=False, sizes=random_sizes(program, seed, least=3))
    for result in build_program(program)(*(inputs[i.name] for i in program.inputs)):
        digest.update(result.tobytes())
for result in large_results():
    digest.update(result.tobytes())
print(digest.hexdigest())
"""


def test_results_do_not_depend_on_threads_affinity_or_the_hash_seed():
    one_core = {min(os.sched_getaffinity(0))} if hasattr(os, "sched_setaffinity") else None
    digests = set()
    for threads, seed, cores in (("1", "0", None), ("5", "1", one_core)):
        environment = {**os.environ, "TENSOREXPR_NUM_THREADS": threads, "PYTHONHASHSEED": seed}
        code = _DIGEST if cores is None else f"import os; os.sched_setaffinity(0, {cores})\n{_DIGEST}"
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout)
    assert len(digests) == 1
