"""The stages of a program on its way to code: simplified, scheduled, lowered, checked; and the plain form of each.

The default form is made by everything that makes code fast, of a long program in pieces (`pieces`). Where some of it fails (see
`tensorexpr.fallback`), simpler forms are tried, in which less can fail: the plain schedule, every definition by itself with its loops in
order and no pass of the lowering that is there for speed, of the simplified program, then of the program as written. On a GPU the plain
schedule has a thread per point. Last comes the plain nest, which neither the simplifier nor schedules nor their lowering had a hand in; on
a GPU one thread runs it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from tensorexpr.codegen.lowering import lower
from tensorexpr.codegen.nest import Alloc, Block, For, If, LoopNest, Store
from tensorexpr.codegen.nest_proofs import Verdict, prove
from tensorexpr.codegen.nest_verify import verify_nest
from tensorexpr.codegen.pieces import nest_of_pieces, pieces_of
from tensorexpr.codegen.plain import plain_nest
from tensorexpr.codegen.schedule import Schedule
from tensorexpr.codegen.schedule import schedule as plain_schedule
from tensorexpr.codegen.schedule.auto_gpu import plan_points
from tensorexpr.codegen.target import Gpu, Target
from tensorexpr.codegen.tuning.lookup import ANALYTIC, is_tuned, scheduled, simplified
from tensorexpr.errors import InternalError, ScheduleError
from tensorexpr.fallback import Failure, first_sound
from tensorexpr.ir import Const, Expr, Program, integer
from tensorexpr.simplify import simplify
from tensorexpr.text import print_program
from tensorexpr.traversal import walk

log = logging.getLogger("tensorexpr.proofs")

PLAIN = "the plain schedule"
MOST_WRITTEN = 100_000
"""Operations of one kernel, with those of loops that are unrolled for each of their iterations: ten seconds of LLVM."""


class Stages(NamedTuple):
    """What leads to native code: the simplified program, what gives the schedule that it was lowered by (None for the plain nest), the
    loop nest with what its proof found; and why it is not the form that was wanted. Where the code is `own`, a user made the schedule."""

    program: Program
    made_by: Callable[[], Schedule] | None
    nest: LoopNest
    verdict: Verdict
    failure: Failure | None = None
    own: bool = False

    @property
    def schedule(self) -> Schedule:
        """The schedule; of a program that was made in pieces, that of the whole, which the same model makes. Raises `ScheduleError` where
        no schedule led to the nest."""
        if self.made_by is None:
            raise ScheduleError(
                f"{', '.join(self.program.outputs)}: expected code made by a schedule, got the plain nest, the last form of a build",
                hint='.source("nest") shows its loops',
            )
        return self.made_by()


Made = TypeVar("Made")


def made_of_program(program: Program, target: Target, finish: Callable[[Stages], Made], plainly: bool = False) -> tuple[Stages, Made]:
    """The stages of a program by default, and what `finish` makes of them; of a plain form where either fails.

    Raises what `first_sound` does. With `plainly` the default form is not tried: it failed before.
    """

    return _made(program, target, finish, ("the default schedule", lambda: _by_default(program, target)), plainly)


def default_schedule(program: Program, target: Target) -> Schedule:
    """The schedule of a program by default; the plain one where that cannot be made."""
    forms = [
        (
            "the default schedule",
            lambda: _default_schedule(simplified(program, target), target, lambda: simplify(program, inline=False))[0],
        ),
        (PLAIN, lambda: _plainly(simplify(program, inline=False), target)),
    ]
    return first_sound(", ".join(program.outputs), forms, lambda: print_program(program))[0]


def made_of_schedule(schedule: Schedule, finish: Callable[[Stages], Made], plainly: bool = False) -> tuple[Stages, Made]:
    """As `made_of_program`, of a schedule that a user made; raises `ScheduleError` where that cannot be lowered."""
    own = not schedule.origin.startswith((ANALYTIC, "tuned", PLAIN))
    return _made(schedule.program, schedule.target, finish, ("this schedule", lambda: _lowered(schedule)._replace(own=own)), plainly)


def plain_stages(program: Program, target: Target) -> Stages:
    """The plain form of a program, which is taken as it is."""
    return _lowered(_plainly(program, target), plain=True)


def _made(
    program: Program, target: Target, finish: Callable[[Stages], Made], wanted: tuple[str, Callable[[], Stages]], plainly: bool
) -> tuple[Stages, Made]:
    def of(name: str, make: Callable[[], Stages]) -> tuple[str, Callable[[], tuple[Stages, Made]]]:
        def all_of_it() -> tuple[Stages, Made]:
            stages = make()
            return stages, finish(stages)

        return name, all_of_it

    forms = [
        of(*wanted),
        of(PLAIN, lambda: plain_stages(simplify(program, inline=False), target)),
        of(f"{PLAIN} of the program as written", lambda: plain_stages(program, target)),
        of("the plain nest", lambda: _proved(program, None, plain_nest(program), isinstance(target, Gpu))),
    ]
    what = ", ".join(program.outputs)
    (stages, made), failure = first_sound(what, forms[1:] if plainly else forms, lambda: print_program(program))
    return stages._replace(failure=failure), made


def _scheduled(program: Program, target: Target) -> Schedule:
    """The default schedule of a simplified program."""
    try:
        return scheduled(program, target)
    except ScheduleError as error:  # ours: no user made this schedule
        raise InternalError(f"default schedule: {error.message}", hint=error.hint) from error


def _default_schedule(program: Program, target: Target, plain: Callable[[], Program]) -> tuple[Schedule, LoopNest]:
    """The default schedule of a simplified program, with its nest: that of the `plain` program where kernels would be too long."""
    schedule = _scheduled(program, target)
    nest = lower(schedule)
    if max((_written(kernel.body) for kernel in nest.kernels), default=0) <= MOST_WRITTEN:
        return schedule, nest
    schedule = _plainly(plain(), target)
    return schedule, lower(schedule, plain=True)


def _whole(program: Program, target: Target, plain: Callable[[], Program]) -> Stages:
    schedule, nest = _default_schedule(program, target, plain)
    return _proved(schedule.program, schedule, nest, isinstance(target, Gpu))


def _by_default(program: Program, target: Target) -> Stages:
    simple = simplified(program, target)
    pieces = pieces_of(simple)
    if not pieces or is_tuned(simple, target):
        return _whole(simple, target, lambda: simplify(program, inline=False))
    nest, verdict = nest_of_pieces(simple, pieces, target, lambda piece, target: _whole(piece, target, lambda: piece)[2:4])
    return Stages(simple, lambda: _scheduled(simple, target), verify_nest(nest), verdict)


def _written(block: Block) -> int:
    """How many operations are written out."""
    count = 0
    for s in block:
        match s:
            case For():
                known = s.kind == "unroll" and isinstance(s.start, Const) and isinstance(s.stop, Const)
                count += (max(0, integer(s.stop) - integer(s.start)) if known else 1) * _written(s.body)
            case Alloc():
                count += _written(s.body)
            case If():
                count += _operations(s.condition) + _written(s.then) + _written(s.otherwise)
            case Store():
                count += sum(map(_operations, (*s.indices, s.value)))
    return count


def _operations(expr: Expr) -> int:
    return sum(1 for _ in walk(expr))


def _plainly(program: Program, target: Target) -> Schedule:
    schedule = plain_schedule(program, target)
    schedule.origin = PLAIN
    if isinstance(target, Gpu):
        plan_points(schedule)
    return schedule


def _lowered(schedule: Schedule, plain: bool = False) -> Stages:
    return _proved(schedule.program, schedule, lower(schedule, plain=plain), isinstance(schedule.target, Gpu))


def _proved(program: Program, schedule: Schedule | None, nest: LoopNest, launched: bool) -> Stages:
    verdict = prove(verify_nest(nest), quick=True, launched=launched)
    if verdict.refuted:
        raise InternalError(f"the verifier refuses its loops: {verdict.refuted[0].about}", term=verdict.refuted[0])
    if verdict.findings:
        log.info("%s: %s", ", ".join(program.outputs), verdict)
    return Stages(program, None if schedule is None else lambda: schedule, nest, verdict)
