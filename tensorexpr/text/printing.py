"""The text of programs: Python syntax that `ast.parse` reads and `tensorexpr.parse` turns back into the same program.

    sizes(n)
    A: f32[n, 32] = input()
    W: f32[3] = constant([1.0, 0.5, -inf])
    C[i, j]: f32[n, 16] = sum(A[i, k] * B[k, j] for k in range(32) if k <= i)
    S: f32 = sum(C[i, 0] for i in range(n))
    Y: f32[10, 4] = scatter({(ids[t], d): V[t, d] for t in range(8) for d in range(4)}, combine="max")
    offsets, order = segments[10](ids[t] for t in range(8) if ids[t] >= 0)
    starts, places = segments[3, 5]((y[b, t], x[b, t]) for b in batch(2) for t in range(8))
    for t in range(8):
        h: f32[4] = state(h0)
        g[i]: f32[4] = tanh(h[i] + X[t, i])
        H[t] = h = g
    return C, Y, H

Parentheses only where Python's precedence asks for them; `and`, `or`, `not` are the logical operations on bools, `&`,
`|`, `~` those on integers. A literal takes the dtype of what stands beside it; where nothing fixes it, it carries its own:
`f32(2.0)` is a literal, `f32(x)` and `f32(f64(2.0))` are casts. `-2` is a literal too, the operation on one is `neg(2)`.
A user's combiner prints as `reduce(lambda a0, a1, b0, b1: (..., ...), (f32(0.0), 1), ((v0, v1) for k in range(n)))[0]`.
"""

from __future__ import annotations

import math

import numpy as np

from tensorexpr import dtypes
from tensorexpr.dtypes import DType
from tensorexpr.errors import InternalError
from tensorexpr.ir import (
    Access,
    Apply,
    Axis,
    Cast,
    Const,
    Constant,
    Define,
    Definition,
    Expr,
    Index,
    Param,
    Program,
    Reduce,
    Scan,
    Scatter,
    Segments,
    Size,
    TensorType,
    const,
    content_of,
)
from tensorexpr.text.layout import SPACE, Doc, Group, Indent, bracketed, flat, render
from tensorexpr.traversal import expressions, is_within, walk

WIDTH = 120
INLINE_ELEMENTS = 32
"""A constant with more elements prints as the digest of its data."""
_MOST_EXPRESSIONS, _MOST_NODES, _MOST_DEPTH = 64, 400, 60
"""The expressions of a definition, their nodes, and their nodes inside each other that people are shown."""

_OR, _AND, _NOT, _COMPARE, _UNARY, _POW, _ATOM = 1, 2, 3, 4, 11, 12, 13
_LEVELS = {"|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "//": 10, "%": 10, "**": _POW}
_LOGICAL = {"and": ("and", _AND), "or": ("or", _OR)}


def print_program(program: Program, width: int = WIDTH) -> str:
    """The program as text, one statement per line, at most `width` columns wide; `parse_program` gives the same program back."""
    lines = [f"sizes({', '.join(program.sizes)})"] if program.sizes else []
    lines += [f"{i.name}: {print_type(i.type)} = input()" for i in program.inputs]
    lines += [_constant(c, width) for c in program.constants]
    lines += [print_definition(d, width=width) for d in program.definitions]
    lines.append("return " + ", ".join(program.outputs) if program.outputs else "return")
    return "\n".join(lines)


def is_readable(definition: Definition) -> bool:
    """Whether a definition is small enough for people to read: one that is not is left out where something is displayed."""
    for count, expr in enumerate(expressions(definition)):
        if count == _MOST_EXPRESSIONS or not is_within(expr, _MOST_NODES, _MOST_DEPTH):
            return False
        combined = [result for node in walk(expr) if isinstance(node, Reduce) for result in node.combiner.results]
        if not all(is_within(result, _MOST_NODES, _MOST_DEPTH) for result in combined):
            return False
    return True


def print_definition(definition: Definition, indent: int = 0, width: int = WIDTH) -> str:
    """One definition as text; a scan takes several lines. Lines after the first start at column `indent`."""
    writer = _Writer()
    match definition:
        case Define(name, axes, value):
            names = [a.index if a.start == const(0) else f"{a.index}({print_expr(a.start)})" for a in axes]
            target = f"{name}[{', '.join(names)}]" if axes else name
            head = f"{target}: {print_type(definition.results[0][1])} = "
            return _statement(head, writer.expr(value, value.dtype, 0), indent, width)
        case Scatter(name, type_):
            key = [writer.expr(e, dtypes.int64, 0) for e in definition.indices]
            pair: Doc = (key[0] if len(key) == 1 else bracketed("(", key, ")"), ": ", writer.expr(definition.value, type_.dtype, 0))
            options: list[Doc] = [writer.comprehension("{", pair, definition.axes, definition.where, "}")]
            if definition.combine != "sum":
                options.append(f'combine="{definition.combine}"')
            if definition.lowering != "segments":
                options.append(f'lowering="{definition.lowering}"')
            return _statement(f"{name}: {print_type(type_)} = ", bracketed("scatter(", options, ")"), indent, width)
        case Segments(names, extents, batch, axes, keys, where):
            parts = [writer.expr(e, dtypes.int64, 0) for e in keys]
            place: Doc = parts[0] if len(parts) == 1 else bracketed("(", parts, ")") if parts else "()"
            head = f"segments[{', '.join(print_expr(e) for e in extents) or '()'}]("
            return _statement(f"{', '.join(names)} = ", writer.comprehension(head, place, axes, where, ")", batch), indent, width)
        case Scan():
            inner = indent + 4
            lines = [f"for {definition.step} in range({print_expr(definition.length)}):"]
            # A scan that the verifier refuses must print too, so the lengths may differ.
            lines += [f"{n}: {print_type(t)} = state({init})" for (n, t), init in zip(definition.states, definition.inits, strict=False)]
            lines += [print_definition(d, inner, width) for d in definition.body]
            lines += [
                f"{name}[{definition.step}] = {state} = {following}"
                for name, (state, _), following in zip(definition.names, definition.states, definition.nexts, strict=False)
            ]
            return ("\n" + " " * inner).join(lines)
    raise InternalError(f"expected a definition, got {type(definition).__name__}")


def print_expr(expr: Expr, dtype: DType | None = None) -> str:
    """An expression on one line. `dtype` is what the place where it stands asks for: literals of that dtype print bare."""
    return flat(_Writer().expr(expr, dtype, 0))


def print_value(head: str, value: Expr, indent: int = 0, inside: str | None = None) -> str:
    """`head` and an expression of its own dtype behind it, broken where it is too long; further lines start at column `indent`.

    The expression is the argument of a call of `inside`, where that is given.
    """
    doc = _Writer().expr(value, value.dtype, 0)
    return _statement(head, doc if inside is None else bracketed(f"{inside}(", [doc], ")"), indent, WIDTH)


def print_data(head: str, constant: Constant) -> str:
    """`head` and the data of a constant behind it: its elements, the digest of many."""
    if constant.data.size > INLINE_ELEMENTS:
        return f'{head}"{_digest_text(constant.content)}"'
    return _statement(head, _data(constant.data), 0, WIDTH)


def print_type(type_: TensorType) -> str:
    """`f32[64, n + 1]`, and `f32` for a tensor without axes."""
    if not type_.shape:
        return type_.dtype.short
    return f"{type_.dtype.short}[{', '.join(print_expr(e, dtypes.int64) for e in type_.shape)}]"


def digest(data: np.ndarray) -> str:
    """What stands for the data of a large constant: a hash of dtype, shape and bytes."""
    return _digest_text(content_of(data))


def _digest_text(content: bytes) -> str:
    return "sha256:" + content.hex()[:16]


def _statement(head: str, value: Doc, indent: int, width: int) -> str:
    line = head + flat(value)
    if indent + len(line) <= width:
        return line
    first = render((head, value), width, indent)
    # Breaks are legal inside brackets only; an operator chain on top has none of its own.
    return first if _is_bracketed(value) else render((head, bracketed("(", [value], ")")), width, indent)


def _is_bracketed(doc: Doc) -> bool:
    match doc:
        case Group((str() as opening, *_)):
            return opening[-1:] in ("(", "[", "{")
        case (Group() as call, str()):
            return _is_bracketed(call)
    return False


def _constant(constant: Constant, width: int) -> str:
    head = f"{constant.name}: {print_type(constant.type)} = constant("
    if constant.data.size > INLINE_ELEMENTS:
        return f'{head}"{_digest_text(constant.content)}")'
    return _statement(head[: -len("constant(")], bracketed("constant(", [_data(constant.data)], ")"), 0, width)


def _data(data: np.ndarray) -> Doc:
    if data.ndim:
        return bracketed("[", [_data(row) for row in data], "]")
    kind = dtypes.dtype(data.dtype)
    return literal(Const(data[()].item() if not kind.is_float else float(data), kind))


def literal(value: Const) -> str:
    """The digits of a literal: the fewest that give the value back when rounded to its dtype."""
    if not value.dtype.is_float:
        return str(value.value)
    number = float(value.value)
    if not math.isfinite(number):
        return "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"
    if value.dtype is dtypes.float64:
        return repr(number)
    for digits in range(1, 17):
        short = float(f"{number:.{digits}g}")
        if Const(short, value.dtype) == value:
            return repr(short)
    return repr(number)


class _Writer:
    """Turns expressions into documents; remembers which of them fix the dtype of the literals beside them."""

    def __init__(self) -> None:
        self._known: dict[Expr, DType | None] = {}

    def known(self, expr: Expr) -> DType | None:
        """The dtype that the text of `expr` has by itself, None where it is made of literals alone."""
        if expr in self._known:
            return self._known[expr]
        match expr:
            case Const():
                found = expr.dtype if expr.dtype.is_bool else None
            case Apply() if expr.op.result != "bool":
                found = self.first_known(expr.args[1:] if expr.op.name == "where" else expr.args)
            case Reduce() if expr.combiner.is_builtin and expr.combiner.name not in ("argmax", "argmin"):
                found = self.known(expr.values[0])
            case _:
                found = expr.dtype
        self._known[expr] = found
        return found

    def first_known(self, items: tuple[Expr, ...]) -> DType | None:
        for item in items:
            found = self.known(item)
            if found is not None:
                return found
        return None

    def expr(self, expr: Expr, expected: DType | None, level: int) -> Doc:
        """The document of `expr` where dtype `expected` is asked for, in parentheses if it binds less than `level`."""
        doc, own = self.bare(expr, expected)
        return bracketed("(", [doc], ")") if own < level else doc

    def bare(self, expr: Expr, expected: DType | None) -> tuple[Doc, int]:
        """The document without parentheses and how tightly it binds."""
        match expr:
            case Const():
                text = literal(expr)
                if expr.dtype is expected or expr.dtype.is_bool or (expected is None and expr.dtype is dtypes.int64):
                    return text, _UNARY if text.startswith("-") else _ATOM
                return f"{expr.dtype}({text})", _ATOM
            case Index() | Size() | Param():
                return expr.name, _ATOM
            case Access():
                if not expr.indices:
                    return f"{expr.tensor}[()]", _ATOM
                return bracketed(f"{expr.tensor}[", [self.expr(i, dtypes.int64, 0) for i in expr.indices], "]"), _ATOM
            case Cast(dtype, arg):
                # f32(2.0) is a literal, so a cast of a literal keeps the literal's own dtype.
                inner = f"{arg.dtype}({literal(arg)})" if isinstance(arg, Const) else self.expr(arg, None, 0)
                return bracketed(f"{dtype}(", [inner], ")"), _ATOM
            case Apply():
                return self.apply(expr, expected)
            case Reduce():
                return self.reduce(expr, expected), _ATOM
        raise InternalError(f"expected an expression, got {type(expr).__name__}")

    def apply(self, expr: Apply, expected: DType | None) -> tuple[Doc, int]:
        op, args = expr.op, expr.args
        if op.name == "where":
            branches = self.first_known(args[1:]) or expected
            return bracketed("where(", [self.expr(args[0], None, 0), *(self.expr(a, branches, 0) for a in args[1:])], ")"), _ATOM
        inner = self.first_known(args) or (expected if op.result == "same" else None)
        if op.name == "neg" and not isinstance(args[0], Const):
            return ("-", self.expr(args[0], inner, _UNARY)), _UNARY
        if op.name == "invert":
            if expr.dtype.is_bool:
                return ("not ", self.expr(args[0], inner, _NOT)), _NOT
            return ("~", self.expr(args[0], inner, _UNARY)), _UNARY
        if op.infix is None or op.arity != 2:
            return bracketed(f"{op.name}(", [self.expr(a, inner, 0) for a in args], ")"), _ATOM
        if op.result == "bool":
            left, right = (self.expr(a, inner, _COMPARE + 1) for a in args)
            return Group((left, SPACE, f"{op.infix} ", right)), _COMPARE
        symbol, level = _LOGICAL[op.name] if expr.dtype.is_bool and op.name in _LOGICAL else (op.infix, _LEVELS[op.infix])
        if op.name == "pow":
            base, exponent = self.expr(args[0], inner, _ATOM), self.expr(args[1], inner, _UNARY)
            return Group((base, SPACE, "** ", exponent)), _POW
        return self.chain(expr, inner, symbol, level), level

    def chain(self, expr: Apply, inner: DType | None, symbol: str, level: int) -> Doc:
        """`a + b - c`: operations of one level that lean left stand in one group, so they break together."""
        tail: list[tuple[str, Doc]] = []
        node: Expr = expr
        while True:
            assert isinstance(node, Apply)
            tail.append((symbol, self.operand(node.args[1], inner, level + 1)))
            node = node.args[0]
            following = self.infix_of(node)
            if following is None or following[1] != level:
                break
            symbol = following[0]
        parts: list[Doc] = [self.operand(node, inner, level)]
        for sign, right in reversed(tail):
            parts += [SPACE, f"{sign} ", right]
        return Group(tuple(parts))

    def operand(self, expr: Expr, inner: DType | None, level: int) -> Doc:
        doc, own = self.bare(expr, inner)
        if own < level:
            return bracketed("(", [doc], ")")
        return Indent(doc) if own < _UNARY else doc

    @staticmethod
    def infix_of(expr: Expr) -> tuple[str, int] | None:
        """Symbol and level of an operation that prints as a left-leaning operator."""
        if not isinstance(expr, Apply) or expr.op.arity != 2 or expr.op.infix is None or expr.op.result == "bool" or expr.op.name == "pow":
            return None
        if expr.dtype.is_bool and expr.op.name in _LOGICAL:
            return _LOGICAL[expr.op.name]
        return expr.op.infix, _LEVELS[expr.op.infix]

    def comprehension(
        self, opening: str, value: Doc, axes: tuple[Axis, ...], where: Expr | None, closing: str, batch: tuple[Axis, ...] = ()
    ) -> Doc:
        """`opening value for b in batch(n) for k in range(n) if where closing`."""
        parts: list[Doc] = [value]
        for axis in batch:
            parts.append((f"for {axis.index} in ", bracketed("batch(", [self.expr(axis.stop, dtypes.int64, 0)], ")")))
        for axis in axes:
            stop = self.expr(axis.stop, dtypes.int64, 0)
            bounds = [stop] if axis.start == const(0) else [self.expr(axis.start, dtypes.int64, 0), stop]
            parts.append((f"for {axis.index} in ", bracketed("range(", bounds, ")")))
        if not axes:
            parts.append("for () in [()]")
        if where is not None:
            parts.append(("if ", self.expr(where, dtypes.bool_, 0)))
        return bracketed(opening, parts, closing, separator="")

    def reduce(self, expr: Reduce, expected: DType | None) -> Doc:
        combiner = expr.combiner
        if combiner.is_builtin:
            kept = combiner.name not in ("argmax", "argmin")
            value = self.expr(expr.values[0], (self.known(expr.values[0]) or expected) if kept else None, 0)
            return self.comprehension(f"{combiner.name}(", value, expr.axes, expr.where, ")")
        results = [self.expr(r, r.dtype, 0) for r in combiner.results]
        values = [self.expr(v, v.dtype, 0) for v in expr.values]
        identity = [self.expr(i, None, 0) for i in combiner.identity]

        def pack(items: list[Doc]) -> Doc:
            return items[0] if len(items) == 1 else bracketed("(", items, ")")

        parameters = ", ".join(p.name for p in (*combiner.left, *combiner.right))
        items: list[Doc] = [
            (f"lambda {parameters}: ", pack(results)),
            pack(identity),
            self.comprehension("(", pack(values), expr.axes, expr.where, ")"),
        ]
        if combiner.name != "reduce":
            items.append(f'name="{combiner.name}"')
        doc = bracketed("reduce(", items, ")")
        return doc if len(values) == 1 else (doc, f"[{expr.component}]")
