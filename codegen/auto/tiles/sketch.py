"""A tile before it is made: the nest as it would be with whole tiles, summarised once for all sizes. Nothing asks whether it is legal.

A *tile* is a list of *levels*, outermost first, all inside of the kernel's other loops: so many iterations of a loop one after the other,
as copies (`unroll`) or in lanes (`vectorize`). A loop may have several. The sketch has the levels around every leaf, gives local buffers
that are born around them an axis for each, parts to sums whose loop is in lanes, and operands that are packed the layout they will have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.auto.summary import Summary
from tensorexpr.codegen.auto.tiles.survey import SUM, Survey
from tensorexpr.codegen.lowering.context.arithmetic import ZERO, add, constant, floordiv, mul, sub
from tensorexpr.codegen.nest import Alloc, Block, Buffer, For, If, Kernel, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import map_accesses, map_expressions
from tensorexpr.codegen.rewrites.expressions import substituted, substituted_in
from tensorexpr.codegen.rewrites.paths import walk_block
from tensorexpr.ir import Access, Apply, Expr, Index, apply, conjunction, conjuncts, const
from tensorexpr.records import record, replace
from tensorexpr.traversal import free_names, map_children, tensors_read


class Level(NamedTuple):
    """So many iterations of a loop of a kind."""

    loop: str
    size: int
    kind: str


class Packed(NamedTuple):
    """A buffer of which a copy is made, its axis `last` behind the others: in the iterations of a loop (over blocks of it, or, `whole`, of
    all that an iteration reads), or, without one, of all of it before the kernel."""

    buffer: str
    last: int
    loop: str | None
    whole: bool = False


@record
class Tile:
    """Levels, outermost first, the order of the loops around them where it is another one, and packed operands."""

    levels: tuple[Level, ...]
    order: tuple[str, ...] = ()
    packed: tuple[Packed, ...] = ()

    def of(self, loop: str) -> tuple[Level, ...]:
        """The levels of a loop, outermost first."""
        return tuple(level for level in self.levels if level.loop == loop)

    @property
    def loops(self) -> tuple[str, ...]:
        """The loops that have levels."""
        return tuple(dict.fromkeys(level.loop for level in self.levels))

    @property
    def lanes(self) -> tuple[str, ...]:
        """The loops that have lanes."""
        return tuple(level.loop for level in self.levels if level.kind == "vectorize")

    def resized(self, sizes: Mapping[int, int]) -> Tile:
        """The tile with other sizes of some levels, by their number."""
        levels = tuple(x._replace(size=int(sizes.get(n, x.size))) for n, x in enumerate(self.levels))
        return replace(self, levels=levels)


def sketch(survey: Survey, tile: Tile, blocks: bool = False) -> Summary:
    """The summary of a kernel with a tile: level `n` of the tile is the loop `i.n`, inside of `i`, over the axis of `i`. With
    `blocks` it is of these sizes alone: packed operands lie in blocks, as many elements as lanes, loops have their own axes."""
    made = _Sketch(survey, tile, blocks)
    body = survey.once(("between borders", tile.lanes), lambda: map_expressions(survey.body, lambda e: _inside(e, survey, tile)))
    kernel: Kernel = replace(survey.nest.kernels[0], body=made.block(body, ()))
    nest: LoopNest = replace(survey.nest, kernels=(kernel,), workspace=(*survey.nest.workspace, *made.copies()))
    summary = summary_of(nest)
    if tile.order:
        summary = _ordered(summary, tile.order)
    return summary if blocks else _linked(summary, tile)


def _inside(e: Expr, survey: Survey, tile: Tile) -> Expr:
    """An expression where tests of what is around the lanes are decided, as they are between borders."""

    def decided(e: Expr) -> Expr:
        if not isinstance(e, Apply):
            return e
        if e.op.name == "where" and not tensors_read(e.args[0]):
            left = [test for test in conjuncts(e.args[0]) if any(name in tile.lanes for name in free_names(test))]
            return apply("where", conjunction(left), *e.args[1:]) if left else e.args[1]
        return e

    return map_children(decided(e), lambda child: _inside(child, survey, tile))


def _ordered(summary: Summary, order: Sequence[str]) -> Summary:
    """Loops in another order where they stand around the same statements; copies of a loop that stand beside each other have its name."""
    known = {loop.name for loop in summary.loops}
    order = [name for name in order if name in known]
    for path in summary.parts:
        numbers = {summary.loops[n].name: n for n in path}
        if all(name in numbers for name in order):
            return summary.reorder([numbers[name] for name in order])
    return summary


class _Sketch:
    def __init__(self, survey: Survey, tile: Tile, blocks: bool) -> None:
        self.survey, self.tile, self.blocks = survey, tile, blocks
        self.parts: dict[str, list[int]] = {}
        self.own = {*tile.loops, *(_name(level, n) for n, level in enumerate(tile.levels))}
        for number, level in enumerate(tile.levels):
            if level.kind == "vectorize" and survey.kind(level.loop) == SUM:
                for buffer in survey.updated(level.loop):
                    self.parts.setdefault(buffer, []).append(number)

    def copies(self) -> tuple[Buffer, ...]:
        """The packed operands."""
        found = []
        for packed in self.tile.packed:
            buffer = self.survey.buffers[packed.buffer]
            extent, block = buffer.shape[packed.last], self._block() if self.blocks else 0
            ends = (floordiv(add(extent, const(block - 1)), block), const(block)) if block else (extent,)
            found.append(Buffer(f"{buffer.name}.packed", buffer.dtype, _moved(buffer.shape, packed.last, *ends), "workspace"))
        return tuple(found)

    def _block(self) -> int:
        """The lanes of the busiest leaf, in all of their levels."""
        lanes = next(x for x in self.tile.lanes if x in self.survey.busiest.path)
        return prod(level.size for level in self.tile.of(lanes))

    def block(self, block: Block, inside: tuple[str, ...]) -> Block:
        made: list[Stmt] = []
        waiting: list[Stmt] = []
        for s in block:
            if isinstance(s, For | Alloc) or any(isinstance(x, For) for _, x in walk_block((s,))):
                made += self._sunk(waiting, inside)
                waiting = []
                made += self.statement(s, inside)
            else:
                waiting.append(s)
        return (*made, *self._sunk(waiting, inside))

    def _sunk(self, block: list[Stmt], inside: tuple[str, ...]) -> Block:
        made: Block = tuple(x for s in block for x in self._decided(s))
        for number in reversed(self._levels(inside)) if made else ():
            level = self.tile.levels[number]
            made = (For(_name(level, number), ZERO, const(level.size), made, level.kind),)
        return made

    def _decided(self, s: Stmt) -> Block:
        """A statement where tests of loops that have levels hold, as they do between borders."""
        if not isinstance(s, If) or s.otherwise or tensors_read(s.condition):
            return (s,)
        tests = list(conjuncts(s.condition))
        left = [test for test in tests if not any(name in self.own for name in free_names(test))]
        if left == tests:
            return (s,)
        then = tuple(x for inner in s.then for x in self._decided(inner))
        return (replace(s, condition=conjunction(left), then=then),) if left else then

    def _levels(self, inside: Sequence[str]) -> list[int]:
        return [n for n, level in enumerate(self.tile.levels) if level.loop in inside]

    def statement(self, s: Stmt, inside: tuple[str, ...]) -> Block:
        match s:
            case For() if self.tile.of(s.index) and constant(sub(s.stop, s.start)) == 1:
                moved = {s.index: s.start, f"{s.index}.of": ZERO, f"{s.index}.in": ZERO}
                return self.block(substituted(s.body, moved), inside)  # cut off at a border
            case For() if self.tile.of(s.index):
                own = [n for n in self._levels((s.index,))]
                whole = prod(self.tile.levels[n].size for n in own)
                s = replace(s, start=self._least(s.start), stop=self._least(s.stop))
                count = floordiv(add(sub(s.stop, s.start), const(whole - 1)), whole)
                length = self.survey.length(s.index)
                all_ = length is not None and whole >= length
                first, step = s.start if all_ else add(mul(Index(s.index), const(whole)), s.start), whole
                within: Expr = ZERO
                for n in own:
                    step //= self.tile.levels[n].size
                    within = add(within, mul(Index(_name(self.tile.levels[n], n)), const(step)))
                moved = {s.index: add(first, within), f"{s.index}.of": ZERO if all_ else Index(s.index), f"{s.index}.in": within}
                body = substituted(self._with_packed(s.body), moved)
                if self.parts:
                    body = map_accesses(body, lambda a: self._part(a, s.index))
                inner = self.block(body, (*inside, s.index))
                return inner if all_ else (For(s.index, ZERO, count, inner),)
            case For():
                start, stop = self._least(s.start), self._least(s.stop)
                return (replace(s, start=start, stop=stop, body=self.block(self._with_packed(s.body), inside)),)
            case If():
                left = self._decided(s)
                if left != (s,):
                    return self.block(left, inside)
                condition = self._least(s.condition)
                return (replace(s, condition=condition, then=self.block(s.then, inside), otherwise=self.block(s.otherwise, inside)),)
            case Alloc():
                return self._alloc(s, inside)
        return (s,)

    def _least(self, e: Expr) -> Expr:
        """What stands around levels, at their first iterations: they are inside of it."""
        return substituted_in(e, {_name(level, n): ZERO for n, level in enumerate(self.tile.levels)})

    def _with_packed(self, body: Block) -> Block:
        return map_accesses(body, self._packed) if self.tile.packed else body

    def _packed(self, access: Access) -> Access:
        for packed in self.tile.packed:
            if access.tensor == packed.buffer:
                index = access.indices[packed.last]
                ends = (Index(f"{index.name}.of"), Index(f"{index.name}.in")) if self.blocks and isinstance(index, Index) else (index,)
                return Access(f"{access.tensor}.packed", _moved(access.indices, packed.last, *ends), access.dtype)
        return access

    def _part(self, access: Access, loop: str) -> Access:
        own = [n for n in self.parts.get(access.tensor, ()) if self.tile.levels[n].loop == loop]
        return replace(access, indices=(*access.indices, *map(self._index, own))) if own else access

    def _index(self, number: int) -> Index:
        return Index(_name(self.tile.levels[number], number))

    def _alloc(self, s: Alloc, inside: tuple[str, ...]) -> Block:
        axes = self._levels(inside)
        sizes = [self.tile.levels[n].size for n in (*self.parts.get(s.buffer.name, ()), *axes)]

        def moved(access: Access) -> Access:
            return replace(access, indices=(*access.indices, *map(self._index, axes))) if access.tensor == s.buffer.name else access

        if not sizes:
            return (replace(s, body=self.block(s.body, inside)),)
        buffer = replace(s.buffer, shape=(*s.buffer.shape, *map(const, sizes)))
        body = self.block(map_accesses(s.body, moved), inside)
        return (Alloc(buffer, self._combined(buffer, body, axes)),)

    def _combined(self, buffer: Buffer, body: Block, axes: Sequence[int]) -> Block:
        """What a local buffer lives in, with its parts made one behind the loop in which they are taken."""
        made = list(body)
        for n in self.parts.get(buffer.name, ()):
            level = self.tile.levels[n]
            own = len(buffer.shape) - len(axes) - len(self.parts[buffer.name])
            inside = [x for x in made if any(isinstance(y, For) and y.index in (level.loop, _name(level, n)) for _, y in walk_block((x,)))]
            if not inside or own:
                continue
            at = made.index(inside[-1]) + 1
            for half in (level.size >> step for step in range(1, level.size.bit_length())):
                index = f"{_name(level, n)}.{half}"
                here, there = (
                    Access(buffer.name, (i, *map(self._index, axes)), buffer.dtype) for i in (Index(index), add(Index(index), const(half)))
                )
                both = apply("or" if here.dtype.is_bool else "add", here, there)
                s: Stmt = For(index, ZERO, const(half), (Store(buffer.name, here.indices, both),), "vectorize")
                for axis in reversed(axes):
                    s = For(f"{index}.{axis}", ZERO, const(self.tile.levels[axis].size), (s,), "unroll")
                    s = replace(s, body=substituted(s.body, {_name(self.tile.levels[axis], axis): Index(f"{index}.{axis}")}))
                made.insert(at, s)
                at += 1
        return tuple(made)


def _name(level: Level, number: int) -> str:
    return f"{level.loop}.{number}"


def _moved(axes: tuple[Expr, ...], last: int, *ends: Expr) -> tuple[Expr, ...]:
    """Axes with one of them behind the others, or, of its blocks, around them."""
    return (*ends[:-1], *axes[:last], *axes[last + 1 :], ends[-1])


def _linked(summary: Summary, tile: Tile) -> Summary:
    """The levels of a loop over its axis, so that sizes may be tried."""
    loops = list(summary.loops)
    names = {_name(level, n): level.loop for n, level in enumerate(tile.levels)}
    for number, loop in enumerate(summary.loops):
        if loop.name in names:
            own = {names[loop.name], *(x for x in names if names[x] == names[loop.name])}
            outer = next(n for n in summary.parts[number] if summary.loops[n].name in own)
            loops[number] = loop._replace(axis=loops[outer].axis)
    touches = []
    for touch in summary.touches:
        moves = []
        for axis in touch.moves:
            steps: dict[int, float] = {}
            for number, step in axis:
                home = loops[number].axis
                steps[home] = min(step, steps.get(home, step), key=abs)
            moves.append(tuple(sorted(steps.items())))
        touches.append(touch._replace(moves=tuple(moves)))
    return replace(summary, loops=tuple(loops), touches=tuple(touches))
