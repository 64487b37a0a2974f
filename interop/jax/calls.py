"""A kernel as a custom call in a program of XLA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from tensorexpr.interop.jax.handler import Kernel
from tensorexpr.interop.jax.handler_text import ATTRIBUTE, TARGET


def called(context: Any, operands: Sequence[Any], kernel: Kernel) -> Any:
    """The results of a kernel on operands of a program that is being lowered, which keeps the kernel alive."""
    context.module_context.add_keepalive(kernel)
    return jax.ffi.ffi_lowering(TARGET)(context, *operands, **{ATTRIBUTE: np.int64(kernel.number)})
