"""What users read when an op, a transform of one or a compiled function cannot do what it is asked for."""

import re

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.errors import ArgumentError, DefinitionError, DifferentiationError, GradientCheckError
from tests.messages import said

A = np.ones(4)


@te.op
def doubled(x):
    return te.compute(x.shape, lambda i: x[i] * 2.0)


@te.op
def counted(x):
    return te.compute(x.shape, lambda i: te.cast(x[i], "int64"))


@te.op
def widened(k):
    return te.compute(k.shape, lambda i: te.cast(k[i], "float64"))


@te.op
def scaled(x, *, by):
    return te.compute(x.shape, lambda i: x[i] * by)


@te.op
def logarithm(x):
    return te.compute(x.shape, lambda i: te.log(x[i]))


@te.op(gradient=lambda output, inputs, head: [head])
def tripled(x):
    return te.compute(x.shape, lambda i: x[i] * 3.0)


@te.op(gradient=lambda output, inputs, head: [(head,)])
def product(pair):
    return te.compute(pair[0].shape, lambda i: pair[0][i] * pair[1][i])


@te.op
def nothing(x):
    return ()


@te.op
def three(x):
    return 3


@te.op
def endless(x):
    endless(A)
    return te.compute(x.shape, lambda i: x[i])


@te.op
def ones():
    return te.compute((3,), lambda i: 1.0)


def test_functions_that_return_no_tensor():
    assert said(DefinitionError, lambda: nothing(A))[0] == "nothing: expected a te tensor or a tuple of them, got an empty tuple"
    lines = said(DefinitionError, lambda: three(A))
    assert lines[0] == "three: expected the function to return a te tensor or a tuple of them, got an int"
    assert lines[-1] == "  hint: return what te.compute, te.scatter or te.scan gives"


def test_a_gradient_that_is_no_rule():
    lines = said(DefinitionError, lambda: te.op(gradient=3)(lambda x: x))
    assert lines[0] == "<lambda>: expected gradient= to be a rule, got an int"
    assert lines[-1] == "  hint: def rule(output, inputs, head): return [one gradient per input]"


def test_axes_kept_open_without_a_parameter():
    assert said(ArgumentError, lambda: doubled.trace(A, dynamic=[0]))[0].startswith("doubled: dynamic: expected axes by parameter, got ")


def test_an_op_that_calls_itself():
    lines = said(DefinitionError, lambda: endless(A))
    assert lines[0] == "expected a definition that ends, got an operation that calls itself with the same arguments"
    assert lines[-1] == "  hint: call it on smaller arrays, or write the recurrence as te.scan"


def test_calls_that_do_not_fit():
    lines = said(ArgumentError, lambda: scaled(A))
    assert lines[0] == "scaled: expected the static argument by, got none" and lines[1].startswith("  in:   scaled(x, *, by) (")
    x = te.placeholder((4,), "float64", name="x")
    assert said(ArgumentError, lambda: doubled(x, out=A))[0] == "doubled: expected no out with te tensors, got one"
    shared = np.lib.stride_tricks.as_strided(np.zeros(1), (4,), (0,))
    assert said(ArgumentError, lambda: doubled(A, out=shared))[0] == (
        "doubled: out: expected every element to have its own memory, got a broadcast array"
    )
    lines = said(ArgumentError, lambda: te.op(lambda a: te.compute(a.shape, lambda i: a[i] * 2, name="twice"))(A, out=A[:2]))
    assert lines[0] == "<lambda>: out: expected shape [4], got [2]" and lines[1].startswith("  in:   twice(a: float64[4]) -> twice: ")
    assert said(ArgumentError, lambda: te.vjp(doubled)(A, A, out=A[:2]))[0].startswith("vjp(doubled): out: expected ")


def test_a_size_that_no_input_tells():
    n = te.dim("n")
    counting = te.compute((n,), lambda i: te.cast(i, "float32"), name="counting")
    lines = said(DefinitionError, lambda: te.build(counting, []))
    assert lines[0] == "expected the size n to be told by an extent of an input, got no input with that extent"
    assert lines[-1] == "  hint: give an input the extent n, or use a constant"


def test_derivatives_that_do_not_exist():
    assert said(DifferentiationError, lambda: te.jvp(counted)(A, A))[0] == "jvp(counted): expected a floating output, got none"
    assert said(DifferentiationError, lambda: te.vjp(counted)(A, A))[0] == "vjp(counted): expected a floating output, got int64"
    assert said(DifferentiationError, lambda: te.vjp(widened)(np.arange(4), A))[0] == (
        "vjp(widened): expected a floating input to differentiate by, got none"
    )
    assert said(DifferentiationError, lambda: te.vjp(te.jvp(ones))())[0] == ("vjp(jvp(ones)): expected inputs and a head, got 0 arguments")


def test_a_rule_with_too_few_gradients_of_a_tuple():
    assert said(DifferentiationError, lambda: te.vjp(product)((A, A), A))[0] == (
        "product: gradient rule: expected 2 gradients for the tuple pair, got 1"
    )


def test_gradient_checks_of_nothing_floating():
    assert said(GradientCheckError, lambda: te.check_gradient(counted, A))[0] == "counted: expected a floating output to check, got none"
    assert said(GradientCheckError, lambda: te.check_gradient(widened, np.arange(4)))[0] == (
        "widened: expected a floating input to check, got none"
    )


def test_a_gradient_check_outside_of_the_domain():
    start = te.op(lambda x: te.scan(lambda t, s: te.compute((), lambda: s[()] + x[t]), te.compute((), lambda: te.cast(0, "float32")), 4))
    lines = said(GradientCheckError, lambda: te.check_gradient(start, np.ones(4, np.float32)))
    assert "expected an operation that can be computed in float64, to compare with differences, got te.scan: expected" in lines[0]
    assert lines[-1] == '  hint: a dtype that follows the arguments, te.cast(0, x.dtype), in place of "float32"'
    lines = said(GradientCheckError, lambda: te.check_gradient(logarithm, -A))
    assert lines[0] == "logarithm: expected finite values around these arrays, got nan"
    assert lines[-1] == "  hint: choose arrays inside the domain of the function"


def test_a_gradient_check_of_a_wrong_rule_gives_both_numbers():
    with pytest.raises(GradientCheckError) as caught:
        te.check_gradient(tripled, A)
    assert re.fullmatch(
        r"tripled: expected the reverse derivative along a random direction to be \S+ \(finite differences\), "
        r"got \S+ \(off by \S+, tolerance \S+\)",
        caught.value.message,
    )
    assert caught.value.at.startswith("the derivative by x alone is ")
    assert caught.value.hint == "the op's own gradient rule is what disagrees"


def test_arrays_that_memory_does_not_hold():
    table = te.compute((2**40, 2**40), lambda i, j: 1.0, name="table")
    lines = said(ArgumentError, lambda: te.build(table, [])())
    assert lines[0] == (
        "table: result table: expected an array that fits into memory, got float64[1099511627776, 1099511627776], "
        "which takes 9,671,406,556,917,033,397,649,408 bytes"
    )
    assert lines[-1] == "  hint: fewer or smaller extents, or a part at a time"
    lines = said(ArgumentError, lambda: te.evaluate(table, {}))
    assert lines[0].startswith("table: expected an array that fits into memory, got float64[1099511627776, 1099511627776], which takes 9,")
    rows = te.compute((2**45, 8), lambda i, j: te.exp(1.0 * i * j), name="rows")
    total = te.compute((2,), lambda i: te.sum(lambda k: rows[k, i], 2**45), name="total")
    lines = said(ArgumentError, lambda: te.build(te.schedule(total))())
    assert lines[0] == "total: expected intermediate results that fit into memory, got 2,251,799,813,685,248 bytes of them"


def test_what_is_no_tensor_is_shown_where_it_is_short():
    program = te.parse_program("x: f32[3] = input()\ny[i]: f32[3] = x[i]\nreturn y")
    assert said(DefinitionError, lambda: te.autoschedule(program))[0] == (
        "te.autoschedule: expected a te tensor or a list of them, got the Program <program of y: 1 input, 1 definition>"
    )
    assert said(DefinitionError, lambda: te.build(3))[0] == "te.build: expected a te tensor or a list of them, got the int 3"
