"""Printing of loop nests: Python syntax that `ast.parse` reads back.

A kernel is a function; `for i in parallel(range(0, 64))` carries the kind (a serial loop is a bare `range`), a local
buffer is the annotated assignment `acc: local(f32[6, 16])` above the statements it lives for, and a check is a call.
Signature and storage come first, so that a listing is complete without the program that it was lowered from.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorexpr.codegen.nest import Alloc, Block, Buffer, Check, For, If, Kernel, LoopNest, Stmt, Store
from tensorexpr.ir import Access, Apply, Cast, Const, Expr, Index, Param, Size

# Binding strength of operators, weakest first; a comparison binds weaker than the bitwise operators, as in Python.
_BINDING = {
    "<": 1, "<=": 1, ">": 1, ">=": 1, "==": 1, "!=": 1,
    "|": 2, "^": 3, "&": 4, "<<": 5, ">>": 5, "+": 6, "-": 6, "*": 7, "/": 7, "//": 7, "%": 7, "**": 9,
}  # fmt: skip
_UNARY = 8


def print_nest(nest: LoopNest) -> str:
    """The whole nest: parameters, constants and workspace, then every kernel as a function."""
    lines = [f"# {nest.name}({', '.join([*nest.sizes, *(b.name for b in nest.parameters)])})"]
    lines += [f"{_declaration(b)}{'  # written' if b.name in nest.writes else ''}" for b in nest.parameters]
    for constant in nest.constants:
        shape = ", ".join(str(n) for n in constant.data.shape)
        lines.append(f"{constant.name}: constant({constant.type.dtype.short}[{shape or '()'}])")
    lines += [_declaration(b) for b in nest.workspace]
    for number, kernel in enumerate(nest.kernels):
        lines += ["", *print_kernel(kernel, number)]
    return "\n".join(lines) + "\n"


def print_kernel(kernel: Kernel, number: int = 0) -> list[str]:
    """The lines of one kernel, as a function whose name says its number and what it computes."""
    return [f"def kernel_{number}():  # {kernel.name}", *_indent(print_block(kernel.body))]


def print_block(block: Block) -> Iterator[str]:
    """The lines of a block; `pass` for an empty one."""
    if not block:
        yield "pass"
    for statement in block:
        yield from _statement(statement)


def _indent(lines: Iterator[str] | list[str]) -> Iterator[str]:
    return ("    " + line for line in lines)


def _declaration(buffer: Buffer) -> str:
    shape = ", ".join(print_expr(e) for e in buffer.shape)
    return f"{buffer.name}: {buffer.memory}({buffer.dtype.short}[{shape or '()'}])"


def _statement(statement: Stmt) -> Iterator[str]:
    match statement:
        case For():
            extent = f"range({print_expr(statement.start)}, {print_expr(statement.stop)})"
            extent = extent if statement.kind == "serial" else f"{statement.kind}({extent})"
            yield f"for {statement.index} in {extent}:"
            yield from _indent(print_block(statement.body))
        case If():
            yield f"if {print_expr(statement.condition)}:"
            yield from _indent(print_block(statement.then))
            if statement.otherwise:
                yield "else:"
                yield from _indent(print_block(statement.otherwise))
        case Store():
            yield f"{_element(statement.buffer, statement.indices)} = {print_expr(statement.value)}"
        case Alloc():
            yield _declaration(statement.buffer)
            yield from print_block(statement.body) if statement.body else ()
        case Check():
            yield f"check({print_expr(statement.index)}, {print_expr(statement.extent)}, {statement.check})"


def _element(name: str, indices: tuple[Expr, ...]) -> str:
    return f"{name}[{', '.join(print_expr(i) for i in indices) or '()'}]"


def print_expr(expr: Expr, context: int = 0) -> str:
    """A scalar expression of a nest; parentheses only where `context` (the binding around it) asks for them."""
    match expr:
        case Const():
            return _literal(expr)
        case Index() | Size() | Param():
            return expr.name
        case Access():
            return _element(expr.tensor, expr.indices)
        case Cast():
            return f"{expr.dtype.short}({print_expr(expr.arg)})"
        case Apply() if expr.op.infix is not None and expr.op.arity == 2:
            binding = _BINDING[expr.op.infix]
            left, right = (binding + 1, binding) if binding == 9 else (binding + (binding == 1), binding + 1)
            text = f"{print_expr(expr.args[0], left)} {expr.op.infix} {print_expr(expr.args[1], right)}"
            return f"({text})" if binding < context else text
        case Apply() if expr.op.infix is not None:
            text = f"{expr.op.infix}{print_expr(expr.args[0], _UNARY)}"
            return f"({text})" if context > _UNARY else text
        case Apply():
            return f"{expr.op.name}({', '.join(print_expr(a) for a in expr.args)})"
    raise AssertionError(type(expr))


def _literal(expr: Const) -> str:
    if expr.dtype.is_float:
        text = repr(float(expr.value))
        if text in ("inf", "-inf", "nan"):
            text = f"float('{text}')"
        return text if expr.dtype.short in ("f32", "f64") and expr.dtype.short == "f32" else f"{expr.dtype.short}({text})"
    if expr.dtype.is_bool or expr.dtype.short == "i64":
        return repr(expr.value)
    return f"{expr.dtype.short}({expr.value})"
