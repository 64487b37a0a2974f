"""Meshes of several dimensions: what devices have by different rules along them, put together, is what one device has."""

import random

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.interop.sharding.plan import choices
from tensorexpr.sharding import Sharding
from tests.kernels.table import ALL
from tests.seeds import share_of
from tests.sharding.law import backward, forward, on_a_mesh, values

MESHES = ((2, 2), (2, 3), (3, 2), (2, 2, 2))


def compare(sharding, counts, choice, arguments, whole):
    rules = [None if rule is None else (rule.inputs, rule.outputs) for rule in choice]
    for ours, theirs in zip(on_a_mesh(sharding, counts, choice, arguments), whole, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-9, err_msg=f"{sharding.program}\n{rules} on {counts}")


def every_choice(program, counts):
    sharding, draw = Sharding(program), np.random.default_rng(0).standard_normal
    arguments = {given.name: draw(sharding.extents(given.name)) for given in program.inputs}
    found = list(choices(sharding, counts))
    for choice in found:
        compare(sharding, counts, choice, arguments, values(program, arguments))
    return sum(all(rule is not None and rule.combine for rule in choice) and len({rule.sites for rule in choice}) > 1 for choice in found)


def place(name, *shape):
    return te.placeholder(shape, "float64", name=name)


X, W, Z, V = place("x", 3, 5), place("w", 5), place("z", 3, 7), place("v", 7)


def of_rows(value):
    return [te.compute((3,), value, name="y")]


def first(i):
    return te.sum(lambda k: X[i, k] * W[k], 5)


def second(i):
    return te.sum(lambda k: Z[i, k] * V[k], 7)


PROGRAMS = {
    "a sum of two sums": of_rows(lambda i: first(i) + second(i)),
    "beside a bias": of_rows(lambda i: (second(i) - W[0]) + (V[i] - first(i)) / 3.0),
    "a product of two sums": of_rows(lambda i: first(i) * second(i)),
    "a sum in a sum": of_rows(lambda i: te.sum(lambda k: X[i, k] * te.sum(lambda j: Z[i, j] * V[j] * X[i, k], 7) + W[k], 5)),
    "one or the other": of_rows(lambda i: te.where(i < 1, first(i), -second(i))),
    "greatest of two": of_rows(
        lambda i: te.maximum(te.max(lambda k: X[i, k] * W[k], 5), te.max(lambda k: Z[i, k] * V[k], 7) + X[i, 0])
    ),
    "a product of products": of_rows(lambda i: te.prod(lambda k: X[i, k] * W[k], 5) * te.prod(lambda k: Z[i, k] * V[k], 7)),
    "one is split where the other is an addend": [
        *of_rows(lambda i: te.sum(lambda k: X[i, k] * W[k], 5) + Z[i, 0]),
        te.compute((), lambda: te.sum(lambda k, i: Z[i, k] * V[k], (7, 3)), name="all"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("counts", [(2, 2), (3, 2)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_different_addends_along_two_dimensions(name, counts):
    assert every_choice(te.program_of(PROGRAMS[name], [X, W, Z, V]), counts)


def test_a_product_of_two_products_of_matrices():
    chain = [place(f"a{k}", *shape) for k, shape in enumerate([(2, 5), (5, 1), (1, 9), (9, 3)])]
    assert every_choice(te.program_of([kernels.multi_dot(tuple(chain))], chain), (2, 2))


@pytest.mark.parametrize("seed", share_of(range(300)))
def test_kernels_on_random_meshes(seed):
    draw = random.Random(seed)
    case = draw.choice(ALL)
    program, arrays = (backward if case.differentiable and draw.random() < 0.3 else forward)(case)
    sharding, counts = Sharding(program), draw.choice(MESHES)
    found = [choice for choice in choices(sharding, counts) if any(rule is not None for rule in choice)]
    arguments = dict(zip((given.name for given in program.inputs), arrays, strict=True))
    for choice in draw.sample(found, min(2, len(found))):
        compare(sharding, counts, choice, arguments, values(program, arguments))
