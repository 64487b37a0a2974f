"""Calls of schedules as text, and text as calls: `s['C'].split('i', 32)`, `s.rewrite('fuse_at', 'm', 'i_1')`.

Arguments are literals; an expression of a nest is written as text, and read by the rewrites that expect one at this place.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, NamedTuple

from tensorexpr import dtypes
from tensorexpr.codegen.nest import Alloc, LoopNest
from tensorexpr.codegen.rewrites.paths import walk_nest
from tensorexpr.codegen.schedule.schedule import Planned
from tensorexpr.dtypes import DType
from tensorexpr.errors import ScheduleError
from tensorexpr.ir import Expr
from tensorexpr.parse import parse_expr
from tensorexpr.text import print_expr

EXPRESSIONS: Mapping[str, Mapping[int, DType | None]] = {
    "hoist": {1: None},
    "keep": {1: None},
    "partition": {1: dtypes.int64, 2: dtypes.int64},
}
"""Where rewrites expect expressions: the positions behind the nest, and the dtype of literals there that nothing else gives one."""


class Call(NamedTuple):
    """A word with its arguments, on the loops of a definition (`on`) or on all of a schedule."""

    word: str
    arguments: tuple[Any, ...] = ()
    on: str | None = None

    def __str__(self) -> str:
        handle = "s" if self.on is None else f"s[{self.on!r}]"
        arguments = [repr(_written(a)) for a in self.arguments]
        if self.word == "planned" and arguments:  # a call each
            return "\n".join(("s.planned(", *(f"    {a}," for a in arguments), ")"))
        return f"{handle}.{self.word}({', '.join(arguments)})"


def _written(argument: Any) -> Any:
    """An argument as literals."""
    if isinstance(argument, Expr):
        return print_expr(argument)
    return tuple(map(_written, argument)) if isinstance(argument, tuple | list) else argument


def read(nest: LoopNest, word: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a rewrite of a nest, text read where it expects an expression."""
    places = EXPRESSIONS.get(word, {})
    if not any(at < len(arguments) and arguments[at] is not None for at in places):
        return arguments
    tensors = {b.name: b.dtype for b in (*nest.parameters, *nest.workspace)} | {c.name: c.type.dtype for c in nest.constants}
    tensors |= {s.buffer.name: s.buffer.dtype for _, s in walk_nest(nest) if isinstance(s, Alloc)}

    def one(argument: Any, dtype: DType | None) -> Any:
        if isinstance(argument, str):
            return parse_expr(argument, tensors, dtype, nest.sizes)
        return tuple(one(a, dtype) for a in argument) if isinstance(argument, tuple | list) else argument

    return tuple(one(a, places[at]) if at in places else a for at, a in enumerate(arguments))


def replay(planned: Planned, text: str) -> None:
    """Makes one call, as `Planned.as_python` writes it. Raises `ScheduleError` for text that is none."""
    try:
        call = ast.parse(text.strip(), mode="eval").body
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and not call.keywords
        arguments = [ast.literal_eval(a) for a in call.args]
        match call.func.value:
            case ast.Name(id="s"):
                handle: Any = planned
            case ast.Subscript(value=ast.Name(id="s"), slice=ast.Constant(value=str() as name)):
                handle = planned[name]
            case _:
                raise AssertionError
    except (SyntaxError, ValueError, AssertionError):
        raise ScheduleError(f"expected a call such as s['C'].split('i', 8), got {text!r}") from None
    getattr(handle, call.func.attr)(*arguments)
