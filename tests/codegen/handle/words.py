"""Random words on random schedules, for the law: every one is refused and changes nothing, or gives a nest that computes the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tensorexpr.codegen.handle import Schedule, StageHandle
from tensorexpr.codegen.nest.walks import elements_read
from tensorexpr.codegen.rewrites.intrinsics import known_intrinsics
from tensorexpr.codegen.rewrites.paths import walk_nest
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Access

Word = Callable[[Schedule, StageHandle, random.Random], object]


def _read(handle: StageHandle) -> list[Access]:
    """The elements that the loops of a definition read."""
    nest = handle._schedule.form.nest
    own = set(handle._schedule.loops_of(handle.name))
    blocks = [(s,) for _, s in walk_nest(nest) if getattr(s, "index", None) in own]
    return [a for block in blocks[:1] for a in elements_read(block)]


def _any(items: Sequence[str], rng: random.Random) -> str:
    return rng.choice(items) if items else "none"


def split(s: Schedule, handle: StageHandle, rng: random.Random) -> None:
    handle.split(_any(handle.loops, rng), rng.randint(1, 5), rng.choice(("peel", "peel", "shift", "guard", "stride")))


def tile(s: Schedule, handle: StageHandle, rng: random.Random) -> None:
    handle.tile(_any(handle.loops, rng), _any(handle.loops, rng), rng.randint(1, 4), rng.randint(1, 4), rng.choice(("peel", "shift")))


def reorder(s: Schedule, handle: StageHandle, rng: random.Random) -> None:
    handle.reorder(*rng.sample(handle.loops, rng.randint(min(2, len(handle.loops)), len(handle.loops))))


def skew(s: Schedule, handle: StageHandle, rng: random.Random) -> None:
    handle.skew(_any(handle.loops, rng), _any(handle.loops, rng), rng.choice((-1, 1, 1, 2)))


def fuse(s: Schedule, handle: StageHandle, rng: random.Random) -> None:
    at = rng.randrange(max(1, len(handle.loops) - 1))
    handle.fuse(*(handle.loops[at : at + 2] if len(handle.loops) > 1 else ("none", "none")))


def compute_at(s: Schedule, handle: StageHandle, rng: random.Random) -> None:
    consumer = rng.choice(s.stages)
    handle.compute_at(consumer, _any(s[consumer].loops, rng))


def cache(s: Schedule, handle: StageHandle, rng: random.Random) -> None:
    found = _read(handle)
    if found:
        access = rng.choice(found)
        handle.cache(access.tensor, _any(handle.loops, rng), rng.sample(range(len(access.indices)), len(access.indices)))


def stage(s: Schedule, handle: StageHandle, rng: random.Random) -> None:
    found = _read(handle)
    if found:
        access = rng.choice(found)
        order = rng.sample(range(len(access.indices)), len(access.indices))
        handle.stage(access.tensor, [(axis, rng.randint(1, 5)) if rng.random() < 0.4 else axis for axis in order])


def pipeline(s: Schedule, handle: StageHandle, rng: random.Random) -> None:
    handle.pipeline(_any(handle.loops, rng), rng.randint(2, 3))


def prefetch(s: Schedule, handle: StageHandle, rng: random.Random) -> None:
    found = _read(handle)
    if found:
        handle.prefetch(rng.choice(found).tensor, _any(handle.loops, rng), rng.randint(1, 3))


def tensorize(s: Schedule, handle: StageHandle, rng: random.Random) -> None:
    handle.tensorize(_any(handle.loops, rng), rng.choice(known_intrinsics()).name)


def to_owners(word: str) -> Word:
    def act(s: Schedule, handle: StageHandle, rng: random.Random) -> None:
        getattr(handle, word)(_any(handle.loops, rng), rng.randint(1, 4), rng.randrange(2))

    act.__name__ = word
    return act


def with_another(word: str) -> Word:
    def act(s: Schedule, handle: StageHandle, rng: random.Random) -> None:
        getattr(handle, word)(rng.choice(s.stages))

    act.__name__ = word
    return act


def of_a_loop(word: str) -> Word:
    def act(s: Schedule, handle: StageHandle, rng: random.Random) -> None:
        getattr(handle, word)(_any(handle.loops, rng))

    act.__name__ = word
    return act


def bare(word: str) -> Word:
    def act(s: Schedule, handle: StageHandle, rng: random.Random) -> None:
        getattr(handle, word)()

    act.__name__ = word
    return act


WORDS: tuple[Word, ...] = (
    split, split, split, tile, skew, reorder, reorder, fuse, compute_at, compute_at, cache, stage, pipeline, prefetch, tensorize,
    bare("inline"), bare("slide"), bare("slide"), bare("stream"),
    with_another("compute_with"), with_another("compute_with"), with_another("alongside"),
    of_a_loop("rfactor"), of_a_loop("rfactor"), of_a_loop("parallel"), of_a_loop("vectorize"), of_a_loop("vectorize"),
    of_a_loop("unroll"), of_a_loop("serial"), of_a_loop("reverse"), of_a_loop("contract"), to_owners("own"), to_owners("sort"),
)  # fmt: skip
"""The words of `s[C]`, those more often that others depend on."""


def shuffled(s: Schedule, rng: random.Random, steps: int, check: Callable[[Schedule], object], words: Sequence[Word] = WORDS) -> int:
    """Random words one after the other; gives how many were legal. `check` sees the schedule after each."""
    legal = 0
    for _ in range(steps):
        name = rng.choice(s.stages)
        before, form = str(s), s.form
        try:
            rng.choice(words)(s, s[name], rng)
        except ScheduleError:
            assert s.form is form and str(s) == before
            continue
        if s.form is not form:
            legal += 1
            check(s)
    return legal
