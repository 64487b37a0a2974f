"""The rewrite `own`: elements that data chooses have owners, each of which takes in what is sent to its own.

    for t in range(0, n):                           for t_own in range(0, (m + 63)//64):
        check(k[t], m)                                  for t in range(0, n):
        S[k[t]] = S[k[t]] + x[t]          -->               if k[t] >= t_own*64 and k[t] < minimum(t_own*64 + 64, m):
                                                                S[k[t]] = S[k[t]] + x[t]

Owners have blocks of elements along one axis, no two the same, and so may run on all cores (`parallel`). Each goes through all that is
sent: few owners read the indices a few times, and share the work of the values (`sort` gives each a list of its own). An element takes in
what is sent to it in the order of the text, whatever the number of owners: all values keep their bits.

Legal where the loop stores to the buffer alone, and reads of it what the same statement stores to. What the condition implies is not
checked again in the loops of owners; the checks of all points run once, in front of them.
"""

from __future__ import annotations

from tensorexpr.codegen.lowering.context.arithmetic import ZERO, add, floordiv, minimum, mul
from tensorexpr.codegen.nest import Alloc, Block, Buffer, Check, For, If, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import expressions_in, expressions_of, map_statements, stores_in, with_blocks
from tensorexpr.codegen.rewrites.facts import Facts
from tensorexpr.codegen.rewrites.names import chosen
from tensorexpr.codegen.rewrites.paths import Path, loop_at, loop_paths, rewrite_loops, statement, walk_block, walk_nest
from tensorexpr.codegen.rewrites.refusals import refuse
from tensorexpr.codegen.rewrites.touched.places import by_axes, loops_around, pruned_block
from tensorexpr.ir import Access, Expr, Index, apply, conjunction, const
from tensorexpr.records import replace
from tensorexpr.traversal import free_names, tensors_read, walk


def own(nest: LoopNest, buffer: str, loop: str, width: int, axis: int = 0, name: str | None = None) -> LoopNest:
    """The nest with a loop (`name`) over blocks of `width` elements of a buffer, along an axis, around the loop that stores to them.

    Raises `ScheduleError` where the loop does more than that.

    >>> from tensorexpr.codegen.nest.parse import parse_nest
    >>> nest = parse_nest('''
    ... main(x, k, S)
    ... x: parameter(f32[22])
    ... k: parameter(i64[22])
    ... S: parameter(f32[9], written)
    ...
    ... def kernel_0() -> S:
    ...     for t in range(0, 22):
    ...         check(k[t], 9, 0)
    ...         S[k[t]] = x[t]
    ...
    ... check_0 = site("S[k[t]]", tensor="S", axis=0, definition="S")
    ... ''')
    >>> print(own(nest, "S", "t", 4))
    main(x, k, S)
    x: parameter(f32[22])
    k: parameter(i64[22])
    S: parameter(f32[9], written)
    <BLANKLINE>
    def kernel_0() -> S:
        for t in range(0, 22):
            check(k[t], 9, 0)
        for t_own in range(0, 3):
            for t in range(0, 22):
                if k[t] >= t_own * 4 and k[t] < minimum(t_own * 4 + 4, 9):
                    S[k[t]] = x[t]
    <BLANKLINE>
    check_0 = site("S[k[t]]", tensor="S", axis=0, definition="S")
    <BLANKLINE>
    """
    target, paths = sent_to(nest, buffer, loop, width, axis)
    (owner,) = chosen(nest, None if name is None else (name,), f"{loop}_own")

    def owned(s: For, path: Path) -> Block:
        made = Owned(target, axis, width, owner)
        return (*checks_of(s, target), For(owner, ZERO, made.count, (made.loop(s, made.one_place(nest, path)),)))

    return rewrite_loops(nest, loop, lambda s, path: owned(s, path) if path in paths else None)


def sent_to(nest: LoopNest, buffer: str, loop: str, width: int, axis: int) -> tuple[Buffer, list[Path]]:
    """A buffer by name, and the loops that store to it, and to nothing else. Raises `ScheduleError` where that cannot have owners."""
    if not isinstance(width, int) or isinstance(width, bool) or width < 1:
        raise refuse(f"expected a positive int as the width of a block, got {width!r}", loop=loop)
    found = next((b for b in (*nest.parameters, *nest.workspace) if b.name == buffer), None)
    paths = [path for path in loop_paths(nest, loop) if any(s.buffer == buffer for s in stores_in((loop_at(nest, path),)))]
    if found is None or not paths:
        raise refuse(f"expected a loop that stores to a buffer of parameters or workspace, got {loop} and {buffer}", loop=loop)
    if not 0 <= axis < len(found.shape):
        raise refuse(f"expected an axis of {buffer} below {len(found.shape)}, got {axis}", loop=loop)
    for path in paths:
        _check_alone(loop_at(nest, path), found)
    return found, paths


def checks_of(s: For, buffer: Buffer) -> Block:
    """The checks of a loop at all its points, without what it stores to a buffer."""
    checks = pruned_block(_without((s,), buffer.name))
    return checks if any(isinstance(inner, Check) for _, inner in walk_block(checks)) else ()


def _check_alone(s: For, buffer: Buffer) -> None:
    """Refuses where a loop stores to another buffer, or reads elements of this one that it does not store to there."""
    if any(isinstance(inner, For) and inner.kind != "serial" for _, inner in walk_block((s,))):
        raise refuse(f"expected serial loops at and inside of {s.index}, got another", s, s.index, "own first")
    private = {inner.buffer.name for _, inner in walk_block(s.body) if isinstance(inner, Alloc)}
    for _, inner in walk_block((s,)):
        if isinstance(inner, Store) and inner.buffer != buffer.name and inner.buffer not in private:
            raise refuse(f"expected {s.index} to store to {buffer.name} alone, got {inner.buffer}", inner, s.index)
        here = inner.indices if isinstance(inner, Store) and inner.buffer == buffer.name else None
        for e in expressions_of(inner):
            if any(isinstance(n, Access) and n.tensor == buffer.name and n.indices != here for n in walk(e)):
                raise refuse(f"expected {s.index} to read of {buffer.name} what it stores to in the same statement", inner, s.index)


def _without(block: Block, buffer: str) -> Block:
    """A block without the stores to a buffer, and without local buffers that nothing reads then."""

    def left(s: Stmt) -> Block | None:
        if isinstance(s, Store) and s.buffer == buffer:
            return ()
        if not isinstance(s, Alloc):
            return None
        body, name = _without(s.body, buffer), s.buffer.name
        used = any(name in tensors_read(e) for e in expressions_in(body))
        return (replace(s, body=body),) if used else _without(body, name)

    return map_statements(block, left)


class Owned:
    """What an owner does of a loop: blocks of `width` elements along an axis of a buffer, by the index `owner` of a loop over these."""

    def __init__(self, buffer: Buffer, axis: int, width: int, owner: str) -> None:
        self.buffer, self.axis = buffer, axis
        extent = buffer.shape[axis]
        self.count = floordiv(add(extent, const(width - 1)), width)
        self.low = mul(Index(owner), const(width))
        self.high = minimum(add(self.low, const(width)), extent)

    def loop(self, s: For, place: Expr | None) -> For:
        """The loop with a condition around what stores to one place, as far outside as that is known, or around each store."""
        if place is None:
            return replace(s, body=self.each(s.body))
        inner = {one.index for _, one in walk_block(s.body) if isinstance(one, For)}
        return replace(s, body=self.under(s.body, place, inner & set(free_names(place))))

    def one_place(self, nest: LoopNest, path: Path) -> Expr | None:
        """The index along the axis of all that the loop at a path stores, where that is one, of elements that may be read whatever
        conditions and checks say."""
        stores = [p for p, s in walk_nest(nest) if p[: len(path)] == path and isinstance(s, Store) and s.buffer == self.buffer.name]
        places = {self.place(store): at for at in stores if isinstance(store := statement(nest, at), Store)}
        if len(places) > 1:
            return None
        (place, at) = next(iter(places.items()))
        facts = Facts.at(nest, path)
        for one in loops_around(nest, at, len(path)):
            facts = facts.loop(one.index, one.start, one.stop)
        shapes = {b.name: b.shape for b in (*nest.parameters, *nest.workspace)} | {c.name: c.type.shape for c in nest.constants}

        def is_safe(access: Access) -> bool:
            ends = zip(access.indices, shapes.get(access.tensor, ()), strict=False)
            known = access.tensor in shapes and len(access.indices) == len(shapes[access.tensor])
            return known and all(facts.is_less(ZERO, i, 0) and facts.is_less(i, extent) for i, extent in ends)

        return place if all(is_safe(n) for n in walk(place) if isinstance(n, Access)) else None

    def place(self, store: Store) -> Expr:
        """The index of what is stored to along the axis."""
        return by_axes(self.buffer, Access(store.buffer, store.indices, store.value.dtype)).indices[self.axis]

    def condition(self, place: Expr) -> Expr:
        return conjunction((apply("ge", place, self.low), apply("lt", place, self.high)))

    def under(self, block: Block, place: Expr, loops: set[str]) -> Block:
        """A block under the condition for a place, inside of the loops on which that depends."""
        if not loops:
            return (If(self.condition(place), self.unchecked(block, place)),)

        def inner(s: Stmt) -> Stmt:
            left = loops - {s.index} if isinstance(s, For) else loops
            return with_blocks(s, lambda body: self.under(body, place, left))

        return tuple(map(inner, block))

    def unchecked(self, block: Block, place: Expr) -> Block:
        """A block without the checks of a place that is known to be in bounds."""
        known = place, self.buffer.shape[self.axis]
        return map_statements(block, lambda s: () if isinstance(s, Check) and (s.index, s.extent) == known else None)

    def each(self, block: Block) -> Block:
        """A block with a condition around each store."""

        def conditional(s: Stmt) -> Block | None:
            return (If(self.condition(self.place(s)), (s,)),) if isinstance(s, Store) and s.buffer == self.buffer.name else None

        return map_statements(block, conditional)
