"""Resampling a grid: PyTorch's `interpolate`, with every index in exact integers.

An output o stands at the source position `s(o) = num(o) / den`, a linear function of o with rational coefficients. A source element i
counts where `|s(o) - i|` is less than the reach of the filter: conditions that are linear in both o and i. So an output visits
its taps and no more, and the gradient of a source element visits exactly the outputs that read it. Weights are functions of
the distance `|num(o) - den * i|`, an integer, over `den`.

PyTorch computes source positions in floating point: where a scale has no exact binary form, its nearest neighbors may differ from the
exact ones at ties, and its weights differ in the last digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, is_int, known, one_of, product
from tensorexpr.kernels.conventions.windows import PLACES, TAPS, every, linear, named
from tensorexpr.kernels.windowed.adaptive import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from tensorexpr.kernels.windowed.padding import padded

RANKS = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
MODES = ("nearest", "nearest-exact", "area", *RANKS)
FINEST = 10**6
"""A scale factor that is a float means the nearest fraction with at most this denominator: 0.1 is 1/10, 1/3 is a third."""


@dataclass(frozen=True)
class _Axis:
    """One axis: `size` elements resampled to `outputs`; output o stands at `(o * step + start) / den`, in elements."""

    size: Any
    outputs: Any
    scale: Fraction
    corners: bool

    @property
    def den(self) -> int:
        return self.scale.denominator * (1 if self.corners else 2)

    def position(self, o: Any) -> Any:
        """Where output o stands, times `den`: `o * scale` between the outer elements, or `(o + 1/2) * scale - 1/2`."""
        p, q = self.scale.numerator, self.scale.denominator
        return linear((o, p)) if self.corners else linear((o, 2 * p), plus=p - q)

    def near(self, o: Any, i: Any, reach: Fraction) -> tuple[Any, Any]:
        """Whether element i stands less than `reach` from output o, as two linear conditions."""
        at = linear((self.position(o), reach.denominator))
        step, width = self.den * reach.denominator, self.den * reach.numerator
        return linear((i, step), plus=-width) < at, at < linear((i, step), plus=width)

    def distance(self, o: Any, i: Any, within: bool = False) -> Any:
        """How far element i stands from output o, times `den`; `within`: an output beyond the outer elements stands on them."""
        at = self.position(o)
        return te.abs((te.clip(at, 0, (self.size - 1) * self.den) if within else at) - linear((i, self.den)))


def _axes(x: te.Tensor, size: Any, factor: Any, corners: bool) -> list[_Axis]:
    """The axes of places of `x`; `ArgumentError` for sizes and factors that make no sense."""
    rank = x.ndim - 2
    if (size is None) == (factor is None):
        raise bad(f"interpolate: expected either size or scale_factor, got {'neither' if size is None else 'both'}")
    given = size if factor is None else factor
    values = tuple(given) if isinstance(given, (tuple, list)) else (given,) * rank
    if len(values) != rank:
        raise bad(f"interpolate: expected a number, or {rank} of them, one per axis of places, got {given!r}")
    axes = []
    n: Any
    outputs: Any
    for n, value in zip(x.shape[2:], values, strict=True):
        if factor is None:
            if not is_int(value) or value < 1:
                raise bad(f"size: expected integers of at least 1, got {given!r}")
            outputs, step = value, Fraction(n, value) if known(n) else None
        else:
            if isinstance(value, bool) or not isinstance(value, (int, float, Fraction)) or not 1 / FINEST <= value <= FINEST:
                raise bad(f"scale_factor: expected numbers above 0, got {given!r}")
            ratio = Fraction(value).limit_denominator(FINEST)
            outputs, step = n * ratio.numerator // ratio.denominator, 1 / ratio
            if known(outputs) and outputs < 1:
                raise bad(f"scale_factor: expected factors that leave an output, got {given!r} for an axis of {n}")
        if corners and known(n, outputs):
            step = Fraction(n - 1, outputs - 1) if outputs > 1 else Fraction(0)
        elif corners or step is None:
            raise bad("interpolate: expected extents known when traced, or scale_factor without align_corners, got a size of run time")
        axes.append(_Axis(n, outputs, step, corners))
    return axes


# ---------------------------------------------------------------------------------------------------- filters


def _hat(distance: Any) -> Any:
    """The weight of linear interpolation at a distance of less than 1."""
    return 1 - distance


def _cubic(a: float) -> Callable[[Any], Any]:
    """The weight of cubic convolution at a distance of less than 2 (Keys 1981); `a` is its slope at 1."""

    def weight(d: Any) -> Any:
        return te.where(d < 1, ((a + 2) * d - (a + 3)) * d * d + 1, ((d - 5) * d + 8) * d * a - 4 * a)

    return weight


class _Filter:
    """What is summed: element i counts for output o of an axis where `near(axis, o, i)`, with `weight(axis, o, i)`."""

    def __init__(self, near: Callable[[_Axis, Any, Any], tuple[Any, Any]], weight: Callable[[_Axis, Any, Any], Any]) -> None:
        self.near, self.weight = near, weight

    def total(self, axis: _Axis) -> te.Tensor:
        """The sum of the weights at each output of an axis."""
        near, weight = self.near, self.weight

        def element(o: Any) -> Any:
            return te.sum(lambda i: weight(axis, o, i), axis.size, where=lambda i: every(near(axis, o, i)))

        return te.compute((axis.outputs,), element, name="total")

    def apply(self, x: te.Tensor, axes: Mapping[int, _Axis], total: te.Tensor | None = None, name: str | None = None) -> te.Tensor:
        """`x` with `axes` resampled: `y[.., o, ..] = sum_i x[.., i, ..] * prod_d weight(o_d, i_d)`, over `total[o]` if it is given."""
        rank, dims = x.ndim - 2, list(axes)
        taps = [TAPS[rank][d - 2] for d in dims]

        def element(*at: Any) -> Any:
            def each(i: Sequence[Any]) -> Iterator[tuple[_Axis, Any, Any]]:
                return ((axes[d], at[d], k) for d, k in zip(dims, i, strict=True))

            def tap(*i: Any) -> Any:
                source = [i[dims.index(d)] if d in axes else k for d, k in enumerate(at)]
                return x[tuple(source)] * product([self.weight(*one) for one in each(i)])

            def taken(*i: Any) -> Any:
                return every(test for one in each(i) for test in self.near(*one))

            value = te.sum(named(tap, *taps), tuple(x.shape[d] for d in dims), where=named(taken, *taps))
            return value if total is None else value / total[at[dims[0]]]

        shape = tuple(axes[d].outputs if d in axes else extent for d, extent in enumerate(x.shape))
        return te.compute(shape, named(element, "n", "c", *PLACES[rank]), name=name)


def _linear(x: te.Tensor, axes: Sequence[_Axis]) -> te.Tensor:
    """Between the two neighbors. No output stands a whole element beyond the outer ones, so it is near one of them."""
    between = _Filter(
        lambda axis, o, i: axis.near(o, i, Fraction(1)),
        lambda axis, o, i: te.cast(axis.den - axis.distance(o, i, within=True), x.dtype) / axis.den,
    )
    return between.apply(x, {2 + d: axis for d, axis in enumerate(axes)})


def _bicubic(x: te.Tensor, axes: Sequence[_Axis]) -> te.Tensor:
    """From four neighbors, axis by axis, the outer elements repeated: element i of `padded` is element i - 2."""
    keys = _cubic(-0.75)
    between = _Filter(
        lambda axis, o, i: axis.near(o, i - 2, Fraction(2)),
        lambda axis, o, i: keys(te.cast(axis.distance(o, i - 2), x.dtype) / axis.den),
    )
    for d, axis in enumerate(axes, 2):
        last = axis is axes[-1]
        x = between.apply(padded(x, {d: (2, 2)}, "replicate", name="padded"), {d: axis}, name=None if last else "rows")
    return x


def _antialiased(x: te.Tensor, axes: Sequence[_Axis], filter: Callable[[Any], Any], reach: int) -> te.Tensor:
    """Axis by axis with the filter stretched where there are fewer outputs than elements, and weights whose sum is 1 (as Pillow)."""
    stretched = _Filter(
        lambda axis, o, i: axis.near(o, i, reach * max(axis.scale, Fraction(1))),
        lambda axis, o, i: filter(te.cast(axis.distance(o, i), x.dtype) / float(axis.den * max(axis.scale, Fraction(1)))),
    )
    for d, axis in enumerate(axes, 2):
        x = stretched.apply(x, {d: axis}, stretched.total(axis), name=None if axis is axes[-1] else "rows")
    return x


def _nearest(x: te.Tensor, axes: Sequence[_Axis], exact: bool) -> te.Tensor:
    """The element in which the output's corner, or with `exact` its center, lies."""

    def source(axis: _Axis, o: Any) -> Any:
        p, q = axis.scale.numerator, axis.scale.denominator
        return linear((o, 2 * p), plus=p) // (2 * q) if exact else linear((o, p)) // q

    shape = (*x.shape[:2], *(axis.outputs for axis in axes))

    def element(n: Any, c: Any, *o: Any) -> Any:
        return x[(n, c, *(source(axis, at) for axis, at in zip(axes, o, strict=True)))]

    return te.compute(shape, named(element, "n", "c", *PLACES[len(axes)]))


@te.op
def interpolate(
    x: te.Tensor,
    *,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = False,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> te.Tensor:
    """`x [n, c, places..]`, of one to three axes of places, resampled to `size` or by `scale_factor`, as `torch.nn.functional.interpolate`.

    Modes: "nearest" (`y[o] = x[floor(o * scale)]`, scale the elements per output), "nearest-exact" (`x[floor((o + 1/2) * scale)]`),
    "linear", "bilinear", "trilinear" (by the number of axes), "bicubic", "area" (means of windows, as `adaptive_avg_pool`).
    Linear and cubic modes sum `x[i] * weight(|s(o) - i|)` over the elements near `s(o) = (o + 1/2) * scale - 1/2`, or with
    `align_corners` near `s(o) = o * (n - 1) / (m - 1)`. `antialias` ("bilinear", "bicubic") stretches the filter when there are fewer
    outputs than elements. A `scale_factor` is an int, a `fractions.Fraction` or a float, which is rounded to a fraction with a
    denominator of at most a million; sizes known only at run time are fine with it in all modes but "area" and without `align_corners`.
    With `recompute_scale_factor` it gives the size alone, rounded down.
    `ArgumentError` for an unknown mode, one for another number of axes, both or neither of `size` and `scale_factor`, an integer
    `x` with a mode that computes.

    >>> kernels.interpolate(np.array([[[0.0, 10.0]]]), size=4, mode="linear")
    array([[[ 0. ,  2.5,  7.5, 10. ]]])
    """
    one_of("mode", mode, MODES)
    rank = x.ndim - 2
    if not 1 <= rank <= 3 or RANKS.get(mode, rank) != rank:
        wanted = f"{RANKS[mode]}" if mode in RANKS else "one to three"
        raise bad(f"interpolate: expected a batch, channels and {wanted} axes of places for mode {mode!r}, got {x.name} of {x.ndim} axes")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise bad(f"antialias: expected mode 'bilinear' or 'bicubic', got {mode!r}")
    if align_corners and (antialias or mode not in RANKS):
        raise bad(f"align_corners: expected a linear or cubic mode without antialias, got {mode!r}")
    if not mode.startswith("nearest") and not x.dtype.is_float:
        raise bad(f"interpolate: expected a floating dtype for mode {mode!r}, got {x.dtype.name}")
    if recompute_scale_factor and scale_factor is not None and size is None and known(*x.shape[2:]):
        factors = scale_factor if isinstance(scale_factor, (tuple, list)) else (scale_factor,) * rank
        size, scale_factor = tuple(math.floor(n * float(factor)) for n, factor in zip(x.shape[2:], factors, strict=False)), None
    axes = _axes(x, size, scale_factor, bool(align_corners))
    if mode == "area":
        pool = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[rank - 1]
        return pool.function(x, output_size=tuple(axis.outputs for axis in axes))
    if mode.startswith("nearest"):
        return _nearest(x, axes, mode == "nearest-exact")
    if antialias:
        return _antialiased(x, axes, *((_hat, 1) if mode == "bilinear" else (_cubic(-0.5), 2)))
    return _bicubic(x, axes) if mode == "bicubic" else _linear(x, axes)
