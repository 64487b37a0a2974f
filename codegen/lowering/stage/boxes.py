"""Boxes: the part of a tensor that statements read, where it has the same extents in every iteration of the loops around.

    for i in range(0, 64): for j in range(0, 3):
        ... a[i + j + i_o * 64, 2 * j] ...          -->     a[i_o * 64 : i_o * 64 + 66, 0 : 5], certain to lie in a or not

Along each axis an index is taken apart into what the loops outside say and what those inside add. The latter has to be affine in loops
of constant bounds; where it has quotients, it is evaluated at all points of the loops that it depends on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product as points
from math import prod
from types import MappingProxyType

from tensorexpr.codegen.lowering.context.arithmetic import constant
from tensorexpr.codegen.lowering.stage.panels import Panel
from tensorexpr.codegen.nest import Alloc, Block, Check, For, If, Store
from tensorexpr.codegen.nest.walks import inside, iterations, statements
from tensorexpr.dtypes import DType
from tensorexpr.integers import Affine
from tensorexpr.integers.forms.affine import Atom
from tensorexpr.ir import Access, Apply, Expr
from tensorexpr.records import record
from tensorexpr.regions import affine_of
from tensorexpr.traversal import children, free_names, walk

MOST_POINTS = 1 << 14
"""Points of the loops inside at which an index with quotients is looked at."""


@record
class Source:
    """What is read: the buffer that holds a tensor, its shape, and the order of its axes in a tile; or the name of a panel, the extents
    of its loops, and where in a tensor its elements lie."""

    buffer: str
    shape: tuple[Expr, ...]
    order: tuple[int, ...]
    panel: Panel | None = None


@record
class Read:
    """A read of a buffer, the bounds of the loops around it (None for bounds that are not constant), and whether it is made at every point
    of them."""

    access: Access
    loops: dict[str, tuple[int, int] | None]
    certain: bool


@record
class Box:
    """What it holds; per axis where the box begins (without what the loops inside add), the least that these add, and how long it is;
    whether it is certain to lie in the tensor."""

    dtype: DType
    outer: tuple[Affine, ...]
    low: tuple[int, ...]
    extents: tuple[int, ...]
    certain: bool

    def start(self, axis: int) -> Affine:
        return self.outer[axis] + self.low[axis]


def lanes_of(loop: For) -> int:
    """The iterations of a loop of constant bounds; 1 for others."""
    count = iterations(loop)
    return 1 if count is None else count


def sums_of(block: Block, around: Mapping[str, int] = MappingProxyType({})) -> int:
    """How many elements statements add to, in the iterations of loops of constant length around them."""
    most = 0
    for s in block:
        if isinstance(s, Store) and Access(s.buffer, s.indices, s.value.dtype) in walk(s.value):
            most = max(most, prod(around.get(name, 1) for name in {n for i in s.indices for n in free_names(i)}))
        most = max(most, sums_of(inside(s), {**around, s.index: lanes_of(s)} if isinstance(s, For) else around))
    return most


def box_of(body: Block, source: Source, largest: int) -> Box | None:
    """What of a tensor is read in statements; None where that is no box of constant size, or a large one, or they also write it."""
    reads = list(reads_of(body, source.buffer, {}, True))
    if not reads or any(isinstance(s, Store) and s.buffer == source.buffer for s in statements(body)):
        return None
    outer: list[Affine] = []
    lows: list[int] = []
    highs: list[int] = []
    for axis in range(len(source.shape)):
        for read in reads:
            found = _range(read.access.indices[axis], read.loops)
            if found is None:
                return None
            begin, low, high = found
            if len(outer) == axis:
                outer.append(begin)
                lows.append(low)
                highs.append(high)
            elif begin != outer[axis]:
                return None
            lows[axis], highs[axis] = min(lows[axis], low), max(highs[axis], high)
    extents = tuple(high - low + 1 for low, high in zip(lows, highs, strict=True))
    if prod(extents) * reads[0].access.dtype.itemsize > largest:
        return None
    return Box(reads[0].access.dtype, tuple(outer), tuple(lows), extents, all(r.certain for r in reads))


def _range(index: Expr, loops: dict[str, tuple[int, int] | None]) -> tuple[Affine, int, int] | None:
    """An index as what the loops outside say, and the least and the greatest that those inside add: both occur."""
    form = affine_of(index)
    if form is None:
        return None
    inner = [(atom, factor) for atom, factor in form.terms if set(Affine.of(atom).names()) & set(loops)]
    outer = [(atom, factor) for atom, factor in form.terms if (atom, factor) not in inner]
    names = tuple(dict.fromkeys(n for atom, _ in inner for n in Affine.of(atom).names()))
    if any(loops.get(n) is None for n in names):
        return None
    low = high = form.constant
    for group in _connected(inner):
        mine = [n for n in names if n in set(group.names())]
        ends = [loops[n] or (0, 0) for n in mine]
        ranges = [range(*end) if group.has_division() else dict.fromkeys((end[0], end[1] - 1)) for end in ends]
        if prod(stop - start for start, stop in ends) > MOST_POINTS and group.has_division():
            return None
        values = [group.evaluate(dict(zip(mine, at, strict=True))) for at in points(*ranges)]
        low, high = low + min(values), high + max(values)
    return Affine(outer), low, high


def _connected(terms: list[tuple[Atom, int]]) -> list[Affine]:
    """Sums of terms that have no name in common."""
    found: list[Affine] = []
    for atom, factor in terms:
        term = Affine([(atom, factor)])
        shared = [g for g in found if set(g.names()) & set(term.names())]
        found = [g for g in found if g not in shared]
        for g in shared:
            term = term + g
        found.append(term)
    return found


def reads_of(block: Block, name: str, loops: dict[str, tuple[int, int] | None], certain: bool) -> Iterator[Read]:
    """The reads of a buffer, each with the bounds of the loops around (None for those that are not constant) and whether it is made at
    every point of them. In a loop of which it is not known that it runs none is certain: the tensor may be empty where it does not."""

    def expressions(sure: bool, *exprs: Expr) -> Iterator[Read]:
        for e in exprs:
            if isinstance(e, Access) and e.tensor == name:
                yield Read(e, loops, sure)
            if isinstance(e, Apply) and e.op.name == "where":
                yield from expressions(sure, e.args[0])
                yield from expressions(False, *e.args[1:])
            else:
                yield from expressions(sure, *children(e))

    for s in block:
        match s:
            case For():
                yield from expressions(certain, s.start, s.stop)
                start, stop = constant(s.start), constant(s.stop)
                known = (start, stop) if start is not None and stop is not None and start < stop else None
                yield from reads_of(s.body, name, {**loops, s.index: known}, certain and known is not None)
            case If():
                yield from expressions(certain, s.condition)
                yield from reads_of((*s.then, *s.otherwise), name, loops, False)
            case Alloc():
                yield from reads_of(s.body, name, loops, certain)
            case Store():
                yield from expressions(certain, *s.indices, s.value)
            case Check():
                yield from expressions(certain, s.index, s.extent)
                certain = False
