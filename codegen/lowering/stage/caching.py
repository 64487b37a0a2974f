"""Tiles of operands: the part of a tensor that an iteration of a loop reads, copied to a local buffer first.

    for k_o in range(0, 64):                        for k_o in range(0, 64):
        for k_i in range(0, 16):                        a_tile: local(f32[16, 128])
            ... a[i + i_o * 128, k_i + k_o * 16]  -->   a_tile[x1, x0] = a[x0 + i_o * 128, x1 + k_o * 16]
                                                        for k_i in range(0, 16):
                                                            ... a_tile[k_i, i]

The part is a box: along each axis the values of the index over the loops inside, which are known where it is affine in these and
their bounds are constants; what the loops outside add is where the box begins. Reads of which that is not known stay as they are,
and so do all where the box would be large. What is no box of the tensor may be one of loops (see `panels`). Elements beyond the ends of the
tensor are zeros that nothing reads.

Where loops inside have as many lanes as a block of a GPU has threads, all of them copy, several elements each (`PACK` bytes side by
side where these are aligned); and the elements for iterations to come are loaded before the work on this one: into tiles of their own,
as many as fit, where whole packs of them lie there as they do in the tensor, or they go one by one anyway (a GPU copies either by
itself); else those for the next one into registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from operator import is_

from tensorexpr.codegen.lowering.context.arithmetic import ZERO, add, constant, mul, reads_data
from tensorexpr.codegen.lowering.context.rests import Limit, Rest, limits_of, without
from tensorexpr.codegen.lowering.context.settled import mapped, with_names, with_values
from tensorexpr.codegen.lowering.stage.boxes import Box, Source, box_of, lanes_of, reads_of, sums_of
from tensorexpr.codegen.lowering.stage.panels import Panel, filled
from tensorexpr.codegen.nest import Ahead, Alloc, Block, Buffer, For, If, Stmt, Store
from tensorexpr.codegen.nest.walks import loops_in, map_statements, with_blocks
from tensorexpr.codegen.planners.gpu.zeros import zero_beyond
from tensorexpr.integers import Affine
from tensorexpr.ir import Access, Apply, Const, Expr, Index, Size, apply, conjunction, const
from tensorexpr.records import replace
from tensorexpr.regions import affine_of, expression_of
from tensorexpr.traversal import bottom_up, walk

TEAM = 32
"""Lanes from which on a loop is run by the threads of a block."""
LARGEST = 24 << 10
"""Bytes of one tile."""
LARGEST_ALONE = 32 << 10
"""The same in a block that is alone on a multiprocessor."""
SUMS_ALONE = 32 << 10
"""Sums of a block from which on it is: half of the registers that there are."""
MOST_STAGES = 3
"""Tiles of one tensor: one is worked on, the others are filled for iterations to come. A fourth takes registers for its addresses, at
which a convolution of float32 no longer has two blocks on a multiprocessor of sm_80 (130 registers in place of 128)."""
DECLARED = 48 << 10
"""Bytes of shared memory that a block of a GPU has without asking."""
OTHER = 4 << 10
"""Bytes of it that are left for other things than tiles."""
SYSTEM = 1 << 10
"""Bytes that a driver keeps of each block."""
BLOCKS = 2
"""Blocks of a multiprocessor that are to have room beside each other where they ask for memory."""
PACK = 16
"""Bytes that a thread loads at once."""
AT_ONCE = 8
"""Threads that write packs to shared memory at once."""
ALONE = (4, 8)
"""Bytes of an element that can be copied by itself."""


class Ends(If):
    """A condition on data loops that leaves out points beyond the extent of a split. What is added up for such points may be anything:
    their results are left out where they are stored. A mark for tiles alone: a nest that is done has plain conditions (`unmarked`)."""

    __slots__ = ()


def unmarked(block: Block) -> Block:
    """The statements with plain conditions in place of those that are marked for tiles; the same block where there are none."""
    made = tuple(map(_unmarked, block))
    return block if all(map(is_, made, block)) else made


def _unmarked(s: Stmt) -> Stmt:
    made = with_blocks(s, unmarked)
    return If(made.condition, made.then, made.otherwise) if isinstance(made, Ends | Rest) else made


def with_tiles(loop: For, sources: tuple[Source, ...], fresh: Callable[[str], str], shared: int = DECLARED, lines: int = 1) -> Block:
    """The loop with the parts of some tensors copied in each iteration; a block of a GPU may ask for so many `shared` bytes. Sizes that are
    the length of lines are multiples of `lines`."""
    lanes = max((lanes_of(s) for s in loops_in(loop.body) if s.kind == "vectorize"), default=1)
    alone = lanes >= TEAM and sums_of(loop.body) >= SUMS_ALONE
    room = max(DECLARED - OTHER, shared // (1 if alone else BLOCKS) - SYSTEM)
    made: list[_Tile] = []
    body, numbers = with_names(loop.body, fresh) if lanes >= TEAM else (loop.body, {})
    multiples = {source.shape[-1].name: lines for source in sources if isinstance(source.shape[-1], Size)}
    boxes = [(source, box_of(body, source, LARGEST_ALONE if alone else LARGEST)) for source in sources]
    dropped, limits = limits_of(body, frozenset(source.buffer for source, box in boxes if box is not None))
    for source, box in boxes:
        sizes = tuple(dict.fromkeys(n.name for r in reads_of(body, source.buffer, {}, True) for n in walk(r.access) if isinstance(n, Size)))
        if box is not None:
            made.append(_Tile(source, box, limits.get(source.buffer, ()), sizes, lanes, fresh, loop.index, room // 2, multiples))
    body = _in_place(body, {source.buffer: source.panel for source, box in boxes if box is None and source.panel is not None})
    if not made:
        return (replace(loop, body=filled(body, {})),)
    some = constant(loop.start), constant(loop.stop)
    stages = _stages(made, None if some[0] is None or some[1] is None else some[1] - some[0], room)
    for tile in made:
        tile.settle(stages)
    body = _without_ends(without(body, dropped), frozenset(t.source.buffer for t in made))
    beyond = {t.source.buffer: t.source.shape for t in made if not t.box.certain}
    body = tuple(mapped(s, lambda e: _without_zeros(e, beyond)) for s in body)
    body = filled(body, {t.source.buffer: t.name for t in made if t.source.panel is not None})
    for tile in made:
        body = _redirected(body, tile)
    if lanes < TEAM:
        for tile in reversed(made):
            body = (Alloc(tile.buffer, (*tile.copy(), *body)),)
        return (replace(loop, body=body),)
    staged, others = ([t for t in made if t.staged is which] for which in (True, False))
    here = Index(loop.index)
    ahead = (*_loaded(others, loop, add(here, const(1))), *_loaded(staged, loop, add(here, const(stages - 1))))
    body = (*(s for t in made for s in t.stored()), *ahead, *body)
    for tile in reversed(others):
        body = (Alloc(tile.buffer, body),)
    first = tuple(s for n in range(stages - 1) for s in _loaded(staged, loop, add(loop.start, const(n))))
    block: Block = (*_loaded(others, loop, loop.start), *first, replace(loop, body=body))
    for tile in reversed(made):
        block = (Alloc(tile.buffer if tile.staged else tile.registers, block),)
    return with_values(block, numbers)


def _stages(made: list[_Tile], iterations: int | None, room: int) -> int:
    """How many tiles there are of each tensor whose tiles are filled ahead: as many as fit, and no more than iterations."""
    staged, others = (sum(t.bytes for t in made if t.staged is which) for which in (True, False))
    fit = (room - others) // staged if staged else 2
    return max(2, min(MOST_STAGES, fit, iterations or 2))


def _loaded(tiles: list[_Tile], loop: For, iteration: Expr) -> Block:
    """What an iteration, where there is one, needs of some tensors: into tiles of its own, or into registers."""
    copies = tuple(s for t in tiles for s in t.loaded({loop.index: iteration}))
    inside, number, stop = apply("lt", iteration, loop.stop), constant(iteration), constant(loop.stop)
    if not tiles:
        return ()
    if tiles[0].staged:
        return (Ahead(inside, copies),)
    return copies if number is not None and stop is not None and number < stop else (If(inside, copies),)


class _Tile:
    """A tile of one tensor: its buffer and the statements that fill it."""

    def __init__(
        self,
        source: Source,
        box: Box,
        limits: tuple[Limit, ...],
        sizes: tuple[str, ...],
        lanes: int,
        fresh: Callable[[str], str],
        loop: str,
        most: int,
        multiples: Mapping[str, int],
    ) -> None:
        self.source, self.box, self.limits, self.sizes, self.lanes, self.loop = source, box, limits, sizes, lanes, loop
        self.pack = self._pack(multiples)
        size = prod(box.extents) * box.dtype.itemsize
        together = self.pack * box.dtype.itemsize
        straight = source.order[-1] == len(source.order) - 1 and together in (PACK, *ALONE)
        straight = straight or (self.pack == 1 and together in ALONE)
        self.staged = straight and lanes >= TEAM and 2 * size <= most
        row = box.extents[source.order[-1]] * box.dtype.itemsize
        self.bytes = size // row * (row + PACK)
        self.name, self.stages = fresh(f"{source.buffer}_tile"), 1
        self.settle(1)
        self.count = prod(box.extents) // self.pack
        self.steps = -(-self.count // lanes)
        shape = (const(self.steps), const(self.pack), const(lanes))
        self.registers = Buffer(fresh(f"{source.buffer}_next"), box.dtype, shape, "local")
        self.names = [fresh(word) for word in ("step", "lane", "part")]
        self.axes = [fresh(f"x{axis}") for axis in range(len(box.extents))]

    def settle(self, stages: int) -> None:
        """So many tiles, where they are filled ahead."""
        self.stages = stages if self.staged else 1
        extents = [self.stages] if self.stages > 1 else []
        extents += [self.box.extents[axis] for axis in self.source.order]
        self.buffer = Buffer(self.name, self.box.dtype, tuple(const(n) for n in extents), "local")

    def _pack(self, multiples: Mapping[str, int]) -> int:
        """How many elements side by side may be loaded at once: the box and every row of the tensor begin at multiples of them. What cannot
        be copied by itself goes in smaller packs, too."""
        size, last = self.box.dtype.itemsize, self.source.shape[-1]
        ends = [self.box.start(-1), *(limit.stop for limit in self.limits if limit.axis == len(self.source.shape) - 1)]
        if not isinstance(last, Const | Size):
            return 1
        length = multiples[last.name] if isinstance(last, Size) else int(last.value)
        own = [length] if self.source.panel is None else self.source.panel.pack_ends()
        if own is None:
            return 1
        factors = [f * (multiples.get(atom, 1) if isinstance(atom, str) else 1) for end in ends for atom, f in end.terms]
        steps = [*own, self.box.extents[-1], *(end.constant for end in ends), *factors]
        packs = [PACK // size, *(n // size for n in reversed(ALONE) if size < min(ALONE))]
        return next((count for count in packs if all(n % count == 0 for n in steps)), 1)

    def element(self, at: list[Expr], moved: dict[str, Expr]) -> tuple[Access, Expr | None]:
        """The element of the tensor at a place of the box, and the condition that there is one."""
        places = tuple(add(self._outside(self.box.start(axis), moved), place) for axis, place in enumerate(at))
        panel = self.source.panel
        indices = places if panel is None else panel.at(places, moved)
        conditions: list[Expr] = []
        if panel is not None:
            conditions += panel.inside(indices)
        elif not self.box.certain:
            for index, extent in zip(indices, self.source.shape, strict=True):
                conditions += [apply("ge", index, ZERO), apply("lt", index, extent)]
        for limit in self.limits:
            condition = apply("lt", places[limit.axis], self._outside(limit.stop, moved, limit.sizes))
            conditions += [condition] if condition not in conditions else []
        buffer = self.source.buffer if panel is None else panel.buffer
        return Access(buffer, indices, self.box.dtype), conjunction(tuple(conditions)) if conditions else None

    def _outside(self, form: Affine, moved: dict[str, Expr], sizes: tuple[str, ...] = ()) -> Expr:
        """What loops outside say, some of them moved."""
        return bottom_up(expression_of(form, (*self.sizes, *sizes)), lambda n: moved.get(n.name, n) if isinstance(n, Index) else n)

    def copy(self) -> Block:
        """The tile, element by element."""
        at: list[Expr] = [Index(n) for n in self.axes]
        value, inside = self.element(at, {})
        places = tuple(at[axis] for axis in self.source.order)
        block: Block = self._store(self.buffer, places, value, inside)
        for axis in reversed(self.source.order):
            block = (For(self.axes[axis], ZERO, const(self.box.extents[axis]), block),)
        return block

    def _store(self, buffer: Buffer, places: tuple[Expr, ...], value: Expr, inside: Expr | None) -> Block:
        store = Store(buffer.name, places, value)
        if inside is None:
            return (store,)
        return (If(inside, (store,), (Store(buffer.name, places, Const(0, buffer.dtype)),)),)

    def stage(self, iteration: Expr) -> tuple[Expr, ...]:
        """Which of the tiles an iteration works on."""
        if self.stages == 1:
            return ()
        number = constant(iteration)
        return (apply("mod", iteration, const(self.stages)) if number is None else const(number % self.stages),)

    def loaded(self, moved: dict[str, Expr]) -> Block:
        """The elements of an iteration in its tile, or in registers: so many of each thread."""
        part = Index(self.names[2])
        at = self._places(part)
        value, inside = self.element(at, moved)
        name = self.buffer.name if self.staged else self.registers.name
        places: tuple[Expr, ...] = (Index(self.names[0]), part, Index(self.names[1]))
        if self.staged:
            places = (*self.stage(moved[self.loop]), *(at[axis] for axis in self.source.order))
        stores: Block = (Store(name, places, value),)
        block = self._parts(stores)
        if inside is not None:
            # A pack lies inside or outside as a whole: it is aligned, and so are the ends.
            whole = bottom_up(inside, lambda n: ZERO if n == part else n)
            zeros: Block = (Store(name, places, Const(0, value.dtype)),)
            zeros = self._parts(zeros) if self.pack > 1 else tuple(_substituted(s, {part.name: ZERO}) for s in zeros)
            block = (If(whole, block, zeros),)
        return self._by_all(block)

    def stored(self) -> Block:
        """The tile, from the registers."""
        if self.staged:
            return ()
        part = Index(self.names[2])
        at = self._places(part)
        value = Access(self.registers.name, (Index(self.names[0]), part, Index(self.names[1])), self.box.dtype)
        return self._by_all(self._parts((Store(self.buffer.name, tuple(at[axis] for axis in self.source.order), value),)))

    def _parts(self, stores: Block) -> Block:
        if self.pack > 1 or self.staged:
            return (For(self.names[2], ZERO, const(self.pack), stores, "vectorize"),)
        return tuple(_substituted(s, {self.names[2]: ZERO}) for s in stores)

    def _by_all(self, block: Block) -> Block:
        step, lane, _ = self.names
        if self.steps * self.lanes != self.count:
            block = (If(apply("lt", self._number(), const(self.count)), block),)
        return (For(lane, ZERO, const(self.lanes), (For(step, ZERO, const(self.steps), block, "unroll"),), "vectorize"),)

    def _number(self) -> Expr:
        return add(mul(Index(self.names[0]), const(self.lanes)), Index(self.names[1]))

    def _places(self, part: Expr) -> list[Expr]:
        """The place in the box of a part of a pack: packs are numbered along the last axis of the tensor first. Where a row is short, eight
        threads that write at once go down eight rows, which lie in different banks; a warp loads the same lines."""
        left, (*rows, row) = self._number(), self.box.extents
        short = row // self.pack
        straight = self.source.order == tuple(range(len(self.source.order))) and self.pack * self.box.dtype.itemsize == PACK
        if straight and 1 < short < AT_ONCE and prod(rows) % AT_ONCE == 0:
            across: Expr = apply("mod", apply("floordiv", left, const(AT_ONCE)), const(short))
            group = apply("floordiv", left, const(AT_ONCE * short))
            left = add(mul(group, const(AT_ONCE)), apply("mod", left, const(AT_ONCE)))
        else:
            across = apply("mod", left, const(short)) if rows else left
            left = apply("floordiv", left, const(short))
        found = [add(mul(across, const(self.pack)), part)]
        for axis in reversed(range(len(rows))):
            found.append(left if axis == 0 else apply("mod", left, const(rows[axis])))
            left = apply("floordiv", left, const(rows[axis]))
        return found[::-1]


# ------------------------------------------------------------------------------------------------------ reading the tile


def _without_ends(block: Block, tiled: frozenset[str]) -> Block:
    """The statements without conditions on what is added up from tiles alone: these have elements for points beyond the ends, too."""

    def opened(s: Stmt) -> Block | None:
        if isinstance(s, Ends) and not s.otherwise and all(_adds(inner, tiled) for inner in s.then):
            return _without_ends(s.then, tiled)
        return (s,) if isinstance(s, If) else None

    return map_statements(block, opened)


def _adds(s: Stmt, tiled: frozenset[str]) -> bool:
    """Whether a statement only takes elements of tiles into accumulators."""
    match s:
        case For():
            return all(_adds(inner, tiled) for inner in s.body)
        case If() if not s.otherwise and not reads_data(s.condition):
            return all(_adds(inner, tiled) for inner in s.then)
        case Store():
            reads = [n for n in walk(s.value) if isinstance(n, Access)]
            own = Access(s.buffer, s.indices, s.value.dtype)
            return own in reads and all(n == own or n.tensor in tiled for n in reads)
    return False


def _without_zeros(expr: Expr, beyond: dict[str, tuple[Expr, ...]]) -> Expr:
    """An expression without conditions that stand for the ends of tensors whose tiles have zeros beyond them."""

    def visit(n: Expr) -> Expr:
        read = n.args[1] if isinstance(n, Apply) and n.op.name == "where" else None
        found = zero_beyond(n, beyond.get(read.tensor)) if isinstance(read, Access) else None
        return n if found is None else found

    return bottom_up(expr, visit)


def _in_place(block: Block, panels: Mapping[str, Panel]) -> Block:
    """The statements with reads of panels of which no tile was made as those of their tensors."""

    def visit(n: Expr) -> Expr:
        return panels[n.tensor].read(n) if isinstance(n, Access) and n.tensor in panels else n

    return tuple(mapped(s, lambda e: bottom_up(e, visit)) for s in block) if panels else block


def _redirected(block: Block, tile: _Tile) -> Block:
    def place(axis: int, index: Expr) -> Expr:
        form = affine_of(index)
        assert form is not None  # `box_of` looked at it
        return expression_of(form - tile.box.start(axis), tile.sizes)

    def visit(n: Expr) -> Expr:
        if not isinstance(n, Access) or n.tensor != tile.source.buffer:
            return n
        places = (place(axis, n.indices[axis]) for axis in tile.source.order)
        return Access(tile.buffer.name, (*tile.stage(Index(tile.loop)), *places), n.dtype)

    return tuple(mapped(s, lambda e: bottom_up(e, visit)) for s in block)


def _substituted(s: Stmt, values: dict[str, Expr]) -> Stmt:
    return mapped(s, lambda e: bottom_up(e, lambda n: values.get(n.name, n) if isinstance(n, Index) else n))
