"""What there is in blocks of a nest: statements, those inside of others included, and their expressions, read and mapped."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tensorexpr.codegen.nest.program import Alloc, Block, Call, Check, For, If, Stmt, Store
from tensorexpr.ir import Access, Expr
from tensorexpr.records import replace


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


def map_expressions(block: Block, function: Callable[[Expr], Expr]) -> Block:
    """A block with each expression of its statements replaced. What is not changed is the same object."""
    made = tuple(_mapped(s, function) for s in block)
    return block if all(new is old for new, old in zip(made, block, strict=True)) else made


def _mapped(s: Stmt, function: Callable[[Expr], Expr]) -> Stmt:
    changes: dict[str, object] = {}

    def change(name: str, old: object, new: object) -> None:
        if new is not old:
            changes[name] = new

    match s:
        case For():
            change("start", s.start, function(s.start))
            change("stop", s.stop, function(s.stop))
            change("call", s.call, None if s.call is None else _call(s.call, function))
            change("body", s.body, map_expressions(s.body, function))
        case If():
            change("condition", s.condition, function(s.condition))
            change("then", s.then, map_expressions(s.then, function))
            change("otherwise", s.otherwise, map_expressions(s.otherwise, function))
        case Alloc():
            change("body", s.body, map_expressions(s.body, function))
        case Store():
            indices = tuple(map(function, s.indices))
            change("indices", s.indices, s.indices if all(a is b for a, b in zip(indices, s.indices, strict=True)) else indices)
            change("value", s.value, function(s.value))
        case Check():
            change("index", s.index, function(s.index))
            change("extent", s.extent, function(s.extent))
    return replace(s, **changes) if changes else s


def _call(call: Call, function: Callable[[Expr], Expr]) -> Call:
    operands = tuple(map(function, call.operands))
    if all(a is b for a, b in zip(operands, call.operands, strict=True)):
        return call
    assert all(isinstance(operand, Access) for operand in operands)
    return replace(call, operands=operands)
