"""Pictures of results: ratios on a scale of logarithms, a line for each row, as SVG text. Nothing is needed to draw them but this file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

LEFT, RIGHT, LINE, TOP = 250, 700, 15, 46
"""Where the scale begins and ends, the height of a row, and the room above the first, in pixels."""
MARKS = ("#1f6fb4", "#d9731a", "#3a9a4b", "#9467bd")
"""Colors of the columns, in their order."""


def ratios(title: str, rows: Mapping[str, Mapping[str, float]]) -> str:
    """A dot for each ratio of a row, by the name of its column; the line at 1 is where both are equally fast.

    >>> ratios("time of a peer / ours", {"softmax": {"forward": 1.5, "gradient": 2.0}}).count("<circle")
    4
    """
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    values = [value for row in rows.values() for value in row.values()]
    least, most = (math.floor(math.log2(min([1.0, *values]))), math.ceil(math.log2(max([2.0, *values]))))
    height = TOP + LINE * len(rows) + 8

    def across(value: float) -> float:
        return LEFT + (RIGHT - LEFT) * (math.log2(value) - least) / (most - least)

    text = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{height}" viewBox="0 0 720 {height}" '
        'font-family="sans-serif" font-size="11" style="color: #222; background: #fff">',
        f'<text x="8" y="16" font-size="13">{escape(title)}</text>',
    ]
    for position, name in enumerate(columns):
        left = 430 + 90 * position
        text.append(f'<circle cx="{left}" cy="12" r="4" fill="{MARKS[position]}"/><text x="{left + 8}" y="16">{escape(name)}</text>')
    for power in range(least, most + 1):
        at = across(2.0**power)
        stroke = "#555" if power == 0 else "#ddd"
        text.append(f'<line x1="{at:.1f}" y1="{TOP - 8}" x2="{at:.1f}" y2="{height - 6}" stroke="{stroke}"/>')
        text.append(f'<text x="{at:.1f}" y="{TOP - 12}" text-anchor="middle">{2.0**power:g}</text>')
    for number, (name, row) in enumerate(rows.items()):
        middle = TOP + LINE * number + LINE / 2
        text.append(f'<text x="{LEFT - 8}" y="{middle + 4:.1f}" text-anchor="end">{escape(name)}</text>')
        for position, column in enumerate(columns):
            if column in row:
                text.append(f'<circle cx="{across(row[column]):.1f}" cy="{middle:.1f}" r="4" fill="{MARKS[position]}"/>')
    return "\n".join([*text, "</svg>"]) + "\n"
