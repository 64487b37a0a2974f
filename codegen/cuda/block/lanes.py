"""Loops over the lanes of a region, and what accesses below them ask for: the element of the own lane, or one at the own place."""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr.codegen.cuda.block.shuffles import Warps
from tensorexpr.codegen.cuda.thread.expressions import row_major
from tensorexpr.codegen.nest import THREADS, Block, For, Stmt, Store
from tensorexpr.codegen.nest.walks import expressions_of, inside
from tensorexpr.ir import Access, Const, Expr, Index, integer
from tensorexpr.regions import affine_of
from tensorexpr.traversal import walk


def is_lanes(s: Stmt) -> bool:
    """Whether a statement outside of loops over lanes is one."""
    return isinstance(s, For) and (s.kind == "vectorize" or s.kind in THREADS)


def lanes_of(s: For) -> int:
    return integer(s.stop) - integer(s.start)


def lane_loops(block: Block) -> Iterator[For]:
    for s in block:
        if isinstance(s, For) and is_lanes(s):
            yield s
        else:
            yield from lane_loops(inside(s))


def _is_number(lane: For | None, threads: int) -> bool:
    """Whether the number of an iteration over lanes is that of the thread that makes it."""
    if lane is None or lane.kind in THREADS or isinstance(lane, Warps):
        return False
    return isinstance(lane.start, Const) and lane.start.value == 0 and lanes_of(lane) <= threads


def is_own(indices: tuple[Expr, ...], lane: For | None, threads: int) -> bool:
    """Whether an access asks for the element of its own lane, as every thread has one."""
    if lane is None or not indices or not _is_number(lane, threads):
        return False
    last = indices[-1]
    others = {n.name for i in indices[:-1] for n in walk(i) if isinstance(n, Index)}
    return isinstance(last, Index) and last.name == lane.index and lane.index not in others


def is_placed(indices: tuple[Expr, ...], shape: tuple[Expr, ...], lane: For, threads: int) -> bool:
    """Whether the place that an access asks for is the number of its thread, but for multiples of the number of threads: rows of several
    axes that the threads go through side by side are nobody else's from one step to the next."""
    if not indices or len(indices) != len(shape) or not _is_number(lane, threads):
        return False
    position = row_major(indices, shape)
    form = affine_of(position) if position is not None else None
    if form is None or form.constant % threads:
        return False
    return sum(factor == 1 for name, factor in form.terms if name == lane.index) == 1 and all(
        factor % threads == 0 for name, factor in form.terms if name != lane.index
    )


def accesses(s: Stmt, lane: For | None) -> Iterator[tuple[str, tuple[Expr, ...], bool, For | None]]:
    """Every access below a statement: buffer, indices, whether a write, the loop over lanes around it."""
    own = (s.start, s.stop) if isinstance(s, For) else expressions_of(s)
    for node in (n for e in own for n in walk(e) if isinstance(n, Access)):
        yield node.tensor, node.indices, False, lane
    if isinstance(s, Store):
        yield s.buffer, s.indices, True, lane
    inner = s if isinstance(s, For) and is_lanes(s) and lane is None else lane
    for below in inside(s):
        yield from accesses(below, inner)
