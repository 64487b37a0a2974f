"""Elements by their number: where the indices of an access are parts of one loop, so that no quotient is left in its position.

    b[f // 27, f // 9 % 3, f // 3 % 3, f % 3], of a buffer of shape [n, 3, 3, 3]  -->  b[f]

A loop over all elements of some arrays, however many axes these have, so goes through memory in order, in vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tensorexpr.codegen.nest import Alloc, Block, Check, For, If, Kernel, Stmt, Store
from tensorexpr.ir import Access, Apply, Expr, Index, apply, const
from tensorexpr.records import replace
from tensorexpr.regions import Opaque, affine_of, expression_of
from tensorexpr.traversal import bottom_up, map_children, substitute, walk

Shapes = Mapping[str, tuple[int, ...]]


def at_positions(kernel: Kernel, shapes: Shapes) -> Kernel:
    """The kernel with such accesses to buffers of known shape written by position."""

    def visit(node: Expr) -> Expr:
        return node if not isinstance(node, Access) else replace(node, indices=_at(node.tensor, node.indices, shapes))

    def statement(s: Stmt) -> Stmt:
        match s:
            case For() | Alloc():
                return replace(s, body=block(s.body))
            case If():
                return replace(s, condition=bottom_up(s.condition, visit), then=block(s.then), otherwise=block(s.otherwise))
            case Store():
                indices = _at(s.buffer, tuple(bottom_up(i, visit) for i in s.indices), shapes)
                return replace(s, indices=indices, value=bottom_up(s.value, visit))
            case Check():
                return replace(s, index=bottom_up(s.index, visit), extent=bottom_up(s.extent, visit))
        return s

    def block(statements: Block) -> Block:
        return tuple(map(statement, statements))

    return replace(kernel, body=block(kernel.body)) if any(map(_has_parts, _indices(kernel.body))) else kernel


def _indices(block: Block) -> list[tuple[Expr, ...]]:
    """The indices of all elements that statements touch."""
    found: list[tuple[Expr, ...]] = []
    for s in block:
        match s:
            case For() | Alloc():
                found += _indices(s.body)
            case If():
                found += _indices((*s.then, *s.otherwise))
            case Store():
                found += [s.indices, *(n.indices for n in walk(s.value) if isinstance(n, Access))]
    return found


def _has_parts(indices: tuple[Expr, ...]) -> bool:
    return len(indices) > 1 and any(isinstance(n, Apply) and n.op.name in ("floordiv", "mod") for i in indices for n in walk(i))


def _at(buffer: str, indices: tuple[Expr, ...], shapes: Shapes) -> tuple[Expr, ...]:
    found = position(indices, shapes[buffer]) if buffer in shapes and _has_parts(indices) else None
    return indices if found is None else (found,)


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
