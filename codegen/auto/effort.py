"""How much a search may do, counted in what it has done, so that what it finds does not hang on the clock.

    with effort(most):
        found = searched(program, facts)    # raises Spent beyond

A unit is a statement of a nest that is rewritten, or of a kernel for which the sizes of a tile are chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
