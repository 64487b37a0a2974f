"""The report on a gradient: for each read, how it was turned around and how its work compares with the number of reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tensorexpr.autodiff.contributions import Contribution
from tensorexpr.autodiff.pieces import split
from tensorexpr.errors import ArgumentError
from tensorexpr.integers import Domain
from tensorexpr.ir import Access, Axis, Expr, Size, const
from tensorexpr.regions import domain_of
from tensorexpr.traversal import bottom_up, map_axes, size_names, walk


class Row(NamedTuple):
    """One read as written: of `tensor` by `consumer` at `access`.

    `lowering` is how its adjoint is computed: "substitute", "reshape", "lattice", "residues", "pieces" (gathers), "segments" or
    "atomics" (scatters). `iterations` is what the derived loops visit, `reads` how often the forward pass reads (conditions on
    data are not regarded; a reduction that does not depend on the loops around it is taken out of them, as compiled code does,
    and its reads count once); both are numbers, or functions of the symbolic sizes: `row.reads(m=7)`. None where the bounds of a
    loop hang on data.
    """

    tensor: str
    consumer: str
    access: str
    lowering: str
    iterations: int | Callable[..., int] | None
    reads: int | Callable[..., int] | None


Space = tuple[tuple[Axis, ...], tuple[Expr, ...]]
"""Axes and guards: the points of the axes at which the guards hold."""


@dataclass(frozen=True, slots=True)
class Count:
    """The number of points of disjoint spaces, as a function of the sizes that occur in them."""

    spaces: tuple[Space, ...]

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of the sizes."""
        return tuple(dict.fromkeys(name for axes, guards in self.spaces for e in _expressions(axes, guards) for name in size_names(e)))

    def __call__(self, **sizes: int) -> int:
        missing = [name for name in self.sizes if name not in sizes]
        if missing:
            raise ArgumentError(f"expected a value for every size, got none for {', '.join(missing)}", hint="row.reads(n=7)")
        values = {name: const(value) for name, value in sizes.items()}

        def known(expr: Expr) -> Expr:
            return bottom_up(expr, lambda node: values.get(node.name, node) if isinstance(node, Size) else node)

        return sum(points(map_axes(axes, known), tuple(map(known, guards))).count() for axes, guards in self.spaces)

    def __str__(self) -> str:
        return f"f({', '.join(self.sizes)})"

    def __repr__(self) -> str:
        return f"<count by {', '.join(self.sizes)}: call it with these sizes>"


@dataclass(frozen=True, slots=True)
class Report:
    """A table of `rows`; `print` shows it."""

    rows: tuple[Row, ...]

    def __str__(self) -> str:
        lines = [("tensor", "consumer", "access", "lowering", "iterations", "reads", "ratio")]
        for row in self.rows:
            known = isinstance(row.iterations, int) and isinstance(row.reads, int) and row.reads
            ratio = f"{row.iterations / row.reads:.2f}" if known else ""  # type: ignore[operator]
            lines.append((row.tensor, row.consumer, row.access, row.lowering, _text(row.iterations), _text(row.reads), ratio))
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        return "\n".join(_line(line, widths) for line in lines)

    def __repr__(self) -> str:
        return str(self)


def _text(count: int | Callable[..., int] | None) -> str:
    return "by data" if count is None else str(count)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    texts = [cell.ljust(width) if at < 4 else cell.rjust(width) for at, (cell, width) in enumerate(zip(cells, widths, strict=True))]
    return "  ".join(texts).rstrip()


def count_of(spaces: Sequence[Space]) -> int | Count | None:
    """The number of points of disjoint spaces: a number where no size occurs in them, None where a bound hangs on data."""
    bounds = (bound for axes, _ in spaces for axis in axes for bound in (axis.start, axis.stop))
    if any(isinstance(node, Access) for bound in bounds for node in walk(bound)):
        return None
    count = Count(tuple(spaces))
    return count if count.sizes else count()


def reads_of(contribution: Contribution) -> list[Space]:
    """Where a contribution reads, in disjoint spaces."""
    pieces = split((), contribution.axes, contribution.guards)
    return [(contribution.axes, guards) for _, guards in pieces or [((), contribution.guards)]]


def points(axes: Sequence[Axis], guards: Sequence[Expr]) -> Domain:
    """The points of axes and those guards that are affine; what hangs on data is left out."""
    region = domain_of(axes, guards)
    hidden = set(region.opaque.names.values())
    if not hidden:
        return region.domain
    kept = [c for c in region.domain.constraints if hidden.isdisjoint(c.names())]
    return Domain(region.domain.dims, kept, [name for name in region.domain.sizes if name not in hidden])


def _expressions(axes: Sequence[Axis], guards: Sequence[Expr]) -> Iterator[Expr]:
    for axis in axes:
        yield axis.start
        yield axis.stop
    yield from guards
