"""Which sums of products are rounded once: settled by the statement, whatever stands around it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tensorexpr import dtypes
from tensorexpr.codegen.llvm import emit, host
from tensorexpr.codegen.llvm.text.machine import Machine
from tensorexpr.ir import Const, Expr, Index, apply, const
from tests.codegen.llvm.nests import buffer, loop, nest, read, run, write

F = dtypes.float64
X, W, Z, Y = (buffer(name, F, 64) for name in "XWZY")
ZERO = Const(0.0, F)
i = Index("i")
x, w, z = (read(b, i) for b in (X, W, Z))


def product(a: Expr, b: Expr) -> Expr:
    return apply("mul", a, b)


def fused(a: float, b: float, c: float) -> float:
    return float(Fraction(a) * Fraction(b) + Fraction(c)) if host().fuses else a * b + c


def chosen(taken: Expr, otherwise: Expr) -> Expr:
    return apply("where", apply("lt", i, const(37)), taken, otherwise)


FORMS = {
    "x w + z": (apply("add", product(x, w), z), lambda k, a, b, c: fused(a, b, c)),
    "z + x w": (apply("add", z, product(x, w)), lambda k, a, b, c: fused(a, b, c)),
    "x w - z": (apply("sub", product(x, w), z), lambda k, a, b, c: fused(a, b, -c)),
    "z - x w": (apply("sub", z, product(x, w)), lambda k, a, b, c: fused(-a, b, c)),
    "x w + z z": (apply("add", product(x, w), product(z, z)), lambda k, a, b, c: fused(a, b, c * c)),
    "(x w + z) + x w": (apply("add", apply("add", product(x, w), z), product(x, w)), lambda k, a, b, c: fused(a, b, fused(a, b, c))),
    "x w + x w": (apply("add", product(x, w), product(x, w)), lambda k, a, b, c: a * b + a * b),
    "x w - x w": (apply("sub", product(x, w), product(x, w)), lambda k, a, b, c: 0.0),
    "x w + z 0": (apply("add", product(x, w), product(z, ZERO)), lambda k, a, b, c: a * b),
    "z 0 + x w": (apply("add", product(z, ZERO), product(x, w)), lambda k, a, b, c: a * b),
    "where(i < 37, x w, 0) + z": (apply("add", chosen(product(x, w), ZERO), z), lambda k, a, b, c: fused(a, b, c) if k < 37 else c),
    "z - where(i < 37, x, x w)": (apply("sub", z, chosen(x, product(x, w))), lambda k, a, b, c: c - a if k < 37 else fused(-a, b, c)),
    "x w + where(i < 37, z z, z)": (
        apply("add", product(x, w), chosen(product(z, z), z)),
        lambda k, a, b, c: fused(a, b, c * c if k < 37 else c),
    ),
    "where(i < 37, z z, z) - x w": (
        apply("sub", chosen(product(z, z), z), product(x, w)),
        lambda k, a, b, c: fused(c, c, -(a * b)) if k < 37 else fused(-a, b, c),
    ),
    "where(i < 37, x w, z) + x w": (
        apply("add", chosen(product(x, w), z), product(x, w)),
        lambda k, a, b, c: a * b + a * b if k < 37 else fused(a, b, c),
    ),
    "x w - where(i < 37, z, x w)": (
        apply("sub", product(x, w), chosen(z, product(x, w))),
        lambda k, a, b, c: fused(a, b, -c) if k < 37 else 0.0,
    ),
    "where(i < 37, x w + z, x w - z)": (
        chosen(apply("add", product(x, w), z), apply("sub", product(x, w), z)),
        lambda k, a, b, c: fused(a, b, c if k < 37 else -c),
    ),
    "max(x w, z)": (apply("maximum", product(x, w), z), lambda k, a, b, c: max(a * b, c)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["serial", "vectorize", "unroll"])
def test_a_sum_with_a_product_that_is_not_the_other_side_too_is_rounded_once(form: str, kind: str) -> None:
    value, meaning = FORMS[form]
    rng = np.random.default_rng(5)
    given = {name: rng.standard_normal(64) for name in "XWZ"}
    found = run(nest([X, W, Z, Y], [Y], (loop("i", 64, write(Y, [i], value), kind=kind),)), given)["Y"]
    expected = [meaning(k, *numbers) for k, numbers in enumerate(zip(*(given[name].tolist() for name in "XWZ"), strict=True))]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("triple", "features", "fuses"),
    [("x86_64-unknown-linux-gnu", "+sse4.2", False), ("x86_64-unknown-linux-gnu", "+avx2,+fma", True), ("aarch64-linux-gnu", "", True)],
)
def test_where_a_cpu_has_no_such_instruction_nothing_is_fused(triple: str, features: str, fuses: bool) -> None:
    """It would be a call of the mathematical library for each number."""
    statement = loop("i", 64, write(Y, [i], FORMS["x w + z"][0]))
    text = emit(nest([X, W, Z, Y], [Y], (statement,)), Machine(triple, "generic", features, 128))
    assert ("@llvm.fma" in text) == fuses
