"""Integer arithmetic that wraps around, at numbers, indices and sizes where it does: what is computed is what the interpreter says.

Terms over indices, sizes up to 2^47, integers of tensors of every width and literals near powers of two go three ways: the interpreter,
the interpreter on the simplified program, and compiled code. Sizes are those of empty arrays, so large ones cost nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Program
from tensorexpr.language.programs import program_of
from tensorexpr.simplify import simplify
from tensorexpr.text import print_program
from tests.seeds import share_of

POINTS = 17
WIDE = ("int64", "uint64", "int32", "uint32", "int8")
SIZES = (0, 1, 3, (1 << 22), (1 << 31) - 1, 1 << 32, (1 << 40) + 1, 1 << 47)
EXPONENTS = (1, 2, 3, 7, 8, 15, 16, 31, 32, 47, 58, 60, 61, 62)


class Terms:
    """Random terms of one integer type."""

    def __init__(self, draw: random.Random, dtype: str, leaves: list[Callable[[], te.Scalar]]) -> None:
        self.draw, self.dtype, self.leaves = draw, dtype, leaves
        self.bits = int(dtype.removeprefix("u").removeprefix("int"))

    def literal(self) -> int:
        """A number near a power of two that the type has, or a small one."""
        draw = self.draw
        power = 1 << draw.choice([e for e in EXPONENTS if e < self.bits - 1])
        found = draw.choice((power, power, power - 1, power + 1, 3, 12))
        return -found if draw.random() < 0.2 and not self.dtype.startswith("u") else found

    def term(self, depth: int) -> te.Scalar:
        draw = self.draw
        if depth == 0:
            return draw.choice(self.leaves)()
        x = self.term(depth - 1)
        y = draw.choice((self.literal, self.literal, lambda: self.term(draw.randrange(depth))))()
        match draw.choice(("+", "-", "*", "*", "*", "//", "//", "%", "%", "min", "max", "abs", "where", "shift")):
            case "+":
                return x + y
            case "-":
                return x - y
            case "*":
                return x * y
            case "//":
                return x // y
            case "%":
                return x % y
            case "min":
                return te.minimum(x, y)
            case "max":
                return te.maximum(x, y)
            case "abs":
                return te.abs(x)
            case "shift":
                return x << draw.choice((1, 3, self.bits - 3))
        return te.where(draw.choice((x < y, x >= y, x == y)), x, self.term(draw.randrange(depth)))


def drawn(seed: int) -> tuple[Program, dict[str, np.ndarray], Callable[[], Callable[..., tuple[np.ndarray, ...]]]]:
    """A program of a few results, and arrays for it."""
    draw = random.Random(seed)
    numbers = np.random.default_rng(seed)
    n, m = te.dim("n"), te.dim("m")
    rows, columns = te.placeholder((n, 0), name="E"), te.placeholder((m, 0), name="F")
    dtype = draw.choice(("int64", "int64", "int64", *WIDE, "int16", "uint16", "uint8"))
    data = te.placeholder((POINTS,), dtype, name="D")
    narrow = te.placeholder((POINTS,), "int32", name="N")
    results = []
    for number in range(4):

        def value(i: te.Scalar, j: te.Scalar) -> te.Scalar:
            wide = dtype == "int64"
            leaves = [lambda: i, lambda: j, lambda: n + 0 * i, lambda: m * n, lambda: i * n + j, lambda: te.cast(narrow[i], "int64")]
            leaves = leaves if wide else [lambda: te.cast(i, dtype), lambda: te.cast(n * i, dtype)]
            return Terms(draw, dtype, [*leaves, lambda: data[i]]).term(draw.choice((2, 3, 4)))

        results.append(te.compute((POINTS, 3), value, name=f"T{number}"))
    edges = [0, 1, -1, 5, *(sign * (1 << e) for e in EXPONENTS for sign in (1, -1)), (1 << 63) - 1, -(1 << 63)]
    arrays = {
        "E": np.zeros((draw.choice(SIZES), 0), np.float32),
        "F": np.zeros((draw.choice(SIZES), 0), np.float32),
        "D": numbers.choice(np.array(edges, np.int64), POINTS).astype(data.dtype.numpy),
        "N": numbers.choice(np.array(edges, np.int64), POINTS).astype(np.int32),
    }
    inputs = [rows, columns, data, narrow]
    return program_of(results, inputs), arrays, lambda: te.compile(results, inputs)


def assert_law(seed: int) -> None:
    program, arrays, compiled = drawn(seed)
    expected = evaluate_program(program, arrays)
    text = f"seed {seed}: {print_program(program)}"
    simple = simplify(program)
    found = evaluate_program(simple, arrays)
    for name in program.outputs:
        assert np.array_equal(found[name], expected[name]), f"{text}\n{print_program(simple)}"
    for name, array in zip(program.outputs, compiled()(*arrays.values()), strict=True):
        assert np.array_equal(array, expected[name]), text


@pytest.mark.parametrize("block", range(4))
def test_integers_wrap_around(block: int) -> None:
    for seed in share_of(range(25 * block, 25 * block + 25)):
        assert_law(seed)


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


LEAST = -(1 << 63)
GUARDS: list[tuple[str, Callable[..., te.Scalar], Callable[[te.Scalar], te.Scalar], np.ndarray]] = [
    ("scaled", lambda d: (d * 4 < 32) & (d >= 0), lambda d: d, ids(1, 1 << 62, 7, -1)),
    ("below", lambda d: (d - 1 >= 0) & (d < 8), lambda d: d, ids(0, LEAST, 7, 8)),
    ("above", lambda d: (d + 1 <= 8) & (d >= 0), lambda d: d, ids(0, (1 << 63) - 1, 7, 8)),
    ("between", lambda d: ~((d - 1 < 0) | (d >= 8)), lambda d: d, ids(0, LEAST, 7, 8)),
    ("divided", lambda d: (d * 4 // 4 < 8) & (d >= 0), lambda d: d, ids(0, 1 << 62, 7, 8)),
    ("two sums", lambda d: d * 0 == 0, lambda d: (d + 1) // 2 - d // 2, ids(0, (1 << 63) - 1, 7, LEAST)),
    ("index", lambda d: d * 0 == 0, lambda d: (d % 16 * (1 << 60)) // (1 << 60), ids(0, 3, 7, 8)),
]


@pytest.mark.parametrize(("guard", "place", "data"), [row[1:] for row in GUARDS], ids=[row[0] for row in GUARDS])
def test_a_guard_that_wraps_guards_nothing(guard, place, data) -> None:
    x = te.placeholder((8,), name="x")
    d = te.placeholder((4,), "int64", name="d")
    y = te.compute((4,), lambda t: te.where(guard(d[t]), x[place(d[t])], 0.0), name="y")
    call = te.compile([y], [x, d])
    assert "check(" in call.source("nest")
    for one in data:  # the same error as the interpreter's, or the same number
        arrays = {x: np.arange(8, dtype=np.float32), d: ids(one, 1, 1, 1)}
        try:
            expected = te.evaluate(y, arrays)
        except te.OutOfBoundsError:
            with pytest.raises(te.OutOfBoundsError):
                call(*arrays.values())
        else:
            assert np.array_equal(call(*arrays.values())[0], expected)


def test_the_branch_that_is_left_is_no_guard_where_the_condition_wraps() -> None:
    x = te.placeholder((9,), name="x")
    d = te.placeholder((3,), "int64", name="d")
    y = te.compute((3,), lambda t: te.where(d[t] - 3 < 8, 0.0, te.where(d[t] < 20, x[d[t] - 11], 0.0)), name="y")
    call, numbers = te.compile([y], [x, d]), np.arange(9, dtype=np.float32)
    np.testing.assert_array_equal(call(numbers, ids(10, 13, 20))[0], [0, 2, 0])
    with pytest.raises(te.OutOfBoundsError):
        call(numbers, ids(13, LEAST, 20))


@pytest.mark.parametrize(
    "guard", [lambda d: (d - 1 >= 0) & (d - 1 < 8), lambda d: (d - 1 < 8) & (d > 0), lambda d: ~((d - 1 < 0) | (d - 1 >= 8))]
)
def test_bounds_of_one_difference_need_no_check(guard) -> None:
    x = te.placeholder((8,), name="x")
    d = te.placeholder((4,), "int64", name="d")
    y = te.compute((4,), lambda t: te.where(guard(d[t]), x[d[t] - 1], 0.0), name="y")
    assert "check(" not in te.compile([y], [x, d]).source("nest")


def written(shape, body) -> str:
    return print_program(program_of([te.compute(shape, body, name="y")])).splitlines()[-2].partition(" = ")[2]


def test_what_cannot_wrap_stays_as_it_is() -> None:
    n, m, s = te.dim("n"), te.dim("m"), te.dim("s")
    x = te.placeholder((n, m), name="x")
    w = te.placeholder((s,), name="w")
    assert written((n * m,), lambda t: x[t // m, t % m]) == "x[t // m, t % m]"
    assert written((n, m), lambda i, j: (i * m + j) // m) == "(i * m + j) // m"
    assert written(((n - s) // s + 1,), lambda o: te.where(o * s < n, w[0 * o], 0.0)) == "where(o * s < n, w[0 * o], 0.0)"
    assert written((1 << 20,), lambda i: (i * (1 << 40) + 5) // 7) == "(i * 1099511627776 + 5) // 7"


def test_what_may_wrap_says_so() -> None:
    n = te.dim("n")
    d, x = te.placeholder((8,), "int64", name="d"), te.placeholder((1,), name="x")
    assert written((8,), lambda i: x[d[i] * 3 % 3]) == "x[i64(u64(d[i]) * 3) % 3]"
    assert written((16,), lambda i: (i * 2**62) // 4) == "i64(u64(i) * 4611686018427387904) // 4"
    assert written((n,), lambda i: (n * n * n * 3) % 3) == "i64(u64(n) * u64(n) * u64(n) * 3) % 3"
    assert written((n, n), lambda i, j: (i * n + j) * n % 3) == "i64((u64(i) * u64(n) + u64(j)) * u64(n)) % 3"
    assert written((16,), lambda i: -(i << 60) // 3) == "i64(0 - u64(i) * 1152921504606846976) // 3"
