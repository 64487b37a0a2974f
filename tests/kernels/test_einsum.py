"""Einstein's sums: how they are called, and what a path costs."""

import numpy as np

import tensorexpr as te
from tensorexpr import kernels


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
