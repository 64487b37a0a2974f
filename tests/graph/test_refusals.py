"""What traced functions refuse, in the words that users read."""

import re

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.graph import optimizers

X = np.arange(4, dtype=np.float32)
NAME = "org.nn.square"


def square():
    return te.function(lambda x: x * x, implements=NAME)


def refused(error, message, run):
    with pytest.raises(error, match=re.escape(message)):
        run()


def traced(body, *arguments):
    return lambda: te.function(body).graph(*arguments)


def test_names_of_composites():
    message = "te.function: expected implements= and aliases= to be names such as org.semantic.op, got 'square'"
    refused(te.DefinitionError, message, lambda: te.function(lambda x: x, implements="square"))
    refused(te.DefinitionError, message, lambda: te.function(lambda x: x, implements=NAME, aliases=["square"]))


@pytest.mark.parametrize("attrs, got", [([1], "a list"), ({1: 2}, "{1: 2}")])
def test_attributes_of_composites(attrs, got):
    message = f"te.function: expected attrs= to be values by name, got {got}"
    refused(te.DefinitionError, message, lambda: te.function(lambda x: x, implements=NAME, attrs=attrs))


def test_what_cannot_be_traced():
    message = "te.function: expected a Python function with a signature, got "
    refused(te.DefinitionError, message + "5", lambda: te.function(5))
    refused(te.DefinitionError, message + "<class 'int'>", lambda: te.function(int))

    def model(x, **options):
        return x

    refused(te.DefinitionError, "te.function: expected parameters with names, got **options of model", lambda: te.function(model))


def test_a_variable_is_read_by_an_index_in_functions_alone():
    v = te.Variable(X, name="v")
    refused(
        te.DefinitionError,
        "expected a te.function around what reads the variable v, got none",
        lambda: te.compute((4,), lambda i: v[i]),
    )
    assert v[1] == 1


def test_branches_and_loops():
    refused(
        te.DefinitionError,
        "te.cond: expected both ways to give results of one form, got _ and None",
        traced(lambda flag, x: te.cond(flag, lambda: x, lambda: None), np.True_, X),
    )
    refused(
        te.DefinitionError,
        "te.while_loop: expected the condition to give one scalar, got (_, _)",
        traced(lambda: te.while_loop(lambda i: (i, i), lambda i: i, np.int64(0))),
    )


def test_derivatives():
    refused(
        te.DifferentiationError,
        "te.gradients: expected to be called in a te.function, got a call outside of one",
        lambda: te.gradients(X, X),
    )


def test_pairs():
    step = te.function(lambda x: te.gradients(square()(x), x, head=np.ones(4, np.float32)))
    forward = te.op(lambda x: ((te.compute((4,), lambda i: x[i] * x[i]),), ()))
    for pair, message in (
        ("no", f"{NAME}.forward: expected a pair (forward, backward) of functions, got 'no'"),
        (
            (forward, lambda *a: a),
            f"{NAME}.backward: expected both passes of a pair to be ops or functions of te, or neither, got one of each",
        ),
        (
            (lambda x: x, lambda *a: a),
            f"{NAME}.forward: expected the forward pass of a pair to give (outputs, saved), got ndarray",
        ),
    ):
        with te.register_replacement(NAME, "cpu", pair=lambda site, pair=pair: pair):
            refused(te.ReplacementError, message, lambda: step(X))


def test_checked_replacements():
    caller = te.function(lambda x: square()(x))
    with te.register_replacement(NAME, "cpu", lambda site: lambda x: x * x + 1, check=True):
        message = f"{NAME}: expected output 0 at (0,) to be 0.0 as the body gives, got 1.0 from the replacement"
        refused(te.ReplacementError, message, lambda: caller(X))


def test_files(tmp_path):
    path = tmp_path / "f.safetensors"
    v = te.Variable(X, name="v")
    te.save_function(path, te.function(lambda x: x * v), X)
    message = "te.load_function: expected variables of f32[4], got f32[2]"
    refused(te.ArgumentError, message, lambda: te.load_function(path, [te.Variable(X[:2])]))
    other = te.Variable(X + 1)
    assert te.load_function(path, [other])(X).tolist() == (X * (X + 1)).tolist()


def test_values():
    refused(te.ArgumentError, "te.print: expected a tensor, an array or a number, got a str", traced(lambda x: te.print("{}", "a"), X))
    refused(
        te.ArgumentError,
        "te.control_dependencies: expected operations of the function that is traced, got 'x'",
        traced(lambda x: te.control_dependencies(["x"]).__enter__(), X),
    )
    kept = []
    te.function(lambda x: kept.append(x)).graph(X)
    refused(
        te.DefinitionError,
        "<lambda>: expected tensors that are made from its arguments, got x, which belongs to another function",
        traced(lambda y: y + kept[0], X),
    )
    refused(
        te.DefinitionError,
        "expected an operation on whole tensors that a traced function knows, got arctan2",
        traced(lambda x: np.arctan2(x, x), X),
    )
    refused(te.DefinitionError, "expected shapes that broadcast, got (4) and (3)", traced(lambda x: x + np.ones(3, np.float32), X))


def test_variables():
    refused(
        te.DefinitionError,
        "te.Variable: expected an array as initial value, got the tensor x",
        traced(lambda x: te.Variable(x), X),
    )
    v = te.Variable(X, name="v")
    refused(
        te.DefinitionError,
        "expected a tensor, got the array of the variable v, which would stay as it is now for ever",
        traced(lambda x: np.asarray(v), X),
    )
    refused(te.ArgumentError, "v: expected an array, got the tensor x", lambda: v.assign(te.placeholder((4,), name="x")))


def test_calls_that_do_not_fit_the_parameters():
    f = te.function(lambda x: x)
    refused(te.ArgumentError, "expected arguments that fit its parameters, got an unexpected keyword argument 'z'", lambda: f(X, z=X))


def test_replacements_that_are_none():
    called = square()
    f = te.function(lambda x: called(x))
    message = f"{NAME}: expected a replacement that gives f32[4], got "
    for result, got in ((None, "None"), (X.astype(complex), "complex128[4]"), ("x", "<U1[]")):
        with te.register_replacement(NAME, "cpu", lambda site, result=result: lambda x: result):
            refused(te.ReplacementError, message + got, lambda: f.compiled(X))
    with te.register_replacement(NAME, "cpu", lambda site: 3):
        refused(te.ReplacementError, f"{NAME}: expected a function from the tool, or None to decline, got an int", lambda: f.compiled(X))
    refused(te.TargetError, "got 'tpu'", lambda: te.register_replacement(NAME, "tpu", lambda site: None))
    np.testing.assert_array_equal(f(X), X * X)


def test_replacements_on_arrays_want_arguments_whose_extents_are_numbers():
    called = square()
    f, x = te.function(lambda x: called(x)), te.placeholder((te.dim("n"),), name="x")
    message = "expected arguments with extents that are numbers for a tool that takes arrays, got f32[n]"
    with te.register_replacement(NAME, "cpu", lambda site: lambda x: x * x):
        refused(te.ReplacementError, message, lambda: f.compiled(x))
    with te.register_replacement(NAME, "cpu", lambda site: te.function(lambda x: x * x)):
        np.testing.assert_array_equal(f.compiled(x)([X])[0], X * X)


def test_what_is_given_in_the_place_of_something_else(tmp_path):
    f, module = te.function(square()), te.Module(name="model")
    module.w = te.Variable(X, name="w")
    refused(te.ArgumentError, "te.list_composites: expected a graph, got a Function", lambda: te.list_composites(f))
    refused(
        te.ArgumentError, "te.save_function: expected a te.function, got a function", lambda: te.save_function(tmp_path / "f", lambda x: x)
    )
    refused(te.ArgumentError, "te.load_state_dict: expected values by path, got a list", lambda: te.load_state_dict(module, [X]))
    refused(te.ArgumentError, "variables: expected a list of variables, got a Module", lambda: optimizers.SGD(module, 0.1))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["{} {}", "{a}", "{:5.2f}", "{"])
def test_texts_that_values_do_not_go_into(text):
    message = f"te.print: expected a text for 1 arrays, got {text!r}"
    refused(te.ArgumentError, message, traced(lambda x: te.print(text, x), X))


@pytest.mark.parametrize("shape", [(-2,), 3, "a", (1.5,)])
def test_draws_of_no_shape_leave_the_state(shape):
    generator = te.Generator(0)
    message = f"te.Generator: expected a shape of integers of at least 0, got {shape!r}"
    refused(te.ArgumentError, message, lambda: generator.uniform(shape))
    refused(te.ArgumentError, message, traced(lambda: generator.normal(shape)))
    assert generator.state.value == 0


def test_seeds_and_names():
    refused(te.ArgumentError, "te.Generator: expected an integer as seed, got 'a'", lambda: te.Generator("a"))
    message = "te.register_replacement: expected the name of a composite, got ''"
    refused(te.ArgumentError, message, lambda: te.register_replacement("", forward=lambda site: None))


@pytest.mark.parametrize(
    "other, kind", [("a", "a str"), (None, "None"), (1 + 2j, "a complex"), ([1.0], "a list")], ids=["text", "nothing", "complex", "list"]
)
def test_operands_that_are_no_data(other, kind):
    message = f"expected tensors, arrays and real numbers as operands of add, got {kind}"
    refused(te.DefinitionError, message, traced(lambda x: x + other, X))
    refused(te.DefinitionError, message, traced(lambda x: other + x, X))


def test_data_of_other_dtypes():
    f = te.function(lambda x: x + 1, implements=NAME)
    for array in (np.array([1j]), np.array(["a"])):
        message = f"<lambda>: expected arrays of dtypes of the language as arguments, got one of {array.dtype}"
        refused(te.ArgumentError, message, lambda array=array: f(array))
        refused(te.ArgumentError, message, lambda array=array: f.graph(array))


@pytest.mark.parametrize("value, kind", [(None, "None"), ("a", "a str"), ([1, [2]], "a list"), (object(), "an object")])
def test_initial_values_that_are_no_data(value, kind):
    refused(te.ArgumentError, f"te.Variable: expected an array or a number as initial value, got {kind}", lambda: te.Variable(value))


def test_placeholders_of_one_name():
    read, given = te.placeholder((3,), name="p"), te.placeholder((3,), name="p")
    y = te.compute((3,), lambda i: read[i] + 1)
    message = "expected every placeholder that is read among the inputs, got another one of that name for p"
    refused(te.DefinitionError, message, lambda: te.build(y, [given]))
