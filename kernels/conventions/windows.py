"""Windows that slide over the last axes of a tensor: what convolutions, poolings and folds have in common.

Output `o` sees the elements `o * stride + r * dilation - before` for the taps r. A place may lie beyond the edge: what is read
there is for the kernel to say.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorexpr as te
from tensorexpr.kernels.conventions.arguments import bad, is_int, known, per_axis

PLACES = {1: ("o",), 2: ("y", "z"), 3: ("o", "y", "z")}
TAPS = {1: ("r",), 2: ("r", "s"), 3: ("q", "r", "s")}


def named(body: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """`body` of `*indices` with names for them, which programs print."""
    body.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # functions take attributes
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    )
    return body


def batch(number: int) -> tuple[str, ...]:
    """Names for the axes in front of channels and places."""
    return ("n",) if number == 1 else tuple(f"n{d}" for d in range(number))


def linear(*terms: tuple[Any, int], plus: int = 0) -> Any:
    """The sum of indices times factors, and a number: without factors of 1 and a number 0, which would only be printed."""
    total: Any = None
    for term, factor in (*terms, (abs(plus), 1 if plus > 0 else -1)):
        part = term if abs(factor) == 1 else term * abs(factor)
        if total is None:
            total = part if factor >= 0 else -part
        elif not (is_int(part) and part == 0):
            total = total + part if factor > 0 else total - part
    return total


def every(conditions: Iterable[Any]) -> Any:
    """Whether all of at least one condition hold."""
    return functools.reduce(operator.and_, conditions)


class Windows:
    """Windows of `taps` elements over axes of extents `sizes`, padded by `before` and `after`.

    `extents`: how many places there are on each axis, rounded down, or with `ceil` up as long as a window begins inside
    the axis or its front padding (PyTorch's rule). `ArgumentError` where a window does not fit even once.
    """

    def __init__(
        self,
        sizes: Sequence[Any],
        taps: Sequence[Any],
        stride: Any = 1,
        dilation: Any = 1,
        before: Sequence[int] | int = 0,
        after: Sequence[int] | int = 0,
        ceil: bool = False,
    ) -> None:
        self.rank = len(sizes)
        self.sizes, self.taps = tuple(sizes), tuple(taps)
        self.stride = per_axis("stride", stride, self.rank, 1)
        self.dilation = per_axis("dilation", dilation, self.rank, 1)
        self.before = per_axis("padding", before, self.rank, 0)
        self.after = per_axis("padding", after, self.rank, 0)
        self.ceil = ceil and any(step > 1 for step in self.stride)
        self.extents = tuple(self._extent(d, ceil) for d in range(self.rank))
        self.padded = any(self.before) or any(self.after) or self.ceil

    def _extent(self, d: int, ceil: bool) -> Any:
        size, stride = self.sizes[d], self.stride[d]
        more = self.before[d] + self.after[d] - (self.taps[d] - 1) * self.dilation[d]
        if stride == 1 and known(more) and more == 0:
            return size  # as it is written: sizes that are products are equal by their form alone
        free = size + more - 1
        if known(free) and free < 0:
            span = (self.taps[d] - 1) * self.dilation[d] + 1
            raise bad(f"window: expected at most the {size} + {self.before[d]} + {self.after[d]} elements of an axis, got {span} taps")
        if not ceil or stride == 1:
            return free // stride + 1
        up, inside = (free + stride - 1) // stride + 1, (size + self.before[d] - 1) // stride + 1
        return min(up, inside) if known(up, inside) else te.minimum(up, inside)

    def see(self, places: Sequence[Any], taps: Sequence[Any]) -> tuple[Any, ...]:
        """The elements that the windows at `places` see through `taps`; they may lie beyond the edge."""
        return tuple(
            linear((o, self.stride[d]), (r, self.dilation[d]), plus=-self.before[d])
            for d, (o, r) in enumerate(zip(places, taps, strict=True))
        )

    def inside(self, elements: Sequence[Any]) -> Any:
        """Whether all elements lie within the axes."""
        pairs = list(zip(elements, self.sizes, strict=True))
        return every(condition for element, size in pairs for condition in (element >= 0, element < size))


def senders(
    element: Sequence[Any], taps: Sequence[Any], stride: Sequence[int], dilation: Sequence[int], before: Sequence[int]
) -> tuple[list[Any], Any]:
    """The window that sees `element` through `taps`, and whether there is one between the strides (None: always).

    The other way round from `Windows.see`: the place o with `o * stride + r * dilation - before = element`, which may lie beyond the
    first or the last window.
    """
    ahead = [linear((e, 1), (r, -dilation[d]), plus=before[d]) for d, (e, r) in enumerate(zip(element, taps, strict=True))]
    places = [m if step == 1 else m // step for m, step in zip(ahead, stride, strict=True)]
    exact = [m % step == 0 for m, step in zip(ahead, stride, strict=True) if step > 1]
    return places, every(exact) if exact else None


def digits_of(flat: Any, extents: Sequence[Any]) -> tuple[Any, ...]:
    """The indices along axes of `extents` of an element, from its row-major number."""
    digits: list[Any] = []
    for extent in reversed(extents[1:]):
        digits.append(flat % extent)
        flat = flat // extent
    return (flat, *reversed(digits))


def flat_place(indices: Sequence[Any], extents: Sequence[Any]) -> Any:
    """The row-major number of an element."""
    flat = indices[0]
    for index, extent in zip(indices[1:], extents[1:], strict=True):
        flat = flat * extent + index
    return flat
