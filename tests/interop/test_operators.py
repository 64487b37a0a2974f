"""Flat operators and what is derived from them: gradients, tangents and batches, in any nesting, against one sample at a time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.dtypes import dtype
from tensorexpr.interop.operators import Operator, leaf_names, op_of
from tensorexpr.op.specs import Spec

RNG = np.random.default_rng(3)


@te.op
def affine(x, w):
    (n,), (m, _) = x.shape, w.shape
    return te.compute((m,), lambda i: te.tanh(te.sum(lambda k: w[i, k] * x[k], n)))


@te.op
def looked_up(table, ids):
    return te.compute((ids.shape[0], table.shape[1]), lambda i, j: table[ids[i], j] * table[ids[i], 0])


@te.op
def running(x, start):
    return te.scan(lambda t, s: te.compute(start.shape, lambda i: te.sin(s[i]) + x[t, i]), start, x.shape[0])


@te.op
def histogram(x, ids):
    return te.scatter((4,), lambda i: (ids[i], x[i] * x[i]), x.shape[0])


@te.op
def winner(x, y):
    return te.compute((), lambda: te.max(lambda i: x[i] * y[i], x.shape[0])), te.compute((), lambda: te.argmax(lambda i: x[i], x.shape[0]))


def tripled(y, inputs, head):
    x, w = inputs
    return [te.compute(x.shape, lambda i: 3 * head[i] * w[i]), te.compute(w.shape, lambda i: 5 * head[i] * x[i])]


@te.op(gradient=tripled)
def ruled(x, w):
    return te.compute(x.shape, lambda i: x[i] * w[i])


def ids(*shape):
    return RNG.integers(0, 4, shape)


CASES = {
    "affine": (affine, lambda *b: RNG.standard_normal((*b, 3)), lambda *b: RNG.standard_normal((*b, 4, 3))),
    "looked_up": (looked_up, lambda *b: RNG.standard_normal((*b, 4, 3)), lambda *b: ids(*b, 5)),
    "running": (running, lambda *b: RNG.standard_normal((*b, 4, 2)), lambda *b: RNG.standard_normal((*b, 2))),
    "histogram": (histogram, lambda *b: RNG.standard_normal((*b, 6)), lambda *b: ids(*b, 6)),
    "winner": (winner, lambda *b: RNG.standard_normal((*b, 6)), lambda *b: RNG.standard_normal((*b, 6))),
    "ruled": (ruled, lambda *b: RNG.standard_normal((*b, 3)), lambda *b: RNG.standard_normal((*b, 3))),
}
MASKS = [(True, False), (False, True), (True, True)]


def run(operator, arrays):
    return operator.compile([Spec(a.shape, dtype(a.dtype)) for a in arrays])(*arrays)


def one_at_a_time(operator, arrays, mask, extent):
    """The results for every value of the leading axis of the arrays in `mask`, stacked."""
    rows = [run(operator, [np.array(a[b]) if many else a for a, many in zip(arrays, mask)]) for b in range(extent)]
    return [np.stack(parts) for parts in zip(*rows)]


def operator_of(name):
    return Operator.of(CASES[name][0], [0, 0], {})


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", CASES)
def test_a_batch_is_its_samples_one_at_a_time(name, mask):
    operator, arrays = operator_of(name), [make(2) if many else make() for make, many in zip(CASES[name][1:], mask)]
    for got, expected in zip(run(operator.batched(mask), arrays), one_at_a_time(operator, arrays, mask, 2), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("masks", list(itertools.product(MASKS[:2], MASKS[1:])))
@pytest.mark.parametrize("name", CASES)
def test_batches_nest(name, masks):
    inner, outer = masks
    arrays = [make(*([2] * b), *([3] * a)) for make, a, b in zip(CASES[name][1:], inner, outer)]
    batched = operator_of(name).batched(inner)
    for got, expected in zip(run(batched.batched(outer), arrays), one_at_a_time(batched, arrays, outer, 2), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", CASES)
def test_derivatives_and_batches_commute(name, mask):
    """The gradient of a batch is the batch of gradients, summed for what all samples share; the same for tangents."""
    operator, arrays = operator_of(name), [make(2) if many else make() for make, many in zip(CASES[name][1:], mask)]
    outputs = run(operator.batched(mask), arrays)
    wanted, heads = (tuple(a.dtype.kind == "f" for a in group) for group in (arrays, outputs))
    head = [RNG.standard_normal(a.shape) for a in outputs if a.dtype.kind == "f"]
    got = run(operator.batched(mask).vjp(wanted, heads), [*arrays, *head])
    single = one_at_a_time(operator.vjp(wanted, heads), [*arrays, *head], (*mask, *(True for _ in head)), 2)
    shared = [not many for many, want in zip(mask, wanted) if want]
    for one, expected, summed in zip(got, single, shared, strict=True):
        np.testing.assert_allclose(one, expected.sum(0) if summed else expected, rtol=1e-10, atol=1e-12)

    tangents = [RNG.standard_normal(a.shape) for a, want in zip(arrays, wanted) if want]
    moved = tuple(many for many, want in zip(mask, wanted) if want)
    got = run(operator.batched(mask).jvp(wanted), [*arrays, *tangents])
    for one, expected in zip(got, one_at_a_time(operator.jvp(wanted), [*arrays, *tangents], (*mask, *moved), 2), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-10, atol=1e-12)


def test_only_what_is_wanted_is_computed():
    operator = operator_of("affine")
    specs = [Spec((3,), te.float64), Spec((4, 3), te.float64), Spec((4,), te.float64)]
    only_x = operator.vjp((True, False), (True,)).op.trace(*specs)
    assert only_x.outputs == ("x_bar",) and "w_bar" not in str(only_x)
    assert operator.vjp((True, False), (True,)) is operator.vjp((True, False), (True,))


def test_outputs_without_a_head_are_left_out():
    @te.op
    def two(x):
        return te.compute(x.shape, lambda i: te.exp(x[i])), te.compute(x.shape, lambda i: te.sin(x[i]))

    operator, x = Operator.of(two, [0], {}), RNG.standard_normal(3)
    (only,) = run(operator.vjp((True,), (False, True)), [x, np.ones(3)])
    np.testing.assert_allclose(only, np.cos(x))
    assert "exp" not in str(operator.vjp((True,), (False, True)).op.trace(Spec((3,), te.float64), Spec((3,), te.float64)))


def test_trees_static_arguments_and_what_is_left_out():
    @te.op
    def tree(pair, bias=None, *, factor=1):
        a, (b,) = pair
        assert bias is None
        return te.compute(a.shape, lambda i: factor * (a[i] + b[i])), (a,)

    operator = Operator.of(tree, [(0, (0,)), ()], {"factor": 3})
    assert operator.names == ("pair_0", "pair_1_0") and [name for name, _ in leaf_names(tree, [(1, (2,)), ()])] == list(operator.names)
    total, a = run(operator, [np.ones(2), np.arange(2.0)])
    assert total.tolist() == [3, 6] and a.tolist() == [1, 1]


def test_a_traced_function_with_variables_or_effects_is_no_op():
    x, variable = np.ones(3), te.Variable(np.ones(3), name="w")
    for body in (lambda x: x * variable, lambda x: variable.assign(variable + x)):
        traced = op_of(te.function(body), "as_mine")
        with pytest.raises(
            te.DefinitionError,
            match="as_mine: expected a function of its arguments alone, got <lambda>, which has variables or effects",
        ):
            traced(x)
    assert op_of(te.function(lambda x: te.compute(x.shape, lambda i: 2 * x[i])), "as_mine")(x).tolist() == [2, 2, 2]


def test_a_traced_function_reads_like_numpy_as_an_op_too():
    """And where it is called with tensors of the language, which stay without arithmetic on the whole behind it."""
    double = te.op(lambda x: te.compute(x.shape, lambda i: 2 * x[i]))
    operation, x = op_of(te.function(lambda x, y: -double(x) * 0.5 + y), "as_mine"), RNG.standard_normal(3)
    np.testing.assert_allclose(operation(x, np.full(3, 1.5)), 1.5 - x)
    a = te.placeholder((3,), te.float64, name="a")
    shifted = te.function(lambda x: x * 2 - 1)(a)
    np.testing.assert_allclose(te.build(shifted, [a])(x), x * 2 - 1)
    (gradient,) = te.vjp(op_of(te.function(lambda x: x * x), "as_mine"))(x, np.ones(3))
    np.testing.assert_allclose(gradient, 2 * x)
    with pytest.raises(te.DefinitionError, match="expected scalars, got the tensor a of 1 axis"):
        a * 2
