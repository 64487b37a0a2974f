"""Kernels that need constants alone: what they write is the same in every call, so that it is made once, when code is linked.

    def kernel_0() -> w_staged: (w)                     early:  a nest of kernel_0, whose result is w_staged
    def kernel_1() -> y:        (x, w_staged)           rest:   a nest of kernel_1, of which w_staged is a constant

So the weights of a network, which are constants of it, lie as the loops of its products want them, and no call copies them. The nest as
a whole stays what is proved, printed and interpreted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorexpr.codegen.nest.program import Buffer, Check, Kernel, LoopNest
from tensorexpr.codegen.nest.walks import statements, written
from tensorexpr.ir import Const, Constant, integer
from tensorexpr.records import replace


class Early(NamedTuple):
    """A nest in two: what is made once (None: nothing is), and what a call runs. The results of the first are constants of the second by
    name, whose data stands for their types alone."""

    early: LoopNest | None
    rest: LoopNest


def taken_apart(nest: LoopNest) -> Early:
    """The nest in two. Every kernel is in one of them, in the same order."""
    early = _early(nest)
    if not early:
        return Early(None, nest)
    once = tuple(kernel for number, kernel in enumerate(nest.kernels) if number in early)
    others = tuple(kernel for number, kernel in enumerate(nest.kernels) if number not in early)
    used, needed = ({name for kernel in part for name in kernel.buffers} for part in (once, others))
    made = [b for b in nest.workspace if b.name in used and b.name in needed]
    kept = {b.name for b in nest.parameters} | {b.name for b in nest.workspace if b.name not in used}
    first = replace(
        nest,
        name=f"{nest.name}_early",
        parameters=tuple(replace(b, memory="parameter") for b in made),
        constants=tuple(c for c in nest.constants if c.name in used),
        workspace=tuple(b for b in nest.workspace if b.name in used and b.name not in needed),
        kernels=once,
        writes=tuple(b.name for b in made),
        sizes=(),
        checks=(),
        streams=(),
        ahead=(),
        atomics=(),
    )
    rest = replace(
        nest,
        constants=(*(c for c in nest.constants if c.name in needed), *map(_promised, made)),
        workspace=tuple(b for b in nest.workspace if b.name in kept),
        kernels=others,
        ahead=tuple((name, count) for name, count in nest.ahead if name in kept),
    )
    return Early(first, rest)


def _early(nest: LoopNest) -> set[int]:
    """The numbers of kernels that need constants alone, and write what no others write."""
    if not nest.constants:
        return set()
    known, numbers = {c.name for c in nest.constants}, set()
    own = {b.name for b in nest.workspace if b.within is None and all(isinstance(extent, Const) for extent in b.shape)}
    writes = [written(kernel.body).intersection(kernel.buffers) for kernel in nest.kernels]
    for number, kernel in enumerate(nest.kernels):
        if writes[number] and known.union(writes[number]).issuperset(kernel.buffers) and _may_be_early(kernel, nest, own, writes[number]):
            numbers.add(number)
            known |= writes[number]
    while True:
        others = set().union(*(w for number, w in enumerate(writes) if number not in numbers))
        read = {name for number in numbers for name in nest.kernels[number].buffers}
        lost = {number for number in numbers if not others.isdisjoint(nest.kernels[number].buffers)} if others & read else set()
        if not lost:
            return numbers
        numbers -= lost


def _may_be_early(kernel: Kernel, nest: LoopNest, own: set[str], writes: set[str]) -> bool:
    """Whether nothing but workspace of known extents is written, in one piece, and nothing is checked or depends on sizes."""
    return (
        not nest.sizes
        and own.issuperset(writes)
        and writes.isdisjoint(nest.atomics)
        and not any(isinstance(s, Check) for s in statements(kernel.body))
    )


def _promised(buffer: Buffer) -> Constant:
    """A constant that has no data yet: zeros that take no memory."""
    shape = tuple(map(integer, buffer.shape))
    return Constant(buffer.name, np.broadcast_to(np.zeros((), buffer.dtype.numpy), shape))
