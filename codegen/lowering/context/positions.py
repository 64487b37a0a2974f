"""Elements by their number: where the indices of an access are parts of one loop, so that no quotient is left in its position.

    b[f // 27, f // 9 % 3, f // 3 % 3, f % 3], of a buffer of shape [n, 3, 3, 3]  -->  b[f]

A loop over all elements of some arrays, however many axes these have, so goes through memory in order, in vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tensorexpr.codegen.nest import LANES, Block, For, Kernel, Stmt, Store
from tensorexpr.codegen.nest.walks import with_blocks
from tensorexpr.ir import Access, Apply, Expr, Index, apply, const
from tensorexpr.records import replace
from tensorexpr.regions import Opaque, affine_of, expression_of
from tensorexpr.traversal import bottom_up, map_children, substitute, walk

Shapes = Mapping[str, tuple[int, ...]]


def at_positions(kernel: Kernel, shapes: Shapes) -> Kernel:
    """The kernel with accesses to buffers of known shape written by position, where lanes would not be neighbors otherwise."""
    return replace(kernel, body=_block(kernel.body, shapes, frozenset()))


def _block(block: Block, shapes: Shapes, lanes: frozenset[str]) -> Block:
    made = tuple(_statement(s, shapes, lanes) for s in block)
    return block if all(new is old for new, old in zip(made, block, strict=True)) else made


def _statement(s: Stmt, shapes: Shapes, lanes: frozenset[str]) -> Stmt:
    if not isinstance(s, Store):
        known = lanes | {s.index} if isinstance(s, For) and s.kind in LANES else lanes
        return with_blocks(s, lambda block: _block(block, shapes, known))
    if not lanes:
        return s

    def at(buffer: str, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        found = position(indices, shapes[buffer]) if buffer in shapes and _has_parts(indices, lanes) else None
        return indices if found is None else (found,)

    def visit(node: Expr) -> Expr:
        return replace(node, indices=at(node.tensor, node.indices)) if isinstance(node, Access) else node

    return replace(s, indices=at(s.buffer, s.indices), value=bottom_up(s.value, visit))


def _has_parts(indices: tuple[Expr, ...], lanes: frozenset[str]) -> bool:
    """Whether an index has a part of a loop over lanes."""
    if len(indices) < 2:
        return False
    parts = (n for i in indices for n in walk(i) if isinstance(n, Apply) and n.op.name in ("floordiv", "mod"))
    return any(isinstance(m, Index) and m.name in lanes for n in parts for m in walk(n))


@lru_cache(maxsize=1 << 12)
def position(indices: tuple[Expr, ...], shape: tuple[int, ...]) -> Expr | None:
    """The row-major position where no quotient is left in it; also where a block of the loop begins at the smaller of two places."""
    opaque = Opaque()

    def visit(node: Expr) -> Expr:
        if isinstance(node, Apply) and node.op.name in ("minimum", "maximum"):
            return Index(opaque.name_of(node))
        return map_children(node, visit)

    place: Expr = const(0)
    for i, extent in zip(indices, shape, strict=True):
        place = apply("add", apply("mul", place, const(extent)), visit(i))
    form = affine_of(place)
    return None if form is None or form.has_division() else substitute(expression_of(form), opaque.expressions)
