"""Numbers of a summary, for many extents of its loops at once: work by block and kind, registers, footprints and lines by level of memory.

A *block* is what one iteration of a loop that runs one after the other executes, without the loops inside of it. Work is executed in the
block of the innermost such loop that changes it (it is moved out of the others), once for each copy of an unrolled loop that changes it
and once for each register of a vectorized loop that does.

A *footprint* is what an access touches while some loops run: along each axis of the buffer the elements between the first and the
last, or the product of the extents of the loops that move it, if that is less (Tiramisu and PolyMage take the former, the rectangular
hull), and in all no more than these loops have iterations. What accesses that move together touch in common counts once. Lines are whole,
and rows that follow each other without a gap are one.
A level of memory delivers what does not stay there: data is loaded once for all iterations of the outermost loop of which one iteration
touches no more than the level holds, and again for each iteration of the loops around (Adams et al. 2019; the ECM models of Hofmann, Fey
and Wellein 2018 call it the layer condition). Functions are called again with the same arrays: what fits as a whole, stays.

All figures have an axis of candidates last; `Plan` holds what does not depend on extents, so thousands of tile sizes cost a few
operations of NumPy each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod

import numpy as np

from tensorexpr.codegen.auto.operations import GATHER, INTEGER_DIVIDE
from tensorexpr.codegen.auto.summary import AUTO, LOAD, PARALLEL_AUTO, STORE, UNROLL, VECTORIZE, Summary, Touch, Work
from tensorexpr.records import cached_property

LINE = 64
"""Bytes of a cache line: the same on all machines that we know, but for Apple's 128."""
WAYS = 8
"""Places of a second cache that a line may take: 8 to 16 on the machines that we know."""
PERIOD = 4096
"""Bytes after which lines fall on the same places of a first cache: a page, since it is looked up while the address is translated."""
_LEAST = 1e-9

Numbers = np.ndarray


class Plan:
    """What is counted of a summary; `vector_bytes` and `auto_bytes` are the registers of our own vectors and of those that LLVM makes,
    `unit_bytes` what a unit does at once (all of a register unless said), `second` the bytes of the second cache."""

    def __init__(self, summary: Summary, vector_bytes: int, auto_bytes: int, unit_bytes: int | None = None, second: int = 0) -> None:
        self.summary, self.vector_bytes, self.auto_bytes = summary, vector_bytes, auto_bytes
        self.unit_bytes = unit_bytes or vector_bytes
        self.periods = (PERIOD, 1 << (second // WAYS).bit_length() - 1) if second else (PERIOD,)
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
        times: Numbers = np.exp(self._work_loops @ np.log(np.maximum(extents, _LEAST)))
        times *= self._shares
        for loop, rows, bytes_ in self._vectors:
            times[rows] *= _registers(extents[loop], bytes_[:, None], self.vector_bytes, self.unit_bytes)
        for loop, rows, bytes_ in self._automatic:
            lanes = np.maximum(extents[loop], 1.0)
            times[rows] *= np.ceil(lanes * bytes_[:, None] / self.auto_bytes) / lanes
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
    def _vectors(self) -> list[tuple[int, Numbers, Numbers]]:
        return self._lanes((VECTORIZE,))

    @cached_property
    def _automatic(self) -> list[tuple[int, Numbers, Numbers]]:
        return self._lanes((AUTO, PARALLEL_AUTO))

    def _lanes(self, kinds: tuple[str, ...]) -> list[tuple[int, Numbers, Numbers]]:
        """By loop over lanes: the work that differs between them, and the bytes of its elements."""
        rows: dict[int, list[int]] = {}
        for number, w in enumerate(self.work):
            for loop in w.changed:
                if self.kinds[loop] in kinds and not one_by_one(w):
                    rows.setdefault(loop, []).append(number)
        return [(loop, np.array(own), np.array([self.work[n].size for n in own], float)) for loop, own in rows.items()]

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
        entered: Numbers = shares * np.exp(self._loop_paths @ np.log(np.maximum(extents, _LEAST)))
        return entered

    def chained(self, extents: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Links of each chain, all of them one after the other; how often the loops run in which it stays one chain, which are the
        innermost that wait; and how many of these runs in a row have chains of their own."""
        logs = np.log(np.maximum(extents, _LEAST))
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
        best: dict[tuple[int, int], list[Numbers]] = {}
        for held in self.summary.held:
            count = np.ones(extents.shape[1])
            for loop in held.path:
                if loop in held.changed and self.kinds[loop] == UNROLL:
                    count = count * extents[loop]
                elif loop in held.changed and self.kinds[loop] == VECTORIZE:
                    count = count * _registers(extents[loop], np.array(held.size), self.vector_bytes, self.vector_bytes)
            best.setdefault((self._block(self._serial(held.path)), held.buffer), []).append(count)
        for (block, _), counts in best.items():
            found[block] += np.max(counts, axis=0)
        return found

    # ------------------------------------------------------------------------------------------------------- footprints

    @cached_property
    def _deepest(self) -> int:
        return max([len(t.path) for t in self.summary.touches], default=0)

    @cached_property
    def _places(self) -> Numbers:
        """Loop of each touch by depth, -1 beyond the last."""
        found = np.full((len(self.summary.touches), self._deepest), -1)
        for number, touch in enumerate(self.summary.touches):
            found[number, : len(touch.path)] = self.paths[number]
        return found

    @cached_property
    def _moves(self) -> Numbers:
        """Elements along each axis of its buffer that a step of each axis of loops moves a touch, by depth of the loop."""
        touches, loops = self.summary.touches, self.summary.loops
        found = np.zeros((len(touches), self._axes, self._deepest))
        for number, touch in enumerate(touches):
            for axis, moves in enumerate(touch.moves):
                steps = dict(moves)
                for depth, loop in enumerate(self.paths[number]):
                    found[number, axis, depth] = steps.get(loops[loop].axis, 0.0)
        return found

    @cached_property
    def _axes(self) -> int:
        return max([1, *(len(t.moves) for t in self.summary.touches)])

    @cached_property
    def _extents(self) -> Numbers:
        """Elements that each axis of the buffer of a touch has; axes that there are none of stand in front, of one element."""
        found = np.ones((len(self.summary.touches), self._axes))
        for number, touch in enumerate(self.summary.touches):
            own = self.summary.buffers[touch.buffer].extents
            if len(touch.moves) < len(own):
                own = (prod(own),)
            for axis, _ in enumerate(touch.moves):
                found[number, axis] = own[axis] if axis < len(own) else np.inf
        return found

    def _places_apart(self, period: int) -> Numbers:
        """Rows along each axis that have places of their own in a cache: a period over what their distance shares with it."""
        if period in self._apart:
            return self._apart[period]
        found = self._apart[period] = np.full((len(self.summary.touches), self._axes), np.inf)
        for number, touch in enumerate(self.summary.touches):
            extents, size = self.summary.buffers[touch.buffer].extents, self.summary.buffers[touch.buffer].size
            for axis in range(min(len(touch.moves), len(extents)) - 1):
                if touch.moves[axis]:
                    apart = int(prod(extents[axis + 1 :]) * size * self._units[number, axis])
                    found[number, axis] = period // np.gcd(apart, period)
        return found

    @cached_property
    def _apart(self) -> dict[int, Numbers]:
        return {}

    @cached_property
    def _units(self) -> Numbers:
        """The greatest common step of whole steps along each axis."""
        found = np.ones((len(self.summary.touches), self._axes))
        for number, touch in enumerate(self.summary.touches):
            for axis, moves in enumerate(touch.moves):
                whole = [int(abs(step)) for _, step in moves if step and step == int(step)]
                if whole and len(whole) == len(moves):
                    found[number, axis] = np.gcd.reduce(whole)
        return found

    @cached_property
    def _spread(self) -> Numbers:
        found = np.zeros((len(self.summary.touches), self._axes, 2))
        for number, touch in enumerate(self.summary.touches):
            for axis, offsets in enumerate(touch.offsets):
                found[number, axis] = offsets
        return found

    @cached_property
    def _sizes(self) -> Numbers:
        return np.array([self.summary.buffers[t.buffer].size for t in self.summary.touches], float)

    def _segments(self, depth: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Touches that move together while the loops from `depth` on run: their order, where segments begin in it, the segment of each,
        and the node of the tree of loops that each segment is in."""
        if depth not in self._known:
            keys: dict[tuple[object, ...], int] = {}
            nodes: dict[tuple[int, ...], int] = {}
            segment, node_of = [], []
            for touch, path in zip(self.summary.touches, self.paths):
                prefix = path[:depth]
                outer = tuple(
                    tuple(move for move in moves if any(self.summary.loops[x].axis == move[0] for x in prefix)) for moves in touch.moves
                )
                key = (prefix, touch.buffer, outer)
                if key not in keys:
                    keys[key] = len(keys)
                    node_of.append(nodes.setdefault(prefix, len(nodes)))
                segment.append(keys[key])
            order = np.argsort(segment, kind="stable")
            ordered = np.array(segment)[order]
            starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
            self._known[depth] = order, starts, np.array(segment), np.array(node_of)
        return self._known[depth]

    def _rows_of(self, depth: int) -> tuple[Numbers, Numbers, Numbers, list[Numbers]]:
        """Of each segment the extents of its buffer, the common steps, the bytes of an element, and the rows apart by period."""
        if depth not in self._segment_rows:
            order, starts, _, _ = self._segments(depth)
            first = order[starts]
            apart = [self._places_apart(period)[first][:, :-1, None] for period in self.periods]
            self._segment_rows[depth] = self._extents[first][..., None], self._units[first][..., None], self._sizes[first][:, None], apart
        return self._segment_rows[depth]

    @cached_property
    def _segment_rows(self) -> dict[int, tuple[Numbers, Numbers, Numbers, list[Numbers]]]:
        return {}

    @cached_property
    def _known(self) -> dict[int, tuple[Numbers, Numbers, Numbers, Numbers]]:
        return {}

    def footprints(self, extents: Numbers) -> list[tuple[Numbers, Numbers, Numbers, Numbers, Numbers]]:
        """By depth d from 0: lines of each touch's segment while the loops of its path from d on run, runs of neighbouring lines among
        them, bytes of all that is touched then in the same loops, followed by those of the first caches that this takes, by touch: rows
        that are a multiple of a cache's period apart take the same places; the part of its segment that each touch is asked for; and
        lines that come to one place of the first cache, for each that comes."""
        touches = self.summary.touches
        if not touches:
            return []
        own, steps = self._places, self._steps(extents)
        inside = own >= 0
        run = np.where(inside[..., None], extents[own], 1.0)
        moved = np.abs(self._moves[..., None] * np.where(inside[..., None], steps[own], 0.0)[:, None])
        signed = self._moves[..., None] * np.where(inside[..., None], steps[own], 0.0)[:, None]
        low = np.repeat(self._spread[:, :, :1], extents.shape[1], 2)
        high = np.repeat(self._spread[:, :, 1:], extents.shape[1], 2)
        unit, whole = self._units[..., None], self._extents[..., None]
        count = np.minimum((high - low) / unit + 1.0, whole)
        points = np.ones((len(touches), extents.shape[1]))
        tries = np.prod(count, axis=1)
        random = self._random
        found = []
        for depth in range(self._deepest, -1, -1):
            if depth < self._deepest:
                more = np.maximum(run[:, None, depth] - 1.0, 0.0)  # loops that mostly do not run have less than one iteration
                reach = signed[:, :, depth] * more
                low, high = low + np.minimum(reach, 0.0), high + np.maximum(reach, 0.0)
                grown = np.where(moved[:, :, depth] > 0, count * (more + 1.0), count)
                count = np.minimum(np.minimum(grown, count + moved[:, :, depth] * more / unit), whole)
                points = points * np.where(random[:, depth, None], run[:, depth], 1.0)
                tries = tries * np.where((moved[:, :, depth] > 0).any(axis=1) | random[:, depth, None], more[:, 0] + 1.0, 1.0)
            found.append(self._united(depth, low, high, count, points, tries))
        return found[::-1]

    @cached_property
    def _random(self) -> Numbers:
        found = np.zeros((len(self.summary.touches), self._deepest), bool)
        for number, touch in enumerate(self.summary.touches):
            found[number, : len(touch.path)] = [loop in touch.random for loop in self.paths[number]]
        return found

    @cached_property
    def _jumps(self) -> Numbers:
        return np.array([bool(t.random) for t in self.summary.touches])

    def _united(
        self, depth: int, low: Numbers, high: Numbers, count: Numbers, points: Numbers, tries: Numbers
    ) -> tuple[Numbers, Numbers, Numbers, Numbers, Numbers]:
        order, starts, segment, node_of = self._segments(depth)
        whole, unit, size, apart = self._rows_of(depth)
        hull = np.minimum(np.maximum.reduceat(high[order], starts) - np.minimum.reduceat(low[order], starts) + 1.0, whole)
        each = np.minimum(np.ceil(hull / unit), np.add.reduceat(count[order], starts))
        least = np.maximum.reduceat(count[order], starts)
        each = np.maximum(each, np.minimum(least, whole))
        lines, runs = _lines(each, hull, whole, size)
        part = np.ones_like(points)
        if len(starts) < len(order):  # boxes that lie far apart are fewer lines than the box around them
            alone = _lines(count[order], (high - low)[order] + 1.0, self._extents[order][..., None], self._sizes[order][:, None])
            lines, runs = (np.minimum(both, np.add.reduceat(own, starts)) for both, own in zip((lines, runs), alone))
            part[order] = alone[0]
            part = self._part(depth, part)
        often = np.add.reduceat(tries[order], starts)  # a diagonal is in a box of far more elements than iterations come to
        lines, runs = np.minimum(lines, often), np.minimum(runs, often)
        if self._jumps.any():
            jumps = np.maximum.reduceat(self._jumps[order], starts)[:, None]
            tries = np.maximum.reduceat(points[order], starts)
            all_lines = np.maximum(np.prod(np.where(np.isinf(whole), 1.0, whole), axis=1) * size / LINE, 1.0)
            # Each try takes what one place of the data touches; of so many tries so many are of lines that were not met before.
            wanted = np.maximum(tries * lines, 1.0)
            met = all_lines * -np.expm1(-wanted / all_lines)
            runs = np.where(jumps, np.minimum(met, tries * runs), runs)
            lines = np.where(jumps, met, lines)
        # Rows along an axis have as many places as their distances differ by; each row takes as many as it has lines.
        rows = each[:, :-1]
        bytes_ = np.zeros((1 + len(self.periods), node_of.max() + 1, lines.shape[1]))
        np.add.at(bytes_[0], node_of, lines * LINE)
        alike = np.ones(lines.shape)
        for number, period in enumerate(self.periods):
            places = np.where(rows > 1, np.minimum(rows, apart[number]) / rows * lines[:, None], np.inf)
            taken = np.maximum(places.min(axis=1, initial=np.inf), 1.0)
            np.add.at(bytes_[1 + number], node_of, lines * LINE * np.maximum(period / LINE / taken, 1.0))
            if number == 0:
                alike = 1.0 / taken
        return lines[segment], runs[segment], bytes_[:, node_of[segment]], part, alike[segment]

    def traffic(self, extents: Numbers, capacities: Sequence[int]) -> tuple[Numbers, Numbers, Numbers]:
        """Lines that touches get from beyond levels that hold so many bytes, and runs of neighbouring ones among them, by level; and those
        that come to one place of the first cache, one after the other."""
        prints = self.footprints(extents)
        run = np.where(self._places[..., None] >= 0, extents[self._places], 1.0)
        around = np.concatenate([np.ones_like(run[:, :1]), np.cumprod(run, axis=1)], axis=1)
        bytes_ = np.array([[p[2][level + 1 if level < len(self.periods) else 0] for p in prints] for level in range(len(capacities))])
        kept = _kept(bytes_ / np.array(capacities, float)[:, None, None, None])
        kept = np.maximum.accumulate(np.concatenate([kept, np.ones_like(kept[:, :1])], axis=1), axis=1)
        now = np.diff(kept, axis=1)  # what stays at a depth and not at the one before it is had again for each iteration around
        asked = np.moveaxis(around, 1, 0) * np.array([p[3] for p in prints])
        asked *= np.array([t.share for t in self.summary.touches])[:, None]
        lines = np.einsum("ldtb,dtb->ltb", now, asked * np.array([p[0] for p in prints]))
        runs = np.einsum("ldtb,dtb->ltb", now, asked * np.array([p[1] for p in prints]))
        alike = np.einsum("dtb,dtb->tb", now[0], asked * np.array([p[0] * p[4] for p in prints]))
        return lines, np.maximum(runs, lines / self._run_lengths(prints)), alike

    def _run_lengths(self, prints: Sequence[tuple[Numbers, ...]]) -> Numbers:
        """Lines that follow each other in time, by touch: of as many runs as the copies of one iteration have, which the loops around go on
        with up to the first that begins others. What lies side by side in memory may still be come to again and again."""
        lines, runs = (np.maximum(np.array([p[part] for p in prints]), 1.0) for part in (0, 1))
        own = np.arange(lines.shape[1])
        together = runs[self._innermost, own]
        found, goes_on = lines[self._innermost, own] / together, np.ones(together.shape, bool)
        for depth in reversed(range(len(prints))):
            inside = (depth < self._innermost)[:, None]
            goes_on &= ~inside | (runs[depth] <= 1.01 * together)
            found = np.where(inside & goes_on, lines[depth] / runs[depth], found)
        return np.where(self._jumps[:, None], np.inf, np.maximum(found, 1.0))

    @cached_property
    def _innermost(self) -> Numbers:
        """The depth right inside of the innermost loop that runs one iteration after the other, by touch."""
        serial = [[n for n, x in enumerate(path) if self.kinds[x] not in (UNROLL, VECTORIZE)] for path in self.paths]
        return np.array([max(own, default=-1) + 1 for own in serial], int)

    def _part(self, depth: int, own: Numbers) -> Numbers:
        """The part of its segment that each touch is asked for, by its own lines: loads among themselves, stores among themselves."""
        if depth not in self._rows:
            number = self._segments(depth)[2] * 2 + np.array([t.store for t in self.summary.touches])
            self._rows[depth] = number, int(number.max()) + 1
        number, count = self._rows[depth]
        total = np.zeros((count, own.shape[1]))
        np.add.at(total, number, own)
        part: Numbers = own / np.maximum(total[number], _LEAST)
        return part

    @cached_property
    def _rows(self) -> dict[int, tuple[Numbers, int]]:
        return {}


def one_by_one(work: Work) -> bool:
    """Whether work in lanes is done for one element after the other: accesses far apart, gathers, divisions of integers."""
    return work.kind in (GATHER, INTEGER_DIVIDE) or (work.kind in (LOAD, STORE) and abs(work.stride) not in (0.0, 1.0, 2.0))


def _moving(touch: Touch, summary: Summary) -> frozenset[int]:
    """The loops of a touch's path that move it."""
    axes = {axis for moves in touch.moves for axis, step in moves if step}
    return frozenset(x for x in touch.path if summary.loops[x].axis in axes or x in touch.random)


def _registers(lanes: Numbers, size: Numbers, vector_bytes: int, unit_bytes: int) -> Numbers:
    """Registers that so many elements of `size` bytes take: whole ones, then one for each power of two that remains, of which those
    that a part of the unit does count as that part."""
    each = np.maximum(vector_bytes // size, 1.0)
    whole, rest = np.floor(lanes / each), np.floor(lanes % each).astype(np.int64)
    sizes = size.ravel()
    parts = np.stack([_parts(int(one), vector_bytes, unit_bytes) for one in sizes])[np.arange(len(sizes)).reshape(size.shape), rest & 127]
    registers: Numbers = np.maximum(whole + parts, unit_bytes / vector_bytes)
    return registers


@cache
def _parts(size: int, vector_bytes: int, unit_bytes: int) -> Numbers:
    """Registers of fewer elements than one holds, by their number."""
    rest = np.arange(1 << 7)
    parts = np.zeros(len(rest))
    for bit in range(7):
        parts += (rest >> bit & 1) * np.clip((1 << bit) * size / vector_bytes, unit_bytes / vector_bytes, 1.0)
    return parts


def _kept(load: Numbers) -> Numbers:
    """The share of what is touched again and again that a cache keeps, by how much is touched for what it holds.

    Caches replace lines nearly at random: a line that is kept with probability h meets (1 - h) * load replacements per line held before it
    is touched again, so h = exp(-(1 - h) load), which is 1 up to a load of 1, and 0.2 at 2."""
    share: Numbers = _KEPT[(np.minimum(load, _MOST) * _STEPS).astype(np.intp)]
    return share


def _fixed_points(loads: Numbers) -> Numbers:
    kept = np.where(loads > 1.0, 0.0, 1.0)
    for _ in range(400):
        kept = np.exp(-(1.0 - kept) * loads)
    return kept


_MOST, _STEPS = 6.0, 64
"""The load beyond which next to nothing is kept, and entries of the table for one unit of load."""
_KEPT = np.r_[_fixed_points(np.arange(int(_MOST * _STEPS)) / _STEPS), 0.0]


def _lines(each: Numbers, hull: Numbers, whole: Numbers, size: Numbers) -> tuple[Numbers, Numbers]:
    """Lines and runs of neighbouring lines of elements in a box: `each` along every axis, spread over `hull` of `whole`."""
    axes = each.shape[1]
    length, rows = hull[:, axes - 1], np.ones_like(each[:, 0])
    elements, pitch = each[:, axes - 1], np.where(np.isinf(whole[:, axes - 1]), 0.0, whole[:, axes - 1])
    full = (whole[:, axes - 1] - length) * size < LINE  # less than a line is left out between one row and the next
    for axis in range(axes - 2, -1, -1):
        length = np.where(full, length + (hull[:, axis] - 1.0) * pitch, length)
        elements = np.where(full, elements * each[:, axis], elements)
        rows = np.where(full, rows, rows * each[:, axis])
        pitch = pitch * np.where(np.isinf(whole[:, axis]), 0.0, whole[:, axis])
        full = full & ((pitch - length) * size < LINE) & ~np.isinf(whole[:, axis])
    # A row that begins anywhere in a line meets one line more than it fills, but for the part of an element.
    met = np.minimum((length * size + LINE - size) / LINE, elements)
    met = np.where(full, np.minimum(np.maximum(length * size / LINE, 1.0), elements), np.maximum(met, 1.0))
    dense = elements * size * 2 >= length * size
    runs = rows * np.where(dense | (length * size / np.maximum(elements, 1.0) <= LINE), 1.0, met)
    return rows * met, runs
