"""What objects show of themselves: the pieces of `repr` and of the HTML that notebooks display.

Each class says itself what it is, in these pieces. HTML is made of paragraphs, tables, code and formulas between `$$`, which
notebooks typeset; there are no scripts, no style sheets and no colours, so it reads in any theme and as plain text. All text is
escaped, and all of it is bounded: what is left out is counted and said.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import TypeVar

from tensorexpr.errors import TensorExprError

MOST_ROWS = 60
"""Rows of a table, lines of code or of a picture that are shown."""
MOST_NAMES = 8
"""Items of a list in one line that are shown."""
LONGEST = 160
"""Characters of a line that are shown."""

Item = TypeVar("Item")


def amount(number: int, noun: str) -> str:
    """`1 loop`, `2 loops`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def more(number: int, noun: str) -> str:
    """What is left out: `... and 3 more loops`."""
    return f"... and {amount(number, f'more {noun}')}"


def listed(items: Sequence[object]) -> str:
    """`a, b, c`, and how many more there are; `none` where there are none."""
    rest = len(items) - MOST_NAMES
    return ", ".join([*map(str, items[:MOST_NAMES]), *([f"{rest:,} more"] if rest > 0 else [])]) or "none"


def one_line(text: str, longest: int = LONGEST) -> str:
    """The text in one line of at most so many characters, its end left out."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 4]} ..."


def code(value: object) -> str:
    """A line of code, in which notebooks look for no formulas, so all that users name stands in one."""
    return f"<code>{html.escape(one_line(str(value)))}</code>"


def paragraph(text: str) -> str:
    """Plain text."""
    return f"<p>{html.escape(text)}</p>"


def listing(text: str) -> str:
    """Lines of code."""
    lines = text.rstrip("\n").split("\n")
    kept = [line if len(line) <= LONGEST else f"{line[: LONGEST - 4]} ..." for line in lines[:MOST_ROWS]]
    return f"<pre>{html.escape(chr(10).join(kept))}</pre>" + _rest(len(lines) - MOST_ROWS, "line")


def formula(latex: str) -> str:
    """What `_repr_latex_` gives, inside of HTML."""
    return f"<div>{html.escape(latex)}</div>"


def table(headings: Sequence[str], items: Sequence[Item], cells: Callable[[Item], Sequence[object]]) -> str:
    """A row of `cells` for each item that is shown; integers stand at the right."""
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    rows = ["".join(map(_cell, cells(item))) for item in items[:MOST_ROWS]]
    body = "".join(f"<tr>{row}</tr>\n" for row in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>{_rest(len(items) - MOST_ROWS, 'row')}"


def folded(title: str, inside: str) -> str:
    """Something that opens with a click."""
    return f"<details><summary>{html.escape(title)}</summary>\n{inside}\n</details>"


def page(*parts: str) -> str:
    """Several pieces, one below the other."""
    return "<div>\n" + "\n".join(part for part in parts if part) + "\n</div>"


def or_reason(make: Callable[[], str]) -> str:
    """What `make` gives; where an object refuses, as one that was deleted does, what it says."""
    try:
        return make()
    except TensorExprError as error:
        return listing(str(error).split("\n", 1)[0])


def _cell(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f'<td style="text-align: right">{value:,}</td>'
    return f"<td>{code(value) if str(value) else ''}</td>"


def _rest(number: int, noun: str) -> str:
    return f"\n{paragraph(more(number, noun))}" if number > 0 else ""
