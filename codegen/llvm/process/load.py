"""Emitted nests to callable code: which of LLVM's passes a nest needs, and what it may call.

Loops that the schedule vectorized need little more than registers for stack slots and common subexpressions; plain
scalar loops get LLVM's vectorizers and its unroller, at two to three times the compile time.
"""

from __future__ import annotations

from tensorexpr.codegen.llvm.process.jit import NativeModule, ObjectCode, object_code
from tensorexpr.codegen.llvm.process.pool import pool
from tensorexpr.codegen.llvm.text.machine import Machine, host
from tensorexpr.codegen.nest import For, Kernel, LoopNest
from tensorexpr.codegen.nest.walks import statements


def passes_for(nest: LoopNest) -> str:
    """ "loops" where some kernel needs them; else "registers"."""
    return "loops" if any(kernel_passes(kernel) == "loops" for kernel in nest.kernels) else "registers"


def kernel_passes(kernel: Kernel) -> str:
    """ "loops" where a kernel has rolled loops and none of them is vectorized, so that LLVM finds something to do; else "registers"."""
    kinds = {s.kind for s in statements(kernel.body) if isinstance(s, For)}
    return "loops" if kinds & {"serial", "parallel"} and "vectorize" not in kinds else "registers"


def link(code: ObjectCode, machine: Machine | None = None) -> NativeModule:
    """Links object code into this process, with the thread pool where it asks for it.

    Raises `InternalError` where it calls what is not there.
    """
    imports = {"te_parallel_for": pool().parallel_for} if any(b"te_parallel_for" in image for image in code.images) else {}
    return NativeModule(code, machine or host(), imports)


def load(text: str, machine: Machine | None = None, passes: str = "loops") -> NativeModule:
    """Compiles the text of `emit` for a machine (this one by default) and links it; `passes` as in `object_code`.

    Raises `InternalError` where the text is not valid IR or calls what is not there.
    """
    machine = machine or host()
    return link(object_code(text, machine, passes), machine)
