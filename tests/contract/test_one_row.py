"""An operation that is made of others is one function, with its formula above it: all else follows from the row that this makes."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.autodiff.local.derivatives import scalings
from tensorexpr.codegen.cuda.thread import operations
from tensorexpr.codegen.cuda.thread.values import Value
from tensorexpr.dtypes import float16, float32, float64
from tensorexpr.language.core.scalar import Scalar, unary_float
from tensorexpr.language.definitions.functions import made_of
from tensorexpr.ops import OPS

X = np.array([-3.0, -0.5, 0.0, 0.25, 7.0, -0.0, 1e4])


def softsign(x) -> Scalar:
    """x / (1 + |x|)."""
    return unary_float("softsign", x)


def meaning(x):
    wide = np.asarray(x, np.float32 if np.result_type(x) == np.float16 else np.result_type(x))
    return (wide / (1 + np.abs(wide))).astype(np.result_type(x))[()]


@pytest.fixture(autouse=True)
def row():
    made_of("a / (1 + abs(a))", slopes=["t / ((1 + abs(a)) * (1 + abs(a)))"])(softsign)
    yield
    del OPS["softsign"]


def graph(dtype):
    x, head = te.placeholder(X.shape, dtype, name="x"), te.placeholder(X.shape, dtype, name="head")
    y = te.compute(X.shape, lambda i: softsign(x[i]), name="y")
    return x, head, y


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_it_is_compiled(dtype):
    x, _, y = graph(dtype)
    data = X.astype(dtype)
    np.testing.assert_array_equal(te.build(y, [x])(data), meaning(data))
    np.testing.assert_array_equal(te.evaluate(y, {x: data}), meaning(data))


def test_it_is_differentiated():
    x, head, y = graph("float64")
    assert len(scalings(OPS["softsign"])) == 1
    (slope,) = te.gradient(y, [x], head)
    found = te.build(slope, [x, head])(X, np.ones_like(X))
    np.testing.assert_allclose(found, 1 / (1 + np.abs(X)) ** 2, rtol=1e-15)


@pytest.mark.parametrize(
    "dtype, text",
    [
        (float64, "x / (1.0 + fabs(x))"),
        (float32, "x / (1.0f + fabsf(x))"),
        (float16, "te_round_f16(x / (1.0f + fabsf(x)))"),
    ],
)
def test_it_is_said_in_cuda(dtype, text):
    assert operations.apply("softsign", dtype, [Value("x", dtype)]).text == text


def test_it_prints_and_is_read_back():
    x, _, y = graph("float32")
    text = str(te.program_of([y], [x]))
    assert "softsign(x[i])" in text and str(te.parse_program(text)) == text
    assert r"\operatorname{softsign}" in te.latex(y)


def test_it_goes_out_to_onnx():
    onnx = pytest.importorskip("tensorexpr.interop.onnx", reason="onnx is not installed")
    reference = pytest.importorskip("onnx.reference")

    @te.function
    def f(x):
        return te.compute(x.shape, lambda i: softsign(x[i]))

    model = onnx.to_onnx(f, X.astype(np.float32))
    (found,) = reference.ReferenceEvaluator(model).run(None, {model.graph.input[0].name: X.astype(np.float32)})
    np.testing.assert_allclose(found, meaning(X.astype(np.float32)), rtol=1e-6)
