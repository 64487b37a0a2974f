"""A nest and the rewrites that made it: what a search holds, and what a schedule is rebuilt from.

    candidate = plain(program).then("split", "i", 32).then("vectorize", "i_i")

Calls name rewrites and their arguments, so that the same calls on the same plain nest give the same nest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tensorexpr.codegen.auto.effort import spend
from tensorexpr.codegen.nest import LoopNest
from tensorexpr.codegen.nest_names import statements
from tensorexpr.codegen.plain import plain_nest
from tensorexpr.codegen.rewrites import data, kernels, loops, sends
from tensorexpr.codegen.rewrites.names import named
from tensorexpr.ir import Program
from tensorexpr.records import record

ROOMS = (loops, data, kernels, sends)
WORDS: Mapping[str, Callable[..., LoopNest]] = {name: getattr(room, name) for room in ROOMS for name in room.__all__}
"""The rewrites by name."""


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
        """The candidate after one more rewrite. Raises `ScheduleError` where that is not legal."""
        spend(sum(1 for kernel in self.nest.kernels for _ in statements(kernel.body)))
        return Candidate(WORDS[word](self.nest, *arguments), (*self.calls, Call(word, arguments)))


def plain(program: Program) -> Candidate:
    """The plain nest of a program with names of its own for every loop: where each search begins."""
    return Candidate(named(plain_nest(program)))
