"""A program tuned within a budget: the search on a bench in another process, and what it found put on record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tensorexpr.codegen.compile import machine_of
from tensorexpr.codegen.cuda.launch.device import current_device
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.schedule.decisions import Choices, Decisions
from tensorexpr.codegen.tuning import records
from tensorexpr.codegen.tuning.lookup import calls_digest, program_digest
from tensorexpr.codegen.tuning.operation import operation_of
from tensorexpr.codegen.tuning.records import Record
from tensorexpr.codegen.tuning.remote import Remote
from tensorexpr.codegen.tuning.search import OK, Bench, Found, Progress, search
from tensorexpr.codegen.tuning.timing import Job
from tensorexpr.errors import ArgumentError
from tensorexpr.ir import Program
from tensorexpr.markup import amount, listed, listing
from tensorexpr.records import field, record
from tensorexpr.text import print_type


class ClosableBench(Bench, Protocol):
    """A bench that holds something."""

    def close(self) -> None: ...


@record(slots=False)
class TuningResult:
    """What tuning found: `schedule`, made by `choices`, takes `seconds` where the model's own takes `baseline_seconds`.

    `tried` schedules were looked at, of which `outcomes` counts what became of them; `path` is the file that keeps the `record`,
    None where none does. `print(result)` is a summary and the calls that make the schedule, `te.build(result.schedule)` the function.
    """

    schedule: Planned
    choices: Choices
    seconds: float
    baseline_seconds: float
    tried: int
    outcomes: Mapping[str, int]
    elapsed: float
    interrupted: bool
    record: Record = field(repr=False)
    path: Path | None = None

    @property
    def speedup(self) -> float:
        """How many times faster than the model's own schedule."""
        return self.baseline_seconds / self.seconds

    @property
    def improved(self) -> bool:
        """Whether it is another schedule than the model's."""
        return bool(self.choices)

    def __repr__(self) -> str:
        found = f"{self.speedup:.2f}x of the model's schedule" if self.improved else "none is faster than the model's schedule"
        return f"<tuning of {listed(self.schedule.program.outputs)}: {amount(self.tried, 'schedule')} tried, {found}>"

    def _repr_html_(self) -> str:
        return listing(str(self))

    def __str__(self) -> str:
        name = ", ".join(self.schedule.program.outputs)
        counted = ", ".join(f"{n} {outcome}" for outcome, n in self.outcomes.items())
        lines = [f"{name}: {self.tried} schedules in {self.elapsed:.1f} s{' (interrupted)' if self.interrupted else ''}: {counted}"]
        if self.improved:
            lines.append(
                f"{self.speedup:.2f}x of the model's schedule: {duration(self.baseline_seconds)} before, {duration(self.seconds)} now"
            )
            lines += [f"  {decision}: {word}" for decision, word in self.choices.items()]
        else:
            lines.append(f"none is faster than the model's own, {duration(self.baseline_seconds)}")
        lines.append("not kept in a file" if self.path is None else f"kept in {self.path}")
        return "\n".join([*(f"# {line}" for line in lines), self.schedule.as_python().rstrip("\n")])


def duration(seconds: float) -> str:
    """A time for people."""
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e6:.3g} us"


def tune_program(
    program: Program,
    budget: float,
    *,
    target: str = "cpu",
    precision: str = "float32",
    sizes: Mapping[str, int] | None = None,
    arrays: Sequence[np.ndarray] | None = None,
    reassociate: bool = False,
    output: Path | None = None,
    seed: int = 0,
    tell: Callable[[Progress], None] | None = None,
    bench: Callable[[Job], ClosableBench] = Remote,
) -> TuningResult:
    """Tunes a simplified program on this machine for `budget` seconds and keeps the result in `output`, or where records are kept.

    Raises `ArgumentError` for sizes that are missing, arrays that do not fit, and a file that cannot be written, `TargetError` for
    a target that is not there.
    """
    if target == "cuda":
        current_device()
    known = dict(sizes or {})
    missing = [name for name in program.sizes if name not in known]
    if missing:
        raise ArgumentError(
            f"tune: expected a number for each size to measure with, got none for {', '.join(missing)}",
            hint=f"sizes={{{missing[0]!r}: 1000}}",
        )
    path = output if output is not None else next(iter(records.places()), None)
    if path is not None:
        records.write(path, ())  # a file that cannot be written is told before the time is spent
    operation, machine = operation_of(program), machine_of(target, precision)
    earlier = records.find(operation.digest, machine)
    first = [] if earlier is None or earlier[0].reassociated > reassociate else [earlier[0].choices]
    job = Job(program, machine, known, None if arrays is None else tuple(np.ascontiguousarray(a) for a in arrays), reassociate, seed)
    with closing(bench(job)) as opened:
        found = search(opened, budget, first=[c for c in first if c], tell=tell, seed=seed)
    schedule = autoschedule(program, machine, Decisions(found.best.choices))
    record = Record(
        operation=operation.digest,
        machine=records.machine_facts(machine),
        target=machine.name,
        version=version("tensorexpr"),
        choices=found.best.choices,
        schedule=tuple(schedule.as_python().splitlines()),
        program=program_digest(program),
        shapes=tuple(f"{i.name}: {print_type(i.type)}" for i in program.inputs),
        baseline=calls_digest(autoschedule(program, machine)),
        seconds=found.seconds,
        baseline_seconds=found.baseline_seconds,
        reassociated=reassociate and found.improved,
        tried=len(found.trials),
        date=datetime.now(UTC).isoformat(timespec="microseconds"),  # of two records the younger is kept: sessions may be short
    )
    if path is not None:
        records.write(path, (record,))
    return TuningResult(schedule, **_summary(found), elapsed=found.elapsed, record=record, path=path)


def _summary(found: Found) -> dict[str, Any]:
    outcomes: dict[str, int] = {OK: 0}
    for trial in found.trials:
        outcomes[trial.outcome] = outcomes.get(trial.outcome, 0) + 1
    return {
        "choices": found.best.choices,
        "seconds": found.seconds,
        "baseline_seconds": found.baseline_seconds,
        "tried": len(found.trials),
        "outcomes": outcomes,
        "interrupted": found.interrupted,
    }
