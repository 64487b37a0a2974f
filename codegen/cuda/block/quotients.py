"""Quotients of the index of a grid by open sizes, worked out once: each place of a block asks which block of an open axis it is in, under
conditions of its own, so that a compiler would make a division of 64 bits for each.

    C[b // n * 128 + i, b % n * 128 + j] ...  -->  q = b // n; r = b % n; C[q * 128 + i, r * 128 + j] ...
"""

from __future__ import annotations

from tensorexpr.codegen.nest import Block, For
from tensorexpr.codegen.nest.walks import map_expressions
from tensorexpr.ir import Apply, Const, Expr, Index
from tensorexpr.traversal import bottom_up, free_names, tensors_read


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
