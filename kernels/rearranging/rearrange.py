"""Rearranging: operations that move elements and compute nothing. Names are NumPy's and PyTorch's; axes may be negative.

Each is a definition by where an element comes from, so a gradient is the same kind of definition in the other direction:
flipping, rolling and permuting are turned around by substitution, tiling and repeating sum over the copies, reshaping counts
the same digits. None of them needs a copy when it is composed: the reads of what follows go straight to the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least, bad, is_int, known, one_of, per_axis, product
from tensorexpr.kernels.conventions.axes import along, drop, normalized, several, vector
from tensorexpr.kernels.rearranging.parts import choose, concatenate, tensors_of


def _axes(axes: Any, x: te.Tensor) -> tuple[int, ...]:
    """`axes` (one or several, all for None) counted from the front; `ArgumentError` where one is named twice."""
    wanted = tuple(range(x.ndim)) if axes is None else (axes,) if is_int(axes) else tuple(axes)
    found = tuple(normalized(axis, x) for axis in wanted)
    if len(set(found)) < len(found):
        raise bad(f"axes: expected different axes, got {axes!r}")
    return found


# ---------------------------------------------------------------------------------------------------- order along axes


@te.op
def flip(x: te.Tensor, *, axes: Any = None) -> te.Tensor:
    """`y[.., i, ..] = x[.., n - 1 - i, ..]` along `axes` (one or several; None: all).

    >>> kernels.flip(np.array([[1, 2], [3, 4]]), axes=1)
    array([[2, 1],
           [4, 3]])
    """
    turned = _axes(axes, x)
    return te.compute(x.shape, lambda *i: x[tuple(x.shape[d] - 1 - k if d in turned else k for d, k in enumerate(i))])


@te.op
def fliplr(x: te.Tensor) -> te.Tensor:
    """`flip` along axis 1.

    >>> kernels.fliplr(np.array([[1, 2], [3, 4]]))
    array([[2, 1],
           [4, 3]])
    """
    return flip.function(x, axes=1)


@te.op
def flipud(x: te.Tensor) -> te.Tensor:
    """`flip` along axis 0.

    >>> kernels.flipud(np.array([[1, 2], [3, 4]]))
    array([[3, 4],
           [1, 2]])
    """
    return flip.function(x, axes=0)


@te.op
def roll(x: te.Tensor, *, shifts: Any, axes: Any = None) -> te.Tensor:
    """`y[.., i, ..] = x[.., (i - shift) % n, ..]` along `axes`, with a shift for each; axes None: of the flattened tensor, as PyTorch.

    >>> kernels.roll(np.array([1, 2, 3, 4]), shifts=1)
    array([4, 1, 2, 3])
    """
    if axes is None:
        at_least("shifts", abs(shifts) if is_int(shifts) else shifts, 0)
        return _reshaped(_rolled(_reshaped(x, (product(x.shape),)), {0: shifts}), x.shape)
    wanted = (axes,) if is_int(axes) else tuple(axes)
    steps = (shifts,) if is_int(shifts) else tuple(shifts)
    if len(steps) != len(wanted) or not all(map(is_int, steps)):
        raise bad(f"roll: expected one integer shift per axis of {wanted}, got {shifts!r}")
    total: dict[int, int] = {}
    for axis, step in zip((normalized(axis, x) for axis in wanted), steps, strict=True):
        total[axis] = total.get(axis, 0) + step
    return _rolled(x, total)


def _rolled(x: te.Tensor, shifts: dict[int, int]) -> te.Tensor:
    def source(d: int, k: Any) -> Any:
        size, shift = x.shape[d], shifts.get(d, 0)
        if isinstance(size, int):
            shift %= max(size, 1)
        return (k - shift) % size if shift else k

    return te.compute(x.shape, lambda *i: x[tuple(source(d, k) for d, k in enumerate(i))])


@te.op
def rot90(x: te.Tensor, *, k: Any = 1, axes: Any = (0, 1)) -> te.Tensor:
    """`x` turned by `k` quarter turns in the plane of two axes, from the first towards the second.

    >>> kernels.rot90(np.array([[1, 2], [3, 4]]))
    array([[2, 4],
           [1, 3]])
    """
    if not is_int(k):
        raise bad(f"k: expected an integer number of quarter turns, got {k!r}")
    if len(tuple(axes)) != 2:
        raise bad(f"axes: expected two axes, got {axes!r}")
    first, second = _axes(axes, x)
    turns = k % 4
    shape = list(x.shape)
    if turns % 2:
        shape[first], shape[second] = shape[second], shape[first]
    last_first, last_second = x.shape[first] - 1, x.shape[second] - 1

    def source(i: Sequence[Any]) -> tuple[Any, ...]:
        at, p, q = list(i), i[first], i[second]
        at[first], at[second] = [(p, q), (q, last_second - p), (last_first - p, last_second - q), (last_first - q, p)][turns]
        return tuple(at)

    return te.compute(tuple(shape), lambda *i: x[source(i)])


@te.op
def permute(x: te.Tensor, *, axes: Any) -> te.Tensor:
    """The axes in another order: axis d of the result is axis `axes[d]` of `x`.

    >>> kernels.permute(np.ones((2, 3, 4)), axes=(2, 0, 1)).shape
    (4, 2, 3)
    """
    order = _axes(axes, x)
    if len(order) != x.ndim:
        raise bad(f"axes: expected an order of all {x.ndim} axes of {x.name}, got {axes!r}")
    return _permuted(x, order)


@te.op
def transpose(x: te.Tensor, *, axis0: Any = -2, axis1: Any = -1) -> te.Tensor:
    """`x` with two axes exchanged (PyTorch's `transpose`); a tuple `axis0` is an order of all axes (NumPy's), as in `permute`.

    >>> kernels.transpose(np.array([[1, 2], [3, 4]]))
    array([[1, 3],
           [2, 4]])
    """
    if isinstance(axis0, tuple):
        return permute.function(x, axes=axis0)
    if x.ndim == 0 and axis0 in (0, -1) and axis1 in (0, -1):
        return x
    first, second = normalized(axis0, x), normalized(axis1, x)
    order = list(range(x.ndim))
    order[first], order[second] = order[second], order[first]
    return _permuted(x, order)


@te.op
def moveaxis(x: te.Tensor, *, source: Any, destination: Any) -> te.Tensor:
    """`x` with the axes `source` moved to the places `destination`, the others in order (`numpy.moveaxis`, `torch.movedim`).

    >>> kernels.moveaxis(np.ones((2, 3, 4)), source=0, destination=-1).shape
    (3, 4, 2)
    """
    taken, places = _axes(source, x), _axes(destination, x)
    if len(taken) != len(places):
        raise bad(f"moveaxis: expected as many destinations as sources, got {source!r} and {destination!r}")
    placed = dict(zip(places, taken, strict=True))
    rest = iter(d for d in range(x.ndim) if d not in taken)
    return _permuted(x, [placed[d] if d in placed else next(rest) for d in range(x.ndim)])


@te.op
def movedim(x: te.Tensor, *, source: Any, destination: Any) -> te.Tensor:
    """PyTorch's name of `moveaxis`.

    >>> kernels.movedim(np.ones((2, 3, 4)), source=(0, 1), destination=(1, 2)).shape
    (4, 2, 3)
    """
    return moveaxis.function(x, source=source, destination=destination)


def _permuted(x: te.Tensor, order: Sequence[int]) -> te.Tensor:
    return te.compute(tuple(x.shape[d] for d in order), lambda *i: x[tuple(i[order.index(d)] for d in range(x.ndim))])


# ---------------------------------------------------------------------------------------------------- copies


@te.op
def tile(x: te.Tensor, *, repeats: Any) -> te.Tensor:
    """`y[i] = x[i % n]` on each axis, `repeats` times (`numpy.tile`; missing leading numbers are 1, missing axes are added in front).

    >>> kernels.tile(np.array([1, 2]), repeats=(2, 2))
    array([[1, 2, 1, 2],
           [1, 2, 1, 2]])
    """
    times = (repeats,) if is_int(repeats) else tuple(repeats)
    for number in times:
        at_least("repeats", number, 0)
    rank = max(x.ndim, len(times))
    times = (1,) * (rank - len(times)) + times
    extents = (1,) * (rank - x.ndim) + tuple(x.shape)

    def source(i: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(k if n == 1 else k % e for k, n, e in zip(i, times, extents, strict=True))[rank - x.ndim :]

    return te.compute(tuple(n * e for n, e in zip(times, extents, strict=True)), lambda *i: x[source(i)])


@te.op
def repeat(x: te.Tensor, *, sizes: Any, axis: Any = None) -> te.Tensor:
    """`y[i] = x[i % n]` on each axis: `torch.Tensor.repeat`, with a number for every axis of the result. With an `axis` it is
    `numpy.repeat`: `repeat_interleave`.

    >>> kernels.repeat(np.array([1, 2]), sizes=(2, 2))
    array([[1, 2, 1, 2],
           [1, 2, 1, 2]])
    """
    if axis is not None:
        return repeat_interleave.function(x, repeats=sizes, axis=axis)
    if not isinstance(sizes, (tuple, list)) or len(sizes) < x.ndim:
        hint = "repeat_interleave(x, repeats) puts copies of an element beside it, as numpy.repeat; tile(x, repeats) takes one number"
        raise bad(f"sizes: expected at least {x.ndim} numbers, one per axis of {x.name}, got {sizes!r}", hint)
    return tile.function(x, repeats=tuple(sizes))


@te.op
def repeat_interleave(x: te.Tensor, *, repeats: Any, axis: Any = None, output_size: Any = None) -> te.Tensor:
    """Each element `repeats` times, beside each other: `y[.., i, ..] = x[.., i // repeats, ..]` along `axis` (None: flattened first).

    A tuple of `repeats` says how often each element along the axis is repeated. `output_size` is PyTorch's, and known without it.

    >>> kernels.repeat_interleave(np.array([1, 2]), repeats=2)
    array([1, 1, 2, 2])
    """
    if axis is None:
        x, axis = _reshaped(x, (product(x.shape),)), 0
    axis = normalized(axis, x)
    size = x.shape[axis]
    if is_int(repeats):
        times = at_least("repeats", repeats, 0)
        shape = along(drop(x.shape, axis), axis, size * times)
        return te.compute(shape, lambda *i: x[along(drop(i, axis), axis, i[axis] // times)])
    if not known(size):
        raise bad(f"repeats: expected one number where the extent of {x.name} is known only at run time, got {repeats!r}")
    numbers = per_axis("repeats", repeats, size, 0)
    starts = [sum(numbers[:k]) for k in range(size + 1)]
    copied = [k for k in range(size) if numbers[k]]
    shape = along(drop(x.shape, axis), axis, starts[-1])

    def body(*i: Any) -> Any:
        rest = drop(i, axis)
        reads = [lambda k=k: x[along(rest, axis, k)] for k in copied]
        return choose(i[axis], [*(starts[k] for k in copied), starts[-1]], reads)

    return te.compute(shape, body if copied else lambda *i: x[i])


@te.op
def broadcast_to(x: te.Tensor, *, shape: Any) -> te.Tensor:
    """`x` with axes of extent 1 stretched and axes added in front, to `shape` (-1: as it is); `torch.Tensor.expand`.

    >>> kernels.broadcast_to(np.array([1, 2]), shape=(2, -1))
    array([[1, 2],
           [1, 2]])
    """
    wanted = tuple(shape)
    if len(wanted) < x.ndim:
        raise bad(f"shape: expected at least {x.ndim} extents, got {shape!r}")
    extents = [-1] * (len(wanted) - x.ndim) + list(x.shape)
    found = []
    for own, extent in zip(extents, wanted, strict=True):
        if is_int(extent) and extent == -1:
            extent = own
        if is_int(extent) and extent < 0:
            raise bad(f"shape: expected extents of at least 0, or -1 for one that {x.name} has, got {shape!r}")
        if known(own, extent) and own not in (-1, 1, extent):
            raise bad(f"shape: expected {own} or an axis of extent 1 to stretch, got {extent} in {shape!r}")
        found.append(extent)
    first = len(wanted) - x.ndim

    def source(i: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(0 if _is_one(own) else k for own, k in zip(x.shape, i[first:], strict=True))

    return te.compute(tuple(found), lambda *i: x[source(i)])


@te.op
def expand(x: te.Tensor, *, shape: Any) -> te.Tensor:
    """PyTorch's name of `broadcast_to`.

    >>> kernels.expand(np.array([[1], [2]]), shape=(2, 3))
    array([[1, 1, 1],
           [2, 2, 2]])
    """
    return broadcast_to.function(x, shape=shape)


@te.op
def meshgrid(tensors: te.Tensor, *, indexing: str = "ij") -> tuple[te.Tensor, ...]:
    """One tensor per vector (or number), all of the shape of their product: `y_d[i_0, ..] = tensors[d][i_d]`.

    `indexing` "ij", or "xy" with the first two axes exchanged, as `numpy.meshgrid` and `torch.meshgrid`.

    >>> kernels.meshgrid((np.array([1, 2]), np.array([3, 4, 5])))
    (array([[1, 1, 1],
           [2, 2, 2]]), array([[3, 4, 5],
           [3, 4, 5]]))
    """
    one_of("indexing", indexing, ("ij", "xy"))
    given = [vector(t) for t in tensors_of(tensors)]
    if any(t.ndim != 1 for t in given):
        raise bad(f"meshgrid: expected vectors, got {', '.join(f'{t.name} of {t.ndim} axes' for t in given)}")
    order = list(range(len(given)))
    if indexing == "xy" and len(given) > 1:
        order[:2] = [1, 0]
    shape = tuple(given[d].shape[0] for d in order)
    return tuple(te.compute(shape, lambda *i, t=t, d=d: t[i[order.index(d)]]) for d, t in enumerate(given))


# ---------------------------------------------------------------------------------------------------- shapes


@te.op
def reshape(x: te.Tensor, *, shape: Any) -> te.Tensor:
    """The elements in row-major order, counted by `shape`; one extent may be -1, what is left.

    `ArgumentError` where the numbers of elements are known and differ.

    >>> kernels.reshape(np.array([1, 2, 3, 4, 5, 6]), shape=(2, -1))
    array([[1, 2, 3],
           [4, 5, 6]])
    """
    given = (shape,) if is_int(shape) else shape
    if not isinstance(given, (tuple, list)):
        raise bad(f"shape: expected a tuple of extents, got {shape!r}")
    extents = list(given)
    if any(is_int(e) and e < -1 for e in extents) or sum(is_int(e) and e == -1 for e in extents) > 1:
        raise bad(f"shape: expected extents of at least 0, and at most one -1, got {shape!r}")
    missing = next((d for d, e in enumerate(extents) if is_int(e) and e == -1), None)
    total, rest = product(x.shape), product([e for d, e in enumerate(extents) if d != missing])
    if known(total, rest) and (total != rest if missing is None else rest == 0 or total % rest):
        raise bad(f"shape: expected extents for the {total} elements of {x.name}, got {shape!r}")
    if missing is not None:
        extents[missing] = total // rest
    return _reshaped(x, tuple(extents))


@te.op
def ravel(x: te.Tensor) -> te.Tensor:
    """The elements in row-major order, along one axis.

    >>> kernels.ravel(np.array([[1, 2], [3, 4]]))
    array([1, 2, 3, 4])
    """
    return _reshaped(x, (product(x.shape),))


@te.op
def flatten(x: te.Tensor, *, start_axis: Any = 0, end_axis: Any = -1) -> te.Tensor:
    """The axes from `start_axis` to `end_axis`, both included, as one: `y[.., f, ..] = x[.., f // n, f % n, ..]`.

    >>> kernels.flatten(np.ones((2, 3, 4)), start_axis=1).shape
    (2, 12)
    """
    if x.ndim == 0:
        return te.compute((1,), lambda _: x[()])
    first, last = normalized(start_axis, x), normalized(end_axis, x)
    if first > last:
        raise bad(f"flatten: expected start_axis at or before end_axis, got {start_axis} and {end_axis}")
    return _reshaped(x, (*x.shape[:first], product(x.shape[first : last + 1]), *x.shape[last + 1 :]))


@te.op
def unflatten(x: te.Tensor, *, axis: Any, sizes: Any) -> te.Tensor:
    """`axis` as several axes of extents `sizes`, of which one may be -1.

    >>> kernels.unflatten(np.ones((2, 6)), axis=1, sizes=(3, -1)).shape
    (2, 3, 2)
    """
    axis = normalized(axis, x)
    if not isinstance(sizes, (tuple, list)):
        raise bad(f"sizes: expected a tuple of extents, got {sizes!r}")
    parts = list(sizes)
    if -1 in parts:
        rest = product([p for p in parts if p != -1])
        parts[parts.index(-1)] = x.shape[axis] // rest if rest else 0
    if (known(x.shape[axis], *parts) and product(parts) != x.shape[axis]) or not parts:
        raise bad(f"sizes: expected extents whose product is {x.shape[axis]}, the extent of axis {axis}, got {sizes!r}")
    return _reshaped(x, (*x.shape[:axis], *parts, *x.shape[axis + 1 :]))


def _reshaped(x: te.Tensor, shape: tuple[Any, ...]) -> te.Tensor:
    """`x` counted by `shape`: by blocks of axes of equal products, so that axes that stay as they are keep their index."""
    if any(known(extent) and extent == 0 for extent in shape):
        return te.compute(shape, lambda *i: te.cast(0, x.dtype))  # no element: there is nothing to count
    blocks = _blocks(tuple(x.shape), shape)
    mixed = [b for b in blocks if sum(not _is_one(x.shape[d]) for d in b[0]) > 1 and sum(not _is_one(shape[d]) for d in b[1]) > 1]
    if any(not known(*(x.shape[d] for d in b[0]), *(shape[d] for d in b[1])) for b in mixed):
        # Symbolic extents counted twice are turned around in two steps: through the flat order.
        middle = tuple(e for b in blocks for e in ([product([shape[d] for d in b[1]])] if b in mixed else [shape[d] for d in b[1]]))
        return _reshaped(_reshaped(x, middle), shape)

    def source(i: Sequence[Any]) -> tuple[Any, ...]:
        found: list[Any] = []
        for ours, theirs in blocks:
            flat: Any = None
            for d in theirs:
                if not _is_one(shape[d]):
                    flat = i[d] if flat is None else flat * shape[d] + i[d]
            wide = [d for d in ours if not _is_one(x.shape[d])]
            digits: dict[int, Any] = {}
            for d in reversed(wide):
                digits[d] = flat if d == wide[0] else flat % x.shape[d]
                flat = flat // x.shape[d]
            found += [digits.get(d, 0) for d in ours]
        return tuple(found)

    return te.compute(shape, lambda *i: x[source(i)])


def _is_one(extent: Any) -> bool:
    return known(extent) and extent == 1


def _blocks(own: tuple[Any, ...], other: tuple[Any, ...]) -> list[tuple[list[int], list[int]]]:
    """The axes of two shapes of equally many elements, in the shortest runs whose products are equal."""
    blocks: list[tuple[list[int], list[int]]] = []
    p = q = 0
    while p < len(own) or q < len(other):
        ours, theirs = [p] if p < len(own) else [], [q] if q < len(other) else []
        p, q = p + len(ours), q + len(theirs)
        while (order := _compare(product([own[d] for d in ours]), product([other[d] for d in theirs]))) != 0:
            grow_ours = p < len(own) and (order < 0 or q == len(other))
            if grow_ours:
                ours.append(p)
                p += 1
            elif q < len(other):
                theirs.append(q)
                q += 1
            else:
                break
        blocks.append((ours, theirs))
    return blocks


def _compare(a: Any, b: Any) -> int:
    """Which of two products is known to be greater: -1, 0 (equal), 1. Sizes known later are equal only if they look so."""
    if known(a, b):
        return (a > b) - (a < b)
    try:
        return 0 if a == b else -1
    except te.DefinitionError:
        return -1


@te.op
def squeeze(x: te.Tensor, *, axis: Any = None) -> te.Tensor:
    """`x` without `axis` (one or several) where its extent is 1; None: without every axis of extent 1.

    >>> kernels.squeeze(np.ones((1, 3, 1))).shape
    (3,)
    """
    axes = several(axis, x)
    gone = {d for d in axes if _is_one(x.shape[d])}
    kept = [d for d in range(x.ndim) if d not in gone]
    return te.compute(tuple(x.shape[d] for d in kept), lambda *i: x[tuple(i[kept.index(d)] if d in kept else 0 for d in range(x.ndim))])


@te.op
def unsqueeze(x: te.Tensor, *, axis: Any) -> te.Tensor:
    """`x` with an axis of extent 1 put in at `axis` of the result, or several at a tuple of places.

    >>> kernels.unsqueeze(np.array([1, 2]), axis=1)
    array([[1],
           [2]])
    """
    if isinstance(axis, (tuple, list)):
        rank = x.ndim + len(axis)
        if not all(is_int(a) and -rank <= a < rank for a in axis) or len({a % rank for a in axis}) < len(axis):
            raise bad(f"axis: expected different places between {-rank} and {rank - 1}, got {axis!r}")
        for a in sorted(a % rank for a in axis):
            x = unsqueeze.function(x, axis=a)
        return te.compute(x.shape, lambda *i: x[i])
    if not is_int(axis) or not -x.ndim - 1 <= axis <= x.ndim:
        raise bad(f"axis: expected a place between {-x.ndim - 1} and {x.ndim}, got {axis!r}")
    axis %= x.ndim + 1
    return te.compute(along(x.shape, axis, 1), lambda *i: x[drop(i, axis)])


@te.op
def append(x: te.Tensor, y: te.Tensor, *, axis: Any = None) -> te.Tensor:
    """`y` behind `x` along `axis`; without one the elements of both, in row-major order.

    >>> kernels.append(np.array([[1, 2]]), np.array([[3, 4]])), kernels.append(np.array([[1], [2]]), 3)
    (array([1, 2, 3, 4]), array([1, 2, 3]))
    """
    given = tuple(ravel.function(t) for t in (x, y)) if axis is None else (x, y)
    return concatenate.function(given, axis=axis or 0)
