"""Reading scalar expressions, types and constants: what the texts of programs and of loop nests share.

The dtype of a literal comes from what stands around it, so an expression is read into a `_Pending`: the dtype it has by itself (None
where it is made of literals alone) and a function that finishes it once the place where it stands has said what it wants. Whatever is
not the language is a `DefinitionError` with line and column.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any, NoReturn

import numpy as np

from tensorexpr import dtypes
from tensorexpr.dtypes import DTYPES, DType
from tensorexpr.errors import DefinitionError, Location
from tensorexpr.ir import (
    BUILTIN_COMBINERS,
    Access,
    Apply,
    Axis,
    Cast,
    Combiner,
    Const,
    Constant,
    Expr,
    Index,
    Param,
    Reduce,
    Size,
    TensorType,
    conjunction,
    const,
)
from tensorexpr.ops import OPS
from tensorexpr.records import record
from tensorexpr.text import digest, print_type

_DTYPES = {d.short: d for d in DTYPES}
_BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod", ast.Pow: "pow",
    ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.LShift: "shift_left", ast.RShift: "shift_right",
}  # fmt: skip
_COMPARE = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_UNARY = {ast.USub: "neg", ast.Not: "invert", ast.Invert: "invert"}


@record(frozen=False)
class _Pending:
    dtype: DType | None
    finish: Callable[[DType | None], Expr]


class ScalarReader:
    """Reads expressions over `tensors` (their dtypes by name), `sizes` and the indices that are bound where it stands."""

    function = "parse_program"
    """What a hint calls."""

    def __init__(self, text: str, data: Mapping[str, np.ndarray]) -> None:
        self.lines = text.splitlines()
        self.data = data
        self.tensors: dict[str, DType] = {}
        self.sizes: dict[str, None] = {}
        self.params: dict[str, Param] = {}
        self.bound: dict[str, int] = {}
        self.free_indices = False

    def fail(self, node: ast.AST, message: str, hint: str | None = None) -> NoReturn:
        """Raises the error at a node, with the line that it stands in."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        text = self.lines[line - 1].strip() if line <= len(self.lines) else None
        raise DefinitionError(message, term=text, at=f"line {line}, column {column + 1}", hint=hint)

    def refuse_unread(self, tree: ast.AST) -> None:
        """Refuses what Python's grammar has and a program has no meaning for; nothing of a text is dropped."""
        for node in ast.walk(tree):
            match node:
                case ast.Call(keywords=[option, *_]) if called(node) != "scatter" and (called(node), option.arg) != ("reduce", "name"):
                    self.fail(node, f"expected {shown(node.func)} without options, got {option.arg}")
                case ast.Call(args=[_, *_]) if called(node) == "input":
                    self.fail(node, f"expected input(), got {shown(node)}")
                case ast.For(orelse=[behind, *_]):
                    self.fail(behind, f"expected a scan without else, got {shown(behind)}")
                case ast.comprehension(is_async=1, target=target):
                    self.fail(target, "expected for, got async for")

    def constant(self, data: ast.expr, name: str, type_: TensorType) -> Constant:
        """A constant of this type, with the data that is written here: its elements, or the digest of what was given."""
        shape = tuple(int(e.value) for e in type_.shape if isinstance(e, Const))
        if isinstance(data, ast.Constant) and isinstance(data.value, str):
            if name not in self.data:
                hint = f"{self.function}(text, constants={{{name!r}: array}})"
                self.fail(data, f"expected the data of {name} in constants, got none", hint)
            array = np.asarray(self.data[name])
            if digest(array) != data.value:
                self.fail(data, f"expected data with digest {data.value}, got {digest(array)}")
            if (found := Constant(name, array)).type != type_:
                self.fail(data, f"expected data of {print_type(type_)}, got {print_type(found.type)}")
            return found
        values = [item.value for item in self.elements(data, type_.dtype)]
        if len(values) != prod(shape) or min(shape, default=0) < 0:
            self.fail(data, f"expected {prod(shape)} values, got {len(values)}")
        try:
            return Constant(name, np.array(values, type_.dtype.numpy).reshape(shape))
        except ValueError:  # extents beside one of 0 whose product no array has
            self.fail(data, f"expected a shape of an array, got {print_type(type_)}")

    def elements(self, node: ast.expr, dtype: DType) -> Iterator[Const]:
        if isinstance(node, ast.List):
            for element in node.elts:
                yield from self.elements(element, dtype)
            return
        value = self.expr(node, dtype)
        if not isinstance(value, Const) or value.dtype is not dtype:
            self.fail(node, f"expected a literal of {dtype.name}, got {shown(node)}")
        yield value

    def type(self, node: ast.expr) -> TensorType:
        """A type such as `f32[64, n]`."""
        name, shape = (node.value, items_of(node.slice)) if isinstance(node, ast.Subscript) else (node, [])
        if not isinstance(name, ast.Name) or name.id not in _DTYPES:
            self.fail(node, f"expected a type such as f32[64, 32], got {shown(node)}", hint="dtypes are " + ", ".join(_DTYPES))
        return TensorType(tuple(self.expr(e, dtypes.int64) for e in shape), _DTYPES[name.id])

    def name(self, node: ast.AST) -> str:
        """A bare name."""
        if not isinstance(node, ast.Name):
            self.fail(node, f"expected a name, got {shown(node)}")
        return node.id

    @contextmanager
    def binding(self, names: list[str]) -> Iterator[None]:
        """Names that are indices inside."""
        for name in names:
            self.bound[name] = self.bound.get(name, 0) + 1
        yield
        for name in names:
            self.bound[name] -= 1

    @contextmanager
    def loops(self, generators: list[ast.comprehension], also: str = "range") -> Iterator[tuple[tuple[Axis, ...], Expr | None]]:
        """The axes and the condition of a comprehension, their indices bound while its value is read.

        A loop runs over `range` or over what `also` calls.
        """
        axes: list[Axis] = []
        conditions: list[Expr] = []
        for generator in generators:
            if not (isinstance(generator.target, ast.Tuple) and not generator.target.elts):  # `for () in [()]` is no loop
                given = arguments_of(generator.iter, "range", also)
                if len(given) not in (1, 2):
                    self.fail(generator.iter, f"expected range(stop) or range(start, stop), got {shown(generator.iter)}")
                bounds = [self.expr(e, dtypes.int64) for e in given]
                axes.append(Axis(self.name(generator.target), bounds[0] if len(bounds) == 2 else const(0), bounds[-1]))
                self.bound[axes[-1].index] = self.bound.get(axes[-1].index, 0) + 1
            conditions += [self.expr(e, dtypes.bool_) for e in generator.ifs]
        yield tuple(axes), conditions[0] if len(conditions) == 1 else conjunction(conditions) if conditions else None
        for axis in axes:
            self.bound[axis.index] -= 1

    def expr(self, node: ast.expr, expected: DType | None) -> Expr:
        """An expression where `expected` is asked for."""
        return self.read(node).finish(expected)

    def read(self, node: ast.expr) -> _Pending:
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return self.literal(node, value)
            case ast.UnaryOp(op=ast.USub(), operand=operand) if _is_number(operand):
                return self.literal(node, -_number(operand))
            case ast.Name(id=name):
                return self.bare_name(node, name)
            case ast.UnaryOp(op=op) if type(op) in _UNARY:
                return self.apply(node, _UNARY[type(op)], [node.operand])
            case ast.BinOp():
                return self.chain(node)
            case ast.BoolOp(op=op, values=[first, *rest]):
                result = self.read(first)
                for item in rest:
                    result = self.combine(node, "and" if isinstance(op, ast.And) else "or", [result, self.read(item)])
                return result
            case ast.Compare(ops=[op], comparators=[right]) if type(op) in _COMPARE:
                return self.apply(node, _COMPARE[type(op)], [node.left, right])
            case ast.Subscript(value=ast.Name(id=name)):
                return self.access(node, name)
            case ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=int() as component)) if called(call) == "reduce":
                return self.reduce(call, component)
            case ast.Call(func=ast.Name(id=name)):
                return self.call(node, name)
        self.fail(node, f"expected an expression of the language, got {shown(node)}")

    def chain(self, node: ast.BinOp) -> _Pending:
        """Operators that lean left, without recursion along them: sums of hundreds of terms are legal."""
        spine: list[ast.BinOp] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            if type(left.op) not in _BINARY:
                self.fail(left, f"expected an operator of the language, got {shown(left)}")
            spine.append(left)
            left = left.left
        result = self.read(left)
        for item in reversed(spine):
            result = self.combine(item, _BINARY[type(item.op)], [result, self.read(item.right)])
        return result

    def literal(self, node: ast.expr, value: bool | int | float) -> _Pending:
        if isinstance(value, bool):
            return _done(Const(value, dtypes.bool_))

        def finish(expected: DType | None) -> Expr:
            dtype = expected or (dtypes.int64 if isinstance(value, int) else None)
            if dtype is None:
                self.fail(node, f"expected a literal with a dtype, got {value} with nothing beside it", hint=f"write f32({value})")
            if dtype.is_bool or (dtype.is_integer and (isinstance(value, float) or not dtype.least <= value <= dtype.greatest)):
                self.fail(node, f"expected a literal of {dtype.name}, got {value if isinstance(value, float) else _digits(value)}")
            try:
                return Const(value, dtype)
            except OverflowError:  # an integer beyond all floats
                self.fail(node, f"expected a literal of {dtype.name}, got {_digits(int(value))}")

        return _Pending(None, finish)

    def bare_name(self, node: ast.expr, name: str) -> _Pending:
        if name in self.params:
            return _done(self.params[name])
        if name in self.sizes:
            return _done(Size(name))
        if name in ("inf", "nan") and not self.bound.get(name):
            return self.literal(node, float(name))
        if not self.bound.get(name) and not self.free_indices:
            self.fail(node, f"expected an index or a size, got the unknown name {name}")
        return _done(Index(name))

    def access(self, node: ast.Subscript, tensor: str) -> _Pending:
        if tensor not in self.tensors:
            self.fail(node, f"expected a tensor defined before, got {tensor}")
        indices = tuple(self.expr(e, dtypes.int64) for e in items_of(node.slice))
        return _done(Access(tensor, indices, self.tensors[tensor], Location("<program>", node.lineno)))

    def call(self, node: ast.Call, name: str) -> _Pending:
        if name in _DTYPES and len(node.args) == 1:
            dtype, arg = _DTYPES[name], node.args[0]
            if _is_number(arg) or (isinstance(arg, ast.UnaryOp) and isinstance(arg.op, ast.USub) and _is_number(arg.operand)):
                return _done(self.expr(arg, dtype))
            if isinstance(arg, ast.Constant) and isinstance(arg.value, bool) and dtype.is_bool:
                return _done(Const(arg.value, dtype))
            return _done(Cast(dtype, self.expr(arg, None)))
        if name == "reduce":
            return self.reduce(node, 0)
        if name in BUILTIN_COMBINERS and len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            with self.loops(node.args[0].generators) as (axes, where):
                value = self.read(node.args[0].elt)
            combiner = Combiner(name)
            if name in ("argmax", "argmin"):
                return _done(Reduce(combiner, (value.finish(None),), axes, where))
            return _Pending(value.dtype, lambda expected: Reduce(combiner, (value.finish(value.dtype or expected),), axes, where))
        if name in OPS:
            return self.apply(node, name, node.args)
        self.fail(node, f"expected an operation, a reduction or a dtype, got {name}", hint="operations are " + ", ".join(OPS))

    def apply(self, node: ast.expr, name: str, args: list[ast.expr]) -> _Pending:
        return self.combine(node, name, [self.read(a) for a in args])

    def combine(self, node: ast.expr, name: str, args: list[_Pending]) -> _Pending:
        op = OPS[name]
        values = args[1:] if name == "where" else args
        known = next((a.dtype for a in values if a.dtype is not None), None)

        def finish(expected: DType | None) -> Expr:
            wanted = known or (expected if op.result == "same" else None)
            condition = tuple(a.finish(dtypes.bool_) for a in args[:1]) if name == "where" else ()
            try:
                return Apply(op, condition + tuple(a.finish(wanted) for a in values))
            except DefinitionError as error:
                if error.at is not None:
                    raise
                self.fail(node, error.message, error.hint)

        if known is not None or op.result == "bool":  # nothing outside can change what it is
            return _done(finish(None))
        return _Pending(None, finish)

    def reduce(self, call: ast.Call, component: int) -> _Pending:
        match call.args:
            case [ast.Lambda() as function, identities, ast.GeneratorExp() as generator]:
                pass
            case _:
                self.fail(call, f"expected reduce(lambda a, b: ..., identity, (value for ...)), got {shown(call)}")
        identity = tuple(self.expr(e, None) for e in items_of(identities))
        names = [a.arg for a in function.args.args]
        if len(names) != 2 * len(identity):
            self.fail(function, f"expected {2 * len(identity)} parameters for {len(identity)} values, got {len(names)}")
        parameters = tuple(Param(n, identity[k % len(identity)].dtype) for k, n in enumerate(names))
        outer, self.params = self.params, {p.name: p for p in parameters}
        results = tuple(self.expr(e, i.dtype) for e, i in zip(self.packed(function.body, len(identity)), identity, strict=True))
        self.params = outer
        with self.loops(generator.generators) as (axes, where):
            values = tuple(self.expr(e, i.dtype) for e, i in zip(self.packed(generator.elt, len(identity)), identity, strict=True))
        label = next((k.value.value for k in call.keywords if k.arg == "name" and isinstance(k.value, ast.Constant)), "reduce")
        combiner = Combiner(str(label), parameters[: len(identity)], parameters[len(identity) :], results, identity)
        return _done(Reduce(combiner, values, axes, where, component))

    def packed(self, node: ast.expr, count: int) -> list[ast.expr]:
        items = items_of(node)
        if len(items) != count:
            self.fail(node, f"expected {count} values, got {len(items)}")
        return items


def syntax(text: str, mode: str, what: str = "a program") -> Any:
    """Python's syntax tree of the text of `what`."""
    try:
        return ast.parse(text, mode=mode)
    except (SyntaxError, ValueError) as error:
        line, column = getattr(error, "lineno", None) or 1, getattr(error, "offset", None) or 1
        raise DefinitionError(
            f"expected the text of {what}, got a syntax error: {getattr(error, 'msg', error)}", at=f"line {line}, column {column}"
        ) from None


def _done(expr: Expr) -> _Pending:
    return _Pending(expr.dtype, lambda expected: expr)


def shown(node: ast.AST) -> str:
    """The beginning of what a node says, for messages."""
    try:
        text = ast.unparse(node).partition("\n")[0]
    except ValueError:  # Python prints no number of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:56]} ..."


def _digits(value: int) -> str:
    """A number; one of more digits than Python prints by the power of two that it reaches."""
    return str(value) if value.bit_length() <= 128 else f"{'-' if value < 0 else ''}2^{value.bit_length() - 1} or more"


def arguments_of(node: object, *names: str) -> list[ast.expr]:
    """What a function of one of some names is called with; nothing for anything else, and for words that it does not know."""
    return node.args if isinstance(node, ast.Call) and called(node) in names and not node.keywords else []


def called(node: object) -> str | None:
    """The name of the function that a call calls, None for anything else."""
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None


def items_of(node: ast.expr) -> list[ast.expr]:
    """The elements of a tuple, the node itself for anything else."""
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return node.id in ("inf", "nan")
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def _number(node: ast.expr) -> int | float:
    if isinstance(node, ast.Name):
        return float(node.id)
    assert isinstance(node, ast.Constant) and isinstance(node.value, int | float)
    return node.value
