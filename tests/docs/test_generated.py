"""What README and ARCHITECTURE print is what the compiler prints today, and their links lead somewhere."""

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


@pytest.mark.parametrize("name", [*generate.FILES, "CONTRIBUTING.md"])
def test_links_to_files_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#]+)\)", (generate.ROOT / name).read_text()):
        if "://" not in target:
            assert (generate.ROOT / target).exists(), f"{name} links to {target}"


@pytest.mark.parametrize("name", [*generate.FILES, "CONTRIBUTING.md"])
def test_files_that_are_named_exist(name):
    folders = "tensorexpr|autodiff|codegen|tests|docs|examples|benchmarks"
    for path in re.findall(rf"`((?:{folders})/[\w/]+\.(?:py|md|json))`", (generate.ROOT / name).read_text()):
        assert (generate.ROOT / path).exists(), f"{name} names {path}"
