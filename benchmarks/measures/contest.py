"""Schedules of one program side by side: built, compared with what the default schedule gives, timed a little and at last in turns."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorexpr.benchmarks.harness import Effort, arrays_of, difference, interleaved
from tensorexpr.benchmarks.samples import growth, library
from tensorexpr.benchmarks.samples.sample import Sample
from tensorexpr.codegen.compile import build_schedule, fold_constants
from tensorexpr.codegen.cost import cost_of
from tensorexpr.codegen.handle import Schedule
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.stages import default_schedule
from tensorexpr.codegen.target import host_target
from tensorexpr.errors import OutOfBoundsError, TensorExprError
from tensorexpr.ir import Program
from tensorexpr.language import program_of
from tensorexpr.simplify import simplify

CLOSE = 1e-3
"""By how much results may differ from those of the default, relative to the largest element: sums may be in another order."""
PATIENCE = 3.0
"""A schedule that takes so many times as long as the best one is called once."""
BYTES, OPERATIONS = 1 << 20, 20_000_000
"""How large samples of the library are made: some milliseconds of a plain nest."""
POINTS, LEAST_OPERATIONS = 1_000_000, 500_000
"""What random programs may visit, and how many operations they have at least: a microsecond says nothing of loops."""
LIBRARY, RANDOM = "library: ", "random: "


@dataclass
class Task:
    """A program as it is compiled, and arrays for its inputs."""

    program: Program
    arrays: list[np.ndarray]


@dataclass
class Entrant:
    """A schedule in the contest: `kind` says where it comes from; `seconds` of the best of few calls."""

    kind: str
    schedule: Schedule
    call: Callable[[], Any] = field(repr=False)
    seconds: float


class Refused(Exception):
    """Why a schedule takes no part."""


class Differs(Exception):
    """A schedule gives other values than the default: a defect, whatever it takes."""


def rows(what: str, programs: int) -> list[str]:
    """The library, forward and gradient, and so many random programs."""
    samples = library.library(what)
    names = [
        f"{LIBRARY}{sample.name} | {direction}"
        for sample in samples
        for direction in ("forward", "gradient")
        if sample.differentiable or direction == "forward"
    ]
    return [*names, *(f"{RANDOM}{number}" for number in range(programs))]


def task_of(key: str, what: str) -> Task | None:
    """The program of a row; None where it cannot be made large."""
    if key.startswith(RANDOM):
        return _random_task(int(key.split(" | ")[0].removeprefix(RANDOM)), what)
    name, direction = key.split(" | ")[:2]
    found = next(sample for sample in library.library(what) if LIBRARY + sample.name == name)
    sample = growth.grown(found, BYTES, OPERATIONS)
    return None if sample is None else task_of_sample(sample, direction == "gradient")


def contest_of(key: str, what: str) -> Contest | None:
    """The contest of a row; None where its program cannot be made large, or its data leads a read out of a tensor."""
    task = task_of(key, what)
    try:
        return None if task is None else Contest(task)
    except OutOfBoundsError:
        return None


def task_of_sample(sample: Sample, gradient: bool) -> Task:
    """The task of a sample in a direction."""
    traced, arrays = sample.traced(), sample.draw()
    if gradient:
        rng = np.random.default_rng(1)
        arrays += [rng.standard_normal(t.shape, np.float32).astype(t.dtype.numpy) for t in traced.outputs if t.dtype.is_float]
        traced = traced.with_gradient()
    return Task(fold_constants(program_of(traced.outputs, traced.inputs)), arrays)


def _random_task(number: int, what: str) -> Task | None:
    """The first random program of a hundred, of a series by number, that has enough to do."""
    programs = library.from_checkout("tests.random_programs.programs", what)
    writer = library.from_checkout("tests.random_programs.writer", what)
    samples = library.from_checkout("tests.random_programs.sample", what)
    options = writer.Options(points=POINTS, floats=True, dtypes=("float32",), open_sizes=0.0)
    for attempt in range(100):
        seed = 1000 * number + attempt
        sample = programs.random_sample(seed, options)
        traced = sample.traced()
        operations = cost_of(simplify(traced.program)).operations
        if not isinstance(operations, int) or operations < LEAST_OPERATIONS:
            continue
        arrays = samples.arrays_for(traced.program, traced.below, {}, seed, exact=False)
        return Task(fold_constants(traced.program), [arrays[item.name] for item in traced.program.inputs])
    return None


class Contest:
    """The schedules of a task that were tried. The first is the default, with whose results all others are compared."""

    def __init__(self, task: Task) -> None:
        self.task = task
        found = default_schedule(task.program, host_target())
        self.default = Schedule.of_planned(found, written=task.program) if isinstance(found, Planned) else found
        self.written = Schedule.plain(simplify(task.program, inline=False))
        self.entrants: list[Entrant] = []
        self.wrong: list[str] = []
        self.seen: set[str] = set()
        self.results: list[np.ndarray] | None = None
        self.enter("default", self.default)
        self.try_("plain", self.written)

    @property
    def best(self) -> Entrant:
        """The fastest so far."""
        return min(self.entrants, key=lambda entrant: entrant.seconds)

    def try_(self, kind: str, schedule: Schedule | Planned) -> Entrant | None:
        """Enters a schedule; None where it is refused, or gives other values, which is noted."""
        try:
            return self.enter(kind, schedule)
        except (Refused, TensorExprError):
            return None
        except Differs:
            self.wrong.append(schedule.as_python())
            return None

    def enter(self, kind: str, schedule: Schedule | Planned) -> Entrant:
        """Builds a schedule, compares its results, and times it a little.

        Raises `Refused` for one that was there, `Differs` for other values.
        """
        schedule = Schedule.of_planned(schedule) if isinstance(schedule, Planned) else schedule.copy()
        schedule.single = False
        words = f"{schedule.program}\n{schedule.as_python()}"
        if words in self.seen:
            raise Refused
        self.seen.add(words)
        function = build_schedule(schedule)
        arrays = self.task.arrays
        found = arrays_of(function(*arrays))
        if self.results is None:
            self.results = [np.array(array) for array in found]
        elif not _alike(self.results, found):
            raise Differs
        patience = PATIENCE * self.best.seconds if self.entrants else float("inf")
        times = [_timed(lambda: function(*arrays))]
        while len(times) < 5 and times[0] <= patience and sum(times) < 0.1:
            times.append(_timed(lambda: function(*arrays)))
        self.entrants.append(Entrant(kind, schedule, lambda: function(*arrays), min(times)))
        return self.entrants[-1]

    def starts(self) -> Sequence[Schedule]:
        """What schedules by hand begin with: the program as it is written, with intermediates where they are read, and the default."""
        return (self.written, Schedule.plain(simplify(self.task.program)), self.default)

    def final(self, entrants: Sequence[Entrant], rounds: int, threads: int) -> list[float]:
        """Seconds of some of them, timed in turns."""
        calls = {str(number): entrant.call for number, entrant in enumerate(entrants)}
        effort = Effort(rounds, settle=0.002 if threads == 1 else 0.04, limit=3.0, slow=10.0)
        return [timing.median for timing in interleaved(calls, effort).values()]


def generator(key: str, seed: int) -> random.Random:
    """The random numbers of a row."""
    return random.Random(f"{seed} {key}")


def _timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _alike(expected: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> bool:
    """Whether results agree where those expected are numbers; integers, and what is no number, exactly."""
    for one, other in zip(expected, found, strict=True):
        if one.dtype.kind in "iub":
            if not np.array_equal(one, other):
                return False
            continue
        a, b = one.astype(np.float64), other.astype(np.float64)
        finite = np.isfinite(a)
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not difference([a[finite]], [b[finite]]) <= CLOSE:
            return False
    return True
