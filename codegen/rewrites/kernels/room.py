"""The rewrite `in_memory`: local buffers that are too large for a stack are kept in the workspace.

                                                    p: workspace(f32[8, 40000])
    for i in parallel(range(0, 8)):                 for i in parallel(range(0, 8)):
        p: local(f32[40000])               -->          for j in range(0, 40000):
        for j in range(0, 40000):                           p[i, j] = x[i, j] * 2.0
            p[j] = x[i, j] * 2.0

The iterations of a loop that runs on several cores have a part each; those that run one after the other share one. Always legal, for a loop
over cores whose bounds are those of no loop around it. Values keep their bits.
"""

from __future__ import annotations

from math import prod

from tensorexpr.codegen.lowering.context.arithmetic import constant, sub
from tensorexpr.codegen.nest import Alloc, For, LoopNest
from tensorexpr.codegen.nest.walks import map_accesses
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.loops.split import length_of
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import Path, put, statement, walk_nest
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.ir import Apply, Const, Expr, Index, Size
from tensorexpr.records import replace
from tensorexpr.traversal import walk

MOST = 1 << 15
"""Bytes of a local buffer on a stack: the size of a first cache."""


def in_memory(nest: LoopNest, most: int = MOST) -> LoopNest:
    """The nest with each local buffer of more than so many bytes in the workspace. Raises `ScheduleError` where the number of parts is not
    known in front.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> nest = parse_nest('''
    ... main(x, y)
    ... x: parameter(f32[8, 4])
    ... y: parameter(f32[8, 4], written)
    ...
    ... def kernel_0() -> y:
    ...     for i in parallel(range(0, 8)):
    ...         p: local(f32[4])
    ...         for j in range(0, 4):
    ...             p[j] = x[i, j] * 2.0
    ...         for k in range(0, 4):
    ...             y[i, k] = p[3 - k]
    ... ''')
    >>> print(in_memory(nest, 8))
    main(x, y)
    x: parameter(f32[8, 4])
    y: parameter(f32[8, 4], written)
    p: workspace(f32[8, 4])
    <BLANKLINE>
    def kernel_0() -> y:
        for i in parallel(range(0, 8)):
            for j in range(0, 4):
                p[i, j] = x[i, j] * 2.0
            for k in range(0, 4):
                y[i, k] = p[i, 3 - k]
    <BLANKLINE>
    """
    while (path := next((path for path, s in walk_nest(nest) if isinstance(s, Alloc) and bytes_of(s) > most), None)) is not None:
        nest = _moved(nest, path)
    return nest


def bytes_of(s: Alloc) -> int:
    """The size of a local buffer."""
    return s.buffer.dtype.itemsize * prod(constant(extent) or 0 for extent in s.buffer.shape)


def _moved(nest: LoopNest, path: Path) -> LoopNest:
    s = statement(nest, path)
    assert isinstance(s, Alloc)
    places: list[Expr] = []
    shape: list[Expr] = []
    for end in range(2, len(path)):
        loop = statement(nest, path[:end])
        if isinstance(loop, For) and loop.kind not in ("serial", "unroll"):
            length = length_of(loop, Facts.at(nest, path[:1]))
            if loop.kind != "parallel" or any(not isinstance(node, Const | Size | Apply) for node in walk(length)):
                raise refuse(f"expected local buffers of at most {MOST} bytes in {loop.kind} {loop.index}, got {s.buffer.name}", loop)
            places.append(sub(Index(loop.index), loop.start))
            shape.append(length)
    own = {b.name for _, x in walk_nest(nest) if isinstance(x, Alloc) and x is not s for b in (x.buffer,)}
    name = fresh(nest, f"{s.buffer.name}_kept")[0] if s.buffer.name in own else s.buffer.name
    old = s.buffer.name
    body = map_accesses(s.body, lambda a: replace(a, tensor=name, indices=(*places, *a.indices)) if a.tensor == old else a)
    buffer = replace(s.buffer, name=name, shape=(*shape, *s.buffer.shape), memory="workspace")
    return replace(put(nest, path, body), workspace=(*nest.workspace, buffer))
