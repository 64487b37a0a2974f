"""What documents print is what the compiler prints today, and their links lead somewhere."""

from __future__ import annotations

import re

import pytest

from docs import generate


@pytest.mark.parametrize("name", generate.GENERATED)
def test_printed_blocks_are_up_to_date(name):
    text = (generate.ROOT / name).read_text()
    assert generate.regenerated(text) == text, "run: python docs/generate.py"


def test_pictures_are_up_to_date():
    for path, picture in generate.pictures().items():
        assert path.read_text() == picture, "run: python docs/generate.py"


PROJECT = [
    *generate.FILES,
    "CONTRIBUTING.md",
    *sorted(str(page.relative_to(generate.ROOT)) for page in (generate.ROOT / "docs/internals").iterdir()),
]
FILES = {f"/{file.relative_to(generate.ROOT)}" for file in generate.ROOT.rglob("*.*") if not {".venv", ".git"} & set(file.parts)}


@pytest.mark.parametrize("name", PROJECT)
def test_links_to_files_lead_somewhere(name):
    page = generate.ROOT / name
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{name} links to {target}"


@pytest.mark.parametrize("name", PROJECT)
def test_files_that_are_named_exist(name):
    """By their path, or by the end of it where the page has said which room it speaks of."""
    for path in re.findall(r"`([\w/]+\.(?:py|md|cpp|cuh))`", (generate.ROOT / name).read_text()):
        assert any(file.endswith(f"/{path}") for file in FILES), f"{name} names {path}"
