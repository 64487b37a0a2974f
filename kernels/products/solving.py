"""Small systems of linear equations: solutions, inverses, determinants, Cholesky factors, by elimination as scans over columns.

A step of a scan eliminates one column of every matrix of a batch, so there are as many steps as columns, and each takes the whole
matrix. A matrix that is singular has infinite or NaN results, as data decides; nothing is raised. Solutions and inverses are
differentiated by their rules, from the result; the others step by step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, known
from tensorexpr.kernels.conventions.broadcasting import at, broadcast_shape, same, summed_to


def _square(name: str, x: te.Tensor) -> Any:
    """The number of rows and columns."""
    if x.ndim < 2 or not same(x.shape[-1], x.shape[-2]):
        raise bad(f"{name}: expected square matrices along the last two axes, got {x.name} of shape {x.shape}")
    return x.shape[-1]


def _real(x: te.Tensor) -> te.Tensor:
    """The matrices as floating numbers that elimination is done with."""
    kind = te.dtype("float64") if not x.dtype.is_float else te.dtype("float32") if x.dtype.bits < 32 else x.dtype
    return x if x.dtype is kind else te.compute(x.shape, lambda *i: te.cast(x[i], kind))


def _back(found: te.Tensor, x: te.Tensor) -> te.Tensor:
    """A result in the dtype of floating matrices."""
    kind = x.dtype
    return found if not kind.is_float or found.dtype is kind else te.compute(found.shape, lambda *i: te.cast(found[i], kind))


def _exchanged(x: te.Tensor, i: Sequence[Any], k: Any, p: Any) -> Any:
    """An element of matrices whose rows k and p have changed places."""
    *b, r, c = i
    return x[(*b, te.where(r == k, p, te.where(r == p, k, r)), c)]


def _eliminated(a: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """Step by step the column that is eliminated, `[n, .., n]`, its greatest element from the diagonal on moved there, and the row where
    that stood, `[n, ..]`. All other rows are freed of it, those above as well."""
    n, lead = a.shape[-1], a.ndim - 2

    def step(k: Any, state: Any) -> Any:
        own = state[0]
        place = te.compute(
            a.shape[:-2], lambda *b: te.argmax(lambda r: te.where(r < k, -1, te.abs(own[(*b, r, k)])), n), name="place"
        )  # fmt: skip
        rows = te.compute(a.shape, lambda *i: _exchanged(own, i, k, place[i[:lead]]), name="rows")

        def eliminated(*i: Any) -> Any:
            b, r, c = i[:lead], i[lead], i[lead + 1]
            diagonal = rows[(*b, k, k)]
            others = (r != k) & (diagonal != 0)
            factor = te.where(others, rows[(*b, r, k)] / te.where(diagonal != 0, diagonal, 1), 0)
            return rows[i] - factor * rows[(*b, k, c)]

        return (
            te.compute(a.shape, eliminated, name="eliminated"),
            te.compute(a.shape[:-1], lambda *i: rows[(*i, k)], name="column"),
            place,
        )

    columns = te.compute(a.shape[:-1], lambda *i: te.cast(0, a.dtype))
    places = te.compute(a.shape[:-2], lambda *b: te.cast(0, "int64"))
    _, columns, places = te.scan(step, (a, columns, places), n, name=("left", "columns", "places"))
    return columns, places


def _empty(x: te.Tensor) -> bool:
    return any(known(n) and n == 0 for n in x.shape[-1:])


@te.op
def det(x: te.Tensor) -> te.Tensor:
    """The determinants of square matrices, by elimination with the greatest pivots; their gradient is right for singular matrices of
    rank n - 1 too.

    >>> float(kernels.det(np.array([[2.0, 1.0], [1.0, 3.0]])).round(6))
    5.0
    """
    n, a = _square("det", x), _real(x)
    if _empty(x):
        return te.compute(x.shape[:-2], lambda *b: te.cast(1, a.dtype))
    pivots, turned = _pivots(a)
    return _back(te.compute(x.shape[:-2], lambda *b: te.prod(lambda k: turned(pivots(k, b), k, b), n)), x)


def _pivots(a: te.Tensor) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The pivot of a step, and a value whose sign is changed where the step exchanged two rows."""
    columns, places = _eliminated(a)

    def turned(value: Any, k: Any, b: Sequence[Any]) -> Any:
        return te.where(places[(k, *b)] == k, value, -value)

    return lambda k, b: columns[(k, *b, k)], turned


@te.op
def slogdet(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """`(sign, logabsdet)`: the sign of determinants, and the logarithm of their magnitude, which neither overflows nor vanishes.

    >>> sign, logabsdet = kernels.slogdet(np.array([[0.0, 2.0], [2.0, 0.0]]))
    >>> float(sign), float(logabsdet.round(4))
    (-1.0, 1.3863)
    """
    n, a = _square("slogdet", x), _real(x)
    shape = x.shape[:-2]
    if _empty(x):
        return te.compute(shape, lambda *b: te.cast(1, a.dtype)), te.compute(shape, lambda *b: te.cast(0, a.dtype))
    pivots, turned = _pivots(a)
    sign = te.compute(shape, lambda *b: te.prod(lambda k: turned(te.sign(pivots(k, b)), k, b), n))
    size = te.compute(shape, lambda *b: te.sum(lambda k: te.log(te.abs(pivots(k, b))), n))
    return _back(sign, x), _back(size, x)


@te.op
def logdet(x: te.Tensor) -> te.Tensor:
    """The logarithm of determinants; NaN where they are negative.

    >>> float(kernels.logdet(np.array([[2.0, 0.0], [0.0, 3.0]])).round(4))
    1.7918
    """
    sign, size = slogdet.function(x)
    return te.compute(size.shape, lambda *b: te.where(sign[b] < 0, math.nan, size[b]))


def _lines(name: str, a: te.Tensor, b: te.Tensor) -> tuple[bool, tuple[Any, ...]]:
    """Whether right-hand sides are vectors, and the batch that both are stretched to."""
    n = _square(name, a)
    vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and all(map(same, b.shape, a.shape[:-1])))
    rows = b.shape[-1] if vector else b.shape[-2] if b.ndim > 1 else None
    if rows is None or (known(rows, n) and rows != n):
        hint = "a vector, or vectors as columns"
        raise bad(f"{name}: expected right-hand sides of {n} rows for matrices of {n}, got {b.name} of shape {b.shape}", hint)
    return vector, broadcast_shape(name, a.shape[:-2], b.shape[: -1 if vector else -2])


def _given(name: str, a: te.Tensor, b: te.Tensor) -> tuple[te.Tensor, te.Tensor, bool, te.Tensor]:
    """Matrices and right-hand sides as columns, of one batch and one dtype; whether those were vectors; a tensor of the result's dtype."""
    vector, batch = _lines(name, a, b)
    first, second = _real(a), _real(b)
    kind = te.dtype("float64") if "float64" in (first.dtype.name, second.dtype.name) else te.dtype("float32")
    n, lead = a.shape[-1], len(batch)
    columns = 1 if vector else b.shape[-1]
    whole = te.compute((*batch, n, n), lambda *i: te.cast(at(first, i), kind), name="a")
    right = te.compute(
        (*batch, n, columns), lambda *i: te.cast(at(second, i[: lead + 1] if vector else i), kind), name="b"
    )  # fmt: skip
    float_b = b if b.dtype.is_float else second
    shown = a if a.dtype.is_float and a.dtype.bits >= float_b.dtype.bits else float_b
    return whole, right, vector, shown


def _columns(found: te.Tensor, vector: bool, shown: te.Tensor) -> te.Tensor:
    back = _back(found, shown)
    return te.compute(back.shape[:-1], lambda *i: back[(*i, 0)]) if vector else back


def _turned(x: te.Tensor) -> te.Tensor:
    return te.compute((*x.shape[:-2], x.shape[-1], x.shape[-2]), lambda *i: x[(*i[:-2], i[-1], i[-2])])


def _solve_bar(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor | None]:
    a, b = inputs
    vector, _ = _lines("solve", a, b)
    right = solve(_turned(a), head)
    if vector:
        outer = te.compute((*output.shape, output.shape[-1]), lambda *i: -right[i[:-1]] * output[(*i[:-2], i[-1])])
    else:
        outer = te.compute(
            (*output.shape[:-1], output.shape[-2]),
            lambda *i: te.sum(lambda c: -right[(*i[:-1], c)] * output[(*i[:-2], i[-1], c)], output.shape[-1]),
        )
    pairs = ((outer, a), (right, b))
    return [summed_to(found, x.shape, x.dtype) if x.dtype.is_float else None for found, x in pairs]


@te.op(gradient=_solve_bar)
def solve(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """`z` with `x @ z = y` for square matrices `x`, by elimination with the greatest pivots; `y` is a vector, or has them as columns.

    Axes in front are a batch, and broadcast. A singular matrix gives infinities or NaN.

    >>> kernels.solve(np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([2.0, 3.0]))
    array([1., 2.])
    """
    a, b, vector, shown = _given("solve", x, y)
    n, lead = a.shape[-1], a.ndim - 2
    if _empty(a):
        return _columns(b, vector, shown)
    columns, places = _eliminated(a)

    def step(k: Any, right: Any) -> Any:
        sides = te.compute(b.shape, lambda *i: _exchanged(right, i, k, places[(k, *i[:lead])]), name="sides")

        def eliminated(*i: Any) -> Any:
            at_row, r = i[:lead], i[lead]
            own = sides[(*at_row, k, i[lead + 1])] / columns[(k, *at_row, k)]
            return te.where(r == k, sides[i], sides[i] - columns[(k, *at_row, r)] * own)

        return te.compute(b.shape, eliminated, name="solved")

    diagonal = te.scan(step, b, n, name="right")

    def divided(*i: Any) -> Any:
        r = i[lead]
        return diagonal[(n - 1, *i)] / columns[(r, *i[:lead], r)]

    return _columns(te.compute(b.shape, divided), vector, shown)


def _inv_bar(output: te.Tensor, inputs: Sequence[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    n = output.shape[-1]
    half = te.compute(output.shape, lambda *i: te.sum(lambda k: output[(*i[:-2], k, i[-2])] * head[(*i[:-2], k, i[-1])], n))
    return [te.compute(output.shape, lambda *i: -te.sum(lambda k: half[(*i[:-1], k)] * output[(*i[:-2], i[-1], k)], n))]


@te.op(gradient=_inv_bar)
def inv(x: te.Tensor) -> te.Tensor:
    """The inverses of square matrices; infinities or NaN for a singular one. `solve` is better where the inverse is multiplied.

    >>> kernels.inv(np.array([[2.0, 0.0], [0.0, 4.0]]))
    array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """
    _square("inv", x)
    one = te.compute(x.shape, lambda *i: te.cast(i[-1] == i[-2], x.dtype))
    return solve.function(x, one)


@te.op
def cholesky(x: te.Tensor, *, upper: bool = False) -> te.Tensor:
    """The lower triangular `L` with `L @ L.T = x` for positive definite matrices, whose lower triangle is read; NaN for others. `upper`
    gives `L.T`.

    >>> kernels.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    array([[2., 0.],
           [1., 2.]])
    """
    n, a = _square("cholesky", x), _real(x)
    if _empty(x):
        return x
    full = te.compute(a.shape, lambda *i: te.where(i[-1] <= i[-2], a[i], a[(*i[:-2], i[-1], i[-2])]), name="a")

    def step(k: Any, left: Any) -> Any:
        column = te.compute(a.shape[:-1], lambda *i: left[(*i, k)] / te.sqrt(left[(*i[:-1], k, k)]), name="column")
        return te.compute(
            a.shape, lambda *i: te.where((i[-2] > k) & (i[-1] > k), left[i] - column[i[:-1]] * column[(*i[:-2], i[-1])], left[i])
        )

    states = te.scan(step, full, n, name="left")  # column c is left as it was from step c on

    def element(*i: Any) -> Any:
        b, r, c = i[:-2], *((i[-1], i[-2]) if upper else (i[-2], i[-1]))
        value = states[(n - 1, *b, r, c)] / te.sqrt(states[(n - 1, *b, c, c)])
        return te.where(r >= c, value, 0)

    return _back(te.compute(a.shape, element), x)


@te.op
def solve_triangular(x: te.Tensor, y: te.Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> te.Tensor:
    """`z` with `x @ z = y` for triangular matrices `x`, of which only that half is read (without the diagonal if `unitriangular`);
    without `left` with `z @ x = y`.

    >>> kernels.solve_triangular(np.array([[2.0, 9.0], [1.0, 1.0]]), np.array([2.0, 3.0]), upper=False)
    array([1., 2.])
    """
    if not left and y.ndim > 1:
        return _turned(solve_triangular.function(_turned(x), _turned(y), upper=not upper, unitriangular=unitriangular))
    a, b, vector, shown = _given("solve_triangular", x, y)
    n = a.shape[-1]
    if _empty(a):
        return _columns(b, vector, shown)

    def place(k: Any) -> Any:
        return n - 1 - k if upper else k

    def step(t: Any, right: Any) -> Any:
        k = place(t)

        def solved(*i: Any) -> Any:
            lead, r, c = i[:-2], i[-2], i[-1]
            own = right[(*lead, k, c)] if unitriangular else right[(*lead, k, c)] / a[(*lead, k, k)]
            left = r < k if upper else r > k
            return te.where(r == k, own, te.where(left, right[i] - a[(*lead, r, k)] * own, right[i]))

        return te.compute(b.shape, solved)

    states = te.scan(step, b, n, name="right")
    return _columns(te.compute(b.shape, lambda *i: states[(n - 1, *i)]), vector, shown)
