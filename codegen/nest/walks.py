"""What there is in blocks of a nest: statements, those inside of others included, and their expressions."""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr.codegen.nest.program import Alloc, Block, Check, For, If, Stmt, Store
from tensorexpr.ir import Expr


def blocks_of(s: Stmt) -> tuple[Block, ...]:
    """The blocks of statements in a statement, in the order of the text."""
    match s:
        case For() | Alloc():
            return (s.body,)
        case If():
            return s.then, s.otherwise
    return ()


def statements(block: Block) -> Iterator[Stmt]:
    """Every statement of a block, outer before inner, in order."""
    pending = [*reversed(block)]
    while pending:  # no generator inside of another: each statement would come through all of those around it
        s = pending.pop()
        yield s
        if not isinstance(s, Store):
            for inner in reversed(blocks_of(s)):
                pending += reversed(inner)


def expressions_of(s: Stmt) -> tuple[Expr, ...]:
    """The expressions of a statement itself: bounds, operands, condition, indices and value; not those of statements inside."""
    match s:
        case For():
            return (s.start, s.stop, *(() if s.call is None else s.call.operands))
        case If():
            return (s.condition,)
        case Store():
            return (*s.indices, s.value)
        case Check():
            return (s.index, s.extent)
    return ()


def expressions_in(block: Block) -> Iterator[Expr]:
    """The expressions of all statements of a block, those inside included, in order."""
    return (expr for s in statements(block) for expr in expressions_of(s))
