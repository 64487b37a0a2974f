"""A tile before it is made: the nest as it would be with whole tiles, which is not asked whether it is legal, summarised once for all sizes.

A *tile* says of some loops how many of their iterations are lanes (`vectorize`) or copies (`unroll`) inside of all other loops. The sketch
has these inside of every leaf, gives local buffers that are born around them an axis for each, and parts to sums whose loop is in lanes.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.auto.summary import Summary
from tensorexpr.codegen.auto.tiles.survey import SUM, Survey
from tensorexpr.codegen.lowering.arithmetic import ZERO, add, floordiv, mul, sub
from tensorexpr.codegen.nest import Alloc, Block, For, If, Kernel, LoopNest, Stmt
from tensorexpr.codegen.rewrites.expressions import map_accesses, substituted
from tensorexpr.codegen.rewrites.paths import walk_block
from tensorexpr.ir import Access, Index, const
from tensorexpr.records import record, replace


@record
class Tile:
    """Loops by name with how many of their iterations run in lanes and as copies, the latter outermost first."""

    lanes: Mapping[str, int]
    copies: Mapping[str, int]

    @property
    def sizes(self) -> dict[str, int]:
        return {**self.copies, **self.lanes}


def sketch(survey: Survey, tile: Tile) -> Summary:
    """The summary of a kernel with a tile: `i` is the loop inside of a tile, `i_o` the one around it, over one axis."""
    parts: dict[str, list[str]] = {}
    for name in tile.lanes:
        if survey.kind(name) == SUM:
            for buffer in survey.updated(name):
                parts.setdefault(buffer, []).append(name)
    body = _Sketch(survey, tile, parts).block(survey.body, ())
    kernel: Kernel = replace(survey.nest.kernels[0], body=body)
    nest: LoopNest = replace(survey.nest, kernels=(kernel,))
    return _linked(summary_of(nest), tile)


class _Sketch:
    def __init__(self, survey: Survey, tile: Tile, parts: Mapping[str, list[str]]) -> None:
        self.survey, self.tile, self.parts = survey, tile, parts
        self.order = [*tile.copies, *tile.lanes]

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
        made: Block = tuple(block)
        for name in reversed([name for name in self.order if name in inside]) if made else ():
            kind = "vectorize" if name in self.tile.lanes else "unroll"
            made = (For(name, ZERO, const(self.tile.sizes[name]), made, kind),)
        return made

    def statement(self, s: Stmt, inside: tuple[str, ...]) -> Block:
        match s:
            case For() if s.index in self.tile.sizes:
                size = self.tile.sizes[s.index]
                outer = f"{s.index}_o"
                count = floordiv(add(sub(s.stop, s.start), const(size - 1)), size)
                body = substituted(s.body, {s.index: add(add(Index(s.index), mul(Index(outer), const(size))), s.start)})
                body = map_accesses(body, lambda a: self._part(a, s.index))
                return (For(outer, ZERO, count, self.block(body, (*inside, s.index))),)
            case For():
                return (replace(s, body=self.block(s.body, inside)),)
            case If():
                return (replace(s, then=self.block(s.then, inside), otherwise=self.block(s.otherwise, inside)),)
            case Alloc():
                return self._alloc(s, inside)
        return (s,)

    def _part(self, access: Access, loop: str) -> Access:
        if loop not in self.parts.get(access.tensor, ()):
            return access
        return replace(access, indices=(*access.indices, Index(loop)))

    def _alloc(self, s: Alloc, inside: tuple[str, ...]) -> Block:
        axes = [name for name in self.order if name in inside]
        shape = (*s.buffer.shape, *(const(self.tile.sizes[x]) for x in (*self.parts.get(s.buffer.name, ()), *axes)))

        def moved(access: Access) -> Access:
            return replace(access, indices=(*access.indices, *map(Index, axes))) if access.tensor == s.buffer.name else access

        if not axes and len(shape) == len(s.buffer.shape):
            return (replace(s, body=self.block(s.body, inside)),)
        return (Alloc(replace(s.buffer, shape=shape), self.block(map_accesses(s.body, moved), inside)),)


def _linked(summary: Summary, tile: Tile) -> Summary:
    """Both loops of a split one over one axis, so that sizes may be tried."""
    loops = list(summary.loops)
    gone: set[int] = set()
    for outer in (n for n, x in enumerate(summary.loops) if x.name.removesuffix("_o") in tile.sizes and x.name.endswith("_o")):
        name = loops[outer].name.removesuffix("_o")
        for inner in (n for n, x in enumerate(summary.loops) if x.name == name and outer in summary.parts[n]):
            loops[inner] = loops[inner]._replace(axis=loops[outer].axis)
            gone.add(inner)
    touches = []
    for touch in summary.touches:
        moves = []
        for axis in touch.moves:
            steps: dict[int, float] = {}
            for loop, step in axis:
                if loop in gone:
                    steps[loops[loop].axis] = step
            for loop, step in axis:
                if loop not in gone and loop not in steps:
                    steps[loop] = step
            moves.append(tuple(sorted(steps.items())))
        touches.append(touch._replace(moves=tuple(moves)))
    return replace(summary, loops=tuple(loops), touches=tuple(touches))
