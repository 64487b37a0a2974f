"""A tile made by rewrites: loops split, sums in parts, levels inside of all other loops, operands packed, borders cut, cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf, prod

from tensorexpr.codegen.auto.candidate import Candidate
from tensorexpr.codegen.auto.tiles.choose import MOST_COPIES
from tensorexpr.codegen.auto.tiles.sketch import Level, Packed, Tile
from tensorexpr.codegen.auto.tiles.survey import DATA, SUM, Survey
from tensorexpr.codegen.llvm.text.machine import host
from tensorexpr.codegen.lowering.context.arithmetic import constant, sub
from tensorexpr.codegen.nest import Alloc, Block, For, If, LoopNest
from tensorexpr.codegen.nest.walks import expressions_in
from tensorexpr.codegen.rewrites.cuts import statements_of
from tensorexpr.codegen.rewrites.names import fresh
from tensorexpr.codegen.rewrites.paths import around, walk_block, walk_kernel, walk_nest
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Apply, Expr, conjunction, conjuncts
from tensorexpr.records import replace
from tensorexpr.traversal import free_names, tensors_read, walk


def tiled_by(candidate: Candidate, survey: Survey, tile: Tile, kernel: int) -> Candidate:
    """The candidate with a tile of one of its kernels. Raises `ScheduleError` where a rewrite is not legal."""
    levels: list[Level] = []
    for level in tile.levels:
        length, one = survey.length(level.loop), host().vector_bits // 32
        whole = prod(x.size for x in tile.of(level.loop))
        wide = level.kind == "vectorize" and level.size > one and survey.kind(level.loop) == DATA
        if wide and (not survey.keeps(level.loop) if length is None else one < length < whole):
            # As copies of one register, of which the last is moved back, or so many as are left.
            levels += [Level(level.loop, -(-level.size // one), "unroll"), Level(level.loop, one, "vectorize")]
        else:
            levels.append(level)
    return _Making(candidate, survey, replace(tile, levels=tuple(levels)), kernel).made()


TESTS = ("lt", "le", "gt", "ge", "eq", "ne", "minimum", "maximum", "mod", "floordiv")
"""Operations on indices that are decided, or affine, in a part of a loop."""


class _Making:
    def __init__(self, candidate: Candidate, survey: Survey, tile: Tile, kernel: int) -> None:
        self.candidate, self.survey, self.tile, self.kernel = candidate, survey, tile, kernel
        self.first = next((name for name in (*tile.order[:1], *survey.roots) if survey.kind(name) == DATA), None)
        self.outer: dict[str, str] = {}
        self.names: dict[int, str] = {}
        self.vectors: list[str] = []

    def then(self, word: str, *arguments: object) -> None:
        self.candidate = self.candidate.then(word, *arguments)

    def made(self) -> Candidate:
        levels = self.tile.levels
        outside = [x for x in self.tile.order if prod(level.size for level in self.tile.of(x)) < (self.survey.length(x) or inf)]
        if len(outside) > 1:  # while no blocks meet that are moved back
            self.then("reorder", *outside)
        inward = self.tile.loops
        for loop in inward if all(self.survey.length(x) is not None for x in inward) else sorted(inward, key=self._depth, reverse=True):
            self._split(loop)  # what is asked of open lengths inside is asked before that of what is around
        for n, level in enumerate(levels):
            if level.kind == "vectorize":
                self.vectors.append(self.names[n])
                if self.survey.kind(level.loop) == SUM:
                    self._parts(level.loop, self.names[n])
        self._sink([*(self.names[n] for n in range(len(levels))), *(x for x in self.vectors if x not in self.names.values())])
        for packed in self.tile.packed:
            if packed.loop is None:
                self._pack_before(packed)
            else:
                self._pack(packed, packed.loop)
        self.then("simplify")
        for name in reversed([*self.names.values(), *self.vectors]):
            self._ask_before(name)
        present = self._present()
        for n, level in enumerate(levels):
            if level.kind == "unroll" and self.names[n] in present:
                self.then("unroll", self.names[n])
        for name in self.vectors:
            if name in present:
                self.then("vectorize", name)
        self.then("simplify")
        return self.candidate

    def _ask_before(self, name: str) -> None:
        """Tests of what is around copies or lanes in front of these, where all of a loop stands under them: else each copy asks again."""
        for _, s in walk_nest(self.candidate.nest):
            if isinstance(s, For) and s.index == name and len(s.body) == 1 and isinstance(s.body[0], If) and not s.body[0].otherwise:
                test = s.body[0].condition
                if name not in free_names(test) and not tensors_read(test):
                    self.then("partition", name, None, test)
                    return

    def _depth(self, loop: str) -> int:
        """How many loops are around a loop."""
        parent = self.survey.parents[loop]
        return 0 if parent is None else 1 + self._depth(parent)

    def _split(self, loop: str) -> None:
        """The levels of a loop, from the outermost in."""
        own = [n for n, level in enumerate(self.tile.levels) if level.loop == loop]
        whole, name = prod(self.tile.levels[n].size for n in own), loop
        length = self.survey.length(loop)
        alone = loop == self.first and (length is None or whole < length)
        for n in own:
            level = self.tile.levels[n]
            if length is None or whole < length or (level.kind == "vectorize" and whole > length):
                outer, inner = fresh(self.candidate.nest, f"{loop}_o", f"{loop}_i")
                known = length if n == own[0] or self._length(name) is not None else None  # of a rest it is not
                self._blocks(name, loop, whole, known, level.kind == "vectorize", alone, (outer, inner))
                name, length = inner, whole
                if n != own[0]:
                    self.names[own[own.index(n) - 1]] = outer
                else:
                    self.outer[loop] = outer
            self.names[n] = name
            whole //= level.size
            if length is not None:
                length = min(length, whole * level.size)

    def _blocks(self, name: str, loop: str, size: int, length: int | None, lanes: bool, alone: bool, names: tuple[str, str]) -> None:
        """A loop in blocks. What is left is a block moved back where iterations may run twice and no cores share blocks; lanes that are
        off; a shorter block."""
        if length is not None and length % size == 0:
            self.then("split", name, size, "peel", names)
            return
        copied = any(packed.loop is None or packed.whole for packed in self.tile.packed)
        moved = loop not in self.tile.lanes or not copied  # else in blocks of the copy
        # Of an open loop a shorter block would be one of unknown length, in which no sum is kept for each of its iterations.
        moved &= self.survey.keeps(loop) if length is None else not (alone and name == loop) and length > size
        if moved and self.survey.kind(loop) == DATA:
            try:
                self.then("split", name, size, "shift", names)
            except ScheduleError:
                pass
            else:
                return
        if not lanes and not (length is None and self.survey.keeps(loop)):
            self.then("split", name, size, "peel", names)
            return
        self.then("split", name, size, "guard", names)
        if length is None:
            self.then("partition", names[0])
        elif length > size:
            self.then("partition", names[0], (length // size,))  # at the rest alone: other tests are no matter of this loop

    def _parts(self, loop: str, inner: str) -> None:
        for buffer in self.survey.updated(loop):
            before = self._present()
            (parts,) = fresh(self.candidate.nest, f"{buffer}_parts")
            self.then("rfactor", buffer, inner, parts)
            self.vectors += [x for x in self._present() if x not in before]

    def _pack_before(self, packed: Packed) -> None:
        """A copy of all of an operand in a kernel before, in blocks of as many elements as there are lanes, side by side in the order in
        which loops go through them."""
        leaf = self.survey.busiest
        access = next(a for a in leaf.loads if a.tensor == packed.buffer)
        depth = {n: [x for x, name in enumerate(leaf.path) if name in free_names(e)] for n, e in enumerate(access.indices)}
        others = sorted((n for n in depth if n != packed.last), key=lambda n: depth[n])
        block = prod(level.size for loop in self.tile.lanes for level in self.tile.of(loop) if loop in leaf.path)
        extent = constant(self.survey.buffers[packed.buffer].shape[packed.last])
        last: int | tuple[int, int] = packed.last if extent is not None and extent <= block else (packed.last, block)
        layout = (*others, last) if isinstance(last, int) else (last, *others)
        self.then("pack", packed.buffer, self.survey.reader_of(packed.buffer), layout)
        self.kernel += 1

    def _pack(self, packed: Packed, loop: str) -> None:
        """A copy of an operand in which lanes lie side by side, made in vectors, or in squares where they go across its rows; `whole`, of
        all that an iteration reads, in blocks of as many elements as there are lanes: what is left of a block is filled up."""
        rank, one = len(self.survey.buffers[packed.buffer].shape), host().vector_bits // 32
        others = tuple(axis for axis in range(rank) if axis != packed.last)
        block = prod(level.size for lanes in self.tile.lanes for level in self.tile.of(lanes) if lanes in self.survey.busiest.path)
        before = self._present()
        layout = ((packed.last, *others), block) if packed.whole else ((*others, packed.last),)
        self.then("stage", packed.buffer, self._around(packed, loop), *layout)
        made = [x for x in self._present() if x not in before]
        if len(made) < (2 if packed.whole else 1):
            raise ScheduleError(f"tile: expected a part of {packed.buffer} of several elements to pack")
        across, along = made[0 if packed.whole else -1], next((x for x in made if x.rsplit("_", 1)[-1] == str(rank - 1)), made[-1])
        if across == along:
            self._in_vectors(across, one)
            return
        length = self._length(across) or one
        side = min(block if packed.whole else length, one)
        (across_o, across_i, along_o, along_i) = fresh(self.candidate.nest, *(f"{x}_{y}" for x in (across, along) for y in "oi"))
        self.then("split", across, side, "guard" if packed.whole and length % side else "peel", (across_o, across_i))
        self.then("split", along, min(one, self._length(along) or one), "peel", (along_o, along_i))
        self._sink([along_i, across_i])
        self.then("simplify")
        for word, name in (("unroll", along_i), ("vectorize", across_i)):
            if name in self._present():
                self.then(word, name)

    def _around(self, packed: Packed, inner: str) -> str:
        """The loop in which an operand is packed: that over its blocks, or the one around where one block is all."""
        order = self.tile.order or self.survey.busiest.path
        for loop in reversed(order[: order.index(inner) + 1]):
            if loop in self.outer or not self.tile.of(loop):
                return self.outer.get(loop, loop)
        raise ScheduleError(f"tile: expected a loop around {inner} to pack {packed.buffer} in, got none")

    def _length(self, name: str) -> int | None:
        """The iterations of a loop that there now is, the most of its copies."""
        found = [constant(sub(s.stop, s.start)) for _, s in walk_nest(self.candidate.nest) if isinstance(s, For) and s.index == name]
        return None if any(n is None for n in found) else max((int(n or 0) for n in found), default=None)

    def _in_vectors(self, name: str, one: int) -> None:
        outer, inner = fresh(self.candidate.nest, f"{name}_o", f"{name}_i")
        self.then("split", name, 4 * one, "peel", (outer, inner))
        self.then("simplify")
        if inner in self._present():
            self.then("vectorize", inner)

    def _present(self) -> list[str]:
        nest = self.candidate.nest
        return list(dict.fromkeys(s.index for _, s in walk_kernel(nest, self.kernel) if isinstance(s, For)))

    def _sink(self, sunk: list[str]) -> None:
        """Loops inside of all others, in their order."""
        for _ in range(64):
            found = next((order for order in _paths(self.candidate.nest, self.kernel) if _wanted(order, sunk) != order), None)
            if found is None:
                return
            goal = _wanted(found, sunk)
            at = next(n for n, (a, b) in enumerate(zip(found, goal, strict=True)) if a != b)
            self.then("reorder", *goal[at:])
        raise ScheduleError(f"tile: expected {', '.join(sunk)} inside of all other loops, got others in them")


def _wanted(order: list[str], sunk: list[str]) -> list[str]:
    return [*(x for x in order if x not in sunk), *(x for x in sunk if x in order)]


def _paths(nest: LoopNest, kernel: int) -> list[list[str]]:
    """The loops around each innermost loop, itself last."""
    found = []
    for path, s in walk_kernel(nest, kernel):
        if isinstance(s, For) and not any(isinstance(x, For) for _, x in walk_block(s.body)):
            found.append([*(x.index for x in around(nest, path).loops), s.index])
    return found


MOST_STATEMENTS = 256
"""Statements of a kernel from which on no further loop is cut at borders: each cut may treble them, and LLVM's time with them."""


GAIN = 1.01
"""How much faster a nest has to be for pieces that are as many times its code."""


def bordered(candidate: Candidate, kernel: int, judge: Callable[[LoopNest, int], float]) -> tuple[Candidate, float, bool]:
    """The candidate with its loops cut where tests inside change, as long as that is faster, its time, and whether none is left that is
    not cut only because there are too many statements: between borders nothing is asked."""
    time = judge(candidate.nest, kernel)
    for name, test in _asked_of_all(candidate, kernel).items():
        try:
            one = candidate.then("partition", name, None, test)
        except ScheduleError:
            continue
        took = judge(one.nest, kernel)
        if took * GAIN < time:
            candidate, time = one, took
    inner = {s.index for _, s in walk_kernel(candidate.nest, kernel) if isinstance(s, For) and s.kind != "serial"}
    for name in dict.fromkeys(x for order in _paths(candidate.nest, kernel) for x in order if x not in inner):
        if not any(_is_asked(s) for _, s in walk_kernel(candidate.nest, kernel) if isinstance(s, For) and s.index == name):
            continue
        if statements_of(candidate.nest.kernels[kernel].body) > MOST_STATEMENTS:
            return candidate, time, False
        try:
            one = candidate.then("partition", name)
        except ScheduleError:
            continue
        took = judge(one.nest, kernel)
        if took * GAIN < time:
            candidate, time = one, took
    return candidate, time, True


def _asked_of_all(candidate: Candidate, kernel: int) -> dict[str, Expr]:
    """What choices inside of copies, and of a short loop around them, ask of loops around all of these: it may be asked in front."""
    found: dict[str, Expr] = {}
    todo = [s for s in candidate.nest.kernels[kernel].body]
    while todo:
        s = todo.pop()
        if isinstance(s, Alloc | For) and not (isinstance(s, For) and _copies(s) <= MOST_COPIES):
            todo += s.body
        elif isinstance(s, If):
            todo += (*s.then, *s.otherwise)
        elif isinstance(s, For):
            own = {s.index, *(x.index for _, x in walk_block(s.body) if isinstance(x, For))}
            tests = [test for test in _choices_in(s) if own.isdisjoint(free_names(test)) and free_names(test) and not tensors_read(test)]
            if tests:
                found.setdefault(s.index, conjunction(list(dict.fromkeys(tests))))
    return found


def _copies(s: For) -> int:
    """Copies of a statement in a loop that is written out, with all loops in it but lanes; too many where that is not known."""
    inner = [s, *(x for _, x in walk_block(s.body) if isinstance(x, For))]
    return prod(constant(sub(x.stop, x.start)) or MOST_COPIES + 1 for x in inner if x.kind != "vectorize")


def _choices_in(s: For) -> Iterator[Expr]:
    """What choices in a loop ask, one by one."""
    asked = (n.args[0] for e in expressions_in(s.body) for n in walk(e) if isinstance(n, Apply) and n.op.name == "where")
    return (test for condition in asked for test in conjuncts(condition))


def _is_asked(s: For) -> bool:
    """Whether a loop of more than a few iterations has tests of its index inside."""
    length = constant(sub(s.stop, s.start))
    tests = (n for e in expressions_in(s.body) for n in walk(e) if isinstance(n, Apply) and n.op.name in TESTS)
    return (length is None or length > 1) and any(s.index in free_names(n) for n in tests)


ENOUGH = 32
"""Iterations of a loop that are dealt out evenly enough: the last round of so many takes eight cores a fifth more at most."""
BETTER, NO_SLOWER = 1.03, 1.01
"""How much faster a nest has to be on several threads for loops that are one, and what it may take of its time on one thread."""


Judge = Callable[[LoopNest, int], tuple[float, float]]
"""Nanoseconds of a kernel of a nest on one thread and on several."""


def shared(candidate: Candidate, kernel: int, judge: Judge) -> Candidate:
    """The candidate with its outermost loops on all cores, where that is legal: first those that stand in no other one, which a copy of
    a loop inside, left of a row that was cut off, would keep from it. Loops of few iterations become one with loops inside where `judge`
    says that this is faster on several threads."""
    body = list(_in_no_other(candidate.nest.kernels[kernel].body))
    inside = {x.index for s in body for _, x in walk_block(s.body) if isinstance(x, For)}
    for name in sorted(dict.fromkeys(s.index for s in body), key=lambda name: name in inside):
        loops = _outermost(candidate, kernel, name)
        if any(s.kind != "serial" for s in loops):
            continue
        made = None
        if not all((constant(sub(s.stop, s.start)) or 2) < 2 for s in loops):
            try:
                made = candidate.then("parallel", name)
            except ScheduleError:
                with suppress(ScheduleError):  # of open length: a last block that is moved back is a piece of its own
                    made = candidate.then("partition", name).then("parallel", name) if candidate.nest.sizes else None
        finer = _with_more(candidate, made or candidate, name, kernel, judge)
        candidate = finer or made or candidate
    return candidate


def _with_more(serial: Candidate, made: Candidate, name: str, kernel: int, judge: Judge) -> Candidate | None:
    """The candidate with a loop of few iterations as one with the loop inside that has most, and that one on all cores, as often as that
    is faster; None where it is not. A copy of the loop around other statements is left on all cores by itself."""
    found: Candidate | None = None
    alone = together = 0.0
    while True:
        loops = _outermost(serial, kernel, name)
        inner = [x for s in loops for x in s.body if isinstance(x, For) and x.kind == "serial"]
        if not inner or any((constant(sub(s.stop, s.start)) or ENOUGH) >= ENOUGH for s in loops):
            return found
        if not together:
            alone, together = judge(made.nest, kernel)
        one = max(inner, key=lambda x: constant(sub(x.stop, x.start)) or ENOUGH).index
        (both,) = fresh(serial.nest, f"{name}_{one}")
        try:
            serial = serial.then("fuse", name, one, both)
            made = serial.then("parallel", both)
        except ScheduleError:
            return found
        if any(isinstance(s, Alloc) for s in serial.nest.kernels[kernel].body):
            return found  # what was private to an iteration is kept for all of them
        if any((constant(sub(s.stop, s.start)) or 2) > 1 for s in _outermost(made, kernel, name)):
            with suppress(ScheduleError):
                made = made.then("parallel", name)
        took, several = judge(made.nest, kernel)
        if several * BETTER < together and took <= NO_SLOWER * alone:
            found, together = made, several
        name = both


def _outermost(candidate: Candidate, kernel: int, name: str) -> list[For]:
    """The loops of a kernel of a name that stand in no other one."""
    return [s for s in _in_no_other(candidate.nest.kernels[kernel].body) if s.index == name]


def _in_no_other(block: Block) -> Iterator[For]:
    """The loops that stand in no other one."""
    for s in block:
        if isinstance(s, For):
            yield s
        elif isinstance(s, If):
            yield from _in_no_other((*s.then, *s.otherwise))
