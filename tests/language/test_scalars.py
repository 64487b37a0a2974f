"""Operators and functions against NumPy: dtypes for every pair of dtypes, values, and what a scalar is not."""

import math
import operator

import numpy as np
import pytest

import tensorexpr
from tensorexpr import dtypes
from tensorexpr import language as te
from tensorexpr.errors import DefinitionError
from tensorexpr.ops import OPS, scalar_evaluate

NUMPY_DTYPES = [d for d in dtypes.DTYPES if d is not dtypes.bfloat16]
BINARY = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
    "**": operator.pow, "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def value(body):
    return te.evaluate(te.compute((), body))[()]


def met(x, y):
    """NumPy scalars of which an integer or bool has the dtype of a float beside it: it never widens one."""
    kinds = [v.dtype.kind == "f" for v in (x, y)]
    return (x, y.astype(x.dtype)) if kinds == [True, False] else (x.astype(y.dtype), y) if kinds == [False, True] else (x, y)


def test_every_operation_that_is_no_operator_is_a_function_of_the_language():
    assert {op.name for op in OPS.values() if op.infix is None} - {"recompute"} <= set(te.__all__)  # te.checkpoint makes those
    assert set(te.__all__) <= set(tensorexpr.__all__)


@pytest.mark.parametrize("symbol", BINARY)
def test_operators_promote_and_compute_as_numpy(symbol):
    function = BINARY[symbol]
    for a in NUMPY_DTYPES:
        for b in NUMPY_DTYPES:
            x, y = a.numpy.type(7 if not a.is_bool else 1), b.numpy.type(3 if not b.is_bool else 1)
            try:
                with np.errstate(all="ignore"):
                    expected = function(*(np.array([v]) for v in met(x, y)))[0]
            except TypeError:
                with pytest.raises(DefinitionError):
                    value(lambda x=x, y=y: function(te.cast(x, x.dtype), y))
                continue
            found = value(lambda x=x, y=y: function(te.cast(x, x.dtype), y))
            assert found.dtype == expected.dtype and found == expected, (symbol, a.name, b.name)


@pytest.mark.parametrize("symbol", BINARY)
def test_python_numbers_are_weak_as_in_numpy(symbol):
    function = BINARY[symbol]
    for a in NUMPY_DTYPES:
        x = a.numpy.type(1)
        for number in (True, 3, 2.5):
            for order in (lambda s, t: (s, t), lambda s, t: (t, s)):
                try:
                    with np.errstate(all="ignore"):
                        expected = function(*order(np.array([x]), number))[0]
                except TypeError:
                    with pytest.raises(DefinitionError):
                        value(lambda x=x, n=number, order=order: function(*order(te.cast(x, x.dtype), n)))
                    continue
                found = value(lambda x=x, n=number, order=order: function(*order(te.cast(x, x.dtype), n)))
                assert found.dtype == expected.dtype and found == expected, (symbol, a.name, number)


FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "arcsin", "arccos",
    "arctan", "abs", "sign", "negative", "square", "floor", "ceil", "round", "trunc", "isnan", "isinf", "isfinite", "logical_not",
)  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_numpys_name_dtype_and_value(name):
    for d in NUMPY_DTYPES:
        if name == "round" and d.is_bool:
            continue  # NumPy makes it a float16; ours leaves it a bool, as its floor and ceil do
        x = d.numpy.type(0.75 if d.is_float else 1)
        try:
            expected = getattr(np, name)(np.array([x]))[0]
        except TypeError:
            with pytest.raises(DefinitionError):
                value(lambda x=x: getattr(te, name)(x))
            continue
        found = value(lambda x=x: getattr(te, name)(x))
        assert found.dtype == expected.dtype, (name, d.name)
        np.testing.assert_allclose(np.float64(found), np.float64(expected), rtol=1e-2 if d.itemsize <= 2 else 1e-6)


@pytest.mark.parametrize("name", ("minimum", "maximum", "arctan2", "power", "logical_and", "logical_or", "logical_xor"))
def test_functions_of_two_promote_as_numpy(name):
    for a in NUMPY_DTYPES:
        for b in NUMPY_DTYPES:
            x, y = a.numpy.type(1), b.numpy.type(0 if b.is_bool else 2)
            try:
                expected = getattr(np, name)(*(np.array([v]) for v in met(x, y)))[0]
            except TypeError:
                continue
            found = value(lambda x=x, y=y: getattr(te, name)(x, y))
            assert found.dtype == expected.dtype, (name, a.name, b.name)
            np.testing.assert_allclose(np.float64(found), np.float64(expected), rtol=1e-2)


SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -1.5, 1e30, -1e30, 1e-30, math.inf, -math.inf, math.nan)


def assert_same(found, expected, what):
    """The same numbers up to rounding, zeros of the same sign; one NaN is as good as another."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype, what
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=what)
    there = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[there], np.signbit(expected)[there], err_msg=what)


@pytest.mark.parametrize("dtype", [d for d in dtypes.DTYPES if d.is_float], ids=str)
def test_a_value_does_not_depend_on_what_it_is_computed_beside(dtype):
    """Number by number, for arrays, for arrays and a number: NumPy has short ways for some numbers; 16 bits as float32, rounded."""
    with np.errstate(all="ignore"):
        values = np.array(SPECIAL).astype(dtype.numpy)
    first, second = np.repeat(values, len(values)), np.tile(values, len(values))
    for name, op in OPS.items():
        if op.accepts(dtype) and name not in ("where", "recompute"):
            given = (values,) if op.arity == 1 else (first, second)
            with np.errstate(all="ignore"):
                found = op.evaluate(*given)
                assert_same(found, [op.evaluate(*point) for point in zip(*given, strict=True)], f"{name}: numbers")
                assert_same(found, [scalar_evaluate(op)(*point) for point in zip(*given, strict=True)], f"{name}: the interpreter")
                if op.arity == 2:
                    assert_same(found, np.stack([op.evaluate(values, v) for v in values], 1).ravel(), f"{name}: by a number")
                    assert_same(found, np.stack([op.evaluate(v, values) for v in values]).ravel(), f"{name}: of a number")
                if dtype.itemsize == 2 and name not in ("minimum", "maximum"):  # of zeros they may give either
                    wide = np.asarray(op.evaluate(*(v.astype(np.float32) for v in given)))
                    assert_same(found, wide if wide.dtype == bool else wide.astype(dtype.numpy), f"{name}: wide")


def test_a_power_is_no_square_root():
    values = np.array(SPECIAL)
    x = te.placeholder((len(values),), "float64", name="x")
    for exponent in (0.5, -0.5, 2.0, 3.0, 0.0):
        with np.errstate(all="ignore"):
            expected = np.power(values, np.full(len(values), exponent))
        assert_same(te.evaluate(te.compute(x.shape, lambda i, e=exponent: x[i] ** e), {x: values}), expected, str(exponent))


def test_other_functions():
    assert value(lambda: te.sigmoid(0.0)) == 0.5
    assert value(lambda: te.rsqrt(4.0)) == 0.5
    assert value(lambda: te.erf(np.float32(0.5))).dtype == np.float32
    assert value(lambda: te.clip(np.int32(7), 0, 5)) == 5
    assert value(lambda: te.clip(np.float32(-7), -1)) == -1
    assert value(lambda: te.clip(np.float32(7), None, 2)) == 2
    assert value(lambda: te.where(te.cast(1, "int32") > 0, np.float32(1), 2)).dtype == np.float32
    assert value(lambda: te.where(True, 1, 2.0)).dtype == np.float64
    assert value(lambda: te.cast(2.9, "int8")) == 2
    assert value(lambda: te.cast(-1.5, "uint8")) == 0
    assert value(lambda: te.cast(300, "uint8")) == 44
    assert value(lambda: te.cast(float("nan"), "int32")) == 0
    assert value(lambda: round(te.cast(2.5, "float32"))) == 2 and value(lambda: math.floor(te.cast(-2.5, "float64"))) == -3
    assert value(lambda: math.ceil(te.cast(3, "int8"))).dtype == np.int8 and value(lambda: math.trunc(te.cast(-2.5, "float64"))) == -2
    with pytest.raises(DefinitionError, match="expected to round to an integer value, got 2 digits"):
        round(te.dim("n") * 0.5, 2)
    assert np.isnan(value(lambda: te.maximum(float("nan"), 1.0)))
    assert value(lambda: divmod(te.cast(-7, "int64"), 3)[0]) == -3
    assert value(lambda: divmod(7, te.cast(-3, "int64"))[1]) == -2


def test_numpy_scalars_and_numpy_functions_on_scalars():
    assert value(lambda: np.float32(2) * te.cast(3, "float32")).dtype == np.float32
    assert value(lambda: np.int64(2) + te.cast(3, "int32")).dtype == np.int64
    assert value(lambda: np.array(2.0) - te.cast(3, "float32")).dtype == np.float64
    with pytest.raises(DefinitionError, match=r"expected a function of the language, got numpy\.exp"):
        np.exp(te.dim("n"))
    with pytest.raises(DefinitionError, match=r"expected a scalar, got an array of shape \(2,\)"):
        te.dim("n") + np.zeros(2)


def test_constants_alone_have_numpys_dtype():
    for number, name in ((True, "bool"), (1, "int64"), (1.0, "float64"), (np.float16(1), "float16"), (2**63, "uint64")):
        assert te.compute((3,), lambda i, number=number: number).dtype.name == name
    with pytest.raises(DefinitionError, match="expected an integer of at most 64 bits, got 18446744073709551616"):
        te.compute((), lambda: 2**64)


def test_bfloat16():
    x = te.placeholder((2,), "bfloat16")
    assert te.compute((2,), lambda i: x[i] * 2.0).dtype is dtypes.bfloat16
    assert te.compute((2,), lambda i: x[i] * np.float16(2)).dtype is dtypes.float32
    assert te.compute((2,), lambda i: te.exp(x[i])).dtype is dtypes.bfloat16


def test_a_scalar_has_no_python_value():
    def message(use):
        with pytest.raises(DefinitionError) as caught:
            te.compute((4,), use)
        return str(caught.value)

    text = message(lambda i: 1.0 if i > 2 else 0.0)
    assert "expected a Python truth value, got an expression of the language, which has no value until it runs" in text
    assert "in:   i > 2 (" in text and __file__ in text
    assert "te.where(condition, a, b)" in text and "(a <= i) & (i < b)" in text
    assert "expected a Python truth value" in message(lambda i: 1.0 if 0 <= i < 3 else 0.0)
    assert "expected a Python truth value" in message(lambda i: 1.0 if i == 3 else 0.0)
    assert "expected a Python int" in message(lambda i: int(i))
    assert "expected a Python int" in message(lambda i: list(range(i)))
    assert "expected a Python float" in message(lambda i: float(i))
    assert "expected something to iterate over" in message(lambda i: [*i])
    assert "expected something with a length" in message(lambda i: len(i))
    assert "expected something to look into" in message(lambda i: 3 in i)
    assert "expected a tensor to index" in message(lambda i: i[0])
    assert "expected an array" in message(lambda i: np.asarray(i))


def test_sizes_that_are_equal_by_form_are_true():
    n, m = te.dim("n"), te.dim("m")
    assert n == te.dim("n") and n + 1 > n and n + 1 != n and (n + m) * 2 == 2 * m + 2 * n
    assert te.placeholder((n, 3)).shape == te.placeholder((te.dim("n"), 3)).shape
    with pytest.raises(DefinitionError, match="expected a Python truth value"):
        bool(n == m)
    assert len({n: 1, m: 2}) == 2


def test_python_integers_that_do_not_fit():
    x = te.placeholder((3,), "uint8")
    with pytest.raises(DefinitionError, match="expected a Python integer that fits uint8, got 300"):
        te.compute((3,), lambda i: x[i] + 300)
    found = te.evaluate(te.compute((3,), lambda i: (x[i] < 300) & (x[i] > -1)), {x: np.zeros(3, np.uint8)})
    assert found.all()


def test_operations_a_dtype_does_not_have():
    x = te.placeholder((3,), "float32", name="x")
    with pytest.raises(DefinitionError, match="and: expected logical operands, got float32") as caught:
        te.compute((3,), lambda i: x[i] & 1)
    assert __file__ in str(caught.value) and "in:   and(x[i], f32(1.0))" in str(caught.value)
    with pytest.raises(DefinitionError, match="where: expected a bool condition, got int64"):
        te.compute((3,), lambda i: te.where(i, 1, 0))
    with pytest.raises(DefinitionError, match="expected numbers to subtract, got bools"):
        te.compute((3,), lambda i: (x[i] > 0) - (x[i] < 0))
    with pytest.raises(DefinitionError, match="expected a power of an integer that is not negative, got -1"):
        te.compute((3,), lambda i: i**-1)
    with pytest.raises(DefinitionError, match="expected a scalar, got a str"):
        te.compute((3,), lambda i: x[i] + "1")
    with pytest.raises(DefinitionError, match="expected a scalar, got a complex"):
        te.compute((3,), lambda i: x[i] + 1j)
    with pytest.raises(DefinitionError, match="expected a dtype of the language, got 'complex64'") as caught:
        te.compute((3,), lambda i: te.cast(x[i], "complex64"))
    assert __file__ in str(caught.value)
    with pytest.raises(DefinitionError, match="expected a dtype of the language, got 'a,b'"):  # NumPy tries to read a record
        te.compute((3,), lambda i: te.cast(x[i], "a,b"))


def test_a_choice_of_python_floats_is_weak_as_they_are():
    x, h, k = (te.placeholder((4,), dtype, name=name) for name, dtype in (("x", "float32"), ("h", "float16"), ("k", "int32")))

    def made(value):
        return te.compute((4,), value, name="y")

    assert str(made(lambda i: te.where(x[i] > 0, 1.0, 0.5) * x[i])) == "y[i]: f32[4] = where(x[i] > 0.0, 1.0, 0.5) * x[i]"
    assert made(lambda i: (1 - te.where(h[i] > 0, 0.25, -te.where(h[i] < -1, 2, 0.5)) * 2) + h[i]).dtype.name == "float16"
    assert made(lambda i: te.where(k[i] > 0, 1.0, 0.5) * k[i]).dtype.name == "float64"
    assert made(lambda i: te.where(k[i] > 0, 1.0, 0.5)).dtype.name == "float64"
    assert made(lambda i: te.where(x[i] > 0, np.float64(1.0), 0.5) * x[i]).dtype.name == "float64"
    assert made(lambda i: te.where(k[i] > 0, 300, 2) * te.cast(k[i], "int8")).dtype.name == "int64"
