"""Ops on arrays of any library that shares memory: DLPack, NumPy's and CUDA's array interface."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import sys
import types

import ml_dtypes
import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.cuda.host import compiler
from tensorexpr.dtypes import DTYPES
from tensorexpr.interop.dlpack import read_dlpack


@te.op
def scaled(x, y=None, *, factor=2.0):
    return te.compute(x.shape, lambda *i: factor * x[i] if y is None else factor * x[i] + y[i])


@te.op
def both(x):
    return te.compute(x.shape, lambda *i: -x[i]), (te.compute((), lambda: te.sum(lambda i: x[i], x.shape[0])),)


class Packed:
    """An array that has DLPack alone."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


class Old(Packed):
    """As before version 1 of DLPack."""

    def __dlpack__(self, *, stream=None):
        return self.array.__dlpack__()


class Described:
    """An array that has NumPy's array interface alone."""

    def __init__(self, array, **more):
        self.array, self.more = array, more

    @property
    def __array_interface__(self):
        return self.array.__array_interface__ | self.more


class OnDevice:
    """An array of a GPU for which this CPU stands in."""

    def __init__(self, array):
        self.array = array

    @property
    def __cuda_array_interface__(self):
        interface = self.array.__array_interface__
        return {key: interface[key] for key in ("shape", "typestr", "data", "strides")} | {"version": 3, "stream": 1}


class Library(Packed):
    """An array of a library that follows the array API."""

    def __array_namespace__(self):
        return types.SimpleNamespace(from_dlpack=lambda array: Library(np.from_dlpack(array)))


@pytest.mark.parametrize("kind", [Packed, Old, Described])
def test_memory_that_is_shared_is_computed_on_as_it_is(kind):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for array in (x, x.T, x[:, ::-1], x[:0], x[1, 2:3].reshape(()), x[::2, 1:]):
        found = scaled(kind(array), factor=3.0)
        assert type(found) is np.ndarray and found.tolist() == (3 * array).tolist()
    assert scaled(kind(x), y=x).tolist() == (3 * x).tolist()
    assert scaled(kind(x), kind(x)).tolist() == (3 * x).tolist()
    out = np.empty((2, 3), np.float32)
    assert scaled(kind(x), out=out) is out and out.tolist() == (2 * x).tolist()
    target = kind(np.empty((2, 3), np.float32))
    assert scaled(x, kind(x), out=target) is target and target.array.tolist() == (3 * x).tolist()


def test_results_are_of_the_kind_of_the_caller():
    x = np.arange(3.0)
    found, (total,) = both(Library(x))
    assert type(found) is Library and type(total) is Library and total.array.shape == ()
    assert found.array.tolist() == (-x).tolist() and total.array == 3
    (gradient,) = te.vjp(scaled, wrt=["x"])(Library(x), Library(np.ones(3)))
    assert gradient.array.tolist() == [2, 2, 2]


def test_a_function_of_the_library_takes_results_over(monkeypatch):
    module = types.ModuleType("packing")
    module.from_dlpack = lambda array: Elsewhere(np.from_dlpack(array))
    monkeypatch.setitem(sys.modules, "packing", module)

    class Elsewhere(Packed):
        pass

    Elsewhere.__module__ = "packing.arrays"
    assert type(scaled(Elsewhere(np.ones(2)))) is Elsewhere


@pytest.mark.parametrize("dtype", [d.name for d in DTYPES if d.name != "bfloat16"])
def test_dlpack_of_every_type(dtype):
    x = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    for array in (x, x.T, x[:, ::-1], x[:0], x[0, :1].reshape(())):
        for kind in (Packed, Old):
            found = read_dlpack(kind(array))
            assert found.dtype == dtype and found.shape == array.shape and found.tolist() == array.tolist()
            assert not array.size or found.ctypes.data == array.ctypes.data


def test_bfloat16():
    x = np.array([1, 2, 3], ml_dtypes.bfloat16)
    assert scaled(x).dtype == ml_dtypes.bfloat16
    # NumPy's DLPack does not know it, other libraries' does: the capsule of 16 bits is made to say so.
    capsule = x.view(np.uint16).__dlpack__()
    get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    ctypes.c_uint8.from_address(get_pointer(capsule, b"dltensor") + 20).value = 4
    found = scaled(Given(capsule))
    assert found.dtype == ml_dtypes.bfloat16 and found.tolist() == [2, 4, 6]


class Given:
    """A capsule that was made elsewhere."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, *, stream=None):
        return self.capsule


def test_read_only_memory_stays_so():
    x = np.arange(3.0)
    x.flags.writeable = False
    found = read_dlpack(Packed(x))
    assert not found.flags.writeable and found.ctypes.data == x.ctypes.data
    assert scaled(Packed(x)).tolist() == [0, 2, 4]
    with pytest.raises(te.ArgumentError, match="scaled: out: expected a writeable array, got a read-only one"):
        scaled(np.ones(3), out=read_dlpack(Packed(x)))


def test_the_memory_of_the_producer_lives_as_long_as_what_looks_at_it():
    x = np.arange(1000.0)
    before = sys.getrefcount(x)
    found = read_dlpack(Packed(x))
    part = found[3:5]
    del found
    gc.collect()
    assert sys.getrefcount(x) > before and part.tolist() == [3, 4]
    del part
    gc.collect()
    assert sys.getrefcount(x) == before


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler for GPU kernels on a CPU (g++, clang++, c++)")
def test_arrays_of_a_device(monkeypatch):
    monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for array in (x, x.T, x[:, 1:], x[:0]):
        assert scaled(OnDevice(array), factor=3.0).tolist() == (3 * array).tolist()
    assert scaled(OnDevice(x), OnDevice(x)).tolist() == (3 * x).tolist()
    found, (total,) = both(OnDevice(np.arange(4.0)))
    assert found.tolist() == [0, -1, -2, -3] and total == 6
    (gradient,) = te.vjp(scaled, wrt=["x"])(OnDevice(x), OnDevice(x))
    assert gradient.tolist() == (2 * x).tolist()
    product = te.op(lambda x, s: te.compute(x.shape, lambda i, j: x[i, j] * s[()]))(OnDevice(x), 0.5)
    assert product.dtype == np.float32 and product.tolist() == (x / 2).tolist()
    out = np.empty((2, 3), np.float32)
    assert scaled(OnDevice(x), out=out) is out and out.tolist() == (2 * x).tolist()
    with pytest.raises(te.ArgumentError, match="scaled: argument y: expected an array on host, as others are, got a ndarray"):
        scaled(OnDevice(x), x)


def test_what_cannot_be_shared_is_refused():
    message = "scaled: argument x: expected an array on the CPU or a CUDA device, got one on DLPack's device 10"
    with pytest.raises(te.ArgumentError, match=message):
        scaled(Packed(np.ones(2), (10, 0)))
    message = "scaled: argument y: expected an array whose memory can be shared, got a Packed: expected a dtype of the language, "
    with pytest.raises(te.ArgumentError, match=f"{message}got DLPack's type 5 of 64 bits"):
        scaled(Packed(np.ones(2)), Packed(np.ones(2, np.complex64)))
    with pytest.raises(te.ArgumentError, match="scaled: argument y: expected an array, got a str"):
        scaled(Packed(np.ones(2)), "y")
    with pytest.raises(te.ArgumentError, match="scaled: argument x: expected a dtype of the language, got complex64"):
        scaled(Described(np.ones(2, np.complex64)))
    with pytest.raises(te.ArgumentError, match="array whose memory can be shared, got a Described: its array interface has a mask"):
        scaled(Described(np.ones(2), mask=np.zeros(2, bool)))


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_arrays_of_a_gpu_say_what_is_missing(monkeypatch):
    monkeypatch.delenv("TENSOREXPR_CUDA", raising=False)
    x = np.ones(2)
    for array in (OnDevice(x), Packed(x, (2, 0))):
        with pytest.raises(te.TargetError) as caught:
            scaled(x, array)
        assert "scaled: argument y: expected an array that this machine has code for, got one on a GPU: " in str(caught.value)
        assert "CuPy is not installed" in str(caught.value) and "pip install 'tensorexpr[cuda]'" in str(caught.value)


def test_dlpack_of_another_version():
    class Newer(Packed):
        def __dlpack__(self, *, max_version=None):
            capsule = self.array.__dlpack__(max_version=max_version)
            ctypes.c_uint32.from_address(get_pointer(capsule, b"dltensor_versioned")).value = 2
            return capsule

    get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    with pytest.raises(te.DefinitionError, match=r"expected DLPack of version 1, got 2\.0"):
        read_dlpack(Newer(np.ones(2)))
