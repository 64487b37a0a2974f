"""The exact integer minimum and maximum of an affine form over an integer system.

The form becomes one more variable that `reduce_system` keeps; when everything else could be removed exactly, the answer is
an interval to read off. Otherwise the rational optimum bounds it, and a search by doubling and halving, each step an
emptiness question, finds the integer one (nearly always at once).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor

from tensorexpr.integers.forms.affine import Interval
from tensorexpr.integers.solving.emptiness import has_integer_point
from tensorexpr.integers.solving.reduction import Rows, reduce_system
from tensorexpr.integers.solving.simplex import Polyhedron


def integer_range(equalities: Rows, inequalities: Rows, objective: Sequence[int]) -> Interval | None:
    """``(minimum, maximum)`` of ``objective . (1, x)`` over the integer points, None for an unbounded side.

    The result itself is None when there is no point.
    """
    last = len(objective)
    reduced = reduce_system(
        [*((*row, 0) for row in equalities), (*objective, -1)],
        [(*row, 0) for row in inequalities],
        keep=(last,),
    )
    if reduced is None:
        return None
    left, rows = reduced
    everything = [*rows, *left, *([-entry for entry in row] for row in left)]
    if not any(any(row[1:last]) for row in everything):
        return _read_interval(everything, last)
    polyhedron = Polyhedron(everything, last)
    if not polyhedron.feasible:
        return None
    goal = [0] * last + [1]
    high = polyhedron.maximum(goal)
    low = polyhedron.maximum([-entry for entry in goal])

    def reaches(bound: int, sign: int) -> bool:
        return has_integer_point(left, [*rows, (-bound, *goal[1:-1], sign)])

    if not any(end is not None and reaches(floor(end), sign) for end, sign in ((high, 1), (low, -1))) and not has_integer_point(left, rows):
        return None  # where an end is reached, nearly always, there is a point
    highest = None if high is None else _greatest(floor(high), lambda bound: reaches(bound, 1))
    lowest = None if low is None else -_greatest(-ceil(-low), lambda bound: reaches(bound, -1))
    return lowest, highest


def _greatest(start: int, reached: Callable[[int], bool]) -> int:
    """The greatest bound not above `start` that is reached."""
    step, failed = 0, start + 1
    while not reached(start - step):
        failed = start - step
        step = 2 * step + 1
    known = start - step
    while failed - known > 1:
        middle = (known + failed) // 2
        if reached(middle):
            known = middle
        else:
            failed = middle
    return known


def _read_interval(rows: Rows, column: int) -> Interval | None:
    low: int | None = None
    high: int | None = None
    for row in rows:
        factor = row[column]
        if factor > 0:
            bound = -(row[0] // factor)
            low = bound if low is None else max(low, bound)
        elif factor < 0:
            bound = row[0] // -factor
            high = bound if high is None else min(high, bound)
    return None if low is not None and high is not None and low > high else (low, high)
