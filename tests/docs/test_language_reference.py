"""docs/language.md: its examples run, and its list of names is that of the docstrings."""

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


def test_names_are_listed_from_their_docstrings():
    spec = importlib.util.spec_from_file_location("language_reference", ROOT / "scripts" / "language_reference.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = PAGE.read_text()
    assert page == script.with_listing(page), "run: python scripts/language_reference.py"
