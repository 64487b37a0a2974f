"""Schedules at random: primitives that are legal or refused, and other answers to what the default schedule decides."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tensorexpr.codegen.nest import GRID, IN_WARP, THREADS
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.schedule.analysis.state import accesses_of
from tensorexpr.codegen.schedule.decisions import Choices, Decision, Decisions
from tensorexpr.codegen.target import Target
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Program, Scan

WORDS = (
    "split",
    "split",
    "reorder",
    "reorder",
    "fuse",
    "parallel",
    "vectorize",
    "vectorize",
    "unroll",
    "inline",
    "rfactor",
    "own",
    "sort",
    "part",
    "bind",
    "sweep",
    "stage",
    "cache",
    "recompute",
    "share",
    "clone",
    "compute_at",
    "compute_at",
    "skew",
)


def shuffled(s: Planned, rng: random.Random, steps: int = 10, words: Sequence[str] = WORDS) -> Planned:
    """The schedule after random primitives of `words`; illegal ones are refused and change nothing."""
    for _ in range(steps):
        name = rng.choice(s.stages) if s.stages else None
        if name is None or not s[name].loops:
            continue
        handle, loops, before = s[name], s[name].loops, s.copy()
        try:
            match rng.choice(words):
                case "split":
                    handle.split(rng.choice(loops), rng.randint(1, 4), rng.choice(("peel", "shift", "guard", "stride")))
                case "reorder":
                    handle.reorder(*rng.sample(loops, rng.randint(1, len(loops))))
                case "fuse":
                    at = rng.randrange(len(loops))
                    handle.fuse(loops[at], loops[min(at + 1, len(loops) - 1)])
                case "parallel":
                    handle.parallel(loops[0])
                case "inline" | "recompute" | "share" | "sort" as word:
                    getattr(handle, word)()
                case "stage":
                    access = rng.choice(accesses_of(s.state.program, name) or (None,))
                    if access is not None:
                        order = rng.sample(range(len(access.indices)), len(access.indices))
                        handle.stage(access.tensor, tuple((k, rng.randint(1, 5)) if rng.random() < 0.4 else k for k in order))
                case "cache":
                    access = rng.choice(accesses_of(s.state.program, name) or (None,))
                    if access is not None:
                        order = tuple(rng.sample(range(len(access.indices)), len(access.indices)))
                        handle.cache(access.tensor, rng.choice(loops), order)
                case "rfactor":
                    handle.rfactor(rng.choice(loops), rng.choice((1, 1, 2, 3)), rng.random() < 0.3)
                case "part":
                    handle.part(rng.choice(loops), *(rng.randint(2, 5) for _ in range(rng.randint(1, 3))))
                case "sweep":
                    s.sweep(name, *rng.sample(s.stages, min(1, len(s.stages))))
                case "bind":
                    handle.bind(rng.choice(loops), rng.choice((*GRID, *THREADS, IN_WARP, IN_WARP)))
                case "clone":
                    handle.clone(*rng.sample(s.stages, rng.randint(1, min(3, len(s.stages)))))
                case "skew":
                    scans = [d.names[0] for d in s.state.program.definitions if isinstance(d, Scan)]
                    s.skew(rng.choice(scans or ["none"]), rng.randint(1, 4), rng.randint(1, 4))
                case "compute_at":
                    consumer = rng.choice(s.stages)
                    handle.compute_at(consumer, rng.choice(s[consumer].loops or ("none",)))
                case word:
                    getattr(handle, word)(rng.choice(loops))
        except ScheduleError:
            assert s == before
    return s


def decided(program: Program, choices: Choices, target: Target) -> tuple[Planned, tuple[Decision, ...]]:
    decisions = Decisions(choices, noting=True)
    return autoschedule(program, target, decisions), decisions.made


def wandered(program: Program, rng: random.Random, target: Target, steps: int = 4) -> Choices:
    """Choices after random other answers, each to a decision that came up with those before."""
    choices = Choices()
    for _ in range(steps):
        _, made = decided(program, choices, target)
        if made:
            decision = rng.choice(made)
            choices = choices.with_choice(decision.name, rng.choice(decision.options))
    return choices
