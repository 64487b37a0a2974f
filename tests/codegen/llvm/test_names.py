"""Names of users in LLVM IR: very long ones, and ones outside of ASCII, are told apart."""

import numpy as np
import pytest

import tensorexpr as te

NAMES = {"long": ("v" * 1100 + "a", "v" * 1100 + "b"), "not ascii": ("é", "è"), "both": ("ö" * 1100, "ü" * 1100), "alike": ("_", "é")}


@pytest.mark.parametrize("kind", NAMES)
def test_names_that_llvm_would_take_for_one(kind: str) -> None:
    first, second = NAMES[kind]
    n, m = te.dim(first), te.dim(second)
    x, y = te.placeholder((n, m), name=f"{first}x"), te.placeholder((n, m), name=f"{second}x")
    scope = {"x": x, "y": y, "te": te, "n": n, "m": m}
    inner = f"te.sum(lambda {first}k, {second}k: x[{first}k, {second}i] * y[{first}i, {second}k], (n, m))"
    body = eval(f"lambda {first}i, {second}i: {inner} - x[{first}i, {second}i] * te.cast(n, 'float32')", scope)
    first_result = te.compute((n, m), body, name=f"{first}r")
    second_result = te.compute((n, m), lambda i, j: first_result[i, j] - y[i, j] * te.cast(m, "float32"), name=f"{second}r")
    f = te.build([first_result, second_result], [x, y])
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (5, 7)).astype(np.float32) for _ in range(2))
    wanted = a.sum(0)[None, :] * b.sum(1)[:, None] - a * 5
    for found, value in zip(f(a, b), (wanted, wanted - b * 7), strict=True):
        np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize("position", range(14))
def test_an_array_called_as_a_loop_at_any_position(position: int) -> None:
    """Arrays are numbered by position, loops as they come: one of each was called `t.7` (a batched gradient of two scans)."""
    before = [te.placeholder((3,), name=f"x{k}") for k in range(position)]
    mine = te.placeholder((3,), name="_")
    y = te.compute((3,), lambda é: sum((x[é] for x in before), 0.0) + mine[é] * 2.0, name="y")
    f = te.build(te.schedule(y, inputs=[*before, mine]))
    np.testing.assert_array_equal(f(*(np.ones(3, np.float32) for _ in f.signature.inputs)), np.full(3, position + 2.0))
