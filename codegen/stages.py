"""The stages of a program on its way to code: simplified, scheduled, lowered, checked; and the plain form of each.

The default form is made by everything that makes code fast: by planners, of a long program in pieces (`pieces`), and by the search over
nests, whose nest is taken where the model of cost says that it is clearly faster (`auto.search.contest`). Where some of it fails (see
`tensorexpr.building.fallback`), that of the planners alone comes next, then simpler forms, in which less can fail: the plain schedule,
every definition by itself with its loops in order, of the simplified program, then of the program as written. On a GPU a rewrite gives it
threads. Last comes the plain nest as it is, which neither the simplifier nor rewrites had a hand in; on a GPU one thread runs it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from tensorexpr.building.fallback import Failure, first_sound
from tensorexpr.building.progress import step
from tensorexpr.codegen.auto.points import typical
from tensorexpr.codegen.auto.search import faster, faster_on_gpu
from tensorexpr.codegen.auto.search.memory import lowered
from tensorexpr.codegen.auto.tiles.grids import with_grids
from tensorexpr.codegen.handle import Schedule
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.nest.absorb import absorbed
from tensorexpr.codegen.nest.batches import batched
from tensorexpr.codegen.nest.order import sparing
from tensorexpr.codegen.nest.verify import verify_nest
from tensorexpr.codegen.nest.walks import operations_written
from tensorexpr.codegen.nest_proofs import Verdict, prove
from tensorexpr.codegen.pieces import in_strips, nest_of_pieces, pieces_of, pieces_of_rows, rows_of
from tensorexpr.codegen.plain import plain_nest
from tensorexpr.codegen.planners.gpu.mma import LINE
from tensorexpr.codegen.rewrites.kernels.versions import by_lines
from tensorexpr.codegen.schedule import Planned
from tensorexpr.codegen.schedule.analysis.rings import last_entries
from tensorexpr.codegen.target import Gpu, Target, host_target
from tensorexpr.codegen.tuning.lookup import ANALYTIC, is_tuned, scheduled, simplified
from tensorexpr.errors import DefinitionError, InternalError, ScheduleError
from tensorexpr.ir import Program
from tensorexpr.records import replace
from tensorexpr.simplify import simplify
from tensorexpr.text import print_program

log = logging.getLogger("tensorexpr.proofs")

PLAIN = "the plain schedule"
SEARCH = "the search over nests"
MOST_WRITTEN = 100_000
"""Operations of one kernel, with those of loops that are unrolled for each of their iterations: ten seconds of LLVM."""
MOST_WRITTEN_GPU = 2_000_000
"""The same of a GPU, where nearly all of them are indices and conditions of a tile in registers, numbers once loops are unrolled, and many
are one instruction of tensor cores: a product of matrices has 100,000, in two seconds of NVRTC, a convolution's gradient a million."""


class Stages(NamedTuple):
    """What leads to native code: the simplified program, what gives the schedule that it was lowered by (None for the plain nest), the
    loop nest with what its proof found; and why it is not the form that was wanted. Where the code is `own`, a user made the schedule."""

    program: Program
    made_by: Callable[[], Schedule | Planned] | None
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
        found = self.made_by()
        return Schedule.of_planned(found) if isinstance(found, Planned) else found


Made = TypeVar("Made")


def made_of_program(
    program: Program,
    target: Target,
    finish: Callable[[Stages], Made],
    plainly: bool = False,
    ahead: Callable[[LoopNest], None] = lambda part: None,
    searching: bool = True,
) -> tuple[Stages, Made]:
    """The stages of a program by default, and what `finish` makes of them; of a plain form where either fails.

    Raises what `first_sound` does. With `plainly` the default form is not tried: it failed before. `ahead` is told of the parts of a long
    nest as they come.
    """

    forms = [_ours("the default schedule", lambda: _by_default(program, target, searching, ahead))]
    if searching and not target.is_gpu:
        forms.append(_ours("the schedule of the planners", lambda: _by_default(program, target, False, ahead)))
    return _made(program, target, finish, forms, plainly)


def default_schedule(program: Program, target: Target) -> Schedule | Planned:
    """The schedule of a program by default; the plain one where that cannot be made."""

    def made(searching: bool) -> Schedule | Planned:
        simple = simplified(program, target)
        whole = not pieces_of(simple) or is_tuned(simple, target)
        found = _default_schedule(simple, target, lambda: simplify(program, inline=False), searching and whole)[0]
        if isinstance(found, Schedule):
            return Schedule(found.form, found.target, origin=found.origin, written=program)
        return found

    forms: list[tuple[str, Callable[[], Schedule | Planned]]] = [
        _ours("the default schedule", lambda: made(True)),
        *([] if target.is_gpu else [_ours("the schedule of the planners", lambda: made(False))]),
        (PLAIN, lambda: _plainly(simplify(program, inline=False), target)),
    ]
    return first_sound(", ".join(program.outputs), forms, lambda: print_program(program))[0]


def made_of_schedule(schedule: Schedule | Planned, finish: Callable[[Stages], Made], plainly: bool = False) -> tuple[Stages, Made]:
    """As `made_of_program`, of a schedule that a user made; raises `ScheduleError` where that cannot be lowered."""
    own = not schedule.origin.startswith((ANALYTIC, "tuned", PLAIN, SEARCH))
    return _made(schedule.program, schedule.target, finish, [("this schedule", lambda: _lowered(schedule)._replace(own=own))], plainly)


def plain_stages(program: Program, target: Target) -> Stages:
    """The plain form of a program, which is taken as it is."""
    return _lowered(_plainly(program, target))


def _made(
    program: Program, target: Target, finish: Callable[[Stages], Made], wanted: Sequence[tuple[str, Callable[[], Stages]]], plainly: bool
) -> tuple[Stages, Made]:
    def of(name: str, make: Callable[[], Stages]) -> tuple[str, Callable[[], tuple[Stages, Made]]]:
        def all_of_it() -> tuple[Stages, Made]:
            stages = make()
            return stages, finish(stages)

        return name, all_of_it

    forms = [
        *(of(*form) for form in wanted),
        of(PLAIN, lambda: plain_stages(simplify(program, inline=False), target)),
        of(f"{PLAIN} of the program as written", lambda: plain_stages(program, target)),
        of("the plain nest", lambda: _proved(program, None, plain_nest(program), isinstance(target, Gpu))),
    ]
    what = ", ".join(program.outputs)
    (stages, made), failure = first_sound(what, forms[len(wanted) :] if plainly else forms, lambda: print_program(program))
    return stages._replace(failure=failure), made


def _ours(form: str, make: Callable[[], Made]) -> tuple[str, Callable[[], Made]]:
    """A form of which no user made the schedule, nor its terms: where one is refused, that is a defect of ours."""

    def made() -> Made:
        try:
            return make()
        except (ScheduleError, DefinitionError) as error:
            raise InternalError(f"{form}: {error.message}", hint=error.hint) from error

    return form, made


def _default_schedule(
    program: Program, target: Target, plain: Callable[[], Program], searching: bool
) -> tuple[Schedule | Planned, LoopNest]:
    """The default schedule of a simplified program, with its nest: that of the search where it is clearly faster than that of the planners;
    that of the `plain` program where kernels would be too long."""
    names = ", ".join(program.outputs)
    step(f"scheduled: {names}")
    planned = scheduled(program, target)
    step(f"lowered: {names}")
    nest = lowered(planned)
    if not _is_short(nest, target):
        plainer = _plainly(plain(), target)
        return plainer, _nest_of(plainer)
    if isinstance(target, Gpu) and nest.sizes and any(stage.cached for stage in planned.state.stages):
        nest = by_lines(nest, lowered(scheduled(program, replace(target, lines=LINE))), LINE)
    if not searching or planned.origin != ANALYTIC or not (isinstance(target, Gpu) or target == host_target()):
        return planned, nest
    step(f"searched: {names}")
    if isinstance(target, Gpu):
        found = faster_on_gpu(program, nest, target)
    else:
        alike = target.with_two_cores  # the winner may not depend on how many cores this process has

        def planners(program: Program) -> LoopNest:
            return lowered(scheduled(program, alike))

        found = faster(program, nest if alike is target else planners(program), planners)
    if found is None or not _is_short(found.nest, target):
        return planned, nest
    schedule = Schedule.of_candidate(program, target, found, origin=SEARCH)
    return schedule, schedule.nest


def _is_short(nest: LoopNest, target: Target) -> bool:
    """Whether no kernel is longer than a compiler takes well."""
    most = MOST_WRITTEN_GPU if target.is_gpu else MOST_WRITTEN
    return max((operations_written(kernel.body) for kernel in nest.kernels), default=0) <= most


def _whole(program: Program, target: Target, plain: Callable[[], Program], searching: bool) -> Stages:
    rows = None if target.is_gpu or is_tuned(program, target) else rows_of(program)
    if rows is not None:
        some = rows.program
        nest = in_strips(rows, _sparing(_default_schedule(some, target, lambda: some, searching)[1], target))
        if nest is not None:
            return _proved(program, lambda: scheduled(program, target), nest, False)
    schedule, nest = _default_schedule(program, target, plain, searching)
    return _proved(schedule.program, lambda: schedule, _sparing(nest, target), target.is_gpu)


def _sparing(nest: LoopNest, target: Target) -> LoopNest:
    """The nest as it needs less memory at once."""
    return sparing(nest if target.is_gpu else batched(absorbed(nest), target.l2_bytes, target.cores, typical(nest)))


def _by_default(program: Program, target: Target, searching: bool, ahead: Callable[[LoopNest], None]) -> Stages:
    step("simplified")
    simple = simplified(program, target)
    long = pieces_of(simple)
    pieces = long or (() if target.is_gpu else pieces_of_rows(simple))
    if not pieces or is_tuned(simple, target):
        return _whole(simple, target, lambda: simplify(program, inline=False), searching)

    def of_piece(piece: Program, target: Target) -> tuple[LoopNest, Verdict]:
        made = _whole(piece, target, lambda: piece, searching and not long)
        return made.nest, made.verdict

    nest, verdict = nest_of_pieces(simple, pieces, target, of_piece, ahead)
    return Stages(simple, lambda: scheduled(simple, target), verify_nest(_sparing(nest, target)), verdict)


def _plainly(program: Program, target: Target) -> Schedule:
    schedule = Schedule.plain(program, target, origin=PLAIN)
    for name in last_entries(program):
        for loop in schedule.loops_of(name):
            with suppress(ScheduleError):  # then all states are stored
                schedule.rewrite("contract", schedule.buffer_of(name), loop)
    return schedule


def _nest_of(schedule: Schedule | Planned) -> LoopNest:
    """The nest that a schedule runs as: on a GPU with threads for the kernels that no word gave them."""
    if isinstance(schedule, Planned):
        return lowered(schedule)
    target, nest = schedule.target, schedule.nest
    return with_grids(replace(nest, precision=target.precision), target) if isinstance(target, Gpu) else nest


def _lowered(schedule: Schedule | Planned) -> Stages:
    return _proved(schedule.program, lambda: schedule, _nest_of(schedule), schedule.target.is_gpu)


def _proved(program: Program, made_by: Callable[[], Schedule | Planned] | None, nest: LoopNest, launched: bool) -> Stages:
    step(f"proved: {', '.join(program.outputs)}")
    verdict = prove(verify_nest(nest), quick=True, launched=launched)
    if verdict.refuted:
        raise InternalError(f"the verifier refuses its loops: {verdict.refuted[0].about}", term=verdict.refuted[0])
    if verdict.findings:
        log.info("%s: %s", ", ".join(program.outputs), verdict)
    return Stages(program, made_by, nest, verdict)
