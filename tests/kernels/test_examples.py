"""Every kernel has an example in its docstring, and it shows what the kernel gives. The examples run naively: all compiled forms are
compared with the same meaning elsewhere, and compiling 382 kernels takes ten times as long."""

import doctest
import inspect

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr import kernels
from tensorexpr.codegen import compile


class Interpreted:
    """A compiled function by the meaning of its program."""

    plan = None

    def __init__(self, results, inputs):
        self.results, self.inputs = results, inputs

    def __call__(self, *arrays, out=None):
        return te.evaluate(self.results, dict(zip(self.inputs, arrays, strict=True)))

    def known_as(self, name):
        return self


@pytest.fixture(autouse=True)
def naive(monkeypatch):
    monkeypatch.setattr(compile, "build", lambda results, inputs, target, precision: Interpreted(results, inputs))


@pytest.mark.parametrize("name", kernels.__all__)
def test_a_kernel_shows_what_it_does(name):
    names = {"np": np, "te": te, "kernels": kernels}
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(getattr(kernels, name)), names, name, None, None)
    assert any(f"kernels.{name}(" in example.source for example in test.examples)
    told: list[str] = []
    doctest.DocTestRunner().run(test, out=told.append)
    assert not told, "".join(told)
