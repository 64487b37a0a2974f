"""The number of integer points of a bounded polygon, in closed form.

Between two neighboring crossings of its lines the same line bounds y from below and the same from above; there the number
of points is a sum of floor functions of x, which Euclid's algorithm adds up without going through the values of x.

Source: for sums of floors, R. L. Graham, D. E. Knuth, O. Patashnik, Concrete Mathematics (2nd ed. 1994), section 3.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor

_Row = Sequence[int]


def sum_of_floors(first: int, last: int, factor: int, constant: int, divisor: int) -> int:
    """The sum of ``(factor*x + constant) // divisor`` for x from `first` to `last` (a positive divisor).

    >>> sum_of_floors(0, 10, 3, 1, 4) == sum((3 * x + 1) // 4 for x in range(11))
    True
    """
    count = last - first + 1
    constant += factor * first
    total = 0
    sign = 1
    while count > 0:
        total += sign * (count * (count - 1) // 2 * (factor // divisor) + count * (constant // divisor))
        factor %= divisor
        constant %= divisor
        top = factor * (count - 1) + constant
        if top < divisor:
            break
        # points under a line, read by columns instead of rows: x and y exchange their parts
        rows = top // divisor
        total += sign * rows * count
        sign = -sign
        count, factor, constant, divisor = rows, divisor, divisor - constant + factor - 1, factor
    return total


def count_polygon(rows: Sequence[_Row]) -> int:
    """The number of integer points of a bounded set of rows ``(c, a, b)``: ``c + a*x + b*y >= 0``."""
    lowers = [row for row in rows if row[2] > 0]
    uppers = [row for row in rows if row[2] < 0]
    lines = [*lowers, *uppers]
    crossings = []
    for at, (c, a, b) in enumerate(lines):
        for other_c, other_a, other_b in lines[:at]:
            slope = other_b * a - b * other_a
            if slope:
                crossings.append(Fraction(b * other_c - other_b * c, slope))
    low = [ceil(Fraction(-c, a)) for c, a, b in rows if b == 0 and a > 0]
    high = [floor(Fraction(c, -a)) for c, a, b in rows if b == 0 and a < 0]
    first = max(low) if low else ceil(min(crossings))
    last = min(high) if high else floor(max(crossings))
    ends = {last}
    for crossing in crossings:  # an integer crossing is a segment of its own
        ends.update(end for end in (ceil(crossing) - 1, floor(crossing)) if first <= end < last)
    total = 0
    start = first
    for end in sorted(ends):
        total += _count_segment(lowers, uppers, start, end)
        start = end + 1
    return total


def _count_segment(lowers: Sequence[_Row], uppers: Sequence[_Row], start: int, end: int) -> int:
    """The points with ``start <= x <= end``, where no two lines change their order."""
    if end < start:
        return 0

    def height(row: _Row) -> Fraction:
        return Fraction(2 * row[0] + row[1] * (start + end), -row[2])  # at start plus at end: their order everywhere between

    lower = max(lowers, key=height)
    upper = min(uppers, key=height)
    if height(upper) < height(lower):
        return 0
    return (
        sum_of_floors(start, end, upper[1], upper[0], -upper[2]) + sum_of_floors(start, end, lower[1], lower[0], lower[2]) + end - start + 1
    )
