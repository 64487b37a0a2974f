"""Printing for people: code with colors where there is a terminal and rich is installed, plain text everywhere else."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Collection, Sequence

_LEXERS = {"latex": "latex", "llvm": "llvm", "asm": "gas", "cuda": "cuda", "ptx": "ptx"}


def colored() -> bool:
    """Whether to color: standard output is a terminal, NO_COLOR is not set, and rich is there."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and importlib.util.find_spec("rich") is not None


def print_code(text: str, stage: str) -> None:
    """Prints the text of a stage, highlighted by its language."""
    if not colored():
        print(text)
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.syntax import Syntax  # noqa: PLC0415

    Console().print(Syntax(text, _LEXERS.get(stage, "python"), theme="ansi_dark", background_color="default"), soft_wrap=True)


def print_heading(text: str, stage: str) -> None:
    """Prints a heading: bold on a terminal, a comment line elsewhere (so that output stays pasteable)."""
    if not colored():
        print(f"{'%' if stage == 'latex' else '#'} {text}")
        return
    from rich.console import Console  # noqa: PLC0415

    Console().print(text, style="bold", highlight=False, markup=False, soft_wrap=True)  # no markup: indices stand in brackets


def print_columns(rows: Sequence[Sequence[str]], heads: Sequence[str], left: Collection[int] = (0,)) -> None:
    """Prints a table, the columns `left` aligned to the left: with rich's lines on a terminal, as aligned text elsewhere."""
    if not colored():
        widths = [max(len(line[k]) for line in (heads, *rows)) for k in range(len(heads))]
        for line in (heads, *rows):
            cells = (cell.ljust(widths[k]) if k in left else cell.rjust(widths[k]) for k, cell in enumerate(line))
            print("  ".join(cells).rstrip())
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False)
    for k, head in enumerate(heads):
        table.add_column(head, justify="left" if k in left else "right", no_wrap=True)
    for line in rows:
        table.add_row(*line)
    Console().print(table, soft_wrap=True)
