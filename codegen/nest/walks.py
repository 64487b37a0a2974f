"""What there is in blocks of a nest: statements, those inside of others included, and their expressions, read and mapped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import is_

from tensorexpr.codegen.nest.program import Alloc, Block, Call, Check, For, If, Kernel, Stmt, Store
from tensorexpr.ir import Access, Const, Expr, integer
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, tensors_read, walk


def blocks_of(s: Stmt) -> tuple[Block, ...]:
    """The blocks of statements in a statement, in the order of the text."""
    match s:
        case For() | Alloc():
            return (s.body,)
        case If():
            return s.then, s.otherwise
    return ()


def inside(s: Stmt | Kernel) -> Block:
    """The statements in a statement or kernel; of a condition both branches, one behind the other."""
    match s:
        case For() | Alloc() | Kernel():
            return s.body
        case If():
            return (*s.then, *s.otherwise)
    return ()


def with_blocks(s: Stmt, change: Callable[[Block], Block]) -> Stmt:
    """A statement with the blocks in it changed. What is not changed is the same object."""
    match s:
        case For() | Alloc():
            body = change(s.body)
            return s if body is s.body else replace(s, body=body)
        case If():
            then, otherwise = change(s.then), change(s.otherwise)
            return s if then is s.then and otherwise is s.otherwise else replace(s, then=then, otherwise=otherwise)
    return s


def map_statements(block: Block, change: Callable[[Stmt], Block | None]) -> Block:
    """A block with statements replaced by what `change` has for them, which may be nothing; where it gives None a statement stays, and
    those inside are asked. What is not changed is the same object."""
    made: list[Stmt] = []
    for s in block:
        found = change(s)
        made += (with_blocks(s, lambda inner: map_statements(inner, change)),) if found is None else found
    return block if len(made) == len(block) and all(map(is_, made, block)) else tuple(made)


def statements(block: Block) -> Iterator[Stmt]:
    """Every statement of a block, outer before inner, in order."""
    pending = [*reversed(block)]
    while pending:  # no generator inside of another: each statement would come through all of those around it
        s = pending.pop()
        yield s
        if not isinstance(s, Store):
            for inner in reversed(blocks_of(s)):
                pending += reversed(inner)


def iterations(s: Stmt) -> int | None:
    """How often a loop between two numbers runs; None of any other statement."""
    if isinstance(s, For) and isinstance(s.start, Const) and isinstance(s.stop, Const):
        return max(0, integer(s.stop) - integer(s.start))
    return None


def range_of(loop: For) -> tuple[int, int] | None:
    """The first and the last index of a loop between two numbers that runs; None of any other."""
    count = iterations(loop)
    return (integer(loop.start), integer(loop.start) + count - 1) if count else None


def behind_declarations(block: Block) -> Iterator[Stmt]:
    """The statements of a block, those behind the declarations in it included: what runs as often as the block."""
    for s in block:
        if isinstance(s, Alloc):
            yield from behind_declarations(s.body)
        else:
            yield s


def loops_in(block: Block) -> Iterator[For]:
    """Every loop of a block, in order."""
    return (s for s in statements(block) if isinstance(s, For))


def stores_in(block: Block) -> Iterator[Store]:
    """Every store of a block, in order."""
    return (s for s in statements(block) if isinstance(s, Store))


def declared_in(block: Block) -> frozenset[str]:
    """The local buffers that a block declares."""
    return frozenset(s.buffer.name for s in statements(block) if isinstance(s, Alloc))


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

    def mapped(s: Stmt) -> Stmt:
        return with_blocks(map_own_expressions(s, function), lambda inner: map_expressions(inner, function))

    made = tuple(map(mapped, block))
    return block if all(map(is_, made, block)) else made


def map_own_expressions(s: Stmt, function: Callable[[Expr], Expr]) -> Stmt:
    """A statement with its own expressions replaced, and what is inside as it is."""
    changes: dict[str, object] = {}

    def change(name: str, old: object, new: object) -> None:
        if new is not old:
            changes[name] = new

    match s:
        case For():
            change("start", s.start, function(s.start))
            change("stop", s.stop, function(s.stop))
            change("call", s.call, None if s.call is None else _call(s.call, function))
        case If():
            change("condition", s.condition, function(s.condition))
        case Store():
            indices = tuple(map(function, s.indices))
            change("indices", s.indices, s.indices if all(map(is_, indices, s.indices)) else indices)
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


def map_accesses(block: Block, function: Callable[[Access], Access]) -> Block:
    """A block with the elements that it reads and stores to replaced by others: `function` has each as an access."""

    def stored(s: Stmt) -> Block | None:
        if not isinstance(s, Store):
            return None
        to = function(Access(s.buffer, s.indices, s.value.dtype))
        return (replace(s, buffer=to.tensor, indices=to.indices),)

    return map_statements(map_expressions(block, lambda expr: elements_mapped(expr, function)), stored)


def elements_mapped(expr: Expr, function: Callable[[Access], Access]) -> Expr:
    """An expression with the elements that it reads replaced by others."""

    def visit(node: Expr) -> Expr:
        return function(node) if isinstance(node, Access) else node

    return bottom_up(expr, visit) if tensors_read(expr) else expr


def elements_read(block: Block) -> Iterator[Access]:
    """Every element that statements of a block read, in their order."""
    return (node for expr in expressions_in(block) for node in walk(expr) if isinstance(node, Access))


def buffers_written(block: Block) -> frozenset[str]:
    """The buffers that a block stores to; those of the operands of instructions too, which may be results."""
    operands = (a.tensor for s in loops_in(block) if s.call is not None for a in s.call.operands)
    return frozenset((*(s.buffer for s in stores_in(block)), *operands))


def written(block: Block) -> set[str]:
    """The buffers that statements store to."""
    return {s.buffer for s in stores_in(block)}


def touched_in(block: Block) -> dict[str, None]:
    """The buffers that statements read or store to, in order of first occurrence."""
    found: dict[str, None] = {}
    for s in statements(block):
        if isinstance(s, Store):
            found.setdefault(s.buffer)
        found |= {node.tensor: None for e in expressions_of(s) for node in walk(e) if isinstance(node, Access)}
    return found


def operations_written(block: Block) -> int:
    """How many operations of a block are written out, those of loops that are copied out for each of their iterations; equal ones of a
    statement are written once."""
    count = 0
    for s in block:
        copies = iterations(s) if isinstance(s, For) and s.kind == "unroll" else None
        count += (1 if copies is None else copies) * operations_written(inside(s))
        if isinstance(s, Store | If):
            count += sum(len(set(walk(e))) for e in expressions_of(s))
    return count
