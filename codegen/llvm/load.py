"""Emitted nests to callable code: which of LLVM's passes a nest needs, and what it may call.

Loops that the schedule vectorized need little more than registers for stack slots and common subexpressions; plain
scalar loops get LLVM's vectorizers and its unroller, at two to three times the compile time.
"""

from __future__ import annotations

from tensorexpr.codegen.llvm.emit_statements import statements
from tensorexpr.codegen.llvm.jit import NativeModule
from tensorexpr.codegen.llvm.machine import Machine, host
from tensorexpr.codegen.llvm.pool import pool
from tensorexpr.codegen.nest import For, LoopNest


def passes_for(nest: LoopNest) -> str:
    """ "loops" where some kernel has rolled loops and none of them is vectorized, so that LLVM finds something to do; else "registers"."""
    for kernel in nest.kernels:
        kinds = {s.kind for s in statements(kernel.body) if isinstance(s, For)}
        if kinds & {"serial", "parallel"} and "vectorize" not in kinds:
            return "loops"
    return "registers"


def load(text: str, machine: Machine | None = None, passes: str = "loops") -> NativeModule:
    """Compiles the text of `emit` for a machine (this one by default); `passes` as in `NativeModule`.

    Raises `InternalError` where the text is not valid IR.
    """
    imports = {"te_parallel_for": pool().parallel_for} if "@te_parallel_for" in text else {}
    return NativeModule(text, machine or host(), passes, imports)
