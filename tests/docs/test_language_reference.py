"""docs/language.md and docs/kernels.md: their examples run, and their lists of names are those of the docstrings."""

import doctest
import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "language.md"


def test_examples_run_as_shown():
    text = re.sub(r"^```.*$", "", PAGE.read_text(), flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(text, {}, "language.md", str(PAGE), 0)
    assert len(test.examples) > 60
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=failures.append)
    assert not failures, "".join(failures)


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
    test = doctest.DocTestParser().get_doctest(re.sub(r"^```.*$", "", page, flags=re.MULTILINE), {}, "kernels.md", "kernels.md", 0)
    failures: list[str] = []
    assert doctest.DocTestRunner().run(test, out=failures.append).attempted > 4
    assert not failures, "".join(failures)
