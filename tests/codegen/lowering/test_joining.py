"""Stores of residue classes side by side: what is joined, what is not, and that the values stay."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import dtypes
from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.lowering.stage.joining import follows, joined
from tensorexpr.codegen.nest import Alloc, Buffer, For, Store
from tensorexpr.ir import Access, Const, Index, apply, const
from tests.codegen.programs import by_planners, planned

F32 = dtypes.float32


def lanes(buffer, value, offset, extent=16, kind="vectorize", step=2):
    place = apply("add", apply("mul", Index("l"), const(step)), const(offset))
    return For("l", const(0), const(extent), (Store(buffer, (place,), value),), kind)


def copy(number, **options):
    acc = Buffer(f"acc{number}", F32, (const(16),), "local")
    start = For("l", const(0), const(16), (Store(acc.name, (Index("l"),), Const(0.0, F32)),), "vectorize")
    value = options.pop("value", Access(acc.name, (Index("l"),), F32))
    return (Alloc(acc, (start, lanes(options.pop("buffer", "C"), value, options.pop("offset", number), **options))),)


def stores_of(block):
    while isinstance(block[0], Alloc):
        (alloc,) = block
        block = alloc.body
    return [[s.buffer for s in loop.body] for loop in block]


def test_neighbors_are_stored_in_one_loop():
    assert stores_of(joined([copy(0), copy(1)])) == [["acc0"], ["acc1"], ["C", "C"]]
    assert stores_of(joined([copy(0, step=3), copy(1, step=3), copy(2, step=3)])) == [["acc0"], ["acc1"], ["acc2"], ["C"] * 3]


@pytest.mark.parametrize(
    "second",
    [
        copy(1, offset=5),
        copy(1, buffer="D"),
        copy(1, extent=8),
        copy(1, kind="serial"),
        copy(1, value=Access("C", (Index("l"),), F32)),
        copy(0, offset=1),
        (),
    ],
    ids=["not beside", "another tensor", "other lanes", "not in lanes", "reads what is stored", "one name twice", "nothing"],
)
def test_what_is_not_alike_stays_apart(second):
    assert joined([copy(0), second]) == (*copy(0), *second) or len(joined([copy(0), second])) == 1 + len(second)


def test_the_order_counts():
    first, second = (copy(k)[0].body[-1].body[0] for k in (0, 1))
    assert follows(first, second) and not follows(second, first)
    assert len(joined([copy(1), copy(0)])) == 2


@pytest.mark.parametrize("length", [7, 16, 33, 56, 112])
@pytest.mark.parametrize("stride", [2, 3])
def test_gradients_of_strided_sums_by_classes(length, stride):
    """Law: the default schedule of a gradient by residue classes gives what the plain loops give."""
    extent = stride * length + 3
    x = te.placeholder((3, extent), name="x")
    y = te.compute((3, length), lambda i, o: te.sum(lambda r: x[i, stride * o + r] * te.cast(r + 1, "float32"), 4), name="y")
    head = te.placeholder(y.shape, name="head")
    (gradient,) = te.gradient(y, [x], head)
    data = np.random.default_rng(0).integers(-9, 9, y.shape).astype(np.float32)
    want = np.zeros((3, extent), np.float32)
    for o in range(length):
        for r in range(4):
            want[:, stride * o + r] += data[:, o] * (r + 1)
    np.testing.assert_array_equal(te.build(gradient, [head])(data), want)
    np.testing.assert_array_equal(te.build(planned(gradient), [head])(data), want)


def test_pooling_gradients_store_their_classes_together():
    x, head = te.placeholder((2, 112), name="x"), te.placeholder((2, 55), name="head")
    y = te.compute((2, 55), lambda i, o: te.sum(lambda r: x[i, 2 * o + r], 3), name="y")
    (gradient,) = te.gradient(y, [x], head)
    nest = lower(by_planners(gradient))
    text = str(nest)
    assert text.count(f"{nest.writes[0]}[") == 2
    at = text.index(f"{nest.writes[0]}[")
    assert "for" not in text[at:]
