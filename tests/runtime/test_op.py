"""`@te.op`: called on arrays and on tensors, static arguments, signatures, specs, and what is refused."""

from __future__ import annotations

import gc
import inspect
import threading
import weakref

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@te.op
def matmul(a, b):
    """a @ b."""
    (n, k), (_, m) = a.shape, b.shape
    return te.compute((n, m), lambda i, j: te.sum(lambda r: a[i, r] * b[r, j], k))


@te.op
def scale(x, *, factor=2.0, power=1):
    return te.compute(x.shape, lambda *i: factor * x[i] ** power)


@te.op
def both(x):
    return te.compute(x.shape, lambda *i: x[i] + 1), te.compute(x.shape, lambda *i: x[i] * 2)


def test_arrays_in_arrays_out():
    a, b = floats(4, 5), floats(5, 6)
    result = matmul(a, b)
    assert type(result) is np.ndarray and result.dtype == np.float32
    np.testing.assert_allclose(result, a @ b, rtol=1e-5)
    np.testing.assert_allclose(matmul(a, b=b.astype(np.float32)), a @ b, rtol=1e-5)


def test_an_op_keeps_the_face_of_its_function():
    assert matmul.__name__ == "matmul" and matmul.__doc__ == "a @ b."
    assert str(inspect.signature(scale)) == "(x, *, factor=2.0, power=1)"
    assert repr(scale) == "<te.op scale(x, *, factor=2.0, power=1)>"


def test_each_signature_is_traced_once():
    traced = []

    @te.op
    def twice(x, *, times=2):
        traced.append((x.shape, x.dtype.name, times))
        return te.compute(x.shape, lambda *i: x[i] * times)

    for array in (np.ones(3, np.float32), np.ones(3), np.ones(4, np.float32)):
        for _ in range(2):
            twice(array)
            twice(array, times=2)
    twice(np.ones(3), times=3)
    twice(np.ones(3), times=2.0)
    assert traced == [((3,), "float32", 2), ((3,), "float64", 2), ((4,), "float32", 2), ((3,), "float64", 3), ((3,), "float64", 2.0)]


def test_static_arguments_of_equal_value_and_other_type_are_kept_apart():
    seen = []

    @te.op
    def constant_of(x, *, values):
        seen.append(values)
        return te.compute(x.shape, lambda i: x[i] * len(values))

    x = np.ones(2)
    for values in ((1,), (1.0,), (True,), (0.0,), (-0.0,), (1,)):
        constant_of(x, values=values)
    assert [repr(v) for v in seen] == ["(1,)", "(1.0,)", "(True,)", "(0.0,)", "(-0.0,)"]


def test_several_results_are_a_tuple():
    x = floats(3)
    plus, double = both(x)
    np.testing.assert_array_equal(plus, x + 1)
    np.testing.assert_array_equal(double, x * 2)
    one = te.op(lambda x: [te.compute(x.shape, lambda i: -x[i])])(x)
    assert isinstance(one, tuple) and len(one) == 1


def test_results_and_arguments_nest():
    @te.op
    def tree(pair, scale):
        a, b = pair
        total = te.compute(a.shape, lambda i: scale[()] * (a[i] + b[i]))
        return total, (te.compute(a.shape, lambda i: a[i] - b[i]), [te.compute((), lambda: te.sum(lambda i: a[i], a.shape[0]))])

    a, b = floats(4), floats(4)
    total, (difference, (sum_,)) = tree((a, b), np.float32(2))
    np.testing.assert_allclose(total, 2 * (a + b), rtol=1e-6)
    np.testing.assert_array_equal(difference, a - b)
    assert sum_.shape == () and np.isclose(sum_, a.sum())
    out = np.empty(4, np.float32), (np.empty(4, np.float32), (np.empty((), np.float32),))
    assert tree((a, b), np.float32(2), out=out)[1][0] is out[1][0]


def test_out_is_computed_into():
    a, b, out = floats(4, 5), floats(5, 6), np.empty((4, 6), np.float32)
    assert matmul(a, b, out=out) is out
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)


def test_on_tensors_an_op_composes():
    a, b, c = te.placeholder((2, 3), name="a"), te.placeholder((3, 4), name="b"), floats(4, 2)
    product = matmul(matmul(a, b), c)
    assert isinstance(product, type(a)) and product.shape == (2, 2) and product.name == "matmul"
    x, y = floats(2, 3), floats(3, 4)
    np.testing.assert_allclose(te.build(product, [a, b])(x, y), x @ y @ c, rtol=1e-5)


def test_python_scalars_are_0d_arrays_and_floats_are_weak():
    kinds = {}

    @te.op
    def times(x, s):
        kinds[s.dtype.name] = s.shape
        return te.compute(x.shape, lambda i: x[i] * te.cast(s[()], x.dtype))

    x = floats(3)
    for s in (2, 2.0, True, np.float32(2)):
        np.testing.assert_allclose(times(x, s), x * s)
    assert kinds == {"int64": (), x.dtype.name: (), "bool": (), "float32": ()}


def test_trace_gives_the_program_named_after_parameters_and_op():
    placeholders, arrays = [te.placeholder((2, 3)), te.placeholder((3, 4))], [floats(2, 3), floats(3, 4)]
    for specs in (placeholders, arrays, [((2, 3), "float32"), ((3, 4), np.float32)]):
        program = matmul.trace(*specs)
        assert [i.name for i in program.inputs] == ["a", "b"] and program.outputs == ("matmul",)
    assert both.trace(((3,), "float64")).outputs == ("both_0", "both_1")
    named = te.op(lambda x: te.compute(x.shape, lambda i: x[i], name="mine"))
    assert named.trace(((3,), "f32")).outputs == ("mine",)
    assert "2.0 * x[i0] ** 3.0" in str(scale.trace(((3,), "f64"), power=3))


def test_compile_gives_a_function_and_dynamic_keeps_axes_open():
    compiled = matmul.compile(((4, 5), "float32"), ((5, 6), "float32"), dynamic={"a": (0,), 1: 1})
    assert str(compiled.signature) == "matmul(a: float32[a_0, 5], b: float32[5, b_1]) -> matmul: float32[a_0, b_1]"
    for n, m in ((1, 1), (7, 2), (0, 3), (5, 0)):
        a, b = floats(n, 5), floats(5, m)
        np.testing.assert_allclose(compiled(a, b), a @ b, rtol=1e-5)
    n = te.dim("n")
    square = matmul.compile(te.placeholder((n, n)), te.placeholder((n, n)))
    assert square.signature.sizes == ("n",)
    with pytest.raises(te.ArgumentError, match=r"argument b: expected extent 3 \(n = 3 from axis 0 of a\), got 4"):
        square(floats(3, 3), floats(4, 3))


def test_an_op_of_no_arguments():
    assert te.op(lambda: te.compute((3,), lambda i: i))().tolist() == [0, 1, 2]


def test_a_result_that_is_an_argument_is_copied():
    x = floats(3)
    a, b = te.op(lambda x: (x, x))(x)
    np.testing.assert_array_equal(a, x)
    assert not np.shares_memory(a, x) and not np.shares_memory(a, b)


def test_many_threads_trace_once_and_agree():
    traced = []

    @te.op
    def softmax(x):
        traced.append(1)
        n, m = x.shape
        e = te.compute((n, m), lambda i, j: te.exp(x[i, j] - te.max(lambda k: x[i, k], m)))
        return te.compute((n, m), lambda i, j: e[i, j] / te.sum(lambda k: e[i, k], m))

    x, found = floats(8, 9), []
    threads = [threading.Thread(target=lambda: found.append(softmax(x))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(traced) == 1 and all(f.tobytes() == found[0].tobytes() for f in found)


def test_no_tensor_lives_on():
    seen = []

    @te.op
    def negate(x):
        seen.append(weakref.ref(x))
        result = te.compute(x.shape, lambda i: -x[i])
        seen.append(weakref.ref(result))
        return result

    negate(floats(3))
    gc.collect()
    assert [ref() for ref in seen] == [None, None]


# ------------------------------------------------------------------------------------------------ bad input


def refused(error, function, *arguments, **keywords):
    with pytest.raises(error) as info:
        function(*arguments, **keywords)
    assert "test_op.py:" in str(info.value)
    return str(info.value)


@te.op
def summed(x, *, axis=0, keepdims=False, sizes=()):
    assert isinstance(sizes, tuple)
    rest = x.shape[1:] if axis == 0 else x.shape[:1]
    total = lambda i: te.sum(lambda k: x[(k, i) if axis == 0 else (i, k)], x.shape[axis])  # noqa: E731
    return te.compute((*rest, 1), lambda i, _: total(i)) if keepdims else te.compute(rest, total)


def test_calls_as_in_numpy_and_pytorch():
    x = floats(3, 4)
    by_name = summed(x, axis=1, keepdims=True, sizes=(1, (2, 3)))
    for ours in (
        summed(x, 1, True, [1, [2, 3]]),
        summed(x, 1, keepdim=True),
        summed(x, dim=1, keepdim=True, sizes=[1, (2, 3)]),
        summed(input=x, dim=1, keepdim=True),
    ):
        np.testing.assert_array_equal(ours, by_name)
    (x_bar,) = te.vjp(summed)(x, np.ones(3, x.dtype), dim=1)
    np.testing.assert_array_equal(x_bar, np.ones_like(x))
    assert summed.trace(x, dim=1) == summed.trace(x, axis=1)
    index = np.array([[1, 0, 2, 1]])
    np.testing.assert_array_equal(kernels.gather(x, 0, index), kernels.gather(x, index, axis=0))
    np.testing.assert_array_equal(kernels.layer_norm(x, (4,)), kernels.layer_norm(x, normalized_shape=(4,)))
    for turned in (kernels.reshape(x, 2, -1), kernels.reshape(x, newshape=[2, 6]), kernels.reshape(x, (2, np.int64(6)))):
        np.testing.assert_array_equal(turned, x.reshape(2, 6))
    for turned in (kernels.permute(x, 1, 0), kernels.transpose(x, (1, 0)), kernels.transpose(x)):
        np.testing.assert_array_equal(turned, x.T)
    np.testing.assert_array_equal(kernels.tril(x, k=-1), np.tril(x, -1))
    np.testing.assert_array_equal(kernels.clip(x, a_min=-0.5, a_max=0.5), np.clip(x, -0.5, 0.5))
    np.testing.assert_array_equal(kernels.sum(np.float32(3), 0), np.float32(3))
    np.testing.assert_array_equal(kernels.diag(x, diagonal=1), np.diag(x, 1))
    np.testing.assert_array_equal(kernels.roll(x, shift=1, axis=0), np.roll(x, shift=1, axis=0))
    np.testing.assert_array_equal(kernels.broadcast_to(x, size=(2, 3, 4)), np.broadcast_to(x, (2, 3, 4)))
    np.testing.assert_array_equal(kernels.bincount(np.array([0, 2, 2]), minlength=4), [1, 0, 2, 0])
    for ours, theirs in zip(kernels.meshgrid(x[0], x[1], indexing="xy"), np.meshgrid(x[0], x[1]), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(kernels.block_diag(x, x[:1]).shape, (4, 8))
    with pytest.raises(te.ArgumentError, match=r"expected a tensor with axes, got x without any and axis 1"):
        kernels.sum(np.float32(3), 1)


def test_calls_that_do_not_fit():
    x = floats(3)
    assert "matmul: expected 2 tensor arguments (a, b), got 1" in refused(te.ArgumentError, matmul, x)
    text = refused(te.ArgumentError, scale, x, x)
    assert "scale: expected 1 tensor argument (x), got 2" in text and "static arguments are given by name: factor, power" in text
    assert "scale: expected one value for factor, got two" in refused(te.ArgumentError, scale, x, 2.0, factor=1.0)
    assert "scale: expected 1 tensor argument (x), got 4" in refused(te.ArgumentError, scale, x, 2.0, 1, 5)
    assert "summed: expected one value for axis, got two" in refused(te.ArgumentError, summed, x, dim=0, axis=0)
    assert issubclass(te.ArgumentError, ValueError)
    assert "scale: expected the static arguments factor, power, got factr" in refused(te.ArgumentError, scale, x, factr=1)
    assert "matmul: expected no static arguments, got c" in refused(te.ArgumentError, matmul, x, x, c=1)
    assert "matmul: expected one value for a, got two" in refused(te.ArgumentError, matmul, x, a=x)
    text = refused(te.ArgumentError, scale, x, power={1})
    assert "static argument power: expected a hashable value, got a set" in text
    text = refused(te.ArgumentError, scale, x, power=floats(2, 2))
    assert "static argument power: expected a hashable value, got a ndarray" in text and "make the parameter positional" in text
    assert "static argument power: expected a hashable value, got a ndarray" in refused(te.ArgumentError, scale, x, power=floats(1000))
    assert "expected the static argument n, got none" in refused(te.ArgumentError, te.op(lambda x, *, n: x), x)
    text = refused(te.ArgumentError, scale, [1.0, 2.0])
    assert "scale: argument x: expected an array, got Python numbers in a list" in text and "hint: np.asarray(x)" in text
    assert "scale: argument x: expected an array or a te tensor, got a str" in refused(te.ArgumentError, scale, "x")
    text = refused(te.ArgumentError, scale, np.ones(2, complex))
    assert "scale: argument x: expected a dtype of the language, got complex128" in text
    assert "expected no out with te tensors, got one" in refused(te.ArgumentError, scale, te.placeholder((3,)), out=x)


def test_specs_that_do_not_fit():
    text = refused(te.ArgumentError, scale.trace, "f32")
    assert "scale: argument x: expected a placeholder, an array or (shape, dtype), got a str" in text
    assert 'hint: ((4, 3), "float32") is a spec: the shape, and the dtype by its name' in text
    text = refused(te.ArgumentError, scale.trace, (4, 3))
    assert "scale: argument x: expected a dtype beside the shape, got the shape alone" in text and 'hint: ((4, 3), "float32")' in text
    text = refused(te.ArgumentError, scale.compile, ((3,), "f32"), dynamic={"y": (0,)})
    assert "scale: dynamic: expected one of x, got y" in text
    assert "scale: argument x: expected a dtype of the language, got 'c8'" in refused(te.ArgumentError, scale.trace, ((3,), "c8"))
    assert "scale: dynamic: expected axes of x below 1, got 1" in refused(te.ArgumentError, scale.compile, ((3,), "f32"), dynamic={"x": 1})
    text = refused(te.TargetError, scale.compile, ((3,), "f32"), target="cuda")
    assert "expected a target that this machine has, got 'cuda': " in text


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda *x: x, "expected a fixed number of tensors, got *x"),
        (lambda x, **static: x, "expected named static arguments, got **static"),
        (lambda x, n=3: x, "expected a tensor argument without default, got n=3"),
        (lambda x, *, out: x, "expected a parameter not called out, which means the array to compute into"),
    ],
)
def test_functions_that_are_no_ops(function, message):
    text = refused(te.DefinitionError, te.op, function)
    assert message in text and "test_op.py" in text


def test_values_that_are_no_functions():
    assert "te.op: expected a function, got an int" in refused(te.DefinitionError, te.op, 3)
    assert "te.op: expected a function of tensors, got int" in refused(te.DefinitionError, te.op, int)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "expected the function to return a te tensor or a tuple of them, got None"),
        (3.0, "expected the function to return a te tensor or a tuple of them, got a float"),
        (np.ones(2), "expected the function to return a te tensor or a tuple of them, got a ndarray"),
        ((), "expected a te tensor or a tuple of them, got an empty tuple"),
    ],
)
def test_results_that_are_no_tensors(result, message):
    assert message in refused(te.DefinitionError, te.op(lambda x: result), floats(2))


def test_an_op_that_calls_itself_on_its_own_arguments():
    @te.op
    def endless(x):
        return te.constant(endless(np.zeros(2, np.float32)))

    assert "got an operation that calls itself with the same arguments" in refused(te.DefinitionError, endless, np.zeros(2, np.float32))


# ---------------------------------------------------------------------------------------------------- weak floats, failing bodies


@te.op
def scaled_by(x, a):
    return te.compute(x.shape, lambda i: x[i] * a[()])


@te.op
def by_rows(x, *, stride=1):
    n, m = x.shape
    return te.compute((n // stride,), lambda i: te.sum(lambda j: x[i * stride, j], m))


@te.op
def refuses(x):
    raise ValueError("the author's own word")


@pytest.mark.parametrize(("kind", "expected"), [("f4", "float32"), ("f2", "float16"), ("f8", "float64"), ("i4", "float64")])
def test_python_floats_are_weak(kind, expected):
    assert scaled_by(np.ones(3, kind), 2.0).dtype == expected
    assert scaled_by(te.placeholder((3,), np.dtype(kind).name), 2.0).dtype == expected


def test_a_python_float_is_a_head_of_any_dtype():
    @te.op
    def total(x):
        return te.compute((), lambda: te.sum(lambda i: x[i] * x[i], x.shape[0]))

    (gradient,) = te.vjp(total)(np.ones(3, "f4"), 1.0)
    np.testing.assert_array_equal(gradient, np.full(3, 2, "f4"))


def test_a_body_that_was_not_written_for_the_rank_says_so_at_its_line():
    with pytest.raises(te.DefinitionError) as caught:
        by_rows(np.ones((2, 3, 4)))
    message = "by_rows: expected arguments that its body is written for, got ValueError: too many values to unpack"
    assert caught.value.message.startswith(message)
    assert caught.value.term == "by_rows(x: float64[2, 3, 4])"
    assert caught.value.location.file == __file__
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(te.DefinitionError, match="got ZeroDivisionError"):
        by_rows(np.ones((2, 3)), stride=0)


def test_what_a_body_raises_by_itself_passes_through():
    with pytest.raises(ValueError, match="the author's own word"):
        refuses(np.ones(3))


@te.op
def affine(x, w=None, b=None, *, scale=2.0):
    y = te.compute(x.shape, lambda *i: x[i] * scale)
    if w is not None:
        y = te.compute(x.shape, lambda *i, y=y: y[i] * w[i])
    if b is not None:
        y = te.compute(x.shape, lambda *i, y=y: y[i] + b[i])
    return y


def test_a_tensor_may_be_left_out_in_calls_and_transforms():
    x, w, b = np.arange(3.0), np.array([1.0, 3.0, 5.0]), np.array([10.0, 20.0, 30.0])
    np.testing.assert_array_equal(affine(x), 2 * x)
    np.testing.assert_array_equal(affine(x, w), 2 * x * w)
    np.testing.assert_array_equal(affine(x, b=b, scale=3.0), 3 * x + b)
    assert str(affine).endswith("(x, w=None, b=None, *, scale=2.0)>")
    head = np.ones(3)
    for given, expected in (((x, None, b), [2 * head, head]), ((x, None, None), [2 * head]), ((x, w, None), [2 * w, 2 * x])):
        np.testing.assert_array_equal(te.vjp(affine)(*given, head), expected)
    np.testing.assert_array_equal(te.jvp(affine)(x, None, b, x, b), 2 * x + b)
    te.check_gradient(affine, x, b=b)
    total = te.op(lambda x, b: te.compute((), lambda: te.sum(lambda i: affine(x, b=b)[i], x.shape[0])))
    np.testing.assert_array_equal(te.grad(total)(x, b), [2 * head, head])


def test_a_tensor_that_is_needed_may_not_be_left_out():
    with pytest.raises(te.ArgumentError, match="expected a tensor for x, got none"):
        affine(None)
