"""Which tile: cuts of the survey, loops that are copied out beside the lanes, and sizes, evaluated by the model of cost in batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import ceil

import numpy as np

from tensorexpr.codegen.auto.cost import Model
from tensorexpr.codegen.auto.machine import Facts
from tensorexpr.codegen.auto.points import OPEN
from tensorexpr.codegen.auto.tiles.sketch import Tile, sketch
from tensorexpr.codegen.auto.tiles.survey import DATA, Leaf, Survey
from tensorexpr.records import record

WIDEST = 256
"""Lanes of a loop that is still emitted as one vector (`kinds.LARGEST_HELD`)."""
REGISTERS = (1, 2, 3, 4, 6, 8, 12)
COPIES = (1, 2, 4, 6, 8, 12, 14)
MOST_STRUCTURES = 8
MOST_WRITTEN = 512
"""Statements on whole registers that a tile may copy out."""


@record
class Choice:
    """A tile, and the nanoseconds that its sketch is predicted to take."""

    tile: Tile
    time: float


def choices(survey: Survey, facts: Facts) -> list[Choice]:
    """The best sizes of each structure, the fastest first."""
    found = []
    for lanes, copies in _structures(survey):
        found.append(_sized(survey, facts, lanes, copies))
    return sorted(found, key=lambda c: c.time)


def _structures(survey: Survey) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    count = 0
    for cut in survey.cuts():
        for copies in _copied(survey, cut):
            yield cut, copies
            count += 1
            if count == MOST_STRUCTURES:
                return


def _copied(survey: Survey, cut: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Loops that may be copied out: those along which elements are shared by the iterations of the busiest leaf."""
    leaf = max(survey.leaves, key=lambda x: _often(survey, x))
    shared = []
    for name in leaf.path:
        if name in cut or survey.kind(name) != DATA or survey.bounds_others(name) or not _loops_inside(survey, name, cut):
            continue
        if any(survey.stride(a, name) == 0 for a in leaf.loads if a.tensor not in survey.locals):
            shared.append(name)
    found: list[tuple[str, ...]] = [()]
    found += [(name,) for name in reversed(shared[-3:])]
    if len(shared) > 1:
        found.append(tuple(shared[-2:]))
    return found


def _loops_inside(survey: Survey, name: str, cut: tuple[str, ...]) -> bool:
    """Whether a loop that is neither lanes nor the loop itself is inside."""
    return any(x != name and x not in cut for leaf in survey.below(name) for x in leaf.path[leaf.path.index(name) + 1 :])


def _often(survey: Survey, leaf: Leaf) -> float:
    often = 1.0
    for name in leaf.path:
        often *= survey.length(name) or OPEN
    return often * (len(leaf.loads) + len(leaf.stores))


def _sized(survey: Survey, facts: Facts, lanes: tuple[str, ...], copies: tuple[str, ...]) -> Choice:
    """The best sizes of one structure."""
    names = [*lanes, *copies]
    options = [_widths(survey, facts, name) for name in lanes] + [_counts(survey, name) for name in copies]
    if len(lanes) > 1:  # lanes of different leaves in steps
        options[: len(lanes)] = [[(a,) for a in own] for own in options[: len(lanes)]]
    middle = Tile({n: _middle(survey, facts, n) for n in lanes}, {n: min(4, survey.length(n) or 4) for n in copies})
    summary = sketch(survey, middle)
    model = Model(summary, facts)
    if not names:
        return Choice(middle, float(model.times()[0]))
    best: dict[str, int] = dict(middle.sizes)
    groups = [names] if len(lanes) <= 1 else [[n] for n in lanes] + ([list(copies)] if copies else [])
    time = float("inf")
    for group in groups:
        grid = list(product(*(_widths(survey, facts, n) if n in lanes else _counts(survey, n) for n in group)))
        grid = [g for g in grid if _written(facts, dict(zip(group, g, strict=True)), lanes) <= MOST_WRITTEN] or grid[:1]
        sizes = {n: np.array([g[k] for g in grid], float) for k, n in enumerate(group)}
        for n in names:
            sizes.setdefault(n, np.full(len(grid), float(best[n])))
        times = model.times(_extents(survey, summary, sizes))
        at = int(np.argmin(times))
        best |= dict(zip(group, grid[at], strict=True))
        time = float(times[at])
    return Choice(Tile({n: best[n] for n in lanes}, {n: best[n] for n in copies if best[n] > 1}), time)


def _written(facts: Facts, sizes: dict[str, int], lanes: tuple[str, ...]) -> float:
    total = 1.0
    for name, size in sizes.items():
        total *= ceil(size * 32 / facts.vector_bits) if name in lanes else size
    return total


def _extents(survey: Survey, summary, sizes):  # noqa: ANN001, ANN202
    found = {}
    for number, loop in enumerate(summary.loops):
        if loop.name in sizes:
            found[number] = sizes[loop.name]
        elif loop.name.removesuffix("_o") in sizes and loop.name.endswith("_o"):
            name = loop.name.removesuffix("_o")
            length = survey.length(name) or loop.extent * next(x.extent for x in summary.loops if x.name == name)
            found[number] = np.ceil(length / sizes[name])
    return found


def _middle(survey: Survey, facts: Facts, name: str) -> int:
    widths = _widths(survey, facts, name)
    return widths[min(1, len(widths) - 1)]


def _widths(survey: Survey, facts: Facts, name: str) -> list[int]:
    """Lanes: whole registers, or all of a short loop."""
    one, length = facts.vector_bits // 32, survey.length(name)
    found = [one * n for n in REGISTERS if one * n <= WIDEST and (length is None or one * n <= length)]
    if length is not None and length <= WIDEST and length not in found and length <= one * 4:
        found.append(length)
    return found or [min(one, length or one)]


def _counts(survey: Survey, name: str) -> list[int]:
    length = survey.length(name)
    found = [n for n in COPIES if length is None or n <= length]
    if length is not None and length <= COPIES[-1] and length not in found:
        found.append(length)
    return found
