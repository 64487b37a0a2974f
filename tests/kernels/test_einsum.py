"""Einstein's sums: how they are called, and what a path costs."""

import warnings

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tests.messages import said


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape) for shape in shapes]


def test_the_equation_stands_in_front_or_is_an_argument_by_name():
    a, b = arrays((3, 4), (4, 2))
    np.testing.assert_allclose(kernels.einsum("ij,jk->ik", a, b), a @ b)
    np.testing.assert_allclose(kernels.einsum((a, b), equation="ij,jk->ik"), a @ b)
    assert kernels.einsum("ij->ji", te.placeholder((3, 4))).shape == (4, 3)
    out = np.empty((3, 2))
    assert kernels.einsum("ij,jk", a, b, out=out) is out


def test_operands_may_be_a_list():
    a, b = np.arange(6.0).reshape(2, 3), np.arange(3.0)
    np.testing.assert_array_equal(kernels.einsum("ij,j", [a, b]), a @ b)


def test_errors_say_the_equation():
    lines = said(te.ArgumentError, lambda: kernels.einsum("ij,jk->il", *arrays((2, 3), (3, 4))))
    assert lines[0] == "einsum 'ij,jk->il': expected result labels of the operands, got 'l'"


def test_gradients_come_as_the_operands_do():
    a, b = arrays((3, 4), (4, 2))
    head = np.ones((3, 2))
    ((a_bar, b_bar),) = te.vjp(kernels.einsum)((a, b), head, equation="ij,jk->ik")
    np.testing.assert_allclose(a_bar, head @ b.T)
    np.testing.assert_allclose(b_bar, a.T @ head)


def test_indices_are_called_as_the_labels_are():
    a, b = te.placeholder((3, 4), name="a"), te.placeholder((2, 4, 5), name="b")
    program = te.program_of([kernels.einsum("ij,...jk->...ik", a, b)])
    assert "einsum[d0, i, k]: f32[2, 3, 5] = sum(a[i, j] * b[d0, j, k] for j in range(4))" in str(program)


def test_a_chain_costs_as_its_pairs_do():
    size = 32
    chain = [te.placeholder((size, size), name=name) for name in "abcd"]
    compiled = te.build(kernels.einsum("ij,jk,kl,lm->im", *chain), chain)
    assert compiled.cost.operations == 3 * 2 * size**3


def test_the_narrow_way_is_taken_first():
    x, y, v = (te.placeholder(shape, name=name) for shape, name in (((64, 64), "x"), ((64, 64), "y"), ((64,), "v")))
    compiled = te.build(kernels.einsum("ij,jk,k->i", x, y, v), [x, y, v])
    assert compiled.cost.operations == 2 * 2 * 64**2


def test_what_one_operand_has_alone_is_summed_before_the_product():
    x, y = te.placeholder((64, 64), name="x"), te.placeholder((64, 64), name="y")
    compiled = te.build(kernels.einsum("ij,jk->k", x, y), [x, y])
    assert compiled.cost.operations <= 64**2 + 2 * 64**2


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "int32", "uint32", "int64"])
def test_products_keep_the_dtype_of_their_operands_as_numpys_do(dtype):
    rng = np.random.default_rng(0)
    info = None if dtype == "bool" else np.iinfo(dtype)
    a, b = (rng.integers(0 if info is None else info.min, 2 if info is None else info.max, (3, 5)).astype(dtype) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for found, expected in (
            (kernels.matmul(a, b.T), a @ b.T),
            (kernels.einsum("ij,kj->ik", a, b), np.einsum("ij,kj->ik", a, b)),
            (kernels.tensordot(a, b, axes=2), np.tensordot(a, b)),
            (kernels.inner(a, b), np.inner(a, b)),
            (kernels.dot(a[0], b[0]), a[0] @ b[0]),
            (kernels.linear(a, b), a @ b.T),
        ):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
