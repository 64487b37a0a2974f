"""Quotients of the index of a grid by open sizes, worked out once: each place of a block asks which block of an open axis it is in, under
conditions of its own, so that a compiler would make a division of 64 bits for each.

    C[b // n * 128 + i, b % n * 128 + j] ...  -->  q = b // n; r = b % n; C[q * 128 + i, r * 128 + j] ...

Where all indices of a tensor are digits of one number, its elements are numbered by that: nothing is divided.

    y[p // n, p % n] = x[p // n, p % n]  -->  y[p] = x[p]
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorexpr.codegen.nest import Block, Buffer, For, Stmt, Store
from tensorexpr.codegen.nest.walks import map_expressions, map_statements
from tensorexpr.ir import Access, Apply, Const, Expr, Index, apply
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, free_names, tensors_read


def with_numbers(body: Block, buffers: Mapping[str, Buffer]) -> Block:
    """Statements with elements of tensors by their number where their indices are its digits."""

    def visit(e: Expr) -> Expr:
        number = _number(e.indices, buffers[e.tensor].shape) if isinstance(e, Access) and e.tensor in buffers else None
        return e if number is None else replace(e, indices=(number,))

    def stored(s: Stmt) -> Block | None:
        number = _number(s.indices, buffers[s.buffer].shape) if isinstance(s, Store) and s.buffer in buffers else None
        return None if number is None else (replace(s, indices=(number,)),)

    return map_statements(map_expressions(body, lambda e: bottom_up(e, visit)), stored)


def _number(indices: tuple[Expr, ...], shape: tuple[Expr, ...]) -> Expr | None:
    """The number of an element in the order of rows, where its indices are digits of an expression."""
    if not 1 < len(indices) == len(shape):
        return None
    number = indices[0]
    for digit, extent in zip(indices[1:], shape[1:], strict=True):
        whole = digit.args[0] if isinstance(digit, Apply) and digit.op.name == "mod" else None
        if whole is None or digit != apply("mod", whole, extent) or number != apply("floordiv", whole, extent):
            return None
        number = whole
    return number


def with_quotients(body: Block, grid: tuple[For, ...]) -> tuple[Block, dict[str, Apply]]:
    """What a block does with names for its quotients by what is the same for all blocks, and what they stand for."""
    made: dict[Apply, str] = {}
    indices = {loop.index for loop in grid}

    def visit(e: Expr) -> Expr:
        if not isinstance(e, Apply) or e.op.name not in ("floordiv", "mod") or isinstance(e.args[1], Const):
            return e
        index, divisor = e.args
        if not isinstance(index, Index) or index.name not in indices or free_names(divisor) or any(tensors_read(divisor)):
            return e
        return Index(made.setdefault(e, f"{index.name} {e.op.name} {len(made)}"))

    body = map_expressions(body, lambda e: bottom_up(e, visit))
    return body, {name: e for e, name in made.items()}
