"""What no nest of some kernels goes below, by the model of cost: where one comes close, a search is over.

Buffers come once through the level of memory that holds them all, and arithmetic is done in whole registers as the program has it. That of
indices does not count: between borders there is none. Terms that several statements compute, give or take indices, count once: one loop
may serve all of them, or one of them keep it for the others.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from math import inf, prod

from tensorexpr.codegen.auto.features import LINE
from tensorexpr.codegen.auto.machine import Facts
from tensorexpr.codegen.auto.operations import ARITHMETIC, operations_of
from tensorexpr.codegen.auto.points import typical
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.auto.summary import Summary, Touch
from tensorexpr.codegen.auto.tiles.survey import SHORT_SUM, exponents
from tensorexpr.codegen.llvm.text.machine import host
from tensorexpr.codegen.lowering.context.arithmetic import constant, sub
from tensorexpr.codegen.nest import Block, For, LoopNest, Store
from tensorexpr.codegen.nest.walks import inside
from tensorexpr.codegen.rewrites.data.keep import shape_of
from tensorexpr.codegen.rewrites.loops import unroll
from tensorexpr.codegen.rewrites.paths import walk_block
from tensorexpr.interpret import extent_value
from tensorexpr.ir import Apply, Expr
from tensorexpr.traversal import free_names, tensors_read


def least(nest: LoopNest, facts: Facts, buffers: Container[str]) -> float:
    """Nanoseconds on one thread that no nest of the same work goes below, of whose buffers those are in memory."""
    nest = _with_powers(nest)
    summary = summary_of(nest)
    size = _bytes(summary, buffers)
    moved = size / LINE * (0.0, *facts.lines)[sum(size > level for level in facts.caches)]
    arithmetic = 0.0
    for work in summary.work:
        if work.kind == ARITHMETIC:
            often = prod(summary.loops[loop].extent for loop in work.path if loop in work.changed or summary.loops[loop].extent < 1)
            arithmetic += often * work.share * work.instructions * work.size * 8 / facts.vector_bits * facts.arithmetic
    return max(moved, arithmetic - _repeated(nest) * 8 / facts.vector_bits * facts.arithmetic)


def least_from_memory(nest: LoopNest, facts: Facts, buffers: Container[str]) -> float:
    """Nanoseconds that any nest of the same work waits for memory beyond the caches."""
    size = _bytes(summary_of(nest), buffers)
    return size / LINE * facts.lines[-1] if size > facts.caches[-1] else 0.0


def _bytes(summary: Summary, buffers: Container[str]) -> float:
    """What is touched of some buffers, each element once."""
    touched: dict[int, float] = {}
    for touch in summary.touches:
        memory = summary.buffers[touch.buffer]
        if not memory.local and memory.name in buffers:
            whole = prod(memory.extents)
            touched[touch.buffer] = min(whole, touched.get(touch.buffer, 0.0) + _elements(summary, touch))
    return sum(elements * summary.buffers[buffer].size for buffer, elements in touched.items())


def _elements(summary: Summary, touch: Touch) -> float:
    """The elements that an access touches, at most."""
    axes = {axis for moves in touch.moves for axis, step in moves if step}
    return prod(summary.loops[n].extent for n in touch.path if summary.loops[n].axis in axes or n in touch.random) * touch.share


def _with_powers(nest: LoopNest) -> LoopNest:
    """The nest with short loops that exponents change with copied out."""
    for name in sorted({name for kernel in nest.kernels for name in exponents(kernel.body)}):
        own = [s for kernel in nest.kernels for _, s in walk_block(kernel.body) if isinstance(s, For) and s.index == name]
        if all(s.kind == "serial" and (constant(sub(s.stop, s.start)) or inf) <= SHORT_SUM for s in own):
            nest = unroll(nest, name)
    return nest


def _repeated(nest: LoopNest) -> float:
    """Instructions, each times the bytes of an element, of terms that the statement that computes most of them computes as well."""
    found: dict[object, list[float]] = {}
    sizes = typical(nest)
    for kernel in nest.kernels:
        for value, loops in _values(kernel.body, ()):
            own: dict[object, float] = {}
            terms = dict(operations_of(value))
            fused = {product for term in terms for product in _fused(term)}
            for term, count in terms.items():
                if term in fused:
                    continue
                names, shape = set(free_names(term)), shape_of(term)
                often = prod(_length(s, sizes) for s in loops if s.index in names)
                own[shape] = own.get(shape, 0.0) + often * term.args[-1].dtype.itemsize * dict(count).get(ARITHMETIC, 0.0)
            for shape, taken in own.items():
                found.setdefault(shape, []).append(taken)
    return sum(sum(times) - max(times) for times in found.values())


def _length(loop: For, sizes: Mapping[str, int]) -> int:
    """How many iterations a loop has at some sizes; one where that depends on loops around it, or on data."""
    length = sub(loop.stop, loop.start)
    return 1 if free_names(length) or tensors_read(length) else max(1, extent_value(length, sizes))


def _fused(term: Apply) -> tuple[Expr, ...]:
    """The product that a sum of two is one instruction with, as the model counts them."""
    if term.op.name not in ("add", "sub") or not host().fuses:
        return ()
    return tuple(a for a in term.args if isinstance(a, Apply) and a.op.name == "mul")[:1]


def _values(block: Block, loops: tuple[For, ...]) -> Iterator[tuple[Expr, tuple[For, ...]]]:
    """What is stored in a block, each with the loops around it."""
    for s in block:
        if isinstance(s, Store):
            yield s.value, loops
        yield from _values(inside(s), (*loops, s) if isinstance(s, For) else loops)
