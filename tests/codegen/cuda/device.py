"""Running the CUDA text of a loop nest: on the CPU by way of the host's C++ compiler, arrays next to a protected page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from tensorexpr.codegen.cuda.emit import Launch, Source, emit
from tensorexpr.codegen.cuda.host import HostKernels, compiler
from tensorexpr.codegen.cuda.run import run_plan, value
from tensorexpr.codegen.nest import LoopNest
from tests.codegen.llvm.nests import guarded

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to run CUDA kernels on the CPU")


class _Ordered:
    def __init__(self, kernels: HostKernels, order: int) -> None:
        self.kernels, self.order = kernels, order

    def launch(self, launch: Launch, blocks: int, arguments: Sequence[int]) -> None:
        self.kernels.launch(launch, blocks, arguments, self.order)


class Program:
    """A nest and its source; the kernels are compiled once, alone or with others (`compiled_together`)."""

    def __init__(self, nest: LoopNest, prefix: str = "") -> None:
        self.nest = nest
        self.source: Source = emit(nest, prefix)
        self._kernels: HostKernels | None = None

    @property
    def kernels(self) -> HostKernels:
        if self._kernels is None:
            self._kernels = HostKernels(self.source)
        return self._kernels

    def __call__(self, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int] | None = None, order: int = 0) -> dict[str, np.ndarray]:
        """The outputs by name. Raises `IndexError` with the numbers of the first check that failed."""
        nest, sizes = self.nest, dict(sizes or {})
        held: dict[str, np.ndarray] = {}
        for b in (*nest.parameters, *nest.workspace):
            if b.name in arrays and b.name not in nest.writes:
                held[b.name] = guarded(np.ascontiguousarray(arrays[b.name]))
            else:
                shape = tuple(value(e, sizes) for e in b.shape)
                poison = np.nan if b.dtype.is_float else b.dtype.least
                held[b.name] = guarded(np.full(shape, poison, b.dtype.numpy))
        held.update((c.name, guarded(np.ascontiguousarray(c.data))) for c in nest.constants)
        report = np.zeros(3, np.int64)
        addresses = {name: array.ctypes.data for name, array in held.items()}
        run_plan(self.source.plan, _Ordered(self.kernels, order), addresses, sizes, report.ctypes.data)
        if report[0]:
            raise IndexError(tuple(int(n) for n in (report[0] - 1, *report[1:])))
        return {name: held[name].copy() for name in nest.writes}


def compiled_together(programs: Sequence[Program]) -> None:
    """Compiles the kernels of many programs at once, which takes less time than one by one."""
    kernels = HostKernels(*(p.source for p in programs))
    for p in programs:
        p._kernels = kernels


def run(nest: LoopNest, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int] | None = None, order: int = 0) -> dict[str, np.ndarray]:
    """The outputs of a nest by name."""
    return Program(nest)(arrays, sizes, order)
