"""The rewrite `distribute`: a loop for each of the statements that it has inside (loop fission), with private buffers made arrays.

    for j in range(0, 8):                                sum: local(f32[8])
        sum: local(f32[()])                              for j in range(0, 8):
        sum[()] = 0.0                         -->            sum[j] = 0.0
        for k in range(0, n):                            for j in range(0, 8):
            sum[()] = sum[()] + A[k, j]                      for k in range(0, n):
        y[j] = sum[()]                                           sum[j] = sum[j] + A[k, j]
                                                         for j in range(0, 8):
                                                             y[j] = sum[j]

Legal between two statements where no iteration of the first hangs on an earlier one of the second: those that do stay in one loop
(Kennedy & McKinley 1990). A local buffer that several of the loops touch gets an axis for the loop's iterations, whose number is then to be
known; one that a single loop touches stays inside.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorexpr.codegen.dependence import Dependences, dependences
from tensorexpr.codegen.lowering.arithmetic import constant, sub
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, LoopNest, Stmt
from tensorexpr.codegen.rewrites.expressions import buffers_written, elements_read, map_accesses
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.loops.simplify import decided
from tensorexpr.codegen.rewrites.paths import Path, loop_at, loop_paths, rewrite_loops
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.ir import Access, Expr, Index, const
from tensorexpr.records import replace
from tensorexpr.traversal import walk


def distribute(nest: LoopNest, loop: str) -> LoopNest:
    """rewrite: a loop over several statements --> as many loops as dependences allow. A copy that cannot be taken apart stays; raises
    `ScheduleError` where none can.

    >>> from tensorexpr.codegen.nest_parse import parse_nest
    >>> nest = parse_nest('''
    ... main(x, y, z)
    ... x: parameter(f32[4])
    ... y: parameter(f32[4], written)
    ... z: parameter(f32[4], written)
    ...
    ... def kernel_0() -> (y, z):
    ...     for i in range(0, 4):
    ...         t: local(f32[()])
    ...         t[()] = exp(x[i])
    ...         y[i] = t[()]
    ...         z[i] = t[()] + 1.0
    ... ''')
    >>> print(distribute(nest, "i"))
    main(x, y, z)
    x: parameter(f32[4])
    y: parameter(f32[4], written)
    z: parameter(f32[4], written)
    <BLANKLINE>
    def kernel_0() -> (y, z):
        t: local(f32[4])
        for i in range(0, 4):
            t[i] = exp(x[i])
        for i in range(0, 4):
            y[i] = t[i]
        for i in range(0, 4):
            z[i] = t[i] + 1.0
    <BLANKLINE>
    """
    deps = dependences(nest)
    reasons: list[str] = []
    done = 0

    def apart(s: For, path: Path) -> Block | None:
        nonlocal done
        try:
            made = distributed(s, Facts.at(nest, path), deps, range(1, len(_taken_apart(s)[1])))
        except NotAlone as error:
            reasons.append(str(error))
            return None
        done += 1
        return made

    made = rewrite_loops(nest, loop, apart)
    if not done:
        raise refuse(reasons[0], loop_at(nest, loop_paths(nest, loop)[0]), loop)
    return made


class NotAlone(Exception):
    """A loop that cannot be taken apart, and why."""


def distributed(s: For, facts: Facts, deps: Dependences, wanted: Sequence[int]) -> Block:
    """A loop as several, with borders between the statements inside at the `wanted` positions, as far as they are legal.

    Raises `NotAlone` with the reason where there is none. Requires: the loop is one of the nest of `deps`, and stands where `facts` hold.
    """
    buffers, body = _taken_apart(s)
    if s.kind not in ("serial", "unroll", "vectorize"):
        raise NotAlone(f"expected a serial loop to distribute, got {s.kind} {s.index}")
    changed = buffers_written(s.body)
    if any(isinstance(n, Access) and n.tensor in changed for e in (s.start, s.stop) for n in walk(e)):
        raise NotAlone(f"expected bounds of {s.index} that its iterations do not change")
    borders, obstacle = _borders(s, body, deps, wanted)
    if not borders:
        why = "one statement" if len(body) < 2 else str(obstacle)
        raise NotAlone(f"expected statements in {s.index} that can stand in loops of their own, got {why}")
    groups = [body[first:last] for first, last in zip((0, *borders), (*borders, len(body)), strict=True)]
    length = constant(decided(sub(s.stop, s.start), facts))
    shared: list[Buffer] = []
    own: list[list[Buffer]] = [[] for _ in groups]
    for buffer in buffers:
        users = [at for at, group in enumerate(groups) if _touches(group, buffer.name)]
        if len(users) == 1:
            own[users[0]].append(buffer)
        elif users:
            shared.append(buffer)
    if shared and length is None:
        raise NotAlone(f"expected a known number of iterations of {s.index}, of which each keeps its {shared[0].name}, to distribute it")
    made: list[Stmt] = []
    for group, private in zip(groups, own, strict=True):
        inner: Block = group
        for buffer in shared:
            inner = _expanded(inner, buffer.name, sub(Index(s.index), s.start))
        made.append(replace(s, body=_declared(private, inner)))
    wide = [replace(b, shape=(const(length or 0), *b.shape)) for b in shared]
    return _declared(wide, tuple(made))


def _taken_apart(s: For) -> tuple[list[Buffer], Block]:
    """The buffers that are declared around all that a loop has inside, and the statements."""
    buffers: list[Buffer] = []
    body = s.body
    while len(body) == 1 and isinstance(body[0], Alloc):
        buffers.append(body[0].buffer)
        body = body[0].body
    return buffers, body


def _declared(buffers: Sequence[Buffer], block: Block) -> Block:
    for buffer in reversed(buffers):
        block = (Alloc(buffer, block),)
    return block


def _touches(block: Block, name: str) -> bool:
    return name in buffers_written(block) or any(a.tensor == name for a in elements_read(block))


def _borders(s: For, body: Block, deps: Dependences, wanted: Sequence[int]) -> tuple[list[int], object]:
    """The positions between statements at which the loop may be taken apart, and what stands against another one."""
    spans = [deps.span(inner) for inner in body]

    def place(number: int) -> int:
        return next(at for at, (low, high) in enumerate(spans) if low <= number <= high)

    borders = [at for at in wanted if 0 < at < len(body)]
    obstacle: object = None
    for conflict in deps.carried(s) if borders else ():
        first, second = place(conflict.first.number), place(conflict.second.number)
        crossed = [at for at in borders if second < at <= first]
        if crossed:
            obstacle = conflict
            borders = [at for at in borders if at not in crossed]
    return borders, obstacle


def _expanded(block: Block, buffer: str, at: Expr) -> Block:
    """A block in which a buffer has one more axis, in front, of which it touches one place."""

    def element(access: Access) -> Access:
        return replace(access, indices=(at, *access.indices)) if access.tensor == buffer else access

    return map_accesses(block, element)
