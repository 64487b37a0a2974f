"""Parts of matrices: diagonals, traces, triangles, taken from any two axes of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, is_int, known, product, shaped
from tensorexpr.kernels.conventions.axes import normalized


def _plane(name: str, x: te.Tensor, axis1: int, axis2: int) -> tuple[int, int]:
    first, second = normalized(axis1, x), normalized(axis2, x)
    if first == second:
        raise bad(f"{name}: expected two different axes, got {axis1} and {axis2}")
    return first, second


def _offset(name: str, offset: Any) -> int:
    if not is_int(offset):
        raise bad(f"{name}: expected an integer offset, got {offset!r}", "0 is the main diagonal, positive ones lie above it")
    return offset


def _length(rows: Any, columns: Any, offset: int) -> Any:
    """How many elements a diagonal has."""
    if offset > 0:
        columns = columns - offset
    if offset < 0:
        rows = rows + offset
    if known(rows, columns):
        return max(0, min(rows, columns))
    return te.maximum(te.minimum(rows, columns), 0)


def _along(x: te.Tensor, first: int, second: int, offset: int) -> Callable[[Any, Any], te.Scalar]:
    """The k-th element of a diagonal, at indices of the other axes."""

    def element(rest: Any, k: Any) -> te.Scalar:
        others = iter(rest)
        place = {first: k - offset if offset < 0 else k, second: k + offset if offset > 0 else k}
        return x[tuple(place[d] if d in place else next(others) for d in range(x.ndim))]

    return element


@te.op
def diagonal(x: te.Tensor, *, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> te.Tensor:
    """`y[.., k] = x[.., k, .., k + offset, ..]`: a diagonal of the plane of two axes, as the last axis of the result.

    >>> kernels.diagonal(np.array([[1, 2, 3], [4, 5, 6]]), offset=1)
    array([2, 6])
    """
    first, second = _plane("diagonal", x, axis1, axis2)
    element = _along(x, first, second, _offset("diagonal", offset))
    rest = tuple(extent for d, extent in enumerate(x.shape) if d not in (first, second))
    return te.compute((*rest, _length(x.shape[first], x.shape[second], offset)), lambda *i: element(i[:-1], i[-1]))


@te.op
def diagonal_scatter(x: te.Tensor, src: te.Tensor, *, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> te.Tensor:
    """`x` with `src` in place of `diagonal(x, offset, axis1, axis2)`.

    >>> kernels.diagonal_scatter(np.zeros((2, 2)), np.array([1.0, 2.0]))
    array([[1., 0.],
           [0., 2.]])
    """
    first, second = _plane("diagonal_scatter", x, axis1, axis2)
    offset = _offset("diagonal_scatter", offset)
    rest = tuple(extent for d, extent in enumerate(x.shape) if d not in (first, second))
    shaped(src, (*rest, _length(x.shape[first], x.shape[second], offset)), "that of the diagonal")

    def body(*i: Any) -> te.Scalar:
        others = tuple(k for d, k in enumerate(i) if d not in (first, second))
        return te.where(i[second] - i[first] == offset, src[(*others, i[first] if offset >= 0 else i[second])], x[i])

    return te.compute(x.shape, body)


@te.op
def trace(x: te.Tensor, *, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> te.Tensor:
    """`y[..] = sum_k x[.., k, .., k + offset, ..]`: the sum of a diagonal of the plane of two axes.

    >>> kernels.trace(np.array([[1, 2], [3, 4]]))
    array(5)
    """
    first, second = _plane("trace", x, axis1, axis2)
    element = _along(x, first, second, _offset("trace", offset))
    rest = tuple(extent for d, extent in enumerate(x.shape) if d not in (first, second))
    length = _length(x.shape[first], x.shape[second], offset)
    return te.compute(rest, lambda *i: te.sum(lambda k: element(i, k), length))


@te.op
def diag_embed(x: te.Tensor, *, offset: Any = 0, axis1: Any = -2, axis2: Any = -1) -> te.Tensor:
    """The opposite of `diagonal`: the last axis of `x` as a diagonal of a plane of square matrices, 0 elsewhere.

    >>> kernels.diag_embed(np.array([[1, 2]]), offset=1)
    array([[[0, 1, 0],
            [0, 0, 2],
            [0, 0, 0]]])
    """
    rank = x.ndim + 1
    if not x.ndim:
        raise bad("diag_embed: expected an x of at least 1 axis, got 0")
    for axis in (axis1, axis2):
        if not is_int(axis) or not -rank <= axis < rank:
            raise bad(f"diag_embed: expected axes of the result between {-rank} and {rank - 1}, got {axis!r}")
    first, second = axis1 % rank, axis2 % rank
    if first == second:
        raise bad(f"diag_embed: expected two different axes, got {axis1} and {axis2}")
    size = x.shape[-1] + abs(_offset("diag_embed", offset))
    others = iter(x.shape[:-1])
    shape = tuple(size if d in (first, second) else next(others) for d in range(rank))

    def body(*i: Any) -> te.Scalar:
        row, column = i[first], i[second]
        rest = tuple(k for d, k in enumerate(i) if d not in (first, second))
        k = row if offset >= 0 else column
        return te.where(column - row == offset, x.read(*rest, k, outside=0), te.cast(0, x.dtype))

    return te.compute(shape, body)


@te.op
def diag(x: te.Tensor, *, offset: Any = 0) -> te.Tensor:
    """The diagonal of a matrix, or the matrix with a vector as its diagonal.

    >>> kernels.diag(np.array([1, 2])), kernels.diag(np.array([[1, 2], [3, 4]]))
    (array([[1, 0],
           [0, 2]]), array([1, 4]))
    """
    if x.ndim not in (1, 2):
        raise bad(f"diag: expected a vector or a matrix, got {x.ndim} axes")
    return diag_embed(x, offset=offset) if x.ndim == 1 else diagonal(x, offset=offset)


@te.op
def triu(x: te.Tensor, *, diagonal: Any = 0) -> te.Tensor:
    """The elements of matrices (the last two axes) on and above a diagonal, 0 below.

    >>> kernels.triu(np.array([[1, 2], [3, 4]]), diagonal=1)
    array([[0, 2],
           [0, 0]])
    """
    return _triangle("triu", x, diagonal, lambda above: above >= 0)


@te.op
def tril(x: te.Tensor, *, diagonal: Any = 0) -> te.Tensor:
    """The elements of matrices (the last two axes) on and below a diagonal, 0 above.

    >>> kernels.tril(np.array([[1, 2], [3, 4]]))
    array([[1, 0],
           [3, 4]])
    """
    return _triangle("tril", x, diagonal, lambda above: above <= 0)


def _triangle(name: str, x: te.Tensor, diagonal: Any, keep: Callable[[Any], Any]) -> te.Tensor:
    offset = _offset(name, diagonal)
    if x.ndim < 2:
        raise bad(f"{name}: expected an x of at least 2 axes, got {x.ndim}")
    return te.compute(x.shape, lambda *i: te.where(keep(i[-1] - i[-2] - offset), x[i], te.cast(0, x.dtype)))


@te.op
def diagflat(x: te.Tensor, *, offset: Any = 0) -> te.Tensor:
    """The matrix whose diagonal has the elements of `x`, in row-major order; 0 elsewhere.

    >>> kernels.diagflat(np.array([[1, 2]]))
    array([[1, 0],
           [0, 2]])
    """
    inner = [product(x.shape[d + 1 :]) for d in range(x.ndim)]
    flat = te.compute((product(x.shape),), lambda f: x[tuple(f // step % n for step, n in zip(inner, x.shape, strict=True))])
    return diag_embed(flat, offset=offset)


@te.op
def t(x: te.Tensor) -> te.Tensor:
    """A matrix transposed; a vector or a number as it is.

    >>> kernels.t(np.array([[1, 2], [3, 4]]))
    array([[1, 3],
           [2, 4]])
    """
    if x.ndim > 2:
        raise bad(f"t: expected at most 2 axes, got {x.ndim}", "transpose exchanges two axes of a tensor")
    return te.compute(x.shape[::-1], lambda *i: x[i[::-1]])


@te.op
def cov(
    x: te.Tensor, fweights: te.Tensor | None = None, aweights: te.Tensor | None = None, *, correction: Any = 1, rowvar: bool = True
) -> te.Tensor:
    """The covariances of the rows of a matrix, each column an observation; of one row, a vector or a number its variance alone.

    Without `rowvar` columns are variables and each row is an observation, as in NumPy.

    `fweights` says how often a column counts, `aweights` how much: `sum_k w[k] d[i, k] d[j, k] / max(0, n - correction)` with w the product
    of both, d the distance from the weighted mean, n the sum of w. With `aweights` the correction is multiplied by `sum(w * aweights) / n`.

    >>> kernels.cov(np.array([[1.0, 2.0, 3.0], [6.0, 4.0, 2.0]]))
    array([[ 1., -2.],
           [-2.,  4.]])
    """
    if x.ndim > 2 or not is_int(correction):
        raise bad(f"cov: expected at most 2 axes and an integer correction, got shape {x.shape} and {correction!r}")
    if x.ndim == 2 and not rowvar:
        columns = x
        x = te.compute((x.shape[1], x.shape[0]), lambda i, k: columns[k, i])
    rows = x if x.ndim == 2 else te.compute((1, *(x.shape or (1,))), lambda _, k: x[(k,) if x.ndim else ()])
    variables, count = rows.shape
    for given in (fweights, aweights):
        if given is not None:
            shaped(given, (count,), "one weight per column")

    def weight(k: Any) -> Any:
        own = te.cast(1, x.dtype)
        return own * (1 if fweights is None else te.cast(fweights[k], x.dtype)) * (1 if aweights is None else te.cast(aweights[k], x.dtype))

    def by_weight(value: Any) -> te.Tensor:
        return te.compute((), lambda: te.sum(lambda k: weight(k) * value(k), count))

    total = by_weight(lambda k: 1)
    freedom = by_weight(lambda k: te.cast(aweights[k], x.dtype)) if aweights is not None and correction else None
    mean = te.compute((variables,), lambda i: te.sum(lambda k: weight(k) * rows[i, k], count) / total[()], name="mean")

    def covariance(i: Any, j: Any) -> Any:
        both = te.sum(lambda k: weight(k) * (rows[i, k] - mean[i]) * (rows[j, k] - mean[j]), count)
        taken = correction if freedom is None else correction * freedom[()] / total[()]
        return both / te.maximum(total[()] - taken, te.cast(0, x.dtype))

    found = te.compute((variables, variables), covariance)
    return te.compute((), lambda: found[0, 0]) if known(variables) and variables == 1 else found


@te.op
def corrcoef(x: te.Tensor) -> te.Tensor:
    """The correlations of the rows of a matrix: covariances over the square roots of the variances, from -1 to 1; of one row 1.

    >>> kernels.corrcoef(np.array([[1.0, 2.0, 3.0], [6.0, 4.0, 2.0]])).round(4)
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    both = cov.function(x)
    if not both.ndim:
        return te.compute((), lambda: both[()] / both[()])
    spread = te.compute(both.shape[:1], lambda i: te.sqrt(both[i, i]), name="spread")
    return te.compute(both.shape, lambda i, j: te.maximum(te.minimum(both[i, j] / spread[i] / spread[j], 1), -1))
