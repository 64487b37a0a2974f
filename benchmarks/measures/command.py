"""`python -m tensorexpr bench regret | model | spellings | sweep`: which rows, in which order, for how long, and what is kept of them.

Rows run one after the other, each in a process of its own. A sample is drawn by seed, and so is the order where the time is bounded: what
was measured when time is up is then a sample, too. Results go to a journal as they come; the same command goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tensorexpr.benchmarks.measures.journal import Journal
from tensorexpr.benchmarks.measures.worker import Request, Worker, measure_of
from tensorexpr.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Options:
    """What to measure: parts of names of rows, how many of them (drawn by `seed`), in how many seconds in all, with which threads.

    `again` measures rows once more that have a run by this code. `budget` and `tries` bound the search for a faster schedule of a row,
    `limit` is the seconds that a row may take beside that.
    """

    measure: str
    parts: tuple[str, ...] = ()
    sample: int | None = None
    seconds: float | None = None
    seed: int = 0
    threads: tuple[int, ...] = (1,)
    rounds: int = 7
    budget: float = 20.0
    tries: int = 200
    limit: float = 120.0
    again: bool = False
    peers: tuple[str, ...] | None = None
    predictor: str | None = None
    json: str | None = None
    markdown: str | None = None

    def request(self, threads: int) -> Request:
        """What workers are asked with."""
        found = Request(
            self.measure, threads, self.parts, self.seed, self.budget, self.tries, rounds=self.rounds, limit=self.limit + self.budget
        )
        return found if self.peers is None else replace(found, peers=self.peers)


def chosen(options: Options, names: Sequence[str]) -> list[str]:
    """The rows to measure, in order. Raises `ArgumentError` where there are none."""
    found = [name for name in names if not options.parts or any(part.lower() in name.lower() for part in options.parts)]
    if not found:
        raise ArgumentError(
            f"bench {options.measure}: expected part of the name of a row, got {', '.join(options.parts)}",
            hint=f"there are {len(names)}, such as {', '.join(list(names)[:3])}",
        )
    if options.sample is not None or options.seconds is not None:
        random.Random(options.seed).shuffle(found)
    return found[: options.sample]


def main(options: Options) -> int:
    """Measures, prints what all runs in the journal come to, and writes the page; 1 where a row failed or gave other values."""
    measure = measure_of(options.measure)
    journal = Journal(options.measure, options.json)
    names = chosen(options, measure.rows(options.request(1)))
    began = time.perf_counter()
    keys: list[str] = []
    for threads in options.threads:
        keys += [f"{name} | {threads}" for name in names]
        _measure(measure, options, threads, names, journal, began)
    done = [key for key in dict.fromkeys((*keys, *journal.rows)) if key in journal.rows]
    found = measure.report(journal, done, options)
    found.show()
    print(f"({time.perf_counter() - began:.0f} s in all; {len(done)} rows, {sum(map(len, journal.rows.values()))} runs)")
    if options.markdown is not None:
        Path(options.markdown).parent.mkdir(parents=True, exist_ok=True)
        Path(options.markdown).write_text(found.markdown(journal))
    return int(any(remark.startswith(("failed", "differs")) for remark in found.remarks))


def _measure(measure: Any, options: Options, threads: int, names: Sequence[str], journal: Journal, began: float) -> None:
    """The rows of one number of threads that have no run yet."""
    todo = [name for name in names if options.again or not journal.has(f"{name} | {threads}")]
    if not todo:
        return
    with contextlib.ExitStack() as stack:
        cache = stack.enter_context(tempfile.TemporaryDirectory())
        request = replace(options.request(threads), environment={"TENSOREXPR_CACHE_DIR": cache})
        requests = measure.requests(request) if hasattr(measure, "requests") else [request]
        workers = [stack.enter_context(Worker(one)) for one in requests]
        for number, name in enumerate(todo):
            spent = time.perf_counter() - began
            if options.seconds is not None and spent >= options.seconds:
                print(f"  time is up: {len(todo) - number} rows are left", file=sys.stderr)
                return
            print(f"  [{number + 1}/{len(todo)}] {threads} threads, {spent:.0f} s: {name}", file=sys.stderr, flush=True)
            found: dict[str, Any] = {}
            for worker in workers:
                found |= worker.ask(name)
            journal.add(f"{name} | {threads}", found)
