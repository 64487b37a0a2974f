"""Loops that a schedule binds to a GPU: which of them are its grid and the threads of its blocks, and which are loops after all.

Blocks are the loops bound to them that stand directly inside each other at the outside of a kernel, each axis once. Threads are those
that stand inside each other with nothing but conditions between, each axis once, outside of all other lanes; around them all threads
do the same. What is bound
further inside (a rest of a split, a loop below statements of its own) is run by every thread from beginning to end, which means
the same.

Where loops are bound to the lanes of a warp, the threads along x are these, and loops bound to the others are the warps of the block,
directly inside each other around all that a warp does. Where they stand otherwise, no loop is in the lanes of a warp.
"""

from __future__ import annotations

from dataclasses import replace

from tensorexpr.codegen.nest import GRID, IN_WARP, LANES, THREADS, Block, Check, For, If, Stmt
from tensorexpr.codegen.nest.walks import loops_in, statements, with_blocks
from tensorexpr.ir import Const


def grid_of(loop: For) -> tuple[tuple[For, ...], Block]:
    """The loops that are the grid, from the outermost inwards, and what a block does."""
    loops = [loop]
    if loop.kind in GRID:
        while len(loops[-1].body) == 1:
            inner = loops[-1].body[0]
            if not isinstance(inner, For) or inner.kind not in GRID or any(inner.kind == o.kind for o in loops):
                break
            loops.append(inner)
    return tuple(loops), loops[-1].body


def settled(body: Block) -> Block:
    """What a block does, with the kinds of blocks and threads on those loops alone that are run by them; where loops are bound to
    threads, lanes outside of them are none."""
    if in_warps(body):
        return with_inside(body, _of_warp(inside_warps(body)))
    return _settled(body, _has(body, THREADS))


def _has(body: Block, kinds: tuple[str, ...]) -> bool:
    """Whether some loop is of these kinds; those of threads have constant bounds."""
    return any(s.kind in kinds and isinstance(s.start, Const) and isinstance(s.stop, Const) for s in loops_in(body))


def in_warps(body: Block) -> bool:
    """Whether what a block does is done by warps, each for itself."""
    inner = inside_warps(body)
    return _has(inner, (IN_WARP,)) and not _has(inner, THREADS)


def inside_warps(body: Block) -> Block:
    """What a warp does: what stands in the loops over the warps of a block."""
    taken = {THREADS[0]}
    while (loop := _only(body)) is not None and _is_threads(loop) and loop.kind not in taken:
        taken.add(loop.kind)
        body = loop.body
    return body


def with_inside(body: Block, made: Block) -> Block:
    """The loops over the warps of a block around something else."""
    inner = inside_warps(body)
    if body is inner:
        return made
    (only,) = body
    if isinstance(only, If):
        return (replace(only, then=with_inside(only.then, made)),)
    return (replace(only, body=with_inside(only.body, made)),) if isinstance(only, For) else made


def _of_warp(body: Block) -> Block:
    """What a warp does, with lanes on the loops alone that its lanes run."""

    def one(s: Stmt) -> Stmt:
        if isinstance(s, For) and s.kind == IN_WARP:
            return replace(s, body=_inside(s.body))
        return with_blocks(_serial(s, (*GRID, *THREADS, "vectorize")), _of_warp)

    return tuple(map(one, body))


def _serial(s: Stmt, kinds: tuple[str, ...]) -> Stmt:
    """A loop of some kinds as one whose iterations run one after the other; any other statement as it is."""
    return replace(s, kind="serial") if isinstance(s, For) and s.kind in kinds else s


def in_one_block(loop: For, most: int) -> For | None:
    """A serial loop around grids of at most `most` threads, as one block that goes round: the threads of each grid are the block's, and
    barriers stand where launches would end. None where some grid is larger or open, or a thread of it may leave."""
    body = _in_one_block(loop.body, most)
    return None if body is None else replace(loop, body=body)


def _in_one_block(body: Block, most: int) -> Block | None:
    found: list[Stmt] = []
    for s in body:
        if not isinstance(s, For):
            return None
        if s.kind == "parallel":
            known = isinstance(s.start, Const) and isinstance(s.stop, Const) and int(s.stop.value) - int(s.start.value) <= most
            if not known or not _stays(s.body):
                return None
            found.append(replace(s, kind=THREADS[0]))
            continue
        inner = _in_one_block(s.body, most) if s.kind == "serial" else None
        if inner is None:
            return None
        found.append(replace(s, body=inner))
    return tuple(found)


def _stays(body: Block) -> bool:
    """Whether statements of a thread have no check, behind which it would leave, and no loop that blocks of threads would run."""
    return not any(isinstance(s, Check) or (isinstance(s, For) and s.kind not in ("serial", "unroll")) for s in statements(body))


def _is_threads(s: Stmt) -> bool:
    return isinstance(s, For) and s.kind in THREADS and isinstance(s.start, Const) and isinstance(s.stop, Const)


def _settled(body: Block, bound: bool) -> Block:
    def one(s: Stmt) -> Stmt:
        if isinstance(s, For) and _is_threads(s):
            return _threads(s, (s.kind,))
        if isinstance(s, For) and s.kind == "vectorize" and not bound:
            return replace(s, body=_inside(s.body))
        return with_blocks(_serial(s, (*GRID, *THREADS, *LANES)), lambda block: _settled(block, bound))

    return tuple(map(one, body))


def _threads(s: For, taken: tuple[str, ...]) -> For:
    """A loop over threads, with those directly inside of it."""
    inner = _only(s.body)
    if inner is None or not _is_threads(inner) or inner.kind in taken:
        return replace(s, body=_inside(s.body))
    return replace(s, body=_around(s.body, _threads(inner, (*taken, inner.kind))))


def _only(body: Block) -> For | None:
    """The loop that statements are, conditions around it aside."""
    only = body[0] if len(body) == 1 else None
    if isinstance(only, If) and not only.otherwise:
        return _only(only.then)
    return only if isinstance(only, For) else None


def _around(body: Block, loop: For) -> Block:
    """The conditions of `body` around another loop."""
    (only,) = body
    return (replace(only, then=_around(only.then, loop)),) if isinstance(only, If) else (loop,)


def chain(s: For) -> list[For]:
    """A loop over threads and those inside it, of what `settled` gives."""
    found = [s]
    while (inner := _only(found[-1].body)) is not None and inner.kind in THREADS:
        found.append(inner)
    return found


def _inside(body: Block) -> Block:
    """What a thread does by itself."""
    return tuple(with_blocks(_serial(s, (*GRID, *THREADS, IN_WARP)), _inside) for s in body)
