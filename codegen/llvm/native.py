"""A compiled nest as something to call: pointers and sizes in, a status out."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from tensorexpr.codegen.llvm.abi import Workspace
from tensorexpr.codegen.llvm.emit import emit, entry_name
from tensorexpr.codegen.llvm.jit import NativeModule
from tensorexpr.codegen.llvm.load import load, passes_for
from tensorexpr.codegen.llvm.machine import Machine, host
from tensorexpr.codegen.nest import LoopNest

_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class NativeFunction:
    """The entry point of a nest in a loaded module (see `abi`). Keeps code and constants alive; any thread may call it.

    The GIL is released while the code runs.
    """

    def __init__(self, nest: LoopNest, module: NativeModule) -> None:
        self.nest = nest
        self.module = module
        self._workspace = Workspace(nest)
        self.address = module.address(entry_name(nest))
        self._function = _SIGNATURE(self.address)
        self._constants = tuple(c.data if c.data.flags.c_contiguous else c.data.copy() for c in nest.constants)
        self._constant_pointers = tuple(c.ctypes.data for c in self._constants)
        self.constants = self._constant_pointers
        self._pointers = ctypes.c_void_p * (len(nest.parameters) + len(nest.constants))
        self._sizes = ctypes.c_int64 * len(nest.sizes)
        self._error = ctypes.c_int64 * 2

    def workspace_size(self, sizes: Sequence[int]) -> int:
        """Bytes of workspace, aligned to 64, that a call with these sizes (in the order of `nest.sizes`) needs."""
        return self._workspace.size(dict(zip(self.nest.sizes, sizes, strict=True)))

    def __call__(self, pointers: Sequence[int], sizes: Sequence[int] = (), workspace: int = 0) -> tuple[int, int, int] | None:
        """Runs on one address per parameter, in order. None when all is well, else (check, index, extent) of the first failure."""
        error = self._error()
        status = self._function(self._pointers(*pointers, *self._constant_pointers), self._sizes(*sizes), workspace, error)
        return None if status == 0 else (status - 1, error[0], error[1])


def compile_nest(nest: LoopNest, machine: Machine | None = None) -> NativeFunction:
    """Emits a nest, loads the text with the passes that suit it, and gives the function."""
    machine = machine or host()
    return NativeFunction(nest, load(emit(nest, machine), machine, passes_for(nest)))
