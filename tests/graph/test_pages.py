"""The pages on functions and composites: their examples run and print what stands there."""

import doctest
from pathlib import Path

import pytest

PAGES = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", ["graph.md", "composites.md"])
def test_the_examples_of_a_page_run(page):
    text = (PAGES / page).read_text().replace("```", "")
    test = doctest.DocTestParser().get_doctest(text, {}, page, page, 0)
    assert len(test.examples) > 5
    report = []
    doctest.DocTestRunner().run(test, out=report.append)
    assert not report, "".join(report)
