"""Discrete Fourier transforms, by factors of the length as Cooley and Tukey had it. A complex tensor is two: its real and imaginary part.

`X[k] = sum over t of x[t] exp(-2 pi i k t / n)` along an axis. A length a b takes a + b multiplications for each element in the place of
a b, and so on for its factors; one that is prime is one sum.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, is_int, known, one_of, product, same_extent
from tensorexpr.kernels.conventions.axes import drop, normalized
from tensorexpr.kernels.rearranging.rearrange import roll

NORMS = ("backward", "ortho", "forward")


def _parts(n: int) -> tuple[int, int]:
    """Two factors of a length, as near to each other as they are."""
    a = next(k for k in range(math.isqrt(n), 0, -1) if n % k == 0)
    return n // a, a


def _turns(rows: int, columns: int, n: int, sign: int, kind: Any) -> te.Tensor:
    """The factors `exp(sign 2 pi i r c / n)`, as pairs."""
    places = np.outer(np.arange(rows), np.arange(columns)) % n
    pairs = np.stack([np.cos(2 * np.pi * places / n), sign * np.sin(2 * np.pi * places / n)], -1)
    quarters = (4 * places % n == 0)[..., None]  # exact there: a transform of whole numbers has whole zeros
    return te.constant(np.where(quarters, np.round(pairs) + 0.0, pairs).astype(kind))


def _times(a: tuple[Any, Any], b: tuple[Any, Any], part: Any) -> Any:
    """A part of a product of complex numbers."""
    return te.where(part == 0, a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0])


def transform(x: te.Tensor, sign: int) -> te.Tensor:
    """The transform of the rows of `x [rows, n, 2]`, whose last axis has the real and the imaginary part; `sign` is that of the exponent.

    A length that is prime, or short, is one sum.
    """
    rows, n, _ = cast("tuple[int, ...]", x.shape)
    a, b = _parts(n)
    kind = x.dtype.numpy
    if b == 1 or n <= 16:
        whole = _turns(n, n, n, sign, kind)
        return te.compute(
            (rows, n, 2), lambda r, k, p: te.sum(lambda t: _times((x[r, t, 0], x[r, t, 1]), (whole[t, k, 0], whole[t, k, 1]), p), n)
        )
    # t = b t1 + t2, k = k1 + a k2: inner transforms of length a over t1, turned by t2 k1, and outer ones of length b over t2.
    across = te.compute((rows * b, a, 2), lambda r, t, p: x[r // b, b * t + r % b, p], name="across")
    inner = transform(across, sign)
    turns = _turns(b, a, n, sign, kind)

    def turned(r: Any, t: Any, p: Any) -> Any:
        q, k = r // a, r % a
        return _times((inner[q * b + t, k, 0], inner[q * b + t, k, 1]), (turns[t, k, 0], turns[t, k, 1]), p)

    outer = transform(te.compute((rows * a, b, 2), turned, name="turned"), sign)
    return te.compute((rows, n, 2), lambda r, k, p: outer[r * a + k % a, k // a, p])


def _length(name: str, x: te.Tensor, axis: int, n: Any) -> int:
    """How long the signal is along an axis: as it is, or as it is said."""
    found = x.shape[axis] if n is None else n
    if not is_int(found) or found < 1:
        raise bad(f"{name}: expected a known length of at least 1 along axis {axis}, got {found!r}")
    return found


def _factor(norm: Any, n: int, sign: int) -> float:
    one_of("norm", norm, (None, *NORMS))
    power = {"backward": sign > 0, "ortho": 0.5, "forward": sign < 0}[norm or "backward"]
    return float(n) ** -float(power)


def _transformed(x: te.Tensor, imag: te.Tensor | None, n: int, axis: int, sign: int, norm: Any, count: int) -> tuple[te.Tensor, te.Tensor]:
    """The first `count` elements of a transform along `axis`, of a signal cut to `n` elements or filled up with 0."""
    own, rest = x.shape[axis], drop(x.shape, axis)
    if imag is not None:
        for d in range(x.ndim):
            same_extent(f"imag, axis {d}", imag.shape[d] if imag.ndim == x.ndim else None, x.shape[d])
    if not known(*x.shape):
        raise bad(f"expected a known shape, got {x.shape}")
    steps = [product(rest[d + 1 :]) for d in range(len(rest))]
    kind = x.dtype if x.dtype.is_float else te.dtype("float64")

    def place(r: Any, t: Any) -> tuple[Any, ...]:
        outer = tuple(r if d == 0 and step == 1 else r // step % rest[d] for d, step in enumerate(steps))
        return (*outer[:axis], t, *outer[axis:])

    def given(r: Any, t: Any, p: Any) -> Any:
        def part(tensor: te.Tensor | None) -> Any:
            return te.cast(0, kind) if tensor is None else te.cast(tensor[place(r, t)], kind)

        value = te.where(p == 0, part(x), part(imag))
        return te.where(t < own, value, 0) if n > own else value

    found = transform(te.compute((product(rest), n, 2), given, name="signal"), sign)
    factor = _factor(norm, n, sign)

    def part(p: int) -> te.Tensor:
        def element(*i: Any) -> Any:
            row = sum((k * step for k, step in zip(drop(i, axis), steps, strict=True)), start=0)
            value = found[row, i[axis], p]
            return value if factor == 1 else value * factor

        return te.compute((*rest[:axis], count, *rest[axis:]), element)

    return part(0), part(1)


@te.op
def fft(x: te.Tensor, imag: te.Tensor | None = None, *, n: Any = None, axis: Any = -1, norm: Any = None) -> tuple[te.Tensor, te.Tensor]:
    """`(real, imag)` of the discrete Fourier transform along `axis`: `sum over t of x[t] exp(-2 pi i k t / n)`, x real without `imag`.

    The signal is cut to `n` elements or filled up with 0. `norm`: "backward" (or None) divides the inverse by n, "ortho" both by its
    root, "forward" this one (Cooley and Tukey, 1965).

    >>> kernels.fft(np.array([1.0, 2.0, 3.0, 4.0]))
    (array([10., -2., -2., -2.]), array([ 0.,  2.,  0., -2.]))
    """
    axis = normalized(axis, x)
    n = _length("fft", x, axis, n)
    return _transformed(x, imag, n, axis, -1, norm, n)


@te.op
def ifft(x: te.Tensor, imag: te.Tensor | None = None, *, n: Any = None, axis: Any = -1, norm: Any = None) -> tuple[te.Tensor, te.Tensor]:
    """`(real, imag)` of the inverse transform along `axis`: `sum over k of x[k] exp(2 pi i k t / n) / n`; see `fft`.

    >>> kernels.ifft(np.array([2.0, 0.0]), np.array([0.0, 2.0]))
    (array([1., 1.]), array([ 1., -1.]))
    """
    axis = normalized(axis, x)
    n = _length("ifft", x, axis, n)
    return _transformed(x, imag, n, axis, 1, norm, n)


@te.op
def rfft(x: te.Tensor, *, n: Any = None, axis: Any = -1, norm: Any = None) -> tuple[te.Tensor, te.Tensor]:
    """`(real, imag)` of the first `n // 2 + 1` elements of the transform of a real signal, of which the others are the conjugates.

    >>> kernels.rfft(np.array([1.0, 2.0, 3.0, 4.0]))
    (array([10., -2., -2.]), array([0., 2., 0.]))
    """
    axis = normalized(axis, x)
    n = _length("rfft", x, axis, n)
    return _transformed(x, None, n, axis, -1, norm, n // 2 + 1)


@te.op
def irfft(x: te.Tensor, imag: te.Tensor | None = None, *, n: Any = None, axis: Any = -1, norm: Any = None) -> te.Tensor:
    """The real signal of `n` elements (by default 2 less than twice as many as there are) whose transform begins with the given one.

    The imaginary part of the first element, and of the one in the middle, does not count.

    >>> kernels.irfft(np.array([10.0, -2.0, -2.0]), np.array([0.0, 2.0, 0.0]))
    array([1., 2., 3., 4.])
    """
    axis = normalized(axis, x)
    own = x.shape[axis]
    n = _length("irfft", x, axis, 2 * (own - 1) if n is None and known(own) else n)

    def whole(tensor: te.Tensor, sign: int) -> te.Tensor:
        def element(*i: Any) -> Any:
            def read(at: Any) -> Any:
                value = tensor[(*i[:axis], at, *i[axis + 1 :])]
                return te.where(at < own, value, 0) if n // 2 + 1 > own else value

            k = i[axis]
            value = te.where(k > n // 2, sign * read(n - k), read(k))
            return te.where((k == 0) | (2 * k == n), 0, value) if sign < 0 else value

        return te.compute((*tensor.shape[:axis], n, *tensor.shape[axis + 1 :]), element)

    return _transformed(whole(x, 1), None if imag is None else whole(imag, -1), n, axis, 1, norm, n)[0]


@te.op
def fft2(x: te.Tensor, imag: te.Tensor | None = None, *, axes: Any = (-2, -1), norm: Any = None) -> tuple[te.Tensor, te.Tensor]:
    """`(real, imag)` of the transform along two axes, one after the other; see `fft`.

    >>> kernels.fft2(np.array([[1.0, 2.0], [3.0, 5.0]]))[0]
    array([[11., -3.],
           [-5.,  1.]])
    """
    return _along_both("fft2", fft, x, imag, axes, norm)


@te.op
def ifft2(x: te.Tensor, imag: te.Tensor | None = None, *, axes: Any = (-2, -1), norm: Any = None) -> tuple[te.Tensor, te.Tensor]:
    """`(real, imag)` of the inverse transform along two axes; see `ifft`.

    >>> kernels.ifft2(np.array([[11.0, -3.0], [-5.0, 1.0]]))[0]
    array([[1., 2.],
           [3., 5.]])
    """
    return _along_both("ifft2", ifft, x, imag, axes, norm)


def _along_both(name: str, one: Any, x: te.Tensor, imag: te.Tensor | None, axes: Any, norm: Any) -> tuple[te.Tensor, te.Tensor]:
    if not isinstance(axes, tuple) or len(axes) != 2 or normalized(axes[0], x) == normalized(axes[1], x):
        raise bad(f"{name}: expected two axes, got {axes!r}")
    real, imaginary = one.function(x, imag, axis=axes[1], norm=norm)
    found: tuple[te.Tensor, te.Tensor] = one.function(real, imaginary, axis=axes[0], norm=norm)
    return found


def _halves(x: te.Tensor, axes: Any, sign: int) -> te.Tensor:
    wanted = tuple(range(x.ndim)) if axes is None else axes if isinstance(axes, tuple) else (axes,)
    extents = [x.shape[normalized(a, x)] for a in wanted]
    if not known(*extents):
        raise bad(f"expected known extents along axes {wanted}, got {x.shape}")
    return roll.function(x, shifts=tuple(sign * (n // 2) for n in extents), axes=wanted)


@te.op
def fftshift(x: te.Tensor, *, axes: Any = None) -> te.Tensor:
    """A transform with the element of frequency 0 in the middle of `axes` (None: all).

    >>> kernels.fftshift(np.array([0, 1, 2, -2, -1]))
    array([-2, -1,  0,  1,  2])
    """
    return _halves(x, axes, 1)


@te.op
def ifftshift(x: te.Tensor, *, axes: Any = None) -> te.Tensor:
    """What `fftshift` does, undone.

    >>> kernels.ifftshift(np.array([-2, -1, 0, 1, 2]))
    array([ 0,  1,  2, -2, -1])
    """
    return _halves(x, axes, -1)
