"""Nests under other names: of buffers, of loops, and other numbers for checks; kernels in names by order, in which equal ones are equal."""

from __future__ import annotations

from collections.abc import Mapping

from tensorexpr.codegen.nest import Alloc, Block, Buffer, Check, Filled, For, If, Kernel, Stmt, Store
from tensorexpr.codegen.nest.walks import statements
from tensorexpr.ir import Access, Expr
from tensorexpr.language.core.renaming import Renaming
from tensorexpr.records import replace


def canonical(kernel: Kernel) -> Kernel:
    """A kernel with its buffers and loops called by the order in which they come: equal for kernels that differ in names alone."""
    buffers = {name: f"b{number}" for number, name in enumerate(kernel.buffers)}
    indices: dict[str, str] = {}
    for s in statements(kernel.body):
        if isinstance(s, For):
            indices.setdefault(s.index, f"i{len(indices)}")
        elif isinstance(s, Alloc):
            buffers.setdefault(s.buffer.name, f"b{len(buffers)}")
    return Kernel("", NestNames(buffers, indices, 0).block(kernel.body), kernel.together)


class NestNames:
    """Other names for buffers and loops, and other numbers for checks."""

    def __init__(self, buffers: Mapping[str, str], indices: Mapping[str, str], checks: int) -> None:
        self.buffers, self.indices, self.checks = buffers, indices, checks
        self.expr = Renaming(buffers, indices)

    def buffer(self, buffer: Buffer) -> Buffer:
        return replace(buffer, name=self.buffers[buffer.name])

    def block(self, block: Block) -> Block:
        return tuple(map(self.statement, block))

    def statement(self, s: Stmt) -> Stmt:
        match s:
            case For():
                index, call = self.indices.get(s.index, s.index), s.call
                if call is not None:
                    operands = tuple(self.access(operand) for operand in call.operands)
                    call = replace(call, operands=operands)
                return For(index, self.expr(s.start), self.expr(s.stop), self.block(s.body), s.kind, call)
            case If():
                made = replace(s, condition=self.expr(s.condition), then=self.block(s.then), otherwise=self.block(s.otherwise))
                return replace(made, tile=self.buffers.get(made.tile, made.tile)) if isinstance(made, Filled) else made
            case Alloc():
                return Alloc(self.buffer(s.buffer), self.block(s.body))
            case Store():
                return Store(self.buffers[s.buffer], tuple(map(self.expr, s.indices)), self.expr(s.value))
            case Check():
                return Check(self.expr(s.index), self.expr(s.extent), s.check + self.checks)
        raise AssertionError(type(s))

    def access(self, access: Access) -> Access:
        renamed: Expr = self.expr(access)
        assert isinstance(renamed, Access)
        return renamed
