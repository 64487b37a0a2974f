"""Numbers that are settled outside of a loop, by names of their own while its tiles are made.

    a[(block // ((n + 127) // 128)) * 128 + i, k]   -->   a[place * 128 + i, k],  place = block // ((n + 127) // 128)

A quotient by a size is no sum, but all threads of a block agree on it: where a tile begins may be any such number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tensorexpr.codegen.nest import Alloc, Block, Check, For, If, Stmt, Store
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
    found: set[str] = set()
    for s in block:
        match s:
            case For():
                found |= {s.index} | indices_of(s.body)
            case Alloc():
                found |= indices_of(s.body)
            case If():
                found |= indices_of((*s.then, *s.otherwise))
    return frozenset(found)


def mapped(s: Stmt, expr: Callable[[Expr], Expr]) -> Stmt:
    """A statement with its expressions changed."""
    match s:
        case For():
            # An instruction knows how its operands lie: where they are kept otherwise, the loops that it stands for run.
            kept = s.call is None or all(expr(operand) == operand for operand in s.call.operands)
            body = tuple(mapped(b, expr) for b in s.body)
            nest = replace(s, start=expr(s.start), stop=expr(s.stop), body=body)
            return nest if kept else replace(nest, kind="serial", call=None)
        case If():
            then, otherwise = (tuple(mapped(b, expr) for b in part) for part in (s.then, s.otherwise))
            return replace(s, condition=expr(s.condition), then=then, otherwise=otherwise)
        case Alloc():
            return replace(s, body=tuple(mapped(b, expr) for b in s.body))
        case Store():
            return Store(s.buffer, tuple(map(expr, s.indices)), expr(s.value))
        case Check():
            return replace(s, index=expr(s.index), extent=expr(s.extent))
    return s
