"""A profile: what the kernels of a call took, beside what is counted in them and what the machine could do.

The roofline of a kernel is the least time for its operations, all of them multiply-adds in whole vectors, or for its bytes from the
first level of memory that holds them all, whichever is more (Williams, Waterman and Patterson 2009). A share of 100 % is a kernel
at a limit of the machine. More than that means that the facts are too careful, or that data was nearer than its amount says.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensorexpr.codegen.auto.cost import spell
from tensorexpr.codegen.auto.machine import Facts
from tensorexpr.codegen.profiling import tables
from tensorexpr.codegen.profiling.counting import Work
from tensorexpr.errors import ArgumentError, Location, user_location
from tensorexpr.markup import amount
from tensorexpr.records import record

LEVELS = ("L1", "L2", "L3", "memory")
_LINE = 64


@record
class KernelRow:
    """A kernel of a profile. `limit` are the nanoseconds of the roofline, `bound` is what it comes from: "compute", or the level of
    memory that holds what the kernel touches. `assumed`: data decides how often some of it runs, so operations and bytes are an
    assumption.
    """

    name: str
    nanoseconds: float
    operations: int
    bytes: int
    limit: float
    bound: str
    assumed: bool = False

    @property
    def roofline(self) -> float:
        """The share of the roofline that was reached."""
        return self.limit / self.nanoseconds if self.nanoseconds else 0.0


@record
class Share:
    """What a definition, or a line of the user's source, took: nanoseconds of a call, and in which kernels."""

    what: str
    nanoseconds: float
    kernels: tuple[str, ...]
    location: Location | None = None


@record(eq=False)
class Profile:
    """Where the time of a call goes. `print` shows it as tables, notebooks as HTML; `save` writes a page or a trace.

    `kernels` in the order in which they run, `definitions` and `lines` by time. `nanoseconds` is the median time of a call of the
    function from Python, `inside` that of its kernels together. `sizes` are the open sizes of the call, by name.
    """

    name: str
    nanoseconds: float
    kernels: tuple[KernelRow, ...]
    definitions: tuple[Share, ...]
    lines: tuple[Share, ...]
    parts: tuple[tuple[Share, ...], ...]
    """For each kernel what the definitions in it took."""
    threads: int
    machine: str
    runs: int
    sizes: Mapping[str, int]

    @property
    def inside(self) -> float:
        """Nanoseconds of all kernels."""
        return sum(row.nanoseconds for row in self.kernels)

    def __str__(self) -> str:
        return tables.text(self)

    def __repr__(self) -> str:
        return f"<profile of {self.name}: {spell(self.nanoseconds)} a call, {amount(len(self.kernels), 'kernel')}>"

    def _repr_html_(self) -> str:
        return tables.fragment(self)

    def trace(self) -> dict[str, Any]:
        """The call as events for Chrome (chrome://tracing) and Perfetto: kernels one after the other, below them their definitions."""
        return tables.trace(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes a page (`.html`) or a trace (`.json`). Raises `ArgumentError` for another ending."""
        file = Path(path)
        made = {".html": tables.page_of, ".json": tables.trace_text}.get(file.suffix)
        if made is None:
            raise ArgumentError(
                f"{self.name}: expected a file that ends in .html or .json, got {file.name!r}",
                location=user_location(),
                hint=".html is a page with the tables, .json a trace for Chrome or Perfetto",
            )
        file.write_text(made(self))
        return file


def profiled(
    name: str,
    times: np.ndarray,
    call: float,
    work: Sequence[Work],
    facts: Facts,
    threads: int,
    sizes: Mapping[str, int],
) -> Profile:
    """The profile of measured times: a row for each run, a column for each kernel; `call` nanoseconds of a whole call."""
    medians = [float(t) for t in np.median(times, axis=0)]
    rows = tuple(_row(one, t, facts, threads) for one, t in zip(work, medians, strict=True))
    parts = tuple(_shares(one, t) for one, t in zip(work, medians, strict=True))
    found = _gathered((share.what, share.nanoseconds, row.name, None) for row, inside in zip(rows, parts, strict=True) for share in inside)
    return Profile(
        name=name,
        nanoseconds=call,
        kernels=rows,
        definitions=found,
        lines=_gathered(_by_line(work, medians)),
        parts=parts,
        threads=threads,
        machine=f"{facts.name}, {facts.source}",
        runs=len(times),
        sizes=dict(sizes),
    )


def _row(work: Work, nanoseconds: float, facts: Facts, threads: int) -> KernelRow:
    limit, bound = _limit(work, facts, threads)
    moved = work.traffic.read + work.traffic.written
    return KernelRow(work.name, nanoseconds, work.operations, moved, limit, bound, work.assumed)


def _limit(work: Work, facts: Facts, threads: int) -> tuple[float, str]:
    """The least nanoseconds for the operations or the bytes, and what they come from."""
    vector = facts.vector_bits / 8
    compute = work.operation_bytes / vector / 2 * facts.arithmetic / threads
    read, written, held = work.traffic
    level = next((n for n, size in enumerate(facts.caches) if held <= size * (threads if n < 2 else 1)), len(facts.caches))
    if level == 0:
        memory = (read / vector * facts.load + written / vector * facts.store) / threads
    else:
        memory = (read / _LINE * facts.lines[level - 1] + written / _LINE * facts.writes[level - 1]) / threads
        if level == len(facts.caches):
            memory = max(memory, (read + written) / _LINE * facts.line_all)
    return (compute, "compute") if compute >= memory else (memory, LEVELS[level])


def _shares(work: Work, nanoseconds: float) -> tuple[Share, ...]:
    """The time of a kernel by definition, each with its share of the weight."""
    weights: dict[str, float] = {}
    for part in work.parts:
        weights[part.definition] = weights.get(part.definition, 0.0) + part.weight
    total = math.fsum(weights.values()) or 1.0
    return tuple(Share(name, nanoseconds * weight / total, (work.name,)) for name, weight in weights.items())


def _by_line(work: Sequence[Work], medians: Sequence[float]) -> list[tuple[str, float, str, Location | None]]:
    """What the statements of each line took: the time of one with several lines is divided evenly among them."""
    found: list[tuple[str, float, str, Location | None]] = []
    for one, nanoseconds in zip(work, medians, strict=True):
        total = math.fsum(part.weight for part in one.parts) or 1.0
        for part in one.parts:
            places: Sequence[Location | None] = part.lines or (None,)
            for place in places:
                what = f"made for {part.definition}" if place is None else str(place)
                found.append((what, nanoseconds * part.weight / total / len(places), one.name, place))
    return found


def _gathered(items: Iterable[tuple[str, float, str, Location | None]]) -> tuple[Share, ...]:
    """Times added up by what they are for, the greatest first."""
    times: dict[str, float] = {}
    kernels: dict[str, dict[str, None]] = {}
    places: dict[str, Location | None] = {}
    for what, nanoseconds, kernel, place in items:
        times[what] = times.get(what, 0.0) + nanoseconds
        kernels.setdefault(what, {})[kernel] = None
        places[what] = place
    order = sorted(times, key=lambda what: -times[what])
    return tuple(Share(what, times[what], tuple(kernels[what]), places[what]) for what in order)
