"""The rewrite `contract`: a buffer of which an iteration of a loop needs a part is only that part.

    a: workspace(f32[n])                                for i in range(0, n):
    for i in range(0, n):                        -->        a: local(f32[()])
        a[i] = x[i] * 2.0                                   a[()] = x[i] * 2.0
        y[i] = a[i] + 1.0                                   y[i] = a[()] + 1.0

Legal where everything touches the buffer in the loop (in its copies, each by itself), and all that an iteration reads it has written
before: the sets of elements are compared exactly. The buffer is then made anew in each iteration, of the windows that it touches
(`windows`), which must be of constant length.

Where an iteration also reads what earlier ones wrote, the buffer becomes a ring along the axis that goes with the loop:

    a: workspace(f32[n])                                a: local(f32[3])
    for i in range(0, n):                        -->    for i in range(0, n):
        a[i] = ...                                          a[i % 3] = ...
        y[i] = a[i] + where(i > 1, a[i - 2], 0.0)           y[i] = a[i % 3] + where(i > 1, a[(i - 2) % 3], 0.0)

Legal for one loop with no other around it, whose windows never move back and are as long as the ring: two elements in one place of the
ring are then never alive at once. Values keep their bits.
"""

from __future__ import annotations

from tensorexpr.codegen.lowering.arithmetic import constant
from tensorexpr.codegen.nest import Alloc, Buffer, LoopNest
from tensorexpr.codegen.rewrites.data.covering import is_covered
from tensorexpr.codegen.rewrites.data.places import Touched, apart, declared, loops_around, pruned, touched, undeclared
from tensorexpr.codegen.rewrites.data.windows import Window, framed, windows
from tensorexpr.codegen.rewrites.expressions import map_accesses
from tensorexpr.codegen.rewrites.paths import Path, loop_at, loop_paths, put, statement
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.ir import Access, apply, const
from tensorexpr.records import replace
from tensorexpr.regions import affine_of


def contract(nest: LoopNest, buffer: str, loop: str) -> LoopNest:
    """The nest with a buffer that is needed in a loop alone as large as an iteration needs it.

    Raises `ScheduleError` where it is an output, touched elsewhere, or an iteration reads what it has not written.

    >>> from tensorexpr.codegen.nest_parse import parse_nest
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
    return apart(pruned(made))


def _contracted(nest: LoopNest, one: Touched, loop: str) -> LoopNest:
    """The nest with one declaration of the buffer contracted."""
    buffer = declared(nest, one)
    copies = [at for at in loop_paths(nest, loop) if at[: len(one.home)] == one.home]
    places: dict[Path, list[Path]] = {at: [] for at in copies}
    for path in dict.fromkeys((*one.stores, *one.reads)):
        at = next((at for at in copies if path[: len(at)] == at and path != at), None)
        if at is None:
            raise refuse(f"expected everything to touch {buffer.name} in {loop}", statement(nest, path), hint="merge the loops first")
        places[at].append(path)
    places = {at: paths for at, paths in places.items() if paths}
    frames = {at: windows(nest, at, paths, buffer) for at, paths in places.items()}
    if all(is_covered(nest, one, at, path) for at, paths in places.items() for path in paths if path in one.reads):
        for at, frame in frames.items():
            if any(constant(w.length) is None for w in frame):
                raise refuse(f"expected an iteration to touch a part of {buffer.name} of constant size", loop_at(nest, at), loop)
        for at in sorted(frames, reverse=True):
            own = loop_at(nest, at)
            nest = put(nest, at, (replace(own, body=(framed(buffer, buffer.name, frames[at], own.body),)),))
        return undeclared(nest, one)
    return _ring(nest, one, buffer, frames)


def _ring(nest: LoopNest, one: Touched, buffer: Buffer, frames: dict[Path, tuple[Window, ...]]) -> LoopNest:
    """The nest with a buffer of which later iterations read what earlier ones wrote as a ring."""
    at = min(frames)
    loop = loop_at(nest, at)

    def refused(why: str) -> Exception:
        return refuse(
            f"expected an iteration of {loop.index} to write what it reads of {buffer.name}, or a ring of what it touches: {why}", loop
        )

    if len(frames) > 1 or loops_around(nest, at, len(one.home)):
        raise refused("there are other copies of the loop, or loops around it")
    if loop.kind not in ("serial", "unroll"):
        raise refused(f"its iterations run to {loop.kind}")
    rings: dict[int, int] = {}
    for axis, w in enumerate(frames[at]):
        low = affine_of(w.low)
        length, most = constant(w.length), constant(buffer.shape[axis])
        moves = low is not None and not w.whole and low.coefficient(loop.index) > 0 and not low.has_division()
        if moves and length is not None and (most is None or length < most):
            rings[axis] = length
    if not rings:
        raise refused("no window of constant length goes forward with it")
    axis = min(rings, key=lambda a: (rings[a], a))

    def moved(access: Access) -> Access:
        if access.tensor != buffer.name:
            return access
        here = apply("mod", access.indices[axis], const(rings[axis]))
        return replace(access, indices=(*access.indices[:axis], here, *access.indices[axis + 1 :]))

    shape = (*buffer.shape[:axis], const(rings[axis]), *buffer.shape[axis + 1 :])
    ring = replace(buffer, shape=shape, memory="local")
    (body,) = map_accesses((loop,), moved)
    if all(constant(extent) is not None for extent in shape):
        return undeclared(put(nest, at, (Alloc(ring, (body,)),)), one)
    nest = put(nest, at, (body,))
    return replace(nest, workspace=tuple(replace(b, shape=shape) if b.name == buffer.name else b for b in nest.workspace))
