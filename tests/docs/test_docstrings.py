"""Every public name has a docstring with an example that runs."""

from __future__ import annotations

import doctest
import inspect

import numpy as np
import pytest

import tensorexpr as te

CALLABLE = [
    name
    for name in te.__all__
    if callable(getattr(te, name)) and not (isinstance(getattr(te, name), type) and issubclass(getattr(te, name), Exception | Warning))
]
WITH_EXAMPLES = [name for name in CALLABLE if ">>>" in (inspect.getdoc(getattr(te, name)) or "")]
METHODS = [te.CompiledFunction.profile]
ASIDE = {"Op", "Program", "Scalar", "DType"}
"""Classes whose objects others make."""


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


@pytest.mark.parametrize("name", sorted(set(CALLABLE) - set(WITH_EXAMPLES)))
def test_a_public_name_without_an_example_is_a_class_that_others_make(name):
    assert name in ASIDE and len((inspect.getdoc(getattr(te, name)) or "").split()) > 1
