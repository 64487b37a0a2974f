"""What one step of a scan computes at a point, where points do not communicate (see `sweeps`, which finds it out)."""

from __future__ import annotations

from tensorexpr.dtypes import DType
from tensorexpr.ir import Axis, Expr
from tensorexpr.records import record

MARK = "&"
"""First letter of the parameters that stand for states and for what a step has computed."""


@record
class Carried:
    """A state: the parameter that stands for it in a step, and what it is before the first, over the axes."""

    parameter: str
    start: Expr

    @property
    def dtype(self) -> DType:
        return self.start.dtype


@record
class Moment:
    """What a step computes at a point: a value over axes, step and parameters, and the elements that keep it."""

    parameter: str
    value: Expr
    stores: tuple[tuple[str, tuple[Expr, ...]], ...]


@record
class Sweep:
    """A scan and its `readers`: over the points of `axes` each `step` computes `moments` in order, then state k becomes parameter
    `nexts[k]`."""

    names: tuple[str, ...]
    readers: tuple[str, ...]
    axes: tuple[Axis, ...]
    step: Axis
    states: tuple[Carried, ...]
    moments: tuple[Moment, ...]
    nexts: tuple[str, ...]

    @property
    def last(self) -> str:
        """The definition in whose place it runs."""
        return (*self.names[:1], *self.readers)[-1]
