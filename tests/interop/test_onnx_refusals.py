"""What functions of ONNX models, and ONNX's interface to backends, refuse, and what they say."""

import numpy as np
import pytest

import tensorexpr as te

onnx = pytest.importorskip("onnx")

from tensorexpr.interop.onnx import backend, from_onnx  # noqa: E402

X = np.ones(3, np.float32)
NEGATED = "(float[3] x) => (float[3] y) { y = Neg (x) }"
COUNTED = "(float[n, 3] x) => (int64[2, m] y) { y = NonZero (x) }"


def parsed(graph):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> main {graph}')


def test_weights_are_constants_or_arguments():
    with pytest.raises(te.ArgumentError, match="from_onnx: expected weights to be 'constants' or 'arguments', got 'yes'"):
        from_onnx(parsed(NEGATED), weights="yes")


def test_a_damaged_model_fails_by_an_error_that_names_it():
    model = parsed("(float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> { y = Add (x, w) }")
    model.graph.initializer[0].dims[0] = 4  # of three numbers
    with pytest.raises(te.TargetError, match="from_onnx: expected a model that can be read, got one that fails by ValueError: ") as caught:
        from_onnx(model)
    assert "ONNX's checker" in str(caught.value)


@pytest.mark.parametrize("device", ["MPS", "CUDA:one", ""])
def test_a_backend_is_for_devices_that_there_are(device):
    with pytest.raises(te.TargetError, match=f"prepare: expected the device CPU or CUDA, got {device}"):
        backend.prepare(parsed(NEGATED), device)
    assert not backend.supports_device(device) and not backend.is_compatible(parsed(NEGATED), device)


def test_what_is_read_for_each_kind_of_arguments_has_no_program_for_all():
    f = from_onnx(parsed(COUNTED))
    expected = "main: expected a function with one program for all arguments, got one that is read for each kind of them"
    for use in (lambda: f.graph, f.signature, f.compiled):
        with pytest.raises(te.ArgumentError, match=expected):
            use()


def test_gradients_are_of_floating_results_by_floating_tensors():
    whole = from_onnx(parsed("(float[3] x) => (int64[3] y) { y = Cast <to = 7> (x) }"))
    with pytest.raises(te.DifferentiationError, match="main_gradient: expected a floating result to differentiate, got none"):
        whole.gradient("x")
    places = from_onnx(parsed("(float[3] x) => (float[2] y) <int64[2] i = {2, 0}> { y = Gather (x, i) }"))
    with pytest.raises(te.DifferentiationError, match="gradient: expected floating tensors, got i of int64"):
        places.gradient("i")


def test_a_gradient_takes_a_head_for_each_floating_result():
    by_x = from_onnx(parsed(NEGATED)).gradient("x")
    np.testing.assert_array_equal(by_x(X, X), -X)
    for heads in ([], [X, X]):
        expected = f"main_gradient: expected 1 arguments and 1 heads, one for each floating result, got {len(heads)} beyond them"
        with pytest.raises(te.ArgumentError, match=expected):
            by_x(X, *heads)


@pytest.mark.parametrize(
    "graph, argument",
    [
        ("(string[n] a) => (string[n] b) { b = Identity (a) }", "a"),
        ("(seq(float[n]) s) => (int64 y) { y = SequenceLength (s) }", "s"),
        ("(float x) => (float y) { y = Neg (x) }", "x: float32"),
    ],
)
def test_arguments_are_made_up_for_tensors_of_known_rank(graph, argument):
    model = parsed(graph)
    if argument == "x: float32":
        model.graph.input[0].type.tensor_type.ClearField("shape")
    expected = f"main: expected inputs that are tensors of known rank to make arguments for, got {argument}"
    with pytest.raises(te.ArgumentError, match=expected):
        from_onnx(model).made_up()


def test_a_shape_that_depends_on_an_argument_of_a_trace():
    f = from_onnx(parsed("(float[n] x, int64[2] s) => (float[a, b] y) { y = Reshape (x, s) }"))
    expected = r"expected a value that depends on constants, got i64\[2\] that depends on arguments"
    with pytest.raises(te.TensorExprError, match=expected):
        te.function(lambda x, s: f(x, s))(np.ones(8, np.float32), np.array([4, 2]))


def test_a_model_of_sequences_is_no_function_of_tensors():
    f = from_onnx(parsed("(float[3] x) => (seq(float[3]) s, float[3] y) { s = SequenceConstruct (x, x) y = Neg (x) }"))
    assert len(f(X)) == 2
    for use in (lambda: f.specialised(X), lambda: te.function(lambda x: f(x)[1])(X)):
        with pytest.raises(te.ArgumentError, match="main: expected results that are tensors, got others beside them"):
            use()


def test_a_call_in_a_function_has_all_arguments():
    f = from_onnx(parsed("(float[3] x, float[3] y) => (float[3] z) { z = Add (x, y) }"))
    with pytest.raises(te.ArgumentError, match="main: expected an argument y, got none"):
        te.function(lambda x: f(x))(X)
