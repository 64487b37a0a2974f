"""The interpreter against NumPy written by hand, and the meanings that are easy to get wrong."""

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.errors import ArgumentError, OutOfBoundsError
from tensorexpr.interpret import evaluate_program, identity_of
from tensorexpr.ir import Access, Axis, Combiner, Define, Expr, Index, Input, Program, Reduce, TensorType, apply, const
from tensorexpr.ops import OPS, result_dtype
from tensorexpr.parse import parse_program
from tensorexpr.traversal import bottom_up, map_expressions, substitute
from tests.random_programs import assert_agrees, meaning, random_inputs, random_program, random_sizes
from tests.seeds import share_of


def run(text: str, sizes=None, **inputs) -> np.ndarray:
    """The single output of a program, checked to have the dtype its type says."""
    program = parse_program(text)
    [(name, result)] = evaluate_program(program, inputs, sizes).items()
    assert result.dtype == program.types[name].dtype.numpy
    return result


def value(text: str, dtype: str, **inputs) -> object:
    """The value of a 0-d expression."""
    header = "\n".join(f"{n}: {dtypes.dtype(a.dtype)}{list(a.shape) if a.ndim else ''} = input()" for n, a in inputs.items())
    return run(f"{header}\nR: {dtype} = {text}\nreturn R", **inputs)[()]


def grid(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 7 - 3).astype(dtype)


def test_matrix_product():
    a, b = grid(4, 5), grid(5, 3)
    text = """\
sizes(n, m)
A: f32[n, m] = input()
B: f32[m, 3] = input()
C[i, j]: f32[n, 3] = sum(A[i, k] * B[k, j] for k in range(m))
return C"""
    np.testing.assert_array_equal(run(text, A=a, B=b), a @ b)


def test_strided_convolution():
    x, w = grid(9), grid(3)
    text = "X: f32[9] = input()\nW: f32[3] = input()\nY[i]: f32[4] = sum(X[2 * i + k] * W[k] for k in range(3))\nreturn Y"
    np.testing.assert_array_equal(run(text, X=x, W=w), [x[2 * i : 2 * i + 3] @ w for i in range(4)])


def test_softmax():
    x = np.random.default_rng(0).standard_normal((3, 5))
    text = """\
X: f64[3, 5] = input()
M[i]: f64[3] = max(X[i, k] for k in range(5))
E[i, j]: f64[3, 5] = exp(X[i, j] - M[i])
Y[i, j]: f64[3, 5] = E[i, j] / sum(E[i, k] for k in range(5))
return Y"""
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(run(text, X=x), e / e.sum(1, keepdims=True), rtol=1e-15)


def test_dependent_extents_masks_and_nesting():
    x = grid(5, 5)
    text = "X: f32[5, 5] = input()\nY[i]: f32[5] = sum(max(X[l, k] for l in range(k, 5)) for k in range(i + 1) if k % 2 == 0)\nreturn Y"
    expected = [sum(x[k:, k].max() for k in range(i + 1) if k % 2 == 0) for i in range(5)]
    np.testing.assert_array_equal(run(text, X=x), expected)


def test_transposition_diagonal_reversal_and_flattening():
    x = grid(3, 4)
    text = "X: f32[3, 4] = input()\nY[i, j]: f32[4, 3] = X[2 - j, i] + X[j, j] + X[(i * 3 + j) // 4, (i * 3 + j) % 4]\nreturn Y"
    expected = x[::-1].T + np.diag(x)[None, :] + x.reshape(4, 3)
    np.testing.assert_array_equal(run(text, X=x), expected)


def test_only_the_branch_taken_is_evaluated():
    x = grid(4)
    text = "X: f32[4] = input()\nY[i]: f32[4] = where(i > 0, X[i - 1], 0.0)\nreturn Y"
    np.testing.assert_array_equal(run(text, X=x), [0, *x[:3]])


def test_integers_wrap_and_divide_toward_minus_infinity():
    x = np.array([127, -128, -7], "int8")
    assert value("X[0] + 1", "i8", X=x) == -128
    assert value("abs(X[1])", "i8", X=x) == -128
    assert (value("X[2] // 2", "i8", X=x), value("X[2] % 2", "i8", X=x)) == (-4, 1)
    assert (value("X[2] // (X[0] - X[0])", "i8", X=x), value("X[2] % (X[0] - X[0])", "i8", X=x)) == (0, 0)
    assert value("sum(X[k] for k in range(1))+ sum(X[0] for k in range(2))", "i8", X=x) == 125
    assert value("i64(9223372036854775807) + 1", "i64") == -(2**63)


def test_casts_are_total():
    x = np.array([3.9, -3.9, 1e30, np.nan, -np.inf], "float32")
    assert [value(f"i32(X[{k}])", "i32", X=x) for k in range(5)] == [3, -3, 2**31 - 1, 0, -(2**31)]
    assert [value(f"u8(X[{k}])", "u8", X=x) for k in range(5)] == [3, 0, 255, 0, 0]
    assert value("bool(X[3])", "bool", X=x) and value("i8(i64(300))", "i8") == 44


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_sums_are_carried_in_float32_and_rounded_once(dtype):
    kind = dtypes.dtype(dtype)
    x = np.full(5000, 1.0, kind.numpy)
    assert float(value("sum(X[k] for k in range(5000))", kind.short, X=x)) == float(np.float32(5000).astype(kind.numpy))
    big = np.array([300, 300, 0.5], kind.numpy) if dtype == "float16" else np.array([1e20, 1e-20, 1], kind.numpy)
    product = np.float32(big[0]) * np.float32(big[1]) * np.float32(big[2])
    assert value("prod(X[k] for k in range(3))", kind.short, X=big) == product.astype(kind.numpy)
    scattered = run(f"X: {kind.short}[5000] = input()\nY: {kind.short} = scatter({{(): X[k] for k in range(5000)}})\nreturn Y", X=x)
    assert scattered[()] == np.float32(5000).astype(kind.numpy)


def test_maxima_propagate_nan_and_ties_go_to_the_first():
    x = np.array([[1, 3, 3], [3, 0, 2]], "float32")
    assert value("argmax(X[i, j] for i in range(2) for j in range(3))", "i64", X=x) == 1
    assert value("argmin(X[i, j] for i in range(2) for j in range(3))", "i64", X=x) == 4
    assert value("argmax(X[i, j] for i in range(2) for j in range(3) if i > 0)", "i64", X=x) == 3
    assert value("argmax(X[0, j] for j in range(0))", "i64", X=x) == 0
    x[1, 1] = x[1, 2] = np.nan
    assert np.isnan(value("max(X[i, j] for i in range(2) for j in range(3))", "f32", X=x))
    assert value("argmax(X[i, j] for i in range(2) for j in range(3))", "i64", X=x) == np.argmax(x) == 4
    assert value("argmin(X[i, j] for i in range(2) for j in range(3))", "i64", X=x) == np.argmin(x) == 4
    least = np.full(3, -np.inf, "float32")
    assert value("argmax(X[j] for j in range(1, 3))", "i64", X=least) == 0


def test_reductions_over_nothing():
    for name, kind, expected in [
        ("sum", "f32", 0), ("prod", "f32", 1), ("max", "f32", -np.inf), ("min", "f64", np.inf), ("max", "i8", -128), ("min", "u8", 255),
    ]:  # fmt: skip
        assert value(f"{name}({kind}(k) for k in range(0))", kind) == expected == identity_of(name, dtypes.dtype(kind))
    assert value("all(k > 0 for k in range(0))", "bool") and not value("any(k > 0 for k in range(0))", "bool")


def test_user_combiners_fold_left_to_right_from_the_identity():
    x = np.array([2, 5, 5, 1], "float32")
    best = "reduce(lambda a, p, b, q: (where(b > a, b, a), where(b > a, q, p)), (f32(-inf), -1), ((X[k], k) for k in range(4){}))[{}]"
    assert value(best.format("", 0), "f32", X=x) == 5 and value(best.format("", 1), "i64", X=x) == 1
    assert value(best.format(" if k > 2", 1), "i64", X=x) == 3 and value(best.format(" if k > 3", 1), "i64", X=x) == -1
    # Composition of x -> a x + b, which does not commute.
    line = "reduce(lambda a, b, c, d: (a * c, b * c + d), (f32(1.0), f32(0.0)), ((X[k], f32(k)) for k in range(4)))[1]"
    state = 0.0
    for k in range(4):
        state = state * x[k] + k
    assert value(line, "f32", X=x) == state


def test_scatter_combines_in_row_major_order_and_keeps_the_identity_elsewhere():
    ids, x = np.array([2, 0, 2, 2]), np.array([1e8, 5, 1, -1e8], "float32")
    header = "ids: i64[4] = input()\nX: f32[4] = input()\n"
    got = run(header + "Y: f32[4] = scatter({ids[t]: X[t] for t in range(4)})\nreturn Y", ids=ids, X=x)
    np.testing.assert_array_equal(got, [5, 0, (np.float32(1e8) + np.float32(1)) - np.float32(1e8), 0])
    got = run(header + 'Y: f32[4] = scatter({ids[t]: X[t] for t in range(4) if t > 0}, combine="max")\nreturn Y', ids=ids, X=x)
    np.testing.assert_array_equal(got, [5, -np.inf, 1, -np.inf])


def test_scan_gives_the_states_after_each_step():
    x = grid(6, 2)
    text = """\
X: f32[6, 2] = input()
Z[i]: f32[2] = 0.0
N: i64 = 1
for t in range(6):
    s: f32[2] = state(Z)
    c: i64 = state(N)
    u[i]: f32[2] = s[i] + X[t, i] * f32(c[()])
    d: i64 = c[()] * 2
    H[t] = s = u
    K[t] = c = d
return H, K"""
    got = evaluate_program(parse_program(text), {"X": x})
    np.testing.assert_array_equal(got["H"], np.cumsum(x * (2.0 ** np.arange(6))[:, None], 0))
    np.testing.assert_array_equal(got["K"], 2 ** np.arange(1, 7))


def test_scans_nest_and_may_take_no_step():
    text = """\
sizes(n)
Z: i64 = input()
for t in range(3):
    s: i64 = state(Z)
    for u in range(n):
        p: i64 = state(s)
        q: i64 = p[()] + t
        Q[u] = p = q
    r: i64 = s[()] + sum(Q[k] for k in range(n))
    H[t] = s = r
return H"""
    for n in (0, 2):
        state, expected = 1, []
        for t in range(3):
            state += sum(state + t * (k + 1) for k in range(n))
            expected.append(state)
        np.testing.assert_array_equal(run(text, {"n": n}, Z=np.array(1)), expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Y[i]: f32[2] = X[ids[i]]", r"Y: expected 0 <= index < 3 on axis 0 of X, got 3\n  in:   X\[ids\[i\]\] \(<program>:3\)"),
        ("Y[i]: f32[2] = X[ids[i] - 3]", r"Y: expected 0 <= index < 3 on axis 0 of X, got -1"),
        (
            "Y: f32[3] = scatter({ids[k]: 1.0 for k in range(2)})",
            r"Y: expected 0 <= index < 3 on axis 0 of Y, got 3\n  in:   Y\[ids\[k\]\]",
        ),
        ("Y: f32[3] = scatter({ids[k] - 3: 1.0 for k in range(2)})", "Y: expected 0 <= index < 3 on axis 0 of Y, got -1"),
    ],
)
def test_an_index_that_leaves_its_tensor_is_an_index_error(text, message):
    header = "X: f32[3] = input()\nids: i64[2] = input()\n"
    with pytest.raises(IndexError, match=message) as caught:
        run(header + text + "\nreturn Y", X=grid(3), ids=np.array([2, 3]))
    assert isinstance(caught.value, OutOfBoundsError)


SIZED = "sizes(n, m)\nA: f32[2 * n + 1, m] = input()\nB: f32[n] = input()\nY[i, j]: f32[n, m - 2] = B[i]\nreturn Y"


def test_sizes_follow_from_shapes():
    assert run(SIZED, A=np.zeros((7, 4), "f"), B=np.zeros(3, "f")).shape == (3, 2)
    assert run("sizes(n)\nY[i]: i64[n] = i\nreturn Y", {"n": 3}).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("arrays", "sizes", "message"),
    [
        ({"A": np.zeros((7, 4), "f")}, None, r"B: expected an array for f32\[n\], got none"),
        ({"A": np.zeros((7, 4), "f"), "B": np.zeros(2, "f")}, None, r"B: expected extent 3 \(where n = 3\) on axis 0, got 2"),
        ({"A": np.zeros((6, 4), "f"), "B": np.zeros(2, "f")}, None, r"A: expected extent 5 \(where n = 2\) on axis 0, got 6"),
        ({"A": np.zeros(7, "f"), "B": np.zeros(2, "f")}, None, "A: expected 2 axes, got 1"),
        ({"A": np.zeros((7, 4)), "B": np.zeros(3, "f")}, None, "A: expected dtype float32, got float64"),
        ({"A": np.zeros((7, 4), "f"), "B": np.zeros(3, "f")}, {"m": 5}, r"A: expected extent 5 \(where m = 5\) on axis 1, got 4"),
        ({"A": np.zeros((7, 1), "f"), "B": np.zeros(3, "f")}, None, "Y: expected an extent of at least 0 on axis 1, got -1"),
        ({"A": np.zeros((7, 1), "f"), "B": np.zeros(3, "f")}, {"n": -1}, "n: expected a size of at least 0, got -1"),
    ],
)
def test_wrong_arguments_name_both_sides(arrays, sizes, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        run(SIZED, sizes, **arrays)
    assert caught.value.location.file == __file__


def test_a_size_that_nothing_fixes_must_be_given():
    with pytest.raises(ArgumentError, match="n: expected a value for this size, got none"):
        run("sizes(n)\nY[i]: i64[n] = i\nreturn Y")


@pytest.mark.parametrize("op", list(OPS.values()), ids=lambda op: op.name)
def test_operations_give_scalars_of_the_dtype_they_promise(op):
    for dtype in filter(op.accepts, dtypes.DTYPES):
        operands = (dtypes.bool_, dtype, dtype) if op.name == "where" else (dtype,) * op.arity
        names = ("a", "b", "c")[: op.arity]
        accesses = tuple(Access(n, (), d) for n, d in zip(names, operands, strict=True))
        inputs = tuple(Input(n, TensorType((), d)) for n, d in zip(names, operands, strict=True))
        program = Program(inputs, (), (Define("y", (), apply(op.name, *accesses)),), ("y",))
        arrays = [np.array(v, d.numpy) for v, d in zip((1, 0, 1), operands, strict=False)]
        got = evaluate_program(program, dict(zip(names, arrays, strict=True)))["y"]
        with np.errstate(all="ignore"):
            expected = op.evaluate(*(a[()] for a in arrays))
        result = result_dtype(op, operands)
        assert got.dtype == np.asarray(expected).dtype == result.numpy
        as_float = np.float64 if result.is_float else result.numpy  # NumPy's comparison does not know bfloat16's NaN
        np.testing.assert_array_equal(got.astype(as_float), np.asarray(expected).astype(as_float))


def test_random_programs_evaluate_without_an_index_leaving_its_tensor():
    for seed in share_of(range(400)):
        program = random_program(seed)
        outputs = evaluate_program(program, random_inputs(program, seed, sizes=random_sizes(program, seed, least=1)))
        assert set(outputs) == set(program.outputs)


def test_sums_in_another_order_stay_within_their_bounds():
    """Reversing every reduction's axis leaves results within what the reference says, which is nothing for small integers."""

    def reverse(expr: Expr) -> Expr:
        if not isinstance(expr, Reduce) or expr.combiner.name not in ("sum", "prod"):
            return expr
        axis = expr.axes[0]
        mirrored = apply("sub", apply("sub", apply("add", axis.start, axis.stop), const(1)), Index(axis.index))
        turn = {axis.index: mirrored}
        rest = tuple(Axis(a.index, substitute(a.start, turn), substitute(a.stop, turn)) for a in expr.axes[1:])
        where = None if expr.where is None else substitute(expr.where, turn)
        values = tuple(substitute(v, turn) for v in expr.values)
        return Reduce(Combiner(expr.combiner.name), values, (axis, *rest), where)

    for seed in share_of(range(200)):
        program = random_program(seed)
        changed = Program(
            program.inputs, program.constants, tuple(map_expressions(d, lambda e: bottom_up(e, reverse)) for d in program.definitions),
            program.outputs, program.sizes,
        )  # fmt: skip
        sizes = random_sizes(program, seed)
        arrays = random_inputs(program, seed, sizes=sizes)
        expected = meaning(program, arrays, sizes)
        if expected is not None:
            assert_agrees(program, evaluate_program(changed, arrays, sizes), expected, seed)
