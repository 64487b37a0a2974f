"""The CPU backend: loop nests to LLVM IR text, machine code in this process, a thread pool, vector mathematics.

Its parts are loaded when they are asked for: an operation needs calls alone (`process/call.py`) before it is compiled.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorexpr.codegen.llvm.emitter.module import emit, entry_name
    from tensorexpr.codegen.llvm.process.jit import NativeModule, ObjectCode
    from tensorexpr.codegen.llvm.process.load import load, passes_for
    from tensorexpr.codegen.llvm.process.native import Interface, NativeCode, NativeFunction, compile_nest, nest_assembly, nest_code
    from tensorexpr.codegen.llvm.process.pool import set_threads
    from tensorexpr.codegen.llvm.process.units import compile_ahead
    from tensorexpr.codegen.llvm.text.abi import workspace_size
    from tensorexpr.codegen.llvm.text.machine import Machine, host

_PLACES = {
    "Interface": "process.native",
    "Machine": "text.machine",
    "NativeCode": "process.native",
    "NativeFunction": "process.native",
    "NativeModule": "process.jit",
    "ObjectCode": "process.jit",
    "compile_ahead": "process.units",
    "compile_nest": "process.native",
    "emit": "emitter.module",
    "entry_name": "emitter.module",
    "host": "text.machine",
    "load": "process.load",
    "nest_assembly": "process.native",
    "nest_code": "process.native",
    "passes_for": "process.load",
    "set_threads": "process.pool",
    "workspace_size": "text.abi",
}
__all__ = [
    "Interface",
    "Machine",
    "NativeCode",
    "NativeFunction",
    "NativeModule",
    "ObjectCode",
    "compile_ahead",
    "compile_nest",
    "emit",
    "entry_name",
    "host",
    "load",
    "nest_assembly",
    "nest_code",
    "passes_for",
    "set_threads",
    "workspace_size",
]

if not TYPE_CHECKING:  # type checkers know what there is

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
        return value
