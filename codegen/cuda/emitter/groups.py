"""Products of matrices by warpgroups (sm_90a): which of those on tensor cores are one of four warps, and their text.

A product of `mma` whose warps are stacked by fours, 16 rows each, is `wgmma.mma_async` of 64 rows: the accumulators of a lane are the
same. Its factors are not in registers: the instruction reads them from shared memory by itself, where they lie in rows of 128 bytes

    tile[..., row, column]  at  tile[..., column / 64, row, column % 64 ^ row % 8 * 8]

(PTX ISA, Asynchronous Warpgroup Level Matrix: Shared Memory Matrix Layout, 128-byte swizzling), a row for each row of the result, or for
each term of its sums where the tile is turned. That is how such tiles are kept for all who touch them (`swizzled`), so copies fill them
as they fill others.

The instruction works on while threads go on. Before a barrier behind which tiles are read, threads hand over what they have written (a
fence of the proxies). Where a loop does nothing but wait for its tiles, fill those of iterations to come and multiply, the product is begun
before the filling. What is filled are the tiles of the iteration before, so its product is waited for, and by a barrier those of other
warpgroups; tensor cores have the next one by then, and never wait:

    for k_o: { wait; fill k_o + 2; C += A B }  -->  for k_o: { wait; begin C += A B; wait for k_o - 1, and a barrier; fill k_o + 2 }; wait
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np

from tensorexpr import dtypes
from tensorexpr.codegen.cuda.emitter.mma import WARP, Product, evaluated
from tensorexpr.codegen.cuda.nvidia import ptx
from tensorexpr.codegen.cuda.thread import values as v
from tensorexpr.codegen.cuda.thread.expressions import Emitter, without_units
from tensorexpr.codegen.cuda.thread.values import Value
from tensorexpr.codegen.nest import For
from tensorexpr.ir import Access, Expr, Index, apply, const, integer
from tensorexpr.traversal import free_names, substitute

WORDS = {"te_mma_bf16": "te_group_bf16", "te_mma_f16": "te_group_f16"}
"""The wrappers of products of a warpgroup in the prelude, by those of a warp."""
PATTERN = ptx.PATTERN_ROWS * ptx.ROW_BYTES
"""Bytes of which a tile begins at a multiple: eight rows, after which the order of chunks comes again."""
ROW = ptx.ROW_BYTES // 2
"""Elements of 16 bits of a row."""


@dataclass(frozen=True, slots=True)
class Group:
    """A product of warpgroups: that of warps, the columns of an instruction, how long the tiles of both factors are (rows and columns), and
    whether these are turned, a row for each term."""

    product: Product
    columns: int
    a_shape: tuple[int, int]
    b_shape: tuple[int, int]
    a_turned: bool
    b_turned: bool

    @property
    def tiles(self) -> tuple[str, str]:
        """The tiles of both factors."""
        return self.product.a.access.tensor, self.product.b.access.tensor

    @property
    def sums(self) -> int:
        """Accumulators of a lane."""
        return prod(integer(loop.stop) for loop in self.product.a.loops) * self.columns // 2


class Kernel(Protocol):
    """What writes a kernel: names, the indices in scope, and emitters of expressions."""

    scope: dict[str, Value]

    def word(self, name: str, role: str = "") -> str: ...

    def emitter(self, names: frozenset[Expr], lines: list[str]) -> Emitter: ...


def group_of(made: Product, shapes: Mapping[str, tuple[int, ...]]) -> Group | None:
    """The product of warpgroups that one of warps is, if it is one; `shapes` are those of local buffers, without the axis of lanes."""
    lanes = integer(made.lane.stop)
    if made.kind.word not in WORDS or made.where is not None or lanes % ptx.GROUP or made.row is None or len(made.b.loops) != 1:
        return None
    columns = 8 * integer(made.b.loops[0].stop)
    if columns not in ptx.GROUP_COLUMNS or not _has_sums_in_order(made, shapes[made.target.tensor], columns):
        return None
    a = _turned(made, made.a.access, (made.row, *made.a.loops), {loop.index for loop in made.a.loops}, _rows_of_a(made), shapes)
    b = _turned(made, made.b.access, (made.column, *made.b.loops), set(), _columns_of_b(made), shapes)
    if a is None or b is None:
        return None
    shape_a, shape_b = (without_units(shapes[x.access.tensor], shapes[x.access.tensor])[-2:] for x in (made.a, made.b))
    return Group(made, columns, (shape_a[0], shape_a[1]), (shape_b[0], shape_b[1]), a, b)


def _axes(loops: Mapping[str, int]) -> dict[str, np.ndarray]:
    return dict(zip(loops, np.ix_(*(np.arange(n) for n in loops.values())), strict=True))


def _rows_of_a(made: Product) -> Expr:
    """The row of a warpgroup that a lane has: warps are stacked."""
    assert made.row is not None
    lane = Index(made.lane.index)
    stacked = apply("mul", apply("mod", apply("floordiv", lane, const(WARP)), const(4)), const(ptx.GROUP_ROWS // 4))
    own = apply("mod", apply("floordiv", lane, const(4)), const(8))
    return apply("add", apply("add", stacked, own), apply("mul", Index(made.row.index), const(8)))


def _columns_of_b(made: Product) -> Expr:
    own = apply("add", apply("mul", apply("mod", Index(made.lane.index), const(4)), const(2)), Index(made.column.index))
    return apply("add", own, apply("mul", Index(made.b.loops[0].index), const(8)))


def _turned(
    made: Product, access: Access, inside: tuple[For, ...], apart: set[str], own: Expr, shapes: Mapping[str, tuple[int, ...]]
) -> bool | None:
    """Whether the rows of a tile are terms of sums; None where its elements do not lie as the instruction wants them: terms from the first
    one, and those of a warpgroup side by side (`own` says which is where) from a multiple of a pattern on, which is that of the
    group and of the loops `apart`."""
    loops = {loop.index: integer(loop.stop) for loop in (made.k, made.lane, *inside)}
    shape = without_units(shapes[access.tensor], shapes[access.tensor])
    if len(shape) < 2 or shape[-1] % ROW or shape[-2] % ptx.PATTERN_ROWS:
        return None
    *outer, row, column = without_units(access.indices, shapes[access.tensor])
    if any(n in loops for i in outer for n in free_names(i)) or not {n for i in (row, column) for n in free_names(i)} <= set(loops):
        return None
    axes = _axes(loops)
    rows, columns, place = (evaluated(i, axes) for i in (row, column, own))
    if rows is None or columns is None or place is None:
        return None
    whole = tuple(loops.values())
    for turned, along, across in ((False, columns, rows), (True, rows, columns)):
        first = np.broadcast_to(across - place, whole)
        if np.array_equal(np.broadcast_to(along, whole), np.broadcast_to(axes[made.k.index], whole)):
            fits = _is_of(first, loops, {made.lane.index} | apart, made.lane.index)
            return turned if fits and not (first % (ROW if turned else ptx.PATTERN_ROWS)).any() else None
    return None


def _is_of(values: np.ndarray, loops: Mapping[str, int], names: set[str], lane: str) -> bool:
    """Whether values depend on some loops alone, and on lanes only by their warpgroup."""
    for place, name in enumerate(loops):
        if name == lane:
            grouped = np.moveaxis(values, place, -1)
            grouped = grouped.reshape(*grouped.shape[:-1], -1, ptx.GROUP)
            if (grouped != grouped[..., :1]).any():
                return False
        elif name not in names and (values != np.take(values, [0], place)).any():
            return False
    return True


def _has_sums_in_order(made: Product, shape: tuple[int, ...], columns: int) -> bool:
    """Whether the accumulators of a lane lie as the wrapper has them: of row r those of all columns, then of row r + 8."""
    assert made.row is not None
    loops = {loop.index: integer(loop.stop) for loop in (*made.a.loops, made.row, *made.b.loops, made.column)}
    axes = _axes(loops)
    place = np.zeros((), np.int64)
    for index, extent in zip(made.target.indices[:-1], shape, strict=True):
        value = evaluated(index, axes) if set(free_names(index)) <= set(loops) else None
        if value is None:
            return False
        place = place * extent + value
    rows, numbers = axes[made.row.index] * (columns // 4), axes[made.b.loops[0].index] * 2 + axes[made.column.index]
    first = np.broadcast_to(place - rows - numbers, tuple(loops.values()))
    return _is_of(first, loops, {loop.index for loop in made.a.loops}, "") and not (first % (columns // 2)).any()


# -------------------------------------------------------------------------------------------------------------------- text


def swizzled_shape(extents: list[int]) -> list[int]:
    """The axes of a tile as it is kept: columns by rows of 128 bytes, each below all of the one before."""
    *outer, rows, columns = without_units(extents, extents)
    return [*outer, columns // ROW, rows, ROW]


def group_text(kernel: Kernel, made: Group, lines: list[str], margin: str) -> None:
    """The lines that begin a product: from their end on sums and tiles are the machine's."""
    product = made.product
    k, name = kernel.word(product.k.index), kernel.word(product.lane.index, "thread")
    lanes, depth, length = integer(product.lane.stop), product.kind.depth, integer(product.k.stop)
    lines += [f"{margin}{{"]
    inner = margin + "  "
    if lanes > ptx.GROUP:  # the same for all threads of a warp, and said so
        lines.append(f"{inner}const int {name} = te_shuffle_from((int)threadIdx.x / {ptx.GROUP} * {ptx.GROUP}, 0);")
        kernel.scope[product.lane.index] = Value(name, dtypes.int64, v.ATOM, True, 0, lanes - ptx.GROUP)
    else:
        kernel.scope[product.lane.index] = v.integer(0)
    lines += [f"{inner}te_group_enter({all_sums(kernel, made, lines, inner)});", f"{inner}#pragma unroll"]
    lines.append(f"{inner}for (int {k} = 0; {k} < {length}; {k} += {depth}) {{")
    kernel.scope[product.k.index] = Value(k, dtypes.int64, v.ATOM, True, 0, length - depth)
    deepest = inner + "  "
    for loop in product.a.loops:
        below = kernel.word(loop.index)
        kernel.scope[loop.index] = Value(below, dtypes.int64, v.ATOM, True, 0, integer(loop.stop) - 1)
        lines += [f"{deepest}#pragma unroll", f"{deepest}for (int {below} = 0; {below} < {integer(loop.stop)}; ++{below}) {{"]
        deepest += "  "
    assert product.row is not None
    start = {product.row.index: const(0), product.column.index: const(0), product.b.loops[0].index: const(0)}
    sums = _array(_place(kernel, product.target, start, lines, deepest), made.columns // 2)
    tiles = []
    for access, (rows, _) in ((product.a.access, made.a_shape), (product.b.access, made.b_shape)):
        at = _place(kernel, access, start, lines, deepest)
        tiles.append(f"te_tile<{rows * ptx.ROW_BYTES}, {PATTERN}>(&{at})")
    turned = ", ".join("true" if t else "false" for t in (made.a_turned, made.b_turned))
    lines.append(f"{deepest}{WORDS[product.kind.word]}<{turned}>({', '.join([sums, *tiles])});")
    lines += [f"{inner}{'  ' * depth_}}}" for depth_ in reversed(range(len(product.a.loops) + 1))]
    lines += [f"{inner}te_group_commit();", f"{margin}}}"]


def all_sums(kernel: Kernel, made: Group, lines: list[str], margin: str) -> str:
    """All accumulators of a lane, as one array."""
    product = made.product
    first = {loop.index: const(0) for loop in (*product.a.loops, *product.b.loops, product.column)}
    assert product.row is not None
    return _array(_place(kernel, product.target, {**first, product.row.index: const(0)}, lines, margin), made.sums)


def _array(place: str, count: int) -> str:
    return f"*(float (*)[{count}])&{place}"


def _place(kernel: Kernel, access: Access, moved: Mapping[str, Expr], lines: list[str], margin: str) -> str:
    before: list[str] = []
    indices = tuple(substitute(i, dict(moved)) for i in access.indices)
    text = kernel.emitter(frozenset(), before).place(access.tensor, indices)
    lines += [margin + line for line in before]
    return text
