"""A nest and the rewrites that made it: what a search holds, and what a schedule is rebuilt from.

    candidate = plain(program).then("split", "i", 32).then("vectorize", "i_i")

Calls name rewrites and their arguments, so that the same calls on the same plain nest give the same nest.

How much a search may do is counted in what it has done, so that what it finds does not hang on the clock:

    with effort(most):
        found = searched(program, facts)    # raises Spent beyond

A unit is a kernel that a rewrite looks at, a statement of one that it changes, or of one for which the sizes of a tile are chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.nest.walks import buffers_written, statements
from tensorexpr.codegen.plain import plain_nest
from tensorexpr.codegen.rewrites import data, kernels, loops, sends
from tensorexpr.codegen.rewrites.names import named
from tensorexpr.ir import Program
from tensorexpr.records import record

ROOMS = (loops, data, kernels, sends)
WORDS: Mapping[str, Callable[..., LoopNest]] = {name: getattr(room, name) for room in ROOMS for name in room.__all__}
"""The rewrites by name."""


UNIT = 1.5e-4
"""Seconds of a unit: the median on Zen 4 over the searches of some 80 programs that took more than a second, all within a factor of 2."""

_LEFT: ContextVar[list[float] | None] = ContextVar("effort", default=None)


class Spent(Exception):
    """A search has done what it may do. No error of ours: every handler but that of who gave the limit lets it pass."""


@contextmanager
def effort(most: float) -> Iterator[list[float]]:
    """Inside, `spend` raises `Spent` when more than `most` units were spent. Gives what is left, as a list of one number."""
    left = [most]
    token = _LEFT.set(left)
    try:
        yield left
    finally:
        _LEFT.reset(token)


def spend(units: float) -> None:
    """Says that so much is done next. Raises `Spent` where that is more than is left."""
    left = _LEFT.get()
    if left is not None:
        left[0] -= units
        if left[0] < 0:
            raise Spent


class Call(NamedTuple):
    """A rewrite by name, with what follows the nest among its arguments."""

    word: str
    arguments: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.word}({', '.join(map(repr, self.arguments))})"


@record(eq=False)
class Candidate:
    """A nest, and the calls that made it of the plain nest of its program."""

    nest: LoopNest
    calls: tuple[Call, ...] = ()

    def then(self, word: str, *arguments: Any) -> Candidate:
        """The candidate after one more rewrite. Raises `ScheduleError` where that is not legal.

        What is simplified is said by name, so that the call does the same where there are other kernels beside these. Where no kernel is
        left, as loops had no iteration, there is nothing to say.
        """
        if word == "simplify" and not arguments:
            if not self.nest.kernels:
                return self
            written = (name for kernel in self.nest.kernels for name in sorted(buffers_written(kernel.body)))
            arguments = tuple(dict.fromkeys(written))
        before = {id(kernel) for kernel in self.nest.kernels}
        spend(len(before))
        nest = WORDS[word](self.nest, *arguments)
        spend(sum(1 for kernel in nest.kernels if id(kernel) not in before for _ in statements(kernel.body)))
        return Candidate(nest, (*self.calls, Call(word, arguments)))


def plain(program: Program) -> Candidate:
    """The plain nest of a program with names of its own for every loop: where each search begins."""
    return Candidate(named(plain_nest(program)))
