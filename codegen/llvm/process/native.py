"""A compiled nest as something to call: pointers and sizes in, a status out.

What a caller must know of the nest is its `Interface`, which is plain data: code kept on disk is run without making its nest.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from tensorexpr.building.progress import step
from tensorexpr.codegen.llvm.emitter.module import emit, entry_name
from tensorexpr.codegen.llvm.process.interrupts import interruptible
from tensorexpr.codegen.llvm.process.jit import NativeModule, ObjectCode, assembly, object_code
from tensorexpr.codegen.llvm.process.load import link, passes_for
from tensorexpr.codegen.llvm.process.pool import pool
from tensorexpr.codegen.llvm.process.units import MOST_TOGETHER, nest_in_units
from tensorexpr.codegen.llvm.text.abi import ENDLESS, Extent, Workspace, padded, plain_value, statements
from tensorexpr.codegen.llvm.text.machine import Machine, host
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.records import as_dict, record

_LONG = 100_000  # characters of a text that LLVM takes tenths of seconds for
_SHORT = 20_000  # statements; code that runs fewer keeps Python's lock
_PACKED = (ctypes.c_int64, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)
_RELEASING, _HOLDING = ctypes.CFUNCTYPE(*_PACKED), ctypes.PYFUNCTYPE(*_PACKED)
_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


@record
class Interface:
    """How a compiled nest is called: the symbol of its entry point, the number of its parameters, the names of its sizes and of
    its constants; the bytes of workspace of known size, and bytes per element and extents of each further buffer; about how many
    statements a call runs."""

    entry: str
    parameters: int
    sizes: tuple[str, ...]
    constants: tuple[str, ...]
    workspace: int
    buffers: tuple[tuple[int, tuple[Extent, ...]], ...]
    work: Extent

    def as_data(self) -> dict[str, Any]:
        """The fields in JSON's types."""
        return as_dict(self)

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> Interface:
        """The interface that `as_data` described."""
        buffers = tuple((int(size), tuple(extents)) for size, extents in data["buffers"])
        sizes, constants = tuple(data["sizes"]), tuple(data["constants"])
        return Interface(data["entry"], data["parameters"], sizes, constants, data["workspace"], buffers, data["work"])

    @staticmethod
    def of(nest: LoopNest) -> Interface:
        """The interface of a nest."""
        space = Workspace(nest)
        constants = tuple(c.name for c in nest.constants)
        return Interface(entry_name(nest), len(nest.parameters), nest.sizes, constants, space.fixed, space.open, statements(nest))


class NativeCode:
    """A nest in linked object code: the address of its entry point (see `abi`), which lives as long as this does."""

    def __init__(self, interface: Interface, code: ObjectCode, machine: Machine) -> None:
        self.interface = interface
        self.module: NativeModule = link(code, machine)
        self.address = self.module.address(interface.entry)


class NativeFunction:
    """The entry point of a nest with the data of its constants. Keeps code and constants alive; any thread may call it.

    The GIL is released while the code runs.
    """

    def __init__(self, code: NativeCode, constants: Sequence[np.ndarray]) -> None:
        self.interface = interface = code.interface
        self.module = code.module
        self.address = code.address
        self._function = _SIGNATURE(self.address)
        self._data = tuple(c if c.flags.c_contiguous else c.copy() for c in constants)
        self.constants = tuple(c.ctypes.data for c in self._data)
        self._pointers = ctypes.c_void_p * (interface.parameters + len(self.constants))
        self._sizes = ctypes.c_int64 * len(interface.sizes)
        self._error = ctypes.c_int64 * 2

    def workspace_size(self, sizes: Sequence[int]) -> int:
        """Bytes of workspace, aligned to 64, that a call with these sizes (in the order of the nest) needs."""
        values = dict(zip(self.interface.sizes, sizes, strict=True))
        lengths = (prod(plain_value(extent, values) for extent in extents) * size for size, extents in self.interface.buffers)
        return self.interface.workspace + sum(padded(length) for length in lengths)

    def is_long(self, sizes: Sequence[int]) -> bool:
        """Whether a call with these sizes takes longer than giving up Python's lock and having it back."""
        return self._statements(sizes) > _SHORT

    def statements(self, sizes: Sequence[int]) -> int | None:
        """About how many statements a call with these sizes runs; None where data say."""
        found = self._statements(sizes)
        return None if found >= ENDLESS else found

    def _statements(self, sizes: Sequence[int]) -> int:
        return plain_value(self.interface.work, dict(zip(self.interface.sizes, sizes, strict=True)))

    def __call__(self, pointers: Sequence[int], sizes: Sequence[int] = (), workspace: int = 0) -> tuple[int, int, int] | None:
        """Runs on one address per parameter, in order. None when all is well, else (check, index, extent) of the first failure."""
        error = self._error()
        arguments = self._pointers(*pointers, *self.constants), self._sizes(*sizes), workspace, error
        status = pool().run(lambda: self._function(*arguments))
        return None if status == 0 else (status - 1, error[0], error[1])

    def entry(self, sizes: Sequence[int], release: bool, checked: bool) -> Callable[[Sequence[int], int], tuple[int, int, int] | None]:
        """A call with these sizes made ready: the function of the addresses and the workspace, packed instead of converted one by one.

        The GIL is held where `release` says no (the code is over sooner than the lock is had back). Without `checked` nothing fails.
        """
        function, watched = (_RELEASING if release else _HOLDING)(self.address), pool().run
        pack = struct.Struct(f"{self.interface.parameters + len(self.constants)}q").pack
        extents, constants, error_type = struct.pack(f"{len(sizes)}q", *sizes), self.constants, self._error

        def run(pointers: Sequence[int], workspace: int) -> tuple[int, int, int] | None:
            error = error_type() if checked else None
            if release:
                packed = pack(*pointers, *constants)
                status = watched(lambda: function(packed, extents, workspace, error))
            else:
                status = function(pack(*pointers, *constants), extents, workspace, error)
            return None if not status or error is None else (status - 1, error[0], error[1])

        run.owner = self  # type: ignore[attr-defined]  # functions take attributes
        return run


def nest_code(nest: LoopNest, machine: Machine | None = None, whole: bool = False) -> ObjectCode:
    """The object code of a nest, made with the passes that suit it; in one object file where it is to be `whole`."""
    machine = machine or host()
    step("text of its code")
    if len(nest.kernels) > MOST_TOGETHER and not whole:
        return nest_in_units(nest, machine)
    text = emit(nest, machine)
    step("machine code")
    return interruptible(lambda: object_code(text, machine, passes_for(nest)), len(text) >= _LONG)


def nest_assembly(nest: LoopNest, machine: Machine | None = None) -> str:
    """The object code of a nest as assembly text."""
    machine = machine or host()
    return assembly(emit(nest, machine), machine, passes_for(nest))


def compile_nest(nest: LoopNest, machine: Machine | None = None) -> NativeFunction:
    """Compiles a nest, links it, and gives the function."""
    machine = machine or host()
    return NativeFunction(NativeCode(Interface.of(nest), nest_code(nest, machine), machine), [c.data for c in nest.constants])
