"""How a tensor lies on the devices along one dimension of a mesh, and where a computation may be cut.

A placement says what each device holds: `Split(axis, ...)` a block of an axis, with a halo where more is read; `Partial(combine)` an
addend of the whole; `WHOLE` everything. A `Site` is a loop that may run over a block alone: an axis of a result, a loop of a reduction,
or the rows of a table that an index from data points at.
"""

from __future__ import annotations

from typing import NamedTuple


class Split(NamedTuple):
    """A block of an axis: of `step` elements for each unit of the block, with `halo` more read before and behind it.

    With `wraps` what is read beyond an end of the axis is the other end.
    """

    axis: int
    step: int = 1
    halo: tuple[int, int] = (0, 0)
    wraps: bool = False

    def __str__(self) -> str:
        by = "" if self.step == 1 else f" by {self.step}"
        around = "" if self.halo == (0, 0) else f", halo {self.halo[0]}+{self.halo[1]}{' around' if self.wraps else ''}"
        return f"split {self.axis}{by}{around}"


class Partial(NamedTuple):
    """An addend of the whole: the values of all devices are combined by `combine` (sum, prod, max, min, all or any)."""

    combine: str

    def __str__(self) -> str:
        return f"partial {self.combine}"


class Whole(NamedTuple):
    """All of it."""

    def __str__(self) -> str:
        return "whole"


class Unread(NamedTuple):
    """Not read at all, so it lies anywhere."""

    def __str__(self) -> str:
        return "not read"


WHOLE = Whole()
UNREAD = Unread()

Placement = Split | Partial | Whole | Unread


class Site(NamedTuple):
    """A loop: `kind` is "axis" (axis `name` of the tensor `owner`), "loop" (the loop `name` of the definition `owner`) or "rows"
    (axis `name` of the input `owner`, which an index from data points into)."""

    kind: str
    owner: str
    name: int | str
