"""LLVM's passes come to an end: what they do takes time in proportion to the text."""

import os
import subprocess
import sys

import pytest

SECONDS = 60
"""A chain whose paths are all walked takes hours; otherwise these programs compile within a tenth of a second."""

CHAINS = {
    "minima in a maximum": "te.max(lambda v: te.min(lambda u: x[i, u] * y[v], 32), 8)",
    "maxima in a minimum": "te.min(lambda v: te.max(lambda u: x[i, u] + y[v], 32), 16)",
    "positions in a maximum": "te.max(lambda v: te.cast(te.argmax(lambda u: x[i, u] * y[v], 32), dtype) * y[v], 8)",
}
PROGRAM = """
import numpy as np, tensorexpr as te

for dtype in ("float32", "float64", "int32"):
    x, y = te.placeholder((2, 32), dtype, name="x"), te.placeholder((24,), dtype, name="y")
    z = te.compute((2,), lambda i: {value}, name="z")
    s = te.schedule(z)
    if "u" in s["z"].loops:
        s["z"].unroll("u")
    given = {{x: (np.arange(64).reshape(2, 32) % 11 - 5).astype(dtype), y: (np.arange(24) % 7 - 3).astype(dtype)}}
    for f in (te.build(s), te.build(z, [x, y])):
        np.testing.assert_array_equal(f(*given.values()), te.evaluate(z, given))
"""


@pytest.mark.parametrize("name", CHAINS)
def test_loops_over_chains_of_choices_are_compiled(name):
    environment = {**os.environ, "TENSOREXPR_CACHE_DIR": "", "TENSOREXPR_STRICT": "1"}
    code = PROGRAM.format(value=CHAINS[name])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, env=environment, check=False)
    assert done.returncode == 0, done.stderr
