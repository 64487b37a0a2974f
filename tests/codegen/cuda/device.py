"""Running the CUDA text of a loop nest: on the GPU where there is one, else on the CPU by way of its C++ compiler, arrays next to a
protected page, every access checked (races, bounds, what nothing has been written to)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pytest

from tensorexpr.codegen.cuda.emitter.nest import emit
from tensorexpr.codegen.cuda.emitter.source import Launch, Source
from tensorexpr.codegen.cuda.host import HostKernels, Memory, compiler
from tensorexpr.codegen.cuda.launch.device import Device, Kernels, current_device
from tensorexpr.codegen.cuda.launch.run import run_plan, value
from tensorexpr.codegen.cuda.nvidia import nvrtc
from tensorexpr.codegen.cuda.thread.packs import ALIGNMENT
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.errors import TargetError
from tests.codegen.llvm.nests import guarded


@cache
def gpu() -> Device | None:
    """The GPU of this machine, if it has one."""
    try:
        return current_device()
    except TargetError:
        return None


needs_compiler = pytest.mark.skipif(gpu() is None and compiler() is None, reason="neither a GPU nor a C++ compiler to run CUDA kernels")


class _Ordered:
    def __init__(self, kernels: Kernels, order: int) -> None:
        self.kernels, self.order = kernels, order

    def launch(self, launch: Launch, blocks: tuple[int, int, int], arguments: Sequence[int]) -> None:
        if isinstance(self.kernels, HostKernels):
            self.kernels.launch(launch, blocks, arguments, self.order, late=self.order % 2 == 0)
        else:
            self.kernels.launch(launch, blocks, arguments)


class Program:
    """A nest and its source; the kernels are compiled once, alone or with others (`compiled_together`), for this CPU where that is said."""

    def __init__(self, nest: LoopNest, prefix: str = "", on_cpu: bool = False) -> None:
        self.nest, self.on_cpu = nest, on_cpu
        self.source: Source = emit(nest, prefix)
        self._kernels: Kernels | None = None

    @property
    def kernels(self) -> Kernels:
        if self._kernels is None:
            compiled_together([self])
        assert self._kernels is not None
        return self._kernels

    def __call__(self, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int] | None = None, order: int = 0) -> dict[str, np.ndarray]:
        """The outputs by name. Raises `IndexError` with the numbers of the first check that failed."""
        nest, sizes = self.nest, dict(sizes or {})
        device = None if isinstance(self.kernels, HostKernels) else gpu()  # kernels of this CPU read its memory, GPU or not
        made: dict[str, np.ndarray] = {}
        for b in (*nest.parameters, *nest.workspace):
            if b.name in arrays and b.name not in nest.writes:
                made[b.name] = np.ascontiguousarray(arrays[b.name])
            else:
                shape = tuple(value(e, sizes) for e in b.shape)
                poison = np.nan if b.dtype.is_float else b.dtype.greatest  # negative where it is cut off
                made[b.name] = np.full(shape, poison, b.dtype.numpy)
        made.update((c.name, np.ascontiguousarray(c.data)) for c in nest.constants)
        made["the report"] = np.zeros(3, np.int64)
        held = {name: guarded(a, aligned=ALIGNMENT) if device is None else device.upload(a) for name, a in made.items()}
        addresses = {name: a.ctypes.data if device is None else device.address(a) for name, a in held.items()}
        if isinstance(self.kernels, HostKernels):
            written = {*nest.writes, *(b.name for b in nest.workspace), "the report"}
            filled = {*held} - written | {"the report"}
            self.kernels.watch(
                Memory(name, addresses[name], a.nbytes, a.itemsize, name in filled, name in written) for name, a in held.items()
            )
        run_plan(self.source.plan, _Ordered(self.kernels, order), addresses, sizes, addresses["the report"])
        found = {name: held[name].copy() if device is None else device.read(held[name]) for name in (*nest.writes, "the report")}
        report = found.pop("the report")
        if report[0]:
            raise IndexError(tuple(int(n) for n in (report[0] - 1, *report[1:])))
        return found


def compiled_together(programs: Sequence[Program]) -> None:
    """Compiles the kernels of many programs at once, which takes less time than one by one."""
    device = None if any(p.on_cpu for p in programs) else gpu()
    if device is None:
        kernels: Kernels = HostKernels(*(p.source for p in programs), checked=True)
    else:
        assert device.arch is not None
        text = "\n".join(p.source.text for p in programs)
        source = Source(text, tuple(step for p in programs for step in p.source.plan))
        kernels = device.load(source, nvrtc.compile_text(text, device.arch))
    for p in programs:
        p._kernels = kernels


def run(nest: LoopNest, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int] | None = None, order: int = 0) -> dict[str, np.ndarray]:
    """The outputs of a nest by name."""
    return Program(nest)(arrays, sizes, order)
