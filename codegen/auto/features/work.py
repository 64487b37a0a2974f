"""What is executed: work by block and kind, chains of values, registers.

A *block* is what one iteration of a loop that runs one after the other executes, without the loops inside of it. Work is executed in the
block of the innermost such loop that changes it (it is moved out of the others), once for each copy of an unrolled loop that changes it
and once for each register of a vectorized loop that does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod

import numpy as np

from tensorexpr.codegen.auto.operations import GATHER, INTEGER_DIVIDE
from tensorexpr.codegen.auto.summary import AUTO, LOAD, PARALLEL_AUTO, STORE, UNROLL, VECTORIZE, Summary, Touch, Work
from tensorexpr.records import cached_property

LEAST = 1e-9
Numbers = np.ndarray


class Executed:
    """What is executed of a summary; `vector_bytes` and `auto_bytes` are the registers of our own vectors and of those that LLVM makes,
    `unit_bytes` what a unit does at once (all of a register unless said)."""

    def __init__(self, summary: Summary, vector_bytes: int, auto_bytes: int, unit_bytes: int | None = None) -> None:
        self.summary, self.vector_bytes, self.auto_bytes = summary, vector_bytes, auto_bytes
        self.unit_bytes = unit_bytes or vector_bytes
        self.kinds = [loop.kind for loop in summary.loops]
        # Lanes are touched at once, wherever their loop stands.
        self.paths = [tuple(sorted(t.path, key=lambda x: self.kinds[x] == VECTORIZE)) for t in summary.touches]
        self.blocks: list[tuple[int, ...]] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self.work = summary.work
        self.work_block = np.array([self._block(self._home(w.path, w.changed)) for w in self.work], int)
        self._work_loops = self._matrix([self._repeats(w) for w in self.work])
        self.touch_block = np.array([self._block(self._home(t.path, _moving(t, summary))) for t in summary.touches], int)
        self.chain_block = np.array([self._block(self._serial(c.path)) for c in summary.chains], int)
        self.overhead = [(loop.kind, self._block(self._serial(summary.parts[n]))) for n, loop in enumerate(summary.loops)]
        self._loop_paths = self._matrix([[x for x in self._serial(path) if self.kinds[x] != VECTORIZE] for path in summary.parts])

    # ------------------------------------------------------------------------------------------------------- structure

    def _serial(self, path: tuple[int, ...]) -> tuple[int, ...]:
        """The loops of a path whose iterations run one after the other, and those around them that are copied out."""
        last = max((n for n, x in enumerate(path) if self.kinds[x] not in (UNROLL, VECTORIZE)), default=0)
        return path[: last + 1]

    def _home(self, path: tuple[int, ...], changed: frozenset[int]) -> tuple[int, ...]:
        """The path to the innermost loop that runs one after the other and changes something."""
        last = max((n for n, x in enumerate(path) if x in changed and self.kinds[x] not in (UNROLL, VECTORIZE)), default=0)
        return path[: last + 1]

    def _block(self, path: tuple[int, ...]) -> int:
        path = tuple(x for x in path if self.kinds[x] not in (UNROLL, VECTORIZE))
        if path not in self._numbers:
            self._numbers[path] = len(self.blocks)
            self.blocks.append(path)
        return self._numbers[path]

    def _repeats(self, work: Work) -> tuple[int, ...]:
        """The loops that repeat work: those around its place, and the copies that change it."""
        home = self._home(work.path, work.changed)
        around = [x for x in home if self.kinds[x] != VECTORIZE]
        return (*around, *(x for x in work.path[len(home) :] if self.kinds[x] == UNROLL and x in work.changed))

    def _matrix(self, rows: Sequence[Sequence[int]]) -> Numbers:
        found = np.zeros((len(rows), len(self.kinds)))
        for number, row in enumerate(rows):
            for loop in row:
                found[number, loop] += 1.0
        return found

    # ------------------------------------------------------------------------------------------------------- extents

    def extents(self, sizes: Mapping[int, Sequence[float] | Numbers] | None = None) -> Numbers:
        """Extents of all loops for each candidate. `sizes` has those of loops that are tried, by number; the outermost other loop
        over the same axis has as many iterations as then remain."""
        tried = {loop: np.asarray(values, float) for loop, values in (sizes or {}).items()}
        count = max([values.size for values in tried.values()], default=1)
        loops = self.summary.loops
        found = np.empty((len(loops), count))
        for number, loop in enumerate(loops):
            found[number] = tried.get(number, loop.extent)
        for axis in {loops[number].axis for number in tried}:
            own = sorted((n for n, x in enumerate(loops) if x.axis == axis), key=lambda n: len(self.summary.parts[n]))
            whole = np.ceil(prod(loops[n].extent for n in own))
            if own[0] not in tried:
                found[own[0]] = np.ceil(whole / np.prod(found[own[1:]], axis=0))
        return found

    def _steps(self, extents: Numbers) -> Numbers:
        """Elements of its axis that one step of each loop moves: the extents of the loops inside of it over the same axis."""
        steps = np.ones_like(extents)
        for numbers in self._shared:
            for outer, inner in zip(reversed(numbers[:-1]), reversed(numbers[1:])):
                steps[outer] = steps[inner] * extents[inner]
        return steps

    @cached_property
    def _shared(self) -> list[list[int]]:
        """Loops over one axis that are inside of each other, outermost first; of several inside of one each."""
        loops, found = self.summary.loops, []
        for path in self.summary.parts:
            own = [n for n in path if loops[n].axis == loops[path[-1]].axis]
            if len(own) > 1:
                found.append(own)
        return sorted(found, key=len)

    # ------------------------------------------------------------------------------------------------------- work

    def repeated(self, extents: Numbers) -> Numbers:
        """How often each piece of work is executed, on whole registers."""
        if not self.work:
            return np.zeros((0, extents.shape[1]))
        times: Numbers = np.exp(self._work_loops @ np.log(np.maximum(extents, LEAST)))
        times *= self._shares
        for loop, size, rows in self._vectors:
            times[rows] *= _registers(extents[loop], size, self.vector_bytes, self.unit_bytes)
        for loop, size, rows in self._automatic:
            lanes = np.maximum(extents[loop], 1.0)
            times[rows] *= np.ceil(lanes * size / self.auto_bytes) / lanes
        for loop, rows in self._elements:
            times[rows] *= extents[loop]
        for number, loops in self._windows:
            own = extents[list(loops)]
            times[number] *= (own.sum(axis=0) - len(loops) + 1.0) / own.prod(axis=0)
        return times

    @cached_property
    def _windows(self) -> list[tuple[int, tuple[int, ...]]]:
        """The work whose copies meet in the same elements, with the loops that are copied out: `p + r` has one more value with each."""
        found = []
        for number, w in enumerate(self.work):
            inside = set(self._repeats(w))
            found += [(number, loops) for loops in w.meets if all(x in inside and self.kinds[x] == UNROLL for x in loops)]
        return found

    @cached_property
    def _shares(self) -> Numbers:
        return np.array([w.instructions * w.share for w in self.work])[:, None]

    @cached_property
    def _vectors(self) -> list[tuple[int, int, Numbers]]:
        return self._lanes((VECTORIZE,))

    @cached_property
    def _automatic(self) -> list[tuple[int, int, Numbers]]:
        return self._lanes((AUTO, PARALLEL_AUTO))

    def _lanes(self, kinds: tuple[str, ...]) -> list[tuple[int, int, Numbers]]:
        """By loop over lanes, and bytes of elements: the work that differs between them."""
        rows: dict[tuple[int, int], list[int]] = {}
        for number, w in enumerate(self.work):
            for loop in w.changed:
                if self.kinds[loop] in kinds and not one_by_one(w):
                    rows.setdefault((loop, w.size), []).append(number)
        return [(*key, np.array(own)) for key, own in rows.items()]

    @cached_property
    def _elements(self) -> list[tuple[int, Numbers]]:
        """By loop over lanes of ours: the work that is done for one lane after the other (LLVM's loops count by element anyway)."""
        rows: dict[int, list[int]] = {}
        for number, w in enumerate(self.work):
            for loop in w.changed:
                if self.kinds[loop] == VECTORIZE and one_by_one(w):
                    rows.setdefault(loop, []).append(number)
        return [(loop, np.array(own)) for loop, own in rows.items()]

    @cached_property
    def in_lanes(self) -> Numbers:
        """Whether each piece of work differs between lanes."""
        return np.array([any(self.kinds[x] in (VECTORIZE, AUTO, PARALLEL_AUTO) for x in w.changed) for w in self.work], bool)

    def iterations(self, extents: Numbers) -> Numbers:
        """How often the body of each loop runs."""
        shares = np.array([loop.share for loop in self.summary.loops])[:, None]
        entered: Numbers = shares * np.exp(self._loop_paths @ np.log(np.maximum(extents, LEAST)))
        return entered

    def chained(self, extents: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Links of each chain, all of them one after the other; how often the loops run in which it stays one chain, which are the
        innermost that wait; and how many of these runs in a row have chains of their own."""
        logs = np.log(np.maximum(extents, LEAST))
        links, runs, free = (np.exp(loops @ logs) for loops in self._chained)
        return links, runs, free

    @cached_property
    def _chained(self) -> tuple[Numbers, Numbers, Numbers]:
        """The loops of `chained`."""
        links, runs, free = [], [], []
        for chain in self.summary.chains:
            path = [x for x in chain.path if self.kinds[x] != VECTORIZE]
            waits = [x not in chain.free and n > 0 for n, x in enumerate(path)]
            last = max((n for n, x in enumerate(path) if waits[n] and self.kinds[x] != UNROLL), default=-1)
            # Copies inside of the last loop that waits run side by side, copies around it one after the other.
            links.append([x for n, x in enumerate(path) if n <= last or waits[n] or (last < 0 and self.kinds[x] != UNROLL)])
            first = last
            while first > 0 and waits[first - 1]:
                first -= 1
            outer = path[:first] if last >= 0 else [x for n, x in enumerate(path) if not waits[n] and self.kinds[x] != UNROLL]
            runs.append(outer)
            apart = len(outer)
            while apart > 0 and (last < 0 or not waits[apart - 1]):
                apart -= 1
            free.append(outer[apart:])
        return self._matrix(links), self._matrix(runs), self._matrix(free)

    def registers(self, extents: Numbers) -> Numbers:
        """Registers that hold local elements, by block."""
        found = np.zeros((len(self.blocks), extents.shape[1]))
        for block, ways in self._held_in:
            counts = []
            for size, loops in ways:
                count = np.ones(extents.shape[1])
                for loop in loops:
                    lanes = self.kinds[loop] == VECTORIZE
                    each = _registers(extents[loop], size, self.vector_bytes, self.vector_bytes) if lanes else extents[loop]
                    count = count * each
                counts.append(count)
            found[block] += np.max(counts, axis=0)
        return found

    @cached_property
    def _held_in(self) -> list[tuple[int, list[tuple[int, tuple[int, ...]]]]]:
        """By block and buffer that is held in it: the bytes of its elements, and the copies and lanes that each have some, of each way in
        which it is had."""
        found: dict[tuple[int, int], dict[tuple[int, tuple[int, ...]], None]] = {}
        for held in self.summary.held:
            own = tuple(x for x in held.path if x in held.changed and self.kinds[x] in (UNROLL, VECTORIZE))
            found.setdefault((self._block(self._serial(held.path)), held.buffer), {}).setdefault((held.size, own))
        return [(block, list(ways)) for (block, _), ways in found.items()]


def one_by_one(work: Work) -> bool:
    """Whether work in lanes is done for one element after the other: accesses far apart, gathers, divisions of integers."""
    return work.kind in (GATHER, INTEGER_DIVIDE) or (work.kind in (LOAD, STORE) and abs(work.stride) not in (0.0, 1.0, 2.0))


def _moving(touch: Touch, summary: Summary) -> frozenset[int]:
    """The loops of a touch's path that move it."""
    axes = {axis for moves in touch.moves for axis, step in moves if step}
    return frozenset(x for x in touch.path if summary.loops[x].axis in axes or x in touch.random)


def _registers(lanes: Numbers, size: int, vector_bytes: int, unit_bytes: int) -> Numbers:
    """Registers that so many elements of `size` bytes take: whole ones, then one for each power of two that remains, of which those
    that a part of the unit does count as that part."""
    each = max(vector_bytes // size, 1)
    whole, rest = np.floor(lanes / each), np.floor(lanes % each).astype(np.int64)
    registers: Numbers = np.maximum(whole + _parts(size, vector_bytes, unit_bytes)[rest & 127], unit_bytes / vector_bytes)
    return registers


@cache
def _parts(size: int, vector_bytes: int, unit_bytes: int) -> Numbers:
    """Registers of fewer elements than one holds, by their number."""
    rest = np.arange(1 << 7)
    parts = np.zeros(len(rest))
    for bit in range(7):
        parts += (rest >> bit & 1) * np.clip((1 << bit) * size / vector_bytes, unit_bytes / vector_bytes, 1.0)
    return parts
