"""Pages of examples show what the examples say, and links of all pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


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
