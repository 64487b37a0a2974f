"""What editors and notebooks complete: the public names of the package, and of each object what users take of it."""

from __future__ import annotations

import numpy as np
import pytest

import tensorexpr as te


@te.op
def doubled(x):
    return te.compute(x.shape, lambda i: x[i] * 2, name="C")


A = te.placeholder((4,), name="A")
C = doubled(A)
OBJECTS = {
    "an op": doubled,
    "an op made of another": te.vjp(doubled),
    "a tensor": C,
    "a scalar": te.dim("n"),
    "a schedule": te.schedule(C),
    "a function": te.build(C, [A]),
    "gradients": te.gradient(C, [A], te.placeholder((4,), name="head")),
    "a traced function": te.function(lambda x: x),
    "a variable": te.Variable(np.ones(3)),
    "a context": te.Context({}),
    "a generator": te.Generator(0),
}


def public(value: object) -> list[str]:
    return [name for name in dir(value) if not name.startswith("_")]


@pytest.mark.parametrize("what", OBJECTS)
def test_an_object_offers_what_it_has_for_users(what):
    value = OBJECTS[what]
    assert public(value) == sorted(value.offered)
    for name in value.offered:
        getattr(type(value), name, None) or getattr(value, name)  # UnknownNameError where there is none


def test_the_package_offers_its_public_names():
    assert set(public(te)) | {"__version__"} == set(te.__all__)


def test_the_definitions_of_a_schedule_complete_as_keys():
    assert te.schedule(C)._ipython_key_completions_() == ["C"]


def test_the_words_of_a_schedule_complete():
    assert {"split", "tile", "vectorize", "parallel"} <= set(public(te.schedule(C)["C"]))
