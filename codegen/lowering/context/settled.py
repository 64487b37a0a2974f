"""Numbers that are settled outside of a loop, by names of their own while its tiles are made.

    a[(block // ((n + 127) // 128)) * 128 + i, k]   -->   a[place * 128 + i, k],  place = block // ((n + 127) // 128)

A quotient by a size is no sum, but all threads of a block agree on it: where a tile begins may be any such number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tensorexpr.codegen.nest import Block, For, Stmt
from tensorexpr.codegen.nest.walks import loops_in, map_own_expressions, with_blocks
from tensorexpr.ir import Apply, Const, Expr, Index
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, free_names


def with_names(block: Block, fresh: Callable[[str], str]) -> tuple[Block, dict[str, Expr]]:
    """Statements with a name for every quotient or remainder by what is no constant that no loop in them changes; what they stand for."""
    inside = indices_of(block)
    found: dict[Expr, str] = {}

    def named(e: Expr) -> Expr:
        if not isinstance(e, Apply) or e.op.name not in ("floordiv", "mod") or isinstance(e.args[1], Const) or inside & {*free_names(e)}:
            return e
        if e not in found:
            found[e] = fresh("place")
        return Index(found[e])

    made = tuple(mapped(s, lambda e: bottom_up(e, named)) for s in block)
    return (made if found else block), {name: e for e, name in found.items()}


def with_values(block: Block, values: Mapping[str, Expr]) -> Block:
    """Statements with what names stand for."""
    if not values:
        return block

    def value(e: Expr) -> Expr:
        while isinstance(e, Index) and e.name in values:
            e = with_value(values[e.name])
        return e

    def with_value(e: Expr) -> Expr:
        return bottom_up(e, value)

    return tuple(mapped(s, with_value) for s in block)


def indices_of(block: Block) -> frozenset[str]:
    """The indices of the loops in statements."""
    return frozenset(s.index for s in loops_in(block))


def mapped(s: Stmt, expr: Callable[[Expr], Expr]) -> Stmt:
    """A statement with its expressions changed. An instruction knows how its operands lie: where they are kept otherwise, the loops that it
    stands for run."""
    if isinstance(s, For) and s.call is not None and any(expr(operand) != operand for operand in s.call.operands):
        s = replace(s, kind="serial", call=None)
    return with_blocks(map_own_expressions(s, expr), lambda block: tuple(mapped(inner, expr) for inner in block))
