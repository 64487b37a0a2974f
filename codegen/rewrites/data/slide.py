"""The rewrite `slide`: of a window that moves with a loop, an iteration computes what the one before did not; the rest is kept in a ring.

    for i in range(0, n):                               a: local(f32[3])
        a: local(f32[3])                                for i in range(0, n):
        for w in range(i, i + 3):            -->            for w in range(where(i > 0, i + 2, i), i + 3):
            a[w - i] = x[w] * 2.0                               a[w % 3] = x[w] * 2.0
        y[i] = a[0] + a[2]                                  y[i] = a[i % 3] + a[(i + 2) % 3]

That is what `fuse_at` leaves where windows overlap: a loop that counts elements as the whole buffer had them, and stores where they are in
the window. Of several axes the one slides along which the window moves. Legal for a loop that runs one iteration at a time, where a window
begins and ends no earlier than the one before, and an element is the same in each window that has it: its place in the whole is all that
tells it from others, also of what it reads of other windows. So what reads a window slides before that does. Values keep their bits."""

from __future__ import annotations

from collections.abc import Callable

from tensorexpr.codegen.lowering.context.arithmetic import add, constant, maximum, sub
from tensorexpr.codegen.nest import Alloc, Block, For, If, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import buffers_written, elements_read, inside, map_accesses, map_statements
from tensorexpr.codegen.rewrites.expressions import mentions, substituted_in
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.loops.simplify import simplified
from tensorexpr.codegen.rewrites.paths import Path, rewrite_loops, walk_block
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.codegen.rewrites.touched.places import apart
from tensorexpr.ir import Access, Apply, Expr, Index, apply, const
from tensorexpr.records import record, replace
from tensorexpr.regions import affine_of
from tensorexpr.traversal import free_names

Refusal = Callable[[str], Exception]


def slide(nest: LoopNest, buffer: str, loop: str) -> LoopNest:
    """The nest with a local buffer of a loop's iterations as a ring. Raises `ScheduleError` where its window does not move with the loop,
    or
    more than its place says what an element is.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> nest = parse_nest('''
    ... main(x, y)
    ... x: parameter(f32[10])
    ... y: parameter(f32[8], written)
    ...
    ... def kernel_0() -> y:
    ...     for i in range(0, 8):
    ...         a: local(f32[3])
    ...         for w in range(i, i + 3):
    ...             a[w - i] = x[w] * 2.0
    ...         y[i] = a[0] + a[2]
    ... ''')
    >>> print(slide(nest, "a", "i"))
    main(x, y)
    x: parameter(f32[10])
    y: parameter(f32[8], written)
    <BLANKLINE>
    def kernel_0() -> y:
        a: local(f32[3])
        for i in range(0, 8):
            for w in range(where(i > 0, i + 2, i), i + 3):
                a[w % 3] = x[w] * 2.0
            y[i] = a[i % 3] + a[(i + 2) % 3]
    <BLANKLINE>
    """
    done = 0

    def slid(s: For, path: Path) -> Block | None:
        nonlocal done
        kept = [x for _, x in walk_block(s.body) if isinstance(x, Alloc) and x.buffer.name == buffer]
        if len(kept) != 1:
            return None
        done += 1
        return simplified(_slid(s, kept[0]), Facts.at(nest, path), ended=False)

    made = rewrite_loops(nest, loop, slid)
    if not done:
        raise refuse(f"expected a loop whose iterations keep {buffer} for themselves, got {loop}", loop=loop, hint="compute_at first")
    return apart(made)


@record
class _Window:
    """What an iteration computes of a buffer: the axis along which the window moves, the loop over its elements there, counted as in the
    whole,
    and where the window begins."""

    axis: int
    loop: For
    begin: Expr


def _slid(s: For, alloc: Alloc) -> Block:
    buffer = alloc.buffer

    def refused(why: str) -> Exception:
        return refuse(f"expected a window of {buffer.name} that moves with {s.index}: {why}", s, s.index)

    if s.kind != "serial":
        raise refuse(f"expected a serial loop for {buffer.name} to slide in, got {s.index}, marked {s.kind}", s, s.index)
    window = _window(s, alloc, refused)
    length = constant(buffer.shape[window.axis])
    step = _coefficient(window.begin, s.index)
    if length is None or not 0 < step < length:
        raise refused(f"it is {length} long and moves by {step}")
    _check_same(s, buffer.name, window, refused, ())

    def placed(access: Access) -> Access:
        if access.tensor != buffer.name:
            return access
        at = apply("mod", add(access.indices[window.axis], window.begin), const(length))
        return replace(access, indices=(*access.indices[: window.axis], at, *access.indices[window.axis + 1 :]))

    before = substituted_in(window.loop.stop, {s.index: sub(Index(s.index), const(1))})
    start = apply("where", apply("gt", Index(s.index), s.start), maximum(before, window.loop.start), window.loop.start)
    body = map_accesses(_with_start(s.body, alloc, window.loop, start), placed)
    return (Alloc(buffer, (replace(s, body=body),)),)


def _window(s: For, alloc: Alloc, refused: Refusal) -> _Window:
    """The window of a buffer in a loop's iteration."""
    name = alloc.buffer.name
    stores = [x for _, x in walk_block(alloc.body) if isinstance(x, Store) and x.buffer == name]
    if len(stores) != 1:
        raise refused(f"{len(stores)} statements store it")
    (store,) = stores
    around = _around(s.body, store)
    if any(isinstance(x, If) for x in around):
        raise refused("it is computed under a condition")
    for axis, index in enumerate(store.indices):
        for x in around:
            if isinstance(x, For) and x.index in free_names(index) and s.index in {*free_names(x.start), *free_names(x.stop)}:
                begin = sub(Index(x.index), index)
                if x.index in free_names(begin) or not (_grows(x.start, s.index) and _grows(x.stop, s.index)):
                    raise refused(f"{x.index} does not go through it evenly")
                if any(isinstance(y, For) and y is not x and s.index in {*free_names(y.start), *free_names(y.stop)} for y in around):
                    raise refused("it moves along several axes")
                return _Window(axis, x, begin)
    raise refused("it stays")


def _check_same(s: For, name: str, window: _Window, refused: Refusal, known: tuple[str, ...]) -> None:
    """Refuses where more than its place in the whole says what an element of a window is."""
    own = {x.buffer.name for _, x in walk_block(window.loop.body) if isinstance(x, Alloc)}
    kept = {x.buffer.name: x for _, x in walk_block(s.body) if isinstance(x, Alloc) and x.buffer.name not in own}
    needed = {a.tensor for a in elements_read(window.loop.body)}
    if name in needed:
        raise refused("elements are made of others")
    origins: dict[str, _Window] = {}
    for other in sorted(needed & kept.keys()):
        if other in known:
            raise refused(f"it is made of {other}, which is made of it")
        origins[other] = _window(s, kept[other], refused)
        _check_same(s, other, origins[other], refused, (*known, name))
    changed = sorted((needed & buffers_written(s.body)) - own - origins.keys())
    if changed:
        raise refused(f"{changed[0]}, of which it is made, changes in the loop")
    origins[name] = window

    def whole(access: Access) -> Access:
        at = origins.get(access.tensor)
        if at is None:
            return access
        return replace(access, indices=tuple(add(i, at.begin) if k == at.axis else i for k, i in enumerate(access.indices)))

    if mentions(map_accesses(window.loop.body, whole), s.index):
        raise refused(f"an element is another one in each iteration of {s.index}")


def _around(block: Block, wanted: Stmt) -> list[Stmt]:
    """The statements of a block around one of it, outermost first."""
    for s in block:
        if s is wanted:
            return []
        if any(x is wanted for _, x in walk_block(inside(s))):
            return [s, *_around(inside(s), wanted)]
    return []


def _grows(bound: Expr, index: str) -> bool:
    """Whether a bound is nowhere less in a later iteration."""
    if isinstance(bound, Apply) and bound.op.name in ("minimum", "maximum"):
        return all(_grows(arg, index) for arg in bound.args)
    return index not in free_names(bound) or _coefficient(bound, index) > 0


def _coefficient(expr: Expr, index: str) -> int:
    """By how much an affine form grows with an index; 0 where it is none."""
    form = affine_of(expr)
    if form is None or any(not isinstance(atom, str) and index in atom.numerator.names() for atom in form.atoms()):
        return 0
    return form.coefficient(index)


def _with_start(block: Block, alloc: Alloc, loop: For, start: Expr) -> Block:
    """A block with another start of a loop, and without a declaration."""

    def changed(s: Stmt) -> Block | None:
        if s is alloc:
            return _with_start(alloc.body, alloc, loop, start)
        return (replace(loop, start=start),) if s is loop else None

    return map_statements(block, changed)
