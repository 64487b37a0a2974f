"""Printing of loop nests: Python syntax that `ast.parse` reads back.

A kernel is a function; `for i in parallel(range(0, 64))` carries the kind (a serial loop is a bare `range`), a local
buffer is the annotated assignment `acc: local(f32[6, 16])` above the statements it lives for, and a check is a call.
Expressions print as in programs (`tensorexpr.text`), long ones over several lines.
Signature and storage come first, so that a listing is complete without the program that it was lowered from.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr import dtypes
from tensorexpr.codegen.nest import Alloc, Block, Buffer, Check, For, If, Kernel, LoopNest, Stmt, Store
from tensorexpr.ir import Expr
from tensorexpr.text import print_expr, print_value

_STEP = 4


def print_nest(nest: LoopNest) -> str:
    """The whole nest: parameters, constants and workspace, then every kernel as a function."""
    lines = [f"# {nest.name}({', '.join([*nest.sizes, *(b.name for b in nest.parameters)])})"]
    ahead = dict(nest.ahead)
    for b in nest.parameters:
        remark = "  # written past the caches" if b.name in nest.streams else "  # written" if b.name in nest.writes else ""
        remark = f"  # fetched {ahead[b.name]} elements ahead" if b.name in ahead else remark
        remark += _atomic(b, nest)
        lines.append(_declaration(b) + remark)
    for constant in nest.constants:
        shape = ", ".join(str(n) for n in constant.data.shape)
        lines.append(f"{constant.name}: constant({constant.type.dtype.short}[{shape or '()'}])")
    for b in nest.workspace:
        remark = f"  # what it leads to is fetched {ahead[b.name]} elements ahead" if b.name in ahead else ""
        lines.append(_declaration(b) + remark + _atomic(b, nest))
    for number, kernel in enumerate(nest.kernels):
        lines += ["", *print_kernel(kernel, number)]
    return "\n".join(lines) + "\n"


def print_kernel(kernel: Kernel, number: int = 0) -> list[str]:
    """The lines of one kernel, as a function whose name says its number and what it computes."""
    return [f"def kernel_{number}():  # {kernel.name}{', together' if kernel.together else ''}", *print_block(kernel.body, _STEP)]


def print_block(block: Block, indent: int = 0) -> Iterator[str]:
    """The lines of a block from column `indent` on; `pass` for an empty one."""
    if not block:
        yield " " * indent + "pass"
    for statement in block:
        yield from _statement(statement, indent)


def _atomic(buffer: Buffer, nest: LoopNest) -> str:
    return "  # updates in one piece" if buffer.name in nest.atomics else ""


def _declaration(buffer: Buffer) -> str:
    shape = ", ".join(_index(e) for e in buffer.shape)
    return f"{buffer.name}: {buffer.memory}({buffer.dtype.short}[{shape or '()'}])"


def _statement(statement: Stmt, indent: int) -> Iterator[str]:
    margin = " " * indent
    match statement:
        case For():
            extent = f"range({_index(statement.start)}, {_index(statement.stop)})"
            if statement.call is not None:
                extent += f", {statement.call.name}({', '.join(_index(operand) for operand in statement.call.operands)})"
            extent = extent if statement.kind == "serial" else f"{statement.kind}({extent})"
            yield f"{margin}for {statement.index} in {extent}:"
            yield from print_block(statement.body, indent + _STEP)
        case If():
            yield margin + print_value("if ", statement.condition, indent) + ":"
            yield from print_block(statement.then, indent + _STEP)
            if statement.otherwise:
                yield f"{margin}else:"
                yield from print_block(statement.otherwise, indent + _STEP)
        case Store():
            target = ", ".join(_index(i) for i in statement.indices) or "()"
            yield margin + print_value(f"{statement.buffer}[{target}] = ", statement.value, indent)
        case Alloc():
            yield margin + _declaration(statement.buffer)
            yield from print_block(statement.body, indent) if statement.body else ()
        case Check():
            yield f"{margin}check({_index(statement.index)}, {_index(statement.extent)}, {statement.check})"


def _index(expr: Expr) -> str:
    return print_expr(expr, dtypes.int64)
