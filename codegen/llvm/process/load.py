"""Emitted nests to callable code: which of LLVM's passes a nest needs, and what it may call.

Loops that the schedule vectorized need little more than registers for stack slots and common subexpressions; plain
scalar loops get LLVM's vectorizers and its unroller, at two to three times the compile time. Long kernels of sums alone do not: the many
cases that the gradient at a border has are some, and LLVM, which adds floats in order, makes nothing of them in half a second.
"""

from __future__ import annotations

from tensorexpr.codegen.dependence.updates import operation_of
from tensorexpr.codegen.llvm.process.jit import NativeModule, ObjectCode, object_code
from tensorexpr.codegen.llvm.process.pool import pool
from tensorexpr.codegen.llvm.text.machine import Machine, host
from tensorexpr.codegen.nest import For, Kernel, LoopNest, Store
from tensorexpr.codegen.nest.walks import loops_in, operations_written, statements, stores_in
from tensorexpr.traversal import free_names

MOST_OF_SUMS = 500
"""Operations of a kernel of sums that LLVM may look for vectors in."""


def passes_for(nest: LoopNest) -> str:
    """ "loops" where some kernel needs them; else "registers"."""
    return "loops" if any(kernel_passes(kernel) == "loops" for kernel in nest.kernels) else "registers"


def kernel_passes(kernel: Kernel) -> str:
    """ "loops" where a kernel has rolled loops and none of them is vectorized, so that LLVM finds something to do; else "registers"."""
    kinds = {s.kind for s in statements(kernel.body) if isinstance(s, For)}
    plain = kinds & {"serial", "parallel"} and "vectorize" not in kinds
    long = plain and operations_written(kernel.body) > MOST_OF_SUMS
    return "loops" if plain and not (long and _sums_alone(kernel)) else "registers"


def _sums_alone(kernel: Kernel) -> bool:
    """Whether innermost loops do nothing but add up elements of floats, in order."""
    rolled = [loop for loop in loops_in(kernel.body) if loop.kind in ("serial", "parallel")]
    innermost = [loop for loop in rolled if not any(inner.kind in ("serial", "parallel") for inner in loops_in(loop.body))]
    return all(_is_sum(store, loop.index) for loop in innermost for store in stores_in(loop.body))


def _is_sum(store: Store, index: str) -> bool:
    moves = any(index in free_names(i) for i in store.indices)
    return store.value.dtype.is_float and not moves and operation_of(store) == "add"


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
