"""Literals in finished kernels are folded, and tests that are decided are gone."""

import re

import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.lowering.kernels.literals import with_folded_literals
from tensorexpr.codegen.nest import For, If, Kernel, Store
from tensorexpr.codegen.nest.text import print_kernel
from tensorexpr.dtypes import float32
from tensorexpr.ir import FALSE, TRUE, Const, Index, apply, const

ZERO, ONE = Const(0.0, float32), Const(1.0, float32)


def test_bounds_conditions_and_subscripts():
    k = Index("k")
    store = Store("y", (apply("add", apply("minimum", const(3), const(5)), k),), apply("where", apply("lt", const(3), const(2)), ZERO, ONE))
    body = (
        If(apply("lt", const(3), const(4)), (store,), ()),
        If(FALSE, (store,), (Store("y", (k,), apply("add", ZERO, ONE)),)),
        If(apply("and", TRUE, apply("lt", k, const(3))), (store,)),
        If(apply("gt", const(1), const(2)), (store,)),
    )
    kernel = Kernel("y", (For("k", apply("minimum", const(0), const(48)), apply("sub", const(9), const(1)), body),))
    assert "\n".join(print_kernel(with_folded_literals(kernel))) == (
        "def kernel_0() -> y:\n"
        "    for k in range(0, 8):\n"
        "        y[3 + k] = 1.0\n"
        "        y[k] = 0.0 + 1.0\n"  # floats are the program's
        "        if k < 3:\n"
        "            y[3 + k] = 1.0"
    )


@pytest.mark.parametrize("padding", [0, 2])
def test_gradient_of_attention_in_a_window(padding):
    """The rows of a window that none of its loops reaches had a test that is always true."""
    q, k, v = (te.placeholder((2, 6 + padding, 3), "float64", name=name) for name in "qkv")
    y = kernels.sliding_window_attention(q, k, v, left=2)
    head = te.placeholder(y.shape, "float64", name="y_bar")
    text = te.build(list(te.gradient(y, [q, k, v], head=head)), [q, k, v, head]).source("nest")
    assert not re.search(r"(minimum|maximum)\(-?\d+, -?\d+\)|if (True|False)", text)
