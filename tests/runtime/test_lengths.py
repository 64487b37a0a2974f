"""Ops that are called with many lengths: what is opened, which calls run it, and that results and errors are those of fixed sizes."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.op.lengths import LENGTHS, SMALL, Form, _forms
from tests.runtime.pages import GuardedArray, guarded_copy

RNG = np.random.default_rng(0)
LATER = (1, 0, 33, 2, 300, 7, 64)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def made(function):
    """An op of its own, with what it was traced for."""
    traced = []

    def told(*tensors):
        traced.append(tensors[0].shape)
        return function(*tensors)

    names = ", ".join(function.__code__.co_varnames[: function.__code__.co_argcount])
    scope = {"told": told}
    exec(f"def f({names}): return told({names})", scope)
    return te.op(scope["f"]), traced


def center(x):
    n, m = x.shape
    mean = te.compute((n,), lambda i: te.sum(lambda j: x[i, j], m) / m)
    return te.compute((n, m), lambda i, j: x[i, j] - mean[i])


def convolution(x, w):
    (n,), (r,) = x.shape, w.shape
    return te.compute((n - r + 1,), lambda i: te.sum(lambda q: x[i + q] * w[q], r))


def strided(x):
    return te.compute(((x.shape[0] - 3) // 2 + 1,), lambda i: x[2 * i] + x[2 * i + 2])


def joined(x, y):
    return kernels.concatenate((x, y))


def outer(x, y):
    return te.compute((x.shape[0], y.shape[0]), lambda i, j: x[i] * y[j])


def gathered(x, i):
    return te.compute(i.shape, lambda k: x[i[k]])


def alone(monkeypatch, f, *arrays):
    """What an op gives that was not called before, or raises."""
    with monkeypatch.context() as patch:
        patch.setenv("TENSOREXPR_LENGTHS", "0")
        try:
            return f(*arrays)
        except te.TensorExprError as error:
            return error


def cases():
    ones = np.ones(3, np.float32)
    yield "center", center, lambda n: (floats(n, n + 3),)
    yield "two sizes", center, lambda n: (floats(n, n * n % 29 + 2),)
    yield "convolution", convolution, lambda n: (floats(n), ones)
    yield "taps as well", convolution, lambda n: (floats(n), floats(n % 3 + 2))
    yield "strided", strided, lambda n: (floats(n),)
    yield "joined", joined, lambda n: (floats(n), floats(2 * n + 1))
    yield "outer", outer, lambda n: (floats(n), floats(n * n % 31 + 2))
    yield "gathered", gathered, lambda n: (floats(n), RNG.integers(0, max(n, 1), 2 * n))


def grads():
    yield "center", center, lambda n: (floats(n, n + 3), floats(n, n + 3))
    yield "convolution", convolution, lambda n: (floats(n), np.ones(3, np.float32), floats(max(0, n - 2)))
    yield "strided", strided, lambda n: (floats(n), floats(max(0, (n - 3) // 2 + 1)))
    yield "outer", outer, lambda n: (floats(n), floats(n * n % 31 + 2), floats(n, n * n % 31 + 2))


def compared(monkeypatch, function, transform, arrays_of):
    operation, traced = made(function)
    fresh = transform(te.op(function))
    operation = transform(operation)
    for n in range(5, 6 + LENGTHS):
        operation(*arrays_of(n))
    before = len(traced)
    for n in LATER:
        arrays = arrays_of(n)
        wanted = alone(monkeypatch, fresh, *arrays)
        if isinstance(wanted, te.TensorExprError):
            with pytest.raises(type(wanted)) as caught:
                operation(*arrays)
            assert caught.value.message == wanted.message
            continue
        given = [guarded_copy(a, at_end=n % 2 == 0) for a in arrays]
        flat = wanted if isinstance(wanted, tuple) else (wanted,)
        results = [GuardedArray(w.shape, w.dtype, n % 2 == 1).array for w in flat]
        operation(*given, out=tuple(results) if isinstance(wanted, tuple) else results[0])
        for found, w in zip(results, flat, strict=True):
            np.testing.assert_allclose(found, w, rtol=1e-4, atol=1e-4)
    return len(traced) - before


@pytest.mark.parametrize(("function", "arrays_of"), [c[1:] for c in cases()], ids=[c[0] for c in cases()])
def test_results_are_those_of_fixed_sizes(monkeypatch, function, arrays_of):
    small = sum(n < SMALL for n in LATER)
    assert compared(monkeypatch, function, lambda f: f, arrays_of) <= small + 1


@pytest.mark.parametrize(("function", "arrays_of"), [c[1:] for c in grads()], ids=[c[0] for c in grads()])
def test_gradients_are_those_of_fixed_sizes(monkeypatch, function, arrays_of):
    small = sum(n < SMALL for n in LATER)
    assert compared(monkeypatch, function, te.vjp, arrays_of) <= small + 1


def test_some_lengths_are_compiled_and_then_all():
    f, traced = made(center)
    for n in range(5, 40):
        x = floats(n, n + 2)
        np.testing.assert_allclose(f(x), x - x.mean(1, keepdims=True), atol=1e-5)
    assert len(traced) == LENGTHS + 1


def test_lengths_that_were_met_keep_their_code_and_equal_calls_their_bits():
    f, _ = made(center)
    arrays = [floats(n, 3 * n) for n in range(5, 30)]
    first = [f(x) for x in arrays]
    for x, y in zip(arrays, first, strict=True):
        np.testing.assert_array_equal(f(x), y)


def test_an_op_that_looks_at_its_extents_is_compiled_for_each():
    def halves(x):
        n = x.shape[0]
        return te.compute((n,), lambda i: x[i] * (2 if n % 2 else 3))

    f, traced = made(halves)
    for n in range(2, 24):
        x = floats(n)
        np.testing.assert_array_equal(f(x), x * np.float32(2 if n % 2 else 3))
    assert len(traced) == 22 + 1  # opened in vain, once


def test_an_op_that_looks_its_extents_up_is_compiled_for_each():
    factors = {16: 5.0}
    f, traced = made(lambda x: te.compute(x.shape, lambda i: x[i] * factors.get(x.shape[0], 1.0)))
    for n in (*range(2, 13), 16):
        x = floats(n)
        np.testing.assert_array_equal(f(x), x * np.float32(factors.get(n, 1.0)))
    assert len(traced) == 12 + 1


def test_an_op_that_needs_long_arrays_is_opened_from_the_least_on():
    f, traced = made(lambda x: te.compute((), lambda: x[x.shape[0] - 5]))
    for n in range(6, 30):
        x = floats(n)
        assert f(x) == x[n - 5]
    assert len(traced) == LENGTHS + 2
    assert f(floats(5)).shape == () and len(traced) == LENGTHS + 3
    with pytest.raises(te.DefinitionError):
        f(floats(4))


def test_relations_that_do_not_hold_are_compiled_and_then_opened():
    f, traced = made(outer)
    for n in range(3, 4 + LENGTHS):
        f(floats(n), floats(n))
    assert len(traced) == LENGTHS + 1
    for n in range(3, 14 + LENGTHS):
        x, y = floats(n), floats(n * n % 23 + 2)
        np.testing.assert_array_equal(f(x, y), np.outer(x, y))
    assert len(traced) <= 2 * LENGTHS + 3


def test_arrays_that_do_not_agree_are_refused_as_ever():
    f, _ = made(lambda x, y: te.compute(x.shape, lambda i: x[i] + y[i]))
    for n in range(3, 20):
        f(floats(n), floats(n))
    with pytest.raises(te.DefinitionError, match=r"expected an index in range\(30\) on axis 0, got i from 0 to 30"):
        f(floats(31), floats(30))


def test_an_index_that_leaves_its_tensor_is_named_as_ever():
    f, traced = made(gathered)
    for n in range(3, 20):
        f(floats(n), np.arange(n))
    with pytest.raises(IndexError, match="expected an index of x from 0 to 30, got 31"):
        f(floats(31), np.full(31, 31))
    assert traced[-1] == (31,)  # in the words of code for these extents


def test_nothing_is_opened_where_the_environment_says_so(monkeypatch):
    monkeypatch.setenv("TENSOREXPR_LENGTHS", "0")
    f, traced = made(center)
    for n in range(2, 14):
        f(floats(n, 3))
    assert len(traced) == 12
    monkeypatch.setenv("TENSOREXPR_LENGTHS", "few")
    with pytest.raises(te.ArgumentError, match="TENSOREXPR_LENGTHS: expected a number of lengths, got 'few'"):
        f(floats(20, 3))


def test_trees_static_arguments_and_out():
    @te.op
    def moved(pair, *, by=1.0):
        return te.compute(pair[0].shape, lambda i: pair[0][i] + by), te.compute(pair[1].shape, lambda i: pair[1][i] - by)

    for n in range(2, 20):
        x, y = floats(n), floats(n + 4)
        first, second = moved((x, y), by=2.0)
        np.testing.assert_array_equal(first, x + np.float32(2))
        np.testing.assert_array_equal(second, y - np.float32(2))
        out = np.empty(n, np.float32), np.empty(n + 4, np.float32)
        moved((x, y), by=2.0, out=out)
        np.testing.assert_array_equal(out[1], second)


def test_what_extents_are_of_others():
    lengths = range(5, 14)
    assert list(_forms([(n, n, 4, n - 2) for n in lengths])) == [None, Form("linear", (0,)), 4, Form("linear", (0,), 1, -2)]
    assert list(_forms([(n, 2 * n + 1) for n in lengths]))[1] == Form("linear", (0,), 2, 1)
    assert list(_forms([(n, (n - 3) // 2 + 1) for n in lengths]))[1] == Form("divided", (0,), 2, -1)
    both = [(n, n * n % 31) for n in lengths]
    assert list(_forms([(n, m, n + m, n * m) for n, m in both])) == [None, None, Form("sum", (0, 1)), Form("product", (0, 1))]
