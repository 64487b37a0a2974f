"""Index arithmetic for the interpreters: expressions of loop indices as Python functions on Python's own integers.

A tensor is read at every point of every loop, so an interpreter spends most of its time on where. An expression on NumPy scalars is a
function per node; one of indices, sizes and constants is one line of Python here, compiled once for each text. Python's integers do
not wrap around: what could pass 62 bits, where an index has at most 32, is left to the interpreter, like everything else that is not
arithmetic of indices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, SupportsInt

import numpy as np

from tensorexpr import dtypes
from tensorexpr.ir import Apply, Cast, Const, Expr, Index, Size

Env = dict[str, Any]
Thunk = Callable[[Env], Any]

_INDEX_BITS = 32
_MOST_BITS = 62
_DEEPEST = 40
"""Levels of parentheses; Python's parser takes some 200."""
_MOST_NODES = 200
"""Of one text: a value that is used twice stands there twice."""
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "and": "&", "or": "|",
}  # fmt: skip


class _Line(NamedTuple):
    """Python text, and how many bits its value may take."""

    text: str
    bits: int


class Positions:
    """Functions of the indices around an expression; `value` makes those of what is not index arithmetic."""

    def __init__(self, sizes: Mapping[str, SupportsInt], value: Callable[[Expr], Thunk]) -> None:
        self.sizes, self.value = sizes, value

    def place(self, indices: tuple[Expr, ...]) -> Thunk:
        """The position in a tensor: a tuple of Python integers."""
        others: list[Expr] = []
        texts = []
        for index in indices:
            line = _Writer(self, others).line(index)
            if line is None:
                others.append(index)
            texts.append(_called(others) if line is None else line.text)
        return _compiled(f"({''.join(text + ', ' for text in texts)})", len(others))(*map(self.value, others))

    def scalar(self, expr: Expr) -> Thunk | None:
        """The value of an operation as a NumPy scalar; None where it is no index arithmetic."""
        others: list[Expr] = []
        line = _Writer(self, others).line(expr)
        return line and _compiled(f"{'flag' if expr.dtype.is_bool else 'number'}({line.text})", len(others))(*map(self.value, others))


class _Writer:
    """Writes one expression. What its text has the interpreter compute is added to `others`."""

    def __init__(self, positions: Positions, others: list[Expr]) -> None:
        self.positions, self.others, self.room = positions, others, _MOST_NODES

    def line(self, expr: Expr) -> _Line | None:
        """The text, None where it is not, or not in all its parts, index arithmetic; then nothing is added."""
        before = len(self.others)
        made = self.written(expr, _DEEPEST)
        if made is None:
            del self.others[before:]
        return made

    def written(self, expr: Expr, depth: int) -> _Line | None:
        """The text of what may have so many levels of parentheses."""
        self.room -= 1
        match expr:
            case Index(name):
                return _Line(f"e[{name!r}]", _INDEX_BITS)
            case Size(name) if name in self.positions.sizes:
                return self.constant(int(self.positions.sizes[name]))
            case Const(value, dtype) if dtype is dtypes.int64:
                return self.constant(int(value))
            case Const(value, dtype) if dtype.is_bool:
                return _Line(repr(bool(value)), 1)
            case Cast(dtype, arg) if dtype is dtypes.int64 and arg.dtype.is_integer and arg.dtype.bits <= _INDEX_BITS:
                self.others.append(expr)
                return _Line(_called(self.others), _INDEX_BITS)
            case Apply(op, args) if depth and self.room > 0 and all(a.dtype is dtypes.int64 or a.dtype.is_bool for a in args):
                lines: list[_Line] = []
                for arg in args:
                    line = self.written(arg, depth - 1)
                    if line is None:
                        return None
                    lines.append(line)
                return self.operation(op.name, args, lines)
        return None

    @staticmethod
    def constant(value: int) -> _Line:
        return _Line(repr(value) if value >= 0 else f"({value})", value.bit_length())

    @staticmethod
    def operation(name: str, args: tuple[Expr, ...], lines: list[_Line]) -> _Line | None:
        first, last = lines[0], lines[-1]
        bits = max(line.bits for line in lines)
        match name:
            case "add" | "sub":
                bits += 1
            case "mul":
                bits = first.bits + last.bits
            case "floordiv" | "mod":
                if not isinstance(args[1], Const) or args[1].value == 0:
                    return None  # what is divided by zero is zero in this language
            case "neg" | "minimum" | "maximum" | "where":
                pass
            case _ if name in _INFIX:
                bits = bits if name in ("and", "or") else 1
            case _:
                return None
        if bits > _MOST_BITS:
            return None
        match name:
            case "neg":
                text = f"(-{first.text})"
            case "minimum" | "maximum":
                text = f"{name[:3]}({first.text}, {last.text})"
            case "where":
                text = f"({lines[1].text} if {first.text} else {last.text})"
            case _:
                text = f"({first.text} {_INFIX[name]} {last.text})"
        return _Line(text, bits)


def _called(others: list[Expr]) -> str:
    """A call of the interpreter's own function of what was added last."""
    return f"int(f{len(others) - 1}(e))"


@cache
def _compiled(text: str, others: int) -> Callable[..., Thunk]:
    """The maker of a function of the indices, from the functions that its text calls."""
    names = {"number": np.int64, "flag": np.bool_, "__builtins__": {"int": int, "min": min, "max": max}}
    made: Callable[..., Thunk] = eval(f"lambda {', '.join(f'f{n}' for n in range(others))}: lambda e: {text}", names)
    return made
