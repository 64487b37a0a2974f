"""What gradients cost, counted on the IR: a small multiple of the forward pass, and nothing of the size of output times input."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.language import program_of
from tests.autodiff.laws import largest, operations, scatters

F64 = "float64"


def convolution():
    x, w = te.placeholder((2, 3, 9, 9), F64, name="x"), te.placeholder((4, 3, 3, 3), F64, name="w")
    y = te.compute((2, 4, 7, 7), lambda n, o, i, j: te.sum(lambda c, r, s: x[n, c, i + r, j + s] * w[o, c, r, s], (3, 3, 3)), name="y")
    return y, [x, w]


def biased_layer():
    x, w, b = te.placeholder((12, 16), F64, name="x"), te.placeholder((16, 10), F64, name="w"), te.placeholder((10,), F64, name="b")
    y = te.compute((12, 10), lambda i, j: te.maximum(te.sum(lambda k: x[i, k] * w[k, j], 16) + b[j], 0.0), name="y")
    return y, [x, w, b]


def softmax_at_once():
    x = te.placeholder((6, 12), F64, name="x")

    def body(i, j):
        highest = te.max(lambda k: x[i, k], 12)
        return te.exp(x[i, j] - highest) / te.sum(lambda m: te.exp(x[i, m] - highest), 12)

    return te.compute((6, 12), body, name="y"), [x]


def kernel_product():
    x, y, b = (te.placeholder(shape, F64, name=name) for name, shape in (("x", (9, 3)), ("z", (8, 3)), ("b", (8,))))
    out = te.compute((9,), lambda i: te.sum(lambda j: te.exp(-te.sum(lambda d: (x[i, d] - y[j, d]) ** 2, 3)) * b[j], 8), name="y")
    return out, [x, y, b]


def nonlinear_stencil():
    x, w = te.placeholder((30,), F64, name="x"), te.placeholder((9,), F64, name="w")
    y = te.compute((22,), lambda i: te.tanh(te.exp(sum((x[i + k] * w[k] for k in range(9)), start=te.cast(0.0, F64)))), name="y")
    return y, [x, w]


def layer_norm():
    x, g = te.placeholder((6, 16), F64, name="x"), te.placeholder((16,), F64, name="g")
    mean = te.compute((6,), lambda i: te.sum(lambda k: x[i, k], 16) / 16.0, name="mean")
    var = te.compute((6,), lambda i: te.sum(lambda k: (x[i, k] - mean[i]) ** 2, 16) / 16.0, name="var")
    return te.compute((6, 16), lambda i, k: (x[i, k] - mean[i]) * te.rsqrt(var[i] + 1e-5) * g[k], name="y"), [x, g]


def products():
    x = te.placeholder((5, 20), F64, name="x")
    return te.compute((5,), lambda i: te.sum(lambda k: te.prod(lambda r: x[i, k + r], 4), 17), name="y"), [x]


CASES = (convolution, biased_layer, softmax_at_once, kernel_product, nonlinear_stencil, layer_norm, products)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_arithmetic_is_a_small_multiple_of_the_forward_pass(case):
    output, wrt = case()
    head = te.placeholder(output.shape, F64, name="H")
    gradient = te.gradient(output, wrt, head=head)
    forward = operations(program_of([output]))
    both = operations(program_of([output, *gradient]))
    assert both - forward <= 5 * forward
    assert not scatters(program_of(list(gradient)))
    assert all(row.iterations == row.reads for row in gradient.report().rows)


@pytest.mark.parametrize("case", [c for c in CASES if c is not kernel_product], ids=lambda case: case.__name__)
def test_no_temporary_is_larger_than_what_is_given_and_computed(case):
    output, wrt = case()
    gradient = te.gradient(output, wrt, head=te.placeholder(output.shape, F64, name="H"))
    assert largest(program_of(list(gradient))) <= max(np.prod(t.shape, dtype=int) for t in (output, *wrt))
