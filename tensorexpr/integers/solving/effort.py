"""How much work the solver does for one question, counted so that the count is the same on every run.

A step is a number that a question hands to the solver: the entries of the rows that it asks about, of the rows that an
elimination makes. What is asked is counted, whether or not the answer is known from before; neither time nor memory of earlier
questions changes the count, so what gives up does so for the same input always. Who asks sets the limit (`at_most`); without
one there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar

from tensorexpr.errors import TensorExprError
from tensorexpr.records import record


class DomainTooComplex(TensorExprError):
    """A result that would need more constraints, pieces or steps than the solver's cap."""


@record(frozen=False)
class Effort:
    """The steps taken so far, of at most `limit`."""

    limit: int
    steps: int = 0


_EFFORT: ContextVar[Effort | None] = ContextVar("effort", default=None)


class _Limit:
    """What `at_most` gives."""

    __slots__ = ("_effort", "_token")

    def __init__(self, limit: int) -> None:
        self._effort = Effort(limit)

    def __enter__(self) -> Effort:
        self._token = _EFFORT.set(self._effort)
        return self._effort

    def __exit__(self, *raised: object) -> None:
        _EFFORT.reset(self._token)


def at_most(limit: int) -> AbstractContextManager[Effort]:
    """Raises `DomainTooComplex` where what is asked inside takes more than `limit` steps; what an outer limit allows is not used up."""
    return _Limit(limit)


def spend(*tables: Sequence[Sequence[int]]) -> None:
    """Counts the entries of some rows."""
    if _EFFORT.get() is not None:
        take(sum(len(rows) * len(rows[0]) for rows in tables if rows))


def take(steps: int) -> None:
    """Counts steps that somebody else takes for the question."""
    effort = _EFFORT.get()
    if effort is None:
        return
    effort.steps += steps
    if effort.steps > effort.limit:
        raise DomainTooComplex(
            f"expected a question that takes at most {effort.limit} steps of the solver, got a longer one",
            hint="fewer floor divisions, remainders and cases in one index make it shorter",
        )
