"""The blocks of code on a page, and how they run: one after the other, in one set of names.

A block of Python with prompts (`>>>`) is compared with what it shows; one without is executed, and says by `assert` what holds.
What stands between `<!-- begin NAME -->` and `<!-- end -->` is written by a program and compared by `test_generated`.
"""

from __future__ import annotations

import doctest
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "guides").glob("*.md"))]
PAGES.remove(ROOT / "docs" / "schedules.md")  # made from docstrings, which test_schedules runs
_PRODUCED = re.compile(r"<!-- begin [a-z-]+ -->\n.*?<!-- end -->", re.DOTALL)
_BLANK = re.compile(r"^$(?=\n+(?!>>>)[^\n])", re.MULTILINE)
"""A blank line inside of an output: the next line is no example."""
_FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of a page: its language, its text, and the line of the page that it begins on (from 1)."""

    language: str
    code: str
    line: int


def blocks(page: Path) -> list[Block]:
    """All blocks of a page but those that are produced. Lines are those of the page."""
    text = _PRODUCED.sub(lambda match: "\n" * match[0].count("\n"), page.read_text())
    return [Block(m["language"], m["code"], text.count("\n", 0, m.start("code")) + 1) for m in _FENCE.finditer(text)]


def run(block: Block, names: dict[str, object], page: str) -> str:
    """Runs a block of Python in these names, and returns what doctest has to say (nothing where all is as shown)."""
    if not block.code.lstrip().startswith(">>>"):
        exec(compile("\n" * (block.line - 1) + block.code, page, "exec"), names)
        return ""
    told: list[str] = []
    test = doctest.DocTestParser().get_doctest(_BLANK.sub("<BLANKLINE>", block.code), names, page, page, block.line - 1)
    test.globs = names  # the parser copies them, and later blocks go on from here
    doctest.DocTestRunner(_Ends(), optionflags=doctest.ELLIPSIS).run(test, out=told.append, clear_globs=False)
    return "".join(told)


class _Ends(doctest.OutputChecker):
    """Blank lines at the end of an output are not shown on a page."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(f"{want.rstrip()}\n" if want else "", f"{got.rstrip()}\n" if got else "", optionflags)
