"""The site: every page has a place in it, and it builds without a warning where mkdocs is installed (`make site`)."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

import pytest

from tests.docs.blocks import ROOT


def test_every_page_is_reached_from_the_menu():
    named = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text().split("nav:")[1]))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert {name for name in named if not name.startswith("project/")} == pages


@pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="mkdocs-material is not installed (make site installs it)")
def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "source" / "examples" / "train_digits.py" / "index.html").exists()  # what a page links to beside docs/
