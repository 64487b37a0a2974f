"""A compiled function once more, with the clock read between its kernels: what it runs is the same code, kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter, perf_counter_ns

import numpy as np

from tensorexpr.codegen.llvm import Interface, NativeCode, NativeFunction, emit, host, passes_for
from tensorexpr.codegen.llvm.process.jit import object_code
from tensorexpr.codegen.nest import LoopNest

_WARM = 5
"""Runs before any is timed: short loops are tried alone and together in the first few."""
_LEAST, _MOST = 5, 2000
"""Runs that are timed."""


class Stamped:
    """A nest with the clock read before its first kernel and behind each: `nanoseconds(run)` are those of every kernel by run."""

    def __init__(self, nest: LoopNest, constants: Sequence[np.ndarray]) -> None:
        self.stamps = np.zeros((len(nest.kernels) + 1, 2), np.int64)
        code = object_code(emit(nest, host(), stamped=True), host(), passes_for(nest))
        self.native = NativeFunction(NativeCode(Interface.of(nest), code, host()), [*constants, self.stamps])

    def nanoseconds(self, run: Callable[[NativeFunction], None], seconds: float) -> np.ndarray:
        """Runs for so many seconds, some times at least; a row for each run that is timed, a column for each kernel."""
        for _ in range(_WARM):
            run(self.native)
        rows: list[np.ndarray] = []
        begun = perf_counter()
        while len(rows) < _LEAST or (perf_counter() - begun < seconds and len(rows) < _MOST):
            run(self.native)
            rows.append(np.diff(self.stamps[:, 0] * 1_000_000_000 + self.stamps[:, 1]))
        return np.stack(rows)


def median_call(call: Callable[[], object], seconds: float) -> float:
    """The median nanoseconds of calls from Python, for so many seconds."""
    for _ in range(_WARM):
        call()
    times: list[int] = []
    begun = perf_counter()
    while len(times) < _LEAST or (perf_counter() - begun < seconds and len(times) < _MOST):
        before = perf_counter_ns()
        call()
        times.append(perf_counter_ns() - before)
    return float(median(times))
