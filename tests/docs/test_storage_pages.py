"""The pages about storage and bundles: their Python blocks run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", ["storage.md", "bundles.md"])
def test_the_blocks_of_a_page_run(page: str):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    names: dict[str, object] = {"__name__": "page"}
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), names)
