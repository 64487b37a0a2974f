"""docs/schedules.md is made from the pages of rewrites and the words of the handle; its whole schedules run; no word is left out."""

import doctest
import importlib
import inspect
from pathlib import Path

import pytest

from tensorexpr.codegen.handle import Schedule, StageHandle
from tests.docs.test_language_reference import script

REFERENCE = script("schedule_reference")
WORDS = {word: page for _, words in REFERENCE.FAMILIES for word, page in words}
ASIDE = {"offered", "program", "target", "stages", "copy", "as_python", "loops", "cost", "nest", "calls"}
INSIDE = {"plain", "of_candidate", "of_planned", "buffer_of", "loops_of", "became"}


def test_the_page_is_made_from_the_pages_of_rewrites():
    page = (Path(__file__).resolve().parents[2] / "docs" / "schedules.md").read_text()
    assert page == REFERENCE.page(), "run: make docs"


@pytest.mark.parametrize("word", [word for word, page in WORDS.items() if page is not None])
def test_each_page_shows_what_stands_before_and_after_and_says_when_it_is_legal(word):
    text = inspect.getdoc(importlib.import_module(f"tensorexpr.codegen.rewrites.{WORDS[word]}"))
    assert "-->" in text and "egal" in text


def test_whole_schedules_run():
    text = (REFERENCE.WHOLE_SCHEDULES + REFERENCE.COST).replace("```", "")
    found = doctest.DocTestParser().get_doctest(text, {}, "whole", None, None)
    failures: list[str] = []
    doctest.DocTestRunner().run(found, out=failures.append)
    assert not failures and len(found.examples) > 30, "".join(failures)


def test_the_section_on_gpus_runs():
    found = doctest.DocTestParser().get_doctest(REFERENCE.GPU.replace("```", ""), {}, "gpu", None, None)
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(found, out=failures.append)
    assert not failures and len(found.examples) > 5, "".join(failures)


def test_no_word_is_left_out():
    public = {name for owner in (Schedule, StageHandle) for name in vars(owner) if not name.startswith("_")}
    assert public - ASIDE - INSIDE == set(WORDS)
