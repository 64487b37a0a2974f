"""What NumPy and PyTorch do to parts of a tensor: slices put in and left out, diagonals filled, windows, combinations, cyclic copies.

All places are known when the op is traced, so each is a definition by where an element comes from.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least, bad, integral, is_int, known, product, ranked
from tensorexpr.kernels.conventions.axes import along, drop, flat, normalized
from tensorexpr.kernels.conventions.broadcasting import at, broadcast_shape, stretches
from tensorexpr.kernels.rearranging.indexing import scatter
from tensorexpr.kernels.rearranging.parts import choose, concatenate, tensors_of


def _along(name: str, x: te.Tensor, axis: Any) -> tuple[te.Tensor, int, Any]:
    """The tensor and an axis of known extent; without one the elements along one axis."""
    own, place = (flat(x), 0) if axis is None else (x, normalized(axis, x))
    extent = own.shape[place]
    if not known(extent):
        raise bad(f"{name}: expected a known extent of axis {place} of x, got {extent}")
    return own, place, extent


def _numbers(name: str, obj: Any) -> tuple[int, ...]:
    places = (obj,) if is_int(obj) else tuple(range(10**9)[obj]) if isinstance(obj, slice) else obj
    if not isinstance(places, (tuple, list)) or not all(map(is_int, places)):
        raise bad(f"{name}: obj: expected an integer or several, got {obj!r}")
    return tuple(places)


@te.op
def delete(x: te.Tensor, *, obj: Any, axis: Any = None) -> te.Tensor:
    """`x` without the slices at the places `obj` (one or several) along `axis`; without an axis `x` counts as flattened.

    >>> kernels.delete(np.array([[1, 2, 3], [4, 5, 6]]), obj=1, axis=1)
    array([[1, 3],
           [4, 6]])
    """
    own, axis, extent = _along("delete", x, axis)
    places = _numbers("delete", obj)
    if any(not -extent <= k < extent for k in places):
        raise bad(f"delete: expected places between {-extent} and {extent - 1}, got {obj!r}")
    gone = {k % extent for k in places}
    kept = [k for k in range(extent) if k not in gone]
    return _taken(own, axis, kept)


def _taken(x: te.Tensor, axis: int, places: Sequence[int]) -> te.Tensor:
    """The slices at known places along an axis, run by run."""
    starts = [k for k, place in enumerate(places) if k == 0 or place != places[k - 1] + 1]
    shape = along(drop(x.shape, axis), axis, len(places))

    def body(*i: Any) -> Any:
        rest = drop(i, axis)
        reads = [lambda k=k: x[along(rest, axis, i[axis] + (places[k] - k))] for k in starts]
        return choose(i[axis], [*starts, len(places)], reads)

    return te.compute(shape, body if places else lambda *i: te.cast(0, x.dtype))


@te.op
def insert(x: te.Tensor, values: te.Tensor, *, obj: Any, axis: Any = None) -> te.Tensor:
    """`x` with `values` put in before the places `obj` along `axis`; without an axis `x` counts as flattened.

    One place takes as many slices as `values` has there; several places take one each. `values` are stretched as in NumPy.

    >>> kernels.insert(np.array([1, 2, 3]), np.array([8, 9]), obj=1)
    array([1, 8, 9, 2, 3])
    """
    own, axis, extent = _along("insert", x, axis)
    places = _numbers("insert", obj)
    if any(not -extent <= k <= extent for k in places):
        raise bad(f"insert: expected places between {-extent} and {extent}, got {obj!r}")
    if is_int(obj):  # as many slices as the first axis of values has, which stands for this one
        lead, first = own.ndim - values.ndim, values
        if lead < 0:
            raise bad(f"insert: expected values of at most {own.ndim} axes, got {values.ndim}")
        if lead == 0 and own.ndim > 1:
            values = te.compute(
                (*values.shape[1 : axis + 1], values.shape[0], *values.shape[axis + 1 :]), lambda *i: first[(i[axis], *drop(i, axis))]
            )
        elif lead > 0:  # an axis of extent 1 in front of all others, which is this one
            rest = (1,) * (lead - 1) + tuple(values.shape)
            values = te.compute(along(rest, axis, 1), lambda *i: first[drop(i, axis)[lead - 1 :]])
    count = values.shape[axis] if is_int(obj) else len(places)
    if not known(count):
        raise bad(f"insert: expected a known number of slices of values, got {count}")
    shape = along(drop(own.shape, axis), axis, count)
    if not stretches(values.shape, shape):
        raise bad(f"insert: expected values that broadcast to {shape}, got {values.shape}")
    new = te.compute(shape, lambda *i: te.cast(at(values, i), own.dtype), name="new")
    at_places = [(k % extent if k < 0 else k) for k in (places * count if is_int(obj) else places)]
    order = sorted(range(count), key=lambda n: at_places[n])  # slices at one place stay in order
    parts: list[te.Tensor] = []
    begun = 0
    for place, numbers in itertools.groupby(order, key=lambda n: at_places[n]):
        if place > begun:
            parts.append(_taken(own, axis, range(begun, place)))
        parts.append(_taken(new, axis, list(numbers)))
        begun = place
    if begun < extent or not parts:
        parts.append(_taken(own, axis, range(begun, extent)))
    return parts[0] if len(parts) == 1 else concatenate.function(tuple(parts), axis=axis)


@te.op
def resize(x: te.Tensor, *, shape: Any) -> te.Tensor:
    """The elements in row-major order, over and over, in another shape: `numpy.resize`; zeros of an empty `x`.

    >>> kernels.resize(np.array([1, 2, 3]), shape=(2, 2))
    array([[1, 2],
           [3, 1]])
    """
    extents = (shape,) if is_int(shape) else tuple(shape)
    for extent in extents:
        if is_int(extent):
            at_least("shape", extent, 0)
    rows = flat(x)
    if known(rows.shape[0]) and rows.shape[0] == 0:
        return te.compute(extents, lambda *i: te.cast(0, x.dtype))

    def number(i: Sequence[Any]) -> Any:
        found: Any = 0
        for k, extent in zip(i, extents, strict=True):
            found = found * extent + k
        return found % rows.shape[0]

    return te.compute(extents, lambda *i: rows[number(i)])


@te.op
def fill_diagonal(x: te.Tensor, *, value: Any, wrap: bool = False) -> te.Tensor:
    """`x` with a number on its diagonal, where all indices are equal; `wrap` begins it anew below each square of a tall matrix.

    >>> kernels.fill_diagonal(np.ones((2, 3)), value=5.0)
    array([[5., 1., 1.],
           [1., 5., 1.]])
    """
    if x.ndim < 2 or (x.ndim > 2 and known(*x.shape) and len(set(x.shape)) > 1):
        raise bad(f"fill_diagonal: expected a matrix, or equal extents of more axes, got shape {x.shape}")

    def body(*i: Any) -> Any:
        first = i[0] % (x.shape[1] + 1) if wrap and x.ndim == 2 else i[0]
        filled: Any = te.cast(value, x.dtype)
        for k in i[2:]:
            filled = te.where(k == i[0], filled, x[i])
        return te.where(first == i[1], filled, x[i])

    return te.compute(x.shape, body)


@te.op
def put_along_axis(x: te.Tensor, index: te.Tensor, values: te.Tensor, *, axis: Any) -> te.Tensor:
    """`x` with `values`, stretched to `index`, at its places along `axis`; the opposite of `take_along_axis`. Negative places count from
    the end; of those that meet the last stays.

    >>> kernels.put_along_axis(np.array([[1, 2], [3, 4]]), np.array([[0], [-1]]), 9, axis=1)
    array([[9, 2],
           [3, 9]])
    """
    axis = normalized(axis, x)
    integral(index, f"places on axis {axis} of x")
    if index.ndim != x.ndim:
        raise bad(f"index: expected the rank of x, {x.ndim}, got {index.ndim}")
    rest = broadcast_shape("put_along_axis", drop(x.shape, axis), drop(index.shape, axis))
    shape = along(rest, axis, index.shape[axis])
    if not stretches(values.shape, shape):
        raise bad(f"values: expected a shape that broadcasts to {shape}, got {values.shape}")

    def place(*i: Any) -> Any:
        read = tuple(0 if known(n) and n == 1 and d != axis else k for d, (n, k) in enumerate(zip(index.shape, i, strict=True)))
        own = te.cast(index[read], "int64")
        return te.where(own < 0, own + x.shape[axis], own)

    places = te.compute(shape, place, name="places")
    sent = te.compute(shape, lambda *i: te.cast(at(values, i), x.dtype), name="sent")
    return scatter.function(x, places, sent, axis=axis)


@te.op
def sliding_window_view(x: te.Tensor, *, window_shape: Any, axis: Any = None) -> te.Tensor:
    """All windows of `window_shape` along `axis` (all axes by default): places of windows, then places within them.

    >>> kernels.sliding_window_view(np.array([1, 2, 3, 4]), window_shape=2)
    array([[1, 2],
           [2, 3],
           [3, 4]])
    """
    sizes = (window_shape,) if is_int(window_shape) else tuple(window_shape)
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if is_int(axis) else tuple(axis)
    if len(sizes) != len(axes):
        raise bad(f"window_shape: expected one extent per axis of {axes}, got {window_shape!r}")
    own = [normalized(one, x) for one in axes]
    shape = list(x.shape)
    for d, size in zip(own, sizes, strict=True):
        at_least("window_shape", size, 1)
        shape[d] = shape[d] - size + 1
        if known(shape[d]) and shape[d] < 1:
            raise bad(f"window_shape: expected windows that fit into shape {x.shape}, got {window_shape!r}")

    def body(*i: Any) -> Any:
        place = list(i[: x.ndim])
        for d, k in zip(own, i[x.ndim :], strict=True):
            place[d] = place[d] + k
        return x[tuple(place)]

    return te.compute((*shape, *sizes), body)


@te.op
def broadcast_tensors(tensors: te.Tensor) -> tuple[te.Tensor, ...]:
    """The tensors stretched to their common shape.

    >>> [x.shape for x in kernels.broadcast_tensors((np.ones((2, 1)), np.ones(3)))]
    [(2, 3), (2, 3)]
    """
    given = tensors_of(tensors)
    shape = broadcast_shape("broadcast_tensors", *(x.shape for x in given))
    return tuple(te.compute(shape, lambda *i, x=x: at(x, i)) for x in given)


@te.op
def cartesian_prod(tensors: te.Tensor) -> te.Tensor:
    """All combinations of one element of each vector, as rows, the last fastest; a single vector as it is.

    >>> kernels.cartesian_prod((np.array([1, 2]), np.array([3, 4])))
    array([[1, 3],
           [1, 4],
           [2, 3],
           [2, 4]])
    """
    given = tensors_of(tensors)
    for x in given:
        ranked(x, 1)
    if len(given) == 1:
        return given[0]
    inner = [product([y.shape[0] for y in given[k + 1 :]]) for k in range(len(given))]

    def body(row: Any, column: Any) -> Any:
        reads = [lambda k=k: given[k][row // inner[k] % given[k].shape[0]] for k in range(len(given))]
        return choose(column, range(len(given) + 1), reads)

    return te.compute((product([x.shape[0] for x in given]), len(given)), body)


@te.op
def combinations(x: te.Tensor, *, r: int = 2, with_replacement: bool = False) -> te.Tensor:
    """All combinations of `r` elements of a vector, as rows, in the order of their places.

    >>> kernels.combinations(np.array([1, 2, 3]))
    array([[1, 2],
           [1, 3],
           [2, 3]])
    """
    ranked(x, 1)
    at_least("r", r, 1)
    count = x.shape[0]
    if not known(count):
        raise bad(f"combinations: expected a known number of elements, got {count}")
    chosen = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = np.array(list(chosen(range(count), r)), np.int64).reshape(-1, r)
    table = te.constant(places, name="places")
    return te.compute(places.shape, lambda row, k: x[table[row, k]])
