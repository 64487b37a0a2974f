"""Names in nests: a plain nest with those of its loops and local buffers made unique, and names that are not taken.

    for i in range(0, n):                               for i in range(0, n):
        sum: local(f32[()])                                 sum: local(f32[()])
        ...                                      -->        ...
    for i in range(0, m):                               for i_1 in range(0, m):
        sum: local(f32[()])                                 sum_1: local(f32[()])
        ...                                                 ...

The first of a name keeps it, so that a program of one definition keeps all its names. Names follow from the nest alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorexpr.codegen.nest import Alloc, Block, For, LoopNest, Stmt
from tensorexpr.codegen.nest.walks import map_accesses, with_blocks
from tensorexpr.codegen.rewrites.expressions import substituted
from tensorexpr.codegen.rewrites.paths import walk_nest
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.ir import Access, Index
from tensorexpr.records import replace
from tensorexpr.traversal import fresh_name


def taken_names(nest: LoopNest) -> set[str]:
    """All names of a nest: of buffers, constants, sizes and loops."""
    found = {*nest.sizes, *(b.name for b in (*nest.parameters, *nest.workspace)), *(c.name for c in nest.constants)}
    for _, s in walk_nest(nest):
        if isinstance(s, For):
            found.add(s.index)
        elif isinstance(s, Alloc):
            found.add(s.buffer.name)
    return found


def fresh(nest: LoopNest, *stems: str) -> tuple[str, ...]:
    """A name that is not taken for each stem: the stem itself, or the first of `stem_1`, `stem_2`, ... that is free."""
    taken = taken_names(nest)
    return tuple(fresh_name(stem, taken) for stem in stems)


def chosen(nest: LoopNest, given: Sequence[str] | None, *stems: str) -> tuple[str, ...]:
    """The names that a caller gives to what a rewrite makes, or fresh ones of these stems. Raises `ScheduleError` where one is taken."""
    if given is None:
        return fresh(nest, *stems)
    taken = taken_names(nest)
    for at, name in enumerate(given):
        if name in taken or name in given[:at]:
            raise refuse(f"expected names that nothing has yet, got {name!r} again", hint=f"{', '.join(fresh(nest, *stems))} are free")
    if len(given) != len(stems):
        raise refuse(f"expected {len(stems)} names, got {len(given)}")
    return tuple(given)


def named(nest: LoopNest) -> LoopNest:
    """The nest with distinct names of all loops and local buffers. Requires: a plain nest, in which no loop is a copy of another."""
    taken = {*nest.sizes, *(b.name for b in (*nest.parameters, *nest.workspace)), *(c.name for c in nest.constants)}
    every = taken_names(nest)

    def distinct_name(name: str) -> str:
        """The name, if it is the first of its kind; else one that no loop or buffer has, which might stand inside."""
        found = name if name not in taken else fresh_name(name, every)
        every.add(found)
        taken.add(found)
        return found

    def block(body: Block) -> Block:
        return tuple(map(statement, body))

    def statement(s: Stmt) -> Stmt:
        match s:
            case For():
                name = distinct_name(s.index)
                body = s.body if name == s.index else substituted(s.body, {s.index: Index(name)})
                return replace(s, index=name, body=block(body))
            case Alloc():
                name = distinct_name(s.buffer.name)
                body = s.body if name == s.buffer.name else with_names(s.body, {s.buffer.name: name})
                return Alloc(replace(s.buffer, name=name), block(body))
        return with_blocks(s, block)

    return replace(nest, kernels=tuple(replace(kernel, body=block(kernel.body)) for kernel in nest.kernels))


def with_names(block: Block, names: Mapping[str, str]) -> Block:
    """A block in which buffers that are declared outside of it have other names; one declared inside keeps its own."""

    def element(access: Access) -> Access:
        name = names.get(access.tensor)
        return access if name is None else replace(access, tensor=name)

    return map_accesses(block, element)
