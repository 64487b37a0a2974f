"""The rewrite `distribute`: a loop for each of the statements that it has inside (loop fission), with private buffers made arrays.

    for j in range(0, 8):                                sum: local(f32[8])
        sum: local(f32[()])                              for j in range(0, 8):
        sum[()] = 0.0                         -->            sum[j] = 0.0
        for k in range(0, n):                            for j in range(0, 8):
            sum[()] = sum[()] + A[k, j]                      for k in range(0, n):
        y[j] = sum[()]                                           sum[j] = sum[j] + A[k, j]
                                                         for j in range(0, 8):
                                                             y[j] = sum[j]

Legal between two statements where no iteration of the first depends on an earlier one of the second: those that do stay in one loop
(Kennedy & McKinley 1990); a check stays with what it stands for. A local buffer that several of the loops touch gets an axis for the loop's
iterations, whose number is then to be known; one that a single loop touches stays inside. A condition that iterations do not change goes
into each of the loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from tensorexpr.codegen.dependence import Dependences, dependences
from tensorexpr.codegen.lowering.context.arithmetic import constant, sub
from tensorexpr.codegen.nest import Alloc, Block, Buffer, Check, For, If, LoopNest, Stmt
from tensorexpr.codegen.nest.walks import buffers_written, elements_read, expressions_in, map_accesses, stores_in
from tensorexpr.codegen.rewrites.expressions import under
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.loops.simplify import decided
from tensorexpr.codegen.rewrites.paths import Path, loop_at, loop_paths, rewrite_loops, walk_block
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.ir import Access, Expr, Index, const
from tensorexpr.records import record, replace
from tensorexpr.traversal import negate, tensors_read, walk


def distribute(nest: LoopNest, loop: str) -> LoopNest:
    """rewrite: a loop over several statements --> as many loops as dependences allow. A copy that cannot be taken apart stays; raises
    `ScheduleError` where none can.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
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
            made = distributed(s, Facts.at(nest, path), deps)
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


@record
class Part:
    """A statement of a loop's body, and the conditions around it there, which the loop's iterations do not change."""

    conditions: tuple[Expr, ...]
    statement: Stmt


def distributed(s: For, facts: Facts, deps: Dependences, inner: str | None = None) -> Block:
    """A loop as several: around those over `inner` inside of it, or without that between all statements, as far as that is legal.

    Raises `NotAlone` with the reason where it is not. Requires: the loop is one of the nest of `deps`, and stands where `facts` hold.
    """
    buffers, parts = taken_apart(s, inner)
    if s.kind not in ("serial", "unroll", "vectorize"):
        raise NotAlone(f"expected a serial loop to distribute, got {s.kind} {s.index}")
    inside = {x.buffer.name for part in parts for _, x in walk_block((part.statement,)) if isinstance(x, Alloc)}
    for buffer in buffers:
        if buffer.name in inside:
            raise NotAlone(f"expected {buffer.name} of {s.index} once, got a copy of it in a statement beside")
    changed = buffers_written(s.body)
    if any(name in changed for e in (s.start, s.stop) for name in tensors_read(e)):
        raise NotAlone(f"expected bounds of {s.index} that its iterations do not change")
    wanted: Sequence[int] = range(1, len(parts))
    if inner is not None:
        wanted = sorted({b for at, part in enumerate(parts) if _is_over(part, inner) for b in (at, at + 1)})
    borders, obstacle = _borders(s, parts, deps, wanted)
    if not borders:
        why = "one statement" if len(parts) < 2 else str(obstacle)
        raise NotAlone(f"expected statements in {s.index} that can stand in loops of their own, got {why}")
    groups = [_together(parts[first:last]) for first, last in zip((0, *borders), (*borders, len(parts)), strict=True)]
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
        body: Block = group
        for buffer in shared:
            body = _expanded(body, buffer.name, sub(Index(s.index), s.start))
        made.append(replace(s, body=_declared(private, body)))
    wide = [replace(b, shape=(const(length or 0), *b.shape)) for b in shared]
    return _declared(wide, tuple(made))


def taken_apart(s: For, inner: str | None = None, opened: bool = True) -> tuple[list[Buffer], list[Part]]:
    """The buffers that are declared around what a loop has inside, and its parts. Conditions that iterations do not change are taken
    apart too, where there is nothing else, or where a loop over `inner` is among several statements under them."""
    changed = buffers_written(s.body)
    buffers: list[Buffer] = []

    def parts(block: Block, conditions: tuple[Expr, ...]) -> list[Part]:
        if len(block) == 1 and isinstance(block[0], Alloc):
            buffers.append(block[0].buffer)
            return parts(block[0].body, conditions)
        found: list[Part] = []
        for one in block:
            if opened and isinstance(one, Alloc) and (inner is None or has_inner(one)):
                buffers.append(one.buffer)
                found += parts(one.body, conditions)
            elif opened and isinstance(one, If) and opens(one, len(block) == 1) and not _reads(one.condition, changed):
                found += parts(one.then, (*conditions, one.condition))
                found += parts(one.otherwise, (*conditions, negate(one.condition)))
            else:
                found.append(Part(conditions, one))
        return found

    def opens(one: If, alone: bool) -> bool:
        if inner is None:
            return (alone and len(one.then) + len(one.otherwise) > 1) or any(isinstance(x, Alloc) for x in one.then)
        several = len(one.then) > 1 or bool(one.otherwise) or any(isinstance(x, Alloc) for x in one.then)
        return several and has_inner(one)

    def has_inner(one: Stmt) -> bool:
        return any(isinstance(x, For) and x.index == inner for _, x in walk_block((one,)))

    found = parts(s.body, ())
    buffers = list(dict.fromkeys(buffers))  # of two branches
    if len({b.name for b in buffers}) < len(buffers):
        return taken_apart(s, inner, opened=False)
    return buffers, found


def _reads(expr: Expr, buffers: frozenset[str]) -> bool:
    return any(name in buffers for name in tensors_read(expr))


def is_over(s: Stmt, name: str) -> bool:
    """Whether a statement is a loop of a name, or a condition that has nothing else."""
    if isinstance(s, If):
        return not s.otherwise and len(s.then) == 1 and is_over(s.then[0], name)
    return isinstance(s, For) and s.index == name


def _is_over(part: Part, name: str) -> bool:
    return is_over(part.statement, name)


def _together(parts: Sequence[Part]) -> Block:
    """Parts as statements, neighbors under the same conditions in one."""
    made: list[Stmt] = []
    for conditions, group in groupby(parts, key=lambda part: part.conditions):
        block: Block = tuple(part.statement for part in group)
        made += under(conditions, block)
    return tuple(made)


def _declared(buffers: Sequence[Buffer], block: Block) -> Block:
    for buffer in reversed(buffers):
        block = (Alloc(buffer, block),)
    return block


def _touches(block: Block, name: str) -> bool:
    return name in buffers_written(block) or any(a.tensor == name for a in elements_read(block))


def _borders(s: For, parts: Sequence[Part], deps: Dependences, wanted: Sequence[int]) -> tuple[list[int], object]:
    """The positions between parts at which the loop may be taken apart, and what stands against another one."""
    spans = [deps.span(part.statement) for part in parts]

    def place(number: int) -> int:
        return next((at for at, (low, high) in enumerate(spans) if low <= number <= high), 0)  # else a condition around

    borders = [at for at in wanted if 0 < at < len(parts) and not _leaves_a_check(parts, at)]
    obstacle: object = None
    for conflict in deps.carried(s) if borders else ():
        first, second = place(conflict.first.number), place(conflict.second.number)
        crossed = [at for at in borders if second < at <= first]
        if crossed:
            obstacle = conflict
            borders = [at for at in borders if at not in crossed]
    return borders, obstacle


def _leaves_a_check(parts: Sequence[Part], border: int) -> bool:
    """Whether a statement behind a border may rely on a check in front of it: both have one table in their indices."""
    checked = {a.tensor for part in parts[:border] for a in _tables(part.statement) if isinstance(part.statement, Check)}
    bare = any(isinstance(part.statement, Check) and not any(_tables(part.statement)) for part in parts[:border])
    return bare or any(a.tensor in checked for part in parts[border:] for a in _tables(part.statement))


def _tables(s: Stmt) -> Iterator[Access]:
    """The elements that a statement's indices read, those of statements inside included."""
    if isinstance(s, Check):
        yield from (n for n in walk(s.index) if isinstance(n, Access))
        return
    for expr in expressions_in((s,)):
        for node in walk(expr):
            for index in node.indices if isinstance(node, Access) else ():
                yield from (n for n in walk(index) if isinstance(n, Access))
    for store in stores_in((s,)):
        for index in store.indices:
            yield from (n for n in walk(index) if isinstance(n, Access))


def _expanded(block: Block, buffer: str, at: Expr) -> Block:
    """A block in which a buffer has one more axis, in front, of which it touches one place."""

    def element(access: Access) -> Access:
        return replace(access, indices=(at, *access.indices)) if access.tensor == buffer else access

    return map_accesses(block, element)
