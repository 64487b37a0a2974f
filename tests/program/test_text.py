"""The text of programs: what examples print as, that text parses back to the same program, what bad text says."""

import math
import random
import warnings

import ml_dtypes
import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.errors import DefinitionError
from tensorexpr.ir import Access, Cast, Combiner, Const, Constant, Define, Expr, Index, Input, Program, Reduce, TensorType, apply, const
from tensorexpr.ops import OPS
from tensorexpr.parse import parse_expr, parse_program
from tensorexpr.text import WIDTH, digest, literal, print_definition, print_expr, print_program
from tests.random_programs import random_program
from tests.seeds import share_of

EXAMPLE = """\
sizes(n)
A: f32[n, 32] = input()
V: f32[8, 4] = input()
ids: i64[8] = input()
h0: f32[4] = input()
W: f32[3] = constant([1.0, 0.1, -inf])
C[i, j]: f32[n, 16] = sum(A[i, k] * A[i, j] ** 2.0 for k in range(32) if k <= i and not j == 3)
S: f32 = sum(C[i, 0] for i in range(n))
E: f32 = -S[()] + 2.0 - (S[()] - neg(1.0)) * where(S[()] < 0.0, -0.0, nan)
Y: f32[10, 4] = scatter({(ids[t], d): V[t, d] for t in range(8) for d in range(4) if t > 0}, combine="max")
Z: f32[4] = scatter({ids[t] % 4: V[t, 0] for t in range(2, 8)}, lowering="atomics")
M[i]: i64[n] = reduce(lambda a, b: a * b, 1, (ids[k] + i for k in range(8)), name="product")
R[i]: i64[n] = reduce(lambda a, p, b, q: (maximum(a, b), p + q), (f32(-inf), 0), ((A[i, k], k) for k in range(32)))[1]
for t in range(8):
    h: f32[4] = state(h0)
    g[i]: f32[4] = tanh(h[i] + f32(ids[t] - 3))
    H[t] = h = g
return C, Y, H"""


def assert_round_trip(program: Program) -> None:
    text = print_program(program)
    assert parse_program(text, {c.name: c.data for c in program.constants}) == program, text
    assert all(len(line) <= WIDTH for line in text.splitlines()), text


def test_example_prints_as_it_reads():
    assert print_program(parse_program(EXAMPLE)) == EXAMPLE


@pytest.mark.parametrize("options", [{}, {"differentiable": True}])
def test_random_programs_parse_back_to_themselves(options):
    for seed in share_of(range(400)):
        assert_round_trip(random_program(seed, **options))


def random_expr(rng: random.Random, dtype: dtypes.DType, depth: int) -> Expr:
    """Any well-typed expression: what the generator of programs would never write, too."""
    kind = rng.random()
    if depth == 0 or kind < 0.2:
        if dtype.is_bool:
            return rng.choice((Const(rng.random() < 0.5, dtype), Access("bool_", (), dtype)))
        if rng.random() < 0.4:
            return Access(f"x_{dtype}", (random_expr(rng, dtypes.int64, depth - 1 if depth else 0),) if depth else (), dtype)
        if dtype.is_float:
            return Const(rng.choice((0.0, -0.0, 1.0, -2.5, 0.1, 1e-7, 6e4, math.inf, -math.inf, math.nan)), dtype)
        return Const(rng.choice((0, 1, dtype.greatest, dtype.least)), dtype)
    if kind < 0.35:
        return Cast(dtype, random_expr(rng, rng.choice(dtypes.DTYPES), depth - 1))
    ops = [op for op in OPS.values() if (dtype.is_bool if op.result == "bool" else op.accepts(dtype))]
    op = rng.choice(ops)
    operand = dtype if op.result == "same" else rng.choice([d for d in dtypes.DTYPES if op.accepts(d)])
    args = [random_expr(rng, operand, depth - 1) for _ in range(op.arity)]
    if op.name == "where":
        args[0] = random_expr(rng, dtypes.bool_, depth - 1)
    return apply(op.name, *args)


def test_random_expressions_parse_back_to_themselves():
    rng = random.Random(7)
    tensors = {f"x_{d}": d for d in dtypes.DTYPES} | {"bool_": dtypes.bool_}
    for _ in share_of(range(3000)):
        dtype = rng.choice(dtypes.DTYPES)
        expr = random_expr(rng, dtype, 4)
        for context in (None, dtype):
            assert parse_expr(print_expr(expr, context), tensors, context) == expr, print_expr(expr, context)
        definition = Define("y", (), expr)
        program = Program(tuple(Input(n, TensorType((), d)) for n, d in tensors.items()), (), (definition,), ("y",))
        assert parse_program(print_program(program)) == program


X = {"x": dtypes.float32, "k": dtypes.int64, "b": dtypes.bool_, "h": dtypes.float16}


@pytest.mark.parametrize(
    "text",
    [
        "x[i] * (x[j] + 2.0)",
        "x[i] - (x[j] - x[k[0]])",
        "-x[i] ** 2.0",
        "(-x[i]) ** 2.0",
        "(-2.0) ** x[i]",
        "x[0] ** x[1] ** x[2]",
        "(x[0] ** x[1]) ** x[2]",
        "neg(2.0) * x[i]",
        "x[i] - -1.0",
        "f32(k[i] + 2)",
        "f32(f64(2.0)) * x[i]",
        "f32(i64(2))",
        "f32(2.0)",
        "f32(bool(True))",
        "h[i] * 0.1",
        "(i + 1) // 2 % 3 - i // (j * 2)",
        "b[0] and (b[1] or b[2]) and not b[3]",
        "not (b[0] and b[1])",
        "b[0] and (b[1] and b[2])",
        "(k[0] & 3) << 1 | ~k[1]",
        "k[0] & 3 << 1",
        "(i < j) == b[0]",
        "b[0] ^ (i < j)",
        "where(i < 3 and x[i] > 0.5, x[i], nan)",
        "x[()]",
        "f16(x[i] + f32(h[i]))",
        "sum(x[i] for i in range(3) for j in range(i, 4) if j != 2)",
        "sum(x[0] for () in [()] if b[0])",
        "argmax(max(x[j] for j in range(i)) for i in range(3))",
        "all(isnan(x[i]) for i in range(3)) or any(b[i] for i in range(0))",
        "-9223372036854775808 + i",
    ],
)
def test_parentheses_and_literals_are_as_few_as_python_allows(text):
    expr = parse_expr(text, X)
    assert print_expr(expr) == text
    assert parse_expr(print_expr(expr), X) == expr


def test_literals_take_the_dtype_beside_them():
    expr = parse_expr("x[i] * 2.0 + h_[i] * 3", {"x": dtypes.float64, "h_": dtypes.float64})
    literals = [a.args[1] for a in expr.args]
    assert literals == [Const(2.0, dtypes.float64), Const(3.0, dtypes.float64)]
    assert print_expr(Const(2.0, dtypes.float32)) == "f32(2.0)"
    assert print_expr(Const(2.0, dtypes.float32), dtypes.float32) == "2.0"
    assert print_expr(Const(0.1, dtypes.float16), dtypes.float16) == "0.1"
    assert print_expr(Const(3, dtypes.uint8)) == "u8(3)"


def test_long_definitions_break_inside_brackets():
    total = parse_expr("x[i]", X)
    for number in range(12):
        total = apply("add", total, parse_expr(f"sum(x[i * {number} + kk] * x[kk] for kk in range({number + 1}))", X))
    text = print_definition(Define("Y", (), total))
    assert text.splitlines()[:3] == ["Y: f32 = (", "    x[i]", "    + sum(x[i * 0 + kk] * x[kk] for kk in range(1))"]
    assert text.splitlines()[-1] == ")"
    product = Reduce(Combiner("sum"), (total,), ())
    assert print_definition(Define("Y", (), product)).splitlines()[0] == "Y: f32 = sum("


def test_statements_are_as_wide_as_asked_for():
    program = parse_program(EXAMPLE)
    wide, narrow = print_program(program, 10_000), print_program(program, 40)
    assert len(wide.splitlines()) == len(EXAMPLE.splitlines()) < len(narrow.splitlines())
    assert parse_program(wide) == parse_program(narrow) == program


def test_constants_print_their_data_or_its_digest():
    small = Constant("a", np.array([[0.1, 2], [np.nan, -0.0]], "float32"))
    large = Constant("b", np.arange(100, dtype="int8").reshape(4, 25))
    empty, scalar = Constant("c", np.zeros((3, 0))), Constant("d", np.array(True))
    program = Program((), (small, large, empty, scalar), (), ("b",))
    text = print_program(program)
    assert text.splitlines() == [
        "a: f32[2, 2] = constant([[0.1, 2.0], [nan, -0.0]])",
        f'b: i8[4, 25] = constant("{digest(large.data)}")',
        "c: f64[3, 0] = constant([[], [], []])",
        "d: bool = constant(True)",
        "return b",
    ]
    assert parse_program(text, {"b": large.data}) == program
    with pytest.raises(DefinitionError, match=r"expected data with digest sha256:\w+, got sha256:\w+"):
        parse_program(text, {"b": large.data + 1})
    with pytest.raises(DefinitionError, match="expected the data of b in constants, got none"):
        parse_program(text)


def test_a_broken_definition_still_prints():
    define = Define("Y", (parse_program("Y[i]: f32[3] = 1.0\nreturn Y").definitions[0].axes[0],), Index("q"))
    assert print_definition(define) == "Y[i]: i64[3] = q"
    assert "Y[i(1)]" in print_definition(Define("Y", (type(define.axes[0])("i", const(1), const(3)),), const(0)))


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("A: f32[3] = input(\nreturn A", "expected the text of a program, got a syntax error: ", "line 1"),
        ("A: f32[3] = input()", "expected a return with the outputs, got the end of the text", "line 2, column 1"),
        ("return A\nA: f32 = input()", "expected nothing after the return, got A: f32 = input()", "line 2, column 1"),
        ("A: f33[3] = input()\nreturn A", "expected a type such as f32\\[64, 32\\], got f33\\[3\\]", "line 1, column 4"),
        ("C[i]: f32[3] = A[i]\nreturn C", "expected a tensor defined before, got A", "line 1, column 16"),
        ("C[i]: i64[3] = i + j\nreturn C", "expected an index or a size, got the unknown name j", "line 1, column 20"),
        ("C[i]: i64[n] = i\nreturn C", "expected an index or a size, got the unknown name n", "line 1, column 11"),
        ("C[i]: i64[3, 4] = i\nreturn C", "expected 2 indices for the axes of C, got 1", "line 1, column 1"),
        ("C[i]: f32[3] = i\nreturn C", "expected a value of float32, got int64", "line 1, column 16"),
        ("C[i]: u8[3] = 300\nreturn C", "expected a literal of uint8, got 300", "line 1, column 15"),
        ("C[i]: f32[3] = 1" + "0" * 400 + "\nreturn C", "expected a literal of float32, got 2\\^1328 or more", "line 1, column 16"),
        ("C[i]: f32[3] = foo(0x" + "f" * 9000 + ")[1:]\nreturn C", "got a number of thousands of digits", "line 1, column 16"),
        ("C[i]: i8[3] = 1.5\nreturn C", "expected a literal of int8, got 1.5", "line 1, column 15"),
        ("C[i]: bool[3] = 1.0 < 2.0\nreturn C", "expected a literal with a dtype, got 1.0 with nothing beside it", "line 1, column 17"),
        ("C[i]: f32[3] = f32(i) + f64(i)\nreturn C", "add: expected operands of one dtype, got float32 and float64", "column 16"),
        ("C[i]: f32[3] = log10(1.0)\nreturn C", "expected an operation, a reduction or a dtype, got log10", "line 1, column 16"),
        ("C[i]: f32[3] = 'a'\nreturn C", "expected an expression of the language, got 'a'", "line 1, column 16"),
        (
            "C[i]: f32[3] = sum(1.0 for k in items)\nreturn C",
            "expected range\\(stop\\) or range\\(start, stop\\), got items",
            "line 1, column 33",
        ),
        ("C[i]: bool[3] = 0 < i < 2\nreturn C", "expected an expression of the language, got 0 < i < 2", "line 1, column 17"),
        ("C[i]: i64[3] = i @ i\nreturn C", "expected an operator of the language, got i @ i", "line 1, column 16"),
        ("C[i + 1]: f32[3] = 1.0\nreturn C", "expected a name, got i \\+ 1", "line 1, column 3"),
        ("C = 1\nreturn C", "expected a definition such as C\\[i\\]: f32\\[4\\] = A\\[i\\] \\+ 1.0, got C = 1", "column 1"),
        (
            "C: f32 = reduce(1, 2)\nreturn C",
            "expected reduce\\(lambda a, b: ..., identity, \\(value for ...\\)\\), got reduce\\(1, 2\\)",
            "column 10",
        ),
        ("C: i64 = reduce(lambda a: a, 0, (k for k in range(3)))\nreturn C", "expected 2 parameters for 1 values, got 1", "column 17"),
        ("C: i64 = reduce(lambda a, b: (a, b), 0, (k for k in range(3)))\nreturn C", "expected 1 values, got 2", "column 30"),
        (
            "C: f32[3] = scatter([1])\nreturn C",
            "expected scatter\\({indices: value for ...}\\), got scatter\\(\\[1\\]\\)",
            "line 1, column 13",
        ),
        (
            "C: f32[3] = scatter({k: 1.0 for k in range(3)}, mode='sum')\nreturn C",
            "expected only the options combine and lowering, got ",
            "column 13",
        ),
        ("W: f32[3] = constant([1.0])\nreturn W", "expected 3 values, got 1", "line 1, column 22"),
        ("W: f32[0, 4611686018427387904, 4] = constant([])\nreturn W", "expected a shape of an array, got f32\\[0, ", "line 1, column 46"),
        ("W: f32[1] = constant(exp(1.0))\nreturn W", "expected a literal of float32, got exp\\(1.0\\)", "line 1, column 22"),
        ("W: f32[1] = constant()\nreturn W", "expected constant\\(data\\) of a fixed shape, got W: ", "line 1, column 1"),
        (
            "A: f32 = input()\nfor t in A:\n    s: f32 = state(A)\nreturn A",
            "expected a scan over range\\(length\\), got A",
            "line 2, column 10",
        ),
        (
            "A: f32 = input()\nfor t in range(3):\n    s: f32 = state()\nreturn A",
            "expected state\\(tensor\\), got s: f32 = state\\(\\)",
            "line 3",
        ),
        (
            "A: f32 = input()\nfor t in range(3):\n    s: f32 = state(A)\nreturn A",
            "expected one line X\\[t\\] = state = next for each state, in their order",
            "2",
        ),
        (
            "A: f32 = input()\nfor t in range(3):\n    s: f32 = state(A)\n    H = s\nreturn A",
            "expected X\\[t\\] = state = next, got H = s",
            "line 4",
        ),
        ("C: f32[2] = sum(1.0 for k in range(4, step=2))\nreturn C", "expected range without options, got step", "line 1, column 30"),
        ("C[k]: f32[2] = exp(1.0, out=k)\nreturn C", "expected exp without options, got out", "line 1, column 16"),
        ("A: f32[2] = input(3)\nreturn A", "expected input\\(\\), got input\\(3\\)", "line 1, column 13"),
        ("C: f32 = sum(1.0 async for k in range(4))\nreturn C", "expected for, got async for", "line 1, column 28"),
        (
            "A: f32 = input()\nfor t in range(3):\n    s: f32 = state(A)\n    H[t] = s = s\nelse:\n    B: f32 = 1.0\nreturn A",
            "expected a scan without else, got B: f32 = 1.0",
            "line 6",
        ),
    ],
)
def test_bad_text_is_refused_with_line_and_column(text, message, place):
    with pytest.raises(DefinitionError, match=message) as caught:
        parse_program(text)
    assert place in caught.value.at


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_the_greatest_and_least_numbers_print_without_a_warning(name):
    dtype = dtypes.dtype(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        largest = Const(float(ml_dtypes.finfo(dtype.numpy).max), dtype)
        for number in (largest, Const(-largest.value, dtype)):
            assert math.isfinite(number.value) and Const(float(literal(number)), dtype) == number
        assert Const(1e39, dtypes.float32).value == math.inf
