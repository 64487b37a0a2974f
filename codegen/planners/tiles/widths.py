"""How many vectors run side by side where functions are computed: in a reduction as many as registers hold, with what functions need.

Side by side, vectors hide how long a function takes; but each holds its accumulators, what it reads of its own point and what is under
way, and functions hold their coefficients. What does not fit goes through memory at every point.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorexpr.codegen.schedule.analysis.strides import Reach
from tensorexpr.codegen.schedule.analysis.work import operations
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
LONG = 21
"""Operations of an element from which on those of one vector fill the places in which a core holds what is not ready yet."""
FEW_BLOCKS = 8
"""Blocks of an axis from which on it matters little that the last one overlaps."""


def vectors_held(most: int, values: Sequence[Expr], reads: Sequence[Reach], vector: str, axes: Sequence[Axis], registers: int) -> int:
    """Vectors along `vector`, at most `most`, a power of two less, for which a reduction over `axes` of `values` finds registers."""
    if not _have_functions(values):
        return most
    own = sum(bool(r.stride(vector)) and not any(r.stride(a.index) for a in axes) for r in reads)
    while most > FEWEST and most * (len(values) + own + UNDER_WAY) + COEFFICIENTS > registers:
        most //= 2
    return most


def wait_long(values: Sequence[Expr], reaches: Sequence[Reach], vector: str, extent: float | None, lanes: int) -> bool:
    """Whether functions of elements are chains so long that vectors side by side, `lanes` in all, pay in spite of what finds no register:
    the next vector does not begin while one waits for itself."""
    if extent is None or (extent % lanes and extent < FEW_BLOCKS * lanes) or any(abs(r.stride(vector)) > 1 for r in reaches):
        return False
    return _have_functions(values) and any(operations(v) >= LONG for v in values)


def _have_functions(values: Sequence[Expr]) -> bool:
    return any(isinstance(n, Apply) and n.dtype.is_float and n.op.cost >= FUNCTION for v in values for n in walk(v))
