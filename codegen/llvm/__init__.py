"""The CPU backend: loop nests to LLVM IR text, machine code in this process, a thread pool, vector mathematics."""

from tensorexpr.codegen.llvm.emitter.module import emit, entry_name
from tensorexpr.codegen.llvm.process.jit import NativeModule, ObjectCode
from tensorexpr.codegen.llvm.process.load import load, passes_for
from tensorexpr.codegen.llvm.process.native import Interface, NativeCode, NativeFunction, compile_nest, nest_assembly, nest_code
from tensorexpr.codegen.llvm.process.pool import set_threads
from tensorexpr.codegen.llvm.process.units import compile_ahead
from tensorexpr.codegen.llvm.text.abi import workspace_size
from tensorexpr.codegen.llvm.text.machine import Machine, host

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
