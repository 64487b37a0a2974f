"""Padding: a tensor grown by values beyond its edge, or cropped where a width is negative.

Widths are PyTorch's: pairs from the last axis to the first. The modes have PyTorch's and NumPy's names. Only where `x` is read says what
a mode does (`x.read(..., outside=...)`), so a padding that is composed with what follows is never stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, is_int, known, one_of
from tensorexpr.kernels.conventions.windows import linear

BORDERS = {
    "reflect": "reflect",
    "replicate": "clamp",
    "edge": "clamp",
    "circular": "wrap",
    "wrap": "wrap",
    "symmetric": "symmetric",
}
"""What `outside` of a read is called for each mode that repeats elements."""


@te.op
def pad(x: te.Tensor, *, pads: Any, mode: str = "constant", value: float = 0.0) -> te.Tensor:
    """`y[.., i, ..] = x[.., i - before, ..]` on each axis, and beyond the edge what `mode` says; extents `before + n + after`.

    `pads` has a pair `(before, after)` per axis, flat and from the last axis on, as `torch.nn.functional.pad`; axes without a pair
    stay. As in `numpy.pad` it may be pairs, one for each axis from the first on, or one for all; a number is both widths of all axes.
    A negative width crops. Modes: "constant" (`value`), "reflect" (`cb|abcd|cb`), "replicate" or "edge" (`aa|abcd|dd`),
    "circular" or "wrap" (`cd|abcd|ab`), "symmetric" (`ba|abcd|dc`); all read `x` at any distance, as `numpy.pad`.
    `ArgumentError` for an odd number of widths, more pairs than axes, a result of a negative extent, an unknown mode.

    >>> kernels.pad(np.array([1, 2, 3]), pads=(1, 2)), kernels.pad(np.array([1, 2, 3]), pads=(1, 2), mode="reflect")
    (array([0, 1, 2, 3, 0, 0]), array([2, 1, 2, 3, 2, 1]))
    """
    one_of("mode", mode, ("constant", *BORDERS))
    if is_int(pads):
        pads = ((pads, pads),)
    if isinstance(pads, (tuple, list)) and pads and all(isinstance(pair, (tuple, list)) for pair in pads):
        if len(pads) not in (1, x.ndim):
            raise bad(f"pads: expected {x.ndim} pairs, one per axis of {x.name}, or one for all, got {len(pads)}")
        pads = tuple(width for pair in reversed(pads * x.ndim if len(pads) == 1 else pads) for width in pair)
    if not isinstance(pads, (tuple, list)) or len(pads) % 2 or not all(map(is_int, pads)):
        raise bad(f"pads: expected pairs of integers, from the last axis on, got {pads!r}")
    if len(pads) > 2 * x.ndim:
        raise bad(f"pads: expected at most {x.ndim} pairs, one per axis of {x.name}, got {len(pads) // 2}")
    widths = {x.ndim - 1 - k: (pads[2 * k], pads[2 * k + 1]) for k in range(len(pads) // 2)}
    return padded(x, widths, mode, value)


def padded(x: te.Tensor, widths: Mapping[int, tuple[int, int]], mode: str, value: Any = 0.0, name: str | None = None) -> te.Tensor:
    """`x` with `(before, after)` widths by axis: the body of `pad`, for kernels that read a padded tensor."""
    shape = []
    for d, size in enumerate(x.shape):
        before, after = widths.get(d, (0, 0))
        if known(size) and size + before + after < 0:
            raise bad(f"pads: expected to crop at most {size}, the extent of axis {d}, got {before} and {after}")
        if known(size) and size == 0 < before + after and mode != "constant":
            raise bad(f"pads: expected an axis with elements to repeat, got axis {d} of extent 0 in mode {mode!r}")
        shape.append(size + (before + after))
    outside = border(mode, value, x.dtype)

    def source(i: Sequence[Any]) -> list[Any]:
        return [linear((k, 1), plus=-widths.get(d, (0, 0))[0]) for d, k in enumerate(i)]

    return te.compute(tuple(shape), lambda *i: x.read(*source(i), outside=outside), name=name)


def border(mode: str, value: Any, dtype: te.DType) -> Any:
    """What a read beyond the edge gives in a mode: the `outside` of `Tensor.read`."""
    if mode != "constant":
        return BORDERS[mode]
    return bool(value) if dtype.is_bool else float(value) if dtype.is_float else int(value)
