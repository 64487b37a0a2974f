"""The report on a gradient: for each read, how it was turned around and how its work compares with the number of reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tensorexpr.autodiff.counts import Count, DataCount


class Row(NamedTuple):
    """One read as written: of `tensor` by `consumer` at `access`.

    `lowering` is how its adjoint is computed: "substitute", "reshape", "lattice", "residues", "pieces" (gathers), "segments" or
    "atomics" (scatters). `iterations` is what the derived loops visit, `reads` how often the forward pass reads (conditions on
    data are not regarded; a reduction that does not depend on the loops around it is taken out of them, as compiled code does,
    and its reads count once); both are numbers, or a `Count` of the symbolic sizes: `row.reads(m=7)` is the exact number and
    `str(row.reads)` the formula. Where the bounds of a loop hang on data, a `DataCount` of what they read:
    `row.reads(offsets=array)`.
    """

    tensor: str
    consumer: str
    access: str
    lowering: str
    iterations: int | Count | DataCount
    reads: int | Count | DataCount


@dataclass(frozen=True, slots=True)
class Report:
    """A table of `rows`; `print` shows it.

    Where there are sizes, numbers are formulas of them, and `f(n)` where no closed form was found (the count itself, called
    with the sizes, is exact all the same). The ratio is 1.00 where both formulas are the same or both counts agree at all
    of the smallest sizes.
    """

    rows: tuple[Row, ...]

    def __str__(self) -> str:
        lines = [("tensor", "consumer", "access", "lowering", "iterations", "reads", "ratio")]
        for row in self.rows:
            ratio = ratio_of(row)
            lines.append((row.tensor, row.consumer, row.access, row.lowering, str(row.iterations), str(row.reads), ratio))
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        table = [_line(line, widths) for line in lines]
        if any(isinstance(count, Count) and count.polynomial is None for row in self.rows for count in (row.iterations, row.reads)):
            table.append("f(...): no closed form was found; the count is exact when called with the sizes")
        return "\n".join(table)

    def __repr__(self) -> str:
        return str(self)


def ratio_of(row: Row) -> str:
    """Iterations per read as the table shows it, empty where it is not one number."""
    iterations, reads = row.iterations, row.reads
    if isinstance(iterations, Count) and isinstance(reads, Count):
        return "1.00" if iterations.is_always(reads) else ""
    return f"{iterations / reads:.2f}" if isinstance(iterations, int) and isinstance(reads, int) and reads else ""


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    texts = [cell.ljust(width) if at < 4 else cell.rjust(width) for at, (cell, width) in enumerate(zip(cells, widths, strict=True))]
    return "  ".join(texts).rstrip()
