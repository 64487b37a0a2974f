"""The rewrite `in_memory`: local buffers that are too large for a stack, or may be, are kept in the workspace.

                                                    p: workspace(f32[8, 40000])
    for i in parallel(range(0, 8)):                 for i in parallel(range(0, 8)):
        p: local(f32[40000])               -->          for j in range(0, 40000):
        for j in range(0, 40000):                           p[i, j] = x[i, j] * 2.0
            p[j] = x[i, j] * 2.0

The iterations of a loop that runs on several cores have a part each; those that run one after the other share one. Where sizes say how
many iterations there are, or how large the buffer is, a core has one part, and every so many-th iteration:

                                                    p: workspace(f32[2, m])
    for i in parallel(range(0, n)):                 for slot in parallel(range(0, 2)):
        p: local(f32[m])                   -->          for i in range(0, (n - slot + 1) // 2):
        for j in range(0, m):                               for j in range(0, m):
            p[j] = ... x[i, j]                                  p[slot, j] = ... x[slot + i * 2, j]

Always legal, for a loop over cores whose bounds are those of no loop around it. Values keep their bits.
"""

from __future__ import annotations

from math import inf, prod

from tensorexpr.codegen.lowering.context.arithmetic import ZERO, add, constant, floordiv, mul, sub
from tensorexpr.codegen.nest import Alloc, Block, For, LoopNest, Stmt
from tensorexpr.codegen.nest.walks import map_accesses, map_statements
from tensorexpr.codegen.rewrites.expressions import substituted
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.loops.split import length_of
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import Path, put, statement, walk_nest
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.ir import Apply, Const, Expr, Index, Size, const
from tensorexpr.records import replace
from tensorexpr.traversal import walk

MOST = 1 << 15
"""Bytes of a local buffer on a stack: the size of a first cache."""
CORES = 8
"""Parts of what is open, one for a core, unless the machine is known."""


def in_memory(nest: LoopNest, most: int = MOST, cores: int = CORES) -> LoopNest:
    """The nest with each local buffer of more than so many bytes, or of a size that is open, in the workspace. Raises `ScheduleError` where
    the number of parts is not known in front.

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
        shared = _shared_out(nest, path, cores)
        nest = _moved(nest, path) if shared is None else shared
    return nest


def bytes_of(s: Alloc) -> float:
    """The size of a local buffer; infinite where it is open."""
    extents = [constant(extent) for extent in s.buffer.shape]
    return inf if None in extents else s.buffer.dtype.itemsize * prod(extent or 0 for extent in extents)


def _shared_out(nest: LoopNest, path: Path, cores: int) -> LoopNest | None:
    """The nest with the loop over cores around an allocation over as many slots, each of which runs its share of the iterations; None where
    there is none, or one of so few parts that each iteration may have its own."""
    loops = [(path[:end], s) for end in range(2, len(path)) if isinstance(s := statement(nest, path[:end]), For) and s.kind == "parallel"]
    if not loops:
        return None
    at, loop = loops[0]
    few = constant(sub(loop.stop, loop.start))
    alloc = statement(nest, path)
    assert isinstance(alloc, Alloc)
    if len(loops) == 1 and few is not None and (few <= cores or bytes_of(alloc) < inf):
        return None
    (name,) = fresh(nest, "slot")
    first = add(loop.start, Index(name))
    rounds = floordiv(add(sub(loop.stop, first), const(cores - 1)), cores)
    body = substituted(_in_turn(loop.body), {loop.index: add(first, mul(Index(loop.index), const(cores)))})
    share = replace(loop, start=ZERO, stop=rounds, kind="serial", body=body)
    return put(nest, at, (For(name, ZERO, const(cores), (share,), "parallel"),))


def _in_turn(block: Block) -> Block:
    """Statements whose loops over cores run in order."""
    return map_statements(block, _serial)


def _serial(s: Stmt) -> Block | None:
    return (replace(s, kind="serial", body=_in_turn(s.body)),) if isinstance(s, For) and s.kind == "parallel" else None


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
