"""The rewrite `separate`: what the iterations of a reduction's loop add up, each by itself, in a kernel of its own.

    for i in range(0, n):                                   for k_o in range(0, 8):
        sum[()] = 0.0                                           for i_1 in range(0, n):
        for k_o in range(0, 8):                                     part[()] = 0.0
            for k_i in range(0, 64):                 -->            for k_i in range(0, 64):
                sum[()] = sum[()] + x[i, k_i + k_o*64]                  part[()] = part[()] + x[i_1, k_i + k_o*64]
        y[i] = sum[()]                                              parts[k_o, i_1] = part[()]
                                                            for i in range(0, n):
                                                                sum[()] = 0.0
                                                                for k_o_1 in range(0, 8):
                                                                    sum[()] = sum[()] + parts[k_o_1, i]
                                                                y[i] = sum[()]

The loop is then outermost, so that cores may share it, and loops around it may be as long as they like. What stands beside it (a rest of
its split) stays. Legal for updates of one local buffer by an operation whose order and grouping do not matter, in a loop whose bounds are
those of no loop around, that reads nothing which is kept around it or written in its kernel. Checks of what it reads go with it, and stay
where they were, too. Sums and products of floats are rounded in another grouping; all else keeps its bits."""

from __future__ import annotations

from collections.abc import Iterable

from tensorexpr.codegen.dependence import operation_of
from tensorexpr.codegen.lowering.context.arithmetic import ZERO, constant, sub
from tensorexpr.codegen.nest import Alloc, Block, Buffer, Check, For, If, Kernel, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import buffers_written, elements_read, expressions_in, expressions_of, inside, map_accesses
from tensorexpr.codegen.rewrites.data.rfactor import COMBINERS
from tensorexpr.codegen.rewrites.expressions import substituted, substituted_in
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.loops.split import length_of
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import Path, distinct, loop_at, loop_paths, put, statement, walk_block
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.codegen.rewrites.touched.places import declared, touched
from tensorexpr.interpret import identity_of
from tensorexpr.ir import Access, Apply, Const, Expr, Index, Size, apply
from tensorexpr.records import replace
from tensorexpr.text import print_expr
from tensorexpr.traversal import free_names, negate, tensors_read, walk


def separate(nest: LoopNest, buffer: str, loop: str, name: str | None = None) -> LoopNest:
    """The nest with what each iteration of a loop adds to a local buffer computed in a kernel in front, in a workspace (`name`).

    The loop goes there, and so do those inside; the one that adds the parts up has a name made of it. Raises `ScheduleError` where that
    cannot be.

    >>> from tensorexpr.codegen.plain import plain_nest
    >>> from tensorexpr.codegen.rewrites.loops.split import split
    >>> from tensorexpr.codegen.rewrites.names import named
    >>> from tensorexpr.parse import parse_program
    >>> program = parse_program('''
    ... x: f32[32] = input()
    ... y: f32 = sum(x[k] for k in range(32))
    ... return y
    ... ''')
    >>> print(separate(split(named(plain_nest(program)), "k", 8), "sum", "k_o"))
    main(x, y)
    x: parameter(f32[32])
    y: parameter(f32[()], written)
    sum_parts: workspace(f32[4])
    <BLANKLINE>
    def kernel_0() -> sum_parts:
        for k_o in range(0, 4):
            sum_1: local(f32[()])
            sum_1[()] = 0.0
            for k_i in range(0, 8):
                sum_1[()] = sum_1[()] + x[k_i + k_o * 8]
            sum_parts[k_o] = sum_1[()]
    <BLANKLINE>
    def kernel_1() -> y:
        sum: local(f32[()])
        sum[()] = 0.0
        for k_o_1 in range(0, 4):
            sum[()] = sum[()] + sum_parts[k_o_1]
        y[()] = sum[()]
    <BLANKLINE>
    """
    copies = [
        at
        for at in loop_paths(nest, loop)
        if any(isinstance(s, Store) and s.buffer == buffer for _, s in walk_block(loop_at(nest, at).body))
    ]
    if len(copies) != 1:
        s = loop_at(nest, loop_paths(nest, loop)[0])
        raise refuse(
            f"expected one loop {loop} that updates {buffer}, got {len(copies)}", s, loop, None if not copies else "before it is cut"
        )
    (at,) = copies
    own = loop_at(nest, at)
    operation = _operation(nest, buffer, at)
    home = next(one for one in touched(nest, buffer) if at[: len(one.home)] == one.home)
    kept = declared(nest, home)
    if kept.memory != "local" or any(constant(extent) is None for extent in kept.shape):
        raise refuse(f"expected a local buffer of constant shape to separate what is added to it, got {buffer}", own)
    around = [statement(nest, at[:end]) for end in range(2, len(at))]
    loops = [s for s in around if isinstance(s, For)]
    checks = _checks(nest, at)
    _check_alone(nest, at, buffer, around, checks)
    names = fresh(nest, *(s.index for s in loops), f"{loop}", *(f"{loop}_{axis}" for axis in range(len(kept.shape))), buffer)
    renamed = {s.index: Index(n) for s, n in zip(loops, names, strict=False)}
    adding, element, part = names[len(loops)], names[len(loops) + 1 : -1], names[-1]
    parts = Buffer(name or fresh(nest, f"{buffer}_parts")[0], kept.dtype, (*_lengths(nest, at, own, loops), *kept.shape), "workspace")
    there = [sub(Index(own.index), own.start), *(sub(renamed[s.index], s.start) for s in loops)]
    at_ = tuple(map(Index, element))

    def over(one: Stmt) -> Stmt:
        for index, extent in reversed(list(zip(element, kept.shape, strict=True))):
            one = For(index, ZERO, extent, (one,))
        return one

    identity = Const(identity_of(COMBINERS[operation], kept.dtype), kept.dtype)
    body = map_accesses(own.body, lambda a: replace(a, tensor=part) if a.tensor == buffer else a)
    store = Store(parts.name, (*there, *at_), Access(part, at_, kept.dtype))
    block: Block = (Alloc(replace(kept, name=part), (over(Store(part, at_, identity)), *substituted(body, renamed), over(store))),)
    for outer, position, before in reversed(list(zip(around, at[2:], checks[1:], strict=True))):
        block = (*substituted(before, renamed), *block)
        if isinstance(outer, For):
            block = (For(renamed[outer.index].name, outer.start, outer.stop, block),)
        elif isinstance(outer, If):
            test = outer.condition if position < len(outer.then) else negate(outer.condition)
            block = (If(substituted_in(test, renamed), block),)
    kernel = Kernel(parts.name, (replace(own, body=(*checks[0], *block)),))
    again = (sub(Index(adding), own.start), *(sub(Index(s.index), s.start) for s in loops), *at_)
    here = Access(buffer, at_, kept.dtype)
    added = over(Store(buffer, at_, apply(operation, here, Access(parts.name, again, kept.dtype))))
    nest = put(nest, at, (For(adding, own.start, own.stop, (added,)),))
    kernels = (*nest.kernels[: at[0]], kernel, *nest.kernels[at[0] :])
    return distinct(replace(nest, kernels=kernels, workspace=(*nest.workspace, parts)))


def _operation(nest: LoopNest, buffer: str, at: Path) -> str:
    """The operation of the updates of a buffer in the loop at a path, in which nothing else touches it."""
    found: dict[str | None, None] = {}
    for _, s in walk_block(loop_at(nest, at).body):
        if isinstance(s, Store) and s.buffer == buffer:
            found.setdefault(operation_of(s))
        elif any(buffer in tensors_read(e) for e in expressions_of(s)):
            found.setdefault(None)
    operation = next(iter(found))
    if len(found) != 1 or operation not in COMBINERS:
        raise refuse(f"expected nothing but updates of {buffer} by one operation without order", loop_at(nest, at), loop_at(nest, at).index)
    return operation


def _checks(nest: LoopNest, at: Path) -> list[Block]:
    """The checks in front of a loop of what it reads, and what conditions and checks around it read: in its kernel, then in each
    statement around it."""
    parents: list[Stmt | Kernel] = [nest.kernels[at[0]], *(statement(nest, at[:end]) for end in range(2, len(at)))]
    read = _tensors(expressions_in((loop_at(nest, at),)))
    found: list[Block] = []
    for parent, position in zip(reversed(parents), reversed(at[1:]), strict=True):
        branch = len(parent.then) if isinstance(parent, If) and position >= len(parent.then) else 0
        kept: list[Stmt] = []
        for s in reversed(inside(parent)[branch:position]):
            within = [one for _, one in walk_block((s,))]
            checks = [one for one in within if isinstance(one, Check)]
            if all(isinstance(one, For | If | Check) for one in within) and any(nest.checks[one.check].tensor in read for one in checks):
                kept.insert(0, s)
                read |= _tensors(expressions_in((s,)))
        found.insert(0, tuple(kept))
        if isinstance(parent, Stmt):
            read |= _tensors(expressions_of(parent))
    return found


def _tensors(expressions: Iterable[Expr]) -> set[str]:
    """The tensors that expressions read."""
    return {name for e in expressions for name in tensors_read(e)}


def _check_alone(nest: LoopNest, at: Path, buffer: str, around: list[Stmt], checks: list[Block]) -> None:
    """Refuses where a loop needs what is kept around it or written in its kernel, or writes anything else."""
    own = loop_at(nest, at)
    if own.kind != "serial" or any(s.kind != "serial" for s in around if isinstance(s, For)):
        raise refuse(f"expected serial loops around and at {own.index} to separate it", own, own.index, "separate first")
    private = {s.buffer.name for _, s in walk_block(own.body) if isinstance(s, Alloc)}
    others = sorted(buffers_written(own.body) - private - {buffer})
    if others:
        raise refuse(f"expected {own.index} to write {buffer} alone, got {others[0]}", own, own.index)
    written = buffers_written(nest.kernels[at[0]].body) - private - {buffer}
    bounds = (e for s in (*around, own) for e in expressions_of(s))
    read = {a.tensor for a in elements_read(own.body)} | _tensors(bounds) | _tensors(e for block in checks for e in expressions_in(block))
    needed = sorted(read & written)
    if needed:
        raise refuse(f"expected {own.index} to need nothing that is computed around it, got {needed[0]}", own, own.index)
    if any(isinstance(s, Check) for _, s in walk_block(own.body)):
        raise refuse(f"expected accesses in {own.index} that are known to be in bounds, got one that is checked", own, own.index)
    indices = {s.index for s in around if isinstance(s, For)}
    for s in (*around, own):
        if isinstance(s, For) and indices & {*free_names(s.start), *free_names(s.stop)}:
            raise refuse(f"expected bounds of {s.index} that no loop around it changes", s, s.index)


def _lengths(nest: LoopNest, at: Path, own: For, loops: list[For]) -> list[Expr]:
    """The numbers of iterations of a loop and those around it, none of whose bounds depend on another."""
    found = [length_of(s, Facts.at(nest, at[:1])) for s in (own, *loops)]
    for length in found:
        if any(not isinstance(node, Const | Size | Apply) for node in walk(length)):  # one that wraps around, or is data
            raise refuse(f"expected as many parts as arithmetic of sizes says, got {print_expr(length)}", own, own.index)
    return found
