"""Results as files: JSON in which a row is a line, numbers with as many digits as a clock gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WIDTH = 4000
"""Characters up to which a value is one line: a row of the benchmark beside all its peers has some 1,500."""
DIGITS = 6
"""Significant digits of a time: medians repeat to three."""


def write(path: str | Path, document: Any) -> None:
    """Writes a document of plain values to a file."""
    Path(path).write_text(text(document) + "\n")


def text(value: Any, margin: str = "") -> str:
    """A document as text: what is short as one line, all else an entry a line.

    >>> print(text({"when": "today", "rows": [{"ours": 0.123456789}, {"ours": 2}]}))
    {"when": "today", "rows": [{"ours": 0.123457}, {"ours": 2}]}
    """
    flat = json.dumps(_rounded(value))
    if len(flat) <= WIDTH or not isinstance(value, (dict, list)):
        return flat
    inner = margin + " "
    if isinstance(value, dict):
        entries = [f"{inner}{json.dumps(str(key))}: {text(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(entries) + f"\n{margin}}}"
    return "[\n" + ",\n".join(inner + text(item, inner) for item in value) + f"\n{margin}]"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, (list, tuple)) else value
