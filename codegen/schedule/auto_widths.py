"""How many vectors run side by side where functions are computed in a reduction: as many as registers hold, with what functions need.

Side by side, vectors hide how long a function takes; but each holds its accumulators, what it reads of its own point and what is under
way, and functions hold their coefficients. What does not fit goes through memory at every point.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorexpr.codegen.schedule.strides import Reach
from tensorexpr.ir import Apply, Axis, Expr
from tensorexpr.traversal import walk

UNDER_WAY = 4
"""Registers that a function of one vector takes while it is computed."""
COEFFICIENTS = 10
"""Registers that the coefficients of a function take."""
FUNCTION = 12
"""Operations from which on something is a function with coefficients."""
FEWEST = 2
"""Vectors that run side by side in any case."""


def vectors_held(most: int, values: Sequence[Expr], reads: Sequence[Reach], vector: str, axes: Sequence[Axis], registers: int) -> int:
    """Vectors along `vector`, at most `most`, a power of two less, for which a reduction over `axes` of `values` finds registers."""
    if not any(isinstance(n, Apply) and n.dtype.is_float and n.op.cost >= FUNCTION for v in values for n in walk(v)):
        return most
    own = sum(bool(r.stride(vector)) and not any(r.stride(a.index) for a in axes) for r in reads)
    while most > FEWEST and most * (len(values) + own + UNDER_WAY) + COEFFICIENTS > registers:
        most //= 2
    return most
