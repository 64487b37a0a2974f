"""Scalar expressions as C++: one row per operation of the language, and what is used more than once computed once.

A subexpression that occurs twice in a statement is named before it (`const float t0 = ...;`), in the branch of a `where` that
asks for it: nothing of the branch not taken is evaluated, since it may read outside of a tensor. Such a branch becomes an
`if`; a plain one a `?:`. Additions and multiplications of floats may contract to fused multiply-adds, as on the CPU.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from tensorexpr import dtypes, ir
from tensorexpr.codegen.cuda.thread import values as v
from tensorexpr.codegen.cuda.thread.values import Value, c_type
from tensorexpr.codegen.nest import Buffer
from tensorexpr.dtypes import DType
from tensorexpr.errors import InternalError
from tensorexpr.ir import Access, Apply, Cast, Const, Expr, Index, Size, const, integer
from tensorexpr.ops import OPS, expand
from tensorexpr.records import record
from tensorexpr.regions import affine_of, expression_of
from tensorexpr.traversal import bottom_up, substitute, walk

T = TypeVar("T")
_WORTH_A_NAME = 12  # nodes of an index expression from which it is named where it occurs twice

_SYMBOLS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# Exact in float32 for 16-bit floats: no rounding afterwards.
_EXACT = frozenset({"neg", "abs", "sign", "minimum", "maximum", "floor", "ceil", "round", "trunc", "stop_gradient", "recompute", "where"})
_LIBRARY = {op.name: op.c for op in OPS.values() if op.c is not None}
RESERVED = frozenset(n for name in (*_LIBRARY.values(), "fmod", "copysign") for n in (name, f"{name}f"))
"""Names that emitted text uses as functions."""
_OURS = frozenset({"sigmoid", "rsqrt", "sign", "minimum", "maximum", "floordiv", "mod"})


def operations() -> frozenset[str]:
    """The names of operations that expressions may have."""
    arithmetic = {"add", "sub", "mul", "div", "neg", "and", "or", "xor", "invert", "shift_left", "shift_right", "where"}
    made = (name for name, op in OPS.items() if op.formula is not None)
    return frozenset({*arithmetic, *_SYMBOLS, *_LIBRARY, *_OURS, "isnan", "isinf", "isfinite", "stop_gradient", "recompute", *made})


def wanted_names(expressions: tuple[Expr, ...]) -> frozenset[Expr]:
    """The subexpressions of one statement that are worth a name: those that occur more than once and are no mere index."""
    counts: Counter[Expr] = Counter()
    sizes: dict[Expr, int] = {}
    order: list[Expr] = []
    todo: list[tuple[Expr, bool]] = [(e, False) for e in reversed(expressions)]
    for e in expressions:
        counts[e] += 1
    while todo:
        node, done = todo.pop()
        if done:
            sizes[node] = 1 + sum(sizes.get(c, 1) for c in _children(node))
            order.append(node)
        elif node not in sizes:
            sizes[node] = 0
            todo.append((node, True))
            for child in reversed(_children(node)):
                counts[child] += 1
                todo.append((child, False))
    found = set()
    for node in order:
        if counts[node] < 2 or isinstance(node, Const | Index | Size):
            continue
        if node.dtype is dtypes.int64 or node.dtype.is_bool:
            if sizes[node] >= _WORTH_A_NAME:
                found.add(node)
        else:
            found.add(node)
    return frozenset(found)


def _children(node: Expr) -> tuple[Expr, ...]:
    match node:
        case Apply():
            return node.args
        case Cast():
            return (node.arg,)
        case Access():
            return node.indices
    return ()


@record
class Surroundings:
    """What expressions of a kernel refer to: buffers and, by name, loop indices and sizes in scope; `word` gives the identifier
    of a buffer, `fresh` a new one. Of `own` buffers every thread has the element of its lane alone: they have no last axis. Of those with
    `slots` each warp has its own, which the text there is the index of. Rows of `swizzled` buffers of 16 bits are cut into pieces of 128
    bytes, whose chunks of sixteen lie in another order in each of eight rows (see `emitter.groups`)."""

    buffers: dict[str, Buffer]
    indices: dict[str, Value]
    word: Callable[[str], str]
    fresh: Callable[[], str]
    own: frozenset[str] = frozenset()
    slots: Mapping[str, str] = MappingProxyType({})
    swizzled: frozenset[str] = frozenset()


class Emitter:
    """The expressions of one statement: `lines` go before it, `names` are the subexpressions to be named there."""

    def __init__(self, around: Surroundings, names: frozenset[Expr], lines: list[str]) -> None:
        self.around = around
        self.names = names
        self.lines = lines
        self.known: dict[Expr, Value] = {}

    def value(self, e: Expr) -> Value:
        """The value of an expression; shared parts of it are computed in the lines before."""
        found = self.known.get(e)
        if found is not None:
            return found
        made = self._made(e)
        if e in self.names:
            name = self.around.fresh()
            self.lines.append(f"const {v.type_of(made)} {name} = {made.text};")
            made = Value(name, made.dtype, v.ATOM, made.narrow, made.low, made.high, made.wild)
            self.known[e] = made
        return made

    def _made(self, e: Expr) -> Value:
        match e:
            case Const():
                return literal(e)
            case Index() | Size():
                return self.around.indices[e.name]
            case Access():
                return self.element(e)
            case Cast():
                return cast(self.value(e.arg), e.dtype)
            case Apply() if e.op.name == "where":
                return self.choice(e)
            case Apply():
                return apply(e.op.name, e.args[0].dtype, [self.value(a) for a in e.args])
        raise InternalError(f"cuda: expected an expression of a loop nest, got {type(e).__name__}", term=e)

    def choice(self, e: Apply) -> Value:
        """`where`: a `?:`, or an `if` around the lines that a branch needs."""
        condition = self.value(e.args[0])
        branches = []
        for arg in e.args[1:]:
            inner = Emitter(self.around, self.names, [])
            inner.known = dict(self.known)
            branches.append((inner.value(arg), inner.lines))
        (taken, before), (otherwise, after) = branches
        low = None if taken.low is None or otherwise.low is None else min(taken.low, otherwise.low)
        high = None if taken.high is None or otherwise.high is None else max(taken.high, otherwise.high)
        narrow = taken.narrow and otherwise.narrow
        if e.dtype is dtypes.int64 and not narrow:
            taken, otherwise = v.widened(taken), v.widened(otherwise)
        wild = taken.wild or otherwise.wild
        if not before and not after and otherwise.text == "false":
            return _logical("and", e.dtype, [condition, taken])  # which does not ask for the second either
        if not before and not after:
            text = f"{condition.inside(v.OR)} ? {taken.inside(v.OR)} : {otherwise.inside(v.CHOICE)}"
            return Value(text, e.dtype, v.CHOICE, narrow, low, high, wild)
        name = self.around.fresh()
        self.lines += [
            f"{'int' if narrow else c_type(e.dtype)} {name};",
            f"if ({condition.text}) {{",
            *(f"  {line}" for line in before),
            f"  {name} = {taken.text};",
            "} else {",
            *(f"  {line}" for line in after),
            f"  {name} = {otherwise.text};",
            "}",
        ]
        return Value(name, e.dtype, v.ATOM, narrow, low, high, wild)

    def element(self, e: Access) -> Value:
        """An element as a value in registers."""
        text = self.place(e.tensor, e.indices)
        if e.dtype.is_float and e.dtype.bits == 16:
            return Value(f"te_f32({text})", e.dtype)
        if e.dtype is not dtypes.int64:
            return Value(text, e.dtype)
        buffer = self.around.buffers[e.tensor]
        if buffer.within is None:
            return Value(text, e.dtype, v.ATOM, wild=True)
        least, most = buffer.within[0], self.value(buffer.within[1]).high
        if is_narrow(buffer):
            return Value(text, e.dtype, v.ATOM, True, least, most)
        found = Value(text, e.dtype, v.ATOM, False, least, most)
        return found if most is None else v.narrowed(found, least, most)

    def place(self, name: str, indices: tuple[Expr, ...]) -> str:
        """An element as a place in memory."""
        buffer, word = self.around.buffers[name], self.around.word(name)
        if buffer.memory == "local":
            indices = indices[:-1] if name in self.around.own else indices
            if name in self.around.swizzled:
                *outer, row, column = without_units(indices, tuple(integer(n) for n in buffer.shape))
                piece, rest, turn = (
                    ir.apply(op, e, const(n)) for op, e, n in (("floordiv", column, 64), ("mod", column, 64), ("mod", row, 8))
                )
                below = "".join(f"[{self.value(i).text}]" for i in (*outer, piece, row))
                return f"{word}{below}[{self.value(rest).inside(v.BIT_XOR)} ^ {self.value(turn).inside(v.PRODUCT)} * 8]"
            return word + self.around.slots.get(name, "") + "".join(f"[{self.value(i).text}]" for i in indices)
        if len(indices) == 1 < len(buffer.shape):
            return f"{word}[{self.value(indices[0]).text}]"
        offset = self.flattened(indices, buffer.shape)
        if offset is not None:
            return f"{word}[{offset.text}]"
        offset = v.integer(0)
        for i, extent in zip(indices, buffer.shape, strict=True):
            length = self.value(extent)
            at = self.value(i)
            # The access is in bounds wherever it is evaluated.
            at = v.narrowed(at, 0, max(0, length.constant - 1)) if length.constant is not None else at
            offset = v.add(v.mul(offset, length), at)
        return f"{word}[{offset.text}]"

    def flattened(self, indices: tuple[Expr, ...], shape: tuple[Expr, ...]) -> Value | None:
        """The position of an element whose indices are parts of one loop (its quotients and remainders), as one affine form: most of
        these cancel. None where there is no such form or no such part."""
        if not any(isinstance(n, Apply) and n.op.name in ("floordiv", "mod") for i in indices for n in walk(i)):
            return None
        read: dict[str, Expr] = {}

        def named(node: Expr) -> Expr:
            if not isinstance(node, Access) or node.dtype is not dtypes.int64:
                return node
            name = next((n for n, e in read.items() if e == node), f"#{len(read)}")
            read[name] = node
            return Index(name)

        # Quotient and remainder of what is read cancel, too.
        position = row_major(tuple(bottom_up(i, named) for i in indices), shape)
        form = None if position is None else affine_of(position)
        if form is None:
            return None
        found = expression_of(form)
        for name in reversed(read):  # what is read may be read at places that are read
            found = substitute(found, {name: read[name]})
        return self.value(found)


def without_units(items: Sequence[T], extents: Sequence[int]) -> list[T]:
    """What is said of each axis, without those of one element before the last."""
    return [item for item, n in zip(items[:-1], extents[:-1], strict=True) if n != 1] + [items[-1]]


def is_narrow(buffer: Buffer) -> bool:
    """Whether a buffer is a number of a thread that an `int` holds."""
    if buffer.within is None or buffer.memory != "local" or buffer.shape or buffer.dtype is not dtypes.int64:
        return False
    least, most = buffer.within
    return isinstance(most, Const) and v.fits(least, int(most.value))


def row_major(indices: tuple[Expr, ...], shape: tuple[Expr, ...]) -> Expr | None:
    """The row-major position as an expression, where the extents are constants."""
    if len(indices) == 1:
        return indices[0]
    position: Expr = const(0)
    for i, extent in zip(indices, shape, strict=True):
        if not isinstance(extent, Const):
            return None
        position = ir.apply("add", ir.apply("mul", position, extent), i)
    return position


def stored(value: Value) -> str:
    """The text of a value as an element in memory."""
    if value.dtype.is_float and value.dtype.bits == 16:
        word = f"te_round_{value.dtype.short}"
        # To become an element is to be rounded.
        inner = value.text[len(word) :] if value.text.startswith(f"{word}(") and _closes_at(value.text, len(word)) else f"({value.text})"
        return f"te_to_{value.dtype.short}{inner}"
    return value.text


def _closes_at(text: str, start: int) -> bool:
    """Whether the parenthesis at a place is closed by the last character."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if not depth:
            return place == len(text) - 1
    return False


def literal(e: Const) -> Value:
    """A constant; floats so that they read back the same."""
    if e.dtype is dtypes.int64:
        return v.integer(int(e.value))
    if e.dtype.is_bool:
        return Value("true" if e.value else "false", e.dtype)
    if e.dtype.is_integer:
        value = int(e.value)
        suffix = {"uint32": "u", "uint64": "ull"}.get(e.dtype.name, "")
        text = "(-2147483647 - 1)" if value == -(1 << 31) else f"{value}{suffix}"
        if e.dtype is dtypes.int32:
            return Value(text, e.dtype, v.PREFIX if value < 0 else v.ATOM, low=value, high=value)
        return Value(
            f"({c_type(e.dtype)}){text}" if e.dtype.bits < 32 else text, e.dtype, v.PREFIX if value < 0 or e.dtype.bits < 32 else v.ATOM
        )
    number, double = float(e.value), e.dtype is dtypes.float64
    width = "F64" if double else "F32"
    if math.isnan(number):
        return Value(f"TE_NAN_{width}", e.dtype)
    if math.isinf(number):
        return Value(f"TE_INF_{width}" if number > 0 else f"-TE_INF_{width}", e.dtype, v.ATOM if number > 0 else v.PREFIX)
    text = repr(number) if double else _shortest(number)
    text = text if any(c in text for c in ".en") else f"{text}.0"
    return Value(text if double else f"{text}f", e.dtype, v.PREFIX if text.startswith("-") else v.ATOM)


def _shortest(number: float) -> str:
    """The shortest decimal that reads as this float32."""
    for digits in range(1, 10):
        text = f"{number:.{digits}g}"
        if float(dtypes.float32.numpy.type(text)) == number:
            return text
    return repr(number)


def cast(x: Value, target: DType) -> Value:
    """A value in another dtype (`ops.cast_value`)."""
    source = x.dtype
    if source is target:
        return x
    if target.is_bool:
        return Value(f"{x.inside(v.EQUAL + 1)} != 0", target, v.EQUAL)
    if target.is_float:
        return _to_float(x, target)
    if source.is_float:
        least, greatest = integer_literal(int(target.least), target), integer_literal(int(target.greatest), target)
        return Value(f"te_saturate<{c_type(target)}>({x.text}, {least}, {greatest})", target, wild=target is dtypes.int64)
    if target is dtypes.int32 and x.narrow:
        return Value(x.text, target, x.rank, low=x.low, high=x.high)
    text = f"({c_type(target)}){x.inside(v.PREFIX)}"
    if target is dtypes.int64:
        if source is dtypes.uint64:
            return Value(text, target, v.PREFIX, wild=True)
        low, high = int(source.least), 1 if source.is_bool else int(source.greatest)
        if v.fits(low, high):
            return Value(f"(int){x.inside(v.PREFIX)}", target, v.PREFIX, True, low, high)
        return Value(text, target, v.PREFIX, False, low, high)
    return Value(text, target, v.PREFIX)


def integer_literal(value: int, dtype: DType) -> str:
    """An integer constant of a dtype as text."""
    return v.integer(value).text if dtype is dtypes.int64 else literal(Const(value, dtype)).text


def _to_float(x: Value, target: DType) -> Value:
    if target.bits == 16:
        if x.dtype is dtypes.float64:
            inner = x.text if target is dtypes.float16 else f"(float){x.inside(v.PREFIX)}"
        else:
            inner = x.text if x.dtype.is_float else f"(float){x.inside(v.PREFIX)}"
        return Value(f"te_round_{target.short}({inner})", target)
    if x.dtype.is_float and x.dtype is not dtypes.float64 and target is dtypes.float32:
        return Value(x.text, target, x.rank)
    return Value(f"({c_type(target)}){x.inside(v.PREFIX)}", target, v.PREFIX)


def apply(name: str, dtype: DType, args: list[Value]) -> Value:
    """An operation on operands of `dtype`."""
    if name in _SYMBOLS:
        return _compare(name, *args)
    if name in ("stop_gradient", "recompute"):
        return args[0]
    if dtype is dtypes.int64:
        return _on_int64(name, args)
    if dtype.is_bool:
        return _logical(name, dtype, args)
    if dtype.is_integer:
        return _on_integers(name, dtype, args)
    made = _on_floats(name, dtype, args)
    if dtype.bits == 16 and name not in _EXACT and not made.dtype.is_bool:
        return Value(f"te_round_{dtype.short}({made.text})", dtype)
    return made


def _compare(name: str, x: Value, y: Value) -> Value:
    rank = v.EQUAL if name in ("eq", "ne") else v.ORDER
    known = _decided(name, x, y)
    if known is not None:
        return literal(Const(known, dtypes.bool_))
    return Value(f"{x.inside(rank + 1)} {_SYMBOLS[name]} {y.inside(rank + 1)}", dtypes.bool_, rank)


def _decided(name: str, x: Value, y: Value) -> bool | None:
    """What an order of two integers is by their intervals alone, where these say it."""
    if x.dtype is not dtypes.int64:
        return None
    if name in ("gt", "le"):
        return _decided("lt" if name == "gt" else "ge", y, x)
    if name not in ("lt", "ge"):
        return None
    less = x.high is not None and y.low is not None and x.high < y.low
    not_less = x.low is not None and y.high is not None and x.low >= y.high
    return (less if name == "lt" else not_less) if less or not_less else None


def _logical(name: str, dtype: DType, args: list[Value]) -> Value:
    known = next((a for a in args if a.text in ("true", "false")), None)
    if name in ("and", "or") and known is not None:
        other = args[1] if args[0] is known else args[0]
        return other if (known.text == "true") == (name == "and") else known
    if name == "invert":
        return Value(f"!{args[0].inside(v.PREFIX)}", dtype, v.PREFIX)
    symbol, rank = {
        "and": ("&&", v.AND), "or": ("||", v.OR), "minimum": ("&&", v.AND), "maximum": ("||", v.OR), "xor": ("!=", v.EQUAL)
    }[name]  # fmt: skip
    # An `and` inside an `or` gets parentheses it does not need: compilers and readers ask for them.
    sides = [a.text if a.rank > v.AND or a.rank == rank else f"({a.text})" for a in args]
    if name == "xor":
        sides = [a.inside(rank + 1) for a in args]
    return Value(f" {symbol} ".join(sides), dtype, rank)


def _on_int64(name: str, args: list[Value]) -> Value:
    match name:
        case "add":
            return v.add(*args)
        case "sub":
            return v.sub(*args)
        case "mul":
            return v.mul(*args)
        case "neg":
            return v.sub(v.integer(0), args[0])
        case "floordiv" | "mod":
            return v.divide(args[0], args[1], modulo=name == "mod")
        case "minimum" | "maximum":
            return v.extreme(args[0], args[1], greater=name == "maximum")
        case "abs" if args[0].low is not None and args[0].low >= 0:
            return args[0]
    return _on_integers(name, dtypes.int64, [v.widened(a) for a in args])


_ARITHMETIC = {"add": ("+", v.SUM), "sub": ("-", v.SUM), "mul": ("*", v.PRODUCT)}
_BITWISE = {"and": ("&", v.BIT_AND), "or": ("|", v.BIT_OR), "xor": ("^", v.BIT_XOR)}


def _on_integers(name: str, dtype: DType, args: list[Value]) -> Value:
    type_ = c_type(dtype)
    wild = dtype is dtypes.int64
    if name in _ARITHMETIC:
        symbol, rank = _ARITHMETIC[name]
        low, high = v.interval(name, *args)
        if dtype is dtypes.int32 and v.fits(low, high):
            right = args[1].inside(rank + 1)
            return Value(f"{args[0].inside(rank)} {symbol} {right}", dtype, rank, low=low, high=high)
        wide = "uint64_t" if dtype.bits == 64 else "uint32_t"
        text = f"({type_})(({wide}){args[0].inside(v.PREFIX)} {symbol} ({wide}){args[1].inside(v.PREFIX)})"
        return Value(text, dtype, v.PREFIX, wild=wild)
    if name in _BITWISE:
        symbol, rank = _BITWISE[name]
        text = f"{args[0].inside(v.PREFIX)} {symbol} {args[1].inside(v.PREFIX)}"
        return Value(f"({type_})({text})", dtype, v.PREFIX, wild=wild) if dtype.bits < 32 else Value(text, dtype, rank, wild=wild)
    match name:
        case "neg":
            wide = "uint64_t" if dtype.bits == 64 else "uint32_t"
            return Value(f"({type_})(0 - ({wide}){args[0].inside(v.PREFIX)})", dtype, v.PREFIX, wild=wild)
        case "invert":
            return Value(f"({type_})~{args[0].inside(v.PREFIX)}", dtype, v.PREFIX, wild=wild)
        case "shift_left" | "shift_right":
            return Value(f"te_{name}<{type_}>({args[0].text}, {args[1].text}, {dtype.bits})", dtype, wild=wild)
        case "pow":
            return Value(f"te_power<{type_}>({args[0].text}, {args[1].text})", dtype, wild=wild)
        case "abs" if not dtype.is_signed:
            return args[0]
        case "abs" | "sign" | "minimum" | "maximum" | "floordiv" | "mod":
            return Value(f"te_{name}<{type_}>({', '.join(a.text for a in args)})", dtype, wild=wild)
    raise InternalError(f"cuda: expected an operation on integers, got {name!r}")


def _on_floats(name: str, dtype: DType, args: list[Value]) -> Value:
    suffix = "" if dtype is dtypes.float64 else "f"
    one = f"1.0{suffix}"
    if name in _ARITHMETIC:
        symbol, rank = _ARITHMETIC[name]
        tighter = rank + 1 if name == "sub" else rank
        # a + (b + c) is another sum than a + b + c.
        right = args[1].inside(max(tighter, rank + 1))
        return Value(f"{args[0].inside(rank)} {symbol} {right}", dtype, rank)
    match name:
        case "div":
            return Value(f"{args[0].inside(v.PRODUCT)} / {args[1].inside(v.PREFIX)}", dtype, v.PRODUCT)
        case "neg":
            return Value(f"-{args[0].inside(v.ATOM)}", dtype, v.PREFIX)
        case "isnan":
            return Value(f"{args[0].inside(v.PREFIX)} != {args[0].inside(v.PREFIX)}", dtypes.bool_, v.EQUAL)
        case "isinf":
            return Value(f"fabs{suffix}({args[0].text}) == TE_INF_{'F64' if not suffix else 'F32'}", dtypes.bool_, v.EQUAL)
        case "isfinite":
            return Value(f"fabs{suffix}({args[0].text}) < TE_INF_{'F64' if not suffix else 'F32'}", dtypes.bool_, v.ORDER)
        case "pow" if args[1].text in (f"2.0{suffix}", f"2{suffix}"):
            return Value(f"{args[0].inside(v.PRODUCT)} * {args[0].inside(v.PREFIX)}", dtype, v.PRODUCT)
        case "pow" if args[1].text == one:
            return args[0]
    if name in _LIBRARY:
        return Value(f"{_LIBRARY[name]}{suffix}({', '.join(a.text for a in args)})", dtype)
    if name in _OURS:
        return Value(f"te_{name}({', '.join(a.text for a in args)})", dtype)
    if (formula := OPS[name].formula) is not None:
        return _expanded(formula, dtype, args)
    raise InternalError(f"cuda: expected an operation on floats, got {name!r}")


def _expanded(formula: str, dtype: DType, args: list[Value]) -> Value:
    """What an operation is made of; 16-bit floats are numbers of 32 bits until the end."""
    wide = dtypes.accumulator(dtype)

    def applied(name: str, *values: Value) -> Value:
        if name != "where":
            return apply(name, values[0].dtype if name in ("and", "or", "invert") else wide, list(values))
        condition, taken, otherwise = values
        return Value(f"{condition.inside(v.OR)} ? {taken.inside(v.OR)} : {otherwise.inside(v.CHOICE)}", wide, v.CHOICE)

    made = expand(formula, dict(zip("ab", args)), lambda value: literal(Const(value, wide)), applied)
    return Value(made.text, dtype, made.rank)
