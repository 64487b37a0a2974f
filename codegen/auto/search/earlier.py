"""What searches found for a program at other sizes: versions of a function take it again, and search anew only where it is less good there.

    found = Earlier()
    with found.taken():
        build(program)    # searches, and remembers what it found
        build(other)      # the same program with other numbers for its sizes

A nest of a search is the calls that made it, which make one of another size as well. How good it is there, the model of cost says: its time
beside the least and beside the work that there is. Planners that won are remembered as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from tensorexpr.codegen.auto.candidate import Call, Candidate, plain
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Program

AS_GOOD = 1.1
"""How many times longer than where it was found a nest may take, in times of the least or of the work: small sizes are further from the
one, large ones, which wait for memory, from the other."""
LONG = 1600.0
"""Units of effort of a search, a quarter of a second, from which on what it finds is kept for others: shorter ones are made anew, which may
find better (sums of columns, at 777 x 900 by what was found at 1024 x 1024, take 1.35 times as long)."""


class Choice(NamedTuple):
    """The calls that made a nest, none where planners won, its time, and what that is measured by: the least, and how long operations of
    the plain nest take."""

    calls: tuple[Call, ...] | None
    time: float
    marks: tuple[float, float]

    def is_as_good(self, time: float, marks: tuple[float, float]) -> bool:
        """Whether another time is as good beside its own marks."""
        return any(time * mine <= AS_GOOD * self.time * mark for mine, mark in zip(self.marks, marks, strict=True))

    def at(self, program: Program) -> list[Candidate]:
        """What the calls make of a program: as they are, and with loops cut where its own borders are."""
        if self.calls is None:
            return []
        cut = tuple(call._replace(arguments=call.arguments[:1]) if call.word == "partition" else call for call in self.calls)
        found = (_made(program, words) for words in dict.fromkeys((self.calls, cut)))
        return [one for one in found if one is not None]


class Earlier:
    """The choices of searches of so much effort at `least`, by what a program computes; `where` tells code of builds that take them from
    code of a search of its own."""

    def __init__(self) -> None:
        self.where, self.least = "", LONG
        self._choices: dict[object, list[Choice]] = {}

    def of(self, program: Program) -> list[Choice]:
        """Those for a program at other sizes."""
        return self._choices.setdefault((program.outputs, tuple(d.results[0][0] for d in program.definitions)), [])

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Inside, builds take these choices, and add theirs."""
        token = _NOW.set(self)
        try:
            yield
        finally:
            _NOW.reset(token)


_NOW: ContextVar[Earlier | None] = ContextVar("earlier", default=None)


def earlier() -> Earlier | None:
    """What the build that runs now takes."""
    return _NOW.get()


def _made(program: Program, calls: tuple[Call, ...]) -> Candidate | None:
    made = plain(program)
    try:
        for call in calls:
            made = made.then(call.word, *call.arguments)
    except ScheduleError:
        return None
    return made
