"""Pages of examples show what the examples say, links of all pages lead somewhere, and the page of the architecture names every room."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
]


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "examples"], ids=lambda page: page.stem)
def test_code_of_an_example_is_that_of_its_file(page):
    text = page.read_text()
    file = (page.parent / re.search(r"\]\(([^)]+\.(?:py|c))\)", text)[1]).resolve()
    blocks = re.findall(r"```(?:python|c)\n(.*?)```", text, re.DOTALL)
    assert file.exists()
    for block in blocks:
        assert block in file.read_text(), f"{page.name} shows what {file.name} does not have:\n{block}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)\)", prose):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("folder", ["tensorexpr", "codegen"])
def test_the_architecture_names_every_room(folder):
    rooms = [room.name for room in sorted((ROOT / folder).iterdir()) if (room / "__init__.py").exists()]
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    named = {part.strip("/") for row in rows for word in re.findall(r"`([^`]+)`", row) for part in word.split("/")}
    assert rooms and not [room for room in rooms if room not in named]
