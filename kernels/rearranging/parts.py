"""Joining and parting: tensors one after the other, beside each other, on a new axis; parts of one, and a part put in its place.

Names are NumPy's and PyTorch's. A part is read where it stands, and a join reads of each tensor what lies in its part: neither
needs a copy when it is composed.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least, bad, is_int, known, same_extent
from tensorexpr.kernels.conventions.axes import along, drop, normalized


def tensors_of(tensors: Any) -> tuple[te.Tensor, ...]:
    """The tensors of an argument that is one or several."""
    return tuple(tensors) if isinstance(tensors, (tuple, list)) else (tensors,)


def choose(index: Any, bounds: Sequence[Any], choices: Sequence[Callable[[], Any]]) -> Any:
    """`choices[k]()` for the k with `bounds[k] <= index < bounds[k + 1]`, as a balanced tree of conditions."""
    if len(choices) == 1:
        return choices[0]()
    half = len(choices) // 2
    first, second = choose(index, bounds[: half + 1], choices[:half]), choose(index, bounds[half:], choices[half:])
    return te.where(index < bounds[half], first, second)


def _same_shapes(name: str, given: Sequence[te.Tensor], but: int | None) -> None:
    """`ArgumentError` unless all tensors have one shape, except on the axis `but`."""
    first = given[0]
    for other in given[1:]:
        if other.ndim != first.ndim:
            raise bad(f"{name}: expected tensors of {first.ndim} axes, as the first has, got {other.name} of {other.ndim}")
        for d in range(first.ndim):
            if d != but:
                same_extent(f"{name}: {other.name}, axis {d}", other.shape[d], first.shape[d], "all tensors have the first one's extents")


@te.op
def concatenate(tensors: te.Tensor, *, axis: Any = 0) -> te.Tensor:
    """The tensors one after the other along `axis`: `y[.., i, ..] = tensors[k][.., i - starts[k], ..]`; other extents are equal.

    >>> kernels.concatenate((np.array([[1, 2]]), np.array([[3, 4]])), axis=1)
    array([[1, 2, 3, 4]])
    """
    return _joined("concatenate", tensors_of(tensors), axis)


def _joined(name: str, given: Sequence[te.Tensor], axis: Any) -> te.Tensor:
    axis = normalized(axis, given[0])
    _same_shapes(name, given, axis)
    starts: list[Any] = [0]
    for t in given:
        starts.append(starts[-1] + t.shape[axis])

    def body(*i: Any) -> Any:
        rest = drop(i, axis)
        places = [i[axis], *(i[axis] - start for start in starts[1:-1])]
        reads = [lambda t=t, place=place: t[along(rest, axis, place)] for t, place in zip(given, places, strict=True)]
        return choose(i[axis], starts, reads)

    return te.compute(along(drop(given[0].shape, axis), axis, starts[-1]), body)


@te.op
def cat(tensors: te.Tensor, *, axis: Any = 0) -> te.Tensor:
    """PyTorch's name of `concatenate`; vectors without elements may stand among tensors of any number of axes, as there.

    >>> kernels.cat((np.array([1, 2]), np.array([3])))
    array([1, 2, 3])
    """
    given = tensors_of(tensors)
    filled = [t for t in given if t.ndim != 1 or not known(t.shape[0]) or t.shape[0] != 0]
    return _joined("cat", filled or given[:1], axis)


def _with_axes(x: te.Tensor, rank: int, behind: bool = False) -> te.Tensor:
    """`x` with at least `rank` axes: those of extent 1 in front, or one of them behind the last."""
    if x.ndim >= rank:
        return x
    if not behind:
        return te.compute((1,) * (rank - x.ndim) + tuple(x.shape), lambda *i: x[i[rank - x.ndim :]])
    flat = _with_axes(x, rank - 1)
    return te.compute((*flat.shape, 1), lambda *i: flat[i[:-1]])


@te.op
def hstack(tensors: te.Tensor) -> te.Tensor:
    """Tensors side by side: along axis 1, vectors and numbers along axis 0.

    >>> kernels.hstack((np.array([1, 2]), np.array([3])))
    array([1, 2, 3])
    """
    given = [_with_axes(t, 1) for t in tensors_of(tensors)]
    return _joined("hstack", given, 0 if given[0].ndim == 1 else 1)


@te.op
def vstack(tensors: te.Tensor) -> te.Tensor:
    """Tensors one below the other: along axis 0, a vector being a row.

    >>> kernels.vstack((np.array([1, 2]), np.array([[3, 4]])))
    array([[1, 2],
           [3, 4]])
    """
    return _joined("vstack", [_with_axes(t, 2) for t in tensors_of(tensors)], 0)


@te.op
def dstack(tensors: te.Tensor) -> te.Tensor:
    """Tensors one behind the other: along axis 2, a vector or matrix having one element there.

    >>> kernels.dstack((np.array([1, 2]), np.array([3, 4])))
    array([[[1, 3],
            [2, 4]]])
    """
    return _joined("dstack", [_with_axes(t, 3, behind=True) for t in tensors_of(tensors)], 2)


@te.op
def column_stack(tensors: te.Tensor) -> te.Tensor:
    """Vectors as the columns of a matrix, and matrices beside them: along axis 1.

    >>> kernels.column_stack((np.array([1, 2]), np.array([3, 4])))
    array([[1, 3],
           [2, 4]])
    """
    return _joined(
        "column_stack", [t if t.ndim > 1 else _with_axes(t, 2, behind=True) if t.ndim else _with_axes(t, 2) for t in tensors_of(tensors)], 1
    )


@te.op
def stack(tensors: te.Tensor, *, axis: Any = 0) -> te.Tensor:
    """Tensors of one shape along a new axis, put in at `axis` of the result.

    >>> kernels.stack((np.array([1, 2]), np.array([3, 4])), axis=1)
    array([[1, 3],
           [2, 4]])
    """
    given = tensors_of(tensors)
    _same_shapes("stack", given, None)
    rank = given[0].ndim
    if not is_int(axis) or not -rank - 1 <= axis <= rank:
        raise bad(f"axis: expected a place between {-rank - 1} and {rank}, got {axis!r}")
    axis %= rank + 1
    places = list(range(len(given) + 1))

    def body(*i: Any) -> Any:
        def read(t: te.Tensor) -> Callable[[], Any]:
            return lambda: t[drop(i, axis)]

        return choose(i[axis], places, [read(t) for t in given])

    return te.compute(along(given[0].shape, axis, len(given)), body)


def _part(x: te.Tensor, axis: int, start: Any, length: Any, step: int = 1) -> te.Tensor:
    shape = along(drop(x.shape, axis), axis, length)
    return te.compute(shape, lambda *i: x[along(drop(i, axis), axis, start + i[axis] * step)])


@te.op
def narrow(x: te.Tensor, *, axis: Any, start: Any, length: Any) -> te.Tensor:
    """`length` elements along `axis` from `start` on: `y[.., i, ..] = x[.., start + i, ..]`; a negative start counts from the end.

    >>> kernels.narrow(np.array([1, 2, 3, 4]), axis=0, start=1, length=2)
    array([2, 3])
    """
    axis = normalized(axis, x)
    first, number = start, at_least("length", length, 0)
    if is_int(start) and start < 0 and known(x.shape[axis]):
        first = start + x.shape[axis]
    at_least("start", first, 0)
    if known(x.shape[axis]) and first + number > x.shape[axis]:
        raise bad(f"narrow: expected start + length of at most {x.shape[axis]}, the extent of axis {axis}, got {start} + {length}")
    return _part(x, axis, first, number)


@te.op
def slice_axis(x: te.Tensor, *, axis: Any, start: Any = None, stop: Any = None, step: Any = 1) -> te.Tensor:
    """Python's `x[start:stop:step]` along `axis`, negative numbers and steps included: `y[.., i, ..] = x[.., start + i * step, ..]`.

    The extent of the axis must be known when the op is traced, unless the step is 1 or more, `start` is given from the front and
    `stop` is None.

    >>> kernels.slice_axis(np.array([0, 1, 2, 3, 4]), axis=0, start=None, stop=None, step=-2)
    array([4, 2, 0])
    """
    axis = normalized(axis, x)
    if not is_int(step) or step == 0 or any(not is_int(v) for v in (start, stop) if v is not None):
        raise bad(f"slice_axis: expected integers and a step that is not 0, got {start}:{stop}:{step}")
    size = x.shape[axis]
    if known(size):
        place = range(size)[start:stop:step]
        return _part(x, axis, place.start, len(place), step)
    if step < 0 or stop is not None or (start or 0) < 0:
        raise bad(
            "slice_axis: expected start:None:step, counted from the front, on an axis of a size known at run time, "
            f"got {start}:{stop}:{step}"
        )
    first = start or 0
    return _part(x, axis, first, te.maximum((size - first + (step - 1)) // step, 0), step)


@te.op
def split(x: te.Tensor, *, sizes: Any, axis: Any = 0) -> tuple[te.Tensor, ...]:
    """`x` in parts along `axis`: of `sizes` each (the last may be smaller), or of the extents of a tuple `sizes`.

    >>> kernels.split(np.array([1, 2, 3, 4, 5]), sizes=2)
    (array([1, 2]), array([3, 4]), array([5]))
    """
    axis = normalized(axis, x)
    size = x.shape[axis]
    if is_int(sizes):
        part = at_least("sizes", sizes, 1)
        if not known(size):
            raise bad("sizes: expected a tuple of extents where that of the axis is known only at run time, got a number")
        numbers = [min(part, size - start) for start in range(0, size, part)] or [0]
    else:
        numbers = [at_least("sizes", number, 0) for number in sizes]
        if not numbers or (known(size) and sum(numbers) != size):
            raise bad(f"sizes: expected extents that sum up to {size}, the extent of axis {axis}, got {sizes!r}")
    return tuple(_part(x, axis, sum(numbers[:k]), number) for k, number in enumerate(numbers))


@te.op
def chunk(x: te.Tensor, *, chunks: Any, axis: Any = 0) -> te.Tensor:
    """`x` in at most `chunks` parts along `axis`, of equal extents except for the last, as `torch.chunk`.

    >>> kernels.chunk(np.array([1, 2, 3, 4, 5]), chunks=3)
    (array([1, 2]), array([3, 4]), array([5]))
    """
    number = at_least("chunks", chunks, 1)
    axis = normalized(axis, x)
    if not known(x.shape[axis]):
        raise bad("chunk: expected an axis of an extent known when the op is traced, got a size of run time")
    return split.function(x, sizes=max(1, -(-x.shape[axis] // number)), axis=axis)


@te.op
def tensor_split(x: te.Tensor, *, sections: Any, axis: Any = 0) -> tuple[te.Tensor, ...]:
    """`x` in parts along `axis`: in so many of nearly equal extents, or cut in front of each place of a tuple `sections`
    (`numpy.array_split`).

    >>> kernels.tensor_split(np.array([1, 2, 3, 4, 5]), sections=(1, 3))
    (array([1]), array([2, 3]), array([4, 5]))
    """
    axis = normalized(axis, x)
    size = x.shape[axis]
    if not known(size):
        raise bad("tensor_split: expected an axis of an extent known when the op is traced, got a size of run time")
    if is_int(sections):
        number = at_least("sections", sections, 1)
        larger = size % number
        cuts = [k * (size // number) + min(k, larger) for k in range(number + 1)]
    elif isinstance(sections, (tuple, list)) and all(map(is_int, sections)):
        cuts = [0, *(slice(place).indices(size)[1] for place in sections), size]
    else:
        raise bad(f"tensor_split: expected a number of sections or the places of the cuts, got {sections!r}")
    return tuple(_part(x, axis, low, max(high - low, 0)) for low, high in itertools.pairwise(cuts))


@te.op
def hsplit(x: te.Tensor, *, sections: Any) -> tuple[te.Tensor, ...]:
    """`tensor_split` along axis 1, of a vector along axis 0: the opposite of `hstack`.

    >>> kernels.hsplit(np.array([1, 2, 3, 4]), sections=2)
    (array([1, 2]), array([3, 4]))
    """
    return _split_along("hsplit", x, sections, 0 if x.ndim == 1 else 1)


@te.op
def vsplit(x: te.Tensor, *, sections: Any) -> tuple[te.Tensor, ...]:
    """`tensor_split` along axis 0: the opposite of `vstack`.

    >>> kernels.vsplit(np.array([[1, 2], [3, 4]]), sections=2)
    (array([[1, 2]]), array([[3, 4]]))
    """
    return _split_along("vsplit", x, sections, 0, 2)


@te.op
def dsplit(x: te.Tensor, *, sections: Any) -> tuple[te.Tensor, ...]:
    """`tensor_split` along axis 2: the opposite of `dstack`.

    >>> [part.shape for part in kernels.dsplit(np.ones((1, 1, 4)), sections=2)]
    [(1, 1, 2), (1, 1, 2)]
    """
    return _split_along("dsplit", x, sections, 2)


def _split_along(name: str, x: te.Tensor, sections: Any, axis: int, rank: int = 0) -> tuple[te.Tensor, ...]:
    """`tensor_split` along a fixed axis, whose extent the number of sections divides."""
    if x.ndim < max(rank, axis + 1):
        raise bad(f"{name}: expected a tensor of at least {max(rank, axis + 1)} axes, got {x.name} of {x.ndim}")
    if is_int(sections) and known(x.shape[axis]) and sections > 0 and x.shape[axis] % sections:
        raise bad(f"{name}: expected a number of sections that divides {x.shape[axis]}, the extent of axis {axis}, got {sections}")
    return tensor_split.function(x, sections=sections, axis=axis)


def _each_with_axes(tensors: Any, rank: int, behind: bool = False) -> Any:
    if isinstance(tensors, (tuple, list)):
        return tuple(_each_with_axes(t, rank, behind) for t in tensors)
    return te.compute(tensors.shape, lambda *i: tensors[i]) if tensors.ndim >= rank else _with_axes(tensors, rank, behind)


@te.op
def atleast_1d(tensors: te.Tensor) -> Any:
    """A number as a vector of one element, others as they are; of several tensors each.

    >>> kernels.atleast_1d(np.array(3.0))
    array([3.])
    """
    return _each_with_axes(tensors, 1)


@te.op
def atleast_2d(tensors: te.Tensor) -> Any:
    """A vector as a matrix of one row, others as they are; of several tensors each.

    >>> kernels.atleast_2d(np.array([1.0, 2.0]))
    array([[1., 2.]])
    """
    return _each_with_axes(tensors, 2)


@te.op
def atleast_3d(tensors: te.Tensor) -> Any:
    """A matrix with a last axis of extent 1, a vector as one row of it, others as they are; of several tensors each.

    >>> kernels.atleast_3d(np.array([1.0, 2.0])).shape
    (1, 2, 1)
    """
    return _each_with_axes(tensors, 3, behind=True)


@te.op
def block_diag(tensors: te.Tensor) -> te.Tensor:
    """The matrices (vectors are rows, numbers have one element) one after the other along the diagonal, 0 elsewhere.

    >>> kernels.block_diag((np.array([[1, 2]]), np.array([[3], [4]])))
    array([[1, 2, 0],
           [0, 0, 3],
           [0, 0, 4]])
    """
    given = [_with_axes(t, 2) for t in tensors_of(tensors)]
    wide = next((t for t in given if t.ndim > 2), None)
    if wide is not None:
        raise bad(f"block_diag: expected tensors of at most 2 axes, got {wide.name} of {wide.ndim}")
    starts: list[list[Any]] = [[0], [0]]
    for t in given:
        for axis in (0, 1):
            starts[axis].append(starts[axis][-1] + t.shape[axis])

    def element(i: Any, j: Any) -> Any:
        def block(k: int) -> Any:
            column = j - starts[1][k]
            return te.where((column >= 0) & (column < given[k].shape[1]), given[k][i - starts[0][k], column], 0)

        return choose(i, starts[0], [functools.partial(block, k) for k in range(len(given))])

    return te.compute((starts[0][-1], starts[1][-1]), element)


def _place(name: str, x: te.Tensor, axis: int, index: Any) -> Any:
    """A place on an axis, from the front."""
    size = x.shape[axis]
    if not is_int(index) or (known(size) and not -size <= index < size):
        raise bad(f"{name}: expected a place on axis {axis} between {-size} and {size - 1}, got {index!r}")
    return index if index >= 0 else size + index


@te.op
def select(x: te.Tensor, *, axis: Any, index: Any) -> te.Tensor:
    """`y[.., ..] = x[.., index, ..]`: one place of `axis`, which is left out; negative places count from the end.

    >>> kernels.select(np.array([[1, 2], [3, 4]]), axis=1, index=-1)
    array([2, 4])
    """
    axis = normalized(axis, x)
    place = _place("select", x, axis, index)
    return te.compute(drop(x.shape, axis), lambda *i: x[along(i, axis, place)])


@te.op
def unbind(x: te.Tensor, *, axis: Any = 0) -> tuple[te.Tensor, ...]:
    """All places of `axis`, a tensor each without it.

    >>> kernels.unbind(np.array([[1, 2], [3, 4]]), axis=1)
    (array([1, 3]), array([2, 4]))
    """
    axis = normalized(axis, x)
    if not known(x.shape[axis]) or x.shape[axis] == 0:
        raise bad(f"unbind: expected an extent of at least 1, known when the op is traced, of axis {axis}, got {x.shape[axis]}")
    return tuple(te.compute(drop(x.shape, axis), lambda *i, k=k: x[along(i, axis, k)]) for k in range(x.shape[axis]))


def _source(name: str, src: te.Tensor, shape: Sequence[Any], dtype: te.DType) -> None:
    """`ArgumentError` unless a tensor fits the part that it is put into."""
    if src.ndim != len(shape) or any(known(a, b) and a != b for a, b in zip(src.shape, shape, strict=True)) or src.dtype is not dtype:
        raise bad(
            f"{name}: expected a src of {dtype.name} and shape {tuple(shape)}, the part it goes to, got {src.dtype.name} of {src.shape}"
        )


@te.op
def select_scatter(x: te.Tensor, src: te.Tensor, *, axis: Any, index: Any) -> te.Tensor:
    """`x` with `src` in place of `select(x, axis, index)`.

    >>> kernels.select_scatter(np.array([[1, 2], [3, 4]]), np.array([8, 9]), axis=0, index=1)
    array([[1, 2],
           [8, 9]])
    """
    axis = normalized(axis, x)
    place = _place("select_scatter", x, axis, index)
    _source("select_scatter", src, drop(x.shape, axis), x.dtype)
    return te.compute(x.shape, lambda *i: te.where(i[axis] == place, src[drop(i, axis)], x[i]))


@te.op
def slice_scatter(x: te.Tensor, src: te.Tensor, *, axis: Any = 0, start: Any = None, stop: Any = None, step: Any = 1) -> te.Tensor:
    """`x` with `src` in place of `x[start:stop:step]` along `axis`; negative places count from the end.

    >>> kernels.slice_scatter(np.array([0, 0, 0, 0]), np.array([1, 2]), start=1, stop=3)
    array([0, 1, 2, 0])
    """
    axis = normalized(axis, x)
    size = x.shape[axis]
    if not known(size) or not is_int(step) or step < 1 or any(not is_int(v) for v in (start, stop) if v is not None):
        raise bad(f"slice_scatter: expected integers, a step of at least 1 and a known extent, got {start}:{stop}:{step} of {size}")
    part = range(size)[start:stop:step]
    _source("slice_scatter", src, along(drop(x.shape, axis), axis, len(part)), x.dtype)
    if not part:
        return x

    def body(*i: Any) -> Any:
        ahead = i[axis] - part.start
        inside = (i[axis] >= part.start) & (i[axis] <= part[-1])
        inside = inside if step == 1 else inside & (ahead % step == 0)
        return te.where(inside, src[along(drop(i, axis), axis, ahead // step)], x[i])

    return te.compute(x.shape, body)
