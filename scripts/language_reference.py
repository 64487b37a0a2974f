"""Writes the list of names in docs/language.md from the docstrings: `python scripts/language_reference.py`.

The list stands under the heading "All names", at the end of the page. A test compares it.
"""

from __future__ import annotations

import inspect
from pathlib import Path

from tensorexpr import language

PAGE = Path(__file__).resolve().parent.parent / "docs" / "language.md"
HEADING = "## All names\n"


def signature(name: str) -> str:
    """The call as a user writes it, without annotations."""
    value = getattr(language, name)
    parameters = inspect.signature(value).parameters.values()
    return f"te.{name}({', '.join(str(p.replace(annotation=inspect.Parameter.empty)) for p in parameters)})"


def listing() -> str:
    """One line per name: its signature and the first sentence of its docstring."""
    lines = ["| | |", "|---|---|"]
    for name in language.__all__:
        value = getattr(language, name)
        text = inspect.getdoc(value) or ""
        paragraph = " ".join(text.split("\n\n")[0].split())
        call = f"te.{name}" if inspect.isclass(value) else signature(name)
        lines.append(f"| `{call}` | {paragraph.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def with_listing(page: str) -> str:
    """The page with the list renewed."""
    return page[: page.index(HEADING) + len(HEADING)] + "\n" + listing()


if __name__ == "__main__":
    PAGE.write_text(with_listing(PAGE.read_text()))
