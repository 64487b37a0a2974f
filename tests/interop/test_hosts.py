"""The registry of hosts: who computes an op on arrays of another library."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.op import hosts


@te.op
def scale(x, y=None, *, factor=2.0):
    return te.compute(x.shape, lambda *i: factor * x[i] if y is None else factor * x[i] + y[i])


class Array:
    """An array of a made-up library."""

    def __init__(self, data):
        self.data = data


Array.__module__ = "madeup.arrays"


class Mine(Array):
    """A user's type derived from the library's."""


@pytest.fixture
def calls(monkeypatch):
    seen = []

    class Host:
        def call(self, operation, trees, static, out):
            seen.append((operation, trees, static, out))
            return Array(operation(*[tree.data for tree in trees if tree != ()], **static))

    module = types.ModuleType("madeup_host")
    module.HOST = Host()
    monkeypatch.setitem(sys.modules, "madeup_host", module)
    monkeypatch.setitem(hosts.MODULES, "madeup", "madeup_host")
    return seen


@pytest.mark.parametrize("kind", [Array, Mine])
def test_the_host_of_a_type_or_of_a_base_of_it_computes(calls, kind):
    x = kind(np.ones(3, np.float32))
    result = scale(x, factor=3.0)
    assert type(result) is Array and result.data.tolist() == [3, 3, 3]
    assert calls == [(scale, [x, ()], {"factor": 3.0}, None)]
    result = te.vjp(scale)(x, kind(np.ones(3, np.float32)))
    assert result.data[0].tolist() == [2, 2, 2] and len(calls) == 2


def test_numpy_arrays_and_scalars_have_no_host(calls):
    assert scale(np.ones(2)).tolist() == [2, 2] and scale(1.5, 1).tolist() == 4 and not calls
    assert hosts.host_of([np.ones(2), 1.0, np.float32(1), np.ma.ones(2), (), None, "x"]) is None


def test_objects_of_nobody_are_refused(calls):
    with pytest.raises(te.ArgumentError, match=r"scale: argument x: expected an array or a te tensor, got an object"):
        scale(object())
