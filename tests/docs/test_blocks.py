"""Every block of Python on every page runs, in order, as a reader would type it; what is shown of examples is what stands there."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

import tensorexpr as te
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


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "examples").glob("*.md")), ids=lambda page: page.stem)
def test_what_a_page_shows_of_an_example_stands_there(page):
    examples = re.findall(r"\]\((\.\./\.\./examples/[^)]*)\)", page.read_text())  # which are run by the tests of examples
    text = "\n".join((page.parent / name).read_text() for name in examples)
    shown = blocks(page)
    assert shown and examples
    assert not [f"{page.name}:{block.line}" for block in shown if block.code not in text]


def test_declarations_in_c_are_those_of_the_header(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    forward = te.op(lambda x: te.compute(x.shape, lambda i: 2 * x[i])).compile(((3,), "float32"))
    te.export(tmp_path / "model", forward=forward)
    shown = [block.code for block in blocks(ROOT / "docs" / "bundles.md") if block.language == "c"]
    assert shown
    text = "\n".join(['#include "model.h"', *shown])  # a declaration of another type would be an error
    options = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{tmp_path / 'model'}", "-xc", "-"]
    subprocess.run([compiler, *options], input=text, text=True, check=True)
