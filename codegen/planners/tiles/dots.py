"""Sums of products of narrow numbers, in tiles whose steps are instructions of the machine (`target.DOTS`).

    C[i, j] += i32(A[i, k]) * i32(B[k, j])     P[j_o, k_o, j_i, k_i] = B[4*k_o + k_i, 48*j_o + j_i]
                                               j_o, i_o, k_o, i_i, j_i, k_i:  C += A[i, 4*k_o + k_i] * P[j_o, k_o, j_i, k_i]

An instruction adds `products` terms in each lane: the factor of the lanes is copied into panels in which these lie side by side, the
other one has to lie so in memory, and is copied where it does not. The tile is as many rows and vectors as registers hold, those first
that waste the fewest lanes and load least for a product; terms that are left beside whole instructions run one by one. The emitter finds
the instruction in the loops (`llvm/emit_dots.py`), so the nest says what is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil, prod

from tensorexpr.codegen.schedule.analysis.reductions import Parts
from tensorexpr.codegen.schedule.analysis.state import definition_named
from tensorexpr.codegen.schedule.analysis.work import lengths as lengths_of
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.codegen.target import DOTS, Dot
from tensorexpr.ir import Access, Apply, Axis, Cast, Const, Define, Expr, Index
from tensorexpr.records import record
from tensorexpr.traversal import free_names, read_occurrences

LEAST_WORK = 1 << 16
"""Products from which on copies do not matter."""
LEAST_STEPS = 4
"""Instructions along the sum from which on they are worth the copies."""
LANES = 16
"""Sums in a register of 512 bits."""
MOST_VECTORS = 4
SPARE = 4
"""Registers beside the sums and the vectors of a step: for the factor of a row, and for what signed bytes take."""
LOADED = 0.25
"""What a load costs beside an instruction that it feeds."""
SLOTS = 4
"""Iterations of the outermost loop for each core."""


@record
class Product:
    """A product of two narrow reads in a sum: the instruction, the axes along which it adds (`terms`), of its lanes and of its rows."""

    dot: Dot
    shared: Access
    own: Access
    terms: str
    lane: str
    row: str


def plan_dots(s: Planned, name: str) -> bool:
    """Gives a definition loops around such an instruction, where it is a large sum of products for one; says whether."""
    stage = s.state.stage(name)
    lengths = lengths_of(stage.parts)
    found = next(_products(s, name, lengths), None)
    if found is None or not s.decisions.wanted(f"{name}: products of narrow numbers as instructions", True):
        return False
    return s.tried(_tile, s, name, found, lengths)


def _products(s: Planned, name: str, lengths: Mapping[str, int]) -> Iterator[Product]:
    """The ways in which the sum of a definition is one for an instruction, the longest rows first."""
    stage, definition = s.state.stage(name), definition_named(s.state.program, name)
    if not isinstance(definition, Define) or stage.place is not None or s.target.vector_bits != LANES * 32 or stage.scan is not None:
        return
    parts = stage.parts
    if len(parts.groups) != 1 or len(parts.groups[0].members) != 1 or parts.unproved:
        return
    (group,) = parts.groups
    (member,) = group.members
    if member.combiner.name != "sum" or group.where or group.guard or not _are_boxes((*parts.axes, *group.axes)):
        return
    if prod(lengths[a.index] for a in (*parts.axes, *group.axes)) < LEAST_WORK:
        return
    value = member.values[0]
    factors = [_narrow(factor) for factor in value.args] if isinstance(value, Apply) and value.op.name == "mul" else []
    once = [a.tensor for part in (*member.values, *parts.values) for a, _, _ in read_occurrences(part, ())]
    for shared, own in (factors, factors[::-1]) if factors else ():
        if shared is None or own is None or once.count(shared.tensor) > 1 or once.count(own.tensor) > 1:
            continue
        for dot in DOTS:
            if (dot.total, dot.shared, dot.own) == (value.dtype, shared.dtype, own.dtype) and dot.feature in s.target.features:
                yield from _axes(dot, shared, own, parts, lengths)


def _axes(dot: Dot, shared: Access, own: Access, parts: Parts, lengths: Mapping[str, int]) -> Iterator[Product]:
    terms = [a.index for a in parts.groups[0].axes if _place(shared, a.index) is not None and _place(own, a.index) is not None]
    terms = [t for t in terms if lengths[t] >= LEAST_STEPS * dot.products]
    terms.sort(key=lambda t: (_place(shared, t) != len(shared.indices) - 1, -lengths[t]))
    data = [a.index for a in parts.axes]
    lanes = [d for d in data if _place(own, d) is not None and not _moves(shared, d) and lengths[d] >= LANES]
    rows = [d for d in data if _moves(shared, d) and not _moves(own, d)]
    for row in sorted(rows, key=lambda d: -lengths[d]):
        for lane in sorted(lanes, key=lambda d: -lengths[d]):
            for term in terms:
                yield Product(dot, shared, own, term, lane, row)


def _tile(s: Planned, name: str, found: Product, lengths: Mapping[str, int]) -> None:
    dot, handle = found.dot, s[name]
    rows, vectors = _shape(lengths[found.row], lengths[found.lane], s.target.registers)
    width, count = vectors * LANES, dot.products
    lane_at, term_at = _place(found.own, found.lane), _place(found.own, found.terms)
    assert lane_at is not None and term_at is not None
    others = tuple(axis for axis in range(len(found.own.indices)) if axis not in (lane_at, term_at))
    copies = [handle.stage(found.own.tensor, (*others, (lane_at, width), (term_at, count)))]
    shared_at = _place(found.shared, found.terms)
    if shared_at != len(found.shared.indices) - 1:
        rest = tuple(axis for axis in range(len(found.shared.indices)) if axis != shared_at)
        _copy(s, handle.stage(found.shared.tensor, (*rest, shared_at or 0)), False)
    lane_o, lane_i = handle.split(found.lane, width, "guard")
    row_o, row_i = handle.split(found.row, rows, "shift") if rows < lengths[found.row] else (None, found.row)
    term_o, term_i = handle.split(found.terms, count, "peel")
    stage = s.state.stage(name)
    inside = [x for x in (row_i, lane_i, term_i)]
    batch = [x for x in stage.order if stage.group_of(x) is None and x not in (*inside, lane_o, row_o)]
    sums = [x for x in stage.order if stage.group_of(x) is not None and x not in (*inside, term_o)]
    near = [x for x in batch if not _moves(found.own, x)]  # what lanes have in common
    far = [x for x in batch if x not in near]
    outer = [*far, lane_o, *near, *([row_o] if row_o is not None else [])]
    blocks = prod(stage.extent(x) or 1 for x in (*far, lane_o))
    if row_o is not None and blocks < SLOTS * s.target.cores and s.target.cores > 1:
        total = stage.extent(row_o) or 1
        parts = min(total, ceil(SLOTS * s.target.cores / blocks))
        block, row_o = handle.split(row_o, ceil(total / parts), "guard")
        outer = [*far, block, lane_o, *near, row_o]
    handle.reorder(*outer, *sums, term_o, *inside)
    handle.unroll(row_i)
    handle.unroll(term_i)
    handle.vectorize(lane_i)
    for copy in copies:
        _copy(s, copy, term_at == len(found.own.indices) - 1)
        s.tried(s[copy].compute_at, name, lane_o)


def _copy(s: Planned, copy: str, whole: bool) -> None:
    """The loops of a copy: lanes along the axis of its blocks with elements side by side in the source, groups of terms inside of them;
    without lanes where groups are `whole` in the source, each a number that is loaded and stored."""
    loops = list(s[copy].loops)
    if loops[-1].endswith("_i"):
        s[copy].unroll(loops[-1])
        if whole:
            s[copy].reorder(loops[-2], loops[-3])
        else:
            s[copy].vectorize(loops[-2])


def _shape(rows: int, columns: int, registers: int) -> tuple[int, int]:
    """Rows and vectors of a tile: sums, the vectors of a step and a few more in registers, few lanes in vain, few loads for a product."""

    def cost(tile: tuple[int, int]) -> float:
        height, width = tile
        done = ceil(columns / (width * LANES)) * width * LANES * max(rows, height)
        return done * (1.0 + LOADED * (height + width) / (height * width)) + (0.0 if height * width >= MOST_VECTORS * 2 else done)

    choices = [
        (height, width) for width in range(1, MOST_VECTORS + 1) for height in range(1, min(rows, (registers - SPARE - width) // width) + 1)
    ]
    return min(choices, key=cost)


def _narrow(factor: Expr) -> Access | None:
    return factor.arg if isinstance(factor, Cast) and isinstance(factor.arg, Access) else None


def _are_boxes(axes: tuple[Axis, ...]) -> bool:
    return all(isinstance(a.start, Const) and isinstance(a.stop, Const) for a in axes)


def _moves(access: Access, index: str) -> bool:
    return any(index in free_names(i) for i in access.indices)


def _place(access: Access, index: str) -> int | None:
    """The axis of which an index is the subscript, alone there and in no other; None where it is none."""
    places = [at for at, place in enumerate(access.indices) if index in free_names(place)]
    if len(places) != 1 or access.indices[places[0]] != Index(index):
        return None
    return places[0]
