"""Powers by the index of a short sum: in copies of its loop they are products, and the search makes these."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.auto import operations
from tensorexpr.codegen.auto.cost import predict
from tensorexpr.codegen.llvm.text.machine import host
from tensorexpr.dtypes import float32


def _polynomial(degree: int) -> te.Op:
    @te.op
    def polynomial(x, c):  # type: ignore[no-untyped-def]
        return te.compute(x.shape, lambda i: te.sum(lambda k: c[k] * x[i] ** k, degree + 1))

    return polynomial


@pytest.mark.parametrize("degree", [1, 4, 8, 15])
def test_a_polynomial_has_no_power_left(degree: int) -> None:
    op, rng = _polynomial(degree), np.random.default_rng(degree)
    x, c = rng.standard_normal(20011).astype(np.float32), rng.standard_normal(degree + 1).astype(np.float32)
    llvm = op.compile(x, c).source("llvm")
    assert "@te.pow" not in llvm
    expected = np.polynomial.polynomial.polyval(x.astype(np.float64), c.astype(np.float64))
    scale = np.polynomial.polynomial.polyval(np.abs(x).astype(np.float64), np.abs(c).astype(np.float64))
    assert (np.abs(op(x, c) - expected) <= 4e-7 * (degree + 1) * scale).all()


def test_the_gradient_by_coefficients_is_in_products_too() -> None:
    op, rng = te.vjp(_polynomial(8)), np.random.default_rng(0)
    x, c, head = (rng.standard_normal(n).astype(np.float32) for n in (20011, 9, 20011))
    llvm = op.compile(x, c, head).source("llvm")
    assert "@te.pow" not in llvm
    x_bar, c_bar = op(x, c, head)
    wide, powers = x.astype(np.float64), x.astype(np.float64)[:, None] ** np.arange(9)
    slope = np.polynomial.polynomial.polyval(wide, np.polynomial.polynomial.polyder(c.astype(np.float64)))
    assert np.abs(c_bar - head.astype(np.float64) @ powers).max() < 1e-5 * np.abs(powers).sum(axis=0).max()
    assert np.abs(x_bar - head * slope).max() < 1e-5 * np.abs(head * slope).max()


def test_the_model_knows_what_copies_of_a_power_take() -> None:
    few, any_ = (sum(n for _, n in own) for own in (operations.power(8, float32, host()), operations.instructions("pow", float32, host())))
    assert few * 8 < any_
    y = _polynomial(8)(te.placeholder((20000,), name="x"), te.placeholder((9,), name="c"))
    s = te.schedule(y)
    s[y].split("i", 16)
    s[y].reorder("i_o", "k", "i_i")
    s[y].vectorize("i_i")
    one_by_one = predict(s.nest)
    s[y].unroll("k")
    assert predict(s.nest) * 4 < one_by_one
