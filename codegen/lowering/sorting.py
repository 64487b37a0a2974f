"""A sort plan as loops: a counting sort, in time that does not depend on how keys collide.

    offsets[:] = 0
    for point: keys[position] = key;  offsets[key + 2] += 1       (of all keys but the last)
    for v:     offsets[v] += offsets[v - 1]                       now offsets[v + 1] is where key v begins
    for p:     order[offsets[keys[p] + 1]] = p;  offsets[keys[p] + 1] += 1
                                                                  now offsets[v + 1] is where key v ends

Keys are computed and checked once and kept, so what is sorted is what was checked. Points without a key hold -1.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorexpr import dtypes
from tensorexpr.codegen.lowering.arithmetic import ONE, ZERO, add, constant, mul, sub
from tensorexpr.codegen.nest import Block, For, If, Store
from tensorexpr.ir import Access, Axis, Expr, Index, apply, const, product
from tensorexpr.records import record
from tensorexpr.traversal import fresh_name

NO_KEY = const(-1)

Place = tuple[str, tuple[Expr, ...]]
"""An element of a buffer."""


@record
class Sorting:
    """The buffers of one plan: each gives, for the indices of the batch and a position, the element."""

    batch: tuple[Axis, ...]
    keys: Callable[[tuple[Expr, ...]], Place]
    offsets: Callable[[tuple[Expr, ...]], Place]
    order: Callable[[tuple[Expr, ...]], Place]
    extent: Expr
    points: Expr
    partial: bool
    """Whether some points have no key."""

    def counted(self, batch: tuple[Expr, ...], position: Expr, key: Expr) -> Block:
        """Keeps the key of a point and counts it, for the key that comes after."""
        place = self.keys((*batch, position))
        kept = _read(place)
        target = self.offsets((*batch, add(kept, const(2))))
        count = Store(*target, apply("add", _read(target), ONE))
        return (Store(*place, key), If(apply("lt", kept, sub(self.extent, ONE)), (count,)))

    def sorted(self, taken: set[str]) -> Block:
        """The sums of the counts, the points in order, zeros behind them; no index is in `taken`."""
        names = tuple(fresh_name(axis.index, taken) for axis in self.batch)
        batch = tuple(map(Index, names))
        v, p = Index(fresh_name("v", taken)), Index(fresh_name("p", taken))
        here, before = self.offsets((*batch, v)), self.offsets((*batch, sub(v, ONE)))
        summed = Store(*here, apply("add", _read(here), _read(before)))
        key = _read(self.keys((*batch, p)))
        end = self.offsets((*batch, add(key, ONE)))
        placed: Block = (Store(*self.order((*batch, _read(end))), p), Store(*end, apply("add", _read(end), ONE)))
        if self.partial:
            placed = (If(apply("ge", key, ZERO), placed),)
        block: Block = (
            For(v.name, const(2), add(self.extent, ONE), (summed,)),
            For(p.name, ZERO, self.points, placed),
        )
        if self.partial:
            rest = Store(*self.order((*batch, p)), ZERO)
            block = (*block, For(p.name, _read(self.offsets((*batch, self.extent))), self.points, (rest,)))
        for name, axis in zip(reversed(names), reversed(self.batch), strict=True):
            block = (For(name, ZERO, axis.stop, block),)
        return block


def flat(indices: tuple[Expr, ...], extents: tuple[Expr, ...]) -> Expr:
    """The row-major position of indices in a shape."""
    result: Expr = ZERO
    for at, index in enumerate(indices):
        result = add(result, _times(index, product(extents[at + 1 :])))
    return result


def _times(index: Expr, stride: Expr) -> Expr:
    return mul(index, stride) if constant(stride) is not None else apply("mul", index, stride)


def _read(place: Place) -> Expr:
    return Access(*place, dtypes.int64)
