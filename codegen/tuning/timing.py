"""A bench: schedules of one program built, checked against the model's results, and run side by side.

Every candidate runs on the same arrays, of two kinds where they are made up: of both signs, and positive (so that logarithms and
roots have values). What it gives is compared with what the model's schedule gave, bit for bit (any NaN equals any); with leave to
reassociate, within the rounding that another order of sums explains. A candidate whose sums are seen to be in another order is
rejected before it is built, one with the same calls as another takes over its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from tensorexpr.codegen.compile import build
from tensorexpr.codegen.compiled.arguments import signature_of
from tensorexpr.codegen.compiled.function import CompiledFunction
from tensorexpr.codegen.cuda.launch.device import current_device
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.schedule.analysis.work import total_work
from tensorexpr.codegen.schedule.decisions import Choices, Decisions
from tensorexpr.codegen.target import Target
from tensorexpr.codegen.tuning.order import adds_up_otherwise
from tensorexpr.codegen.tuning.search import FAILED, OK, OTHER_BITS, SAME, SLOW, Trial, median
from tensorexpr.dtypes import dtype
from tensorexpr.errors import InternalError, OutOfBoundsError, TensorExprError
from tensorexpr.interpret import extent_value
from tensorexpr.ir import Program
from tensorexpr.records import record, replace

TRIAL_SAMPLES = 9
TRIAL_SECONDS = 0.05
"""Seconds, and samples, after which a trial knows enough."""
BRIEF, FEW = 1e-4, 100
"""Seconds of a call below which a candidate is not slow by one call alone, and calls that tell then."""
UNITS, MOST = 4096, 1 / 64
"""By how many units in the last place of the largest element, and at most by what part of it, results may differ where sums are
in another order."""
_UNWRITTEN = 0xA5
"""What results are filled with beforehand, so that an element that is not written differs."""
LINE = 64
"""Bytes of a cache line."""


@record
class Job:
    """What is measured: a simplified program for a target, on arrays (made up from a seed where there are none) at these sizes."""

    program: Program
    target: Target
    sizes: Mapping[str, int]
    arrays: tuple[np.ndarray, ...] | None = None
    reassociate: bool = False
    seed: int = 0


class Timing:
    """The bench of a job (see `search.Bench`). `clock` gives seconds, `make` a function of arrays for a schedule."""

    def __init__(
        self, job: Job, clock: Callable[[], float] = time.perf_counter, make: Callable[[Planned], Callable[..., Any]] | None = None
    ) -> None:
        self.job = job
        self._clock = clock
        self._make = build_function if make is None else make
        self._analytic: Planned | None = None
        self._functions: dict[Choices, Callable[..., Any]] = {}
        self._by_calls: dict[str, Trial] = {}
        self._wanted: list[tuple[np.ndarray, ...]] = []
        made = [job.arrays] if job.arrays is not None else [made_up(job.program, job.sizes, job.seed, low) for low in (0.25, -1.0)]
        self._inputs = [tuple(map(self._placed, arrays)) for arrays in made]
        self._out = self._unwritten()

    # -------------------------------------------------------------------------------------------------------- bench

    def trial(self, choices: Choices, limit: float) -> Trial:
        """See `search.Bench`. The first trial has to be the model's own choices."""
        decisions = Decisions(choices, noting=True)
        try:
            schedule = autoschedule(self.job.program, self.job.target, decisions)
        except TensorExprError as error:
            return Trial(choices, FAILED, reason=_reason(error))
        trial = Trial(choices, OK, decisions=decisions.made, shares=_shares(schedule), schedule=schedule.as_python())
        known = self._by_calls.get(trial.schedule)
        if known is not None:
            return replace(trial, outcome=SAME if known.outcome == OK else known.outcome, seconds=known.seconds, reason=known.reason)
        if self._analytic is None:
            self._analytic = schedule
        elif not self.job.reassociate and adds_up_otherwise(self._analytic, schedule):
            trial = replace(trial, outcome=OTHER_BITS, reason="sums in another order")
        if trial.outcome == OK:
            trial = self._measured(trial, schedule, limit)
        self._by_calls[trial.schedule] = trial
        return trial

    def rounds(self, rivals: Sequence[Choices], number: int) -> list[tuple[float, ...]]:
        """See `search.Bench`."""
        for choices in rivals:
            if choices not in self._functions:  # of a bench before this one
                self._functions[choices] = self._make(autoschedule(self.job.program, self.job.target, Decisions(choices)))
        functions = [self._functions[choices] for choices in rivals]
        repeats = [self._repeats(self._once(f, 1)) for f in functions]
        found = []
        for turn in range(number):
            order = [(turn + k) % len(functions) for k in range(len(functions))]
            times = {k: self._once(functions[k], repeats[k]) for k in order}
            found.append(tuple(times[k] for k in range(len(functions))))
        return found

    # ------------------------------------------------------------------------------------------------------ one trial

    def _measured(self, trial: Trial, schedule: Planned, limit: float) -> Trial:
        try:
            function = self._make(schedule)
            different = self._check(function)
        except (OutOfBoundsError, InternalError):
            raise
        except TensorExprError as error:
            return replace(trial, outcome=FAILED, reason=_reason(error))
        if different is not None:
            return replace(trial, outcome=OTHER_BITS, reason=different)
        self._functions[trial.choices] = function
        first = self._once(function, 1)
        if limit < first < BRIEF:  # a call by itself is mostly the clock and what the caches do not have yet
            first = self._once(function, FEW)
        if first > limit:
            return replace(trial, outcome=SLOW, seconds=first)
        repeats, began, samples = self._repeats(first), self._clock(), [first]
        while len(samples) < TRIAL_SAMPLES and (len(samples) < 3 or self._clock() - began < TRIAL_SECONDS):
            samples.append(self._once(function, repeats))
        return replace(trial, seconds=median(sorted(samples)[: max(3, len(samples) // 2)]))

    def _check(self, function: Callable[..., Any]) -> str | None:
        """What differs from the model's results, which the first function gives; None where nothing does."""
        for number, inputs in enumerate(self._inputs):
            self._out = self._unwritten()
            function(*inputs, out=self._out)
            results = tuple(map(self._read, self._out))
            if number == len(self._wanted):
                self._wanted.append(results)
                continue
            for name, found, wanted in zip(self.job.program.outputs, results, self._wanted[number], strict=True):
                if not _equal(found, wanted) and not (self.job.reassociate and _close(found, wanted)):
                    return f"{name} differs"
        return None

    def _unwritten(self) -> tuple[Any, ...]:
        """Arrays for the results, with something in them that no result is."""
        types = self.job.program.types
        return tuple(self._placed(_aligned(_shape(types[n].shape, self.job.sizes), types[n].dtype.numpy)) for n in self.job.program.outputs)

    def _once(self, function: Callable[..., Any], repeats: int) -> float:
        inputs, out = self._inputs[0], self._out
        self._wait()
        began = self._clock()
        for _ in range(repeats):
            function(*inputs, out=out)
        self._wait()
        return (self._clock() - began) / repeats

    def _repeats(self, seconds: float) -> int:
        return max(1, min(1000, int(self.sample / max(seconds, 1e-9))))

    # --------------------------------------------------------------------------------------------------- the machine

    sample = 1e-4
    """Seconds that one sample lasts at least: calls shorter than that are timed several at once."""

    def _placed(self, array: np.ndarray) -> Any:
        """An array where functions take it."""
        return array

    def _read(self, array: Any) -> np.ndarray:
        """The contents of a result."""
        return np.array(array)

    def _wait(self) -> None:
        """Returns when all calls have ended."""


class GpuTiming(Timing):
    """The bench of a job on the GPU: calls do not wait for kernels, so a sample is longer and ends when the device has caught up."""

    sample = 1e-3

    def __init__(self, job: Job) -> None:
        self._device = current_device()
        self._last = self._device.upload(np.zeros(1, np.uint8))
        super().__init__(job)

    def _placed(self, array: np.ndarray) -> Any:
        return self._device.upload(array)

    def _read(self, array: Any) -> np.ndarray:
        return self._device.read(array)

    def _wait(self) -> None:
        self._device.read(self._last)


def build_function(schedule: Planned) -> CompiledFunction:
    """A schedule as a function of arrays that returns a tuple."""
    return build(Planned(schedule.state, single=False), target=schedule.target.name)


def _shares(schedule: Planned) -> tuple[tuple[str, float], ...]:
    """What part of the work each definition does."""
    works = {stage.name: float(total_work(stage.parts)) for stage in schedule.state.stages}
    whole = sum(works.values()) or 1.0
    return tuple((name, work / whole) for name, work in works.items())


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0]}"


# -------------------------------------------------------------------------------------------------------- values


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of `_UNWRITTEN` that begins at a cache line, as results do that calls make themselves: only there whole lines are written
    past the caches."""
    room = np.full(prod(shape) * dtype.itemsize + LINE, _UNWRITTEN, np.uint8)
    start = -room.ctypes.data % LINE
    return room[start : start + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


def _equal(found: np.ndarray, wanted: np.ndarray) -> bool:
    a, b = found.reshape(-1), wanted.reshape(-1)
    unsigned = np.dtype(f"u{found.dtype.itemsize}")
    if np.array_equal(a.view(unsigned), b.view(unsigned)):
        return True
    if not dtype(found.dtype).is_float:
        return False
    nan = np.isnan(a)
    return bool(np.array_equal(nan, np.isnan(b)) and np.array_equal(a.view(unsigned)[~nan], b.view(unsigned)[~nan]))


def _close(found: np.ndarray, wanted: np.ndarray) -> bool:
    if not dtype(found.dtype).is_float or not found.size:
        return False
    a, b = found.astype(np.float64).reshape(-1), wanted.astype(np.float64).reshape(-1)
    kept = np.isfinite(b)
    if not np.array_equal(a[~kept], b[~kept], equal_nan=True):
        return False
    largest = float(np.abs(b[kept]).max(initial=0.0))
    return bool((np.abs(a[kept] - b[kept]) <= min(UNITS * _epsilon(found.dtype), MOST) * largest).all())


def _epsilon(type_: np.dtype) -> float:
    """The distance from 1 to the next number."""
    epsilon = 1.0
    while type_.type(1 + epsilon / 2) != type_.type(1):
        epsilon /= 2
    return epsilon


def _shape(shape: Sequence[Any], sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(extent_value(extent, dict(sizes)) for extent in shape)


def made_up(program: Program, sizes: Mapping[str, int], seed: int, low: float) -> tuple[np.ndarray, ...]:
    """Arrays for the inputs: floats from `low` to 1.75, integers and indices small enough for every tensor that they choose from."""
    rng = np.random.default_rng(seed)
    most = least_indexed(program, sizes)
    arrays = []
    for parameter in signature_of(program, False).inputs:
        shape = _shape(parameter.shape, sizes)
        if parameter.dtype.is_bool:
            values: Any = rng.integers(0, 2, shape)
        elif parameter.dtype.is_float:
            values = rng.random(shape, np.float32) * (1.75 - low) + low
        else:
            values = rng.integers(0, most, shape)
        arrays.append(np.ascontiguousarray(np.asarray(values).astype(parameter.dtype.numpy)).reshape(shape))  # it gives none without axes
    return tuple(arrays)


def least_indexed(program: Program, sizes: Mapping[str, int]) -> int:
    """Indices below this one are in every tensor: its least extent beside 1; at most 127, which every integer type holds."""
    extents = [n for type_ in program.types.values() for n in _shape(type_.shape, sizes) if n > 1]
    return max(1, min([127, *extents]))
