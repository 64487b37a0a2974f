"""Kernels as custom calls of XLA on GPUs: programs to cubins and launchers, and the handlers that launch them.

A program is scheduled for a GPU and compiled by NVRTC, without CuPy, for the GPUs that JAX has; what launches it is native code
(`codegen.cuda.launch_text`), and no Python runs in the call. CUDA's driver is loaded when the first kernel is made. JAX keeps the
handlers for a platform that it opens later.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

import jax

from tensorexpr.codegen.compile import fold_constants, machine_of
from tensorexpr.codegen.cuda.launch.driver_text import LIBRARY, SYMBOLS
from tensorexpr.codegen.cuda.launch.launch_text import launches
from tensorexpr.codegen.cuda.launch.plan import Plan
from tensorexpr.codegen.gpu_code import GpuCode
from tensorexpr.codegen.llvm import NativeModule, host
from tensorexpr.codegen.llvm.process.call import words_of
from tensorexpr.codegen.target import code_for
from tensorexpr.errors import TargetError, user_location
from tensorexpr.interop.jax import cuda_text
from tensorexpr.interop.jax.handler import Entry, Handlers, Kernel, addresses_of, common_words, messages_of, number_of
from tensorexpr.ir import Program

PLATFORM = "cuda"
_ENTRY = "te_kernel"


@cache
def handlers() -> Handlers:
    """The handlers of this process for GPUs, registered on first use. Raises `TargetError` where CUDA's driver is not there."""
    return Handlers("CUDA", cuda_text.TEXT, cuda_text.OWN, cuda_text.STRINGS, driver())


def driver() -> dict[str, int]:
    """Where CUDA's driver has what the handlers call. Raises `TargetError` where it is not there, or is too old."""
    path = os.environ.get(LIBRARY) or "libcuda.so.1"
    try:
        library = ctypes.CDLL(path)
        return {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in cuda_text.DRIVER}
    except (OSError, AttributeError) as error:
        raise TargetError(
            f"tensorexpr.interop.jax: expected CUDA's driver as {path}, got: {error}",
            location=user_location(),
            hint=f"{LIBRARY} names its library where the system does not find it",
        ) from None


def architecture(operator: str) -> str:
    """What NVRTC compiles for: the GPUs that JAX has. Raises `TargetError` where it has none, or several kinds."""
    try:
        found = list(dict.fromkeys(str(device.compute_capability) for device in jax.devices(PLATFORM)))
    except RuntimeError:
        found = []
    if len(found) != 1:
        raise TargetError(
            f"{operator}: expected GPUs of one kind in JAX, got {'kinds ' + ', '.join(found) if found else 'none'}",
            location=user_location(),
            hint="CUDA_VISIBLE_DEVICES chooses among them" if found else "jax.device_put(array, jax.devices('cpu')[0])",
        )
    return code_for(found[0].replace(".", ""))


def kernel_of(program: Program, operator: str) -> Kernel:
    """The kernel of a program of constant extents on the GPUs of JAX. Raises `TargetError` where there are none, or where NVRTC or the
    driver is missing."""
    arch = architecture(operator)
    code = gpu_code(program, arch)
    return kernel_with(handlers(), program, code, {arch: code.compiled(arch).cubin})


def gpu_code(program: Program, arch: str | None = None) -> GpuCode:
    """A program on its way to a GPU, with no more shared memory than an architecture has."""
    return GpuCode.of_program(fold_constants(program), machine_of("cuda", arch=arch))


def kernel_with(made_by: Handlers, program: Program, code: GpuCode, images: dict[str, bytes]) -> Kernel:
    """The kernel of a program with machine code by architecture."""
    nest = code.nest
    plan = Plan.of(nest, code.source)
    messages = messages_of(nest.checks)

    def make() -> Entry:
        module = NativeModule.compiled(launches(host().triple, [(_ENTRY, plan, images)]), host(), "none", addresses_of(SYMBOLS))
        words, held = common_words(program, len(program.inputs), messages)
        data = [c.data if c.data.flags.c_contiguous else c.data.copy() for c in nest.constants]
        pointers, lengths = words_of([array.ctypes.data for array in data]), words_of([array.nbytes for array in data])
        words |= {
            "entry": module.address(_ENTRY),
            "constants": len(data),
            "pointers": ctypes.addressof(pointers),
            "lengths": ctypes.addressof(lengths),
            "workspace": plan.workspace_bytes({}),
            "reports": int(plan.reports),
            "read": module.address("te_gpu_read"),
            "unload": module.address(f"{_ENTRY}_unload"),
        }
        return Entry(words, (*held, module, data, pointers, lengths))

    return made_by.kernel(number_of(program, messages, b"cuda", *images.values()), make)
