"""Functions of ONNX models: open sizes, what is asked of arguments, loops as loops, gradients, narrow types, the table of operators."""

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.graph.nodes.ir import Compute, Cond, While
from tensorexpr.ir import Scan

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, defs, helper, numpy_helper  # noqa: E402

from tensorexpr.interop.onnx import backend, from_onnx  # noqa: E402
from tensorexpr.interop.onnx.table import row_of  # noqa: E402

RNG = np.random.default_rng(0)


def parsed(text, version=21):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {version}]>\n{text}')


def with_weights(text, **weights):
    model = parsed(text)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


W = RNG.normal(size=(4, 3)).astype(np.float32)
LINEAR = "main (float[n, 4] x) => (float[n, 3] y) { h = MatMul (x, w) y = Tanh (h) }"


def test_open_dimensions_are_open():
    f = from_onnx(with_weights(LINEAR, w=W))
    assert f.is_whole and f.arguments == ("x",) and f.results == ("y",)
    for n in (1, 5):
        x = RNG.normal(size=(n, 4)).astype(np.float32)
        np.testing.assert_allclose(f(x), np.tanh(x @ W), rtol=1e-5)
        np.testing.assert_array_equal(f(x=x), f(x))
    with pytest.raises(te.ArgumentError, match=r"main: expected x: float32\[n, 4\], got an array of float64"):
        f(np.zeros((2, 4)))
    with pytest.raises(te.ArgumentError, match="expected extent 4 on axis 1, got 5"):
        f(np.zeros((2, 5), np.float32))
    with pytest.raises(te.ArgumentError, match=r"main: expected 1 arguments, x: float32\[n, 4\], got none for x"):
        f()
    with pytest.raises(te.ArgumentError, match="main: expected arguments x, each once, got z"):
        f(z=1)


def test_a_shape_that_is_computed_of_an_open_one_stays_open():
    text = """main (float[n, 2, 3] x) => (float[m, k] y) {
        s = Shape (x) zero = Constant <value_ints = [0]> () a = Gather (s, zero) two = Constant <value_ints = [2]> () b = Mul (a, two)
        rest = Constant <value_ints = [-1]> () t = Concat <axis = 0> (b, rest) y = Reshape (x, t) }"""
    f = from_onnx(parsed(text))
    assert f.is_whole
    for n in (1, 4):
        x = RNG.normal(size=(n, 2, 3)).astype(np.float32)
        np.testing.assert_array_equal(f(x), x.reshape(2 * n, 3))


def test_weights_are_arguments_where_that_is_asked_for():
    model = with_weights(LINEAR, w=W)
    f, x = from_onnx(model, weights="arguments"), RNG.normal(size=(2, 4)).astype(np.float32)
    assert f.arguments == ("x", "w")
    np.testing.assert_allclose(f(x, 2 * W), np.tanh(2 * x @ W), rtol=1e-5)
    with pytest.raises(te.ArgumentError, match="expected weights to be 'constants' or 'arguments', got 'yes'"):
        from_onnx(model, weights="yes")


def test_gradients_by_inputs_and_weights():
    f = from_onnx(with_weights(LINEAR, w=W))
    g = f.gradient(["w", "x"])
    x, head = RNG.normal(size=(5, 4)).astype(np.float32), RNG.normal(size=(5, 3)).astype(np.float32)
    slope = head * (1 - np.tanh(x @ W) ** 2)
    by_w, by_x = g(x, head)
    np.testing.assert_allclose(by_w, x.T @ slope, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(by_x, slope @ W.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(f.gradient("w")(x, head), by_w)
    for again in (copy.deepcopy(g), pickle.loads(pickle.dumps(g))):
        np.testing.assert_array_equal(again(x, head)[0], by_w)
    total = from_onnx(with_weights("main (float[n, 4] x) => (float y) { h = MatMul (x, w) y = ReduceSum <keepdims = 0> (h) }", w=W))
    np.testing.assert_allclose(total.gradient("w")(x), np.repeat(x.sum(0)[:, None], 3, 1), rtol=1e-5)
    np.testing.assert_allclose(total.gradient("w")(x, np.float32(2)), 2 * np.repeat(x.sum(0)[:, None], 3, 1), rtol=1e-5)
    with pytest.raises(te.ArgumentError, match=r"gradient: expected names of inputs or initializers \(x, w\), got 'v'"):
        f.gradient("v")
    with pytest.raises(te.ArgumentError, match=r"main_gradient: expected 1 arguments and 1 heads, one for each floating result, got 0"):
        g(x)
    with pytest.raises(te.DifferentiationError, match="expected to differentiate by floating tensors, got i"):
        from_onnx(parsed("main (float[3] x, int64[3] i) => (float[3] y) { y = Gather (x, i) }")).gradient("i")


def test_a_model_is_called_in_a_function():
    f = from_onnx(with_weights(LINEAR, w=W))
    x = RNG.normal(size=(2, 4)).astype(np.float32)
    twice = te.function(lambda x: f(x) * 2.0)
    np.testing.assert_allclose(twice(x), 2 * f(x), rtol=1e-6)
    by_w, head = f.gradient("w"), np.ones((2, 3), np.float32)
    np.testing.assert_allclose(te.function(lambda x: by_w(x, head))(x), by_w(x, head), rtol=1e-6)
    asks = from_onnx(parsed("main (float[n] x, int64[2] s) => (float[a, b] y) { y = Reshape (x, s) }"))
    with pytest.raises(te.TensorExprError, match="expected a value that depends on constants"):
        te.function(lambda x, s: asks(x, s))(x.ravel(), np.array([4, 2]))


def test_results_whose_size_depends_on_data_are_counted_then_filled():
    f = from_onnx(parsed("main (float[n, 3] x) => (int64[2, m] y) { y = NonZero (x) }"))
    assert not f.is_whole
    for n, seed in ((2, 0), (2, 1), (4, 2), (2, 0)):
        x = np.random.default_rng(seed).integers(-1, 2, (n, 3)).astype(np.float32)
        np.testing.assert_array_equal(f(x), np.array(np.nonzero(x)))
    np.testing.assert_array_equal(f(np.zeros((2, 3), np.float32)), np.zeros((2, 0)))
    with pytest.raises(te.ArgumentError, match="expected a function with one program for all arguments, got one that is read for each"):
        _ = f.graph


def test_what_was_asked_is_kept():
    f = from_onnx(parsed("main (float[n] x, bool[n] c) => (float[m] y) { h = Compress (x, c) y = Exp (h) }"))
    masks = [np.array([True, False, True]), np.array([False, True, True]), np.array([True, True, True])]
    x = RNG.normal(size=3).astype(np.float32)
    for mask in (*masks, *masks):
        np.testing.assert_allclose(f(x, mask), np.exp(x[mask]), rtol=1e-6)
    (asked,) = f._plans.values()
    assert len(asked.answers) == 2  # two of three, three of three
    by_x = f.gradient("x")
    for mask in masks:
        head = RNG.normal(size=int(mask.sum())).astype(np.float32)
        wanted = np.zeros(3, np.float32)
        wanted[mask] = head * np.exp(x[mask])
        np.testing.assert_allclose(by_x(x, mask, head), wanted, rtol=1e-5)


def test_inputs_that_are_shapes_are_taken_by_value():
    f = from_onnx(parsed("main (float[n] x, int64[2] s) => (float[a, b] y) { h = Reshape (x, s) y = Relu (h) }"))
    x = RNG.normal(size=12).astype(np.float32)
    for shape in ((3, 4), (2, 6), (3, -1)):
        np.testing.assert_array_equal(f(x, np.array(shape)), np.maximum(x, 0).reshape(shape))
    assert f.specialised(x, np.array([3, 4])).graph.types


BODY = "body = {name} (int64 t, bool c, float[3] a) => (bool d, float[3] b{more}) {{ d = {d} b = Sin (a) {rest} }}"
LOOP = "main (float[3] x{given}) => (float[3] y{more}) {{ {before} y{names} = Loop ({n}, {c}, x) <{body}> }}"


def test_loops_of_a_known_number_of_steps_are_scans():
    body = BODY.format(name="step", more=", float[3] s", d="Identity (c)", rest="s = Mul (a, a)")
    before = "n = Constant <value_int = 4> () c = Constant <value_int = 1> () g = Cast <to = 9> (c)"
    f = from_onnx(parsed(LOOP.format(given="", more=", float[4, 3] z", names=", z", before=before, n="n", c="g", body=body)))
    assert any(isinstance(node, Compute) and isinstance(node.definition, Scan) for node in f.graph.nodes)
    assert not any(isinstance(node, While) for node in f.graph.nodes)
    x = RNG.normal(size=3).astype(np.float32)
    states = [x]
    for _ in range(4):
        states.append(np.sin(states[-1]))
    y, z = f(x)
    np.testing.assert_allclose(y, states[4], rtol=1e-5)
    np.testing.assert_allclose(z, np.square(states[:4]), rtol=1e-5)
    zeros = np.zeros((4, 3), np.float32)
    slope = np.prod([np.cos(s) for s in states[:4]], 0)
    np.testing.assert_allclose(f.gradient("x")(x, np.ones(3, np.float32), zeros), slope, rtol=1e-5)


def test_loops_that_end_by_data_are_loops_and_branches_are_branches():
    body = BODY.format(name="step", more="", d="Less (m, l)", rest="l = Constant <value_float = 0.9> () m = ReduceMax <keepdims = 0> (b)")
    body = body.replace("d = Less (m, l) b = Sin (a) l", "b = Add (a, a) l").replace("(b) }", "(b) d = Less (m, l) }")
    before = "c = Constant <value_int = 1> () g = Cast <to = 9> (c)"
    f = from_onnx(parsed(LOOP.format(given=", int64 n", more="", names="", before=before, n="n", c="g", body=body)))
    assert sum(isinstance(node, While) for node in f.graph.nodes) == 1
    x = np.array([0.1, 0.2, 0.05], np.float32)
    for most, times in ((10, 8), (2, 4), (0, 1)):
        np.testing.assert_allclose(f(x, np.array(most)), x * times, rtol=1e-6)
    np.testing.assert_allclose(f.gradient("x")(x, np.array(2), np.ones(3, np.float32)), [4, 4, 4], rtol=1e-6)
    ways = "then_branch = a () => (float[3] p) { p = Sin (x) }, else_branch = b () => (float[3] q) { q = Neg (x) }"
    f = from_onnx(parsed(f"main (float[3] x, bool c) => (float[3] y) {{ y = If (c) <{ways}> }}"))
    assert sum(isinstance(node, Cond) for node in f.graph.nodes) == 1
    np.testing.assert_allclose(f(x, np.array(True)), np.sin(x), rtol=1e-6)
    np.testing.assert_allclose(f(x, np.array(False)), -x)


def test_a_branch_of_two_shapes_is_chosen_for_a_call():
    ways = "then_branch = a () => (float[3] p) { p = Sin (x) }, else_branch = b () => (float[6] q) { q = Concat <axis = 0> (x, x) }"
    f = from_onnx(parsed(f"main (float[3] x, bool c) => (float[k] y) {{ y = If (c) <{ways}> }}"))
    x = RNG.normal(size=3).astype(np.float32)
    np.testing.assert_allclose(f(x, np.array(True)), np.sin(x), rtol=1e-6)
    np.testing.assert_array_equal(f(x, np.array(False)), np.concatenate([x, x]))


def test_sequences_and_texts_come_in_and_go_out():
    f = from_onnx(parsed("main (seq(float[n]) s, float[m] x) => (seq(float[k]) r) { r = SequenceInsert (s, x) }"))
    given = [np.ones(2, np.float32), np.zeros(1, np.float32)]
    found = f(given, np.full(3, 7, np.float32))
    assert [item.tolist() for item in found] == [[1, 1], [0], [7, 7, 7]]
    f = from_onnx(parsed("main (string[n] a, string[n] b) => (string[n] c) { c = StringConcat (a, b) }"))
    assert f(np.array(["x", "y"], object), np.array(["1", "2"], object)).tolist() == ["x1", "y2"]


NARROW = {
    "float8_e4m3fn": TensorProto.FLOAT8E4M3FN, "float8_e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ, "float8_e5m2": TensorProto.FLOAT8E5M2,
    "float8_e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ, "float4_e2m1fn": TensorProto.FLOAT4E2M1,
}  # fmt: skip


@pytest.mark.parametrize("name", NARROW)
def test_every_half_in_a_narrow_type_and_back(name):
    """All float16 but what is no number, against ml_dtypes, which rounds to the nearest and is infinite beyond."""
    kind, code = np.dtype(getattr(ml_dtypes, name)), NARROW[name]
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    every = every[np.isfinite(every)] if name == "float4_e2m1fn" else every[~np.isnan(every)]
    element = name.replace("float8_", "float8").replace("float4_e2m1fn", "float4e2m1")
    text = f"main (float16[{every.size}] x) => ({element}[n] y, float[n] z) {{{{ y = Cast <to = {code}{{}}> (x) z = Cast <to = 1> (y) }}}}"
    codes, back = from_onnx(parsed(text.format(", saturate = 0"), 25))(every)
    wanted, finite = every.astype(np.float32).astype(kind), np.isfinite(every)
    assert codes.dtype == kind
    np.testing.assert_array_equal(codes.view(np.uint8)[finite], wanted.view(np.uint8)[finite])
    np.testing.assert_array_equal(back, codes.astype(np.float32))
    held, _ = from_onnx(parsed(text.format(""), 25))(every)
    most = float(ml_dtypes.finfo(kind).max)
    np.testing.assert_array_equal(held.astype(np.float32), np.clip(every.astype(np.float32), -most, most).astype(kind).astype(np.float32))


def test_bits_are_seen_as_another_type():
    f = from_onnx(parsed("main (float[n] x) => (int32[n] y) { h = Mul (x, x) y = BitCast <to = 6> (h) }", 26))
    x = RNG.normal(size=5).astype(np.float32)
    np.testing.assert_array_equal(f(x), (x * x).view(np.int32))


@pytest.mark.parametrize("n", [1, 2, 3, 16, 17, 36, 97, 120])
def test_transforms_of_every_length(n):
    x = RNG.normal(size=(2, n, 2))
    given = x[..., 0] + 1j * x[..., 1]
    text = f"main (double[2, {n}, 2] x) => (double[2, {n}, 2] y) {{{{ y = DFT <inverse = {{}}> (x) }}}}"
    for inverse, wanted in ((0, np.fft.fft(given)), (1, np.fft.ifft(given))):
        found = from_onnx(parsed(text.format(inverse)))(x)
        np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], wanted, atol=1e-12 * n)
    half = from_onnx(parsed(f"main (double[2, {n}, 1] x) => (double[2, m, 2] y) {{ y = DFT <onesided = 1> (x) }}"))(x[..., :1])
    np.testing.assert_allclose(half[..., 0] + 1j * half[..., 1], np.fft.rfft(x[..., 0]), atol=1e-12 * n)


def test_determinants():
    x = RNG.normal(size=(3, 5, 5))
    x[1, :, 2] = x[1, :, 3]
    x[2, 0, 0] = 0
    f = from_onnx(parsed("main (double[3, 5, 5] x) => (double[3] y) { y = Det (x) }"))
    np.testing.assert_allclose(f(x), np.linalg.det(x), rtol=1e-10, atol=1e-14)
    by_x = f.gradient("x")(x, np.ones(3))
    wanted = np.linalg.det(x)[:, None, None] * np.linalg.inv(x[[0, 0, 2]]).transpose(0, 2, 1)
    np.testing.assert_allclose(by_x[[0, 2]], wanted[[0, 2]], rtol=1e-8, atol=1e-10)


def test_the_backend_is_onnx_s():
    assert issubclass(backend.TensorExprBackend, onnx.backend.base.Backend)
    assert backend.supports_device("CPU") and backend.supports_device("CPU:0") and not backend.supports_device("CUDA")
    x = RNG.normal(size=(2, 4)).astype(np.float32)
    model = with_weights(LINEAR, w=W)
    prepared = backend.prepare(model)
    for inputs in ([x], (x,), {"x": x}, x):
        (found,) = prepared.run(inputs)
        np.testing.assert_allclose(found, np.tanh(x @ W), rtol=1e-5)
    np.testing.assert_array_equal(backend.run_model(model, [x]).y, found)
    node = helper.make_node("Add", ["a", "b"], ["c"])
    assert backend.run_node(node, [np.arange(3.0), np.ones(3)]).c.tolist() == [1, 2, 3]
    assert backend.is_compatible(model)
    assert not backend.is_compatible(parsed("main (float[3] x) => (float[3] y) { y = NeverHeardOf (x) }"))


def test_operators_that_are_not_known_are_these():
    newest = defs.onnx_opset_version()
    missing = [
        schema.name for schema in defs.get_all_schemas()
        if schema.domain == "" and not schema.deprecated
        and row_of("", schema.name, schema.since_version) is None
        and not (schema.has_function or schema.has_context_dependent_function)
    ]  # fmt: skip
    assert newest >= 21 and sorted(missing) == ["ImageDecoder"]
