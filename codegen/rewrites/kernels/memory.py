"""The rewrites `stream` and `prefetch`: what a nest says of the memory that it touches. Values and loops are what they are without it.

    y: parameter(f32[n], written)       -->     y: parameter(f32[n], written, streamed)
    x: parameter(f32[n, 256])           -->     x: parameter(f32[n, 256], prefetched=256)

| rewrite | effect | legal where |
|---|---|---|
| `stream` | results are written past the caches: memory is not read first, and what the caches hold stays | an output that nothing reads |
| `prefetch` | what some iterations of a loop further on read is asked for | it is only read, an even distance apart along the loop |
"""

from __future__ import annotations

from tensorexpr.codegen.lowering.context.arithmetic import constant
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.nest.walks import buffers_written, elements_read
from tensorexpr.codegen.rewrites.paths import loop_at, loop_paths
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.codegen.schedule.analysis.strides import FAR, reach
from tensorexpr.records import replace
from tensorexpr.traversal import tensors_read


def stream(nest: LoopNest, buffer: str) -> LoopNest:
    """rewrite: C[...] = e, in the caches --> C[...] = e, past the caches: for an output that nothing reads again.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> nest = parse_nest('''
    ... main(x, y)
    ... x: parameter(f32[60])
    ... y: parameter(f32[60], written)
    ...
    ... def kernel_0() -> y:
    ...     for i in range(0, 60):
    ...         y[i] = x[i] + 1.0
    ... ''')
    >>> print(str(stream(nest, "y")).splitlines()[2])
    y: parameter(f32[60], written, streamed)
    """
    if buffer not in nest.writes or any(a.tensor == buffer for kernel in nest.kernels for a in elements_read(kernel.body)):
        raise refuse(f"expected an output that nothing reads to write past the caches, got {buffer}")
    return replace(nest, streams=tuple(b.name for b in nest.parameters if b.name in (*nest.streams, buffer)))


def prefetch(nest: LoopNest, buffer: str, loop: str, rows: int = 1) -> LoopNest:
    """rewrite: for i: ... X[i, j] ... --> for i: ... X[i, j], X[i + rows, j] is on its way ...

    A hint to the caches (the second level). Of integers that say where others lie, what is read through them is asked for, too. Places
    that data says do not count.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> nest = parse_nest('''
    ... main(x, y)
    ... x: parameter(f32[8, 256])
    ... y: parameter(f32[8, 256], written)
    ...
    ... def kernel_0() -> y:
    ...     for i in range(0, 8):
    ...         for j in range(0, 256):
    ...             y[i, j] = x[i, j] + 1.0
    ... ''')
    >>> print(str(prefetch(nest, "x", "i")).splitlines()[1])
    x: parameter(f32[8, 256], prefetched=256)
    """
    shapes = {b.name: b.shape for b in (*nest.parameters, *nest.workspace)}
    if buffer not in shapes or buffer in nest.writes:
        raise refuse(f"expected an input or what was made of inputs to fetch ahead, got {buffer}")
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise refuse(f"expected at least one row to fetch ahead, got {rows!r}", loop=loop)
    found: set[int] = set()
    for path in loop_paths(nest, loop):
        s = loop_at(nest, path)
        if buffer in buffers_written(s.body):
            raise refuse(f"expected what {loop} only reads to fetch ahead, got {buffer}, which it writes", s, loop)
        read = [a for a in elements_read(s.body) if a.tensor == buffer and len(a.indices) == len(shapes[buffer])]
        known = [a for a in read if not any(map(tensors_read, a.indices))]
        found.update(reach(a, shapes[buffer]).stride(loop) for a in known)
    step = max(found, default=0)
    if len(found) != 1 or not 0 < step < FAR:
        hint = "its extents are open" if any(constant(e) is None for e in shapes[buffer][1:]) else None
        raise refuse(f"expected a loop over rows of {buffer} of constant length to fetch ahead, got {loop}", loop=loop, hint=hint)
    ahead = {**dict(nest.ahead), buffer: rows * step}
    return replace(nest, ahead=tuple((name, ahead[name]) for name in shapes if name in ahead))
