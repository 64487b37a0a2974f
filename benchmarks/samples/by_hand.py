"""Schedules as a person might write them: three to five legal primitives, drawn at random, on what does most of the work.

A draw is made of moves, each a thought of one to three primitives: lanes (split, reorder, vectorize), rows in registers (split, reorder,
unroll), a block for a cache, another order of loops, all cores, a producer in a loop of its consumer or written there, a sum in parts, an
operand in another layout. What is refused changes nothing, and another move is drawn. The space holds what the planners of the default
schedule do not think of: a measure of them must not be taken in their own words.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tensorexpr.codegen.handle import Schedule
from tensorexpr.codegen.lowering.context.arithmetic import constant, sub
from tensorexpr.codegen.rewrites.paths import loop_at, loop_paths
from tensorexpr.codegen.schedule.analysis.state import accesses_of
from tensorexpr.errors import ScheduleError

LANES, ROWS, BLOCKS = (4, 8, 16, 32, 64), (2, 4, 6, 8), (16, 32, 64, 128, 256, 512)
"""Extents that loops are split by: lanes of vectors and few vectors side by side, rows of a tile of registers, blocks for caches."""
LEAST, MOST = 3, 5
"""Primitives of a schedule."""
OPEN = 100
"""Iterations that a loop of an open extent counts as."""
ATTEMPTS = 40
"""Moves that are drawn before a schedule is left as it is."""


def by_hand(start: Schedule, rng: random.Random) -> Schedule:
    """A copy of a schedule with three to five primitives more, as far as so many are legal."""
    s = start.copy()
    before, wanted = len(s.calls), rng.randint(LEAST, MOST)
    for _ in range(ATTEMPTS):
        if len(s.calls) - before >= wanted:
            break
        move, name = rng.choice(MOVES), _stage(s, rng)
        if name is None:
            break
        tried = s.copy()
        try:
            move(tried, name, rng)
        except ScheduleError:
            continue
        s = tried
    return s


def _stage(s: Schedule, rng: random.Random) -> str | None:
    """A definition that has loops, those that do much of the work more often."""
    names = [name for name in s.stages if s[name].loops]
    return rng.choices(names, [_iterations(s, name) for name in names])[0] if names else None


def _iterations(s: Schedule, name: str) -> float:
    """About how often the innermost loop of a definition runs."""
    total = 1.0
    for loop in s.loops_of(name):
        first = loop_at(s.form.nest, loop_paths(s.form.nest, loop)[0])
        total *= max(1, constant(sub(first.stop, first.start)) or OPEN)
    return total


def _lanes(s: Schedule, name: str, rng: random.Random) -> None:
    _inside(s, name, rng, LANES, 0)
    s[name].vectorize(s[name].loops[-1])


def _rows(s: Schedule, name: str, rng: random.Random) -> None:
    """A few iterations copied out, inside all loops but the innermost or the two innermost ones."""
    place = rng.choice((0, 1, 1, 2))
    inner = _inside(s, name, rng, ROWS, place)
    s[name].unroll(inner)


def _block(s: Schedule, name: str, rng: random.Random) -> None:
    _inside(s, name, rng, BLOCKS, rng.randint(0, 3))


def _inside(s: Schedule, name: str, rng: random.Random, factors: tuple[int, ...], place: int) -> str:
    """Splits a loop and puts the inner one inside of all others but `place`."""
    handle = s[name]
    _, inner = handle.split(rng.choice(handle.loops), rng.choice(factors), rng.choice(("peel", "peel", "shift")))
    rest = [loop for loop in handle.loops if loop != inner]
    at = len(rest) - min(place, len(rest))
    order = (*rest[:at], inner, *rest[at:])
    if order != handle.loops:
        handle.reorder(*order)
    return inner


def _order(s: Schedule, name: str, rng: random.Random) -> None:
    loops = list(s[name].loops)
    moved = loops.pop(rng.randrange(len(loops)))
    loops.insert(rng.randint(0, len(loops)), moved)
    s[name].reorder(*loops)


def _cores(s: Schedule, name: str, rng: random.Random) -> None:
    del rng
    s[name].parallel(s[name].loops[0])


def _together(s: Schedule, name: str, rng: random.Random) -> None:
    consumer = rng.choice(s.stages)
    s[name].compute_at(consumer, rng.choice(s[consumer].loops or ("none",)))


def _beside(s: Schedule, name: str, rng: random.Random) -> None:
    s[name].compute_with(rng.choice(s.stages))


def _written(s: Schedule, name: str, rng: random.Random) -> None:
    s.inline(rng.choice([other for other in s.stages if other != name] or [name]))


def _parts(s: Schedule, name: str, rng: random.Random) -> None:
    s[name].rfactor(rng.choice(s[name].loops))


def _laid_out(s: Schedule, name: str, rng: random.Random) -> None:
    access = rng.choice(accesses_of(s.program, name) or (None,))
    if access is None or len(access.indices) < 2:
        raise ScheduleError(f"expected an operand with two axes, {name} reads none")
    s[name].stage(access.tensor, tuple(rng.sample(range(len(access.indices)), len(access.indices))))


MOVES: tuple[Callable[[Schedule, str, random.Random], None], ...] = (
    _lanes, _lanes, _lanes, _rows, _rows, _block, _order, _order, _cores, _together, _beside, _written, _parts, _laid_out,
)  # fmt: skip
