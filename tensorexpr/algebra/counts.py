"""Operations of a reduction as it is written, and of tables in its place: whether algebra pays.

Counted are scalar operations, loads and stores, over boxes around the loops; an open size counts as `OPEN`. What a table saves grows with
the length of what is combined, so the figures that matter are small ones: a prefix of 4 points in place of 10 terms.
"""

from __future__ import annotations

from math import prod

from tensorexpr.algebra.sharing import Shared
from tensorexpr.integers import Domain
from tensorexpr.ir import Access, Apply, Axis, Expr
from tensorexpr.records import record
from tensorexpr.traversal import walk

OPEN = 256
"""Iterations that an open size counts for: a choice has to be made, and few arrays are shorter."""
LANES = 80
CLIPPED = 160
ALONE = 256
"""What a position of the two tables of a window costs beside its terms, in operations of the window as written, which go in lanes with
no order among them: with other indices in the lanes of the table; where some positions have no term, so that they are not loaded in square
tiles; and without other indices. Measured on 2^18 to 2^20 elements of float32, AVX-512, one thread: windows are level with tables at
widths of 21 to 80, of some 200 (clipped windows, whose tables have more positions), and of 78 to 125 (where a second core would help
the window alone)."""
MASKED = 6
"""What a position of a prefix costs more where the table is no box, so that some positions have no term: measured so, ranges [i, j) of
8 points take as long both ways."""


@record
class Count:
    """Operations as written and with tables, and how many points each table has."""

    direct: int
    shared: int
    points: int

    @property
    def pays(self) -> bool:
        return self.shared < self.direct


def counted(shared: Shared) -> Count:
    """The operations of a reduction, with one way to share its terms."""
    reduction = shared.site.reduction
    points = _fixed(shared.points)
    results = _extents(points, (*shared.site.axes, *shared.outer))
    inner = _extents(points, shared.inner)
    term = inner * (1 + sum(map(operations, reduction.values)))
    table = _fixed(shared.table)
    length = _extent(table, shared.along)
    kept = prod(_extent(table, name) for name in shared.kept)
    size = length * kept
    width = shared.width()
    if all(shared.moving) and width is not None:
        step = ALONE if kept == 1 else CLIPPED if shared.base else LANES
        return Count(results * width * term, 2 * size * (term + step) + results * 2, size)
    masked = any(len(facet.names()) > 1 for facet in table.constraints)
    return Count(results * length * term // 2, size * (term + 1 + MASKED * masked) + results, size)


def operations(expr: Expr) -> int:
    """Operations and loads of an expression; index arithmetic counts as what it is around."""
    found, stack = 0, [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, Access):
            found += 1
        elif isinstance(node, Apply):
            found += node.op.cost
            stack += node.args
        else:
            stack += [n for n in walk(node) if isinstance(n, Access)]
    return found


def _fixed(domain: Domain) -> Domain:
    return domain.with_sizes(**dict.fromkeys(domain.sizes, OPEN))


def _extents(domain: Domain, axes: tuple[Axis, ...]) -> int:
    return prod(_extent(domain, axis.index) for axis in axes)


def _extent(domain: Domain, name: str) -> int:
    low, high = domain.range(name)
    return 0 if low is None or high is None else high - low + 1
