"""What users read when they write a definition that has no meaning, or evaluate one with the wrong things."""

import numpy as np

import tensorexpr as te
from tensorexpr.errors import ArgumentError, DefinitionError, TargetError
from tensorexpr.language import program_of
from tests.messages import said

X = te.placeholder((4,), "float64", name="x")
LENGTHS = te.placeholder((4,), "int64", name="lengths")
Y = te.compute((4,), lambda i: X[i] * 2.0, name="y")


def test_bodies_that_give_nothing_or_take_keywords():
    assert said(DefinitionError, lambda: te.compute((4,), lambda i: ()))[0] == (
        "te.compute: expected the body to return a scalar or a tuple of them, got an empty tuple"
    )
    assert said(DefinitionError, lambda: te.compute((4,), lambda i, *, scale: X[i]))[0] == (
        "te.compute: expected a function of 1 index, got one that needs the keyword scale"
    )


def test_a_body_without_base():
    def body(i):
        return body(i - 1) + X[i]

    lines = said(DefinitionError, lambda: te.compute((4,), body))
    assert lines[0] == "expected a body that comes to an end, got one that calls itself without a base"
    assert lines[-1].endswith("a recurrence is te.scan(lambda t, state: ..., init, length)")


def test_a_body_that_doubles_too_often_where_it_has_no_box():
    def body(k):
        value = X[k]
        for _ in range(30):
            value = value * value
        return value

    lines = said(DefinitionError, lambda: te.compute((4,), lambda i: te.sum(body, i + 1)))
    assert lines[0] == "expected an expression of at most 100,000 terms, got 3.22e+09 (a value used several times counts each time)"
    assert "make a repeated part a te.compute of its own" in lines[-1]


def test_a_let_outside_of_a_body():
    lines = said(DefinitionError, lambda: te.let(X[0] * 2, "double"))
    assert lines[0] == "te.let: expected a value in the body of a definition, got one outside of any"
    assert lines[-1].endswith("outside, te.compute(shape, lambda i: ...) makes a tensor")


def test_extents_and_lengths_that_depend_on_data():
    lines = said(DefinitionError, lambda: te.placeholder((LENGTHS[0],)))
    assert lines[0] == "te.placeholder: expected extents made of integers and sizes, got lengths[0]"
    assert "cannot depend on an index or on data" in lines[-1]
    lines = said(DefinitionError, lambda: te.scan(lambda t, state: state, X, LENGTHS[0]))
    assert lines[0] == "te.scan: expected a length made of integers and sizes, got lengths[0]"


def test_numbers_and_arrays_that_are_none():
    assert said(DefinitionError, lambda: te.compute((4,), lambda i: X[i] * 10**400))[0] == (
        "expected a number that fits float64, got an integer of 1329 bits"
    )
    assert said(DefinitionError, lambda: te.constant([[1], [1, 2]]))[0].startswith(
        "te.constant: expected an array, got something that is none: "
    )
    lines = said(DefinitionError, lambda: np.asarray(X))
    assert lines[0] == "expected an array, got the tensor x, which has no elements until it runs"
    assert lines[-1] == "  hint: te.evaluate or a compiled function gives arrays"


def test_programs_of_what_is_no_tensor():
    assert said(DefinitionError, lambda: program_of("x"))[0] == "expected a list of tensors as outputs, got 'x'"
    assert said(DefinitionError, lambda: program_of([Y], 3))[0] == "expected a list of tensors as inputs, got 3"
    assert said(DefinitionError, lambda: program_of([Y], [3]))[0] == "expected tensors as inputs, got 3"


def test_evaluating_with_the_wrong_things():
    a = np.ones(4)
    assert said(ArgumentError, lambda: te.evaluate(Y, [a]))[0].startswith("te.evaluate: expected a dict from tensors to arrays, got [")
    assert said(ArgumentError, lambda: te.evaluate(Y, {X: "many"}))[0] == "x: expected an array of float64, got 'many'"
    assert said(ArgumentError, lambda: te.evaluate(Y, {X: a}, sizes=3))[0] == "te.evaluate: expected sizes by name, got 3"
    lines = said(ArgumentError, lambda: te.evaluate(Y, {X: a}, sizes={"n": 2.5}))
    assert lines[0] == "te.evaluate: expected an integer of at least 0 for the size n, got 2.5"
    assert lines[-1] == '  hint: sizes={"n": 5}'
    assert said(ArgumentError, lambda: te.evaluate(Y, {X: a.astype("float32")}))[0] == "x: expected dtype float64, got float32"


def test_large_values_in_messages_are_cut():
    array = np.arange(10**4, dtype="float32").reshape(100, 100)[:40, :40]
    (line, *_) = said(TargetError, lambda: te.build(Y, target=[array] * 3))
    assert line.startswith("expected a target, one of cpu, cuda, got [array([[0.000e+00, 1.000e+00") and " ... " in line and len(line) < 420
