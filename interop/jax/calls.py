"""A kernel as a custom call in a program of XLA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

from tensorexpr.interop.jax.handler import Kernel
from tensorexpr.interop.jax.handler_text import ATTRIBUTE, TARGET


def called(context: Any, operands: Sequence[Any], kernel: Kernel, name: str) -> Any:
    """The results of a kernel on operands of a program that is being lowered, which keeps the kernel alive.

    Profilers of XLA show the call as `name`: XLA calls an instruction after the last word of its location. The lowered rule of a primitive
    is kept apart from where it is used, and of its location only the innermost name stays, so nothing else is put there.
    """
    context.module_context.add_keepalive(kernel)
    location: Any = mlir.ir.Location
    with location.name("/".join(filter(None, (str(context.name_stack), name))), childLoc=location.unknown()):
        return jax.ffi.ffi_lowering(TARGET)(context, *operands, **{ATTRIBUTE: np.int64(kernel.number)})
