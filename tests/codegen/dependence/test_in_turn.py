"""Products that are added to an element together are added one after the other: the same sum, in one instruction less."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.dependence import in_turn, operation_of
from tensorexpr.codegen.llvm.text.machine import host
from tensorexpr.codegen.nest import Store
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.rewrites.paths import walk_nest
from tensorexpr.text import print_expr


def _store(value: str) -> Store:
    nest = parse_nest(f"""
main(a, b, y)
a: parameter(f32[8, 8])
b: parameter(f32[8, 8])
y: parameter(f32[8], written)

def kernel_0() -> y:
    for i in range(0, 8):
        y[i] = 0.0
    for i in range(0, 8):
        for k in range(0, 8):
            y[i] = {value}
""")
    return [s for _, s in walk_nest(nest) if isinstance(s, Store)][-1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("y[i] + (a[i, k] * b[i, k] + a[k, i] * b[k, i])", "y[i] + a[i, k] * b[i, k] + a[k, i] * b[k, i]"),
        ("a[i, k] * b[i, k] - a[k, i] * b[k, i] + y[i]", "y[i] + a[i, k] * b[i, k] - a[k, i] * b[k, i]"),
        ("y[i] + (a[i, k] - (a[k, i] * b[k, i] - a[k, k] * b[i, k]))", "y[i] + a[i, k] - a[k, i] * b[k, i] + a[k, k] * b[i, k]"),
    ],
)
def test_products_come_one_after_the_other(value: str, expected: str) -> None:
    store = _store(value)
    found = in_turn(store)
    assert print_expr(found) == expected
    assert operation_of(Store(store.buffer, store.indices, found)) == operation_of(store) == "add"


@pytest.mark.parametrize(
    "value",
    [
        "y[i] + a[i, k] * b[i, k]",  # one product is one instruction as it is
        "y[i] + (a[i, k] + b[i, k])",
        "y[i] + (y[i] * b[i, k] + a[k, i] * b[k, i])",  # no update
        "y[k] + (a[i, k] * b[i, k] + a[k, i] * b[k, i])",
        "maximum(y[i], a[i, k] * b[i, k] + a[k, i] * b[k, i])",
        "y[i] + (a[i, k] * b[i, k] + a[k, i] * b[k, i] + a[k, k] * b[k, k] + a[i, i] * b[k, k] + a[i, k] * b[i, i])",  # a long chain
    ],
)
def test_other_values_stay(value: str) -> None:
    store = _store(value)
    assert in_turn(store) is store.value


@pytest.mark.parametrize("extents", [(5, 7, 3), (33, 40, 65), (64, 96, 128)])
def test_a_complex_product_has_as_many_instructions_as_products(extents: tuple[int, int, int]) -> None:
    n, depth, m = extents

    @te.op
    def product(a, b):  # type: ignore[no-untyped-def]
        return te.compute((n, m), lambda i, j: te.sum(lambda k: a[i, 0, k] * b[k, 0, j] - a[i, 1, k] * b[k, 1, j], depth))

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((n, 2, depth)).astype(np.float32), rng.standard_normal((depth, 2, m)).astype(np.float32)
    expected = a[:, 0].astype(np.float64) @ b[:, 0] - a[:, 1].astype(np.float64) @ b[:, 1]
    assert np.abs(product(a, b) - expected).max() < 1e-5 * np.sqrt(depth) * np.abs(expected).max()
    llvm = product.compile(a, b).source("llvm")
    assert not host().fuses or "fmul" not in llvm
