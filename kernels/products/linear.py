"""Products of matrices and vectors: `matmul` with broadcast leading axes, and what is named after it; sums of products, nothing else.

Accumulation is the language's: float16 and bfloat16 in float32. Which loop order, tiling or fusion a product gets is the schedule's
concern; here stands only what it is. Products of more than two operands are in `einsum`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import at_least_axes, bad, is_int, known, products
from tensorexpr.kernels.conventions.axes import along, drop, flat, normalized
from tensorexpr.kernels.conventions.broadcasting import at, broadcast_shape, is_one, pointwise, same, stretches


def _agree(name: str, what: str, a: Any, b: Any) -> Any:
    """The extent that two axes share; `ArgumentError` where they are not known to be equal."""
    if not same(a, b):
        raise bad(f"{name}: expected {what} of equal extents, got {a} and {b}")
    return a


def _rank(name: str, x: te.Tensor, *ranks: int) -> None:
    if x.ndim not in ranks:
        raise bad(f"{name}: expected {x.name} with {' or '.join(map(str, ranks))} axes, got {x.ndim}")


# ---------------------------------------------------------------------------------------------------- products


@te.op
def matmul(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`z[.., i, j] = sum_k x[.., i, k] * y[.., k, j]`; leading axes broadcast. A vector stands for a row on the left, for a column on
    the right, without that axis in the result. `ArgumentError` for a number or inner extents that differ.

    >>> kernels.matmul(np.array([[1, 2], [3, 4]]), np.array([1, 10]))
    array([21, 43])
    """
    return _matmul("matmul", x, y)


def _matmul(name: str, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    if not x.ndim or not y.ndim:
        raise bad(f"{name}: expected tensors of at least 1 axis, got {x.ndim} and {y.ndim}", "a number scales: mul")
    inner = _agree(name, "the last axis of x and the last but one of y", x.shape[-1], y.shape[-2] if y.ndim > 1 else y.shape[0])
    lead = broadcast_shape(name, x.shape[:-2], y.shape[:-2])
    rows, columns = x.shape[-2:-1], y.shape[-1:] if y.ndim > 1 else ()

    def body(*i: Any) -> te.Scalar:
        batch, rest = i[: len(lead)], i[len(lead) :]
        row, column = rest[: len(rows)], rest[len(rows) :]
        return products(lambda k: _batched(x, batch, (*row, k)) * _batched(y, batch, (k, *column)), inner)

    return te.compute((*lead, *rows, *columns), body)


def _batched(x: te.Tensor, batch: Sequence[Any], last: tuple[Any, ...]) -> te.Scalar:
    """`x` at the indices `last` of its last axes, its leading axes broadcast to `batch`."""
    own = batch[len(batch) - (x.ndim - len(last)) :]
    return x[tuple(0 if known(n) and n == 1 else i for n, i in zip(x.shape, own)) + last]


@te.op
def bmm(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`z[b, i, j] = sum_k x[b, i, k] * y[b, k, j]`: `matmul` of exactly three axes each, none broadcast.

    >>> kernels.bmm(np.array([[[1, 2]], [[3, 4]]]), np.array([[[1], [1]], [[10], [10]]])).ravel()
    array([ 3, 70])
    """
    _rank("bmm", x, 3)
    _rank("bmm", y, 3)
    _agree("bmm", "batches", x.shape[0], y.shape[0])
    return _matmul("bmm", x, y)


@te.op
def mm(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`z[i, j] = sum_k x[i, k] * y[k, j]`: `matmul` of two matrices.

    >>> kernels.mm(np.array([[1, 2], [3, 4]]), np.array([[0, 1], [1, 0]]))
    array([[2, 1],
           [4, 3]])
    """
    _rank("mm", x, 2)
    _rank("mm", y, 2)
    return _matmul("mm", x, y)


@te.op
def mv(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`z[i] = sum_k x[i, k] * y[k]`: `matmul` of a matrix and a vector.

    >>> kernels.mv(np.array([[1, 2], [3, 4]]), np.array([1, 1]))
    array([3, 7])
    """
    _rank("mv", x, 2)
    _rank("mv", y, 1)
    return _matmul("mv", x, y)


@te.op
def addmm(input: te.Tensor, x: te.Tensor, y: te.Tensor, *, beta: Any = 1, alpha: Any = 1) -> te.Tensor:
    """`beta * input + alpha * (x @ y)` of matrices, `input` broadcast to the product.

    >>> kernels.addmm(np.array([1, 2]), np.array([[1, 1]]), np.array([[10, 20], [30, 40]]), beta=10)
    array([[50, 80]])
    """
    return _added("addmm", 2, input, x, y, beta, alpha)


@te.op
def baddbmm(input: te.Tensor, x: te.Tensor, y: te.Tensor, *, beta: Any = 1, alpha: Any = 1) -> te.Tensor:
    """`beta * input + alpha * (x @ y)` of batches of matrices, `input` broadcast to the product.

    >>> kernels.baddbmm(1, np.ones((2, 1, 3)), np.ones((2, 3, 1))).ravel()
    array([4., 4.])
    """
    return _added("baddbmm", 3, input, x, y, beta, alpha)


@te.op
def addmv(input: te.Tensor, x: te.Tensor, y: te.Tensor, *, beta: Any = 1, alpha: Any = 1) -> te.Tensor:
    """`beta * input + alpha * (x @ y)` of a matrix and a vector, `input` broadcast to the product.

    >>> kernels.addmv(np.array([1, 2]), np.array([[1, 1], [2, 2]]), np.array([10, 20]))
    array([31, 62])
    """
    _rank("addmv", x, 2)
    _rank("addmv", y, 1)
    return _plus("addmv", input, _matmul("addmv", x, y), beta, alpha)


@te.op
def addr(input: te.Tensor, x: te.Tensor, y: te.Tensor, *, beta: Any = 1, alpha: Any = 1) -> te.Tensor:
    """`beta * input + alpha * outer(x, y)`, `input` broadcast to the product.

    >>> kernels.addr(100, np.array([1, 2]), np.array([3, 4]))
    array([[103, 104],
           [106, 108]])
    """
    return _plus("addr", input, outer.function(x, y), beta, alpha)


@te.op
def addbmm(input: te.Tensor, x: te.Tensor, y: te.Tensor, *, beta: Any = 1, alpha: Any = 1) -> te.Tensor:
    """`beta * input + alpha * sum_b (x[b] @ y[b])` over batches of matrices, `input` broadcast to the product.

    >>> kernels.addbmm(1, np.ones((3, 1, 2)), np.ones((3, 2, 1)))  # 1 + 3 * 2
    array([[7.]])
    """
    _rank("addbmm", x, 3)
    _rank("addbmm", y, 3)
    both = _agree("addbmm", "batches", x.shape[0], y.shape[0]), _agree("addbmm", "inner axes", x.shape[2], y.shape[1])
    made = te.compute((x.shape[1], y.shape[2]), lambda i, j: products(lambda b, k: x[b, i, k] * y[b, k, j], both))
    return _plus("addbmm", input, made, beta, alpha)


def _added(name: str, rank: int, input: te.Tensor, x: te.Tensor, y: te.Tensor, beta: float, alpha: float) -> te.Tensor:
    _rank(name, x, rank)
    _rank(name, y, rank)
    return _plus(name, input, _matmul(name, x, y), beta, alpha)


def _plus(name: str, input: te.Tensor, made: te.Tensor, beta: float, alpha: float) -> te.Tensor:
    """`beta * input + alpha * made`; with a beta of 0 the input is not read, so that its NaNs do not come through."""
    if not stretches(input.shape, made.shape):
        raise bad(f"{name}: expected an input that broadcasts to the product, got {input.shape} and {made.shape}")
    if beta == 0:
        return te.compute(made.shape, lambda *i: _times(alpha, made[i]))
    return te.compute(made.shape, lambda *i: _times(beta, at(input, i)) + _times(alpha, made[i]))


def _times(factor: float, value: Any) -> Any:
    return value if factor == 1 else factor * value


@te.op
def linear(x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None) -> te.Tensor:
    """`y[.., o] = sum_k x[.., k] * weight[o, k] + bias[o]`; a weight of one axis gives a result without `o`.

    >>> kernels.linear(np.array([[1, 2]]), np.array([[1, 1], [0, 10]]), np.array([100, 0]))
    array([[103,  20]])
    """
    _rank("linear", weight, 1, 2)
    if not x.ndim:
        raise bad("linear: expected an x of at least 1 axis, got 0")
    inner = _agree("linear", "the last axes of x and weight", x.shape[-1], weight.shape[-1])
    out = weight.shape[:-1]
    if bias is not None and (bias.ndim != len(out) or not all(map(same, bias.shape, out))):
        raise bad(f"linear: expected a bias of shape {out}, got {bias.shape}")
    lead = x.ndim - 1

    def body(*i: Any) -> te.Scalar:
        total = products(lambda k: x[(*i[:lead], k)] * weight[(*i[lead:], k)], inner)
        return total if bias is None else total + bias[i[lead:]]

    return te.compute((*x.shape[:-1], *out), body)


@te.op
def bilinear(x1: te.Tensor, x2: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None) -> te.Tensor:
    """`y[.., o] = sum_jk x1[.., j] * weight[o, j, k] * x2[.., k] + bias[o]`, contracted with `x2` first: each output costs J * (K + 1).

    >>> kernels.bilinear(np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.ones((1, 2, 2)))  # (1 + 2) (3 + 4)
    array([21.])
    """
    _rank("bilinear", weight, 3)
    if x1.ndim != x2.ndim or not x1.ndim or not all(map(same, x1.shape[:-1], x2.shape[:-1])):
        raise bad(f"bilinear: expected inputs with the same leading axes, got {x1.shape} and {x2.shape}")
    _agree("bilinear", "the last axis of x1 and axis 1 of weight", x1.shape[-1], weight.shape[1])
    _agree("bilinear", "the last axis of x2 and axis 2 of weight", x2.shape[-1], weight.shape[2])
    if bias is not None and (bias.ndim != 1 or not same(bias.shape[0], weight.shape[0])):
        raise bad(f"bilinear: expected a bias of shape {weight.shape[:1]}, got {bias.shape}")
    lead = x1.ndim - 1
    outputs, rows, columns = weight.shape

    def half(*i: Any) -> te.Scalar:
        return products(lambda k: weight[i[lead], i[lead + 1], k] * x2[(*i[:lead], k)], columns)

    inner = te.compute((*x1.shape[:-1], outputs, rows), half, name="inner")

    def body(*i: Any) -> te.Scalar:
        total = products(lambda j: x1[(*i[:lead], j)] * inner[(*i, j)], rows)
        return total if bias is None else total + bias[i[lead]]

    return te.compute((*x1.shape[:-1], outputs), body)


@te.op
def dot(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`sum_k x[k] * y[k]` of two vectors; of more axes, as in NumPy, the last of `x` and the last but one of `y`, all others side by side.

    >>> kernels.dot(np.array([1, 2, 3]), np.array([4, 5, 6]))
    array(32)
    """
    if y.ndim < 2 or not x.ndim:
        return _inner("dot", x, y)
    size = _agree("dot", "the last axis of x and the last but one of y", x.shape[-1], y.shape[-2])
    lead, deep = x.ndim - 1, x.ndim + y.ndim - 3

    def body(*i: Any) -> Any:
        return products(lambda k: x[(*i[:lead], k)] * y[(*i[lead:deep], k, i[-1])], size)

    return te.compute((*x.shape[:-1], *y.shape[:-2], y.shape[-1]), body)


@te.op
def vdot(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`sum x * y` over all elements of two tensors of one shape.

    >>> kernels.vdot(np.array([[1, 2], [3, 4]]), np.array([[1, 1], [1, 1]]))
    array(10)
    """
    if x.ndim != y.ndim or not all(map(same, x.shape, y.shape)):
        raise bad(f"vdot: expected tensors of one shape, got {x.shape} and {y.shape}")
    if not x.ndim:
        return te.compute((), lambda: x[()] * y[()])
    return te.compute((), lambda: products(lambda *k: x[k] * y[k], x.shape))


@te.op
def vecdot(x: te.Tensor, y: te.Tensor, *, axis: Any = -1) -> te.Tensor:
    """`sum_k x[.., k, ..] * y[.., k, ..]` along `axis`, the other axes broadcast.

    >>> kernels.vecdot(np.array([[1, 2], [3, 4]]), np.array([1, 10]))
    array([21, 43])
    """
    rank = max(x.ndim, y.ndim)
    shape = broadcast_shape("vecdot", x.shape, y.shape)
    if not is_int(axis) or not -rank <= axis < rank:
        raise bad(f"vecdot: expected an axis between {-rank} and {rank - 1}, got {axis!r}")
    axis %= rank

    def body(*i: Any) -> te.Scalar:
        return products(lambda k: at(x, along(i, axis, k)) * at(y, along(i, axis, k)), shape[axis])

    return te.compute(drop(shape, axis), body)


@te.op
def matvec(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`z[.., m] = sum_k x[.., m, k] * y[.., k]`, the other axes broadcast.

    >>> kernels.matvec(np.array([[1, 2], [3, 4]]), np.array([1, 10]))
    array([21, 43])
    """
    at_least_axes("matvec", x, 2, "rows, columns")
    at_least_axes("matvec", y, 1, "elements")
    rows = te.compute((*y.shape[:-1], 1, y.shape[-1]), lambda *i: y[drop(i, y.ndim - 1)])
    return vecdot.function(x, rows)


@te.op
def vecmat(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`z[.., n] = sum_k x[.., k] * y[.., k, n]`, the other axes broadcast.

    >>> kernels.vecmat(np.array([1, 10]), np.array([[1, 2], [3, 4]]))
    array([31, 42])
    """
    at_least_axes("vecmat", x, 1, "elements")
    at_least_axes("vecmat", y, 2, "rows, columns")
    columns = te.compute((*x.shape, 1), lambda *i: x[i[:-1]])
    return vecdot.function(columns, y, axis=-2)


@te.op
def inner(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`z[.., ..] = sum_k x[.., k] * y[.., k]`: the last axes contracted, all others side by side.

    >>> kernels.inner(np.array([[1, 2], [3, 4]]), np.array([1, 10]))
    array([21, 43])
    """
    return _inner("inner", x, y)


def _inner(name: str, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    if not x.ndim or not y.ndim:
        return pointwise(name, lambda a, b: a * b, x, y)
    size = _agree(name, "the last axes", x.shape[-1], y.shape[-1])
    lead = x.ndim - 1
    return te.compute((*x.shape[:-1], *y.shape[:-1]), lambda *i: products(lambda k: x[(*i[:lead], k)] * y[(*i[lead:], k)], size))


@te.op
def outer(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`z[i, j] = x[i] * y[j]` of two vectors; of others, as in NumPy, of their elements in row-major order.

    >>> kernels.outer(np.array([1, 2]), np.array([3, 4, 5]))
    array([[ 3,  4,  5],
           [ 6,  8, 10]])
    """
    a, b = flat(x), flat(y)
    return te.compute((a.shape[0], b.shape[0]), lambda i, j: a[i] * b[j])


@te.op
def tensordot(x: te.Tensor, y: te.Tensor, *, axes: Any = 2) -> te.Tensor:
    """Contracts `axes` of `x` with those of `y`, pairwise: an integer n (the last n of `x` with the first n of `y`), or two sequences.

    The result has the other axes of `x`, then those of `y`.

    >>> kernels.tensordot(np.ones((2, 3, 4)), np.ones((4, 3, 5)), axes=((1, 2), (1, 0))).shape
    (2, 5)
    """
    first, second = _pairs(x, y, axes)
    pairs = [(x.shape[p], y.shape[q]) for p, q in zip(first, second, strict=True)]
    extents = [
        (n if is_one(m) else m) if is_one(n) or is_one(m) else _agree("tensordot", f"axes {p} of x and {q} of y", n, m)
        for p, q, (n, m) in zip(first, second, pairs, strict=True)
    ]
    ours, theirs = ([d for d in range(t.ndim) if d not in taken] for t, taken in ((x, first), (y, second)))

    def place(rank: int, free: Sequence[int], taken: Sequence[int], outer: Sequence[Any], k: Sequence[Any]) -> tuple[Any, ...]:
        found = dict(zip(free, outer, strict=True)) | dict(zip(taken, k, strict=True))
        return tuple(found[d] for d in range(rank))

    def stretched(k: Sequence[Any], own: int) -> list[Any]:
        """Places along the axes of one operand: always the first where its extent is 1, as in PyTorch."""
        return [0 if is_one(pair[own]) else i for pair, i in zip(pairs, k, strict=True)]

    def body(*i: Any) -> Any:
        a, b = i[: len(ours)], i[len(ours) :]
        if not extents:
            return x[a] * y[b]
        return products(
            lambda *k: x[place(x.ndim, ours, first, a, stretched(k, 0))] * y[place(y.ndim, theirs, second, b, stretched(k, 1))], extents
        )

    return te.compute((*(x.shape[d] for d in ours), *(y.shape[d] for d in theirs)), body)


def _pairs(x: te.Tensor, y: te.Tensor, axes: Any) -> tuple[list[int], list[int]]:
    if is_int(axes):
        if not 0 <= axes <= min(x.ndim, y.ndim):
            raise bad(f"tensordot: expected a number of axes from 0 to {min(x.ndim, y.ndim)}, got {axes}")
        return list(range(x.ndim - axes, x.ndim)), list(range(axes))
    pair = tuple(axes) if isinstance(axes, (tuple, list)) else ()
    if len(pair) != 2:
        raise bad(f"tensordot: expected an integer or two sequences of axes, got {axes!r}")
    taken = [
        [normalized(one, t) for one in (part if isinstance(part, (tuple, list)) else (part,))] for t, part in zip((x, y), pair, strict=True)
    ]
    if len(taken[0]) != len(taken[1]) or any(len(set(part)) < len(part) for part in taken):
        raise bad(f"tensordot: expected as many different axes of x as of y, got {axes!r}")
    return taken[0], taken[1]


@te.op
def kron(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """The Kronecker product: `z[.., i, ..] = x[.., i // n, ..] * y[.., i % n, ..]` on each axis, n the extent of `y`; missing leading
    axes are 1.

    >>> kernels.kron(np.array([1, 10]), np.array([[1, 2], [3, 4]]))
    array([[ 1,  2, 10, 20],
           [ 3,  4, 30, 40]])
    """
    rank = max(x.ndim, y.ndim)
    ours, theirs = ((1,) * (rank - t.ndim) + tuple(t.shape) for t in (x, y))

    def body(*i: Any) -> te.Scalar:
        high = tuple(k // n for k, n in zip(i, theirs, strict=True))[rank - x.ndim :]
        low = tuple(k % n for k, n in zip(i, theirs, strict=True))[rank - y.ndim :]
        return x[high] * y[low]

    return te.compute(tuple(a * b for a, b in zip(ours, theirs, strict=True)), body)


@te.op
def cross(x: te.Tensor, y: te.Tensor, *, axis: Any = -1) -> te.Tensor:
    """The vector product along `axis`, of extent 3: `z[i] = x[i+1] y[i+2] - x[i+2] y[i+1]`, places modulo 3; other axes broadcast.

    >>> kernels.cross(np.array([1, 0, 0]), np.array([0, 1, 0]))
    array([0, 0, 1])
    """
    shape = broadcast_shape("cross", x.shape, y.shape)
    if x.ndim != y.ndim or not x.ndim:
        raise bad(f"cross: expected tensors with one number of axes, at least 1, got {x.ndim} and {y.ndim}")
    axis = normalized(axis, x)
    if not (known(x.shape[axis], y.shape[axis]) and x.shape[axis] == y.shape[axis] == 3):
        raise bad(f"cross: expected extents of 3 along axis {axis}, got {x.shape[axis]} and {y.shape[axis]}")

    def body(*i: Any) -> te.Scalar:
        rest, k = drop(i, axis), i[axis]
        after, before = along(rest, axis, (k + 1) % 3), along(rest, axis, (k + 2) % 3)
        return at(x, after) * at(y, before) - at(x, before) * at(y, after)

    return te.compute(shape, body)


# ---------------------------------------------------------------------------------------------------- powers and chains


@te.op
def matrix_power(x: te.Tensor, *, n: Any) -> te.Tensor:
    """The n-th power of square matrices (the last two axes), n >= 0, by repeated squaring: about 2 log2 n products.

    >>> kernels.matrix_power(np.array([[1, 1], [0, 1]]), n=5)
    array([[1, 5],
           [0, 1]])
    """
    if x.ndim < 2 or not same(x.shape[-1], x.shape[-2]):
        raise bad(f"matrix_power: expected square matrices, got shape {x.shape}")
    if not is_int(n) or n < 0:
        raise bad(f"matrix_power: expected an integer n of at least 0, got {n!r}", "a negative power needs an inverse")
    result, square = None, x
    while n:
        if n % 2:
            result = square if result is None else _matmul("matrix_power", result, square)
        n //= 2
        square = _matmul("matrix_power", square, square) if n else square
    if result is None:
        return te.compute(x.shape, lambda *i: te.where(i[-1] == i[-2], te.cast(1, x.dtype), te.cast(0, x.dtype)))
    return result if result is not x else te.compute(x.shape, lambda *i: x[i])


@te.op
def multi_dot(tensors: te.Tensor) -> te.Tensor:
    """The product of two or more matrices, grouped so that the number of multiplications is least; the first may be a row vector, the
    last a column vector.

    The grouping is the textbook's dynamic program over the extents (Godbole, 1973); extents known only at run time count as 64.

    >>> kernels.multi_dot((np.array([1, 1]), np.array([[1, 2], [3, 4]]), np.array([[1], [1]])))
    array([10])
    """
    given = tuple(tensors) if isinstance(tensors, (tuple, list)) else (tensors,)
    if len(given) < 2:
        raise bad(f"multi_dot: expected at least 2 tensors, got {len(given)}")
    for place, tensor in enumerate(given):
        _rank("multi_dot", tensor, *((1, 2) if place in (0, len(given) - 1) else (2,)))
    left, right = given[0].shape[:-1] or (1,), given[-1].shape[1:] or (1,)
    extents = [*left, *(tensor.shape[0] for tensor in given[1:]), *right]
    sizes = [extent if known(extent) else 64 for extent in extents]
    return _chained(given, _grouping(sizes), 0, len(given) - 1)


def _grouping(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """For each run of matrices (first, last) after which of them to part it."""
    count = len(sizes) - 1
    cost = {(k, k): 0 for k in range(count)}
    parted: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for first in range(count - length):
            last = first + length

            def price(k: int, first: int = first, last: int = last) -> int:
                return cost[first, k] + cost[k + 1, last] + sizes[first] * sizes[k + 1] * sizes[last + 1]

            parted[first, last] = min(range(first, last), key=price)
            cost[first, last] = price(parted[first, last])
    return parted


def _chained(given: Sequence[te.Tensor], parted: dict[tuple[int, int], int], first: int, last: int) -> te.Tensor:
    if first == last:
        return given[first]
    middle = parted[first, last]
    return _matmul("multi_dot", _chained(given, parted, first, middle), _chained(given, parted, middle + 1, last))
