"""Writes the list of names in docs/language.md from the docstrings: `python scripts/language_reference.py`.

The list stands under the heading "All names", at the end of the page. A test compares it.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import tensorexpr as te
from tensorexpr import language
from tensorexpr.dtypes import DTYPES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "language.md"
HEADING = "## All names\n"


def row(name: str) -> str:
    """A name as a user writes it (a call without annotations) and the first paragraph of its docstring."""
    value = getattr(te, name)
    call = f"te.{name}"
    if not inspect.isclass(value) and not inspect.ismodule(value):
        parameters = inspect.signature(value).parameters.values()
        call += f"({', '.join(str(p.replace(annotation=inspect.Parameter.empty)) for p in parameters)})"
    paragraph = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    return f"| `{call}` | {paragraph.replace('|', chr(92) + '|')} |"


def listing() -> str:
    """One line per public name: those of the language, then what is done with definitions; dtypes are one line."""
    others = [name for name in sorted(te.__all__) if name not in language.__all__ and name != "__version__"]
    kinds = [name for name in others if isinstance(getattr(te, name), te.DType)]
    kinds.sort(key=lambda name: DTYPES.index(getattr(te, name)))
    lines = ["| The language | |", "|---|---|", *map(row, sorted(language.__all__)), ""]
    lines += ["| Operations, gradients, running | |", "|---|---|", *(row(name) for name in others if name not in kinds)]
    lines.append(f"| {', '.join(f'`te.{name}`' for name in kinds)} | The dtypes. |")
    return "\n".join(lines) + "\n"


def with_listing(page: str) -> str:
    """The page with the list renewed."""
    return page[: page.index(HEADING) + len(HEADING)] + "\n" + listing()


if __name__ == "__main__":
    PAGE.write_text(with_listing(PAGE.read_text()))
