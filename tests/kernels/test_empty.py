"""Every kernel with an axis of nothing, and of one: the interpreter's value and gradient, or an error of ours that says what is wrong.

An extent is shrunk wherever it stands, which keeps a call legal more often than not, or in one axis of one argument alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen.compile import build
from tensorexpr.op.trees import leaves
from tests.kernels.case import Case, flat
from tests.kernels.table import ALL
from tests.seeds import share_of

EACH = 1 / 240
"""The share of all calls that one seed draws, about twenty-five of them."""


def shrunk(case: Case) -> Iterator[list[Any]]:
    """The arguments of a row with an extent made 0 or 1 everywhere, and with one axis made empty."""
    arrays = case.arrays()

    def changed(tree: Any, at: Any, path: tuple[int, ...] = ()) -> Any:
        if isinstance(tree, tuple | list):
            return tuple(changed(item, at, (*path, k)) for k, item in enumerate(tree))
        if tree is None or not tree.ndim:
            return tree
        cut = tuple(slice(0, at(axis, size, path)) for axis, size in enumerate(tree.shape))
        return np.ascontiguousarray(tree[cut])

    sizes = sorted({size for array in flat(arrays) for size in array.shape if size > 1})
    for extent in sizes:
        for value in (0, 1):
            yield list(changed(tuple(arrays), lambda axis, size, path, e=extent, v=value: v if size == e else size))
    for place, axis in [(path, axis) for path, array in paths(arrays) for axis in range(array.ndim)]:
        yield list(changed(tuple(arrays), lambda a, size, path, p=place, x=axis: 0 if (path, a) == (p, x) else size))


def paths(tree: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    if isinstance(tree, tuple | list):
        for k, item in enumerate(tree):
            yield from paths(item, (*path, k))
    elif tree is not None:
        yield path, tree


def like(tree: Any, made: list[te.Tensor]) -> Any:
    """Placeholders in place of arrays."""
    if isinstance(tree, tuple | list):
        return tuple(like(item, made) for item in tree)
    if tree is None:
        return None
    made.append(te.placeholder(tree.shape, tree.dtype, name=f"in_{len(made)}"))
    return made[-1]


def outcome(run: Any) -> Any:
    try:
        return run()
    except te.OutOfBoundsError:
        return "out of bounds"


def check(case: Case, arrays: list[Any]) -> bool:
    """Whether the call is legal; what it gives is the interpreter's then."""
    inputs: list[te.Tensor] = []
    arguments = like(tuple(arrays), inputs)
    try:
        results = [t for t in leaves(case.op(*arguments, **case.static)) if isinstance(t, te.Tensor)]
    except te.TensorExprError as error:
        assert not isinstance(error, te.InternalError)
        return False
    values = dict(zip(inputs, flat(arrays), strict=True))
    wrt = [t for t in inputs if t.dtype.is_float]
    outputs = [t for t in results if t.dtype.is_float]
    if case.differentiable and wrt and outputs:
        heads = [te.placeholder(t.shape, t.dtype, name=f"H{k}") for k, t in enumerate(outputs)]
        results += te.gradient(outputs, wrt, heads)
        values |= {h: np.full(h.shape, 0.5, h.dtype.numpy) for h in heads}
    with np.errstate(all="ignore"):
        want = outcome(lambda: te.evaluate(results, values))
    plain = te.schedule(results)
    read = {tensor: values[tensor] for i in plain.program.inputs for tensor in values if tensor.name == i.name}
    for schedule, given in ((results, values), (plain, read)):
        got = outcome(lambda s=schedule, g=given: build(s, list(g))(*g.values()))
        if isinstance(want, str) or isinstance(got, str):
            assert got == want if not isinstance(want, tuple) else isinstance(want, tuple) == isinstance(got, tuple)
            continue
        for mine, other in zip(got, want, strict=True):
            assert mine.shape == other.shape and mine.dtype == other.dtype
            np.testing.assert_allclose(mine, other, rtol=1e-6, atol=1e-9)
    return True


@pytest.mark.parametrize("seed", share_of(range(18)))
def test_an_axis_of_nothing_or_of_one(seed):
    rng = random.Random(seed)
    for case in ALL:
        for arrays in shrunk(case):
            if rng.random() < EACH:
                check(case, arrays)


def test_no_elements_are_counted_in_any_shape():
    """NumPy's `reshape` of nothing."""
    for own, other in (((2, 0, 3), (0, 5)), ((0,), (3, 0, 2)), ((0, 4), (4, 0)), ((3, 0), (0,)), ((2, 0, 3), (2, 0, 1, 1))):
        found = kernels.reshape(np.zeros(own), shape=other)
        assert found.shape == other
        (back,) = te.vjp(kernels.reshape)(np.zeros(own), np.zeros(other), shape=other)
        assert back.shape == own
    assert kernels.flatten(np.zeros((2, 0, 3))).shape == (0,)
    assert kernels.unflatten(np.zeros((2, 0)), axis=1, sizes=(3, 0, 5)).shape == (2, 3, 0, 5)
