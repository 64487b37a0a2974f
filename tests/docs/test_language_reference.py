"""docs/language.md and docs/kernels.md: their lists of names are those of the docstrings (`test_blocks` runs their examples)."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "language.md"


def script(name):
    """A script of the repository as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_names_are_listed_from_their_docstrings():
    page = PAGE.read_text()
    assert page == script("language_reference").with_listing(page), "run: make docs"


def test_kernels_are_listed_from_their_docstrings():
    page = (ROOT / "docs" / "kernels.md").read_text()
    assert page == script("kernel_reference").page(), "run: make docs"
