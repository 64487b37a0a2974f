"""The prose of a document as sentences, and what documents here do not say.

Code, tables, headings, links' targets and blocks that are produced are left out; an item of a list ends a sentence.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCED = {"docs/schedules.md", "docs/kernels.md"}
"""Made from docstrings as a whole."""
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += [page for page in sorted((ROOT / "docs").rglob("*.md")) if str(page.relative_to(ROOT)) not in PRODUCED]

COINAGES = {
    r"\bdear(er|est|ly)?\b": "costly, expensive",
    r"\b(hang|hangs|hanging|hung) on\b": "depends on",
    r"\bnobody needs\b": "unused, dead",
    r"\b(is|was|are|were|be) foretold\b": "predicted",
    r"\bhas not got\b": "does not have",
    r"\bto go by\b": "to follow",
    r"\bgo(es)? round\b": "loops",
    r"\bwhat is had\b": "what is available",
    r"\bin a row of its own accord\b": "by itself",
    r"\bas like as\b": "like",
    r"\bturned away\b": "rejected",
    r"\bcome to nothing\b": "are empty",
    r"\blean(s)? on\b": "depends on, builds on",
    r"\bheld against\b": "compared with",
    r"\bwhole or not at all\b": "atomically",
}
"""What documents do not say, and the field's term for it."""
LONGEST = 45
"""Words of a sentence."""
MEAN = 22.0
"""Words of a sentence of a page in the mean."""


def prose(text: str) -> str:
    """The text without code, tables, headings and produced blocks; code in a line counts as one word."""
    text = re.sub(r"<!-- begin [a-z-]+ -->.*?<!-- end -->", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```[^\n]*$", "\n\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^(#.*|\|.*|!\[.*| {4,}[^\s\-*].*|<!--.*|---)$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\s*([-*]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`", "code", text)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def sentences(text: str) -> list[str]:
    """The sentences of a document."""
    found = []
    for paragraph in re.split(r"\n\s*\n", prose(text)):
        parts = re.split(r"(?<=[.!?])[\"*)]*\s+", " ".join(paragraph.split()))
        found += [part for part in parts if part]
    return found


def words(sentence: str) -> int:
    """How many words a sentence has; signs alone are none."""
    return sum(any(letter.isalnum() for letter in word) for word in sentence.split())
