"""Every public name has a docstring that says what it raises, and an example that runs: its own, or one on a page."""

from __future__ import annotations

import doctest
import inspect
import re

import numpy as np
import pytest

import tensorexpr as te
from tests.docs.blocks import PAGES, ROOT, blocks

SHOWN = "\n".join(block.code for page in [*PAGES, ROOT / "docs" / "schedules.md"] for block in blocks(page) if block.language == "python")
"""The code of all pages."""
CALLABLE = [
    name
    for name in te.__all__
    if callable(getattr(te, name)) and not (isinstance(getattr(te, name), type) and issubclass(getattr(te, name), Exception | Warning))
]
WITH_EXAMPLES = [name for name in CALLABLE if ">>>" in (inspect.getdoc(getattr(te, name)) or "")]
METHODS = [te.CompiledFunction.profile]
ASIDE = {"arccos", "arcsin", "arctan", "arctan2", "Op", "Program", "Scalar", "DType"}
"""NumPy's names for functions that are shown under ours, and classes whose objects others make."""


def failures(value: object, name: str) -> str:
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(value) or "", {"te": te, "np": np}, name, None, None)
    told: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append)
    return "".join(told)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_example_of_a_docstring_runs(name):
    assert not failures(getattr(te, name), name)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__qualname__)
def test_the_example_of_a_method_runs(method):
    assert ">>>" in (inspect.getdoc(method) or "") and not failures(method, method.__qualname__)


@pytest.mark.parametrize("name", CALLABLE)
def test_every_public_name_is_explained_and_shown(name):
    text = inspect.getdoc(getattr(te, name)) or ""
    assert len(text.split()) > 1
    assert name in WITH_EXAMPLES or name in ASIDE or re.search(rf"\bte\.{name}\b", SHOWN), f"te.{name} is in no example"
