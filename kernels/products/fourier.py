"""Discrete Fourier transforms, by factors of the length as Cooley and Tukey had it. A complex tensor is two: its real and imaginary part.

`X[k] = sum over t of x[t] exp(-2 pi i k t / n)` along an axis. A length a b takes a + b multiplications for each element in the place of
a b, and so on for its factors; one that is prime is one sum. The stages leave their results in order (Stockham's form).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, is_int, known, one_of, same_extent
from tensorexpr.kernels.conventions.axes import along, drop, normalized
from tensorexpr.kernels.rearranging.rearrange import roll

NORMS = ("backward", "ortho", "forward")
MOST = 8
"""The largest radix that is not prime: sums of 10 and 16 take up to 1.7 times as long as two shorter ones, and round more often; sums of 4
are as fast, and more definitions."""
LARGEST = 1 << 14
"""The elements of a table of a stage, for each element that is turned; where there would be more, results are turned afterwards."""


def _radices(n: int) -> list[int]:
    """Factors of a length, of at most `MOST` each where its primes are: few, about as large as each other, the largest first."""
    primes = []
    rest, p = n, 2
    while rest > 1:
        p = p if p * p <= rest else rest
        while rest % p == 0:
            rest //= p
            primes.append(p)
        p += 1
    count = max(1, math.ceil(math.log(n, MOST) - 1e-9))
    while True:
        found = [1] * count
        for p in reversed(primes):
            found[found.index(min(found))] *= p
        if all(f <= MOST or f in primes for f in found):
            return sorted((f for f in found if f > 1 or n == 1), reverse=True)
        count += 1


def _turns(p: int, j: int, k: int, n: int, sign: int, kind: Any) -> tuple[te.Tensor, te.Tensor]:
    """`exp(sign 2 pi i k (p + n / k j) / n)` for so many p, j, k: the real and the imaginary parts."""
    places = np.arange(k) * (np.arange(p)[:, None, None] + n // k * np.arange(j)[:, None]) % n
    pairs = np.stack([np.cos(2 * np.pi * places / n), sign * np.sin(2 * np.pi * places / n)])
    pairs = np.where(4 * places % n == 0, np.round(pairs) + 0.0, pairs).astype(kind)  # exact: whole numbers have whole zeros
    return te.constant(pairs[0]), te.constant(pairs[1])


def _times(x: Sequence[Any], turn: Sequence[Any]) -> tuple[Any, Any]:
    """The product of two complex numbers; the first one is real without an imaginary part."""
    (a, b), (c, d) = x, turn
    return (a * c, a * d) if b is None else (a * c - b * d, a * d + b * c)


def transform(real: te.Tensor, imag: te.Tensor | None, axis: int, sign: int) -> tuple[te.Tensor, te.Tensor]:
    """The transform along an axis of known length; `sign` is that of the exponent. Without `imag` the signal is real.

    After stages whose radices have the product s, element (p, q) of axes as long as n / s and s is frequency q of every (n / s)-th
    element of the signal from p on. The next one, of radix r, makes r frequencies k of r elements that are m = n / s / r apart, and
    turns them by p k / (m r); they lie before q, so that the last stage has all frequencies in order.
    """
    outer, n, kind = len(real.shape[:axis]), cast("int", real.shape[axis]), real.dtype.numpy

    def both(shape: Sequence[Any], element: Callable[[int, tuple[Any, ...]], Any], name: str) -> Any:
        """What reads both parts of a complex tensor."""
        parts = [te.compute(shape, lambda *i, part=part: element(part, i), name=f"{name}_{'imag' if part else 'real'}") for part in (0, 1)]
        return lambda i: (parts[0][i], parts[1][i])

    def stage(read: Any, m: int, radix: int, s: int) -> Any:
        """What reads the result of a stage, as `read` does that of the one before."""
        shape = (*real.shape[:axis], m, radix, s, *real.shape[axis + 1 :])
        apart = m > 1 and m * radix * radix > LARGEST
        table = _turns(1 if apart else m, radix, radix, radix if apart else m * radix, sign, kind)

        def summed(part: int, i: tuple[Any, ...]) -> Any:
            before, (p, k, q), after = i[:outer], i[outer : outer + 3], i[outer + 3 :]
            return te.sum(lambda j: _times(read((*before, j * m + p, q, *after)), [t[0 if apart else p, j, k] for t in table])[part], radix)

        found = both(shape, summed, "stage")
        if apart:
            sums, turns = found, _turns(m, 1, radix, m * radix, sign, kind)
            found = both(shape, lambda part, i: _times(sums(i), [t[i[outer], 0, i[outer + 1]] for t in turns])[part], "turned")
        return lambda i: found((*i[: outer + 1], i[outer + 1] // s, i[outer + 1] % s, *i[outer + 2 :]))

    def given(i: Any) -> tuple[Any, Any]:
        at = (*i[: outer + 1], *i[outer + 2 :])
        return real[at], None if imag is None else imag[at]

    read, s = given, 1
    for radix in _radices(n):
        read = stage(read, n // s // radix, radix, s)
        s *= radix
    first, second = (te.compute(real.shape, lambda *i, part=part: read((*i[:outer], 0, *i[outer:]))[part]) for part in (0, 1))
    return first, second


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
    if imag is not None:
        for d in range(x.ndim):
            same_extent(f"imag, axis {d}", imag.shape[d] if imag.ndim == x.ndim else None, x.shape[d])
    if not is_int(x.shape[axis]):
        raise bad(f"expected a known extent along axis {axis}, got shape {x.shape}")
    own, shape = x.shape[axis], along(drop(x.shape, axis), axis, n)
    kind = x.dtype if x.dtype.is_float else te.dtype("float64")

    def signal(tensor: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            value = te.cast(tensor[i], kind)
            return te.where(i[axis] < own, value, 0) if n > own else value

        return te.compute(shape, element, name="signal")

    parts = transform(signal(x), None if imag is None else signal(imag), axis, sign)
    factor = _factor(norm, n, sign)

    def result(part: te.Tensor) -> te.Tensor:
        return te.compute(along(drop(shape, axis), axis, count), lambda *i: part[i] if factor == 1 else part[i] * factor)

    return result(parts[0]), result(parts[1])


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
