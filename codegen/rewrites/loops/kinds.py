"""The rewrites `unroll`, `vectorize`, `parallel`, `bind` and `serial`: how a loop runs.

    for i in range(0, 4):          -->      for i in vectorize(range(0, 4)):
        y[i] = x[i]                             y[i] = x[i]

| rewrite | legal where | a copy that is not |
|---|---|---|
| `serial` | always, for a loop that is copied out, in lanes or over cores | |
| `unroll` | the number of iterations is known | stays a loop |
| `vectorize` | that, and iterations do not depend on each other | a tail of unknown length stays a loop; else refused |
| `parallel` | that (or they write the same values), loops around are serial, nothing private to one of them is shared | refused |
| `bind` | that, and blocks are outermost; each axis of the grid is once on a path; lanes of a warp as those of `vectorize` | refused |

Loops that are copied out or in lanes run from 0 on: one that begins elsewhere is counted from there.
"""

from __future__ import annotations

from math import prod

from tensorexpr.codegen.lowering.context.arithmetic import ZERO, add, constant, sub
from tensorexpr.codegen.nest import GRID, IN_WARP, MOST_BLOCKS, MOST_THREADS, THREADS, WARP_LANES, Block, For, LoopNest
from tensorexpr.codegen.nest.walks import buffers_written, elements_read
from tensorexpr.codegen.rewrites.expressions import substituted
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.loops.order import check_any_order
from tensorexpr.codegen.rewrites.loops.partition import SHARED
from tensorexpr.codegen.rewrites.loops.simplify import decided
from tensorexpr.codegen.rewrites.paths import Path, around, loop_at, loop_paths, rewrite_loops, walk_block
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.hints import suggestion
from tensorexpr.ir import Const, Index
from tensorexpr.records import replace

WORDS = (*GRID, *THREADS, IN_WARP)
MOST = {"vectorize": 256, "unroll": 64, IN_WARP: 32}
"""Iterations that are copied out or in lanes at most: beyond, LLVM takes seconds for what a loop does as well. A warp has 32 lanes."""


def serial(nest: LoopNest, loop: str) -> LoopNest:
    """rewrite: a loop of any kind --> a serial one, one iteration after the other."""
    return rewrite_loops(nest, loop, lambda s, path: (replace(s, kind="serial"),))


def unroll(nest: LoopNest, loop: str) -> LoopNest:
    """rewrite: a loop of a known number of iterations is copied out. Raises `ScheduleError` where no copy has one."""
    return _of_known_length(nest, loop, "unroll")


def vectorize(nest: LoopNest, loop: str) -> LoopNest:
    """rewrite: the iterations of a loop run at once, in lanes.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> nest = parse_nest('''
    ... main(x, y)
    ... x: parameter(f32[8])
    ... y: parameter(f32[8], written)
    ...
    ... def kernel_0() -> y:
    ...     for i in range(0, 2):
    ...         for j in range(i * 4, i * 4 + 4):
    ...             y[j] = x[j]
    ... ''')
    >>> print(vectorize(nest, "j"))
    main(x, y)
    x: parameter(f32[8])
    y: parameter(f32[8], written)
    <BLANKLINE>
    def kernel_0() -> y:
        for i in range(0, 2):
            for j in vectorize(range(0, 4)):
                y[i * 4 + j] = x[i * 4 + j]
    <BLANKLINE>
    """
    check_any_order(nest, loop, "run in lanes", alike=True)
    return _of_known_length(nest, loop, "vectorize")


def _of_known_length(nest: LoopNest, loop: str, kind: str) -> LoopNest:
    _check_serial(nest, loop, kind)
    check_length(nest, loop, kind)

    def marked(s: For, path: Path) -> Block | None:
        length = _length(nest, s, path)
        if length is None or length > MOST[kind]:
            return None
        if isinstance(s.start, Const):
            return (replace(s, stop=add(s.start, Const(length, s.start.dtype)), kind=kind),)
        body = substituted(s.body, {s.index: add(Index(s.index), s.start)})
        return (replace(s, start=ZERO, stop=Const(length, s.start.dtype), kind=kind, body=body),)

    return rewrite_loops(nest, loop, marked)


def check_length(nest: LoopNest, loop: str, kind: str) -> None:
    """Refuses where no copy of a loop has a known number of iterations that may be copied out or in lanes."""
    lengths = [_length(nest, loop_at(nest, path), path) for path in loop_paths(nest, loop)]
    known = [n for n in lengths if n is not None]
    if not any(n <= MOST[kind] for n in known):
        found = str(min(known)) if known else "an extent known only when it runs"
        s = loop_at(nest, loop_paths(nest, loop)[0])
        raise refuse(f"expected a constant extent of at most {MOST[kind]} to {kind} {loop}, got {found}", s, loop, "split first")


def _length(nest: LoopNest, s: For, path: Path) -> int | None:
    return constant(decided(sub(s.stop, s.start), Facts.at(nest, path)))


def parallel(nest: LoopNest, loop: str) -> LoopNest:
    """rewrite: the iterations of a loop run on all cores, in any order."""
    _check_serial(nest, loop, "run in parallel")
    for path in loop_paths(nest, loop):
        outer = [s for s in around(nest, path).loops if s.kind != "serial"]
        if outer:
            raise refuse(f"expected serial loops around {loop} to run it in parallel, got {outer[0].index}", outer[0], loop)
        _check_unshared(nest, path, "run in parallel")
    check_any_order(nest, loop, "run in parallel", alike=True)
    return rewrite_loops(nest, loop, lambda s, path: (replace(s, kind="parallel"),))


def bind(nest: LoopNest, loop: str, axis: str) -> LoopNest:
    """rewrite: the iterations of a loop are blocks of a GPU's grid (`block.x`, ...), threads of a block (`thread.x`, ...), or lanes of a
    warp (`warp`), which are the threads along the first axis."""
    if axis not in WORDS:
        raise refuse(f"expected an axis among {', '.join(WORDS)}, got {axis!r}", loop=loop, hint=suggestion(axis, WORDS))
    _check_serial(nest, loop, "bind")
    for path in loop_paths(nest, loop):
        found = around(nest, path)
        if any(s.kind == axis for s in found.loops):
            raise refuse(f"expected {axis} once, got it around {loop} already", loop_at(nest, path), loop)
        beside = {IN_WARP: THREADS[0], THREADS[0]: IN_WARP}.get(axis)
        for s in (*found.loops, *(x for _, x in walk_block(loop_at(nest, path).body) if isinstance(x, For))):
            if s.kind == beside or (axis == IN_WARP and s.kind == axis):
                raise refuse(f"expected lanes of a warp or threads along {THREADS[0]} once, got {s.index} and {loop}", s, loop)
        if axis in GRID and (found.conditions or any(s.kind not in GRID for s in found.loops)):
            raise refuse(f"expected nothing but blocks around {loop}, which is to be {axis}", loop_at(nest, path), loop, "reorder first")
        if axis != IN_WARP:
            _check_unshared(nest, path, "bind")
        _check_launch(nest, path, axis)
    check_any_order(nest, loop, "run at once")
    if axis == IN_WARP:
        return _of_known_length(nest, loop, axis)
    return rewrite_loops(nest, loop, lambda s, path: (replace(s, kind=axis),))


def _check_launch(nest: LoopNest, path: Path, axis: str) -> None:
    """Refuses blocks and warps that no GPU launches. Threads that are more than a block has go round."""
    s = loop_at(nest, path)
    length = _length(nest, s, path)
    if axis in GRID[1:] and (length is None or length > MOST_BLOCKS):
        found = "an extent known only when it runs" if length is None else str(length)
        message = f"expected at most {MOST_BLOCKS} blocks along {axis}, got {found}"
        raise refuse(message, s, s.index, f"there may be more along {GRID[0]}")
    bound = {one.kind: one for one in (*around(nest, path).loops, *(x for _, x in walk_block(s.body) if isinstance(x, For)))}
    bound[axis] = s
    if IN_WARP in bound:
        threads = prod(_length(nest, one, path) or 1 for kind, one in bound.items() if kind in THREADS) * WARP_LANES
        if threads > MOST_THREADS:
            raise refuse(f"expected at most {MOST_THREADS} threads in a block, got {threads}", s, s.index, "split first")


def _check_serial(nest: LoopNest, loop: str, word: str) -> None:
    for path in loop_paths(nest, loop):
        s = loop_at(nest, path)
        if s.kind != "serial":
            raise refuse(f"expected a serial loop to {word}, got {s.kind} {loop}", s, loop, "serial first")
        inner = [one for _, one in walk_block(s.body) if isinstance(one, For) and one.kind in SHARED]
        if inner and word != "bind":
            raise refuse(
                f"expected no {inner[0].kind} loop inside of {loop} to {word}, got {inner[0].index}", s, loop, "mark the outer first"
            )


def _check_unshared(nest: LoopNest, path: Path, word: str) -> None:
    """Refuses where iterations would share a buffer that is private to what is around."""
    s = loop_at(nest, path)
    touched = {a.tensor for a in elements_read((s,))} | buffers_written((s,))
    for buffer in around(nest, path).locals:
        if buffer.name in touched:
            hint = "rfactor gives its iterations results of their own" if buffer.name in buffers_written((s,)) else None
            raise refuse(f"expected no local buffer of what is around {s.index} inside to {word}, got {buffer.name}", s, s.index, hint)
