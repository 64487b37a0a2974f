"""Compile, run, drop, again and again: what is left of it. `python -m tests.runtime.cycles 10000` prints a line every twentieth of the way.

Every cycle has programs of its own, so that nothing is found in memory or on disk: an op with a constant and its gradient, called through
arrays. One in eight is a sine, with its tables; the others are a square, which takes LLVM a third of the time.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
import weakref
from typing import NamedTuple

import numpy as np

import tensorexpr as te


class Sample(NamedTuple):
    """After so many cycles: MiB of memory of the process, objects that Python's collector knows, memory maps."""

    cycles: int
    memory: float
    objects: int
    maps: int

    def __str__(self) -> str:
        return f"{self.cycles:6d} cycles  {self.memory:7.1f} MiB  {self.objects:8d} objects  {self.maps:5d} maps"


def cycle(number: int) -> list[weakref.ref]:
    """One cycle; weak references to what should be dead after it."""
    factor = 1.0 + number / 1024
    value, slope = (te.sin, np.cos) if number % 8 == 0 else (lambda v: v * v, lambda v: 2 * v)

    @te.op
    def scale(x):
        c = te.constant(factor * np.ones(5))
        return te.compute(x.shape, lambda i: value(x[i] * c[i]) + number)

    x = np.arange(5.0)
    wanted = np.sin(x * factor) if number % 8 == 0 else (x * factor) ** 2
    np.testing.assert_allclose(scale(x), wanted + number, rtol=1e-13, atol=1e-12)
    derived = te.vjp(scale)
    (gradient,) = derived(x, np.ones(5))
    np.testing.assert_allclose(gradient, factor * slope(x * factor), rtol=1e-13, atol=1e-11)
    compiled = scale.compile(x)
    compiled(x)
    return [weakref.ref(value) for value in (scale, derived, compiled)]


def sample(cycles: int) -> Sample:
    """The state of the process now, after a collection; memory that the C library holds for later is given back first."""
    gc.collect()
    if hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as statm, open("/proc/self/maps") as maps:
        pages = int(statm.read().split()[1])
        return Sample(cycles, pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(gc.get_objects()), sum(1 for _ in maps))


def run(count: int, first: int = 0) -> tuple[Sample, int]:
    """So many cycles from a number on: the state after them, and how many of their objects still live."""
    references = [reference for number in range(first, first + count) for reference in cycle(number)]
    state = sample(first + count)
    return state, sum(reference() is not None for reference in references)


def main(count: int) -> None:
    """Prints states on the way."""
    start = time.perf_counter()
    for step in range(20):
        state, alive = run(count // 20, step * (count // 20))
        print(f"{state}  {alive} alive  {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
