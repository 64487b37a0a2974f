"""The report on a gradient: for each read, how it was turned around and how its work compares with the number of reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tensorexpr.autodiff.data.segments import is_settled_by_data
from tensorexpr.autodiff.invert.counts import Count, DataCount, Space, count_of, reads_of, rounds_in_vain
from tensorexpr.autodiff.local.contributions import Contribution
from tensorexpr.autodiff.sweep.accumulate import Flow, scatter_of
from tensorexpr.autodiff.sweep.reverse import Around, Received
from tensorexpr.autodiff.sweep.sharing import one_of
from tensorexpr.ir import Access, Axis, Expr, Index, Input, Program, Scatter, TensorType, apply
from tensorexpr.markup import MOST_ROWS, amount, listed, listing, page, table
from tensorexpr.records import record, replace
from tensorexpr.text import print_expr
from tensorexpr.traversal import bottom_up, expressions, fresh_name, reads, size_names, substitute

how_scattered: list[Callable[[Program], str]] = []
"""What the default schedule makes of a program that is one scatter, in words. Derivatives know no schedules: the package's front door puts
here what does."""


_HEADINGS = ("tensor", "consumer", "access", "lowering", "iterations", "reads", "ratio")


class Row(NamedTuple):
    """One read as written: of `tensor` by `consumer` at `access`.

    `lowering` is how its adjoint is computed: "substitute", "reshape", "lattice", "residues", "pieces" (gathers), "segments"
    (sorted by the places that are read) or "atomics" (a scatter). `iterations` is what the derived loops visit, innermost, and the
    rounds of loops around that are empty because a loop in them is empty there; `reads` how often the forward pass reads as
    it is written. Conditions on data are not regarded. A reduction that does not depend on all the loops around it is computed
    once for the indices that it does depend on, forward and backward; both numbers count it once for each point of these loops,
    as written. They are numbers, or a `Count` of the symbolic sizes: `row.reads(m=7)` is the exact number and `str(row.reads)` the
    formula; where the bounds of a loop depend on data, a `DataCount` of what they read: `row.reads(offsets=array)`.
    """

    tensor: str
    consumer: str
    access: str
    lowering: str
    iterations: int | Count | DataCount
    reads: int | Count | DataCount


@record
class Report:
    """A table of `rows`; `print` shows it.

    Where there are sizes, numbers are formulas of them, and `f(n)` where no closed form was found (the count itself, called
    with the sizes, is exact all the same). The ratio is 1.00 where both formulas are the same or both counts agree at all
    of the smallest sizes.
    """

    rows: tuple[Row, ...]
    scattered: tuple[tuple[str, Program], ...] = ()
    """The accesses of rows called "segments" whose number of points is data, which have no plan, and what they send as a scatter."""

    def __str__(self) -> str:
        lines: list[tuple[str, ...]] = [_HEADINGS]
        for row in self.rows:
            ratio = ratio_of(row)
            lines.append((row.tensor, row.consumer, row.access, row.lowering, str(row.iterations), str(row.reads), ratio))
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        return "\n".join([*(_line(line, widths) for line in lines), *self._notes(self.rows)])

    def _notes(self, rows: Sequence[Row]) -> Iterator[str]:
        """What stands below the table of these rows."""
        if any(isinstance(count, Count) and count.polynomial is None for row in rows for count in (row.iterations, row.reads)):
            yield "f(...): no closed form was found; the count is exact when called with the sizes"
        named = {row.access for row in rows}
        for access, scatter in ((access, scatter) for access, scatter in self.scattered if access in named):
            yield f"{access}: rows of data, no plan; {how_scattered[0](scatter)} (te.autoschedule)"

    def __repr__(self) -> str:
        found = Counter(row.lowering for row in self.rows)
        return f"<report on {amount(len(self.rows), 'read')}: {listed([f'{number} {name}' for name, number in found.items()])}>"

    def _repr_html_(self) -> str:
        shown = table(_HEADINGS, self.rows, lambda row: (*row, ratio_of(row)))
        return page(shown, *map(listing, self._notes(self.rows[:MOST_ROWS])))


def rows_of(
    tensor: str,
    received: Received,
    around: Mapping[str, Sequence[Around]],
    labels: Mapping[str, str],
    types: Mapping[str, TensorType],
    extents: Sequence[Expr],
) -> list[tuple[Row, Program | None]]:
    """What a tensor received, one row for each access object of each consumer, and what it sends as a scatter if nothing is gathered.

    `around` tells where reductions stood that became definitions, `labels` the names that users see, `types` those of all
    tensors, `extents` the extents of the tensors of the forward pass.
    """

    def labeled(node: Expr) -> Expr:
        return replace(node, tensor=labels.get(node.tensor, node.tensor)) if isinstance(node, Access) else node

    grouped: dict[tuple[str, int], list[tuple[Access, tuple[Expr, ...], Flow]]] = {}
    for one in received.flows:
        for access, conditions in one.contribution.reads:
            grouped.setdefault((one.consumer, id(access)), []).append((access, conditions, one))
    rows = []
    of = [axis.stop for axis in received.target]
    for (consumer, _), items in grouped.items():
        visited: list[Space] = []
        read: list[Space] = []
        for one, own, shared in _reads_once(items):
            reading = one.read or one.contribution
            indices: dict[str, Expr] = {axis.index: Index(axis.index) for axis in reading.axes}
            read += _as_written(own, one.definition, indices, around)
            # A visit for each read; of a loop that serves several reads those in which this one takes part.
            if one.gathers is None or shared or any(map(is_settled_by_data, one.gathers)):
                visited += _as_written(own, one.definition, indices, around)
                continue
            for gather in one.gathers:
                space = ((*received.target, *gather.axes), gather.outer)
                visited += _as_written([space], one.definition, gather.values, around)
                visited += rounds_in_vain(received.target, gather.axes, gather.outer)
        lowerings = list(dict.fromkeys(one.lowering for _, _, one in items))
        row = Row(
            labels.get(tensor, tensor),
            labels.get(consumer, consumer),
            print_expr(bottom_up(items[0][0], labeled)),
            lowerings[0] if len(lowerings) == 1 else "pieces",
            count_of(visited, extents, types, labels, of),
            count_of(read, extents, types, labels, of),
        )
        gathered = any(one.gathers is not None for _, _, one in items)
        rows.append((row, None if gathered else _as_program(scatter_of(items[0][2], f"{tensor}_bar", types[tensor]), types)))
    return rows


def _as_program(scatter: Scatter, types: Mapping[str, TensorType]) -> Program:
    """A scatter by itself."""
    sizes = dict.fromkeys(name for e in (*expressions(scatter), *scatter.type.shape) for name in size_names(e))
    inputs = tuple(Input(name, types[name]) for name in reads(scatter))
    sizes |= dict.fromkeys(name for given in inputs for e in given.type.shape for name in size_names(e))
    return Program(inputs, (), (scatter,), (scatter.name,), tuple(sizes))


def _reads_once(items: Sequence[tuple[Access, tuple[Expr, ...], Flow]]) -> list[tuple[Flow, list[Space], bool]]:
    """The flows of one access object, those of one place in the program together, with the points at which it reads, each of them
    once; and whether something else is visited there, too: another read, or this one under another condition."""
    together: dict[tuple[str, Access, tuple[Axis, ...]], list[tuple[Flow, Contribution, tuple[Expr, ...]]]] = {}
    for _, conditions, one in items:
        reading = one.read or one.contribution
        together.setdefault((one.definition, reading.access, reading.axes), []).append((one, reading, conditions))
    found = []
    for uses in together.values():
        one, reading, conditions = uses[0]
        guards = one_of([(*use.guards, *own) for _, use, own in uses])
        found.append((one, reads_of(replace(reading, guards=guards)), bool(conditions) or len(uses) > 1))
    return found


def _as_written(spaces: list[Space], definition: str, indices: Mapping[str, Expr], around: Mapping[str, Sequence[Around]]) -> list[Space]:
    """Each point of the spaces once for every point at which the definition, made of a reduction, is evaluated as written.

    `indices` gives the axes of the definition over the spaces. What is not made of a reduction stays as it is.
    """
    found = []
    for one in around.get(definition, ()):
        for axes, guards in spaces:
            taken = {axis.index for axis in (*axes, *one.place.axes)}
            moved: dict[str, Expr] = {axis.index: Index(fresh_name(axis.index, taken)) for axis in one.place.axes}
            outer = tuple(
                Axis(name.name, substitute(axis.start, moved), substitute(axis.stop, moved))
                for axis, name in zip(one.place.axes, moved.values(), strict=True)
                if isinstance(name, Index)
            )
            conditions = [substitute(guard, moved) for guard in one.place.guards]
            for axis, index in zip(one.axes, one.indices, strict=True):
                conditions.append(apply("eq", substitute(index, moved), indices[axis.index]))
            found += _as_written([((*axes, *outer), (*guards, *conditions))], one.owner, moved, around)
    return found if definition in around else spaces


def ratio_of(row: Row) -> str:
    """Iterations per read as the table shows it, empty where data decides or nothing is read."""
    iterations, reads = row.iterations, row.reads
    if isinstance(iterations, Count) and isinstance(reads, Count):
        return "1.00" if iterations.is_always(reads) else "not 1"
    return f"{iterations / reads:.2f}" if isinstance(iterations, int) and isinstance(reads, int) and reads else ""


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    texts = [cell.ljust(width) if at < 4 else cell.rjust(width) for at, (cell, width) in enumerate(zip(cells, widths, strict=True))]
    return "  ".join(texts).rstrip()
