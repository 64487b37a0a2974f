"""Rearranging kernels: what they refuse, and sizes known only at run time."""

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels

X = te.placeholder((3, 4), name="x")
N, M = te.dim("n"), te.dim("m")
Z = te.placeholder((N, 4), name="z")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kernels.flip(X, axes=(0, -2)), "flip: axes: expected different axes, got (0, -2)"),
        (lambda: kernels.flip(X, axes=2), "flip: expected an axis of x between -2 and 1, got 2"),
        (lambda: kernels.roll(X, shifts=(1, 2), axes=0), "roll: expected one integer shift per axis of (0,), got (1, 2)"),
        (lambda: kernels.roll(X, shifts=1.5), "roll: shifts: expected an integer of at least 0, got 1.5"),
        (lambda: kernels.rot90(X, k=0.5), "rot90: k: expected an integer number of quarter turns, got 0.5"),
        (lambda: kernels.rot90(X, axes=(0,)), "rot90: axes: expected two axes, got (0,)"),
        (lambda: kernels.permute(X, axes=(1,)), "permute: axes: expected an order of all 2 axes of x, got (1,)"),
        (
            lambda: kernels.moveaxis(X, source=0, destination=(0, 1)),
            "moveaxis: expected as many destinations as sources, got 0 and (0, 1)",
        ),
        (lambda: kernels.tile(X, repeats=-1), "tile: repeats: expected an integer of at least 0, got -1"),
        (lambda: kernels.repeat(X, sizes=(2,)), "repeat: sizes: expected at least 2 numbers, one per axis of x, got (2,)"),
        (
            lambda: kernels.repeat_interleave(X, repeats=(1, 2), axis=0),
            "repeat_interleave: repeats: expected an integer of at least 0, or 3 of them, one per axis, got (1, 2)",
        ),
        (
            lambda: kernels.repeat_interleave(Z, repeats=(1, 2), axis=0),
            "repeat_interleave: repeats: expected one number where the extent of z is known only at run time, got (1, 2)",
        ),
        (lambda: kernels.broadcast_to(X, shape=(4,)), "broadcast_to: shape: expected at least 2 extents, got (4,)"),
        (
            lambda: kernels.broadcast_to(X, shape=(3, -2)),
            "broadcast_to: shape: expected extents of at least 0, or -1 for one that x has, got (3, -2)",
        ),
        (
            lambda: kernels.broadcast_to(X, shape=(-1, 3, 4)),
            "broadcast_to: shape: expected extents of at least 0, or -1 for one that x has, got (-1, 3, 4)",
        ),
        (
            lambda: kernels.broadcast_to(X, shape=(2, 5, 4)),
            "broadcast_to: shape: expected 3 or an axis of extent 1 to stretch, got 5 in (2, 5, 4)",
        ),
        (lambda: kernels.meshgrid((X,)), "meshgrid: expected vectors, got x of 2 axes"),
        (lambda: kernels.reshape(X, shape=(-1, -1)), "reshape: shape: expected extents of at least 0, and at most one -1, got (-1, -1)"),
        (lambda: kernels.reshape(X, shape=(5, -1)), "reshape: shape: expected extents for the 12 elements of x, got (5, -1)"),
        (
            lambda: kernels.flatten(X, start_axis=1, end_axis=0),
            "flatten: expected start_axis at or before end_axis, got 1 and 0",
        ),
        (
            lambda: kernels.unflatten(X, axis=1, sizes=(3, 2)),
            "unflatten: sizes: expected extents whose product is 4, the extent of axis 1, got (3, 2)",
        ),
        (lambda: kernels.unsqueeze(X, axis=3), "unsqueeze: axis: expected a place between -3 and 2, got 3"),
        (
            lambda: kernels.concatenate((X, te.placeholder((2,), name="v"))),
            "concatenate: expected tensors of 2 axes, as the first has, got v of 1",
        ),
        (
            lambda: kernels.concatenate((X, te.placeholder((3, 5), name="v"))),
            "concatenate: v, axis 1: expected an extent of 4, got 5",
        ),
        (lambda: kernels.stack((X, X), axis=4), "stack: axis: expected a place between -3 and 2, got 4"),
        (
            lambda: kernels.narrow(X, axis=0, start=2, length=2),
            "narrow: expected start + length of at most 3, the extent of axis 0, got 2 + 2",
        ),
        (lambda: kernels.slice_axis(X, axis=0, step=0), "slice_axis: expected integers and a step that is not 0, got None:None:0"),
        (
            lambda: kernels.slice_axis(Z, axis=0, step=-1),
            "slice_axis: expected start:None:step, counted from the front, on an axis of a size known at run time, got None:None:-1",
        ),
        (lambda: kernels.split(X, sizes=(1, 1)), "split: sizes: expected extents that sum up to 3, the extent of axis 0, got (1, 1)"),
        (
            lambda: kernels.split(Z, sizes=2),
            "split: sizes: expected a tuple of extents where that of the axis is known only at run time, got a number",
        ),
        (
            lambda: kernels.chunk(Z, chunks=2),
            "chunk: expected an axis of an extent known when the op is traced, got a size of run time",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(te.ArgumentError) as caught:
        call()
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("operation", "reference"),
    [
        (lambda x: kernels.roll(x, shifts=(2, -1), axes=(0, 1)), lambda x: np.roll(x, (2, -1), (0, 1))),
        (lambda x: kernels.tile(x, repeats=(2, 3)), lambda x: np.tile(x, (2, 3))),
        (lambda x: kernels.flip(x), np.flip),
        (lambda x: kernels.rot90(x), np.rot90),
        (lambda x: kernels.flatten(x), np.ravel),
        (lambda x: kernels.reshape(x, shape=(M, N)), lambda x: x.reshape(x.shape[::-1])),
        (lambda x: kernels.concatenate((x, x), axis=1), lambda x: np.concatenate((x, x), 1)),
        (lambda x: kernels.slice_axis(x, axis=0, start=1, step=2), lambda x: x[1::2]),
        (lambda x: kernels.repeat_interleave(x, repeats=2, axis=0), lambda x: np.repeat(x, 2, 0)),
    ],
)
def test_sizes_of_run_time(operation, reference):
    """One compiled function for all sizes; the gradients are gathers as for known sizes."""
    x = te.placeholder((N, M), "float64", name="x")
    y = operation(x)
    head = te.placeholder(y.shape, "float64", name="head")
    gradient = te.gradient(y, [x], head)
    assert {row.lowering for row in gradient.report().rows}.isdisjoint({"segments", "atomics"})
    both = te.build([y, gradient[0]], [x, head])
    rng = np.random.default_rng(3)
    for shape in ((4, 3), (5, 7), (1, 1)):
        array = rng.standard_normal(shape)
        places = reference(np.arange(array.size).reshape(shape))
        head_array = rng.standard_normal(places.shape)
        value, bar = both(array, head_array)
        np.testing.assert_array_equal(value, reference(array))
        expected = np.bincount(places.ravel(), head_array.ravel(), array.size).reshape(shape)
        np.testing.assert_allclose(bar, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        ((2 * N, 1, 1), (N, 2, 1, 1)),
        ((N, 2, 1, 1), (2 * N, 1, 1)),
        ((1, N, 1, M), (M, 1, N)),
        ((N, 6, 1), (1, N, 2, 3)),
        ((N, 1, 6), (2, N, 3, 1)),
    ],
)
def test_axes_of_one_element_are_not_counted(own, wanted):
    """Among open extents, too: they are no second axis of a block that is counted anew."""
    x = te.placeholder(own, name="x")
    reshaped = te.build(kernels.reshape(x, shape=wanted), [x])
    for n, m in ((0, 3), (1, 1), (7, 2), (33, 5)):
        shapes = [tuple(e if isinstance(e, int) else eval(repr(e), {"n": n, "m": m}) for e in shape) for shape in (own, wanted)]
        array = np.arange(np.prod(shapes[0]), dtype=np.float32).reshape(shapes[0])
        np.testing.assert_array_equal(reshaped(array), array.reshape(shapes[1]))
