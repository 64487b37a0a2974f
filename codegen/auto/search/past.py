"""Results that are written past the caches: memory is not read before it is written, and what the caches hold stays.

It pays where a call surely touches more than the last cache holds (of what is read through indices that are data, it may be one row), and
results come fast enough for memory to be what is waited for. Lines have to be written whole: by lanes that lie side by side, in rows that
begin where vectors do. A result that is small beside the cache stays there.
"""

from __future__ import annotations

from math import prod

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.cost import Model
from tensorexpr.codegen.auto.features import LINE
from tensorexpr.codegen.auto.machine import Facts
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.auto.tiles.survey import alone
from tensorexpr.codegen.lowering.arithmetic import constant, sub
from tensorexpr.codegen.nest import Buffer, For, LoopNest
from tensorexpr.codegen.rewrites.expressions import elements_read, stores_in
from tensorexpr.codegen.rewrites.paths import walk_block
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access
from tensorexpr.regions import Opaque, affine_of
from tensorexpr.traversal import free_names, walk

SHARE = 4
"""Parts of the last cache of which a result is more than one."""


def past_caches(candidate: Candidate, facts: Facts) -> Candidate:
    """The candidate with results written past the caches, where that pays."""
    nest = candidate.nest
    sizes = {b.name: prod(float(constant(e) or 0) for e in b.shape) * b.dtype.itemsize for b in nest.parameters}
    sure = {
        a.tensor for kernel in nest.kernels for a in elements_read(kernel.body) if not any(isinstance(n, Access) for n in walk(a) if n != a)
    }
    if nest.sizes or sum(sizes[name] for name in sizes if name in sure or name in nest.writes) <= facts.caches[-1]:
        return candidate
    for b in nest.parameters:
        if b.name in nest.writes and SHARE * sizes[b.name] > facts.caches[-1] and _is_in_whole_lines(nest, b) and _waits(nest, b, facts):
            try:
                candidate = candidate.then("stream", b.name)
            except ScheduleError:
                continue
    return candidate


def _is_in_whole_lines(nest: LoopNest, b: Buffer) -> bool:
    """Whether lanes that store to a buffer lie side by side, in rows of whole vectors."""
    row = (constant(b.shape[-1]) or 0) * b.dtype.itemsize if len(b.shape) > 1 else LINE
    lanes = [s for kernel in nest.kernels for _, s in walk_block(kernel.body) if isinstance(s, For) and s.kind == "vectorize"]
    found = [(s, store) for s in lanes for store in stores_in(s.body) if store.buffer == b.name]
    for s, store in found:
        width = (constant(sub(s.stop, s.start)) or 1) * b.dtype.itemsize
        form = affine_of(store.indices[-1], Opaque())
        if form is None or form.coefficient(s.index) != 1 or any(s.index in free_names(e) for e in store.indices[:-1]):
            return False
        if (width % LINE and width & (width - 1)) or row % min(width, LINE):
            return False
    return bool(found)


def _waits(nest: LoopNest, b: Buffer, facts: Facts) -> bool:
    """Whether what stores to a buffer waits for memory half of its time."""
    for number, kernel in enumerate(nest.kernels):
        if any(store.buffer == b.name for store in stores_in(kernel.body)):
            times = Model(summary_of(alone(nest, number)), facts).explained()
            return 2 * float(times.levels[-1].sum()) >= float(times.total[0])
    return False
