"""Small programs that the tests of storage compile, and the ways to ask whether something is gone."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import tensorexpr as te
from tensorexpr.codegen.cuda.host import compiler
from tensorexpr.ir import Program
from tensorexpr.language import program_of

RNG = np.random.default_rng(4)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def dense(batch: object = 5, initial: object = None) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """x, w and y = tanh(x w)."""
    x = te.placeholder((batch, 6), name="x")
    w = te.placeholder((6, 4), path="layers.0.w", initial=initial)
    y = te.compute((x.shape[0], 4), lambda i, j: te.tanh(te.sum(lambda k: x[i, k] * w[k, j], 6)), name="y")
    return x, w, y


def dense_program(batch: object = 5) -> Program:
    x, w, y = dense(batch)
    return program_of([y], [x, w])


def expected(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.tanh(x.astype(np.float64) @ w)


def close(found: object, wanted: object) -> None:
    np.testing.assert_allclose(np.asarray(found, np.float64), np.asarray(wanted, np.float64), rtol=2e-5, atol=2e-6)


class OnDevice:
    """An array on a GPU (here: on the CPU that stands in for one) as libraries hand theirs over, PyTorch's words for dtypes included."""

    def __init__(self, array: np.ndarray) -> None:
        self.shape, self.dtype = array.shape, f"torch.{array.dtype.name}"
        self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3, "stream": None}


class Bare:
    """The same with the interface alone."""

    def __init__(self, array: np.ndarray) -> None:
        self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3, "stream": None}


def is_gone(reference: weakref.ref) -> bool:
    gc.collect()
    return reference() is None


@pytest.fixture(params=["cpu", "cuda"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both backends; kernels for GPUs run on this CPU."""
    if request.param == "cuda":
        if compiler() is None:
            pytest.skip("no C++ compiler to run CUDA kernels on a CPU")
        monkeypatch.setenv("TENSOREXPR_CUDA", "host")
    return request.param
