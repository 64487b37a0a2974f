"""Integer arithmetic that wraps around, at numbers, indices and sizes where it does: what is computed is what the interpreter says.

Terms over indices, sizes up to 2^47, integers of tensors of every width and literals near powers of two go three ways: the interpreter,
the interpreter on the simplified program, and compiled code. Sizes are those of empty arrays, so large ones cost nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.interpret import evaluate_program
from tensorexpr.ir import Program
from tensorexpr.language.core.programs import program_of
from tensorexpr.parse import parse_program
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


def term(draw: random.Random, leaves: Sequence[str], depth: int) -> str:
    """The text of an int64 term that may wrap around."""
    if depth == 0:
        return draw.choice(leaves)
    x, power = term(draw, leaves, depth - 1), 1 << draw.choice(EXPONENTS)
    y = draw.choice((str(power), str(power), "3", "12", term(draw, leaves, draw.randrange(depth))))
    match draw.choice(("+", "-", "*", "*", "*", "//", "//", "%", "minimum", "maximum", "where")):
        case "minimum" | "maximum" as name:
            return f"{name}({x}, {y})"
        case "where":
            return f"where({x} < {y}, {x}, {term(draw, leaves, draw.randrange(depth))})"
        case op:
            return f"({x} {op} {y})"


def parsed(seed: int) -> str:
    """A program as somebody may write it, with such terms wherever arithmetic stands."""
    draw = random.Random(seed)

    def some(*names: str) -> str:
        return term(draw, (*names, "n", "m", "X[i]"), draw.choice((1, 2, 3)))

    return f"""
sizes(n, m)
E: f32[n, 0] = input()
F: f32[m, 0] = input()
X: i64[8] = input()
T[i]: i64[8] = {some("i")}
S[i]: i64[8] = where({some("i")} < {some("i")}, X[{some("i")} % 8], {some("i")})
R[i]: i64[8] = sum(X[(j + {some("i")}) % 8] for j in range({some("i")} % 9) if {some("i", "j")} >= 0)
C: i64[4] = scatter({{{some("i", "j")} % 4: {some("i", "j")} for i in range(8) for j in range({some("i")} % 5) if {some("i", "j")} < 9}})
O, P = segments[4]({some("i")} % 4 for i in range(8) if {some("i")} < {some("i")})
for t in range(3):
    s: i64[8] = state(X)
    u[i]: i64[8] = s[({some("i", "t")} + 1) % 8] + {some("i", "t")}
    Q[t] = s = u
return T, S, R, C, O, P, Q
"""


def assert_parsed(seed: int) -> None:
    program, draw = parse_program(parsed(seed)), random.Random(seed)
    edges = [0, 1, -1, 5, *(sign * (1 << e) for e in EXPONENTS for sign in (1, -1)), (1 << 63) - 1, LEAST]
    arrays = {name: np.zeros((draw.choice(SIZES), 0), np.float32) for name in "EF"} | {"X": ids(*(draw.choice(edges) for _ in range(8)))}
    expected = evaluate_program(program, arrays)
    for name, array in zip(program.outputs, te.compile(program)(*arrays.values()), strict=True):
        assert np.array_equal(array, expected[name]), f"seed {seed}: {name} of {parsed(seed)}"


@pytest.mark.parametrize("block", range(2))
def test_programs_that_are_read_wrap_around(block: int) -> None:
    for seed in share_of(range(25 * block, 25 * block + 25)):
        assert_parsed(seed)


B = 1 << 62
SIZED = [
    ("nested quotients", lambda i, d, n: i // 2**40 // 2**30 + d // 3**25 // 3**25 + (d // 2**40 - 2**30) // 2**30),
    ("a quotient of what wraps", lambda i, d, n: (i * B // B + 8) % 8 + i * B // 2**40 % 2**30),
    ("a size's quotient beside data", lambda i, d, n: te.where((n // 2 < d) & (d > n // 3 + 2), 1, 0)),
    ("data that wraps beside a remainder", lambda i, d, n: te.where(n % (i + 1) + 12 - te.minimum(te.maximum(d, 3), 2**32) < d - 12, 1, 0)),
    ("a quotient by much", lambda i, d, n: te.where(n // B < n * i, 1, 0)),
    ("a quotient beside its dividend", lambda i, d, n: (n // 2**60 - n) % 4),
    ("a disjunction", lambda i, d, n: te.sum(lambda j: j, 8, where=lambda j: ((n // 2 < i * B) & (j < 4)) | (j < 4))),
    ("bounds of indices", lambda i, d, n: te.sum(lambda k: k + 1, i * B // B + 6)),
    ("bounds of sizes", lambda i, d, n: te.sum(lambda k: k + 1, n * B // B)),
]


@pytest.mark.parametrize("body", [row[1] for row in SIZED], ids=[row[0] for row in SIZED])
def test_rules_leave_int64_nowhere(body) -> None:
    n = te.dim("n")
    e, d = te.placeholder((n, 0), name="e"), te.placeholder((8,), "int64", name="d")
    y = te.compute((8,), lambda i: body(i, d[i], n), name="y")
    call = te.compile([y], [e, d])
    for size in (5, 1 << 46):
        arrays = {e: np.zeros((size, 0), np.float32), d: ids(0, 1, -1, 3, (1 << 63) - 1, LEAST, B, -B)}
        assert np.array_equal(call(*arrays.values())[0], te.evaluate(y, arrays)), size


def test_bounds_of_a_scatter_wrap_around() -> None:
    d = te.placeholder((8,), "int64", name="d")
    y = te.scatter((4,), lambda j, i, k: (i % 4, 1), (8, lambda j: d[j] * 4 // 4, lambda j, i: (d[j] - 3) % 5), name="y")
    assert "range(i64(u64(d[j]) * 4) // 4) for k in range(i64(u64(d[j]) - 3) % 5)" in " ".join(str(program_of([y])).split())
    arrays = {d: ids(1, B, 2, B + 1, 0, -1, LEAST + 3, LEAST + 1)}
    assert np.array_equal(te.compile([y], [d])(*arrays.values())[0], te.evaluate(y, arrays))


def test_parts_are_as_many_as_arithmetic_of_sizes_says() -> None:
    n = te.dim("n")
    x = te.placeholder((n,), name="x")
    s = te.schedule(te.compute((), lambda: te.sum(lambda k: 1, n * B // B), name="y"), inputs=[x])
    with pytest.raises(te.ScheduleError, match=r"expected as many parts as arithmetic of sizes says, got maximum\(i64"):
        s["y"].rfactor(s["y"].split("k", 64)[0])


MAGNITUDES = [
    lambda a: te.abs(a),
    lambda a: te.abs(a - 3),
    lambda a: te.abs(a) // 2,
    lambda a: te.minimum(te.abs(a), 4),
    lambda a: 4 - te.abs(a),
    lambda a: te.abs(te.abs(a) - 2),
    lambda a: te.minimum(-te.minimum(a, 0), 4),
    lambda a: te.minimum(4 - te.minimum(a, -1), 4),
]


@pytest.mark.parametrize("number", range(len(MAGNITUDES)))
def test_the_least_integer_is_its_own_magnitude(number: int) -> None:
    A, X = te.placeholder((1,), "int64", name="A"), te.placeholder((5,), "int8", name="X")
    place = MAGNITUDES[number]
    x = np.arange(5, dtype=np.int8)
    for guard in (lambda a: place(a) < 5, lambda a: place(a) >= 0, lambda a: a < 9):
        T = te.compute((1,), lambda i, guard=guard: te.where(guard(A[i]), X[place(A[i])], 0), name="T")
        function = te.build(T, [A, X])
        for value in (LEAST, LEAST + 3, (1 << 63) - 1, -4, 0, 3):
            arrays = np.array([value]), x
            try:
                expected = te.evaluate(T, dict(zip((A, X), arrays, strict=True)))
            except te.OutOfBoundsError:
                with pytest.raises(te.OutOfBoundsError):
                    function(*arrays)
            else:
                assert function(*arrays) == expected, value


MUCH = 1 << 61


def test_extents_that_int64_does_not_hold_are_refused() -> None:
    n = te.dim("n")
    E, A = te.placeholder((n, 0), "float32", name="E"), te.placeholder((n * (MUCH + 3),), "int64", name="A")
    T = te.compute((n * (3 * (MUCH >> 2) + 5),), lambda i: A[i], name="T")
    arrays = np.zeros(96, np.int64), np.zeros((32, 0), np.float32)  # 32 * (2^61 + 3) is 96 modulo 2^64
    with pytest.raises(te.ArgumentError, match="expected extents that int64 holds, got 73786976294838206560 at n = 32"):
        te.build(T, [A, E])(*arrays)
    with pytest.raises(te.ArgumentError, match="expected extents that int64 holds, got 73786976294838206560 at n = 32"):
        te.evaluate(T, dict(zip((A, E), arrays, strict=True)))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (f"A: i64[n * {2 * MUCH} // {2 * MUCH}] = input()\nT[i]: i64[n] = A[i]", 5),
        ("A: i64[1] = input()\nT[i]: i64[n * n * n * 3 % 3] = A[0]", (1 << 31) + 1),
    ],
)
def test_extents_of_programs_that_are_read(text: str, size: int) -> None:
    program = parse_program(f"sizes(n)\nE: f32[n, 0] = input()\n{text}\nreturn T")
    arrays = np.zeros((size, 0), np.float32), np.zeros(1, np.int64)
    for run in (te.compile(program), lambda *given: evaluate_program(program, dict(zip("EA", given, strict=True)))):
        with pytest.raises(te.ArgumentError, match="expected extents that int64 holds"):
            run(*arrays)
