"""Pooling by a given number of windows, which cover the places of one to three axes: window o of m starts at `o * n // m`.

Inputs are `[.., places..]` as in `pooling`. One definition per kind for every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least_axes, bad, is_int, known, product
from tensorexpr.kernels.conventions.windows import PLACES, TAPS, batch, digits_of, every, flat_place, named


class _Adaptive:
    """`outputs` windows that cover each axis evenly: window o has the elements from `o * n // m` to `ceil((o + 1) * n / m)`.

    Which are those with `o * n < (i + 1) * m` and `i * m < (o + 1) * n`: conditions that are linear in o and i, so that the
    windows of an element are found as easily as the elements of a window.
    """

    def __init__(self, what: str, x: te.Tensor, rank: int, output_size: Any) -> None:
        at_least_axes(what, x, rank, f"{rank} of places, after any others")
        self.x, self.rank, self.first = x, rank, x.ndim - rank
        self.sizes = x.shape[self.first :]
        wanted = (output_size,) * rank if output_size is None or is_int(output_size) else tuple(output_size)
        if len(wanted) != rank or not all(m is None or (is_int(m) and m >= 1) for m in wanted):
            raise bad(f"output_size: expected an integer of at least 1 or None, or {rank} of them, got {output_size!r}")
        if any(not known(n) and m not in (None, 1) for n, m in zip(self.sizes, wanted, strict=True)):
            raise bad(f"output_size: expected 1 or None on axes of extents known only at run time, got {output_size!r}")
        self.outputs = tuple(n if m is None else m for n, m in zip(self.sizes, wanted, strict=True))
        self.kept = [m is None or (known(n) and n == m) for n, m in zip(self.sizes, wanted, strict=True)]
        self.extents = tuple(1 if one else n for one, n in zip(self.kept, self.sizes, strict=True))

    def each(self, body: Callable[[Sequence[Any], Sequence[Any]], Any], name: str | None = None) -> te.Tensor:
        """The tensor with `body(n, o)` for each window."""
        element = named(lambda *at: body(at[: self.first], at[self.first :]), *batch(self.first), *PLACES[self.rank])
        return te.compute((*self.x.shape[: self.first], *self.outputs), element, name=name)

    def places(self, o: Sequence[Any], i: Sequence[Any]) -> list[Any]:
        """The elements at the indices i of a reduction over the window `o`; on an axis that is kept there is one."""
        return [o[d] if one else i[d] for d, one in enumerate(self.kept)]

    def reduce(self, function: Callable[..., Any], n: Sequence[Any], o: Sequence[Any]) -> Any:
        """`function` (te.max and its kin) over the elements of the window `o`."""
        cut = [d for d in range(self.rank) if not self.kept[d] and self.outputs[d] != 1]

        def inside(*i: Any) -> Any:
            axes = [(i[d], o[d], self.sizes[d], self.outputs[d]) for d in cut]
            return every(test for i, o, n, m in axes for test in (o * n < (i + 1) * m, i * m < (o + 1) * n))

        names = TAPS[self.rank]
        body = named(lambda *i: self.x[(*n, *self.places(o, i))], *names)
        return function(body, self.extents, where=named(inside, *names) if cut else None)

    def count(self, o: Sequence[Any]) -> Any:
        """How many elements the window `o` has."""
        fixed: Any = 1
        varying: list[Any] = []
        for place, one, n, m in zip(o, self.kept, self.sizes, self.outputs, strict=True):
            if one:
                continue
            if m == 1 or n % m == 0:
                fixed = fixed * (n if m == 1 else n // m)
            else:
                varying.append(te.cast((place * n + (n + m - 1)) // m - place * n // m, self.x.dtype))
        fixed = fixed if is_int(fixed) else te.cast(fixed, self.x.dtype)
        return product([*varying, fixed]) if not varying or not is_int(fixed) or fixed > 1 else product(varying)


def _adaptive_avg(what: str, x: Any, rank: int, output_size: Any) -> te.Tensor:
    pool = _Adaptive(what, x, rank, output_size)
    return pool.each(lambda n, o: pool.reduce(te.sum, n, o) / pool.count(o))


def _adaptive_max(what: str, x: Any, rank: int, output_size: Any, indices: bool) -> Any:
    pool = _Adaptive(what, x, rank, output_size)
    best = pool.each(lambda n, o: pool.reduce(te.max, n, o))
    if not indices:
        return best
    tap = pool.each(lambda n, o: pool.reduce(te.argmax, n, o), name="tap")
    return best, pool.each(lambda n, o: flat_place(pool.places(o, digits_of(tap[(*n, *o)], pool.extents)), pool.sizes))


@te.op
def adaptive_avg_pool1d(x: te.Tensor, *, output_size: Any) -> te.Tensor:
    """`y[.., o]` is the mean of `x[.., i]` over `o * n // m <= i < ceil((o + 1) * n / m)`: m = `output_size` windows that cover n places.

    None keeps the extent. The extents of the places must be known when the op is traced, except where `output_size` is 1 or None.
    `ArgumentError` for others and for an `output_size` below 1.

    >>> kernels.adaptive_avg_pool1d(np.array([[[1.0, 2.0, 3.0, 4.0, 5.0]]]), output_size=2)
    array([[[2., 4.]]])
    """
    return _adaptive_avg("adaptive_avg_pool1d", x, 1, output_size)


@te.op
def adaptive_avg_pool2d(x: te.Tensor, *, output_size: Any) -> te.Tensor:
    """`adaptive_avg_pool1d` over two axes: `x [.., h, w]`.

    >>> kernels.adaptive_avg_pool2d(np.arange(8.0).reshape(1, 1, 2, 4), output_size=(1, 2))
    array([[[[2.5, 4.5]]]])
    """
    return _adaptive_avg("adaptive_avg_pool2d", x, 2, output_size)


@te.op
def adaptive_avg_pool3d(x: te.Tensor, *, output_size: Any) -> te.Tensor:
    """`adaptive_avg_pool1d` over three axes: `x [.., d, h, w]`.

    >>> kernels.adaptive_avg_pool3d(np.arange(8.0).reshape(1, 1, 2, 2, 2), output_size=(2, 1, 1)).ravel()
    array([1.5, 5.5])
    """
    return _adaptive_avg("adaptive_avg_pool3d", x, 3, output_size)


@te.op
def adaptive_max_pool1d(x: te.Tensor, *, output_size: Any, return_indices: bool = False) -> te.Tensor:
    """The maxima of the windows of `adaptive_avg_pool1d`; with `return_indices` also their places (int64), of equal ones the first.

    >>> kernels.adaptive_max_pool1d(np.array([[[1.0, 2.0, 3.0, 4.0, 5.0]]]), output_size=2)
    array([[[3., 5.]]])
    """
    return _adaptive_max("adaptive_max_pool1d", x, 1, output_size, return_indices)


@te.op
def adaptive_max_pool2d(x: te.Tensor, *, output_size: Any, return_indices: bool = False) -> te.Tensor:
    """`adaptive_max_pool1d` over two axes; indices count row-major within them.

    >>> kernels.adaptive_max_pool2d(np.arange(8.0).reshape(1, 1, 2, 4), output_size=(1, 2))
    array([[[[5., 7.]]]])
    """
    return _adaptive_max("adaptive_max_pool2d", x, 2, output_size, return_indices)


@te.op
def adaptive_max_pool3d(x: te.Tensor, *, output_size: Any, return_indices: bool = False) -> te.Tensor:
    """`adaptive_max_pool1d` over three axes; indices count row-major within them.

    >>> kernels.adaptive_max_pool3d(np.arange(8.0).reshape(1, 1, 2, 2, 2), output_size=(2, 1, 1)).ravel()
    array([3., 7.])
    """
    return _adaptive_max("adaptive_max_pool3d", x, 3, output_size, return_indices)


@te.op
def global_avg_pool(x: te.Tensor) -> te.Tensor:
    """The mean over all places of `x [n, c, places..]`, whose extents become 1 (ONNX's GlobalAveragePool).

    >>> kernels.global_avg_pool(np.arange(8.0).reshape(1, 2, 2, 2)).ravel()
    array([1.5, 5.5])
    """
    return _adaptive_avg("global_avg_pool", x, _places(x), 1)


@te.op
def global_max_pool(x: te.Tensor) -> te.Tensor:
    """The maximum over all places of `x [n, c, places..]`, whose extents become 1 (ONNX's GlobalMaxPool).

    >>> kernels.global_max_pool(np.arange(8.0).reshape(1, 2, 2, 2)).ravel()
    array([3., 7.])
    """
    return _adaptive_max("global_max_pool", x, _places(x), 1, False)


def _places(x: te.Tensor) -> int:
    if not 3 <= x.ndim <= 5:
        raise bad(f"global pooling: expected a batch axis, channels and 1 to 3 axes of places, got {x.name} of {x.ndim} axes")
    return x.ndim - 2
