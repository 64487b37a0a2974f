"""Whether the model of cost ranks schedules as the clock does: rank correlation of predicted and measured time.

For each program (of the library, forward and gradient, and random ones, in a checkout) some legal schedules are drawn and timed: the
default, the plain nest, other answers to what the default decides, and schedules by hand. The loop nest of each is kept as text, so any
predictor can be asked about what was measured once: `--predictor MODULE:NAME` names a function from a `LoopNest` to nanoseconds; without
one it is `counted`.

Two figures: Spearman's coefficient over all schedules of all programs (long programs after short ones count for much of it), and the
median of those of each program by itself, which is what a search asks of a model.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

from tensorexpr.benchmarks.measures.contest import contest_of, generator
from tensorexpr.benchmarks.measures.contest import rows as rows_of
from tensorexpr.benchmarks.measures.journal import Journal, Run
from tensorexpr.benchmarks.measures.report import WORST, Report, failures, milliseconds
from tensorexpr.benchmarks.measures.statistics import quantile, rank_correlation
from tensorexpr.benchmarks.measures.worker import Request
from tensorexpr.benchmarks.samples.by_hand import by_hand
from tensorexpr.codegen.nest import LANES, Alloc, Block, For, If, LoopNest, Store
from tensorexpr.codegen.nest.parse import parse_nest
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule.decisions import Choices, Decisions
from tensorexpr.codegen.target import host_target
from tensorexpr.errors import ArgumentError, TensorExprError
from tensorexpr.ir import Apply, Const
from tensorexpr.simplify import simplify
from tensorexpr.traversal import walk

BAR = 0.9
PROGRAMS = 500
SCHEDULES = 10
"""Of each program: with fifty programs, the five hundred of the bar."""
DRAWS = 60
"""Schedules that are drawn at most for those."""
UNKNOWN = 8
"""Iterations of a loop whose bounds depend on others."""
Predictor = Callable[[LoopNest], float]


def rows(request: Request) -> list[str]:
    """The library and five hundred random programs. Raises `ArgumentError` without a checkout."""
    return rows_of(request.measure, PROGRAMS)


def measured(key: str, request: Request) -> Run:
    """Seconds of some schedules, with their nests as text and where they come from."""
    contest = contest_of(key, request.measure)
    if contest is None:
        return {"lacking": "the program cannot be made large, or its data leads out of a tensor"}
    program, starts, rng = simplify(contest.task.program), contest.starts(), generator(key, request.seed)
    choices = Choices()
    for draw in range(DRAWS):
        if len(contest.entrants) >= SCHEDULES:
            break
        if draw % 2:
            contest.try_("hand", by_hand(starts[draw // 2 % len(starts)], rng))
            continue
        decisions = Decisions(choices, noting=True)
        try:
            contest.try_("decided", autoschedule(program, host_target(), decisions))
        except TensorExprError:
            choices = Choices()
            continue
        if decisions.made:
            decision = rng.choice(decisions.made)
            choices = choices.with_choice(decision.name, rng.choice(decision.options))
    schedules = []
    for entrant in contest.entrants:
        nest = entrant.schedule.nest
        if not nest.constants:  # their data is not in the text
            schedules.append({"by": entrant.kind, "seconds": entrant.seconds, "nest": str(nest)})
    return {"schedules": schedules, "wrong": contest.wrong}


def predictor_of(named: str | None) -> Predictor:
    """The function that MODULE:NAME names. Raises `ArgumentError` where there is none."""
    if named is None:
        return counted
    module, _, name = named.partition(":")
    try:
        found: Predictor = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ArgumentError(
            f"bench model: expected a predictor as MODULE:NAME, got {named}: {error}", hint="a function from a LoopNest to nanoseconds"
        ) from None
    return found


def counted(nest: LoopNest) -> float:
    """What a model has to be better than: one nanosecond for each operation and each store, one for all lanes of a vector at once."""
    return sum(_counted(kernel.body) for kernel in nest.kernels)


def _counted(block: Block) -> float:
    total = 0.0
    for statement in block:
        match statement:
            case For():
                times = _extent(statement) if statement.kind not in LANES else 1
                total += times * _counted(statement.body)
            case If():
                total += max(_counted(statement.then), _counted(statement.otherwise))
            case Alloc():
                total += _counted(statement.body)
            case Store():
                total += 1 + sum(isinstance(node, Apply) for node in walk(statement.value))
    return total


def _extent(loop: For) -> int:
    if isinstance(loop.start, Const) and isinstance(loop.stop, Const):
        return max(0, int(loop.stop.value) - int(loop.start.value))
    return UNKNOWN


def report(journal: Journal, keys: list[str], options: Any) -> Report:
    """Both figures for the predictor that is asked, and the programs that it ranks worst."""
    predict = predictor_of(options.predictor)
    quoted = journal.quoted()
    every: list[tuple[float, float]] = []
    programs: dict[str, float] = {}
    missed: dict[str, int] = {}
    chosen: list[float] = []
    for key in keys:
        pairs = []
        for schedule in quoted[key].get("schedules", ()):
            try:
                pairs.append((float(predict(parse_nest(schedule["nest"]))), schedule["seconds"]))
            except Exception as error:  # a predictor is another's: what it cannot do is told, and the rest is measured
                missed[type(error).__name__] = missed.get(type(error).__name__, 0) + 1
        every += pairs
        if len(pairs) > 2:
            programs[key] = rank_correlation(*zip(*pairs, strict=True))
            chosen.append(min(pairs)[1] / min(seconds for _, seconds in pairs))
    known = {key: value for key, value in programs.items() if not math.isnan(value)}
    overall = rank_correlation([a for a, _ in every], [b for _, b in every])
    name = options.predictor or "counted"
    lines = [
        f"{name}: rank correlation {overall:.3f} over {len(every)} schedules of {len(programs)} programs (bar: {BAR:g})",
        f"each program by itself: median {quantile(list(known.values()), 0.5):.3f}, tenth {quantile(list(known.values()), 0.1):.3f}",
        f"what it takes for the fastest schedule, over the fastest: median {quantile(chosen, 0.5):.3g}, 95 % {quantile(chosen, 0.95):.3g}",
    ]
    worst = sorted(known, key=known.__getitem__)[:WORST]
    table: list[tuple[str, ...]] = []
    for key in worst:
        times = [schedule["seconds"] for schedule in quoted[key]["schedules"]]
        table.append((key, f"{known[key]:.2f}", str(len(times)), milliseconds(min(times)), milliseconds(max(times))))
    remarks = [f"the predictor raised {error} for {count} nests" for error, count in missed.items()]
    remarks += [f"differs: {key}: {'; '.join(text.splitlines())}" for key in keys for text in quoted[key].get("wrong", ())]
    heads = ("program", "rank correlation", "schedules", "fastest ms", "slowest ms")
    return Report("Model: predicted and measured cost of schedules", lines, heads, table, [*remarks, *failures(journal, keys)])
