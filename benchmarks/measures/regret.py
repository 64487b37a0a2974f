"""What the default schedule leaves: its time over the least that is found in a space that is larger than its own.

The space has the plain nest, what the tuner tries, and schedules by hand (`tensorexpr.benchmarks.samples.by_hand`), on the program as it is
written, on its simplified form and on the default schedule. Half of the time of a row goes to the tuner, half to the hand; the best few of
each are timed in turns with the default at the end. What is found is a lower bound: more time finds more.
Rows are the library, forward and gradient, and random programs, in a checkout.
"""

from __future__ import annotations

import time
from typing import Any

from tensorexpr.benchmarks.measures.contest import Contest, Entrant, contest_of, generator
from tensorexpr.benchmarks.measures.contest import rows as rows_of
from tensorexpr.benchmarks.measures.journal import Journal, Run
from tensorexpr.benchmarks.measures.report import WORST, Report, distribution, failures, milliseconds, others
from tensorexpr.benchmarks.measures.worker import Request
from tensorexpr.benchmarks.samples.by_hand import by_hand
from tensorexpr.codegen.planners import autoschedule
from tensorexpr.codegen.schedule.decisions import Decisions
from tensorexpr.codegen.target import host_target
from tensorexpr.codegen.tuning.search import OK, search
from tensorexpr.codegen.tuning.timing import Job, Timing
from tensorexpr.errors import TensorExprError
from tensorexpr.simplify import simplify

MEDIAN_BAR, BAR = 1.03, 1.15
PROGRAMS = 500
FINALISTS = 3
"""Schedules of the tuner, and by hand, that are timed in turns with the default."""
SLOWER = 1.05
"""From here on the default is told to be slower than the plain schedule."""


def rows(request: Request) -> list[str]:
    """The library and five hundred random programs. Raises `ArgumentError` without a checkout."""
    return rows_of(request.measure, PROGRAMS)


def measured(key: str, request: Request) -> Run:
    """Seconds of the default, of the plain nest and of the best schedule found, with the calls that make it."""
    contest = contest_of(key, request.measure)
    if contest is None:
        return {"lacking": "the program cannot be made large, or its data leads out of a tensor"}
    began = time.monotonic()
    tuned = _tune(contest, request)
    rng, hand = generator(key, request.seed), 0
    starts = contest.starts()
    while hand < request.tries and time.monotonic() - began < request.seconds:
        contest.try_("hand", by_hand(starts[hand % len(starts)], rng))
        hand += 1
    finalists: list[Entrant] = [entrant for entrant in contest.entrants if entrant.kind == "default"]
    for kind in ("plain", "tuner", "hand"):
        own = sorted((entrant for entrant in contest.entrants if entrant.kind == kind), key=lambda entrant: entrant.seconds)
        finalists += own[:FINALISTS]
    times = contest.final(finalists, request.rounds, request.threads)
    winner = min(range(len(times)), key=times.__getitem__)
    plain = [seconds for entrant, seconds in zip(finalists, times, strict=True) if entrant.kind == "plain"]
    return {
        "default": times[0], "best": times[winner], "plain": plain[0] if plain else None, "winner": finalists[winner].kind,
        "words": finalists[winner].schedule.as_python(), "tried": {"tuner": tuned, "hand": hand}, "wrong": contest.wrong,
    }  # fmt: skip


def _tune(contest: Contest, request: Request) -> int:
    """Half of the time for the tuner; how many schedules it tried."""
    program = simplify(contest.task.program)
    job = Job(program, host_target(), {}, tuple(contest.task.arrays), reassociate=True, seed=request.seed)
    found = search(Timing(job), request.seconds / 2, seed=request.seed)
    good = sorted((trial for trial in found.trials if trial.outcome == OK and trial.choices), key=lambda trial: trial.seconds)
    for trial in good[:FINALISTS]:
        try:
            schedule = autoschedule(program, host_target(), Decisions(trial.choices))
        except TensorExprError:
            continue
        contest.try_("tuner", schedule)
    return len(found.trials)


def regret(run: Run) -> float | None:
    """The default's time over the least."""
    return None if "default" not in run else float(run["default"] / run["best"])


def report(journal: Journal, keys: list[str], options: Any) -> Report:
    """The distribution, who won, where the plain nest is faster, the worst twenty with the calls that beat the default."""
    del options
    quoted = journal.quoted()
    found = {key: ratio for key in keys if (ratio := regret(quoted[key])) is not None}
    lines = [f"all: {distribution(list(found.values()), BAR)} (bars: median {MEDIAN_BAR:g}, 95 % within {BAR:g})"]
    for group in ("library: ", "random: "):
        lines.append(f"{group}{distribution([ratio for key, ratio in found.items() if key.startswith(group)], BAR)}")
    winners = [quoted[key]["winner"] for key in found]
    lines.append("fastest: " + ", ".join(f"{kind} {winners.count(kind)}" for kind in dict.fromkeys(winners)))
    behind = {key: run["default"] / run["plain"] for key in found if (run := quoted[key])["plain"]}
    lines.append(f"slower than the plain schedule: {sum(ratio > SLOWER for ratio in behind.values())} of {len(behind)}")
    lines.append(f"schedules tried: {sum(sum(quoted[key]['tried'].values()) for key in found)}")
    worst = sorted(found, key=lambda key: -found[key])[:WORST]
    table: list[tuple[str, ...]] = [
        (key, f"{found[key]:.2f}", milliseconds(run["default"]), milliseconds(run["best"]),
         "-" if run["plain"] is None else milliseconds(run["plain"]), run["winner"], others(journal, key, regret))
        for key in worst if (run := quoted[key])
    ]  # fmt: skip
    words = [f"{key}: {'; '.join(quoted[key]['words'].splitlines())}" for key in worst if found[key] > BAR]
    wrong = [f"differs: {key}: {'; '.join(text.splitlines())}" for key in found for text in quoted[key]["wrong"]]
    heads = ("program", "default / best", "default ms", "best ms", "plain ms", "by", "other runs")
    return Report(
        "Regret: time of the default schedule over the least found", lines, heads, table, [*words, *wrong, *failures(journal, keys)]
    )
