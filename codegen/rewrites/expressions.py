"""Blocks with other expressions in them: all of them mapped, elements of buffers replaced, indices replaced.

What is replaced is put in normal form where it is arithmetic on indices (`i_o*8 + i_i + 1`, each term once), and left as it is
elsewhere: values keep their bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from tensorexpr.codegen.lowering.context import arithmetic
from tensorexpr.codegen.nest import Alloc, Block, For, If, Stmt, Store
from tensorexpr.codegen.nest.walks import expressions_in, map_expressions
from tensorexpr.ir import Access, Expr, Index, conjunction
from tensorexpr.records import replace
from tensorexpr.traversal import bottom_up, tensors_read, walk


def map_accesses(block: Block, function: Callable[[Access], Access]) -> Block:
    """A block with the elements that it reads and stores to replaced by others: `function` has each as an access."""

    def value(expr: Expr) -> Expr:
        return elements_mapped(expr, function)

    def statement(s: Stmt) -> Stmt:
        match s:
            case For():
                return replace(s, body=tuple(map(statement, s.body)))
            case If():
                return replace(s, then=tuple(map(statement, s.then)), otherwise=tuple(map(statement, s.otherwise)))
            case Alloc():
                return replace(s, body=tuple(map(statement, s.body)))
            case Store():
                to = function(Access(s.buffer, s.indices, s.value.dtype))
                return replace(s, buffer=to.tensor, indices=to.indices)
        return s

    return tuple(map(statement, map_expressions(block, value)))


def elements_mapped(expr: Expr, function: Callable[[Access], Access]) -> Expr:
    """An expression with the elements that it reads replaced by others."""

    def visit(node: Expr) -> Expr:
        return function(node) if isinstance(node, Access) else node

    return bottom_up(expr, visit) if tensors_read(expr) else expr


def substituted(block: Block, values: Mapping[str, Expr]) -> Block:
    """A block with indices replaced. Requires: no loop inside has the name of an index in a value."""

    def value(expr: Expr) -> Expr:
        return substituted_in(expr, values)

    return map_expressions(block, value)


def substituted_in(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """An expression with indices replaced, and arithmetic on indices above them in normal form."""
    if not any(isinstance(n, Index) and n.name in values for n in walk(expr)):
        return expr
    return arithmetic.substituted(expr, lambda name: values.get(name, Index(name)), lambda parameter: parameter, lambda access: access)


def mentions(block: Block, name: str) -> bool:
    """Whether an index occurs in a block."""
    return any(isinstance(n, Index) and n.name == name for e in expressions_in(block) for n in walk(e))


def elements_read(block: Block) -> Iterator[Access]:
    """Every element that statements of a block read, in their order."""
    for expr in expressions_in(block):
        for node in walk(expr):
            if isinstance(node, Access):
                yield node


def stores_in(block: Block) -> Iterator[Store]:
    """Every store of a block, in order."""
    pending = list(block[::-1])
    while pending:
        s = pending.pop()
        match s:
            case Store():
                yield s
            case For() | Alloc():
                pending += s.body[::-1]
            case If():
                pending += (*s.then, *s.otherwise)[::-1]


def buffers_written(block: Block) -> frozenset[str]:
    """The buffers that a block stores to; those of the operands of instructions too, which may be results."""
    found = {s.buffer for s in stores_in(block)}
    found.update(a.tensor for a in _operands(block))
    return frozenset(found)


def _operands(block: Block) -> Iterator[Access]:
    for s in block:
        match s:
            case For():
                yield from () if s.call is None else s.call.operands
                yield from _operands(s.body)
            case Alloc():
                yield from _operands(s.body)
            case If():
                yield from _operands((*s.then, *s.otherwise))


def under(conditions: Iterable[Expr], block: Block) -> Block:
    """A block under conditions, of which the first comes first: one that reads data is asked where those before it hold, and not else."""
    runs: list[list[Expr]] = []
    for condition in conditions:
        if not runs or tensors_read(condition):
            runs.append([condition])
        else:
            runs[-1].append(condition)
    for run in reversed(runs):
        block = (If(conjunction(run), block),)
    return block
