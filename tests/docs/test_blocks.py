"""Every block of Python on every page runs, in order, as a reader would type it."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import PAGES, ROOT, blocks, run

LANGUAGES = {"python", "pycon", "text", "c", "llvm", "cuda"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    found = [block for block in blocks(page) if block.language == "python"]
    for library in ("torch", "jax", "onnx"):
        if any(re.search(rf"^(>>> )?(import|from) {library}\b", block.code, re.MULTILINE) for block in found):
            pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    told = "".join(run(block, names, page.name) for block in found)
    assert not told, told


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_say_their_language(page):
    assert {block.language for block in blocks(page)} <= LANGUAGES
