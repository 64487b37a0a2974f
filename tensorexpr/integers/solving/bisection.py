"""Integer points by bisection: ranges are propagated, the narrowest variable is halved, and so on, for a bounded number of steps.

Most systems that a program asks about have a point near the middle of their box or none that survives a few halvings; the
rational polyhedron, which decides the rest, costs a hundred times as much. Variables without a bound are given one of `_REACH`:
then a point is a point, and none found says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

Row = Sequence[int]
Box = Sequence[tuple[int | None, int | None]]

_STEPS = 60
_STEPS_OPEN = 24  # where there is no bound: only a point settles it
_REACH = 64
_ROUNDS = 3


def bisect(rows: Sequence[Row], box: Box) -> bool | None:
    """Whether an integer point of the box (of ranges, from column 1 on) satisfies every row (constant first); None: not found out."""
    is_open = any(low is None or high is None for low, high in box[1:])
    lows, highs = [0], [0]
    for low, high in box[1:]:
        if low is None:
            low = -_REACH if high is None else high - 2 * _REACH
        lows.append(low)
        highs.append(low + 2 * _REACH if high is None else high)
    used = [(row, [at for at in range(1, len(row)) if row[at]]) for row in rows]
    found = _Bisection(used, _STEPS_OPEN if is_open else _STEPS).search(lows, highs)
    return found or (None if is_open else found)


class _Bisection:
    def __init__(self, rows: list[tuple[Row, list[int]]], steps: int) -> None:
        self._rows, self._steps = rows, steps

    def search(self, lows: list[int], highs: list[int]) -> bool | None:
        self._steps -= 1
        if self._steps < 0:
            return None
        if not self._propagate(lows, highs):
            return False
        widths = [(high - low, at) for at, (low, high) in enumerate(zip(lows, highs, strict=True)) if high > low]
        if not widths:
            return all(row[0] + sum([row[at] * lows[at] for at in used]) >= 0 for row, used in self._rows)
        at = min(widths)[1]
        middle = (lows[at] + highs[at]) // 2
        for first, last in ((lows[at], middle), (middle + 1, highs[at])):
            low, high = lows[:], highs[:]
            low[at], high[at] = first, last
            found = self.search(low, high)
            if found is not False:
                return found
        return False

    def _propagate(self, lows: list[int], highs: list[int]) -> bool:
        """Narrows the ranges by each row for a few rounds; False where a row cannot hold."""
        for _ in range(_ROUNDS):
            changed = False
            for row, used in self._rows:
                greatest = row[0]
                for at in used:
                    factor = row[at]
                    greatest += factor * (highs[at] if factor > 0 else lows[at])
                if greatest < 0:
                    return False
                for at in used:
                    factor = row[at]
                    if factor > 0:
                        bound = -((greatest - factor * highs[at]) // factor)
                        if bound > lows[at]:
                            if bound > highs[at]:
                                return False
                            lows[at], changed = bound, True
                    else:
                        bound = (greatest - factor * lows[at]) // -factor
                        if bound < highs[at]:
                            if bound < lows[at]:
                                return False
                            highs[at], changed = bound, True
            if not changed:
                break
        return True
