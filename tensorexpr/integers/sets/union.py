"""Unions of disjoint domains: what exact projection, images and differences give."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tensorexpr.errors import DefinitionError
from tensorexpr.integers.solving.effort import DomainTooComplex
from tensorexpr.records import record

_MOST_PIECES = 100

if TYPE_CHECKING:  # a Domain makes Unions; a Union only calls the methods of its pieces
    from tensorexpr.integers.sets.domain import Domain


@record(slots=False)
class Union:
    """Disjoint nonempty domains over the same dimensions; ``dims`` and ``sizes`` also tell when there is no piece."""

    dims: tuple[str, ...]
    pieces: tuple[Domain, ...]
    sizes: tuple[str, ...] = ()

    @classmethod
    def disjoint(cls, dims: Iterable[str], domains: Iterable[Domain], sizes: Iterable[str] = ()) -> Union:
        """The union of domains that may overlap: each is cut by those before it; more than 100 pieces are refused."""
        pieces: list[Domain] = []
        for domain in domains:
            parts = [domain]
            for known in pieces:
                parts = [part for one in parts for part in one.subtract(known).pieces]
                if len(parts) + len(pieces) > _MOST_PIECES:
                    raise DomainTooComplex(
                        f"expected a union of at most {_MOST_PIECES} disjoint pieces, got more",
                        hint="project out fewer names, or use hull_without where more points do no harm",
                    )
            pieces += [part.simplified() for part in parts if not part.is_empty()]
        return cls(tuple(dims), tuple(pieces), tuple(sizes))

    def is_empty(self) -> bool:
        """True when there is no point, for any sizes."""
        return all(piece.is_empty() for piece in self.pieces)

    def intersect(self, other: Domain | Union) -> Union:
        """The points in both."""
        parts = [piece.intersect(one) for piece in self.pieces for one in _pieces(other)]
        return Union(self.dims, tuple(part for part in parts if not part.is_empty()), self._sizes_with(other))

    def subtract(self, other: Domain | Union) -> Union:
        """The points that `other` does not have."""
        parts = list(self.pieces)
        for one in _pieces(other):
            parts = [part for piece in parts for part in piece.subtract(one).pieces]
        return Union(self.dims, tuple(parts), self._sizes_with(other))

    def union(self, other: Domain | Union) -> Union:
        """The points of either: this union's pieces and the rest of `other`."""
        rest = [part for one in _pieces(other) for part in _without(one, self.pieces)]
        return Union(self.dims, (*self.pieces, *rest), self._sizes_with(other))

    def is_subset(self, other: Domain | Union) -> bool:
        """True when `other` has every point."""
        return all(not _without(piece, _pieces(other)) for piece in self.pieces)

    def is_equal(self, other: Domain | Union) -> bool:
        """True when both have the same points, for every value of the sizes."""
        if set(self.dims) != set(other.dims):
            return False
        return self.is_subset(other) and all(not _without(one, self.pieces) for one in _pieces(other))

    def contains(self, values: dict[str, int]) -> bool:
        """True when the point `values` (dimensions and sizes) belongs to a piece."""
        return any(piece.contains(values) for piece in self.pieces)

    def count(self, **sizes: int) -> int:
        """The number of points for these sizes."""
        return sum(piece.count(**sizes) for piece in self.pieces)

    def points(self, **sizes: int) -> Iterator[dict[str, int]]:
        """The points for these sizes, in lexicographic order of `dims`."""
        streams = [piece.points(**sizes) for piece in self.pieces]
        return heapq.merge(*streams, key=lambda point: tuple(point[name] for name in self.dims))

    def sample(self, **sizes: int) -> dict[str, int] | None:
        """A small point: of the points that the pieces give, the one nearest to zero in its first values."""
        found = [point for piece in self.pieces if (point := piece.sample(**sizes)) is not None]
        return min(found, key=lambda point: [(abs(value), value < 0) for value in point.values()], default=None)

    def single(self) -> Domain:
        """The one piece of a union that has one."""
        if len(self.pieces) != 1:
            raise DefinitionError(f"expected one piece, got {len(self.pieces)}", term=self)
        return self.pieces[0]

    def _sizes_with(self, other: Domain | Union) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.sizes, *other.sizes)))

    def __str__(self) -> str:
        if not self.pieces:
            return f"{{ [{', '.join(self.dims)}] : false }}"
        return " or ".join(map(str, self.pieces))


def _pieces(value: Domain | Union) -> tuple[Domain, ...]:
    return value.pieces if isinstance(value, Union) else (value,)


def _without(domain: Domain, removed: Iterable[Domain]) -> list[Domain]:
    parts = [] if domain.is_empty() else [domain]
    for one in removed:
        parts = [part for piece in parts for part in piece.subtract(one).pieces]
    return parts
