"""Choices: what both arms read is read without a mask or a jump; what one arm reads alone only where it is chosen."""

from __future__ import annotations

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.llvm import emit, host
from tensorexpr.ir import Const, Index, apply, const
from tests.codegen.llvm.nests import buffer, loop, nest, read, run, write

F = dtypes.float32
i, k = Index("i"), Index("k")
TWO = Const(2.0, F)


def made(condition, shift: int):
    """Y[k, i] is X[i] times 2 where a condition holds, else X[i + shift] and 2."""
    x, y = buffer("X", F, 32), buffer("Y", F, 2, 32)
    other = read(x, apply("add", i, const(shift)) if shift else i)
    value = apply("where", condition, apply("mul", read(x, i), TWO), apply("add", other, TWO))
    return nest([x, y], [y], (loop("k", 2, loop("i", 32, write(y, [k, i], value), kind="vectorize")),))


CONDITIONS = {"of a row": apply("eq", k, const(0)), "of lanes": apply("ge", i, const(16))}


@pytest.mark.parametrize("name", CONDITIONS)
@pytest.mark.parametrize("shift", [0, 16])
def test_what_both_arms_read_is_read_at_once(name: str, shift: int) -> None:
    if shift and name == "of a row":
        condition = apply("ge", i, const(32 - shift))  # what is beyond the end of X is not read
    else:
        condition = CONDITIONS[name]
    program = made(condition, shift)
    text = emit(program, host())
    assert ("masked.load" in text) == bool(shift) and "\nyes" not in text
    data = np.arange(32, dtype=np.float32)
    shifted = np.concatenate([data, np.zeros(shift, np.float32)])[shift:]
    rows, lanes = np.mgrid[0:2, 0:32]
    chosen = (lanes >= 32 - shift) if shift and name == "of a row" else rows == 0 if name == "of a row" else lanes >= 16
    np.testing.assert_array_equal(run(program, {"X": data})["Y"], np.where(chosen, data * 2, shifted + 2))
