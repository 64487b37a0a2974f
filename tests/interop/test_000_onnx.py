"""Part 000 of the checklists, lines 40 to 42: composites and ONNX."""

import copy
import pickle

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, inliner  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from tensorexpr.interop.onnx import from_onnx, reading, to_onnx  # noqa: E402
from tensorexpr.interop.onnx.table import row_of  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4)).astype(np.float32)
NAME = "org.nn.softmax"


@te.function(implements=NAME, attrs={"axis": -1, "label": "rows", "scale": 1.5, "pads": (0, 1)}, aliases=["org.old.softmax"])
def softmax(x):
    """Softmax over the last axis."""
    n, m = x.shape
    top = te.compute((n,), lambda i: te.max(lambda j: x[i, j], m))
    e = te.compute((n, m), lambda i, j: te.exp(x[i, j] - top[i]))
    return te.compute((n, m), lambda i, j: e[i, j] / te.sum(lambda k: e[i, k], m))


def evaluated(model, *arrays):
    onnx.checker.check_model(model, full_check=True)
    return ReferenceEvaluator(model).run(None, dict(zip((i.name for i in model.graph.input), arrays, strict=True)))


def test_000_40_a_composite_goes_out_as_a_function_and_comes_back_as_a_composite():
    f = te.function(lambda x: softmax(x * 2.0) + 1.0)
    model = to_onnx(f, X)
    (function,) = model.functions
    assert (function.domain, function.name, function.doc_string) == ("org.nn", "softmax", "Softmax over the last axis.")
    (node,) = (n for n in model.graph.node if n.domain)
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    assert attributes == {"axis": -1, "label": b"rows", "scale": 1.5, "pads": [0, 1]} and sorted(function.attribute) == sorted(attributes)
    np.testing.assert_allclose(evaluated(model, X)[0], f(X), rtol=1e-6)
    inlined = inliner.inline_local_functions(model)
    assert not inlined.functions
    np.testing.assert_allclose(evaluated(inlined, X)[0], f(X), rtol=1e-6)
    again = from_onnx(onnx.load_from_string(model.SerializeToString()))
    (listed,) = te.list_composites(again.graph)
    assert (listed.name, listed.doc, listed.composite.aliases) == (NAME, "Softmax over the last axis.", ("org.old.softmax",))
    assert listed.attrs == {"axis": -1, "label": "rows", "scale": 1.5, "pads": (0, 1)}
    np.testing.assert_allclose(again(X), f(X), rtol=1e-6)
    with te.register_replacement(NAME, "cpu", lambda site: lambda x: np.zeros_like(x)):
        assert (again(X) == 1.0).all()


def test_000_40_passes_of_a_derivative_go_out_under_their_roles():
    step = te.function(lambda x: te.gradients(softmax(x), x, head=X))
    model = to_onnx(step, X)
    assert [f.name for f in model.functions] == ["softmax_forward", "softmax_backward"]
    np.testing.assert_allclose(evaluated(model, X)[0], step(X), rtol=1e-5, atol=1e-6)
    assert [one.role for one in te.list_composites(from_onnx(model).graph)] == ["forward", "backward"]


def test_000_41_two_bodies_under_one_name_go_out_under_distinct_overloads():
    a = te.function(lambda x: x + 1.0, implements="org.math.f")
    b = te.function(lambda x: x * 3.0, implements="org.math.f")
    f = te.function(lambda x: (a(x), b(x), a(x * 2.0)))
    model = to_onnx(f, X)
    assert [(g.name, g.overload) for g in model.functions] == [("f", ""), ("f", "1")]
    assert [n.overload for n in model.graph.node if n.domain] == ["", "1", ""]
    onnx.checker.check_model(model, full_check=True)
    for own, wanted in zip(from_onnx(model)(X), f(X), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-6)


def one_node(op, inputs, outputs=1, opset=21, **attributes):
    """A model of a single node of ONNX's own."""
    given = [helper.make_tensor_value_info(f"x{k}", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for k, x in enumerate(inputs)]
    results = [helper.make_tensor_value_info(f"y{k}", TensorProto.UNDEFINED, None) for k in range(outputs)]
    node = helper.make_node(op, [i.name for i in given], [f"y{k}" for k in range(outputs)], **attributes)
    return helper.make_model(helper.make_graph([node], "one", given, results), opset_imports=[helper.make_opsetid("", opset)])


WITH_BODY = [
    ("Softmax", [X], {}), ("Softmax", [X], {"axis": 0}), ("LogSoftmax", [X], {}), ("Relu", [X], {}), ("Gelu", [X], {}),
    ("Gelu", [X], {"approximate": "tanh"}), ("Mish", [X], {}), ("HardSwish", [X], {}), ("Softsign", [X], {}), ("Elu", [X], {"alpha": 0.5}),
    ("Celu", [X], {"alpha": 2.0}), ("LeakyRelu", [X], {"alpha": 0.2}), ("LeakyRelu", [X], {}), ("Selu", [X], {}), ("HardSigmoid", [X], {}),
    ("Softplus", [X], {}), ("ThresholdedRelu", [X], {"alpha": 0.3}), ("Shrink", [X], {"lambd": 0.2, "bias": 0.1}),
    ("PRelu", [X, np.float32([0.1, 0.2, 0.3, 0.4])], {}), ("ReduceL2", [X], {"keepdims": 0}), ("ReduceSumSquare", [X], {}),
    ("ReduceLogSumExp", [X], {}), ("LayerNormalization", [X, np.ones(4, np.float32), np.zeros(4, np.float32)], {}),
    ("MeanVarianceNormalization", [RNG.normal(size=(2, 3, 2, 2)).astype(np.float32)], {}),
    ("GroupNormalization", [RNG.normal(size=(2, 4, 3)).astype(np.float32), np.ones(4, np.float32), X[0]], {"num_groups": 2}),
]  # fmt: skip


@pytest.mark.parametrize("native", [True, False], ids=["native", "body"])
@pytest.mark.parametrize("op, inputs, attributes", WITH_BODY, ids=[f"{row[0]}-{k}" for k, row in enumerate(WITH_BODY)])
def test_000_42_an_operator_with_a_function_body_comes_in_as_a_composite(op, inputs, attributes, native, monkeypatch):
    if not native:
        monkeypatch.setattr(reading, "row_of", lambda domain, name, version: None if name == op else row_of(domain, name, version))
    model = one_node(op, inputs, **attributes)
    f = from_onnx(model)
    listed = te.list_composites(f.graph)[0]
    assert listed.name == f"ai.onnx.{op}"
    assert all(listed.attrs[name] == pytest.approx(value) for name, value in attributes.items())
    wanted = ReferenceEvaluator(model).run(None, {f"x{k}": x for k, x in enumerate(inputs)})[0]
    np.testing.assert_allclose(f(*inputs), wanted, rtol=2e-5, atol=2e-6)
    with te.register_replacement(f"ai.onnx.{op}", "cpu", lambda site: lambda *arrays: np.full(wanted.shape, 2, np.float32)):
        assert (f(*inputs) == 2).all()


OPERATIONS = {
    "matmul": (lambda x, y: kernels.matmul(x, kernels.transpose(y)), [X, X]),
    "convolution": (
        lambda x, w: kernels.conv2d(x, w, stride=2, padding=1),
        [RNG.normal(size=(2, 3, 7, 6)).astype(np.float32), RNG.normal(size=(4, 3, 3, 3)).astype(np.float32)],
    ),
    "its gradient": (
        lambda x, w: te.gradients(kernels.sum(kernels.conv1d(x, w, stride=2)), [x, w]),
        [RNG.normal(size=(1, 2, 9)).astype(np.float32), RNG.normal(size=(3, 2, 3)).astype(np.float32)],
    ),
    "layer norm": (lambda x: kernels.layer_norm(x), [X]),
    "gather": (lambda x, i: te.compute((2, 4), lambda a, b: x[i[a], b]), [X, np.array([2, 0])]),
    "diagonal and triangle": (
        lambda x: te.compute((3,), lambda i: x[i, i] + te.sum(lambda k: x[i, k], i + 1)), [X],
    ),
    "border": (lambda x: te.compute((3, 4), lambda i, j: x.read(i - 1, j, outside=0.5) + x.read(i + 1, j, outside="clamp")), [X]),
    "integers": (
        lambda a: te.compute((4,), lambda i: a[i] // 3 + a[i] % -3 + te.where(a[i] > 0, te.cast(i, "int64"), 7)),
        [np.array([5, -5, 7, -7])],
    ),
    "winners": (lambda x: te.compute((3,), lambda i: te.argmax(lambda j: x[i, j], 4)), [X]),
    "tests": (lambda x: te.compute((3,), lambda i: te.any(lambda j: x[i, j] > 1.0, 4) | te.all(lambda j: x[i, j] < 0.5, 4)), [X]),
    "functions": (
        lambda x: te.compute((3, 4), lambda i, j: te.expm1(x[i, j]) + te.log1p(te.abs(x[i, j])) + te.rsqrt(x[i, j] * x[i, j] + 1.0)),
        [X],
    ),
    "scalar": (lambda x: kernels.sum(x) * 2.0, [X]),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_index_notation_goes_out_and_comes_back(name):
    body, inputs = OPERATIONS[name]
    f = te.function(lambda *arrays: body(*arrays))
    wanted = f(*inputs)
    wanted = wanted if isinstance(wanted, (list, tuple)) else [wanted]
    model = to_onnx(f, *inputs)
    for own, true in zip(evaluated(model, *inputs), wanted, strict=True):
        assert own.dtype == true.dtype and own.shape == true.shape
        np.testing.assert_allclose(own, true, rtol=2e-5, atol=1e-5)
    again = from_onnx(model)(*inputs)
    for own, true in zip(again if isinstance(again, tuple) else [again], wanted, strict=True):
        np.testing.assert_allclose(own, true, rtol=2e-5, atol=1e-5)


def test_what_was_read_is_copied_and_pickled():
    f = from_onnx(one_node("Softmax", [X]))
    for again in (copy.deepcopy(f), pickle.loads(pickle.dumps(f))):
        np.testing.assert_array_equal(again(X), f(X))


def test_inputs_that_shapes_depend_on_are_fixed_by_name():
    axes = np.array([1])
    model = one_node("ReduceL1", [X, axes], keepdims=0)
    f = from_onnx(model, constants={"x1": axes})
    (listed,) = te.list_composites(f.graph)
    assert listed.attrs == {"keepdims": 0, "axes": (1,)}
    np.testing.assert_allclose(f(X), np.abs(X).sum(1), rtol=1e-6)


SHAPES = [
    ("Slice", [X, np.array([2, 0]), np.array([-4, 9]), np.array([0, 1]), np.array([-1, 2])], {}, X[2:-4:-1, 0:9:2]),
    ("Pad", [X, np.array([1, 0, 0, 2])], {"mode": "edge"}, np.pad(X, ((1, 0), (0, 2)), mode="edge")),
    ("Pad", [X, np.array([1, 2]), np.float32(7), np.array([1])], {}, np.pad(X, ((0, 0), (1, 2)), constant_values=7)),
    ("Split", [X, np.array([1, 3])], {"axis": 1}, X[:, :1]),
    ("GatherElements", [X, np.array([[0, 3], [1, 1], [2, 0]])], {"axis": 1}, np.take_along_axis(X, np.array([[0, 3], [1, 1], [2, 0]]), 1)),
    ("Mod", [X, X[::-1] + 2], {"fmod": 1}, np.fmod(X, X[::-1] + 2)),
    ("Hardmax", [X[:, :0]], {}, X[:, :0]), ("Hardmax", [X[:0]], {}, X[:0]),
]  # fmt: skip


@pytest.mark.parametrize("op, inputs, attributes, wanted", SHAPES, ids=[f"{row[0]}-{k}" for k, row in enumerate(SHAPES)])
def test_operators_on_shapes(op, inputs, attributes, wanted):
    constants = {f"x{k}": array for k, array in enumerate(inputs) if k and op != "Mod"}
    model = one_node(op, inputs, outputs=2 if op == "Split" else 1, **attributes)
    found = from_onnx(model, constants)(*(array for k, array in enumerate(inputs) if f"x{k}" not in constants))
    np.testing.assert_allclose(found[0] if op == "Split" else found, wanted, rtol=1e-6)


def test_defaults_of_attributes_are_float32():
    """So a model in float64 sees no 0.2."""
    x = np.linspace(-2, 2, 5)
    np.testing.assert_array_equal(from_onnx(one_node("HardSigmoid", [x]))(x), np.clip(x * float(np.float32(0.2)) + 0.5, 0, 1))


def test_convolutions_come_in():
    x, w, b = RNG.normal(size=(1, 4, 6, 7)), RNG.normal(size=(6, 2, 3, 2)), RNG.normal(size=6)
    arrays = [array.astype(np.float32) for array in (x, w, b)]
    model = one_node("Conv", arrays, strides=[2, 1], pads=[1, 0, 0, 1], group=2, dilations=[1, 2])
    wanted = ReferenceEvaluator(model).run(None, {f"x{k}": array for k, array in enumerate(arrays)})[0]
    np.testing.assert_allclose(from_onnx(model)(*arrays), wanted, rtol=1e-4, atol=1e-5)


def test_variables_go_out_as_initializers():
    w = te.Variable(X, name="w")
    f = te.function(lambda x: x * w)
    model = to_onnx(f, X)
    assert len(model.graph.initializer) == 1
    np.testing.assert_allclose(evaluated(model, X)[0], X * X, rtol=1e-6)


def test_what_onnx_cannot_say_is_refused():
    w = te.Variable(X, name="w")
    for body, what in (
        (lambda x: w.assign(x), "one with effects"),
        (lambda x: te.scan(lambda t, s: te.compute((), lambda: s[()] + x[0, t]), te.constant(np.float32(0)), 4), "a scan"),
        (lambda x: te.while_loop(lambda n: n < 3, lambda n: n + 1, np.int64(0)), "a while"),
        (lambda x: te.compute((), lambda: te.atan2(x[0, 0], x[1, 1])), "the operation atan2"),
    ):
        with pytest.raises(te.TargetError, match=f"to_onnx: expected a graph that ONNX's operators can say, got {what}"):
            to_onnx(te.function(body), X)
    message = r"from_onnx: expected an operator that is known, a function of the model or one with a body, got ai\.onnx\.NeverHeardOf"
    with pytest.raises(te.TargetError, match=message):
        from_onnx(one_node("NeverHeardOf", [X]))


def result_of(op, inputs, opset, **attributes):
    return from_onnx(one_node(op, inputs, opset=opset, **attributes))(*inputs)


def test_operators_mean_what_their_opset_says():
    cube = RNG.normal(size=(2, 3, 4)).astype(np.float32)
    for op in ("Softmax", "LogSoftmax"):
        for axis in (None, 0, 1, 2, -1):
            given = {} if axis is None else {"axis": axis}
            for opset in (7, 11, 12, 13, 21):
                wanted = ReferenceEvaluator(one_node(op, [cube], opset=opset, **given)).run(None, {"x0": cube})[0]
                if opset < 13:
                    rows = cube.reshape(int(np.prod(cube.shape[: 1 if axis is None else axis])), -1).astype(np.float64)
                    e = np.exp(rows - rows.max(1, keepdims=True))
                    wanted = e / e.sum(1, keepdims=True)
                    wanted = (wanted if op == "Softmax" else np.log(wanted)).reshape(cube.shape)
                np.testing.assert_allclose(result_of(op, [cube], opset, **given), wanted, rtol=2e-5, atol=2e-6)


def test_results_have_the_types_of_the_schema():
    a, b = np.array([7, -7, 5], np.int32), np.array([2, 2, -3], np.int32)
    for kind in (np.int8, np.int16, np.int32, np.int64):
        found = result_of("Div", [a.astype(kind), b.astype(kind)], 14)
        assert found.dtype == kind and found.tolist() == [3, -3, -1]
    large = np.array([2**64 - 1, 7], np.uint64)
    assert result_of("Div", [large, np.array([2, 3], np.uint64)], 14).tolist() == [2**63 - 1, 2]
    assert result_of("Pow", [X[0], np.array([2, 0, 1, 3])], 15).dtype == np.float32
    rows = np.array([[1, 2, 4], [-1, -2, -4]], np.int32)
    for op, wanted in (("ReduceSum", [7, -7]), ("ReduceMean", [2, -2]), ("ReduceMax", [4, -1]), ("ReduceProd", [8, -8])):
        found = from_onnx(one_node(op, [rows], opset=11, axes=[1], keepdims=0))(rows)
        assert found.dtype == np.int32 and found.tolist() == wanted, op


def test_options_are_kept():
    ties = np.array([[1, 3, 3, 0], [2, 2, 2, 2]], np.float32)
    for op, wanted in (("ArgMax", [2, 3]), ("ArgMin", [3, 3])):
        assert result_of(op, [ties], 13, axis=1, keepdims=0, select_last_index=1).tolist() == wanted
    x, w = RNG.normal(size=(1, 2, 7, 6)).astype(np.float32), RNG.normal(size=(3, 2, 3, 2)).astype(np.float32)
    for pad in ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"):
        model = one_node("Conv", [x, w], auto_pad=pad, strides=[2, 1])
        wanted = ReferenceEvaluator(model).run(None, {"x0": x, "x1": w})[0]
        np.testing.assert_allclose(from_onnx(model)(x, w), wanted, rtol=1e-4, atol=1e-5)
    data, places = RNG.normal(size=(2, 3, 4)).astype(np.float32), np.array([[1], [2]])
    assert (result_of("GatherND", [data, places], 13, batch_dims=1) == data[[0, 1], [1, 2]]).all()
    edges = np.array([np.inf, -np.inf, 1], np.float32)
    assert result_of("IsInf", [edges], 20, detect_negative=0).tolist() == [True, False, False]


AXES = [
    *(("ReduceSum", [axes]) for axes in ([2], [-3], [1, -1])), *(("Unsqueeze", [axes]) for axes in ([4], [-5], [0, -4])),
    ("Squeeze", [[2]]), ("Pad", [[1, 1], 0.0, [2]]), ("Pad", [[1, 1, 1, 1], 0.0, [1, -1]]), ("Slice", [[0], [1], [-3]]),
]  # fmt: skip


@pytest.mark.parametrize("op, fixed", AXES)
def test_axes_that_are_not_there_or_there_twice_are_refused(op, fixed):
    arrays = [np.array(one, np.float32 if isinstance(one, float) else np.int64) for one in fixed]
    with pytest.raises(
        te.TargetError, match=rf"ai\.onnx\.{op}: expected inputs and attributes that there is a row for, got ValueError: axes"
    ):
        from_onnx(one_node(op, [X, *arrays]), constants={f"x{k + 1}": array for k, array in enumerate(arrays)})


@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 3), (2, 3, 0), (2, 3, 4), ()], ids=str)
def test_tensors_without_elements_are_flattened(shape):
    for axis in range(-len(shape), len(shape) + 1):
        found = from_onnx(one_node("Flatten", [np.zeros(shape, np.float32)], axis=axis))(np.zeros(shape, np.float32))
        assert found.shape == (int(np.prod(shape[:axis])), int(np.prod(shape[axis:])))


def test_what_a_node_says_is_not_passed_over():
    for model, message in (
        (one_node("Relu", [X], alpha=1.0), r"from_onnx: ai\.onnx\.Relu: expected attributes of version 14 \(none\), got alpha"),
        (
            one_node("Conv", [X[None], X[None]], auto_pad="SAME"),
            "expected inputs and attributes that there is a row for, got ValueError: auto_pad SAME",
        ),
        (one_node("Concat", [X, X]), r"ai\.onnx\.Concat: expected the attribute axis, got none"),
        (one_node("Add", [X, X.astype(np.float64)]), "expected inputs of one type T, float32, got float64"),
        (one_node("Add", [X]), r"ai\.onnx\.Add: expected the input B, got none"),
        (one_node("Add", [X, X, X]), r"ai\.onnx\.Add: expected at most 2 inputs, got 3"),
        (one_node("Relu", [X], outputs=2), r"ai\.onnx\.Relu: expected no more results than it has, got y1"),
        (one_node("Softmax", [X], axis=[1]), r"ai\.onnx\.Softmax: expected the attribute axis to be of the type INT, got \(1,\)"),
        (one_node("ReduceSum", [X], opset=11, axes=[0.5]), r"expected the attribute axes to be of the type INTS, got \(0\.5,\)"),
        (one_node("Softmax", [X], opset=11, axis=3), "got ValueError: axis 3 of 2"),
        (one_node("ArgMax", [X], axis=-3), r"got ValueError: axes \[-3\] of 2"),
        (one_node("Conv", [X[None], X[None]], pads=[-1, 0]), "got ValueError: negative pads"),
        (one_node("Relu", [X], opset=10_000), r"from_onnx: expected a model of opset 1 to \d+, got 10000"),
    ):
        with pytest.raises(te.TargetError, match=message):
            from_onnx(model)
    model = one_node("Relu", [X])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y0", TensorProto.DOUBLE, [3, 5]))
    with pytest.raises(te.TargetError, match=r"from_onnx: output y0: expected float64\[3, 5\], as the model declares, got float32\[3, 4\]"):
        from_onnx(model)
    model.graph.output[0].name = "nothing"
    with pytest.raises(te.TargetError, match="from_onnx: expected outputs that are computed, got nothing"):
        from_onnx(model)
    model.graph.input[0].ClearField("type")
    with pytest.raises(
        te.TargetError, match="from_onnx: expected inputs that are tensors, sequences or optionals of them, got x0, a value without a type"
    ):
        from_onnx(model)
