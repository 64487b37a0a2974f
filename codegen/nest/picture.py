"""A loop nest as a picture for notebooks: a box per loop inside the box of the loop around it, with what each level costs.

Beside a loop stand its iterations in all, and the scalar operations inside of it as `codegen.cost` counts them on integer sets, with
a bar for their share of the nest; beside a local buffer its bytes. A condition on data counts as true there, and inside a loop
whose bounds are data, as in a nest with sizes, nothing is counted. Boxes of loops whose iterations run at once are darker. The picture is
SVG in the colour of the text around it, without styles.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Sequence

from tensorexpr.codegen.cost import Points, count_of, work
from tensorexpr.codegen.nest import GRID, LANES, THREADS, Alloc, Block, Buffer, For, If, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.text import print_block
from tensorexpr.codegen.nest.walks import statements
from tensorexpr.integers.solving.effort import DomainTooComplex, at_most
from tensorexpr.ir import Axis, Const, Expr, conjuncts
from tensorexpr.markup import MOST_ROWS, more, one_line, page, paragraph, table
from tensorexpr.records import record
from tensorexpr.regions import bound_constraints
from tensorexpr.text import print_expr
from tensorexpr.traversal import is_within, negate, tensors_read

_ROW, _INDENT, _LETTER, _BAR = 20, 16, 7.3, 80
"""Pixels: a row, a level, a letter of the code, a bar of all operations."""
_LONGEST = 72
_READABLE = (120, 40)
"""Nodes of an expression that is shown, in all and inside each other."""
_COUNTABLE = (1000, 80)
"""Nodes of a value whose operations are counted, in all and inside each other."""
_EFFORT = 200_000
"""Steps of the solver for all counts of a picture."""
_COUNTED = 400
"""Statements of a nest that is counted."""
_SHADES = dict.fromkeys(("parallel", *GRID, *THREADS), 0.22) | dict.fromkeys((*LANES, "tensorize"), 0.14) | {"unroll": 0.08}


@record
class Line:
    """A line of the picture: how deep, the code, how many lines stand in its box, the shade of that, and its numbers, where known."""

    depth: int
    text: str
    height: int = 1
    shade: float = 0.0
    iterations: int | None = None
    operations: int | None = 0
    bytes: int | None = None


class _Counts:
    """What levels cost; None for what is not known, or would take too long to find out."""

    def __init__(self, nest: LoopNest) -> None:
        count = sum(1 for kernel in nest.kernels for _ in statements(kernel.body))
        self._known: dict[Points, int | None] = {}
        self._open = bool(nest.sizes) or count > _COUNTED

    def points(self, axes: tuple[Axis, ...], guards: tuple[Expr, ...]) -> int | None:
        """The iterations of the loops around at which the guards hold."""
        if self._open or not all(map(_is_exact, axes)):
            return None
        key = (axes, guards)
        if key not in self._known:
            try:
                self._known[key] = count_of(axes, guards, {})
            except DomainTooComplex:
                self._known[key] = None
        return self._known[key]

    def operations(self, value: Expr, axes: tuple[Axis, ...], guards: tuple[Expr, ...]) -> int | None:
        """The scalar operations of all evaluations of a value."""
        if self._open or not is_within(value, *_COUNTABLE) or self.points(axes, guards) is None:
            return None
        found = [(self.points(*at), weight) for at, weight in work(value, axes, guards)]
        return _total(None if points is None else points * weight for points, weight in found)


def picture(nest: LoopNest) -> str:
    """The nest as HTML: its buffers as a table, its kernels as pictures."""
    buffers = [*nest.parameters, *nest.workspace]
    types = table(("buffer", "memory", "dtype", "shape", "bytes"), buffers, _buffer_cells)
    with at_most(_EFFORT):
        lines = list(_kernels(nest))
    rest = len(lines) - MOST_ROWS
    return page(types, drawing(lines[:MOST_ROWS]), paragraph(more(rest, "line")) if rest > 0 else "")


def drawing(lines: Sequence[Line]) -> str:
    """The lines as SVG."""
    code = max((len(line.text) * _LETTER + (line.depth + 1) * _INDENT for line in lines), default=0)
    at = [round(code) + 16 + step for step in (90, 200, 200 + 16 + _BAR, 390)]
    width, height = at[-1] + 8, (len(lines) + 1) * _ROW + 8
    most = max((line.operations or 0 for line in lines), default=0)
    titles = [(at[0], "iterations"), (at[1], "operations")]
    titles += [(at[3], "bytes")] if any(line.bytes is not None for line in lines) else []
    parts = [_text(x, 0, title, "end") for x, title in titles]
    for number, line in enumerate(lines, 1):
        if line.shade:
            inner = min(line.height, len(lines) - number + 1) * _ROW
            left = line.depth * _INDENT + 4
            box = f'x="{left}" y="{number * _ROW + 2}" width="{max(1, round(code) + 8 - left)}" height="{inner - 2}" rx="3"'
            parts.append(f'<rect {box} fill="currentColor" fill-opacity="{line.shade}" stroke="currentColor" stroke-opacity="0.5"/>')
        parts.append(_text((line.depth + 1) * _INDENT - 4, number, line.text))
        for x, value in ((at[0], line.iterations), (at[1], line.operations or None), (at[3], line.bytes)):
            parts += [] if value is None else [_text(x, number, f"{value:,}", "end")]
        if line.operations and most:
            bar = f'x="{at[1] + 12}" y="{number * _ROW + 6}" width="{math.ceil(_BAR * line.operations / most)}" height="{_ROW - 10}"'
            parts.append(f'<rect {bar} fill="currentColor" fill-opacity="0.4"/>')
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    font = 'font-family="monospace" font-size="12" fill="currentColor"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} {font}>\n' + "\n".join(parts) + "\n</svg>"


def _text(x: int, row: int, text: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{row * _ROW + 16}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _buffer_cells(buffer: Buffer) -> Sequence[object]:
    size = _bytes(buffer)
    shape = ", ".join(map(_shown, buffer.shape))
    return (buffer.name, buffer.memory, buffer.dtype.name, f"[{shape}]", "" if size is None else size)


def _bytes(buffer: Buffer) -> int | None:
    """The bytes of a buffer whose extents are known."""
    extents = [int(extent.value) for extent in buffer.shape if isinstance(extent, Const)]
    return math.prod(extents) * buffer.dtype.itemsize if len(extents) == len(buffer.shape) else None


# ---------------------------------------------------------------------------------------------------- lines


def _kernels(nest: LoopNest) -> Iterator[Line]:
    counts = _Counts(nest)
    for number, kernel in enumerate(nest.kernels):
        inner = list(_lines(kernel.body, 1, (), (), counts))
        yield Line(0, one_line(f"kernel {number}: {kernel.name}", _LONGEST), operations=_inside(inner))
        yield from inner


def _lines(block: Block, depth: int, axes: tuple[Axis, ...], guards: tuple[Expr, ...], counts: _Counts) -> Iterator[Line]:
    for statement in block:
        text = _code(statement)
        match statement:
            case For():
                around = (*axes, Axis(statement.index, statement.start, statement.stop))
                inner = list(_lines(statement.body, depth + 1, around, guards, counts))
                shade = _SHADES.get(statement.kind, 0.03)
                times = counts.points(around, guards)
                yield Line(depth, text, len(inner) + 1, shade, times, None if times is None else _inside(inner))
                yield from inner
            case If():
                yield Line(depth, text, operations=counts.operations(statement.condition, axes, guards))
                yield from _lines(statement.then, depth + 1, axes, (*guards, *conjuncts(statement.condition)), counts)
                if statement.otherwise:
                    yield Line(depth, "else:")
                    yield from _lines(statement.otherwise, depth + 1, axes, (*guards, negate(statement.condition)), counts)
            case Alloc():
                yield Line(depth, text, bytes=_bytes(statement.buffer))
                yield from _lines(statement.body, depth, axes, guards, counts)
            case Store():
                yield Line(depth, text, operations=counts.operations(statement.value, axes, guards))
            case _:
                yield Line(depth, text)


def _is_exact(axis: Axis) -> bool:
    """Whether integer sets know the bounds of a loop, which depend on no data."""
    data = any(map(tensors_read, (axis.start, axis.stop)))
    return not data and bound_constraints(axis.index, axis)[1]


def _inside(lines: Iterable[Line]) -> int | None:
    """The operations of the statements among the lines."""
    return _total(line.operations for line in lines if not line.shade)


def _total(numbers: Iterable[int | None]) -> int | None:
    """The sum, None where some number is not known."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def _code(statement: Stmt) -> str:
    """The first line of a statement."""
    match statement:
        case For():
            exprs: tuple[Expr, ...] = (statement.start, statement.stop)
        case If():
            exprs = (statement.condition,)
        case Store():
            exprs = (*statement.indices, statement.value)
        case _:
            exprs = ()
    if all(is_within(expr, *_READABLE) for expr in exprs):
        return one_line(next(print_block((statement,))), _LONGEST)
    return f"{statement.buffer}[...] = ..." if isinstance(statement, Store) else f"{type(statement).__name__.lower()} ..."


def _shown(expr: Expr) -> str:
    return print_expr(expr) if is_within(expr, *_READABLE) else "..."
