"""docs/schedules.md is made from the docstrings of the primitives, and these run; no primitive is left out."""

import doctest
import inspect
from pathlib import Path

import pytest

from tensorexpr.codegen.schedule import Schedule, StageHandle
from tests.docs.test_language_reference import script

REFERENCE = script("schedule_reference")
WORDS = {word: places for _, words in REFERENCE.FAMILIES for word, places in words}
ASIDE = {"program", "target", "stages", "copy", "as_python", "loops", "cost"}


def test_the_page_is_made_from_the_docstrings():
    page = (Path(__file__).resolve().parents[2] / "docs" / "schedules.md").read_text()
    assert page == REFERENCE.page(), "run: make docs"


@pytest.mark.parametrize("word", WORDS)
def test_each_primitive_says_its_rewrite_and_shows_an_example_that_runs(word):
    source = WORDS[word][0]
    text = inspect.getdoc(source)
    assert text.startswith("rewrite: ") and " --> " in text.split("\n\n")[0]
    found = doctest.DocTestParser().get_doctest(text, {}, word, None, None)
    assert len(found.examples) > 3
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(found, out=failures.append)
    assert not failures, "".join(failures)


def test_whole_schedules_run():
    text = (REFERENCE.WHOLE_SCHEDULES + REFERENCE.COST).replace("```", "")
    found = doctest.DocTestParser().get_doctest(text, {}, "whole", None, None)
    failures: list[str] = []
    doctest.DocTestRunner().run(found, out=failures.append)
    assert not failures and len(found.examples) > 30, "".join(failures)


def test_no_primitive_is_left_out():
    public = {name for owner in (Schedule, StageHandle) for name in vars(owner) if not name.startswith("_")}
    assert public - ASIDE == set(WORDS)
