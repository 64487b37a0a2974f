"""Parts of a tensor that products read apart from each other are tensors of their own.

    s[i, j] = sum(x[i, 0, k] * x[j, 1, k] for k)
    -->   q[i, k] = x[i, 0, k];  r[j, k] = x[j, 1, k];  s[i, j] = sum(q[i, k] * r[j, k] for k)

Queries, keys and values in one tensor: each part is an operand with a role, and a schedule gives roles and layouts to tensors. Copying
a part is little beside a product, which reads each of its elements many times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod

from tensorexpr.ir import Access, Apply, Axis, Const, Define, Definition, Expr, Index, Program, Reduce, apply, const, integer
from tensorexpr.records import record, replace
from tensorexpr.simplify.passes.amounts import points
from tensorexpr.traversal import bottom_up, children, fresh_name, reads

REUSED = 32
"""How often a product reads each element at least: loading and storing one is then next to nothing."""
Box = tuple[tuple[int, int], ...]
"""The first and the last index of each axis."""


@record
class Read:
    """An access in a definition, the part of its tensor that it reads, and how often it reads each element in a product (0: in none)."""

    owner: str
    access: Access
    box: Box | None
    often: float = 0.0


def with_slices(program: Program) -> Program:
    """The program with definitions of the parts of tensors that products read, where they are apart.

    Requires: a simplified program. Ensures: every value is kept bit for bit.
    """
    found: dict[str, list[Read]] = {}
    for d in program.definitions:
        if isinstance(d, Define):
            for one in _reads(d, d.value, d.axes, False):
                name = one.access.tensor
                found.setdefault(name, []).append(replace(one, box=_inside(one.box, program.types[name].shape)))
        else:
            for name in reads(d):
                found.setdefault(name, []).append(Read(d.results[0][0], Access(name, (), program.types[name].dtype), None))
    taken = {*program.types, *program.sizes, *(n for d in program.definitions for n, _ in d.results)}
    made: dict[str, dict[Box, Define]] = {}
    moved: dict[tuple[str, Access], Access] = {}
    for name, all_reads in found.items():
        parts = _apart(all_reads)
        for one in all_reads if len(parts) > 1 else ():
            box = next(part for part in parts if one.box is not None and _meet(part, one.box))
            if one.often >= REUSED and sum(o.owner == one.owner and o.access == one.access for o in all_reads) == 1:
                own = made.setdefault(name, {})
                if box not in own:
                    own[box] = _part(one.access, box, fresh_name(f"{name}_part", taken))
                moved[one.owner, one.access] = _moved(one.access, box, own[box].name)
    if not moved:
        return program
    definitions: list[Definition] = [
        part for n in (*(i.name for i in program.inputs), *(c.name for c in program.constants)) for part in made.get(n, {}).values()
    ]
    for d in program.definitions:
        if isinstance(d, Define):
            d = replace(d, value=bottom_up(d.value, partial(_put, moved, d.name)))
        definitions += [d, *(part for name, _ in d.results for part in made.get(name, {}).values())]
    return replace(program, definitions=tuple(definitions))


def _put(moved: Mapping[tuple[str, Access], Access], owner: str, e: Expr) -> Expr:
    return moved.get((owner, e), e) if isinstance(e, Access) else e


def _reads(d: Define, e: Expr, axes: tuple[Axis, ...], in_product: bool) -> Iterator[Read]:
    if isinstance(e, Access):
        ranges = {a.index: range_of(a) for a in axes}
        box = [interval_of(index, ranges) for index in e.indices]
        known = tuple(b for b in box if b is not None)
        often = points(axes) / max(prod(b - a + 1 for a, b in known), 1) if in_product else 0.0
        yield Read(d.name, e, known, often) if len(known) == len(box) else Read(d.name, e, None)
    product = isinstance(e, Reduce) and e.combiner.name == "sum" and isinstance(e.values[0], Apply) and e.values[0].op.name == "mul"
    in_product = product or (in_product and isinstance(e, Apply) and e.op.name == "mul")
    axes = (*axes, *e.axes) if isinstance(e, Reduce) else axes
    for child in children(e):
        yield from _reads(d, child, axes, in_product)


def _inside(box: Box | None, shape: Sequence[Expr]) -> Box | None:
    """What of a box lies in its tensor: beyond it a condition keeps the read from being made. None where that is not known."""
    if box is None or not all(isinstance(extent, Const) for extent in shape):
        return None
    found = tuple((max(a, 0), min(b, integer(extent) - 1)) for (a, b), extent in zip(box, shape, strict=True))
    return found if all(a <= b for a, b in found) else None


def range_of(axis: Axis) -> tuple[int, int] | None:
    """The first and the last index of an axis of literal bounds that has points."""
    if isinstance(axis.start, Const) and isinstance(axis.stop, Const) and axis.start.value < axis.stop.value:
        return int(axis.start.value), int(axis.stop.value) - 1
    return None


def interval_of(e: Expr, ranges: dict[str, tuple[int, int] | None]) -> tuple[int, int] | None:
    """The least and the greatest that a sum of indices, and of products of them with literals, can be."""
    if isinstance(e, Const):
        return int(e.value), int(e.value)
    if isinstance(e, Index):
        return ranges.get(e.name)
    if isinstance(e, Apply) and e.op.name in ("add", "sub", "mul"):
        left, right = (interval_of(part, ranges) for part in e.args)
        if left is None or right is None or (e.op.name == "mul" and not any(isinstance(part, Const) for part in e.args)):
            return None
        (a, b), (c, d) = left, right
        ends = {"add": (a + c, b + d), "sub": (a - d, b - c), "mul": (a * c, a * d, b * c, b * d)}[e.op.name]
        return min(ends), max(ends)
    return None


def _apart(reads: list[Read]) -> list[Box]:
    """The parts of a tensor that are read, each apart from all others; none where it is read as a whole."""
    parts: list[Box] = []
    for one in reads:
        if not one.box:
            return []
        box = one.box
        while meeting := [other for other in parts if _meet(other, box)]:
            parts = [other for other in parts if other not in meeting]
            for other in meeting:
                box = tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(box, other, strict=True))
        parts.append(box)
    return parts


def _meet(one: Box, other: Box) -> bool:
    return all(a <= d and c <= b for (a, b), (c, d) in zip(one, other, strict=True))


def _part(access: Access, box: Box, name: str) -> Define:
    """The part of a tensor that an access reads, without the axes of which it has one index."""
    axes = {at: Axis(f"{name}_{at}", const(0), const(b - a + 1)) for at, (a, b) in enumerate(box) if a < b}
    indices = tuple(beyond(Index(axes[at].index), a) if at in axes else const(a) for at, (a, _) in enumerate(box))
    return Define(name, tuple(axes.values()), Access(access.tensor, indices, access.dtype))


def _moved(access: Access, box: Box, name: str) -> Access:
    indices = tuple(beyond(e, -a) for e, (a, b) in zip(access.indices, box, strict=True) if a < b)
    return Access(name, indices, access.dtype, access.location)


def beyond(e: Expr, offset: int) -> Expr:
    """An index so much further."""
    if isinstance(e, Apply) and e.op.name in ("add", "sub") and isinstance(e.args[1], Const):
        offset += int(e.args[1].value) * (1 if e.op.name == "add" else -1)
        e = e.args[0]
    return e if offset == 0 else apply("add", e, const(offset)) if offset > 0 else apply("sub", e, const(-offset))
