"""Operations on sequences as NumPy has them: convolution and correlation of two vectors, differences in the middle."""

from __future__ import annotations

from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, known, one_of, products, ranked
from tensorexpr.kernels.conventions.axes import along, drop, normalized, several

MODES = ("full", "same", "valid")


@te.op
def convolve(x: te.Tensor, y: te.Tensor, *, mode: str = "full") -> te.Tensor:
    """`z[n] = sum over k of x[n - k] * y[k]` of two vectors, over all n; "same": the middle max(len x, len y) of it, "valid": where one
    lies wholly in the other.

    >>> kernels.convolve(np.array([1, 2, 3]), np.array([1, 10]))
    array([ 1, 12, 23, 30])
    """
    return _convolved("convolve", x, y, mode, False)


@te.op
def correlate(x: te.Tensor, y: te.Tensor, *, mode: str = "valid") -> te.Tensor:
    """`z[n] = sum over k of x[n + k] * y[k]` of two vectors: `convolve` with `y` from its end, and its modes.

    >>> kernels.correlate(np.array([1, 2, 3]), np.array([1, 10]))
    array([21, 32])
    """
    return _convolved("correlate", x, y, mode, True)


def _convolved(name: str, x: te.Tensor, y: te.Tensor, mode: str, back: bool) -> te.Tensor:
    ranked(x, 1)
    ranked(y, 1)
    one_of("mode", mode, MODES)
    n, m = x.shape[0], y.shape[0]
    if not known(n, m) or min(n, m) < 1:
        raise bad(f"{name}: expected vectors of known lengths, at least 1, got {n} and {m} elements")
    least, most = min(n, m), max(n, m)
    length, first = {"full": (n + m - 1, 0), "same": (most, (least - 1) // 2), "valid": (most - least + 1, least - 1)}[mode]
    if back and mode == "same" and m > n and least % 2 == 0:
        first += 1  # NumPy exchanges the two, and turns what it finds

    def element(i: Any) -> Any:
        at = i + first

        def term(k: Any) -> Any:
            return te.where((at - k >= 0) & (at - k < n), x[at - k] * y[m - 1 - k if back else k], 0)

        return products(term, m)

    return te.compute((length,), element)


@te.op
def gradient(x: te.Tensor, *, spacing: Any = 1, axis: Any = None, edge_order: Any = 1) -> Any:
    """Differences in the middle, `(x[i + 1] - x[i - 1]) / (2 h)` along `axis`; at both ends the difference of two neighbours, or with
    `edge_order` 2 of three. `spacing` h is a number (None: 1) or one for each axis. A tensor for one axis, a tuple for several (None: all).

    >>> kernels.gradient(np.array([1.0, 4.0, 9.0, 16.0]))
    array([3., 4., 6., 7.])
    """
    axes = several(axis, x) if axis is None or isinstance(axis, (tuple, list)) else (normalized(axis, x),)
    if not axes:
        raise bad("gradient: expected a tensor with axes, got x without any")
    steps = spacing if isinstance(spacing, tuple) else (1 if spacing is None else spacing,) * len(axes)
    if len(steps) != len(axes) or not all(isinstance(h, (int, float)) and not isinstance(h, bool) and h for h in steps):
        raise bad(f"spacing: expected a number other than 0, or one for each of {len(axes)} axes, got {spacing!r}")
    one_of("edge_order", edge_order, (1, 2))
    floating = x if x.dtype.is_float else te.compute(x.shape, lambda *i: te.cast(x[i], "float64"))
    found = tuple(_gradient(floating, a, float(h), edge_order) for a, h in zip(axes, steps, strict=True))
    return found[0] if len(found) == 1 else found


def _gradient(x: te.Tensor, axis: int, step: float, order: int) -> te.Tensor:
    n = x.shape[axis]
    if not known(n) or n <= order:
        raise bad(f"gradient: expected a known number of elements on axis {axis} of x, at least {order + 1}, got shape {x.shape}")

    def element(*i: Any) -> Any:
        k, rest = i[axis], drop(i, axis)

        def read(at: Any) -> Any:
            return x[along(rest, axis, at)]

        if order == 1:
            first, last = (read(1) - read(0)) / step, (read(n - 1) - read(n - 2)) / step
        else:
            first = (4 * read(1) - 3 * read(0) - read(2)) / (2 * step)
            last = (3 * read(n - 1) - 4 * read(n - 2) + read(n - 3)) / (2 * step)
        return te.where(k == 0, first, te.where(k == n - 1, last, (read(k + 1) - read(k - 1)) / (2 * step)))

    return te.compute(x.shape, element)
