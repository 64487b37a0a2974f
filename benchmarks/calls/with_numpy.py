"""Calls on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorexpr.benchmarks.calls.square import COUNT, square
from tensorexpr.op.transforms import vjp


def calls() -> dict[str, Callable[[], object]]:
    """NumPy's own multiplication, the op, its gradient, the compiled function, and a run of it in a context."""
    x = np.linspace(0, 1, COUNT, dtype=np.float32)
    y = np.empty_like(x)
    pulled, compiled = vjp(square, wrt="x"), square.compile(x)
    context = compiled.context()
    return {
        "x * x": lambda: x * x,
        "op": lambda: square(x),
        "op into out": lambda: square(x, out=y),
        "compiled function": lambda: compiled(x),
        "run in a context": lambda: compiled.run(context, x=x),
        "vjp(op)": lambda: pulled(x, x),
    }
