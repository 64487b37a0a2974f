"""Tensors, shapes and `te.compute`: what they are, and what is refused with which words."""

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr import language as te
from tensorexpr.errors import DefinitionError, TensorExprError
from tests.language.messages import refused

x = te.placeholder((10,), name="x")
A = te.placeholder((4, 5), name="A")


def test_placeholders_have_shape_dtype_and_name():
    n = te.dim("n")
    t = te.placeholder((n, 3, n * 2 + 1), "int8", name="T")
    assert t.ndim == 3 and t.dtype is dtypes.int8 and t.name == "T"
    assert t.shape[1] == 3 and isinstance(t.shape[1], int)
    assert t.shape[2] == 2 * n + 1 and repr(t.shape[2]) == "n * 2 + 1"
    assert repr(t) == "T: i8[n, 3, n * 2 + 1]"
    assert te.placeholder(7).shape == (7,) and te.placeholder(()).shape == () and te.placeholder((0, 2)).shape == (0, 2)
    assert te.placeholder((2,)).dtype is dtypes.float32
    assert te.placeholder((2,), np.float64).dtype is dtypes.float64
    a, b = A.shape
    assert (a, b) == (4, 5)


def test_dtypes_compare_with_names():
    assert A.dtype == "float32" and A.dtype == np.float32 and A.dtype == np.dtype("f4") and A.dtype == "f32" and A.dtype != "float64"
    assert A.dtype != None and A.dtype != "no dtype" and A.dtype != dtypes.float64  # noqa: E711
    assert {dtypes.float32: 1}["float32"] == 1 and str(A.dtype) == "f32" and A.dtype.name == "float32"


def test_extents_are_expressions_of_sizes():
    n, m, h, r = map(te.dim, "nmhr")
    t = te.placeholder((n + 1, (h - r) // 2 + 1, n * m, 2 * n - 3))
    assert repr(t).endswith("f32[n + 1, (h - r) // 2 + 1, n * m, n * 2 - 3]")


def test_constants_are_read_only_copies():
    data = np.arange(6.0).reshape(2, 3)
    c = te.constant(data, name="c")
    data[0, 0] = 100
    assert c.data[0, 0] == 0 and not c.data.flags.writeable and c.shape == (2, 3) and c.dtype is dtypes.float64
    assert te.constant(np.zeros(3, ">f4")).data.dtype == np.float32
    assert te.constant(3).dtype is dtypes.int64 and te.constant([True]).dtype is dtypes.bool_
    assert (te.evaluate(te.compute((3, 2), lambda i, j: c[j, i]), {}) == te.constant(c.data.T).data).all()
    assert "expected a dtype of the language, got complex128" in refused(lambda: te.constant(np.zeros(2, complex)))
    assert "te.constant: expected an array, got something that is none" in refused(lambda: te.constant([[1, 2], [3]]))
    assert "te.constant: expected an array, got a value of the language" in refused(lambda: te.constant(x))


def test_bad_shapes():
    for shape, message in (
        ((2, -1), "te.placeholder: expected extents that are not negative, got -1"),
        ((2.0,), "te.placeholder: expected extents that are integers, got 2.0"),
        ((True,), "te.placeholder: expected extents that are integers, got True"),
        (None, "te.placeholder: expected extents that are integers, got None"),
        ("n", "te.placeholder: expected extents that are integers, got 'n'"),
    ):
        text = refused(lambda shape=shape: te.placeholder(shape))
        assert message in text and __file__ in text
    assert "te.compute: expected extents, got the tensor x" in refused(lambda: te.compute(x, lambda i: x[i]))
    assert te.placeholder(np.array([2, 3])).shape == (2, 3)
    assert "te.placeholder: expected an integer of 64 bits, got 9223372036854775808" in refused(lambda: te.placeholder(2**63))
    assert "expected extents made of integers and sizes, got i64(x[0])" in refused(lambda: te.placeholder((te.cast(x[0], "int64"),)))
    assert "expected a dtype of the language, got 'float128'" in refused(lambda: te.placeholder((2,), "float128"))
    assert "expected a dtype of the language, got <class 'complex'>" in refused(lambda: te.placeholder((2,), complex))


def test_names_are_identifiers():
    assert "te.placeholder: expected a name that is a Python identifier, got 'my tensor'" in refused(
        lambda: te.placeholder(2, name="my tensor")
    )
    assert "te.dim: expected a name that is a Python identifier, got 'for'" in refused(lambda: te.dim("for"))
    assert "te.dim: expected a name that is a Python identifier, got 'inf'" in refused(lambda: te.dim("inf"))
    assert "te.compute: expected a name that is a Python identifier, got 3" in refused(lambda: te.compute(2, lambda i: i, name=3))


def test_parameters_name_the_axes():
    assert repr(te.compute((4, 5), lambda row, col: A[row, col], name="C")) == "C[row, col]: f32[4, 5] = A[row, col]"
    assert repr(te.compute((4, 5), lambda *idx: A[idx], name="C")) == "C[i0, i1]: f32[4, 5] = A[i0, i1]"
    assert repr(te.compute((4, 5), lambda i, *rest: A[i, rest[0]], name="C")) == "C[i, i1]: f32[4, 5] = A[i, i1]"
    assert repr(te.compute((4, 5), lambda _, j: A[0, j], name="C")) == "C[i0, j]: f32[4, 5] = A[0, j]"
    assert repr(te.compute((), lambda: 1.5, name="C")) == "C: f64 = 1.5"
    tensors = [te.compute(3, lambda i, scale=scale: i * scale) for scale in (1, 2)]
    assert te.evaluate(tensors[1])[2] == 4


def test_names_never_shadow():
    n = te.dim("n")
    t = te.placeholder((n, n), name="T")
    assert repr(te.compute((n, n), lambda n, i: t[n, i], name="C")) == "C[n_1, i]: f32[n, n] = T[n_1, i]"
    assert repr(te.compute((n,), lambda i: te.sum(lambda i: t[i, i], n), name="C")) == "C[i]: f32[n] = sum(T[i_1, i_1] for i_1 in range(n))"
    twice = te.compute((n,), lambda i: te.sum(lambda k: t[i, k], n) + te.sum(lambda k: t[k, i], n), name="C")
    assert repr(twice) == "C[i]: f32[n] = sum(T[i, k] for k in range(n)) + sum(T[k_1, i] for k_1 in range(n))"


def test_a_shared_part_keeps_its_indices():
    def body(i):
        total = te.sum(lambda k: A[i, k], 5)
        return total * total

    assert repr(te.compute(4, body, name="C")) == "C[i]: f32[4] = sum(A[i, k] for k in range(5)) * sum(A[i, k] for k in range(5))"


def test_indices_do_not_escape():
    kept = []
    te.compute(10, lambda i: kept.append(i) or x[i])
    assert "expected indices of this definition, got i, which belongs to another definition or reduction" in refused(
        lambda: te.compute(10, lambda i: x[kept[0]])
    )
    inner = []
    assert "got k, which belongs to another" in refused(
        lambda: te.compute(4, lambda i: te.sum(lambda k: inner.append(k) or A[i, k], 5) * inner[0])
    )
    # An inner definition that uses an outer index is refused too, not captured by its own index of the same name.
    assert "got i, which belongs to another" in refused(lambda: te.compute(4, lambda i: (lambda o: te.compute(5, lambda i: A[o, i]))(i)[0]))


def test_a_definition_inside_another():
    row = te.compute(4, lambda i: te.compute(5, lambda j: A[0, j] * 2.0, name="inner")[i], name="outer")
    a = np.arange(20, dtype=np.float32).reshape(4, 5)
    assert (te.evaluate(row, {A: a}) == 2 * a[0, :4]).all()


def test_a_scalar_made_outside():
    first = x[0] * 2.0
    t = te.compute(3, lambda i: x[i] - first)
    assert (te.evaluate(t, {x: np.arange(1, 11, dtype=np.float32)}) == [-1, 0, 1]).all()


def test_tuples():
    low, high = te.compute(10, lambda i: (te.minimum(x[i], 0.0), x[i] > 0), name="part")
    assert (low.name, high.name) == ("part_0", "part_1") and high.dtype is dtypes.bool_
    low, high = te.compute(10, lambda i: (x[i], x[i]), name=("a", "b"))
    assert (low.name, high.name) == ("a", "b")
    assert te.compute(10, lambda i: (x[i],))[0].ndim == 1
    assert "te.compute: expected 1 names, one per result, got 2" in refused(lambda: te.compute(10, lambda i: (x[i],), name=("a", "b")))


def test_bodies_that_are_none():
    text = refused(lambda: te.compute(10, lambda i: None))
    assert "te.compute: expected the body to return a scalar, got None" in text and "return statement" in text
    assert "te.compute: expected a function of 1 index, got float" in refused(lambda: te.compute(10, 1.0))
    text = refused(lambda: te.compute(10, lambda i, j: x[i]))
    assert "te.compute: expected a function of 1 index, got one of 2 parameters" in text and "in:   lambda i, j: ..." in text
    assert "expected a function of 2 indices, got one of 1 parameter" in refused(lambda: te.compute((2, 2), lambda i: x[i]))
    assert "got one that needs the keyword k" in refused(lambda: te.compute(2, lambda i, *, k: x[i]))


def test_a_tensor_is_not_a_scalar():
    text = refused(lambda: te.compute(10, lambda i: x))
    assert "expected a scalar, got a Tensor" in text and "s[()] for a tensor without axes" in text
    for use, symbol in (
        (lambda: x + 1, "+"),
        (lambda: 2.0 * x, "*"),
        (lambda: -x, "-"),
        (lambda: x < 0, "<"),
        (lambda: x == 0, "=="),
    ):
        text = refused(use)
        assert f"{symbol}: expected scalars, got the tensor" in text and "; tensorexpr.kernels has" in text and __file__ in text
    text = refused(lambda: A @ A)
    assert "@: expected scalars, got the tensor" in text and "tensorexpr.kernels.matmul takes whole tensors" in text
    assert "numpy.exp: expected scalars, got the tensor x of 1 axis" in refused(lambda: np.exp(x))
    assert "expected something to iterate over, got the tensor x" in refused(lambda: list(x))
    assert "expected something with a length, got the tensor x" in refused(lambda: len(x))
    assert "expected a Python truth value, got the tensor x, which has none until it runs" in refused(lambda: bool(x))
    assert "expected an array, got the tensor x" in refused(lambda: np.asarray(x))
    assert x == x and x != A and {x: 1}[x] == 1


def test_tensors_are_not_written():
    def assign():
        x[0] = 1.0

    text = refused(assign)
    assert "expected an expression, got an assignment to an element of x: tensors are never written" in text and "te.scatter" in text


def test_wrong_indices():
    text = refused(lambda: te.compute(10, lambda i: x[i, i]))
    assert "x: expected 1 index, one per axis, got 2" in text and "in:   x: f32[10] (" in text and __file__ in text
    assert "A: expected 2 indices, one per axis, got 1" in refused(lambda: te.compute(4, lambda i: A[i]))
    scalar = te.placeholder((), name="s")
    text = refused(lambda: te.compute(4, lambda i: scalar[0]))
    assert "s: expected 0 indices, one per axis, got 1" in text and "s[()] reads a tensor without axes" in text
    text = refused(lambda: te.compute(4, lambda i: x[i / 2]))
    assert "axis 0 of x: expected an integer index, got a float64" in text and "te.floor rounds down first" in text
    assert "expected an integer index, got a bool" in refused(lambda: te.compute(4, lambda i: x[i > 1]))
    assert "axis 0 of x: expected an index, got slice(None, None, None)" in refused(lambda: te.compute(4, lambda i: x[:]))
    assert te.compute(4, lambda i: x[te.cast(i, "uint8")]).ndim == 1


def test_a_body_with_no_box_of_its_own_stays_one_expression():
    def long_sum(i):
        value = x[i]
        for _ in range(3000):
            value = value + 1.0
        return value

    text = refused(lambda: te.compute(10, lambda i: te.sum(lambda k: long_sum(k), i + 1)))
    assert "expected an expression of at most 100 nested operations, got a deeper one" in text and "te.sum" in text


def test_an_error_in_a_body_is_the_users():
    with pytest.raises(ZeroDivisionError):
        te.compute(3, lambda i: 1 / 0)
    assert issubclass(DefinitionError, TensorExprError)
