"""Transforms of signals. Numbers are pairs where they are complex: the last axis has the real and the imaginary part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorexpr import language
from tensorexpr.interop.onnx.operators.common import axis_of, number, sizes
from tensorexpr.interop.onnx.table import Known, operator
from tensorexpr.interop.onnx.values import kind_of, spend
from tensorexpr.kernels.products.fourier import transform
from tensorexpr.language import Tensor, compute


def _dft(x: Tensor, length: int | None, axis: int, inverse: bool, onesided: bool) -> Tensor:
    at = axis
    own = sizes(x)
    n = own[at] if length is None else length
    if inverse and onesided:
        return _real_inverse(x, at, n if length is not None else 2 * (own[at] - 1))
    shape = (*own[:at], n, *own[at + 1 : -1])
    parts = [compute(shape, lambda *i, p=p: x.read(*i, p, outside=0), name="signal") for p in range(own[-1])]
    count = n // 2 + 1 if onesided else n
    return _pairs(parts, at, inverse, (*own[:at], count, *own[at + 1 : -1]))


def _pairs(parts: Sequence[Tensor], at: int, inverse: bool, shape: Sequence[Any]) -> Tensor:
    """The first elements of the transform of a signal, as pairs; its imaginary part is 0 where only the real one is given."""
    n: Any = parts[0].shape[at]
    real, imag = transform(parts[0], parts[1] if len(parts) > 1 else None, at, 1 if inverse else -1)

    def element(*i: Any) -> Any:
        value = language.where(i[-1] == 0, real[i[:-1]], imag[i[:-1]])
        return value / n if inverse else value

    return compute((*shape, 2), element)


def _real_inverse(x: Tensor, at: int, n: int) -> Tensor:
    """The real signal whose transform from 0 to half its length is given; the other half is conjugate."""
    own = sizes(x)

    def whole(*i: Any) -> Any:
        k, p = i[at], i[-1]
        back = k > n // 2
        place = language.where(back, n - k, k)
        value = x.read(*i[:at], place, *i[at + 1 :], outside=0)
        return language.where(back & (p == 1), -value, value)

    full = compute((*own[:at], n, *own[at + 1 : -1], 2), whole, name="whole")
    found = _dft(full, None, at, True, False)
    return compute((*found.shape[:-1], 1), lambda *i: found[(*i[:-1], 0)])


@operator("DFT", since=20)
def _dft_by_input(x: Tensor, length: Known = None, axis: Known = None, *, inverse: int = 0, onesided: int = 0) -> Any:
    at = axis_of(-2 if axis is None else int(number(axis)), x.ndim)
    return _dft(x, None if length is None else int(number(length)), at, bool(inverse), bool(onesided))


@operator("DFT", until=20)
def _dft_by_attribute(x: Tensor, length: Known = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0) -> Any:
    return _dft(x, None if length is None else int(number(length)), axis_of(axis, x.ndim), bool(inverse), bool(onesided))


@operator("STFT")
def _stft(x: Tensor, step: Known, window: Any = None, length: Known = None, *, onesided: int = 1) -> Any:
    batch, count = sizes(x)[:2]
    n = int(number(length)) if length is not None else sizes(window)[0]
    hop = int(number(step))
    frames = (count - n) // hop + 1

    def signal(p: int) -> Tensor:
        def given(b: Any, f: Any, t: Any) -> Any:
            at = (b, f * hop + t)
            value = x[(*at, p)] if x.ndim == 3 else x[at]
            return value if window is None else value * window[t]

        return compute((batch, frames, n), given, name="frames")

    parts = [signal(p) for p in range(x.shape[2] if x.ndim == 3 else 1)]
    return _pairs(parts, 2, False, (batch, frames, n // 2 + 1 if onesided else n))


def _window(name: str, terms: tuple[float, ...]) -> None:
    @operator(name)
    def row(count: Known, *, output_datatype: int = 1, periodic: int = 1) -> Any:
        n = int(number(count))
        spend([n])
        angle = 2 * np.pi * np.arange(n) / (n if periodic else max(n - 1, 1))
        value = sum((-1) ** k * a * np.cos(k * angle) for k, a in enumerate(terms))
        return np.asarray(value).astype(kind_of(output_datatype))


_window("HannWindow", (0.5, 0.5))
_window("HammingWindow", (25 / 46, 21 / 46))
_window("BlackmanWindow", (0.42, 0.5, 0.08))


@operator("MelWeightMatrix")
def _mel(bins: Known, length: Known, rate: Known, lower: Known, upper: Known, *, output_datatype: int = 1) -> Any:
    count, n = int(number(bins)), int(number(length))
    spectrum = n // 2 + 1
    spend([spectrum, count])
    low, high = (2595 * np.log10(1 + number(f) / 700) for f in (lower, upper))
    points = 700 * (10 ** ((np.arange(count + 2) * ((high - low) / (count + 2)) + low) / 2595) - 1)
    edges = ((n + 1) * points / number(rate)).astype(np.int64)
    found = np.zeros((spectrum, count))
    for k in range(count):
        left, center, right = edges[k : k + 3]
        if center == left:
            found[center, k] = 1
        else:
            rising = np.arange(left, center + 1)
            found[rising, k] = (rising - left) / (center - left)
        if right > center:
            falling = np.arange(center, right)
            found[falling, k] = (right - falling) / (right - center)
    return found.astype(kind_of(output_datatype))
