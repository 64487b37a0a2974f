"""Tiles of one kernel: which of its loops are lanes, which are copied out in registers, what is blocked for caches, what cores share.

    tiled(candidate, kernel, facts) -> Candidate

| module | what it holds |
|---|---|
| `straight` | loops that run over one range in each iteration of those around them |
| `one_pass` | sums that load the same in one loop |
| `pieces` | loops cut where a choice inside changes |
| `survey` | loops of a kernel, how their iterations depend on each other, which may be lanes |
| `sketch` | the summary of a kernel with a tile, before any rewrite |
| `choose` | structures and sizes by the model of cost |
| `making` | a tile as rewrites |
| `bound` | what no nest goes below |
| `grids` | threads of a GPU for loops over data |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf

from tensorexpr.codegen.auto.candidate import Call, Candidate
from tensorexpr.codegen.auto.cost import Model
from tensorexpr.codegen.auto.machine import Facts
from tensorexpr.codegen.auto.reading import summary_of
from tensorexpr.codegen.auto.tiles.choose import COPIES, Choice, choices, copying
from tensorexpr.codegen.auto.tiles.making import bordered, shared, tiled_by
from tensorexpr.codegen.auto.tiles.one_pass import in_one_pass
from tensorexpr.codegen.auto.tiles.pieces import cut_up, points_of
from tensorexpr.codegen.auto.tiles.straight import straightened
from tensorexpr.codegen.auto.tiles.survey import Survey, alone
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.errors import ScheduleError
from tensorexpr.records import replace

__all__ = ["SEVERAL", "tiled"]

MOST_MADE = 3
"""Tiles that are made to be judged as nests: each costs some ten milliseconds."""
MOST_CUT = 2
"""How often a loop is cut at what is asked in its pieces."""
CLOSE = 1.25
"""How far a sketch may be behind a nest to be made: sketches leave out remainders and borders."""
SURE = 1.05
"""A nest that takes no more than this of its sketch is the best one: the sketches of others are behind."""
SEVERAL = 8
"""Threads that a loop on all cores is judged for: it may not depend on how many a process has which loops these are."""
LONGER, FAR = 8, 1 << 62
"""How many times longer than they typically are open sizes are where it is asked whether borders are cut off, and the bytes of caches that
hold all of it: arrays may be short along other axes, and what is cut off then counts, where memory would hide it."""
GAIN = 1.5
"""How much faster a kernel has to be as it was than with shared sums and loops in pieces: these compute less for certain, and a choice
that all lanes make alike costs more than the model says (a gradient of quaternions takes 1.2 ms for 0.40 predicted, 0.54 in pieces)."""


def tiled(candidate: Candidate, kernel: int, facts: Facts) -> Candidate:
    """The candidate with one of its kernels tiled for a CPU; as it was where nothing is legal or worth it.

    What is chosen does not depend on the number of threads, so that sums are taken in one order for any.
    """
    survey = Survey(candidate.nest, kernel)
    if not survey.roots or not survey.leaves:
        return candidate
    straight = straightened(candidate, kernel)
    if straight is not None:
        candidate, survey = straight, Survey(straight.nest, kernel)
    joined = in_one_pass(candidate, kernel)
    best, time, begun = candidate, inf, (candidate, survey)
    pieces = cut_up(joined, kernel)
    for one in {id(way): way for way in (pieces, joined, candidate)}.values():
        inside = survey if one is candidate else Survey(one.nest, kernel)
        may_be_alike = one is joined and _may_be_copies(inside, pieces.calls[len(joined.calls) :])
        found, took = _best(one, inside, kernel, facts, time if may_be_alike else time / GAIN)
        if not took:
            return found
        alike = one is joined and _chooses_by_copy(found, pieces.calls[len(joined.calls) :])
        if time == inf or took * (1.0 if alike else GAIN) < time:
            best, time, begun = found, took, (one, inside)
    candidate, survey = begun
    for name in survey.crooked:
        cut = _cut(candidate, name, kernel)
        if cut is not None:
            one, took = _best(*cut, kernel, facts, time)
            if took < time:
                best, time = one, took
    copies = len(best.nest.kernels) - len(candidate.nest.kernels)
    if copies < 0:
        return best  # nothing is left of a kernel whose loops run no iteration
    best = shared(best, kernel + copies, lambda nest, number: (_judged(nest, number, facts), _judged(nest, number, facts, SEVERAL)))
    for copy in reversed(range(kernel, kernel + copies)):
        best = tiled(best, copy, facts)
    return best


def _chooses_by_copy(made: Candidate, pieces: Sequence[Call]) -> bool:
    """Whether what other calls cut loops in pieces for is decided in a candidate as well: each iteration of these is a copy of its own."""
    copied = {name for call in made.calls if call.word == "unroll" for name in call.arguments}
    return all(call.arguments[0] in copied for call in pieces if call.word == "partition")


def _may_be_copies(survey: Survey, pieces: Sequence[Call]) -> bool:
    """Whether what calls cut loops in pieces for may be decided by copies: the loops are no longer than tiles have copies."""
    cut = {call.arguments[0] for call in pieces if call.word == "partition"}
    return all((survey.length(name) or inf) <= COPIES[-1] for name in cut if name in survey.loops)


def _cut(candidate: Candidate, name: str, kernel: int) -> tuple[Candidate, Survey] | None:
    """The candidate with a loop in pieces between whose ends its iterations may be lanes, and its survey; None where that cannot be: a
    border that is reflected is an absolute value first, then a minimum."""
    for _ in range(MOST_CUT):
        try:
            candidate = candidate.then("partition", name, points_of(candidate.nest, name, kernel) or None)
        except ScheduleError:
            return None
        inside = Survey(candidate.nest, kernel)
        if name not in inside.loops:
            return None
        if name not in inside.crooked:
            return candidate, inside
    return None


def _best(candidate: Candidate, survey: Survey, kernel: int, facts: Facts, most: float) -> tuple[Candidate, float]:
    """The candidate by the best tile, and its time, where tiles may take less than `most`; kernels that copy operands stand before it."""
    best, time = candidate, inf
    longer = {name: LONGER * size for name, size in survey.sizes.items()}
    near = replace(facts, caches=(FAR,) * len(facts.caches)) if longer else facts
    left, behind = choices(survey, facts, CLOSE * most), dict[object, float]()
    for _ in range(MOST_MADE):
        one = choice = None
        while left and one is None:
            left.sort(key=lambda choice: choice.time * behind.get(_alike(choice), 1.0))
            choice = left.pop(0)
            if choice.time * behind.get(_alike(choice), 1.0) > CLOSE * min(time, most):
                return best, time
            with suppress(ScheduleError):
                one = tiled_by(candidate, survey, choice.tile, kernel)
        if one is None or choice is None:
            break
        copies = len(one.nest.kernels) - len(candidate.nest.kernels)
        if copies < 0:
            return one, 0.0  # nothing is left of an empty kernel
        whole = True
        if survey.small:
            took = _judged(one.nest, kernel + copies, facts)
        else:
            one, took, whole = bordered(one, kernel + copies, lambda nest, number: _judged(nest, number, near, sizes=longer))
            took = _judged(one.nest, kernel + copies, facts) if longer else took
        took += sum(copying(survey, packed) for packed in choice.tile.packed if packed.loop is None)
        if took < time:
            best, time = one, took
        # A tile of fewer copies may have its borders cut off; for open sizes there is less time to see.
        if took <= choice.time * SURE and (whole or longer):
            break
        behind[_alike(choice)] = min(took / choice.time, behind.get(_alike(choice), inf))
    return best, time


def _alike(choice: Choice) -> object:
    """Equal for tiles whose nests take about as much beyond their sketches: copies of the same operands; else borders and remainders, of
    one skeleton."""
    return choice.skeleton.packed or choice.skeleton


def _judged(nest: LoopNest, kernel: int, facts: Facts, threads: int = 1, sizes: Mapping[str, int] | None = None) -> float:
    return float(Model(summary_of(alone(nest, kernel), sizes), facts).times(None, threads)[0])
