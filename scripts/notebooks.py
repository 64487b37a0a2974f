"""The pages that run, as notebooks: `python scripts/notebooks.py FOLDER` writes one for each page of docs/ with code in it.

Text becomes cells of Markdown, a block of Python a cell; a block with prompts becomes a cell for each value that it shows. What is meant
to fail says so to whoever runs all cells (`raises-exception`).
"""

from __future__ import annotations

import doctest
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *(ROOT / "docs" / "guides" / f"{name}.md" for name in ("start", "gradients", "schedules", "open-sizes", "numerics", "profiling")),
    *(ROOT / "docs" / f"{name}.md" for name in ("language", "interop", "graph", "modules", "storage", "composites", "tuning")),
]
_PYTHON = re.compile(r"^```python\n(.*?)^```\n?", re.DOTALL | re.MULTILINE)


def cells(page: Path) -> list[dict[str, Any]]:
    """The cells of a page, in order."""
    found: list[dict[str, Any]] = []
    for position, part in enumerate(_PYTHON.split(page.read_text())):
        if position % 2 == 0:
            if part.strip():
                found.append({"cell_type": "markdown", "metadata": {}, "source": part.strip()})
        elif part.lstrip().startswith(">>>"):
            found.extend(_shown(part))
        else:
            found.append(_code(part.rstrip()))
    return [{"id": f"cell-{number}", **cell} for number, cell in enumerate(found)]


def _shown(block: str) -> list[dict[str, Any]]:
    """The cells of a block with prompts: each ends with a value that is shown."""
    found, sources = [], []
    for example in doctest.DocTestParser().get_examples(block):
        sources.append(example.source.rstrip())
        if example.want:
            found.append(_code("\n".join(sources), example.want.startswith("Traceback")))
            sources = []
    return [*found, _code("\n".join(sources))] if sources else found


def _code(source: str, fails: bool = False) -> dict[str, Any]:
    metadata = {"tags": ["raises-exception"]} if fails else {}
    return {"cell_type": "code", "execution_count": None, "metadata": metadata, "outputs": [], "source": source}


def notebook(page: Path) -> dict[str, Any]:
    """A page in the format of notebooks, version 4.5."""
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}, "language_info": {"name": "python"}}
    return {"cells": cells(page), "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def main(folder: Path) -> int:
    """Writes the notebooks of all pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        (folder / f"{page.stem}.ipynb").write_text(json.dumps(notebook(page), indent=1) + "\n")
    print(f"{len(PAGES)} notebooks in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
