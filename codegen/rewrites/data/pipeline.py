"""The rewrite `pipeline`: what an iteration of a loop computes for itself first is computed iterations ahead (software pipelining).

                                                    p: local(f32[2, 32])
    for i in range(0, 64):                          if 0 < 64: p[0, ...] = copy(0)
        p: local(f32[32])                           for i in range(0, 64):
        p[...] = copy(i)                -->             if i + 1 < 64: p[(i + 1) % 2, ...] = copy(i + 1)
        work(p[...])                                    work(p[i % 2, ...])

The first statements of an iteration, those that write nothing but some local buffers of its own, are made ahead; each of the buffers has as
many places as there are stages. Loads of the copy are then under way while the iteration before is worked on. Legal for a loop that runs
one iteration at a time, whose copy reads nothing that the loop writes. Values keep their bits."""

from __future__ import annotations

from collections.abc import Sequence

from tensorexpr.codegen.lowering.context.arithmetic import add, constant, sub
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, LoopNest, Stmt
from tensorexpr.codegen.nest.walks import buffers_written, declared_in, elements_read, map_accesses
from tensorexpr.codegen.rewrites.expressions import substituted
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.loops.simplify import simplified
from tensorexpr.codegen.rewrites.paths import Path, rewrite_loops
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.ir import Expr, Index, apply, const
from tensorexpr.records import replace

MOST_STAGES = 8
MOST_BYTES = 1 << 16
"""Bytes of a buffer with all of its places: of the order of the first cache."""


def pipeline(nest: LoopNest, loop: str, buffers: Sequence[str], stages: int = 2) -> LoopNest:
    """The nest in which an iteration of a loop computes some buffers for that `stages` - 1 iterations on. Raises `ScheduleError` where no
    copy of the loop begins with them, or they need what it writes.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> nest = parse_nest('''
    ... main(x, y)
    ... x: parameter(f32[8, 4])
    ... y: parameter(f32[8, 4], written)
    ...
    ... def kernel_0() -> y:
    ...     for i in range(0, 8):
    ...         p: local(f32[4])
    ...         for j in range(0, 4):
    ...             p[j] = exp(x[i, j])
    ...         for k in range(0, 4):
    ...             y[i, k] = p[k] + p[3 - k]
    ... ''')
    >>> print(pipeline(nest, "i", ("p",)))
    main(x, y)
    x: parameter(f32[8, 4])
    y: parameter(f32[8, 4], written)
    <BLANKLINE>
    def kernel_0() -> y:
        p: local(f32[2, 4])
        for j in range(0, 4):
            p[0, j] = exp(x[0, j])
        for i in range(0, 8):
            if i + 1 < 8:
                for j in range(0, 4):
                    p[(i + 1) % 2, j] = exp(x[i + 1, j])
            for k in range(0, 4):
                y[i, k] = p[i % 2, k] + p[i % 2, 3 - k]
    <BLANKLINE>
    """
    if not isinstance(stages, int) or isinstance(stages, bool) or not 2 <= stages <= MOST_STAGES:
        raise refuse(f"expected 2 to {MOST_STAGES} stages, got {stages!r}", loop=loop)
    reasons: list[Exception] = []
    done = 0

    def ahead(s: For, path: Path) -> Block | None:
        nonlocal done
        try:
            made = _ahead(s, frozenset(buffers), stages, Facts.at(nest, path))
        except _Stays as error:
            reasons.append(refuse(str(error), s, loop))
            return None
        done += 1
        return made

    made = rewrite_loops(nest, loop, ahead)
    if not done:
        raise reasons[0]
    return made


class _Stays(Exception):
    """Why a copy of a loop stays as it is."""


def _ahead(s: For, names: frozenset[str], stages: int, facts: Facts) -> Block:
    if s.kind != "serial":
        raise _Stays(f"expected a serial loop to pipeline, got {s.index}, marked {s.kind}")
    buffers, copy, work = _taken_apart(s.body, names)
    kept = [b for b in buffers if b.name in names & buffers_written(copy)]
    if not copy or not work or not kept:
        raise _Stays(f"expected a loop in which something is computed first to pipeline, got {s.index}")
    changed = buffers_written(s.body) - {b.name for b in kept} - declared_in(copy)
    needed = sorted({a.tensor for a in elements_read(copy)} & changed)
    if needed:
        raise _Stays(f"expected what {s.index} computes first to need nothing that it writes, got {needed[0]}")
    own = frozenset(b.name for b in kept)
    if own & buffers_written(work):
        raise _Stays(f"expected {s.index} to compute {', '.join(sorted(own & buffers_written(work)))} before anything else")
    for buffer in kept:
        size = buffer.dtype.itemsize * stages
        for extent in buffer.shape:
            size *= constant(extent) or 0
        if size > MOST_BYTES:
            raise _Stays(f"expected at most {MOST_BYTES} bytes for {stages} stages of {buffer.name}, got {size}")
    here = sub(Index(s.index), s.start)

    def placed(block: Block, place: Expr) -> Block:
        at = const((constant(place) or 0) % stages) if constant(place) is not None else apply("mod", place, const(stages))
        return map_accesses(block, lambda a: replace(a, indices=(at, *a.indices)) if a.tensor in own else a)

    def copied(iteration: Expr, place: Expr) -> Stmt:
        return If(apply("lt", iteration, s.stop), placed(substituted(copy, {s.index: iteration}), place))

    first = [copied(add(s.start, const(n)), const(n)) for n in range(stages - 1)]
    later = copied(add(Index(s.index), const(stages - 1)), add(here, const(stages - 1)))
    body: Block = (later, *placed(work, here))
    for buffer in reversed([b for b in buffers if b not in kept]):
        body = (Alloc(buffer, body),)
    block: Block = (*first, replace(s, body=body))
    for buffer in reversed(kept):
        block = (Alloc(replace(buffer, shape=(const(stages), *buffer.shape)), block),)
    return simplified(block, facts, ended=False)


def _taken_apart(body: Block, names: frozenset[str]) -> tuple[list[Buffer], Block, Block]:
    """The buffers that an iteration declares around all that it does, the first statements, which compute some of them,
    and the rest."""
    buffers: list[Buffer] = []
    copy: list[Stmt] = []
    while True:
        if len(body) == 1 and isinstance(body[0], Alloc):
            buffers.append(body[0].buffer)
            body = body[0].body
            continue
        at = 0
        while at < len(body) and _writes_only(body[at], names & {b.name for b in buffers}):
            at += 1
        copy += body[:at]
        body = body[at:]
        if not (at and len(body) == 1 and isinstance(body[0], Alloc)):
            return buffers, tuple(copy), body


def _writes_only(s: Stmt, private: frozenset[str]) -> bool:
    """Whether a statement writes nothing but some buffers and what it declares itself."""
    own = declared_in((s,))
    return bool(buffers_written((s,))) and buffers_written((s,)) <= private | own
