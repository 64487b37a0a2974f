"""The rewrite `contract`: a buffer of which an iteration of a loop needs a part is only that part.

    a: workspace(f32[n])                                for i in range(0, n):
    for i in range(0, n):                        -->        a: local(f32[()])
        a[i] = x[i] * 2.0                                   a[()] = x[i] * 2.0
        y[i] = a[i] + 1.0                                   y[i] = a[()] + 1.0

Legal where everything touches the buffer in the loop (in its copies, each by itself), and all that an iteration reads it has written
before: the sets of elements are compared exactly. The buffer is then made anew in each iteration, of the windows that it touches
(`windows`), which must be of constant length.

Where an iteration also reads what earlier ones wrote, the buffer becomes a ring along the axis that goes with the loop (`rings`):

    a: workspace(f32[n])                                a: local(f32[3])
    for i in range(0, n):                        -->    for i in range(0, n):
        a[i] = ...                                          a[i % 3] = ...
        y[i] = a[i] + where(i > 1, a[i - 2], 0.0)           y[i] = a[i % 3] + where(i > 1, a[(i - 2) % 3], 0.0)

Legal where windows never move back and are as long as the ring: two elements in one place of the ring are then never alive at once. Loops
around, and copies of the loop, have places of their own along the other axes. What reads the buffer behind the loop may do so where that is
in its last window: of a scan of which the last entry alone is read, two are kept. Where the oldest element of a window is read before the
newest is stored, for every place along the other axes, the newest takes its place: a recurrence of which each point needs itself alone has
one. Values keep their bits.
"""

from __future__ import annotations

from tensorexpr.codegen.lowering.context.arithmetic import constant
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.rewrites.paths import Path, loop_at, loop_paths, put, statement
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.codegen.rewrites.touched.covering import is_covered
from tensorexpr.codegen.rewrites.touched.places import (
    Touched,
    apart,
    declared,
    pruned,
    touched,
    undeclared,
)
from tensorexpr.codegen.rewrites.touched.rings import ring
from tensorexpr.codegen.rewrites.touched.windows import framed, windows
from tensorexpr.records import replace


def contract(nest: LoopNest, buffer: str, loop: str) -> LoopNest:
    """The nest with a buffer that is needed in a loop alone as large as an iteration needs it.

    Raises `ScheduleError` where it is an output, touched elsewhere, or an iteration reads what it has not written.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> nest = parse_nest('''
    ... main(n, x, y)
    ... n: size
    ... x: parameter(f32[n])
    ... y: parameter(f32[n], written)
    ... a: workspace(f32[n])
    ...
    ... def kernel_0() -> y:
    ...     for i in range(0, n):
    ...         a[i] = x[i] * 2.0
    ...         y[i] = a[i] + where(i > 1, a[i - 2], 0.0)
    ... ''')
    >>> print(contract(nest, "a", "i"))
    main(n, x, y)
    n: size
    x: parameter(f32[n])
    y: parameter(f32[n], written)
    <BLANKLINE>
    def kernel_0() -> y:
        a: local(f32[3])
        for i in range(0, n):
            a[i % 3] = x[i] * 2.0
            y[i] = a[i % 3] + where(i > 1, a[(i - 2) % 3], 0.0)
    <BLANKLINE>
    """
    if buffer in nest.writes:
        raise refuse(f"expected a buffer that only {nest.name} needs, got its output {buffer}")
    made = nest
    for one in reversed(touched(nest, buffer)):
        made = _contracted(made, one, loop)
    return apart(pruned(made, nest))


def _contracted(nest: LoopNest, one: Touched, loop: str) -> LoopNest:
    """The nest with one declaration of the buffer contracted."""
    buffer = declared(nest, one)
    copies = [at for at in loop_paths(nest, loop) if at[: len(one.home)] == one.home]
    places: dict[Path, list[Path]] = {at: [] for at in copies}
    behind: list[Path] = []
    for path in dict.fromkeys((*one.stores, *one.reads)):
        at = next((at for at in copies if path[: len(at)] == at and path != at), None)
        if at is None and (path in one.stores or path < min(copies, default=path)):
            raise refuse(f"expected everything to touch {buffer.name} in {loop}", statement(nest, path), hint="merge the loops first")
        (behind if at is None else places[at]).append(path)
    places = {at: paths for at, paths in places.items() if paths}
    if not places:
        raise refuse(f"expected everything to touch {buffer.name} in {loop}", statement(nest, behind[0]), hint="merge the loops first")
    frames = {at: windows(nest, at, paths, buffer) for at, paths in places.items()}
    if not behind and all(is_covered(nest, one, at, path) for at, paths in places.items() for path in paths if path in one.reads):
        for at, frame in frames.items():
            if any(constant(w.length) is None for w in frame):
                raise refuse(f"expected an iteration to touch a part of {buffer.name} of constant size", loop_at(nest, at), loop)
        for at in sorted(frames, reverse=True):
            own = loop_at(nest, at)
            nest = put(nest, at, (replace(own, body=(framed(buffer, buffer.name, frames[at], own.body),)),))
        return undeclared(nest, one)
    return ring(nest, one, buffer, frames, behind)
