"""Which tile: skeletons (which loops have levels, of which kind, in which order) by cuts of the survey, and sizes by the model of cost.

| skeleton | levels | for |
|---|---|---|
| registers | copies of loops whose iterations share operands, lanes | products, windows, rows that share a vector |
| copies | copies alone | sums over few elements, as many as data says |
| powers | copies of a sum whose index is an exponent, lanes | polynomials: powers by constants share their squares |
| streams | lanes in blocks, copies of a sum, lanes | sums over a leading axis: whole rows go by, accumulators stay in the first cache |
| squares | sixteen copies of a loop along the rows that lanes go across, sixteen lanes | changes of layout, turned around in registers |
| classes | lanes, copies of the loop over what these leave out | indices that are divided: vectors are stored interleaved |
| panels | registers, an operand copied so that lanes lie side by side | products whose operands lie across the lanes |

Short sums of the best of these are then copied out as well. Sizes of one skeleton are evaluated in one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, pairwise, product, zip_longest
from math import ceil, inf, prod
from typing import NamedTuple

import numpy as np

from tensorexpr.codegen.auto.candidate import spend
from tensorexpr.codegen.auto.cost import Model
from tensorexpr.codegen.auto.features import LINE, Numbers
from tensorexpr.codegen.auto.machine import Facts
from tensorexpr.codegen.auto.summary import Summary
from tensorexpr.codegen.auto.tiles.bound import least
from tensorexpr.codegen.auto.tiles.sketch import Level, Packed, Tile, sketch
from tensorexpr.codegen.auto.tiles.survey import DATA, SHORT_SUM, SUM, WINDOW, Survey
from tensorexpr.codegen.lowering.context.arithmetic import constant
from tensorexpr.codegen.nest import Store
from tensorexpr.codegen.nest.walks import statements
from tensorexpr.ir import Access, Index
from tensorexpr.records import record, replace
from tensorexpr.traversal import free_names

WIDEST = 256
"""Lanes of a loop that is still emitted as one vector (`kinds.LARGEST_HELD`)."""
REGISTERS = (1, 2, 3, 4, 6, 8, 12)
"""Registers side by side in lanes."""
COPIES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
BLOCKS = (4, 8, 16, 32, 64, 128, 256, 512)
"""Whole vectors of a block of lanes that is gone through for each row of a sum: half of a first cache has room for 256 of them."""
WIDE = 4
"""Registers of lanes beside copies: LLVM's code for vectors of more keeps sums in memory (a tile of 2 x 128 takes 2.4 times 4 x 64)."""
ALIKE = 1.005
"""Times that the model does not tell apart: then lanes are `WIDE` registers (GELU takes 7.7 ms by 64 lanes, 9.3 by 16, 96 or 128)."""
SHORT = 4
"""Registers up to which all of a loop is lanes, so that which of them are off is known."""
MOST_SIZES = 144
"""Combinations of sizes that the model is asked for at once: 0.1 to 0.4 ms each for a kernel of a few statements."""
MOST_SKELETONS, LEAST_SKELETONS = 16, 4
MOST_APART = 4
"""Elements between neighbouring lanes up to which those between are stored with them."""
FEW_LEAVES = 4
"""Leaves of a kernel up to which so many skeletons are looked at; of more as many fewer, for each takes as much longer."""
NEAR = 1.15
"""How far above what no nest goes below a tile of such a kernel is as good as it gets: loops, rests, and loads beside their arithmetic."""
HOPELESS = 2.0
"""How far behind the best so far a tile is that need not be looked at more closely: so far few nests are from their sketches."""
MOST_WINDOWS = 2
"""Choices, the best of some lanes each, that are tried with windows copied out."""
MOST_WINDOWED, BUSY = 2, 8.0
"""Leaves whose windows are copied out, and how many times the work of such a leaf that of the busiest one may be."""
FEW_COPIES = 4
"""Iterations below which a loop alone makes too few copies to hide how long sums wait for each other."""
MOST_TESTED = 32
"""Copies of a statement under tests, windows among them: at each border there are as many again."""
COPIED = 0.2
"""Nanoseconds of an element that is copied to a panel: some tenths of a line from the third cache, and its shuffles."""
COPIED_NEAR = 0.1
"""The same of a copy that stays in the first cache: the shuffles of a square of sixteen, its loads and stores, for each element."""
CLASH = 2048
"""Bytes apart at which rows share half of the places of a page with each other."""
CROWDED = 0.96
"""What a panel takes of the time of rows that clash: the model of cost sees no wait behind products, on Zen 4 they take 5 % more."""
MOST_COPIES = 64
"""Copies of a statement that windows at borders may make of it: as many registers are multiplied one after the other (`MOST_WRITTEN` is
what LLVM's time allows of all)."""
TESTED = 1.7
"""What a tile takes whose copies ask at each step of a sum whether they are at a border, beside one that is written out there (conv3d of
3x3x3 and a 7x7 window of stride 2, as nests that the model judges)."""
MOST_WRITTEN = 256
"""Registers of one statement that a tile may copy out: beyond, LLVM's time grows faster than what is gained."""


@record
class Choice:
    """A tile, the nanoseconds that its sketch is predicted to take, and its skeleton: levels of size 1 are those that were sized."""

    tile: Tile
    time: float
    skeleton: Tile


def choices(survey: Survey, facts: Facts, most: float = inf) -> list[Choice]:
    """The best sizes of each skeleton, the fastest first; those that take `most` nanoseconds or more are not looked at closely."""
    found: list[Choice] = []
    outside = {name for name in survey.loops if survey.bounds_others(name) or survey.length(name) == 0}
    sunk = (tile for tile in _skeletons(survey, facts) if outside.isdisjoint(level.loop for level in tile.levels))
    few = len(survey.leaves) <= FEW_LEAVES
    count = MOST_SKELETONS if few else max(LEAST_SKELETONS, MOST_SKELETONS * FEW_LEAVES // len(survey.leaves))
    enough = 0.0 if few else NEAR * least(survey.nest, facts, survey.buffers.keys() - survey.locals.keys())
    first = inf
    for tile in islice(sunk, count):
        found.append(_sized(survey, facts, tile, min(HOPELESS * first, most)))
        first = min(first, found[-1].time)
        if first <= enough:
            break
    found.sort(key=lambda c: c.time)
    if survey.small or first >= HOPELESS * most:
        return found
    best = {choice.tile.lanes: choice for choice in reversed(found)}
    leading = [choice for choice in found if best[choice.tile.lanes] is choice][:MOST_WINDOWS]
    found += [better for choice in leading for better in _with_windows(survey, facts, choice)]
    return sorted(found, key=lambda c: c.time)


def _whole(survey: Survey, facts: Facts, name: str) -> int:
    """The lanes of all of a short loop; 0 for others."""
    one, length = facts.vector_bits // 32, survey.length(name)
    if length is None or length > SHORT * one:
        return 0
    if length < one or survey.kind(name) == SUM:
        return 1 << (length - 1).bit_length()
    unit = facts.unit_bits // 32
    return -(-length // unit) * unit


def _with_windows(survey: Survey, facts: Facts, choice: Choice) -> Iterator[Choice]:
    """A choice with short sums, or loops that keep their order, copied out: each, and the innermost ones together, of the busiest leaf,
    then beside the best of these those of the next one."""
    leaves = sorted(survey.leaves, key=lambda leaf: -survey.work(leaf))
    for leaf in [leaf for leaf in leaves if survey.work(leaf) * BUSY >= survey.work(leaves[0])][:MOST_WINDOWED]:
        best = choice
        sums = [x for x in leaf.path if survey.kind(x) != DATA and not survey.bounds_others(x) and not best.tile.of(x)]
        short = [x for x in sums if 1 < (survey.length(x) or 0) <= WINDOW]
        copies = prod(level.size for level in best.tile.levels if level.kind == "unroll" and level.loop in leaf.path)
        sets = [short[n:] for n in reversed(range(len(short)))] + [[name] for name in short[:-1]]
        for names in sets:
            if survey.has_tests and copies * prod(survey.length(name) or 1 for name in names) > MOST_TESTED:
                continue
            levels = (*(Level(name, survey.length(name) or 1, "unroll") for name in names), *best.skeleton.levels)
            made = _sized(survey, facts, replace(best.skeleton, levels=levels), HOPELESS * choice.time)
            choice = min(choice, made, key=lambda c: c.time)
            yield made


def _skeletons(survey: Survey, facts: Facts) -> Iterator[Tile]:
    if any(survey.kind(name) == SUM and survey.length(name) is None for name in survey.busiest.path):
        # Rows whose length is data may be short: no lanes, and what places its elements is shared by copies.
        yield from (Tile(tuple(Level(name, 1, "unroll") for name in copies)) for copies in _copied(survey, ()))
    # Some of each cut, for what is best is often not with the lanes that lie best.
    ways = [_of_cut(survey, facts, cut) for cut in survey.cuts()]
    yield from (tile for row in zip_longest(*ways) for tile in row if tile is not None)


def _of_cut(survey: Survey, facts: Facts, cut: Sequence[str]) -> Iterator[Tile]:
    """The skeletons that have some lanes."""
    lanes = tuple(Level(name, 1, "vectorize") for name in cut)
    whole = tuple(level._replace(size=_whole(survey, facts, level.loop)) for level in lanes)
    side, classes = facts.vector_bits // 32, _classes(survey, cut)
    powers = [name for name in survey.busiest.path if name in survey.exponents and name not in cut and survey.kind(name) == SUM]
    if powers and all(1 < (survey.length(name) or 0) <= SHORT_SUM for name in powers):
        yield Tile((*(Level(name, survey.length(name) or 1, "unroll") for name in powers), *lanes))
    for rows in _across(survey, cut) if all(survey.iterations(name) >= side for name in cut) else ():
        squares = tuple(level._replace(size=side) for level in lanes)
        yield Tile((Level(rows, min(side, survey.length(rows) or side), "unroll"), *squares))
    for copies in _copied(survey, cut):
        levels = tuple(Level(name, 1, "unroll") for name in copies)
        if classes and not any(level.loop in copies for level in classes):
            yield Tile((*levels, *lanes, *classes))
        packed = list(_packed(survey, cut)) if copies and not survey.small else []  # a single row would wait for them
        for one, _, order in packed:
            yield Tile((*levels, *lanes), order, (one,))
        for one in _in_elements(survey, facts, cut):
            yield Tile((*levels, *lanes), (), (one,))
        if any(far for _, far, _ in packed):
            continue
        if any(level.size for level in whole):
            yield Tile((*levels, *whole))
        if not all(level.size for level in whole):
            yield Tile((*levels, *lanes))
    passing = _passing(survey, cut)
    if passing:
        yield Tile((*(Level(name, 1, "unroll") for name in passing), *lanes))
    sums = _streamed(survey, cut)
    if sums:
        blocks, added = (tuple(Level(name, 1, kind) for name in names) for names, kind in ((cut, "serial"), (sums, "unroll")))
        yield from (Tile((*blocks, *(Level(name, 1, "unroll") for name in rows), *added, *lanes)) for rows in _copied(survey, cut))


def _classes(survey: Survey, cut: Sequence[str]) -> tuple[Level, ...]:
    """A loop over what lanes leave out along an axis where they store, inside of them: its copies store whole vectors."""
    for leaf in survey.leaves:
        lanes = next((name for name in leaf.path if name in cut), None)
        for store in leaf.stores if lanes is not None else ():
            apart = abs(survey.stride(store, lanes or ""))
            if store.buffer not in survey.locals and 1 < apart <= MOST_APART:
                beside = {name for e in store.indices if lanes in free_names(e) for name in free_names(e)}
                for name in leaf.path:
                    if name in beside and survey.kind(name) == DATA and survey.length(name) == apart and survey.stride(store, name) == 1:
                        return (Level(name, int(apart), "unroll"),)
    return ()


def _copied(survey: Survey, cut: Sequence[str]) -> list[tuple[str, ...]]:
    """Loops that may be copied out: those along which elements are shared by the iterations of the busiest leaf."""
    if survey.lanes_alone:
        return [()]
    leaf = survey.busiest
    shared = []
    for name in leaf.path:
        if name in cut or survey.kind(name) != DATA or not _has_inside(survey, name, cut):
            continue
        if any(survey.stride(a, name) == 0 or survey.meets(a, name, leaf) for a in leaf.loads if a.tensor not in survey.locals):
            shared.append(name)
    found: list[tuple[str, ...]] = [()]
    # Short loops last: there are more copies in others.
    found += [(name,) for name in sorted(reversed(shared[-3:]), key=lambda name: survey.iterations(name) < FEW_COPIES)]
    if len(shared) > 1:
        found.append(tuple(shared[-2:]))
    return found


def _packed(survey: Survey, cut: Sequence[str]) -> Iterator[tuple[Packed, bool, tuple[str, ...]]]:
    """Operands of the busiest leaf that are worth a copy in which lanes lie side by side, whether they lie far apart, and the order of
    loops for it: made before the kernel, or in the loops that go through the operand alone, which are then outermost."""
    leaf = survey.busiest
    lanes = next((name for name in leaf.path if name in cut), None)
    if lanes is None or survey.kind(lanes) != DATA:
        return
    for access in dict.fromkeys(a for a in leaf.loads if survey.may_be_packed(a, lanes, leaf) and survey.reader_of(a.tensor) is not None):
        last = access.indices.index(Index(lanes))
        outer = [x for x in leaf.path if survey.kind(x) == DATA]
        own = [x for x in outer if survey.stride(access, x) != 0]
        staged = all(survey.length(x) is not None for x in leaf.path) and access.tensor not in survey.constants
        first = outer[: len(own)] == own
        packed, far = Packed(access.tensor, last, own[-1] if staged and first else None), abs(survey.stride(access, lanes)) > 2
        if far or _is_crowded(survey, packed) or not _has_whole_lines(survey, packed):
            yield packed, far, ()
            if staged and not first:
                others = (x for x in outer if x not in own)
                yield packed._replace(loop=own[-1]), far, (*own, *others)


def _in_elements(survey: Survey, facts: Facts, cut: Sequence[str]) -> Iterator[Packed]:
    """Operands of the busiest leaf that lie across the lanes, and are small for each iteration of the loops around that go through them: a
    copy is made there, where the next cache has it, or registers."""
    leaf, one = survey.busiest, facts.vector_bits // 32
    lanes = next((name for name in leaf.path if name in cut), None)
    length = None if lanes is None else survey.length(lanes)
    if lanes is None or survey.kind(lanes) != DATA or length is None or (length > one and length % one):
        return
    outer = [x for x in leaf.path if survey.kind(x) == DATA and x != lanes]
    for access in dict.fromkeys(a for a in leaf.loads if survey.may_be_packed(a, lanes, leaf, True)):
        own = [x for x in outer if survey.stride(access, x) != 0]
        others = [x for x in leaf.path if x not in own and survey.stride(access, x) != 0]
        elements = prod(map(survey.iterations, others)) * access.dtype.itemsize
        if own and outer[: len(own)] == own and abs(survey.stride(access, lanes)) > 2 and elements <= facts.caches[0] // 2:
            yield Packed(access.tensor, access.indices.index(Index(lanes)), own[-1], True)


def _across(survey: Survey, cut: Sequence[str]) -> list[str]:
    """Loops along which rows lie that lanes go across: copies of them make squares that are turned around in registers."""
    found: dict[str, None] = {}
    for leaf in survey.leaves:
        lanes = next((name for name in leaf.path if name in cut), None)
        accesses: tuple[Access | Store, ...] = (*leaf.stores, *leaf.loads) if lanes is not None else ()
        for access in accesses:
            if abs(survey.stride(access, lanes or "")) > 1:
                rows = (x for x in leaf.path if x != lanes and survey.kind(x) == DATA and abs(survey.stride(access, x)) == 1)
                found.update(dict.fromkeys(rows))
    return list(found)


def _has_inside(survey: Survey, name: str, cut: Sequence[str]) -> bool:
    """Whether a loop stays inside of a loop, beside its lanes."""
    for leaf in survey.below(name):
        for x in leaf.path[leaf.path.index(name) + 1 :]:
            if x not in cut or (survey.kind(x) == SUM and survey.iterations(x) > WIDEST // 4):
                return True
    return False


def _streamed(survey: Survey, cut: Sequence[str]) -> tuple[str, ...]:
    """The sums right inside of lanes that may go outside of a block of them; none where lanes are several or sums deeper."""
    if len(cut) != 1 or survey.kind(cut[0]) != DATA or survey.length(cut[0]) is None:
        return ()
    inside = [name for name in survey.children[cut[0]] if survey.kind(name) == SUM]
    if not inside or any(survey.children[name] for name in survey.children[cut[0]]):
        return ()
    return tuple(inside)


def _passing(survey: Survey, cut: Sequence[str]) -> tuple[str, ...]:
    """A sum outside of the lanes of what is executed most, of which each iteration adds to all of its elements, behind the loops inside of
    it that load the same in each iteration."""
    path, loads = survey.busiest.path, [a for a in survey.busiest.loads if a.tensor not in survey.locals]
    lanes = next((at for at, name in enumerate(path) if name in cut), 0)
    outer = next((at for at in reversed(range(lanes)) if survey.kind(path[at]) == SUM), None)
    if outer is None or survey.small:
        return ()
    rows = (x for x in path[outer + 1 : lanes] if any(survey.stride(a, x) == 0 != survey.stride(a, path[lanes]) for a in loads))
    return (*rows, path[outer])


# ------------------------------------------------------------------------------------------------------------------- sizes


def _sized(survey: Survey, facts: Facts, skeleton: Tile, most: float) -> Choice:
    """The best sizes of one skeleton: those of copies and lanes together where lanes are of one loop, else one after the other. Where it
    takes `most` nanoseconds if it never waits for data, these are all that is said of it."""
    spend(sum(1 for _ in statements(survey.body)))
    here = replace(skeleton, packed=tuple(packed._replace(loop=None, whole=False) for packed in skeleton.packed))
    found = survey.sized.get((here, facts))
    if found is None or found.most <= found.time < most:
        found = survey.sized[here, facts] = _sized_alone(survey, facts, here, most)
    tile, time, _, tested = found
    tile = replace(tile, packed=skeleton.packed)
    if tested:
        time *= TESTED
    time += sum(copying(survey, packed) for packed in tile.packed)
    if any(_is_crowded(survey, packed) for packed in tile.packed):
        time *= CROWDED
    levels = tuple(level for level in tile.levels if level.size > 1 or level.kind == "vectorize")
    return Choice(replace(tile, levels=levels), time, skeleton)


def _sized_alone(survey: Survey, facts: Facts, skeleton: Tile, most: float) -> Sized:
    """The same wherever operands are copied."""
    options = [[level.size] if level.size > 1 else _options(survey, facts, level) for level in skeleton.levels]
    # A loop of two iterations would be gone with both of them copied out, and with it one of them where there are no copies.
    first = [own[0] if own[:2] == [1, survey.length(x.loop)] else own[:2][-1] for own, x in zip(options, skeleton.levels, strict=True)]
    tile = skeleton.resized(dict(enumerate(first)))
    room, summary = _Room(survey, facts, tile), sketch(survey, tile)
    model = Model(summary, facts)
    lanes = [n for n, level in enumerate(tile.levels) if level.kind == "vectorize"]
    others = [n for n in range(len(tile.levels)) if n not in lanes]
    groups = [others + lanes] if len(lanes) == 1 else [[n] for n in lanes] + ([others] if others else [])
    fitting = list(_few_at_once(groups or [[]], options))

    def best(tile: Tile, times: Callable[[Mapping[int, Numbers]], Numbers]) -> tuple[Tile, float]:
        time = 0.0
        for group in fitting:
            grid = [dict(zip(group, sizes, strict=True)) for sizes in product(*(options[n] for n in group))]
            now = {n: level.size for n, level in enumerate(tile.levels)}
            grid = [g for g in grid if room.holds({**now, **g})] or grid[:1]
            found = times(_extents(survey, summary, tile, grid))
            at = min(np.flatnonzero(found <= ALIKE * found.min()), key=lambda n: (_uneven(facts, tile, grid[n]), found[n]))
            tile, time = tile.resized(grid[at]), float(found[at])
        return tile, time

    sized, time = best(tile, model.busy) if most < inf else (tile, 0.0)
    if time < most:
        sized, time = best(tile, model.times)
        if sized.packed:
            time = float(Model(sketch(survey, sized, blocks=True), facts).times()[0])
    return Sized(sized, time, most, any(sized.levels[n].size > 1 for n in room.tested))


def _uneven(facts: Facts, tile: Tile, sizes: Mapping[int, int]) -> int:
    """By how many registers lanes differ from those that run best side by side."""
    lanes = [size for n, size in sizes.items() if tile.levels[n].kind == "vectorize"]
    return abs(max(lanes, default=0) * 32 // facts.vector_bits - WIDE)


def _few_at_once(groups: Sequence[Sequence[int]], options: Sequence[Sequence[int]]) -> Iterator[Sequence[int]]:
    """Levels whose sizes are tried together: neighbours, twice over, where there are too many combinations of all of a group."""
    for group in groups:
        if prod(len(options[n]) for n in group) <= MOST_SIZES:
            yield group
        else:
            yield from [pair for _ in range(2) for pair in pairwise(group)]


def copying(survey: Survey, packed: Packed) -> float:
    """Nanoseconds that copies of an operand take, each element once; none those of a constant, which are made once (`nest.early`)."""
    if packed.loop is None and packed.buffer in survey.constants:
        return 0.0
    return (COPIED_NEAR if packed.whole else COPIED) * prod(map(survey.extent, survey.buffers[packed.buffer].shape))


def _is_crowded(survey: Survey, packed: Packed) -> bool:
    """Whether rows of an operand lie so that they take the same places of a cache, so that those between are asked for again."""
    buffer = survey.buffers[packed.buffer]
    rows = (a for a in survey.busiest.loads if a.tensor == packed.buffer)
    strides = [abs(survey.stride(a, x)) * buffer.dtype.itemsize for a in rows for x in survey.busiest.path]
    return any(x >= CLASH and x % CLASH == 0 for x in strides)


def _has_whole_lines(survey: Survey, packed: Packed) -> bool:
    """Whether each row of an operand begins with a line."""
    buffer = survey.buffers[packed.buffer]
    return (constant(buffer.shape[-1]) or 0) * buffer.dtype.itemsize % LINE == 0


def _options(survey: Survey, facts: Facts, level: Level) -> list[int]:
    length = survey.length(level.loop)
    if level.kind == "vectorize":
        return widths(survey, facts, level.loop)
    if level.kind == "serial":
        most = ceil(survey.iterations(level.loop) / (facts.vector_bits // 32))
        return [*(n for n in BLOCKS if n < most), *([most] if most <= BLOCKS[-1] else [])]
    most = length if length is not None else FEW_COPIES if survey.small else COPIES[-1]
    found = [n for n in COPIES if n <= most]
    if length is not None and length <= COPIES[-1] and length not in found:
        found.append(length)
    return found


def widths(survey: Survey, facts: Facts, name: str) -> list[int]:
    """Lanes: whole registers (so many that halving them ends in one, for a sum), or what is next to a short loop."""
    one, length = facts.vector_bits // 32, survey.length(name)
    if survey.lanes_alone and length is None:
        return [one]
    most = WIDE if survey.small and length is None else WIDEST // one
    counts = [n for n in REGISTERS if n <= most and (survey.kind(name) == DATA or not n & (n - 1))]
    found = [one * n for n in counts if length is None or one * (n - 1) < length]
    if length is not None and length < one:
        found = [1 << (length - 1).bit_length()]
    return found


class Sized(NamedTuple):
    """The best sizes of a skeleton, the nanoseconds of its sketch without copies of operands, those from which on they are what it takes if
    it never waits, and whether its copies ask whether they are at a border."""

    tile: Tile
    time: float
    most: float
    tested: bool


class _Room:
    """Whether the registers hold the sums of a tile, what its copies share, and one more operand."""

    def __init__(self, survey: Survey, facts: Facts, tile: Tile) -> None:
        leaf = survey.busiest
        self.facts = facts
        self.copies = [n for n, level in enumerate(tile.levels) if level.kind == "unroll" and level.loop in leaf.path]
        self.lanes = next((n for n, level in enumerate(tile.levels) if level.kind == "vectorize" and level.loop in leaf.path), None)
        self.sums = [n for n in self.copies if survey.kind(tile.levels[n].loop) == DATA]
        passing = {tile.levels[n].loop for n in self.copies} & set(_passing(survey, tile.lanes)[-1:])
        self.streams = bool(passing) or any(level.kind == "serial" for level in tile.levels)
        self.shared: list[list[int]] = []
        self.rows: list[tuple[list[int], list[int]]] = []
        self.broadcast: list[tuple[list[int], list[int]]] = []
        copied = {tile.levels[n].loop for n in self.copies}
        windows = [name for name in leaf.path if survey.kind(name) != DATA and name in copied]
        inner = [name for name in leaf.path if not tile.of(name)][-1:]
        # A short sum right around copies is written out in any case: at borders, or by LLVM.
        windows += [name for name in inner if survey.kind(name) == SUM and 1 < (survey.length(name) or 0) <= WINDOW]
        if all(survey.kind(name) == DATA or name in copied for name in leaf.path):
            windows = []  # no loop carries the sums: LLVM takes them in an order that needs few registers
        # With all of it written out, copies at borders know what they take; what is asked with other sums is asked at each step.
        self.window = max((survey.length(name) or 1 for name in inner if name in windows), default=1)
        asked = {n: survey.asked_with(tile.levels[n].loop) for n in self.sums}
        self.asked = self.copies if self.window > 1 and any(asked.values()) else []
        self.tested = [n for n, sums in asked.items() if not sums <= set(windows)]
        lanes = None if self.lanes is None else tile.levels[self.lanes].loop
        for access in dict.fromkeys(a for a in leaf.loads if a.tensor not in survey.locals) if windows else ():
            moving = [n for n in self.sums if survey.meets(access, tile.levels[n].loop, leaf)]
            step = survey.stride(access, tile.levels[moving[0]].loop) if moving else 0.0
            if moving and any(survey.stride(access, name) == step for name in windows):
                moved = [n for n in self.copies if survey.stride(access, tile.levels[n].loop) not in (0, step)]
                in_lanes = lanes is not None and survey.stride(access, lanes) != 0
                (self.rows if in_lanes else self.broadcast).append((moving, moved))
        if self.copies and self.lanes is not None:
            outer, lanes = tile.levels[self.copies[0]].loop, tile.levels[self.lanes].loop
            for access in dict.fromkeys(a for a in leaf.loads if a.tensor not in survey.locals):
                if survey.stride(access, outer) == 0 and survey.stride(access, lanes) != 0:
                    self.shared.append([n for n in self.copies if survey.stride(access, tile.levels[n].loop) != 0])

    def holds(self, sizes: Mapping[int, int]) -> bool:
        """Whether a tile of these sizes has room."""
        across = 1 if self.lanes is None else ceil(sizes[self.lanes] * 32 / self.facts.vector_bits)
        if across * prod(sizes[n] for n in self.copies) > MOST_WRITTEN or (self.copies and across > WIDE):
            return False
        if prod(sizes[n] for n in self.asked) * self.window > MOST_COPIES:
            return False
        if self.streams and self.sums:  # what rows share of a step; their sums are in the first cache
            return across * (prod(sizes[n] for n in self.copies if n not in self.sums) + 1) < self.facts.registers
        if not self.copies or self.streams:
            return True
        held = prod(sizes[n] for n in self.sums) + sum(prod(sizes[n] for n in own) for own in self.shared)
        held += sum(_next(sizes, *row) for row in self.rows)
        return across * held + sum(_next(sizes, *row) for row in self.broadcast) + 1 <= self.facts.registers


def _next(sizes: Mapping[int, int], moving: Sequence[int], others: Sequence[int]) -> int:
    """Of what copies read in one step of a window, how much the next step reads again."""
    return (prod(sizes[n] for n in moving) - 1) * prod(sizes[n] for n in others)


def _extents(survey: Survey, summary: Summary, tile: Tile, grid: Sequence[Mapping[int, int]]) -> dict[int, Numbers]:
    """Extents of the sketch's loops for some sizes of levels."""
    sizes = {n: np.array([g.get(n, level.size) for g in grid], float) for n, level in enumerate(tile.levels)}
    names = {f"{level.loop}.{n}": n for n, level in enumerate(tile.levels)}
    whole: dict[str, Numbers] = {}
    for n, level in enumerate(tile.levels):
        whole[level.loop] = whole.get(level.loop, 1.0) * sizes[n]
    found: dict[int, Numbers] = {}
    for number, loop in enumerate(summary.loops):
        if loop.name in names:
            found[number] = sizes[names[loop.name]]
        elif loop.name in whole:
            now = np.prod([level.size for level in tile.of(loop.name)])
            length = survey.length(loop.name) or loop.extent * now
            found[number] = np.ceil(length / whole[loop.name])
    return found
