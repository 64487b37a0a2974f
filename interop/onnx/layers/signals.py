"""Transforms of signals. Numbers are pairs where they are complex: the last axis has the real and the imaginary part."""

from __future__ import annotations

import math
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
    lead = [*own[:at], *own[at + 1 : -1]]
    rows = math.prod(lead)
    pairs = own[-1] == 2

    def places(r: Any) -> list[Any]:
        found: list[Any] = []
        for extent in reversed(lead):
            found.append(r % extent)
            r = r // extent
        return found[::-1]

    def given(r: Any, t: Any, p: Any) -> Any:
        rest = places(r)
        value = x.read(*rest[:at], t, *rest[at:], p if pairs else 0, outside=0)
        return value if pairs else language.where(p == 0, value, 0)

    found = transform(compute((rows, n, 2), given, name="signal"), 1 if inverse else -1)
    count = n // 2 + 1 if onesided else n

    def element(*i: Any) -> Any:
        r: Any = 0
        for k, extent in zip((*i[:at], *i[at + 1 : -1]), lead, strict=True):
            r = r * extent + k
        value = found[r, i[at], i[-1]]
        return value / n if inverse else value

    return compute((*own[:at], count, *own[at + 1 : -1], 2), element)


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
    pairs = x.ndim == 3 and x.shape[2] == 2

    def given(r: Any, t: Any, p: Any) -> Any:
        at = (r // frames, r % frames * hop + t)
        value = x[(*at, p)] if pairs else x[(*at, 0)] if x.ndim == 3 else x[at]
        value = value if window is None else value * window[t]
        return value if pairs else language.where(p == 0, value, 0)

    found = transform(compute((batch * frames, n, 2), given, name="frames"), -1)
    return compute((batch, frames, n // 2 + 1 if onesided else n, 2), lambda b, f, k, p: found[b * frames + f, k, p])


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
