"""The report on a gradient: for each read, how it was turned around and how its work compares with the number of reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tensorexpr.autodiff.contributions import Contribution
from tensorexpr.autodiff.pieces import split
from tensorexpr.integers import Domain
from tensorexpr.ir import Axis, Expr
from tensorexpr.regions import domain_of


class Row(NamedTuple):
    """One read as written: of `tensor` by `consumer` at `access`.

    `lowering` is how its adjoint is computed: "substitute", "reshape", "lattice", "residues", "pieces" (gathers), "segments" or
    "atomics" (scatters). `iterations` is what the derived loops visit, `reads` how often the forward pass reads (conditions on
    data are not regarded); both are numbers, or functions of the symbolic sizes: `row.reads(m=7)`.
    """

    tensor: str
    consumer: str
    access: str
    lowering: str
    iterations: int | Callable[..., int]
    reads: int | Callable[..., int]


@dataclass(frozen=True, slots=True)
class Count:
    """The number of points of disjoint domains, as a function of the sizes."""

    domains: tuple[Domain, ...]

    def __call__(self, **sizes: int) -> int:
        return sum(d.count(**{name: value for name, value in sizes.items() if name in d.sizes}) for d in self.domains)

    def __str__(self) -> str:
        names = dict.fromkeys(name for d in self.domains for name in d.sizes)
        return f"f({', '.join(names)})"


@dataclass(frozen=True, slots=True)
class Report:
    """A table of `rows`; `print` shows it."""

    rows: tuple[Row, ...]

    def __str__(self) -> str:
        lines = [("tensor", "consumer", "access", "lowering", "iterations", "reads", "ratio")]
        for row in self.rows:
            known = isinstance(row.iterations, int) and isinstance(row.reads, int) and row.reads
            ratio = f"{row.iterations / row.reads:.2f}" if known else ""  # type: ignore[operator]
            lines.append((row.tensor, row.consumer, row.access, row.lowering, str(row.iterations), str(row.reads), ratio))
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        return "\n".join(_line(line, widths) for line in lines)

    def __repr__(self) -> str:
        return str(self)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    texts = [cell.ljust(width) if at < 4 else cell.rjust(width) for at, (cell, width) in enumerate(zip(cells, widths, strict=True))]
    return "  ".join(texts).rstrip()


def count_of(domains: Sequence[Domain]) -> int | Count:
    """The number of points of disjoint domains: a number where no size occurs in them."""
    count = Count(tuple(domains))
    return count if any(d.sizes for d in domains) else count()


def reads_of(contribution: Contribution) -> list[Domain]:
    """The points at which a contribution reads, in disjoint domains."""
    pieces = split((), contribution.axes, contribution.guards)
    return [points(contribution.axes, guards) for _, guards in pieces or [((), contribution.guards)]]


def points(axes: Sequence[Axis], guards: Sequence[Expr]) -> Domain:
    """The points of axes and those guards that are affine; what hangs on data is left out."""
    region = domain_of(axes, guards)
    hidden = set(region.opaque.names.values())
    if not hidden:
        return region.domain
    kept = [c for c in region.domain.constraints if hidden.isdisjoint(c.names())]
    return Domain(region.domain.dims, kept, [name for name in region.domain.sizes if name not in hidden])
