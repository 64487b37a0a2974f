"""Nests that emitters treat as a whole, beside the naive interpreter: values, and every element around them, bit by bit.

What a nest does not write keeps what was there, in the interpreter and natively, on arrays that end or begin at a protected page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tensorexpr.codegen.llvm import Machine, compile_nest, host
from tensorexpr.codegen.nest import Block, Buffer, CheckSite, Kernel, LoopNest
from tensorexpr.codegen.nest.interpret import Machine as Interpreter
from tests.codegen.llvm.nests import guarded, shape_of


class Case(NamedTuple):
    """Statements, and the buffers that they read and write."""

    sources: Sequence[Buffer]
    target: Buffer
    body: Block


def machines() -> list[Machine]:
    """This machine, and those with shorter vectors that it is, too."""
    here = host()
    smaller = [("x86-64-v3", 256), ("x86-64", 128)] if here.architecture == "x86_64" and here.vector_bits >= 256 else []
    return [here, *(Machine(here.triple, cpu, "", bits) for cpu, bits in smaller if bits < here.vector_bits)]


def filled(array: Buffer, seed: int) -> np.ndarray:
    """Numbers that are all exact, of a buffer of constant shape."""
    extents = [int(e.value) for e in array.shape]  # type: ignore[attr-defined]
    draw = np.random.default_rng(seed).integers(0, 2 if array.dtype.is_bool else 100, extents)
    return draw.astype(array.dtype.numpy)


def assert_agree(cases: Sequence[Case], machine: Machine, streams: bool = False, ahead: int = 0, sites: int = 0) -> str:
    """Runs kernels, one for each case (buffers of different cases have different names), natively and naively; gives the nest's text."""
    parameters = list(dict.fromkeys(b for case in cases for b in (*case.sources, case.target)))
    writes = [case.target.name for case in cases]
    kernels = tuple(Kernel(f"k{n}", case.body) for n, case in enumerate(cases))
    hints = tuple((b.name, ahead) for b in parameters if ahead and b.name not in writes)
    checks = tuple(CheckSite("X[K]", "X", 0, "Y", None) for _ in range(sites))
    past = tuple(writes) if streams else ()
    nest = LoopNest("t", tuple(parameters), (), (), kernels, tuple(writes), checks=checks, streams=past, ahead=hints)
    data = {b.name: filled(b, seed) for seed, b in enumerate(parameters)}
    function = compile_nest(nest, machine)
    naive = Interpreter(nest, dict(data), {})
    naive.arrays.update({name: array.copy() for name, array in data.items()})
    for kernel in kernels:
        naive.block(kernel.body, {})
    for before in (False, True):
        arrays = [guarded(data[b.name], before) for b in parameters]
        assert function([a.ctypes.data for a in arrays], [], 0) is None
        for found, b in zip(arrays, parameters, strict=True):
            assert shape_of(b) == found.size
            if found.tobytes() != naive.arrays[b.name].tobytes():
                body = next((case.body for case in cases if case.target.name == b.name), None)
                raise AssertionError(f"{b.name}: native and naive results differ on {machine.cpu}\n{body}\n{found}\n{naive.arrays[b.name]}")
    return str(nest)
