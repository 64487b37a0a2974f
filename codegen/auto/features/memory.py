"""What is touched: footprints of accesses, and the lines that each level of memory delivers.

A *footprint* is what an access touches while some loops run: along each axis of the buffer the elements between the first and the
last, or the product of the extents of the loops that move it, if that is less (Tiramisu and PolyMage take the former, the rectangular
hull), and in all no more than these loops have iterations. What accesses that move together touch in common counts once. Lines are whole,
and rows that follow each other without a gap are one.
A level of memory delivers what does not stay there: data is loaded once for all iterations of the outermost loop of which one iteration
touches no more than the level holds, and again for each iteration of the loops around (Adams et al. 2019; the ECM models of Hofmann, Fey
and Wellein 2018 call it the layer condition). Functions are called again with the same arrays: what fits as a whole, stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from tensorexpr.codegen.auto.features.work import LEAST, Executed, Numbers
from tensorexpr.codegen.auto.summary import UNROLL, VECTORIZE, Summary
from tensorexpr.records import cached_property

LINE = 64
"""Bytes of a cache line: the same on all machines that we know, but for Apple's 128."""
WAYS = 8
"""Places of a second cache that a line may take: 8 to 16 on the machines that we know."""
PERIOD = 4096
"""Bytes after which lines fall on the same places of a first cache: a page, since it is looked up while the address is translated."""


class _Segments(NamedTuple):
    """Touches of all depths, those of each one behind the other: their order by segments, where these begin in it, the segment of each, the
    node of the tree of loops that each segment is in, and how many are at depths where some share one; of each segment the extents of
    its buffer, the common steps, the bytes of an element, and the rows apart by period."""

    order: Numbers
    starts: Numbers
    of: Numbers
    nodes: Numbers
    shared: int
    extents: Numbers
    units: Numbers
    sizes: Numbers
    apart: list[Numbers]


class Plan(Executed):
    """All that is counted of a summary: what is executed, and what it touches. `second` is the bytes of the second cache."""

    def __init__(self, summary: Summary, vector_bytes: int, auto_bytes: int, unit_bytes: int | None = None, second: int = 0) -> None:
        super().__init__(summary, vector_bytes, auto_bytes, unit_bytes)
        self.periods = (PERIOD, 1 << (second // WAYS).bit_length() - 1) if second else (PERIOD,)

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

    @cached_property
    def _segments(self) -> _Segments:
        """Touches that move together while the loops from each depth on run."""
        loops = self.summary.loops
        keys: dict[tuple[object, ...], int] = {}
        nodes: dict[tuple[int, tuple[int, ...]], int] = {}
        segment, node_of, shared, met = [], [], 0, 0
        for depth in range(self._deepest + 1):
            for touch, path in zip(self.summary.touches, self.paths):
                prefix = path[:depth]
                axes = {loops[x].axis for x in prefix}
                outer = tuple([tuple([move for move in moves if move[0] in axes]) for moves in touch.moves])
                key = (depth, prefix, touch.buffer, outer)
                if key not in keys:
                    keys[key] = len(keys)
                    node_of.append(nodes.setdefault((depth, prefix), len(nodes)))
                segment.append(keys[key])
            if len(keys) - met < len(self.paths):
                shared = depth + 1  # what moves together further in does so further out
            met = len(keys)
        of = np.array(segment)
        order = np.argsort(of, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(of[order]) > 0])
        first = order[starts] % len(self.paths)
        apart = [self._places_apart(period)[first][:, :-1, None] for period in self.periods]
        rows = self._extents[first][..., None], self._units[first][..., None], self._sizes[first][:, None], apart
        return _Segments(order, starts, of, np.array(node_of), shared * len(self.paths), *rows)

    def footprints(self, extents: Numbers) -> list[tuple[Numbers, ...]]:
        """By depth d from 0: lines of each touch's segment while the loops of its path from d on run, runs of neighbouring lines among
        them, bytes of all that is touched then in the same loops, followed by those of the first caches that this takes, by touch: rows
        that are a multiple of a cache's period apart take the same places; the part of its segment that each touch is asked for; and
        lines that come to one place of the first cache, for each that comes."""
        if not self.summary.touches:
            return []
        lines, runs, bytes_, part, alike = self._prints(extents)
        return list(zip(lines, runs, np.moveaxis(bytes_, 0, 1), part, alike, strict=True))

    def _prints(self, extents: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers, Numbers]:
        """The footprints with the depth as an axis, the first one but for that of the caches."""
        own, steps = self._places, self._steps(extents)
        touches, deep, count = len(own), self._deepest, extents.shape[1]
        inside = own >= 0
        run = np.moveaxis(np.where(inside[..., None], extents[own], 1.0), 1, 0)
        step = np.moveaxis(np.where(inside[..., None], steps[own], 0.0), 1, 0)
        signed = np.moveaxis(self._moves, 2, 0)[..., None] * step[:, :, None]
        moved, unit, whole = np.abs(signed), self._units[..., None], self._extents[..., None]
        more = np.maximum(run - 1.0, 0.0)  # loops that mostly do not run have less than one iteration
        reach = signed * more[:, :, None]
        random = self._random.T[..., None]
        # From the innermost depth out: boxes reach further by what each loop moves them, and have as many more elements.
        low, high = (np.repeat(self._spread[None, :, :, n : n + 1], count, 3) for n in (0, 1))
        elements = [np.minimum((high[0] - low[0]) / unit + 1.0, whole)]
        tries = np.prod(elements[0], axis=1)[None]
        low = _outward(np.add, low, np.minimum(reach, 0.0))
        high = _outward(np.add, high, np.maximum(reach, 0.0))
        grown, further = np.where(moved > 0, more[:, :, None] + 1.0, 1.0), moved * more[:, :, None] / unit
        for depth in reversed(range(deep)):
            now = elements[-1]
            elements.append(np.minimum(np.minimum(now * grown[depth], now + further[depth]), whole))
        points = _outward(np.multiply, np.ones((1, touches, count)), np.where(random, run, 1.0))
        tries = _outward(np.multiply, tries, np.where((moved > 0).any(axis=2) | random, more + 1.0, 1.0))
        flat = [x.reshape(-1, *x.shape[2:]) for x in (low, high, np.array(elements[::-1]), points, tries)]
        lines, runs, bytes_, part, alike = self._united(*flat)
        shape = (deep + 1, touches, count)
        return lines.reshape(shape), runs.reshape(shape), bytes_.reshape(-1, *shape), part.reshape(shape), alike.reshape(shape)

    @cached_property
    def _random(self) -> Numbers:
        found = np.zeros((len(self.summary.touches), self._deepest), bool)
        for number, touch in enumerate(self.summary.touches):
            found[number, : len(touch.path)] = [loop in touch.random for loop in self.paths[number]]
        return found

    @cached_property
    def _jumps(self) -> Numbers:
        return np.array([bool(t.random) for t in self.summary.touches])

    def _united(self, low: Numbers, high: Numbers, count: Numbers, points: Numbers, tries: Numbers) -> tuple[Numbers, ...]:
        """What touches of a segment touch together, of all depths one behind the other."""
        order, starts, segment, node_of, shared, whole, unit, size, apart = self._segments
        hull = np.minimum(np.maximum.reduceat(high[order], starts) - np.minimum.reduceat(low[order], starts) + 1.0, whole)
        each = np.minimum(np.ceil(hull / unit), np.add.reduceat(count[order], starts))
        least = np.maximum.reduceat(count[order], starts)
        each = np.maximum(each, np.minimum(least, whole))
        lines, runs = _lines(each, hull, whole, size)
        part = np.ones_like(points)
        if shared:  # boxes that lie far apart are fewer lines than the box around them
            own = order[:shared]
            until = int(np.searchsorted(starts, shared))
            touch = own % len(self.paths)
            alone = _lines(count[own], (high - low)[own] + 1.0, self._extents[touch][..., None], self._sizes[touch][:, None])
            for both, one in zip((lines, runs), alone):
                both[:until] = np.minimum(both[:until], np.add.reduceat(one, starts[:until]))
            part[own] = alone[0]
            part[:shared] = self._part(segment[:shared], part[:shared])
        often = np.add.reduceat(tries[order], starts)  # a diagonal is in a box of far more elements than iterations come to
        lines, runs = np.minimum(lines, often), np.minimum(runs, often)
        if self._jumps.any():
            jumps = np.maximum.reduceat(self._jumps[order % len(self.paths)], starts)[:, None]
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
            # Elements of a row are no rows: buffers of fewer axes have theirs along one of these.
            crowded = (rows > 1) & (apart[number] < np.inf)
            places = np.where(crowded, np.minimum(rows, apart[number]) / rows * lines[:, None], np.inf)
            taken = np.maximum(places.min(axis=1, initial=np.inf), 1.0)
            crowding = np.zeros(bytes_[0].shape)  # of the buffer that does most: others have other places, as it happens
            np.maximum.at(crowding, node_of, lines * LINE * np.maximum(period / LINE / taken - 1.0, 0.0))
            bytes_[1 + number] = bytes_[0] + crowding
            if number == 0:
                alike = 1.0 / taken
        return lines[segment], runs[segment], bytes_[:, node_of[segment]], part, alike[segment]

    def traffic(self, extents: Numbers, capacities: Sequence[int]) -> tuple[Numbers, Numbers, Numbers]:
        """Lines that touches get from beyond levels that hold so many bytes, and runs of neighbouring ones among them, by level; and those
        that come to one place of the first cache, one after the other."""
        print_lines, print_runs, print_bytes, part, print_alike = self._prints(extents)
        run = np.where(self._places[..., None] >= 0, extents[self._places], 1.0)
        around = np.concatenate([np.ones_like(run[:, :1]), np.cumprod(run, axis=1)], axis=1)
        bytes_ = print_bytes[[level + 1 if level < len(self.periods) else 0 for level in range(len(capacities))]]
        kept = _kept(bytes_ / np.array(capacities, float)[:, None, None, None])
        kept = np.maximum.accumulate(np.concatenate([kept, np.ones_like(kept[:, :1])], axis=1), axis=1)
        now = np.diff(kept, axis=1)  # what stays at a depth and not at the one before it is had again for each iteration around
        asked = np.moveaxis(around, 1, 0) * part
        asked *= np.array([t.share for t in self.summary.touches])[:, None]
        lines = np.einsum("ldtb,dtb->ltb", now, asked * print_lines)
        runs = np.einsum("ldtb,dtb->ltb", now, asked * print_runs)
        alike = np.einsum("dtb,dtb->tb", now[0], asked * (print_lines * print_alike))
        return lines, np.maximum(runs, lines / self._run_lengths(print_lines, print_runs)), alike

    def _run_lengths(self, lines: Numbers, runs: Numbers) -> Numbers:
        """Lines that follow each other in time, by touch: of as many runs as the copies of one iteration have, which the loops around go on
        with up to the first that begins others. What lies side by side in memory may still be come to again and again."""
        lines, runs = np.maximum(lines, 1.0), np.maximum(runs, 1.0)
        own = np.arange(lines.shape[1])
        together = runs[self._innermost, own]
        found, goes_on = lines[self._innermost, own] / together, np.ones(together.shape, bool)
        for depth in reversed(range(len(lines))):
            inside = (depth < self._innermost)[:, None]
            goes_on &= ~inside | (runs[depth] <= 1.01 * together)
            found = np.where(inside & goes_on, lines[depth] / runs[depth], found)
        return np.where(self._jumps[:, None], np.inf, np.maximum(found, 1.0))

    @cached_property
    def _innermost(self) -> Numbers:
        """The depth right inside of the innermost loop that runs one iteration after the other, by touch."""
        serial = [[n for n, x in enumerate(path) if self.kinds[x] not in (UNROLL, VECTORIZE)] for path in self.paths]
        return np.array([max(own, default=-1) + 1 for own in serial], int)

    def _part(self, segment: Numbers, own: Numbers) -> Numbers:
        """The part of its segment that each touch is asked for, by its own lines: loads among themselves, stores among themselves."""
        stores = np.array([t.store for t in self.summary.touches])
        number = segment * 2 + np.resize(stores, len(segment))
        total = np.zeros((int(number.max()) + 1, own.shape[1]))
        np.add.at(total, number, own)
        part: Numbers = own / np.maximum(total[number], LEAST)
        return part


def _outward(accumulate: np.ufunc, innermost: Numbers, loops: Numbers) -> Numbers:
    """What is so much at the innermost depth by depth, as each loop from the innermost out adds to it, or multiplies it."""
    found: Numbers = accumulate.accumulate(np.concatenate([innermost, loops[::-1]]), axis=0)[::-1]
    return found


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
