"""The text of loop nests: Python syntax that `ast.parse` reads and `parse` turns back into the same nest.

    main(n, x, y, precision="tf32")
    n: size
    x: parameter(f32[n, 32], prefetched=256)
    y: parameter(f32[n], written, streamed)
    W: constant(f32[3]) = [1.0, 0.5, -inf]
    t: workspace(i64[n], within=(0, n - 1))

    def kernel_0() -> y:
        for i in parallel(range(0, n)):
            acc: local(f32[()])
            acc[()] = 0.0
            for k in range(0, 32):
                check(t[i], 3, 0)
                acc[()] = acc[()] + x[i, k] * W[t[i]]
            y[i] = acc[()]

    check_0 = site("W[t[i]]", tensor="W", axis=0, definition="y", location="model.py:7")

Signature and storage come first, so that a listing is complete without the program that it was lowered from; what failed checks
say and what instructions are comes last. A kernel is a function that gives what it computes (`-> together(y, w)`: its loops run
together). `for i in parallel(range(0, 64))` carries the kind (a serial loop is a bare `range`), `tensorize(range(0, 16), name(c[0], a[0]))`
the instruction; `if ahead(...)` are copies for an iteration to come, `if filled(x_tile)(...)` leaves out products with zeros of a tile. A
local buffer is the annotated assignment `acc: local(f32[6, 16])`
above the statements it lives for: those of the rest of its block, or up to `del acc`. Expressions print as in programs
(`tensorexpr.text`), long ones over several lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from keyword import iskeyword

from tensorexpr import dtypes
from tensorexpr.codegen.nest import Ahead, Alloc, Block, Buffer, Call, Check, CheckSite, Filled, For, If, Kernel, LoopNest, Stmt, Store
from tensorexpr.codegen.nest.walks import loops_in
from tensorexpr.dtypes import DType
from tensorexpr.ir import Expr
from tensorexpr.text import print_data, print_expr, print_value

_STEP = 4


def print_nest(nest: LoopNest) -> str:
    """The whole nest: parameters, constants and workspace, every kernel as a function, checks and instructions.

    `parse_nest` gives the same nest back, if names are Python identifiers and `verify_nest` accepts it.
    """
    options = [] if nest.precision == "float32" else [f"precision={_quoted(nest.precision)}"]
    options += [] if nest.tensor_cores else ["tensor_cores=False"]
    options += ["warpgroups=True"] if nest.warpgroups else []
    lines = [f"{_callable(nest.name)}({', '.join([*nest.sizes, *(b.name for b in nest.parameters), *options])})"]
    lines += [f"{size}: size" for size in nest.sizes]
    lines += [_declaration(b, _remarks(b, nest)) for b in nest.parameters]
    for constant in nest.constants:
        type_ = constant.type
        lines.append(print_data(f"{constant.name}: constant({_type(type_.dtype, type_.shape)}) = ", constant))
    lines += [_declaration(b, _remarks(b, nest)) for b in nest.workspace]
    for number, kernel in enumerate(nest.kernels):
        lines += ["", *print_kernel(kernel, number)]
    sites = [_site(number, site) for number, site in enumerate(nest.checks)]
    instructions = {call.name: _instruction(call) for kernel in nest.kernels for call in calls_in(kernel.body)}
    for more in (sites, instructions.values()):
        lines += ["", *more] if more else []
    return "\n".join(lines) + "\n"


def print_kernel(kernel: Kernel, number: int = 0) -> list[str]:
    """The lines of one kernel, as a function whose name says its number, and that gives what it computes."""
    names = kernel.name.split(" ")
    made = ", ".join(names) if all(map(_is_name, names)) else _quoted(kernel.name)
    made = f"together({made})" if kernel.together else f"({made})" if len(names) > 1 and made[0] not in "\"'" else made
    return [f"def kernel_{number}() -> {made}:", *print_block(kernel.body, _STEP)]


def print_block(block: Block, indent: int = 0) -> Iterator[str]:
    """The lines of a block from column `indent` on; `pass` for an empty one."""
    if not block:
        yield " " * indent + "pass"
    for number, statement in enumerate(block, 1):
        yield from _statement(statement, indent)
        if isinstance(statement, Alloc) and number < len(block):
            yield f"{' ' * indent}del {statement.buffer.name}"


def calls_in(block: Block) -> Iterator[Call]:
    """The instructions that loops call, in order."""
    return (s.call for s in loops_in(block) if s.call is not None)


def _remarks(buffer: Buffer, nest: LoopNest) -> list[str]:
    """What the nest says of a buffer in its head."""
    lists = {"written": nest.writes, "streamed": nest.streams, "atomic": nest.atomics}
    words = [word for word, names in lists.items() if buffer.name in names]
    return words + [f"prefetched={distance}" for name, distance in nest.ahead if name == buffer.name]


def _declaration(b: Buffer, remarks: Sequence[str] = ()) -> str:
    within = [] if b.within is None else [f"within=({b.within[0]}, {_index(b.within[1])})"]
    return f"{b.name}: {b.memory}({', '.join([_type(b.dtype, b.shape), *remarks, *within])})"


def _type(dtype: DType, shape: tuple[Expr, ...]) -> str:
    return f"{dtype.short}[{', '.join(map(_index, shape)) or '()'}]"


def _statement(statement: Stmt, indent: int) -> Iterator[str]:
    margin = " " * indent
    match statement:
        case For():
            extent = f"range({_index(statement.start)}, {_index(statement.stop)})"
            call = statement.call
            if call is not None:
                extent += f", {_callable(call.name)}({', '.join(map(_index, call.operands))})"
            extent = extent if statement.kind == "serial" and call is None else f"{statement.kind}({extent})"
            yield f"{margin}for {statement.index} in {extent}:"
            yield from print_block(statement.body, indent + _STEP)
        case If():
            word = "ahead" if isinstance(statement, Ahead) else f"filled({statement.tile})" if isinstance(statement, Filled) else None
            yield margin + print_value("if ", statement.condition, indent, word) + ":"
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


def _site(number: int, site: CheckSite) -> str:
    parts = [_quoted(site.access), f"tensor={_quoted(site.tensor)}", f"axis={site.axis}", f"definition={_quoted(site.definition)}"]
    parts += [] if site.location is None else [f"location={_quoted(str(site.location))}"]
    return f"check_{number} = site({', '.join([*parts, *(['unsigned=True'] if site.unsigned else [])])})"


def _instruction(call: Call) -> str:
    """An instruction: the call with the names of its pointers, its body, and what that declares."""
    pointers = ", ".join(map(_callable, call.names))
    declared = ", ".join(f"{_quoted(name)}: {_quoted(type_)}" for name, type_ in call.declarations)
    more = f", declarations={{{declared}}}" if declared else ""
    return f"instruction({_callable(call.name)}({pointers}), body={_lines(call.body)}{more})"


def _is_name(text: str) -> bool:
    return text.isidentifier() and not iskeyword(text)


def _callable(name: str) -> str:
    return name if _is_name(name) else _quoted(name)


def _quoted(text: str) -> str:
    return repr(text) if '"' in text else f'"{repr(text)[1:-1]}"'


def _lines(text: str) -> str:
    """A literal of several lines, where it can be written as it is."""
    plain = all(map(str.isprintable, text.split("\n"))) and "\\" not in text and '"""' not in text and not text.endswith('"')
    return f'"""{text}"""' if plain else _quoted(text)


def _index(expr: Expr) -> str:
    return print_expr(expr, dtypes.int64)
