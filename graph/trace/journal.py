"""Where a trace is while it goes on: which device and which name scope were current when a tensor was made.

Tensors of the language know nothing of traces. They are numbered as they are made, so it is enough to note the number at which
something changed: everything made from then on, until the next note, was made there.
"""

from __future__ import annotations

import contextvars
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tensorexpr.language.core.tensor import fresh_key, number_of

Place = TypeVar("Place")


def now() -> int:
    """The number that the next tensor would have had; it is used up."""
    return number_of(fresh_key("now"))


@dataclass(slots=True)
class Journal(Generic[Place]):
    """What was current when: changes in the order in which they happened."""

    first: Place
    numbers: list[int] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)

    def note(self, place: Place) -> None:
        """From now on `place` is current."""
        self.numbers.append(now())
        self.places.append(place)

    def at(self, number: int) -> Place:
        """What was current when the tensor of that number was made."""
        before = bisect_right(self.numbers, number)
        return self.places[before - 1] if before else self.first


devices: contextvars.ContextVar[Journal[str | None] | None] = contextvars.ContextVar("journal of devices", default=None)
"""The journal of devices of the innermost trace."""

scopes: contextvars.ContextVar[Journal[str] | None] = contextvars.ContextVar("journal of name scopes", default=None)
"""The journal of name scopes of the innermost trace."""
