"""What every loop nest satisfies, and the check of it.

1. Names: buffers are named once, loop indices are bound where they are used, and none is bound twice on one path.
2. Buffers: parameters, constants and workspace stand in the head, local ones in an `Alloc` around their uses, with a shape
   that sizes say. An access or store has one int64 index per axis, or one alone, its position, and the dtype of its buffer; inputs and
   constants are not written.
3. Expressions: scalars over indices, sizes and elements; no reduction and no parameter is left. Conditions are bools.
4. Loops: kinds are known; nests of loops over blocks are outermost in their kernel; around a parallel loop there are serial
   ones and conditions at most; vectorized and unrolled ones have constant bounds.
5. Checks: every check names a site of the nest.
6. Loops that run together are parallel ones, and none touches what another writes.
7. Lists of buffers (outputs, those written past the caches, fetched ahead, updated in one piece) are in the order of the head, and
   instructions of one name are the same: so the text says all of a nest.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NoReturn

from tensorexpr import dtypes
from tensorexpr.codegen.nest import GRID, LANES, LOOP_KINDS, MEMORIES, Alloc, Block, Buffer, Check, For, If, Kernel, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.text import print_block
from tensorexpr.codegen.nest.walks import touched_in, written
from tensorexpr.errors import InternalError
from tensorexpr.ir import Access, Const, Expr, Index, Param, Reduce, Size
from tensorexpr.ir.nodes import Node
from tensorexpr.records import replace
from tensorexpr.text import print_expr
from tensorexpr.traversal import free_names, tensors_read, walk


def verify_nest(nest: LoopNest) -> LoopNest:
    """Gives the nest back; raises `InternalError` with the broken invariant and the statement that breaks it."""
    checker = _Checker(nest)
    for kernel in nest.kernels:
        checker.block(kernel.body, frozenset(), outermost=True, serial=True)
        if kernel.together:
            checker.together(kernel)
    return nest


class _Checker:
    def __init__(self, nest: LoopNest) -> None:
        self.nest = nest
        self.buffers: dict[str, Buffer] = {}
        self.called: dict[str, Node] = {}
        self.read_only = {b.name for b in nest.parameters if b.name not in nest.writes} | {c.name for c in nest.constants}
        constants = (Buffer(c.name, c.type.dtype, c.type.shape, "constant") for c in nest.constants)
        for buffer in (*nest.parameters, *constants, *nest.workspace):
            self.add(buffer)
        for name in nest.writes:
            if name not in {b.name for b in nest.parameters}:
                self.fail(f"expected an output that is a parameter, got {name}")
        for name, distance in nest.ahead:
            if name not in {b.name for b in (*nest.parameters, *nest.workspace)} or distance < 1:
                self.fail(f"expected a parameter or workspace to fetch some elements ahead, got {name}")
        for name in nest.atomics:
            if name not in self.buffers or name in self.read_only:
                self.fail(f"expected updates in one piece of a buffer that is written, got {name}")
        for name in nest.streams:
            if name not in nest.writes:
                self.fail(f"expected an output to be written past the caches, got {name}")
        order = {name: number for number, name in enumerate(self.buffers)}
        for names in (nest.writes, nest.streams, [name for name, _ in nest.ahead], nest.atomics):
            numbers = [order[name] for name in names]
            if any(a >= b for a, b in pairwise(numbers)):
                self.fail(f"expected buffers in the order in which they are declared, got {', '.join(names)}")

    def fail(self, message: str, term: Stmt | Expr | str | None = None) -> NoReturn:
        if isinstance(term, Expr):
            term = print_expr(term)
        elif term is not None and not isinstance(term, str):
            term = next(iter(print_block((term,))))
        raise InternalError(f"loop nest {self.nest.name}: {message}", term=term)

    def add(self, buffer: Buffer) -> None:
        if buffer.name in self.buffers:
            self.fail(f"expected distinct names of buffers, got {buffer.name} twice")
        if buffer.memory not in MEMORIES:
            self.fail(f"expected a memory among {', '.join(MEMORIES)}, got {buffer.memory!r}", buffer.name)
        if buffer.memory == "local" and any(free_names(e) or tensors_read(e) for e in buffer.shape):
            self.fail("expected the shape of a local buffer to depend on sizes alone", buffer.name)
        self.buffers[buffer.name] = buffer

    def together(self, kernel: Kernel) -> None:
        """Loops that run side by side."""
        writer: dict[str, int] = {}
        for number, s in enumerate(kernel.body):
            if not isinstance(s, For) or s.kind != "parallel":
                self.fail("expected parallel loops alone to run together", s)
            writer.update(dict.fromkeys(written((s,)), number))
        for number, s in enumerate(kernel.body):
            for name in touched_in((s,)):
                if writer.get(name, number) != number:
                    self.fail(f"expected loops that run together not to touch what another writes, got {name}", s)

    def block(self, block: Block, bound: frozenset[str], outermost: bool = False, serial: bool = False) -> None:
        """`outermost`: around are loops over blocks at most; `serial`: around are serial loops and conditions at most."""
        for statement in block:
            self.statement(statement, bound, outermost, serial)

    def statement(self, statement: Stmt, bound: frozenset[str], outermost: bool, serial: bool) -> None:
        match statement:
            case For():
                if statement.kind not in LOOP_KINDS:
                    self.fail(f"expected a kind among {', '.join(LOOP_KINDS)}, got {statement.kind!r}", statement)
                if statement.kind == "parallel" and not serial:
                    self.fail("expected nothing but serial loops and conditions around a parallel loop", statement)
                if statement.kind in GRID and not outermost:
                    self.fail("expected the blocks of a grid outermost in their kernel", statement)
                if statement.kind in (*LANES, "unroll"):
                    # The length must be known; only vectorized loops also need a known start.
                    if not (isinstance(statement.stop, Const) and isinstance(statement.start, Const)):
                        self.fail(f"expected constant bounds of a loop to {statement.kind}", statement)
                if statement.index in bound or statement.index in self.nest.sizes:
                    self.fail(f"expected a new name for a loop, got {statement.index} again", statement)
                if statement.call is not None:
                    # All but its operands is known by its name.
                    call = replace(statement.call, operands=())
                    if self.called.setdefault(call.name, call) != call or len(call.names) != len(statement.call.operands):
                        self.fail(f"expected one instruction of the name {call.name}, and an operand for each of its pointers", statement)
                self.expr(statement.start, bound, statement)
                self.expr(statement.stop, bound, statement)
                self.block(statement.body, bound | {statement.index}, statement.kind in GRID, serial and statement.kind == "serial")
            case If():
                self.expr(statement.condition, bound, statement)
                if not statement.condition.dtype.is_bool:
                    self.fail(f"expected a bool condition, got {statement.condition.dtype}", statement)
                self.block(statement.then, bound, serial=serial)
                self.block(statement.otherwise, bound, serial=serial)
            case Store():
                buffer = self.element(statement.buffer, statement.indices, statement)
                if statement.buffer in self.read_only:
                    self.fail(f"expected {statement.buffer} to be read only", statement)
                if buffer.dtype is not statement.value.dtype:
                    self.fail(f"expected a value of {buffer.dtype}, got {statement.value.dtype}", statement)
                for e in (*statement.indices, statement.value):
                    self.expr(e, bound, statement)
            case Alloc():
                if statement.buffer.memory != "local":
                    self.fail(f"expected a local buffer, got one in {statement.buffer.memory}", statement)
                self.add(statement.buffer)
                self.block(statement.body, bound, outermost, serial)
                del self.buffers[statement.buffer.name]
            case Check():
                if not 0 <= statement.check < len(self.nest.checks):
                    self.fail(f"expected one of {len(self.nest.checks)} checks, got {statement.check}", statement)
                self.expr(statement.index, bound, statement)
                self.expr(statement.extent, bound, statement)

    def element(self, name: str, indices: tuple[Expr, ...], term: Stmt | Expr) -> Buffer:
        buffer = self.buffers.get(name)
        if buffer is None:
            self.fail(f"expected a buffer that is declared here, got {name}", term)
        if len(indices) != len(buffer.shape) and (len(indices) != 1 or not buffer.shape):
            self.fail(f"expected {len(buffer.shape)} indices of {name}, got {len(indices)}", term)
        for index in indices:
            if index.dtype is not dtypes.int64:
                self.fail(f"expected int64 indices, got {index.dtype}", term)
        return buffer

    def expr(self, expr: Expr, bound: frozenset[str], term: Stmt | Expr) -> None:
        for node in walk(expr):
            match node:
                case Reduce() | Param():
                    self.fail("expected scalars over elements and indices, got a reduction or a parameter", term)
                case Index() if node.name not in bound:
                    self.fail(f"expected a loop over {node.name} around", term)
                case Size() if node.name not in self.nest.sizes:
                    self.fail(f"expected {node.name} among the sizes", term)
                case Access():
                    buffer = self.element(node.tensor, node.indices, node)
                    if buffer.dtype is not node.dtype:
                        self.fail(f"expected an access of {buffer.dtype}, got {node.dtype}", node)
